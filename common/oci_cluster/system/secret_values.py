"""Which variables and arguments are secrets, by their names and by what they look like.

A name counts by its words: `DB_PASS` is one, `PASSES` is not. A value that cannot be one, such as `1` or a path, is
none whatever its name; one that looks like a key is one. These are guesses: who is refused can say that it is none.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from oci_cluster.system.key_scan import key_in
from oci_cluster.system.redaction import HIDDEN, redact

NOT_SHOWN = "(not shown)"
PLAIN = "what is none is given with --env-plain NAME=VALUE, and arguments with --env-plain ARGS"

# A launch makes it anew, as a dry run does: what that shows is the key of no cluster.
_NO_SECRETS = {"LAUNCH_KEY"}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Of these nearly every value is a secret.
_PASSWORDS = {
    *("PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "PASSCODE"),
    *("SECRET", "SECRETS", "CREDENTIAL", "CREDENTIALS", "CREDS"),
}
_ANYWHERE = {*_PASSWORDS, "TOKEN", "KEY", "KEYS", "APIKEY", "APIKEYS", "PRIVATE", "WEBHOOK", "WEBHOOKS"}
_LAST = {"PASS", "PAT", "DSN", "SAS", "JWT", "BEARER", "COOKIE", "COOKIES", "AUTHORIZATION"}
_IN_A_ROW = {
    *(("ACCESS", "TOKENS"), ("API", "TOKENS"), ("AUTH", "TOKENS"), ("BEARER", "TOKENS"), ("REFRESH", "TOKENS")),
    *(("CONNECTION", "STRING"), ("CONNECTION", "STRINGS"), ("CONN", "STRING"), ("CONN", "STR")),
    *(("AUTH", "CONFIG"), ("AUTH", "HEADER")),
}
# Written without a blank: SSHPASS, OPENAIAPIKEY.
_END = re.compile(r".+(PASS|PASSWORD|PASSWD|PASSPHRASE|PWD|TOKEN|SECRET|CREDENTIALS)|.*(API|ACCESS|SECRET|PRIVATE)KEY")
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
_NUMBER = re.compile(r"[+-]?[0-9]{1,4}(\.[0-9]*)?")
_PATH = re.compile(r"(~|\.{0,2})/[\w./ -]*\.\w{1,6}|(~|\.{0,2})/[\w./-]+/")
_FIELD = re.compile(r"[a-z][a-z_., -]{0,40}")

# A JSON web token, an authorization's, and those of OpenAI's kind.
_FORMS = re.compile(
    r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.|(?i:\bauthorization\s*[:=]\s*\S)|(?i:\bbearer)\s+(?=\S*[0-9])[\w.~+/=-]{12,}"
    r"|\bsk-[\w-]{20,}"
)
# name=value, name: value, "name": "value"
_ASSIGNED = re.compile(
    r"""(?<![\w/.-])["']?(?P<name>[A-Za-z][\w.-]{1,60})["']?\s*[:=]\s*["']?(?P<value>[^\s"',;&}]+)"""
)


def is_secret(name: str, text: str) -> bool:
    """Return whether the variable *name* with the value *text* is one to keep."""
    return bool(secret_in(name, text))


def secret_in(name: str, text: str) -> str:
    """Return what of the variable *name* with the value *text* is one to keep: its name, or that and an option's."""
    if name == "ARGS" and (words := _words_of(text)) is not None:
        option = next((shown for shown, _, value in _arguments(words) if shown and value), "")
        return f"{name} ({option})" if option else ""
    return name if is_name_of_secret(name, text) or _has_form(text) else ""


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* for people to see."""
    return {name: _shown(name, text) for name, text in environment.items()}


def is_name_of_secret(name: str, text: str) -> bool:
    """Return whether *name* is that of a secret, and *text* may be one."""
    words = _WORD.findall(name)
    upper = [word.upper() for word in words]
    if not upper or name in _NO_SECRETS or _NOTHING.fullmatch(text) or _PATH.fullmatch(text):
        return False
    joined = any(_END.fullmatch(word) and word not in _OTHER_WORDS for word in upper)
    if joined or _PASSWORDS & {*upper}:
        return True
    is_last = upper[-1] in _LAST or (upper[-1] == "PWD" and len(upper) > 1)
    is_named = is_last or any(
        _is_about_a_secret(before, word, text) for before, word in itertools.pairwise(["", *upper])
    )
    return is_named and not _NUMBER.fullmatch(text)


def _is_about_a_secret(before: str, word: str, text: str) -> bool:
    """Return whether *word*, which follows another one in a name, says that *text* is a secret."""
    if word == "TOKEN":
        return before not in _OF_MODELS
    if word in {"KEY", "KEYS"}:
        return before in _OF_DOORS or not _FIELD.fullmatch(text)
    return word in _ANYWHERE or (before, word) in _IN_A_ROW


def _has_form(text: str) -> bool:
    """Return whether *text* looks like a key, or has one in it."""
    if redact(text) != text or _FORMS.search(text) or key_in(text.encode()):
        return True
    return any(is_name_of_secret(found["name"], found["value"]) for found in _ASSIGNED.finditer(text))


def _shown(name: str, text: str) -> str:
    if name == "ARGS" and (words := _words_of(text)) is not None:
        return json.dumps([word for _, word, _ in _arguments(words)])
    shown = redact(text)
    if is_name_of_secret(name, text) or _has_form(shown):
        return NOT_SHOWN
    return shown


def _words_of(text: str) -> list[str] | None:
    try:
        words = json.loads(text)
    except ValueError:
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def _arguments(words: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield of each argument the option that it is or belongs to, how it is shown, and whether it is a secret."""
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
