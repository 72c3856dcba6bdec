"""Conditions of policies and matching rules of dynamic groups: read, and judged by what is known of a request.

What is not known makes a condition neither true nor false: then the answer is None.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

#: True, False, or None: nobody can tell.
Known = bool | None

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<pattern>/[^/]*/)|(?P<mark>!=|[={},])|(?P<word>[^\s={},!'\"/]+))"
)
# Source: OCI's documentation of policies, Managing Access to Objects: of these a value in quotation marks may have a *;
# of others only a value between slashes (Advanced Policy Features).
_WITH_STARS = {"target.object.name"}


@dataclass(frozen=True)
class Comparison:
    """``variable = 'value'``; *pattern* matches what the value stands for."""

    variable: str
    value: str
    is_equal: bool
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class Group:
    """``any {...}`` or ``all {...}``."""

    is_any: bool
    parts: tuple[Condition, ...]


Condition = Comparison | Group


def parse_condition(text: str) -> Condition:
    """Return the condition that *text* is.

    Raises:
        ValueError: it is none of those that are known here.
    """
    tokens: list[str] = []
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"not a condition: {text[at:].strip()}")
        tokens.append(found.group().strip())
        at = found.end()
    tokens.reverse()
    condition = _condition(tokens)
    if tokens:
        raise ValueError(f"not expected after a condition: {tokens[-1]}")
    return condition


def _condition(tokens: list[str]) -> Condition:
    word = _next(tokens).lower()
    if word not in {"any", "all"}:
        return _comparison(word, _next(tokens), _next(tokens))
    mark = _next(tokens)
    parts: list[Condition] = []
    while mark == ("," if parts else "{"):
        parts.append(_condition(tokens))
        mark = _next(tokens)
    if mark != "}" or not parts:
        raise ValueError(f"not expected in a condition: {mark}")
    return Group(word == "any", tuple(parts))


def _comparison(variable: str, relation: str, value: str) -> Comparison:
    if relation not in {"=", "!="} or value[0] not in "'\"/" or len(value) < 2:
        raise ValueError(f"not a comparison: {variable} {relation} {value}")
    parts = value[1:-1].split("*") if value[0] == "/" or variable in _WITH_STARS else [value[1:-1]]
    # Source: OCI's documentation of policies, Conditions: "string comparisons are case insensitive".
    pattern = re.compile(".*".join(map(re.escape, parts)), re.IGNORECASE | re.DOTALL)
    return Comparison(variable, value[1:-1], relation == "=", pattern)


def _next(tokens: list[str]) -> str:
    if not tokens:
        raise ValueError("the condition is not complete")
    return tokens.pop()


def holds(condition: Condition | None, values: Mapping[str, str], absent: Collection[str] = ()) -> Known:
    """Return whether *condition* is true of a request of which *values* are known, by variable; None: nobody can tell.

    Variables that are *absent*, or begin with such a word that ends with a dot, the request does not have: a
    comparison of one is false, whatever its relation.
    """
    if condition is None:
        return True
    if isinstance(condition, Group):
        parts = [holds(part, values, absent) for part in condition.parts]
        return any_of(parts) if condition.is_any else all_of(parts)
    if condition.variable in values:
        return (condition.pattern.fullmatch(values[condition.variable]) is not None) is condition.is_equal
    is_absent = any(
        condition.variable == name or (name[-1] == "." and condition.variable.startswith(name)) for name in absent
    )
    return False if is_absent else None


def all_of(parts: Iterable[Known]) -> Known:
    """Return whether all are true: one that is false decides, else one that nobody can tell."""
    found = list(parts)
    if False in found:
        return False
    return None if None in found else True


def any_of(parts: Iterable[Known]) -> Known:
    """Return whether one is true: one that is true decides, else one that nobody can tell."""
    found = all_of(None if part is None else not part for part in parts)
    return None if found is None else not found


def equalities(condition: Condition | None) -> dict[str, str]:
    """Return the values that *condition*, one of our own statements, wants, by variable."""
    if isinstance(condition, Group):
        return {name: value for part in condition.parts for name, value in equalities(part).items()}
    return {condition.variable: condition.value} if condition else {}
