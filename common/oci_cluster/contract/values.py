"""What a setting's text means: one parser for each kind of value."""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
from pathlib import Path, PurePosixPath
from typing import Any

from oci_cluster.contract.names import ROLES
from oci_cluster.system.text import moment

# Nine digits: 31 years even in seconds; more is a slip, and in the end infinity, which no wait can take.
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)")


_UNIT_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def parse_duration(text: str) -> float:
    """Return the seconds that *text* names: ``90``, ``90s``, ``1.5m``, ``2h`` or ``1d``.

    Raises:
        ValueError: anything else, negative numbers included.
    """
    match = _DURATION.fullmatch(text.strip())
    if not match:
        msg = f"'{text}' is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h"
        raise ValueError(msg)
    return float(match[1]) * _UNIT_S[match[2]]


def parse_time(text: str) -> float:
    """Return the Unix seconds of a time such as ``2026-01-31T23:59:59Z``.

    Raises:
        ValueError: it is none.
    """
    try:
        return float(moment(text.strip()))
    except (ValueError, OverflowError) as error:
        msg = f"'{text}' is not a time such as 2026-01-31T23:59:59Z"
        raise ValueError(msg) from error


def parse_count(text: str, *, minimum: int = 0, maximum: int = 1_000_000) -> int:
    """Return *text* as a whole number of *minimum* to *maximum*.

    Raises:
        ValueError: it is not one.
    """
    if not re.fullmatch(r"-?\d{1,18}", text.strip()) or not minimum <= int(text) <= maximum:
        msg = f"'{text}' is not a whole number from {minimum} to {maximum}"
        raise ValueError(msg)
    return int(text)


def parse_gpus(text: str) -> int | str:
    """Return how many GPUs a node gets: a number, ``auto`` or ``all``.

    Raises:
        ValueError: it is none of these.
    """
    if text in {"auto", "all"}:
        return text
    try:
        return parse_count(text, maximum=1000)
    except ValueError as error:
        msg = f"{error}, nor auto nor all"
        raise ValueError(msg) from error


def parse_bounds(text: str, *, maximum: int = 1_000_000) -> tuple[int, int]:
    """Return the two numbers of ``MIN:MAX``: neither below 0 nor above *maximum*, the smaller first.

    Raises:
        ValueError: they are not.
    """
    first, colon, last = text.strip().partition(":")
    least, most = (parse_count(part, maximum=maximum) if colon else -1 for part in (first, last))
    if not 0 <= least <= most:
        msg = f"'{text}' is not two numbers, the smaller first, such as 1:10"
        raise ValueError(msg)
    return least, most


def parse_followed(text: str) -> str:
    """Return *text*, which says what who follows a cluster can end of its workers.

    Raises:
        ValueError: it says nothing that is known.
    """
    if text not in {"any", "last"}:
        msg = f"'{text}' is neither any nor last"
        raise ValueError(msg)
    return text


def parse_ports(text: str) -> tuple[int, ...]:
    """Return the ports that *text* names, blanks or commas between.

    Raises:
        ValueError: one is none, or stands there twice.
    """
    found = tuple(parse_count(word, minimum=1, maximum=65535) for word in text.replace(",", " ").split())
    if twice := [port for number, port in enumerate(found) if port in found[:number]]:
        msg = f"{twice[0]} stands there twice"
        raise ValueError(msg)
    return found


def parse_switch(text: str) -> bool:
    """Return whether *text* switches something on: ``1 true yes on`` against ``0 false no off``.

    Raises:
        ValueError: it is none of these. (In ADS the text ``False`` was true.)
    """
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    msg = f"'{text}' is neither 1 nor 0"
    raise ValueError(msg)


def parse_entry_on(text: str) -> bool:
    """Return whether *text* has the entry point run on ``all`` nodes, not on ``main`` alone.

    Raises:
        ValueError: it is neither.
    """
    if text not in {"main", "all"}:
        msg = f"'{text}' is neither main nor all"
        raise ValueError(msg)
    return text == "all"


def parse_name(text: str) -> str:
    """Return *text* if it can be a file's name everywhere.

    Raises:
        ValueError: other characters than letters, digits and ``. _ -``, or more than 255 of them.
    """
    if not _NAME.fullmatch(text) or len(text) > 255:
        msg = f"'{text}' is not a name of letters, digits and . _ - (255 at most)"
        raise ValueError(msg)
    return text


def parse_module(text: str) -> str:
    """Return *text* if it names a module, as ``python -m`` takes it.

    Raises:
        ValueError: it does not.
    """
    if not _MODULE.fullmatch(text):
        msg = f"'{text}' is not the name of a module, such as package.train"
        raise ValueError(msg)
    if text.endswith(".py"):
        msg = f"'{text}' is a file's name; a module is named without .py: {text.removesuffix('.py')}"
        raise ValueError(msg)
    return text


def parse_torch(text: str) -> str:
    """Return *text*, which build of PyTorch is installed, if it can be named.

    Raises:
        ValueError: it cannot.
    """
    if text != "cpu":
        msg = f"'{text}' is not cpu, the only build that can be named; leave it out for the one that pip finds"
        raise ValueError(msg)
    return text


def parse_files(text: str) -> list[Path]:
    """Return the files that *text* names, blanks between; relative ones are in the folder that the user is in.

    Raises:
        ValueError: one is not there.
    """
    found = [Path(word).expanduser() for word in shlex.split(text)]
    if missing := [str(path) for path in found if not path.is_file()]:
        msg = f"there is no file {', '.join(missing)} in {Path.cwd()}"
        raise ValueError(msg)
    return found


def parse_names(text: str) -> list[str]:
    """Return what *text* names, commas between."""
    return [word.strip() for word in text.split(",") if word.strip()]


def parse_folders(text: str) -> list[str]:
    """Return the folders that *text* names, commas between, each once and as it is called inside the code.

    Raises:
        ValueError: one leads out of the code, or is all of it.
    """
    found = []
    for word in text.split(","):
        path = PurePosixPath(word.strip())
        if path.is_absolute() or ".." in path.parts or not path.parts:
            msg = f"'{word.strip()}' is not a folder inside the code, such as checkpoints"
            raise ValueError(msg)
        found.append(str(path))
    return list(dict.fromkeys(found))


def parse_args(text: str) -> list[str]:
    """Return the argument list that ``ARGS`` holds: a JSON list, or one shell-quoted string.

    Raises:
        ValueError: a list that is not one of plain values, or unbalanced quotes.
    """
    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except ValueError:
            pass  # `[a-z]* file` is a shell-quoted string that happens to begin with a bracket
        else:
            return [_plain(value) for value in values]
    return shlex.split(text)


_NODE = re.compile(r"MAIN|(?:WORKER|PS)_[1-9][0-9]{0,6}")


def parse_profiled(text: str) -> list[str]:
    """Return the names of the nodes on which the entry point is profiled; ``ALL`` alone stands for all.

    Raises:
        ValueError: a name is no node's.
    """
    names = text.replace(",", " ").split()
    for name in names if names != ["ALL"] else []:
        if not _NODE.fullmatch(name):
            msg = f"'{name}' is no node: MAIN, WORKER_1, ..., or ALL"
            raise ValueError(msg)
    return names


def no_profiler(program: str) -> str:
    """Return why ``PROFILE_CMD`` cannot be run: a node says it, and a launch that can see it."""
    advice = f"--with {program} adds it; in an image, EXTRA_ENV or SYSTEM_PACKAGES of make build"
    return f"PROFILE_CMD: there is no program '{program}': {advice}"


def parse_named_args(text: str) -> list[str]:
    """Return ``--k v`` for each pair of ``NAMED_ARGS``: a JSON object, or shell-quoted ``k=v`` words.

    Raises:
        ValueError: neither of these.
    """
    if text.lstrip().startswith("{"):
        pairs = [(_plain(key), _plain(value)) for key, value in json.loads(text).items()]
    else:
        pairs = []
        for word in shlex.split(text):
            key, equals, value = word.partition("=")
            if not equals or not key:
                msg = f"'{word}' is not of the form k=v"
                raise ValueError(msg)
            pairs.append((_plain(key), _plain(value)))
    return [part for key, value in pairs for part in (f"--{key}", value)]


def _plain(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        msg = f"{json.dumps(value)} is not a string or a number; quote it"
        raise ValueError(msg)
    text = str(value)
    if "\0" in text:
        msg = f"{text!r} holds a NUL character"
        raise ValueError(msg)
    return text


def parse_role(text: str) -> str:
    """Return the role that *text* names, in capitals.

    Raises:
        ValueError: there is no such role.
    """
    if text.upper() not in ROLES:
        msg = f"'{text}' is not one of {', '.join(ROLES)}"
        raise ValueError(msg)
    return text.upper()


def parse_verifier(text: str) -> str:
    """Return *text* if it is a SHA-256 in hex.

    Raises:
        ValueError: it is not.
    """
    if not re.fullmatch("[0-9a-f]{64}", text):
        msg = f"'{text}' is not the SHA-256 of a token, 64 hex digits"
        raise ValueError(msg)
    return text


def parse_url(text: str) -> str:
    """Return *text* if it is a URL.

    Raises:
        ValueError: it is not.
    """
    if not re.match(r"[a-z][a-z0-9+.-]*://", text):
        msg = f"'{text}' is not an fsspec URL such as file:///data/work or oci://bucket@namespace/work"
        raise ValueError(msg)
    return text


def parse_address(text: str) -> str:
    """Return *text* as an IP address is written.

    Raises:
        ValueError: it is none.
    """
    return str(ipaddress.ip_address(text.strip()))


def parse_network(text: str) -> str:
    """Return *text*, addresses in CIDR notation, as the network that they are of.

    Raises:
        ValueError: it is none.
    """
    return str(ipaddress.ip_network(text.strip(), strict=False))
