"""What nobody else may read in settings, messages and logs: secrets that have such names, passwords in URLs."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

HIDDEN = "***"
NOT_SHOWN = "(not shown)"

# Not of a secret: TOKENIZER, MAX_TOKENS, and the shell's PWD.
_SECRET_NAME = re.compile(
    r"TOKEN(?!I|S)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|WEBHOOK|API_?KEY|ACCESS_?KEY|(^|_)KEY"
    r"|(^|_)(PASS|PAT|DSN)$|_PWD$",
    re.IGNORECASE,
)
# A launch makes the first anew, as a dry run does: what that shows is the key of no cluster. The second says whether
# nodes get a token, and is 0 or 1.
_NO_SECRETS = ("LAUNCH_KEY", "CLIENT_TOKEN")
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
# A pre-authenticated request of Object Storage: who has the URL has what it leads to.
_PRE_AUTHENTICATED = re.compile(r"(?P<host>://[^\s/'\"]*objectstorage[^\s/'\"]*/p/)[^\s/'\"]+", re.IGNORECASE)


def redact(text: str) -> str:
    """Return *text* without the passwords and tokens of the URLs in it; in their place stand three asterisks."""
    if "://" not in text:
        return text
    text = _USER_INFO.sub(_without_user, text)
    text = _PRE_AUTHENTICATED.sub(rf"\g<host>{HIDDEN}", text)
    return _PARAMETER.sub(rf"\g<name>{HIDDEN}", text)


def is_secret(name: str, text: str) -> bool:
    """Return whether the variable *name* with the value *text* is one to keep: by its name, or by a URL in it."""
    return _has_secret_name(name) or redact(text) != text


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* for people to see."""
    return {name: NOT_SHOWN if _has_secret_name(name) else redact(text) for name, text in environment.items()}


class RedactingFormatter(logging.Formatter):
    """Formats lines of a log, tracebacks too, without passwords and tokens of URLs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of *record*."""
        return redact(super().format(record))


def _has_secret_name(name: str) -> bool:
    return name not in _NO_SECRETS and bool(_SECRET_NAME.search(name))


def _without_user(found: re.Match[str]) -> str:
    scheme, user = found["scheme"], found["user"]
    if ":" not in user and _NAMED.fullmatch(scheme):
        return found[0]
    return f"{scheme}://{HIDDEN}@"
