"""What looks like a key: the files are made here, so that none of these texts stands in this repository as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.system import secret_values
from oci_cluster.system.secret_values import look_for_keys

BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw"
FINGERPRINT = ":".join(["ab"] * 16)
KEYS = [
    ("-----BEGIN " + f"PRIVATE KEY-----\n{BODY}", "a private key"),
    ("x = '''-----BEGIN RSA " + f"PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED\n\n{BODY}", "a private key"),
    ("-----BEGIN OPENSSH " + f"PRIVATE KEY-----\n{BODY}", "a private key"),
    ("-----BEGIN PGP " + f"PRIVATE KEY BLOCK-----\nVersion: 1\n\n{BODY}", "a private key"),
    (r'{"private_key": "-----BEGIN ' + rf'PRIVATE KEY-----\n{BODY}"}}', "a private key"),
    ("aws_secret_access" + "_key = wJalrXUtnFEMIK7MDENG", "a secret key of AWS"),
    ('{"AWS_SECRET_ACCESS' + '_KEY": "wJalrXUtnFEMIK7MDENG"}', "a secret key of AWS"),
    ("id = 'AKI" + "AIOSFODNN7EXAMPLE'", "an access key of AWS"),
    ("gh" + "p_" + "a1" * 18, "a token of GitHub"),
    ("github" + "_pat_" + "A" * 30, "a token of GitHub"),
    ("gl" + "pat-" + "x" * 20, "a token of GitLab"),
    ("login('h" + "f_" + "aB" * 17 + "')", "a token of Hugging Face"),
    ("xo" + "xb-" + "1234567890", "a token of Slack"),
    (f"[DEFAULT]\nuser=ocid1.user\nfingerprint={FINGERPRINT}\nkey_file=~/x\n", "a configuration of OCI"),
]
NO_KEYS = [
    "-----BEGIN " + "PUBLIC KEY-----",
    "-----BEGIN " + "CERTIFICATE-----",
    "if text.startswith('-----BEGIN " + "PRIVATE KEY-----'):\n    return a_private_key",
    "key = os.environ['AWS_SECRET_ACCESS" + "_KEY']",
    "aws_secret_access" + "_key=",
    "a = HAKI" + "AIOSFODNN7EXAMPLEX",
    "gh" + "p_short",
    "sh" + "f_" + "a" * 34,
    "key_file=train.py\n",
    f"# fingerprint={FINGERPRINT}\nkey_file=x",
    "",
]


def found(folder: Path, content: bytes) -> list[str]:
    (folder / "a file").write_bytes(content)
    return [what for _, what in look_for_keys([folder / "a file"])]


@pytest.mark.parametrize(("text", "what"), KEYS, ids=[what for _, what in KEYS])
def test_a_key_is_seen(tmp_path: Path, text: str, what: str) -> None:
    """In the middle of a line, too."""
    assert found(tmp_path, f"first line\n{text}\nlast line".encode()) == [what]


@pytest.mark.parametrize("text", NO_KEYS)
def test_what_is_none_is_not_called_one(tmp_path: Path, text: str) -> None:
    """Warnings that are wrong are not read."""
    assert found(tmp_path, text.encode()) == []


def test_only_the_beginning_of_small_files_is_read(tmp_path: Path) -> None:
    """A launch must not read data for minutes."""
    key = KEYS[0][0].encode()
    most, largest = secret_values._READ_BYTES, secret_values._LARGEST_BYTES
    assert found(tmp_path, b" " * (most - len(key)) + key) == ["a private key"]
    assert found(tmp_path, b" " * most + key) == []
    assert found(tmp_path, key + b" " * (largest - len(key) - 1)) == ["a private key"]
    assert found(tmp_path, key + b" " * (largest - len(key))) == []


def test_links_are_left_to_what_they_show(tmp_path: Path) -> None:
    """A file is named once; what is outside is refused elsewhere."""
    (tmp_path / "a").write_text(KEYS[0][0])
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").symlink_to("nothing")
    assert list(look_for_keys([tmp_path / name for name in "abc"])) == [(tmp_path / "a", "a private key")]
