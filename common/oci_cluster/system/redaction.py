"""What nobody else may read in messages and logs: passwords and tokens of URLs."""

from __future__ import annotations

import logging
import re

from oci_cluster.system.text import harmless

HIDDEN = "***"

# What stands before an @ in a URL's authority. An oci:// URL has its bucket there, also as the folder of CODE_URI.
_USER_INFO = re.compile(
    r"\b(?P<scheme>(?!(?:folder\+)?oci:)[a-z][a-z0-9+.-]*)://(?P<user>[^\s/?#'\"<>]*)@", re.IGNORECASE
)
# Schemes by which a name alone is a login that everybody has: git@, or the user of a database.
_NAMED = re.compile(r"(git\+)?ssh|s?ftp|rsync|[a-z]*sql.*|postgres.*|mongodb.*|rediss?|amqps?", re.IGNORECASE)
_PARAMETER = re.compile(
    r"(?P<name>[?&;](?:[\w.-]*(?:token|secret|passw(?:or)?d|signature|credential|api[_-]?key|access[_-]?key)[\w.-]*"
    r"|sig|auth|key|pwd|code)=)[^\s&;#'\"<>]+",
    re.IGNORECASE,
)
# A pre-authenticated request of Object Storage, whose hosts may have other names: who has the URL has what it leads to.
_PRE_AUTHENTICATED = re.compile(
    r"(?P<host>://[^\s/'\"]*objectstorage[^\s/'\"]*/p/|://[^\s/'\"]+/p/(?=[^\s/'\"]+/n/[^\s/'\"]+/b/))[^\s/'\"]+",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Return *text* with three asterisks for passwords and tokens in its URLs."""
    if "://" not in text:
        return text
    text = _USER_INFO.sub(_without_user, text)
    text = _PRE_AUTHENTICATED.sub(rf"\g<host>{HIDDEN}", text)
    return _PARAMETER.sub(rf"\g<name>{HIDDEN}", text)


class RedactingFormatter(logging.Formatter):
    """Formats lines of a log, tracebacks too, without URLs' passwords and control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of *record*."""
        return "\n".join(harmless(line, colour=False) for line in redact(super().format(record)).split("\n"))


def _without_user(found: re.Match[str]) -> str:
    scheme, user = found["scheme"], found["user"]
    if ":" not in user and _NAMED.fullmatch(scheme):
        return found[0]
    return f"{scheme}://{HIDDEN}@"
