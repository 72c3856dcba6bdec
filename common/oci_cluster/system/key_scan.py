"""What looks like a key inside a file of code: for a warning, not for a proof that there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

# Larger files are data. A configuration, and the head of a script, are far shorter than what is read.
_LARGEST_BYTES = 1 << 20
_READ_BYTES = 64 << 10

# Each with what it is called. Sources: RFC 7468 and OpenSSH (headers), AWS (ids of access keys begin so), OCI's
# configuration file, and the prefixes that GitHub, GitLab, Hugging Face and Slack give their tokens to be found by.
PRIVATE_KEY = "a private key"
# What follows a private key's header, in JSON too: lines of an encrypted one, and the key. A program that reads keys
# has the header alone.
_BODY = rb"(\\[rn]|\s|[A-Za-z-]+: [^\n]*\n)*[A-Za-z0-9+/=]{16}"
_KEYS = (
    (PRIVATE_KEY, re.compile(rb"-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----" + _BODY)),
    ("a secret key of AWS", re.compile(rb"(?i)aws_secret_access_key['\"]?\s*[=:]\s*['\"]?[a-z0-9/+]{16}")),
    ("an access key of AWS", re.compile(rb"\b(AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a token of GitHub", re.compile(rb"\b(gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22})")),
    ("a token of GitLab", re.compile(rb"\bglpat-[A-Za-z0-9_-]{20}")),
    ("a token of Hugging Face", re.compile(rb"\bhf_[A-Za-z0-9]{30}")),
    ("a token of Slack", re.compile(rb"\bxox[abeoprs]-[A-Za-z0-9-]{10}")),
)
_OCI_CONFIG = (
    re.compile(rb"^\s*key_file\s*=", re.MULTILINE),
    re.compile(rb"^\s*fingerprint\s*=\s*([0-9a-f]{2}:){15}[0-9a-f]{2}", re.MULTILINE | re.IGNORECASE),
)


def look_for_keys(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield those of the files *paths* that hold what looks like a key, each with what it looks like.

    Links, files of more than 1 MiB, and what comes after the first 64 KiB of a file are not looked at.

    Raises:
        OSError: a file cannot be read.
    """
    for path in paths:
        if path.is_symlink() or path.stat().st_size >= _LARGEST_BYTES:
            continue
        with path.open("rb") as file:
            text = file.read(_READ_BYTES)
        if what := key_in(text):
            yield path, what


def key_in(text: bytes) -> str:
    """Return what *text* holds that looks like a key; empty where there is none."""
    if all(line.search(text) for line in _OCI_CONFIG):
        return "a configuration of OCI"
    return next((what for what, key in _KEYS if key.search(text)), "")
