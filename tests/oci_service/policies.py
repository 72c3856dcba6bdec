"""The language of policies: statements, their conditions, and the matching rules of dynamic groups.

README.md says what of it is known and what is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from oci_service.permissions import VERBS, permissions_of

Attributes = Mapping[str, str]
Condition = Callable[[Attributes], bool]
DEFAULT_DOMAIN = "Default"

_NAME = r"(?:'[^']*'|[^\s,/'{}]+)"
_SUBJECT = re.compile(rf"(?:id\s+(?P<id>\S+)|(?:(?P<domain>{_NAME})\s*/\s*)?(?P<name>{_NAME}))", re.IGNORECASE)
_STATEMENT = re.compile(
    r"(?P<effect>allow|deny)\s+(?P<kind>any-user|any-group|service|dynamic-group|group)(?P<subjects>\s.*?)?\s+"
    r"to\s+(?:(?P<verb>[a-z]+)\s+(?P<resource>[a-z-]+)|\{(?P<permissions>[^}]*)\})\s+"
    r"in\s+(?:(?P<tenancy>tenancy)|compartment\s+(?:id\s+(?P<compartment_id>\S+)|(?P<compartment>\S+)))"
    r"(?:\s+where\s+(?P<condition>.+))?",
    re.IGNORECASE | re.DOTALL,
)
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<pattern>/[^/]*/)|(?P<mark>!=|[={},])|(?P<word>[^\s={},!'\"/]+))"
)
# Of these a value in quotation marks may have a *; of others only a value between slashes.
_WITH_STARS = {"target.object.name"}


class NotPolicy(ValueError):  # noqa: N818 - what the text is
    """The text is no statement or no rule; the message says why."""


@dataclass(frozen=True)
class Subject:
    """Whom a statement allows or denies something: everybody, or who is in a group or is a service."""

    kind: str
    """``any-user``, ``any-group``, ``group``, ``dynamic-group`` or ``service``."""
    id: str = ""
    domain: str = DEFAULT_DOMAIN
    name: str = ""

    def matches(self, other: Subject) -> bool:
        """Return whether this, of a statement, is *other*, a group or a service that has an OCID, domain and name."""
        if self.kind != other.kind:
            return False
        if self.id:
            return self.id == other.id
        return (self.domain.lower(), self.name.lower()) == (other.domain.lower(), other.name.lower())


@dataclass(frozen=True)
class Statement:
    """One statement of a policy."""

    text: str
    subjects: tuple[Subject, ...]
    verb: str
    resource: str
    permissions: frozenset[str]
    compartment: tuple[str, ...]
    """Names from the policy's own compartment on; empty with *compartment_id*, and for the tenancy."""
    compartment_id: str = ""
    condition: Condition = field(default=lambda _: True, repr=False)
    is_denial: bool = False
    """Whether it takes *permissions* away, whoever gives them."""

    def lowered(self) -> Statement | None:
        """Return the statement with the next lower verb; None where there is none."""
        rank = VERBS.index(self.verb) if self.verb else 0
        if not rank:
            return None
        verb = VERBS[rank - 1]
        text = re.sub(rf"\bto\s+{self.verb}\b", f"to {verb}", self.text, count=1, flags=re.IGNORECASE)
        return parse_statement(text)


def _plain(name: str) -> str:
    return name.strip().strip("'")


def parse_statement(text: str) -> Statement:
    """Return the statement that *text* is.

    Raises:
        NotPolicy: it is none.
    """
    found = _STATEMENT.fullmatch(text.strip())
    if found is None:
        raise NotPolicy(f"not a statement that the stand-in knows: {text.strip()}")
    kind, given = found["kind"].lower(), (found["subjects"] or "").strip()
    verb, resource = (found["verb"] or "").lower(), (found["resource"] or "").lower()
    is_denial = found["effect"].lower() == "deny"
    if found["permissions"] is not None:
        permissions = frozenset(word.strip().upper() for word in found["permissions"].split(","))
    elif verb not in VERBS:
        raise NotPolicy(f"the verb is one of {', '.join(VERBS)}, not '{verb}'")
    elif (known := permissions_of(verb, resource)) is None:
        raise NotPolicy(f"the stand-in does not know the resource type '{resource}'")
    else:
        permissions = _denied(verb, resource) if is_denial else known
    return Statement(
        text=text.strip(),
        subjects=tuple(_subjects(kind, given)),
        verb=verb,
        resource=resource,
        permissions=permissions,
        compartment=tuple(_plain(name) for name in (found["compartment"] or "").split(":") if name),
        compartment_id=found["compartment_id"] or "",
        condition=parse_condition(found["condition"]) if found["condition"] else lambda _: True,
        is_denial=is_denial,
    )


def _denied(verb: str, resource: str) -> frozenset[str]:
    """Return what a denied *verb* takes away: what it adds to the lower ones, and what the higher ones add."""
    every, rank = permissions_of("manage", resource), VERBS.index(verb)
    below = permissions_of(VERBS[rank - 1], resource) if rank else frozenset()
    return (every or frozenset()) - (below or frozenset())


def _subjects(kind: str, text: str) -> Iterable[Subject]:
    if kind in {"any-user", "any-group"}:
        if text:
            raise NotPolicy(f"'{kind}' has no name, not '{text}'")
        yield Subject(kind)
        return
    if not text:
        raise NotPolicy(f"'{kind}' needs a name")
    for part in text.split(","):
        found = _SUBJECT.fullmatch(part.strip())
        if found is None:
            raise NotPolicy(f"not the name of a {kind}: {part.strip()}")
        domain = _plain(found["domain"] or DEFAULT_DOMAIN)
        yield Subject(kind, found["id"] or "", domain, _plain(found["name"] or ""))


def parse_condition(text: str) -> Condition:
    """Return the condition that *text* is: of a statement, or of a dynamic group's matching rule.

    Raises:
        NotPolicy: it is none.
    """
    tokens: list[str] = []
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise NotPolicy(f"not a condition that the stand-in knows: {text[at:].strip()}")
        tokens.append(found.group().strip())
        at = found.end()
    condition = _condition(tokens)
    if tokens:
        raise NotPolicy(f"not expected after a condition: {' '.join(tokens)}")
    return condition


def _condition(tokens: list[str]) -> Condition:
    word = _next(tokens)
    if word.lower() in {"any", "all"}:
        of = any if word.lower() == "any" else all
        _expect(tokens, "{")
        parts = [_condition(tokens)]
        while (mark := _next(tokens)) == ",":
            parts.append(_condition(tokens))
        if mark != "}":
            raise NotPolicy(f"expected ',' or '}}', not '{mark}'")
        return lambda attributes: of(part(attributes) for part in parts)
    relation, value = _next(tokens), _next(tokens)
    if relation not in {"=", "!="}:
        raise NotPolicy(f"the stand-in knows = and !=, not '{relation}'")
    return _comparison(word.lower(), value, is_equal=relation == "=")


def _comparison(variable: str, value: str, *, is_equal: bool) -> Condition:
    if value[0] not in "'\"/" or len(value) < 2:
        raise NotPolicy(f"a value stands in quotation marks or between slashes, not {value}")
    has_stars = value[0] == "/" or variable in _WITH_STARS
    parts = value[1:-1].split("*") if has_stars else [value[1:-1]]
    pattern = re.compile(".*".join(map(re.escape, parts)), re.IGNORECASE | re.DOTALL)

    def holds(attributes: Attributes) -> bool:
        # A variable that a request does not have makes a condition false, whatever the relation.
        return variable in attributes and (pattern.fullmatch(attributes[variable]) is not None) is is_equal

    return holds


def _next(tokens: list[str]) -> str:
    if not tokens:
        raise NotPolicy("the condition is not complete")
    return tokens.pop(0)


def _expect(tokens: list[str], wanted: str) -> None:
    if (found := _next(tokens)) != wanted:
        raise NotPolicy(f"expected '{wanted}', not '{found}'")
