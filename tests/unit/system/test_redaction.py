"""What nobody else may read of messages and logs: passwords and tokens of URLs."""

from __future__ import annotations

import logging

import pytest

from oci_cluster.system.redaction import RedactingFormatter, redact
from oci_cluster.system.secret_values import secret_in, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:hunter2@host/x", "https://***@host/x"),
        ("git+https://x-access-token:hunter2@host/x.git@main", "git+https://***@host/x.git@main"),
        ("https://hunter2@host/x", "https://***@host/x"),
        ("postgresql://me:hunter2@db:5432/x and more", "postgresql://***@db:5432/x and more"),
        ("ftp://me:hunter2@host/dir", "ftp://***@host/dir"),
        ("https://me:hun@ter2@host/x", "https://***@host/x"),
        ("https://host/x?token=hunter2", "https://host/x?token=***"),
        ("https://host/x?a=1&access_token=hunter2&b=2#c", "https://host/x?a=1&access_token=***&b=2#c"),
        ("https://host/x?X-Amz-Signature=hunter2", "https://host/x?X-Amz-Signature=***"),
        ("https://acc.blob/x?sv=1&sig=hunter2'", "https://acc.blob/x?sv=1&sig=***'"),
        (
            "https://objectstorage.eu-frankfurt-1.oraclecloud.com/p/hunter2-_/n/ns/b/code/o/c.tar",
            "https://objectstorage.eu-frankfurt-1.oraclecloud.com/p/***/n/ns/b/code/o/c.tar",
        ),
        (
            "https://ns.objectstorage.eu-frankfurt-1.oci.customer-oci.com/p/hunter2/n/ns/b/x/o/y",
            "https://ns.objectstorage.eu-frankfurt-1.oci.customer-oci.com/p/***/n/ns/b/x/o/y",
        ),
        ("https://storage.example/p/hunter2/n/ns/b/x/o/y", "https://storage.example/p/***/n/ns/b/x/o/y"),
        ('["--db", "redis://:hunter2@host"]', '["--db", "redis://***@host"]'),
    ],
)
def test_a_url_is_told_without_what_opens_it(text: str, shown: str) -> None:
    """The rest stays: it is what an error is about."""
    assert redact(text) == shown
    assert redact(shown) == shown
    assert secret_in("WHERE", text)
    assert without_secrets({"WHERE": text}) == {"WHERE": shown}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "oci://bucket@namespace/folder",
            "folder+oci://b@n/src",
            "file:///tmp/a@b",
            "https://host/a@b",
            "git+ssh://git@host/r@main",
            "a@b.c",
        ),
        *("https://host/x?page=2&key_frames=3", "https://host/p/x/n/y", "redis://host?db=1", "s3://bucket/key=1"),
        *("git+https://host/r@v1", "postgresql://me@db/x", "me:hunter2@host is no URL"),
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    """A bucket's namespace and a branch follow an @, too."""
    assert redact(text) == text


def test_lines_of_a_log_and_tracebacks_are_redacted() -> None:
    """Libraries quote the URL that they could not open."""
    formatter = RedactingFormatter("%(message)s")
    try:
        raise ValueError("cannot open https://me:hunter2@host/x\x1b[2J\x1b]0;evil\x07")  # as somebody's Job names it
    except ValueError as error:
        found = (type(error), error, error.__traceback__)
        record = logging.LogRecord("a", logging.ERROR, __file__, 1, "at %s", ("ftp://me:hunter2@h",), found)
    text = formatter.format(record)
    assert "hunter2" not in text
    assert text.startswith("at ftp://***@h\nTraceback")
    assert text.endswith("ValueError: cannot open https://***@host/x")
