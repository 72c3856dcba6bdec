"""Parsers of settings' texts, one for each kind of value; they raise ValueError."""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from oci_cluster.contract.names import ROLES, is_node
from oci_cluster.system.files import at_home
from oci_cluster.system.text import moment, printable

T = TypeVar("T")

# Nine digits: 31 years even in seconds; more is a slip, and in the end infinity, which no wait can take.
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)")
_UNIT_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_VAULT_SECRET = re.compile(r"ocid1\.vaultsecret\.[a-z0-9-]{1,20}\.[a-z0-9-]{0,40}\.[a-z0-9]{1,120}")
_PLACE = re.compile(
    r"main://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?):(?P<port>\d{1,5})/?"
)


class WrongValueError(ValueError):
    """A value that a parser refuses, with what to write instead."""

    def __init__(self, text: str, next_step: str) -> None:
        """Keep what is wrong, and the *next_step*."""
        super().__init__(f"{text}; {next_step}")
        self.text, self.next_step = text, next_step


def matching(pattern: str | re.Pattern[str], what: str) -> Callable[[str], str]:
    """Return a parser of texts that *pattern* matches; any other "is not *what*"."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"'{text}' is not {what}")
        return text

    return parse


def _choice(values: Mapping[str, T], what: str, spelled: Callable[[str], str] = str) -> Callable[[str], T]:
    """Return a parser of the words of *values*; any other text "is *what*"."""

    def parse(text: str) -> T:
        if (word := spelled(text)) not in values:
            raise ValueError(f"'{text}' is {what}")
        return values[word]

    return parse


parse_name = matching("[A-Za-z0-9][A-Za-z0-9._-]{0,254}", "a name of letters, digits and . _ - (255 at most)")
parse_verifier = matching("[0-9a-f]{64}", "the SHA-256 of a token, 64 hex digits")
parse_url = matching(
    "(?s:[a-z][a-z0-9+.-]*://.*)", "an fsspec URL such as file:///data/work or oci://bucket@namespace/work"
)
parse_followed = _choice({"any": "any", "last": "last"}, "neither any nor last")
parse_torch = _choice(
    {"cpu": "cpu"}, "not cpu, the only build that can be named; leave it out for the one that pip finds"
)
parse_role = _choice({role: role for role in ROLES}, f"not one of {', '.join(ROLES)}", str.upper)
# True: all nodes run the entry point.
parse_entry_on = _choice({"main": False, "all": True}, "neither main nor all")
# In ADS the text `False` was true.
parse_switch = _choice(
    {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)},
    "neither 1 nor 0",
    lambda text: text.strip().lower(),
)


def is_at_main(url: str) -> bool:
    """Return whether the work dir *url* is in the memory of main."""
    return url.startswith("main://")


def parse_place(url: str) -> tuple[str, int]:
    """Return host and port of main in a work dir in its memory."""
    found = _PLACE.fullmatch(url)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise ValueError(
            f"'{url}' is not main://HOST:PORT, with a name or an address of main and a port from 1 to 65535"
        )
    return found["host"].strip("[]"), int(found["port"])


def parse_duration(text: str) -> float:
    """Return the seconds that *text* names: ``90``, ``90s``, ``1.5m``, ``2h`` or ``1d``."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise WrongValueError(
            f"'{text}' is not a duration", "write seconds, or a number with s, m, h or d, such as 90s or 2h"
        )
    return float(match[1]) * _UNIT_S[match[2]]


def parse_time(text: str) -> float:
    """Return the Unix seconds of a time such as ``2026-01-31T23:59:59Z``."""
    try:
        return float(moment(text.strip()))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"'{text}' is not a time such as 2026-01-31T23:59:59Z") from error


def parse_count(text: str, *, minimum: int = 0, maximum: int = 1_000_000) -> int:
    """Return *text* as a whole number of *minimum* to *maximum*."""
    if not re.fullmatch(r"-?\d{1,18}", text.strip()) or not minimum <= int(text) <= maximum:
        raise ValueError(f"'{text}' is not a whole number from {minimum} to {maximum}")
    return int(text)


def parse_port(text: str) -> int:
    """Return *text* as the number of a port."""
    return parse_count(text, minimum=1, maximum=65535)


def parse_cpus(text: str) -> str:
    """Return *text* if it is a number of CPUs, such as ``0.5``."""
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", text) or float(text) <= 0:
        raise ValueError(f"'{text}' is not a number of CPUs such as 2 or 0.5")
    return text


def parse_gpus(text: str) -> int | str:
    """Return how many GPUs a node gets: a number, ``auto`` or ``all``."""
    if text in {"auto", "all"}:
        return text
    try:
        return parse_count(text, maximum=1000)
    except ValueError as error:
        raise ValueError(f"{error}, nor auto nor all") from error


def parse_bounds(text: str, *, maximum: int = 1_000_000, example: str = "1:10") -> tuple[int, int]:
    """Return both numbers of ``MIN:MAX``, the smaller first, *maximum* at most."""
    first, colon, last = text.strip().partition(":")
    least, most = (parse_count(part, maximum=maximum) if colon else -1 for part in (first, last))
    if not 0 <= least <= most:
        raise ValueError(f"'{text}' is not two numbers, the smaller first, such as {example}")
    return least, most


def parse_ports(text: str) -> tuple[int, ...]:
    """Return the ports that *text* names, blanks or commas between."""
    found = tuple(map(parse_port, text.replace(",", " ").split()))
    if twice := [port for number, port in enumerate(found) if port in found[:number]]:
        raise ValueError(f"{twice[0]} stands there twice")
    return found


def parse_module(text: str) -> str:
    """Return *text* if it names a module, as ``python -m`` takes it."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", text):
        raise ValueError(f"'{text}' is not the name of a module, such as package.train")
    if text.endswith(".py"):
        raise WrongValueError(
            f"'{text}' is a file's name", f"a module is named without .py: {text.removesuffix('.py')}"
        )
    return text


def parse_files(text: str) -> list[Path]:
    """Return the files that *text* names, blanks between, relative to the working directory."""
    found = [at_home(word) for word in shlex.split(text)]
    if missing := [str(path) for path in found if not path.is_file()]:
        raise ValueError(f"there is no file {', '.join(missing)} in {Path.cwd()}")
    return found


def parse_names(text: str) -> list[str]:
    """Return what *text* names, commas between."""
    return [word.strip() for word in text.split(",") if word.strip()]


def parse_vault_secrets(text: str) -> dict[str, str]:
    """Return the OCIDs of Vault secrets by variable: ``NAME=OCID``, blanks between."""
    found = {}
    for word in text.split():
        name, _, ocid = word.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", name) or not _VAULT_SECRET.fullmatch(ocid):
            shown = f"{printable(name, 80)}=..." if "=" in word else "a word without ="  # it may be the secret itself
            raise ValueError(f"{shown} is not NAME=OCID of a secret, such as TOKEN=ocid1.vaultsecret.oc1.iad.aaaa")
        if name in found:
            raise ValueError(f"{name} stands there twice")
        found[name] = ocid
    return found


def parse_folders(text: str) -> list[str]:
    """Return the folders inside the code that *text* names, commas between, without repeats."""
    found = []
    for word in text.split(","):
        path = PurePosixPath(word.strip())
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(f"'{word.strip()}' is not a folder inside the code, such as checkpoints")
        found.append(str(path))
    return list(dict.fromkeys(found))


def parse_args(text: str) -> list[str]:
    """Return the argument list that ``ARGS`` holds: a JSON list, or one shell-quoted string."""
    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except ValueError:
            pass  # `[a-z]* file` is a shell-quoted string that happens to begin with a bracket
        else:
            return [_plain(value) for value in values]
    return shlex.split(text)


def parse_profiled(text: str) -> list[str]:
    """Return the names of the nodes to profile; ``ALL`` alone means all."""
    names = text.replace(",", " ").split()
    for name in names if names != ["ALL"] else []:
        if not is_node(name):
            raise ValueError(f"'{name}' is no node: MAIN, WORKER_1, ..., or ALL")
    return names


def no_profiler(program: str) -> str:
    """Return the message, for nodes and launches, that ``PROFILE_CMD`` has no program."""
    advice = f"--with {program} adds it; in an image, EXTRA_ENV or SYSTEM_PACKAGES of make build"
    return f"PROFILE_CMD: there is no program '{program}': {advice}"


def parse_named_args(text: str) -> list[str]:
    """Return ``--k v`` for each pair of a JSON object or of ``k=v`` words."""
    if text.lstrip().startswith("{"):
        pairs = [(_plain(key), _plain(value)) for key, value in json.loads(text).items()]
    else:
        pairs = []
        for word in shlex.split(text):
            key, equals, value = word.partition("=")
            if not equals or not key:
                raise ValueError(f"'{word}' is not of the form k=v")
            pairs.append((_plain(key), _plain(value)))
    return [part for key, value in pairs for part in (f"--{key}", value)]


def _plain(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise WrongValueError(f"{json.dumps(value)} is not a string or a number", "quote it")
    text = str(value)
    if "\0" in text:
        raise ValueError(f"{text!r} holds a NUL character")
    return text


def parse_address(text: str) -> str:
    """Return *text* as an IP address is written."""
    return str(ipaddress.ip_address(text.strip()))


def parse_network(text: str) -> str:
    """Return the networks of *text*, addresses in CIDR notation, with commas between."""
    return ",".join(str(ipaddress.ip_network(one.strip(), strict=False)) for one in text.split(","))
