"""Checks sessions against an administrator's limits, ``scripts/sessions/policy.env``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.parsers import parse_count, parse_duration
from oci_cluster.contract.settings.settings_files import read_settings_file
from oci_cluster.errors import NotPermittedError, SettingsError

FILE = "policy.env"

_ROLES = ("", "MAIN_", "WORKER_", "PS_")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def _number(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        raise ValueError(f"'{text}' is not a number")
    return float(text)


def _size(text: str) -> float:
    if not (found := _SIZE.fullmatch(text)):
        raise ValueError(f"'{text}' is not a size such as 4g")
    return float(found[1]) * _UNITS[found[2].lower()]


def _time(text: str) -> float:
    """Return seconds; without end where there is no limit."""
    return parse_duration(text) or float("inf")


# Of each largest value: the settings of the launch that it bounds, and how both are read.
_LARGEST: Mapping[str, tuple[tuple[str, ...], Callable[[str], float]]] = {
    "MAX_TTL": (("TTL",), _time),
    "MAX_IDLE_LIMIT": (("IDLE_LIMIT",), _time),
    "MAX_WORKERS": (("WORKER_COUNT",), parse_count),
    "MAX_CPUS": (("CPUS",), _number),
    "MAX_MEMORY": (("MEMORY",), _size),
    "MAX_GPUS": (("GPUS",), _number),
    "MAX_OCPUS": (tuple(f"{role}OCPUS" for role in _ROLES), _number),
    "MAX_MEMORY_GBS": (tuple(f"{role}MEMORY_GBS" for role in _ROLES), _number),
}
_SHAPES = tuple(f"{role}SHAPE" for role in _ROLES)
# What a setting means that is empty: no GPU, a flexible shape's usual size (docs/oci.md), and with docker all CPUs and
# all memory of the machine.
_EMPTY = {"GPUS": "0", "OCPUS": "4", "MEMORY_GBS": "64"}
_UNBOUNDED = ("CPUS", "MEMORY")


def check_policy(plan: Plan, root: Path) -> None:
    """Raise NotPermittedError where a session of *plan* exceeds the policy of *root*."""
    path = root / "scripts" / "sessions" / FILE
    policy = {name: text for name, text in read_settings_file(path).items() if text} if path.exists() else {}
    if unknown := sorted(set(policy) - {*_LARGEST, "ALLOWED_SHAPES", "ASK"}):
        raise SettingsError(
            f"{path}: {', '.join(unknown)} is no rule; the rules are {', '.join(_LARGEST)}, ALLOWED_SHAPES and ASK"
        )
    given = {**plan.settings, **plan.environment}
    if found := [*_too_large(policy, given, path), *_other_shapes(policy, given)]:
        ask = policy.get("ASK") or f"whoever keeps {path}"
        raise NotPermittedError(f"the policy of sessions does not allow this: {'; '.join(found)}; for more ask {ask}")


def _too_large(policy: Mapping[str, str], given: Mapping[str, str], path: Path) -> Iterator[str]:
    for rule, (names, parse) in _LARGEST.items():
        if not (limit_text := policy.get(rule)):
            continue
        try:
            limit = parse(limit_text)
        except ValueError as error:
            raise SettingsError(f"{path}: {rule}: {error}") from error
        for name in names:
            if name not in given:  # another backend's
                continue
            text = given[name] or _EMPTY.get(name, "")
            if not text and name in _UNBOUNDED:
                yield f"{name} is not set, which is no limit, and {limit_text} is the most"
            elif text and _is_more(text, parse, limit):
                yield f"{name}={text} is more than {limit_text}"


def _is_more(text: str, parse: Callable[[str], float], limit: float) -> bool:
    try:
        return parse(text) > limit
    except ValueError:  # `all` GPUs, or one that the backend refuses anyway
        return True


def _other_shapes(policy: Mapping[str, str], given: Mapping[str, str]) -> Iterator[str]:
    allowed = policy.get("ALLOWED_SHAPES", "").split(",") if policy.get("ALLOWED_SHAPES") else []
    for name in _SHAPES:
        if allowed and given.get(name) and given[name] not in allowed:
            yield f"{name}={given[name]} is none of {', '.join(allowed)}"
