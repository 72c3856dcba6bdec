"""Guesses which variables, arguments and files hold secrets, by names and by form.

A name counts by its words: `DB_PASS` is one, `PASSES` is not. A value that cannot be one, such as `1` or a path, is
none whatever its name; one that looks like a key is one. These are guesses: who is refused can say that it is none.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from oci_cluster.system.redaction import HIDDEN, redact

NOT_SHOWN = "(not shown)"
PLAIN = "what is none is given with --env-plain NAME=VALUE, and arguments with --env-plain ARGS"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Of these nearly every value is a secret.
_PASSWORDS = {
    *("PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "PASSCODE"),
    *("SECRET", "SECRETS", "CREDENTIAL", "CREDENTIALS", "CREDS"),
}
_ANYWHERE = {"PRIVATE", "WEBHOOK", "WEBHOOKS"}
_LAST = {
    *("PASS", "PW", "PAT", "PATS", "DSN", "SAS", "JWT", "JWTS", "OTP", "BEARER", "COOKIE", "COOKIES"),
    *("AUTHORIZATION", "CONNSTR", "MNEMONIC", "MNEMONICS"),
}
# Last, and of random letters: SALT=mD9f3kQ7 is one, SIGNATURE=serving_default and TOKENS=300B are none.
_RANDOM = {"HMAC", "PEPPER", "SALT", "SIGNATURE", "SK", "TOKENS", "SESSION ID"}
_IN_A_ROW = {
    *(("CONNECTION", "STRING"), ("CONNECTION", "STRINGS"), ("CONN", "STRING"), ("CONN", "STR")),
    *(("AUTH", "CONFIG"), ("AUTH", "HEADER"), ("SEED", "PHRASE"), ("RECOVERY", "PHRASE")),
}
# What is about a secret: TOKEN_FILE=keys/me.txt, SECRET_NAME=mine.
_ABOUT = {"DIR", "FILE", "LENGTH", "NAME", "PATH", "SIZE", "TTL", "TYPE"}
# Written without a blank: SSHPASS, OPENAIAPIKEY.
_END = re.compile(
    r".+(PASS|PASSWORD|PASSWD|PASSPHRASE|PWD|PW|TOKEN|SECRET|CREDENTIALS)"
    r"|.*(ACCESS|ACCOUNT|API|PRIVATE|SECRET)KEYS?|.*SESS(ION)?ID"
)
_OTHER_WORDS = {
    *("BYPASS", "COMPASS", "ENCOMPASS", "OVERPASS", "SURPASS", "TRESPASS", "UNDERPASS", "OLDPWD"),
    *("BANDPASS", "HIGHPASS", "LOWPASS", "ALLPASS"),
}
# Other keys may be those of a table: SORT_KEY=label.
_OF_DOORS = {
    *("ACCESS", "ACCOUNT", "API", "AUTH", "ENCRYPTION", "LICENSE", "MASTER", "PRIVATE", "SECRET", "SIGNING", "SSH"),
}
# What a model's tokens are called.
_OF_MODELS = {
    *("BLANK", "BOS", "CLS", "END", "EOS", "EOT", "IMAGE", "MASK", "PAD", "SEP", "SPECIAL", "START", "STOP", "UNK"),
    *("MAX", "MIN", "NEW", "NEXT", "NUM", "PER"),
}

_NOTHING = re.compile(r"(?i)|[01]|true|false|yes|no|on|off|none|null|\*\*\*")
# An OCID names something, and opens nothing.
_OCID = re.compile(r"(?:[A-Za-z_]\w*=)?ocid1(?:\.[a-z0-9-]*){3,5}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,4}(\.[0-9]*)?")
_COUNT = re.compile(r"(?i)[0-9][0-9_]*(\.[0-9]*)?(e[0-9]+)?[KMBT]?")
_PATH = re.compile(r"(~|\.{0,2})/[\w./ -]*\.\w{1,6}|(~|\.{0,2})/[\w./-]+/|(~|\.{0,2})(/[a-z._-]+){2,}")
_FIELD = re.compile(r"[a-z][a-z_., -]{0,40}|(?i:hs|rs|sha|md)-?[0-9]{1,3}")

# A JSON web token, an authorization's, those of OpenAI's kind, and a line of .netrc.
_FORMS = re.compile(
    r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.|(?i:\bauthorization\s*[:=]\s*\S)"
    r"|(?i:\bbearer|\btoken)\s+(?=\S*[0-9])[\w.~+/=-]{12,}"
    r"|(?i:\bbasic)\s+(?=\S*[0-9])[A-Za-z0-9+/]{12,}={0,2}(?!\S)|\bsk-[\w-]{20,}"
    r"|\bmachine\s+\S+\s+login\s+\S+\s+password\s"
    r"|://hooks\.slack\.com/\w+/T|://discord(app)?\.com/api/webhooks/[0-9]"
    # user:password@host; an image, a version and an address of mail are none
    r"|(?<![\w/:.@+-])(?!(?:mailto|e?mail):)[\w.+-]+:[^\s:/@,;\"'{}]+@"
    r"(?:([0-9]+\.){3}[0-9]|(?!sha[0-9]|v[0-9]|(?:main|master|latest|HEAD)\b)[A-Za-z])"
)
# name=value, name: value, "name": "value"
_ASSIGNED = re.compile(
    r"""(?<![\w/.-])["']?(?P<name>[A-Za-z][\w.-]{1,60})["']?\s*[:=]\s*["']?(?P<value>[^\s"',;&}]+)"""
)
# --name value, in a text of options
_OPTION = re.compile(r"(?<![^\s=])--?(?P<name>[A-Za-z][\w.-]{1,60})\s+(?P<value>[^\s-]\S*)")


def secret_in(name: str, text: str) -> str:
    """Return the name of the secret in a variable; empty where there is none."""
    if name == "ARGS" and (words := _words_of(text)) is not None:
        option = next((shown for shown, _, value in _arguments(words) if shown and value), "")
        return f"{name} ({option})" if option else ""
    return name if is_name_of_secret(name, text) or _has_form(text) else ""


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* for people to see."""
    return {name: _shown(name, text) for name, text in environment.items()}


def is_name_of_secret(name: str, text: str) -> bool:
    """Return whether *name* is that of a secret, and *text* may be one."""
    upper = [word.upper() for word in _WORD.findall(name.rstrip("_0123456789"))]
    # A launch makes its key anew, as a dry run does: what that shows is the key of no cluster.
    if not upper or name == "LAUNCH_KEY" or _NOTHING.fullmatch(text) or _PATH.fullmatch(text):
        return False
    before, last = ["", *upper][-2:]
    is_field, is_last = bool(_FIELD.fullmatch(text)), last in _LAST or (last == "PWD" and len(upper) > 1)
    is_reference = last in _ABOUT and (is_field or re.fullmatch(r"[0-9]+|\S*[./]\S*", text))
    if is_reference or all(map(_OCID.fullmatch, text.split())):
        return False
    joined = any(_END.fullmatch(word) and word not in _OTHER_WORDS for word in upper)
    if joined or _PASSWORDS & {*upper} or (last == "PIN" and re.fullmatch("[0-9]{4,12}", text)):
        return True
    is_last = is_last or (last in {"AUTH", "OAUTH"} and not is_field)  # AUTH=basic is a way
    if last in _RANDOM or f"{before} {last}" in _RANDOM:
        is_last = before in _OF_DOORS or not (is_field or before in _OF_MODELS)
    is_named = is_last or any(
        word in _ANYWHERE
        or (before, word) in _IN_A_ROW
        or (word == "TOKEN" and before not in _OF_MODELS)
        or (word in {"KEY", "KEYS"} and (before in _OF_DOORS or not is_field))
        for before, word in itertools.pairwise(["", *upper])
    )
    number = _NUMBER if last in _ANYWHERE | _LAST | _RANDOM - {"TOKENS"} | {"TOKEN", "KEY", "KEYS"} else _COUNT
    return is_named and not number.fullmatch(text)


def _has_form(text: str) -> bool:
    """Return whether *text* looks like a key, or has one in it."""
    if redact(text) != text or _FORMS.search(text) or key_in(text.encode()):
        return True
    pairs = itertools.chain(_ASSIGNED.finditer(text), _OPTION.finditer(text))
    return any(is_name_of_secret(found["name"], found["value"]) for found in pairs)


def _shown(name: str, text: str) -> str:
    if name == "ARGS" and (words := _words_of(text)) is not None:
        return json.dumps([word for _, word, _ in _arguments(words)])
    shown = redact(text)
    return NOT_SHOWN if is_name_of_secret(name, text) or _has_form(shown) else shown


def _words_of(text: str) -> list[str] | None:
    try:
        words = json.loads(text)
    except ValueError:
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def _arguments(words: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield each argument's option, how it is shown, and whether it is secret."""
    before = ""
    for word in words:
        name, equals, value = word.partition("=") if word.startswith("-") else (before, "", word)
        option = re.sub(r"\W+", "_", name.strip("-"))
        is_value = bool(equals) or not word.startswith("-")
        if is_value and option and is_name_of_secret(option, value):
            yield name, f"{name}={HIDDEN}" if equals else HIDDEN, True
        elif (shown := redact(word)) != word:
            yield name or shown, shown, True
        elif _has_form(word):
            yield name or "an argument", HIDDEN, True
        else:
            yield "", word, False
        before = word if word.startswith("-") and not equals else ""


# Larger files are data. A configuration, and the head of a script, are far shorter than what is read.
_LARGEST_BYTES, _READ_BYTES = 1 << 20, 64 << 10

# Each with what it is called. Sources: RFC 7468 and OpenSSH (headers), AWS (ids of access keys begin so), OCI's
# configuration file, and the prefixes that these give their tokens to be found by; last Google, npm, PyPI, Stripe,
# SendGrid, DigitalOcean and HashiCorp's Vault.
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
    ("a token of Slack", re.compile(rb"\b(xox[abeoprs]|xapp)-[A-Za-z0-9-]{10}")),
    (
        "a token",
        re.compile(
            rb"\b(AIza[\w-]{35}|ya29\.[\w-]{20}|npm_[A-Za-z0-9]{36}|pypi-AgEI[\w-]{40}|[rs]k_(live|test)_[A-Za-z0-9]{20}"
            rb"|SG\.[\w-]{22}\.[\w-]{43}|dop_v1_[0-9a-f]{64}|hvs\.[\w-]{20})"
        ),
    ),
)
_OCI_CONFIG = (
    re.compile(rb"^\s*key_file\s*=", re.MULTILINE),
    re.compile(rb"^\s*fingerprint\s*=\s*([0-9a-f]{2}:){15}[0-9a-f]{2}", re.MULTILINE | re.IGNORECASE),
)


def look_for_keys(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield those of the files *paths* that seem to hold a key, and which.

    Links, files of more than 1 MiB, and what comes after the first 64 KiB of a file are not looked at.
    """
    for path in paths:
        if path.is_symlink() or path.stat().st_size >= _LARGEST_BYTES:
            continue
        with path.open("rb") as file:
            text = file.read(_READ_BYTES)
        if what := key_in(text):
            yield path, what


def key_in(text: bytes) -> str:
    """Return what *text* holds that looks like a key: for a warning, not for a proof."""
    if all(line.search(text) for line in _OCI_CONFIG):
        return "a configuration of OCI"
    return next((what for what, key in _KEYS if key.search(text)), "")
