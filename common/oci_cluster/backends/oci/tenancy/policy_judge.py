"""Judges by meaning what groups and policies of a tenancy allow.

A statement counts that has a wider verb, type, place or condition, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import oci

from oci_cluster.backends.oci.tenancy.client import Ancestor, Answer, Tenancy
from oci_cluster.backends.oci.tenancy.requirements import Needed, Statement
from oci_cluster.errors import NotPermittedError, SettingsError

#: True, False, or None: nobody can tell.
Known = bool | None

VERBS = ("inspect", "read", "use", "manage")
# Types that our statements, or others in their place, may name. Source: OCI's policy reference of each service.
FAMILIES: Mapping[str, frozenset[str]] = {
    "object-family": frozenset({"objectstorage-namespaces", "buckets", "objects"}),
    "logging-family": frozenset({"log-groups", "log-content", "unified-configuration"}),
    "virtual-network-family": frozenset(
        {"vcns", "subnets", "route-tables", "security-lists", "network-security-groups", "private-ips", "vnics"}
    ),
    "data-science-family": frozenset(
        {"data-science-projects", "data-science-jobs", "data-science-job-runs", "data-science-work-requests"}
    ),
}
_NAME = r"(?:'[^']*'|[^\s,/'{}]+)"
_SUBJECT = re.compile(rf"(?:id\s+(?P<id>\S+)|(?:(?P<domain>{_NAME})\s*/\s*)?(?P<name>{_NAME}))", re.IGNORECASE)
_STATEMENT = re.compile(
    r"(?P<effect>allow|deny)\s+(?P<kind>any-user|any-group|service|dynamic-group|group)(?P<subjects>\s.*?)?\s+"
    r"to\s+(?:(?P<verb>[a-z]+)\s+(?P<resource>[a-z-]+)|\{(?P<permissions>[^}]*)\})\s+"
    r"in\s+(?:(?P<tenancy>tenancy)|compartment\s+(?:id\s+(?P<id>\S+)|(?P<path>\S+)))"
    r"(?:\s+where\s+(?P<condition>.+))?",
    re.IGNORECASE | re.DOTALL,
)
# What stands for any name below a prefix: no pattern but a * takes it.
_ANY_NAME = "\N{BULLET}"
# What a rule can ask of compute instances, which Job Runs are not.
_NOT_OF_RUNS = ("instance.",)
# Source: OCI's documentation of deny policies: the default administrators are always exempt.
_NEVER_DENIED = frozenset({"administrators"})
# OCI's own words for what it runs: source: OCI's documentation of Data Science, policies with resource principals.
_RUN = "datasciencejobrun"
Chain = Callable[[str], Sequence[Ancestor]]


class Access:
    """Judges the groups and policies of a tenancy. *makes_groups*: missing groups will be made."""

    def __init__(self, tenancy: Tenancy, needed: Needed, *, makes_groups: bool = False) -> None:
        self.tenancy = tenancy
        self.needed = needed
        self._makes_groups = makes_groups
        self._of_run = {"type": _RUN, "compartment.id": tenancy.places.jobs}

    # --- Who is in which group

    @property
    def dynamic_groups(self) -> Answer:
        """The dynamic groups of the identity domain Default."""
        return self.tenancy.ask_all("list dynamic groups", self.tenancy.identity.list_dynamic_groups, self.tenancy.id)

    @property
    def groups(self) -> Answer:
        """The groups of the identity domain Default."""
        return self.tenancy.ask_all("list groups", self.tenancy.identity.list_groups, self.tenancy.id)

    @property
    def nodes(self) -> Answer:
        """The dynamic group of ``NODES_GROUP``; no value where there is none."""
        return self._own("dynamic_resource_groups", self.needed.nodes)

    @property
    def people(self) -> Answer:
        """The group of ``PEOPLE_GROUP``; no value where there is none."""
        return self._own("groups", self.needed.people)

    def _own(self, kind: str, name: str) -> Answer:
        if "/" in name:
            return self._in_domain(kind, name)
        usual = self.groups if kind == "groups" else self.dynamic_groups
        own = next((one for one in usual.value or [] if group_name(one.name) == group_name(name)), None)
        return replace(usual, value=own)

    def has_runs(self, group: Any) -> Known:
        """Return whether the Job Runs of this launch are in a dynamic *group*."""
        values = {f"resource.{name}": value for name, value in self._of_run.items()}
        try:
            return holds(parse_condition(group.matching_rule), values, _NOT_OF_RUNS)
        except ValueError:
            return None

    @cached_property
    def groups_of_caller(self) -> frozenset[str]:
        """The groups of the caller that are seen."""
        user = self.tenancy.user
        if not user or not self.tenancy.id:
            return frozenset()
        request = self.tenancy.identity.list_user_group_memberships
        found = self.tenancy.ask_all("list your groups", request, self.tenancy.id, user_id=user)
        own = {item.group_id for item in found.value or []}
        return names_of([one.name for one in self.groups.value or [] if one.id in own])

    @property
    def is_caller_outside(self) -> bool:
        """True if the caller is in groups of Default that are seen, without ``PEOPLE_GROUP``."""
        own = self.groups_of_caller
        return bool(own and self.people.value and "/" not in self.needed.people) and not own & names_of(
            [self.needed.people]
        )

    def _in_domain(self, kind: str, group: str) -> Answer:
        """Return the *group* ``domain/name`` of an identity domain, ``groups`` or ``dynamic_resource_groups``.

        No value: the domain has none. Refused: the domain is not seen, or does not tell.
        """
        domain, _, name = group.rpartition("/")
        tenancy = self.tenancy
        found = self._domain(domain)
        if not found.is_given:
            return found
        client = tenancy.client(oci.identity_domains.IdentityDomainsClient, found.value.url)
        about = "displayName,ocid" if kind == "groups" else "displayName,ocid,matchingRule"
        asked = {"filter": f'displayName eq "{name}"', "attributes": about}
        answer = tenancy.ask(f"look up {group}", getattr(client, f"list_{kind}"), **asked)
        return replace(answer, value=next(iter(answer.value.resources or []), None)) if answer.is_given else answer

    def _domain(self, name: str) -> Answer:
        """Return an identity domain: of the tenancy, or of a compartment around the Jobs."""
        tenancy, seen = self.tenancy, dict[str, Any]()
        homes = dict.fromkeys([tenancy.id, *(up.id for up in tenancy.chain(tenancy.places.jobs))])
        for home in homes:
            every = tenancy.ask_all("list identity domains", tenancy.identity.list_domains, home)
            if not every.is_given:
                return every
            seen |= {str(one.display_name).lower(): one for one in every.value}
            if name.lower() in seen:
                return Answer(seen[name.lower()])
        if not seen:  # not even Default, which each tenancy has that has domains
            return Answer(refusal=NotPermittedError("no identity domain is seen"))
        names = ", ".join(str(one.display_name) for one in seen.values())
        msg = f"there is no identity domain {name} in the tenancy or around COMPARTMENT_OCID; there is {names}"
        msg += ": PEOPLE_GROUP and NODES_GROUP name one before the slash"
        return Answer(refusal=SettingsError(msg))

    def may_caller(self, what: str) -> Known:
        """Return whether the caller's groups may do *what*: ``manage buckets in tenancy``."""
        if not (names := self.groups_of_caller):
            return None
        caller = _member("group", names, self.groups)
        return judged(f"allow group x to {what}", caller, self.there, self.tenancy.id, self.tenancy.chain).is_allowed

    def _caller(self, of: str, text: str) -> Caller:
        needed = self.needed
        if of == "service":
            return Caller("service", frozenset({text.split()[2]}))
        if of == "people":
            named = names_of([needed.people])
            is_missing = not self._makes_groups and self.people.is_given and not self.people.value
            names = self.groups_of_caller or named if is_missing else named
            seen = Answer([]) if all("/" in name for name in names) else self.groups
            return _member("group", names, seen, self._in_own_domain(needed.people, self.people))
        matching = [group for group in self.dynamic_groups.value or [] if self.has_runs(group)]
        own = [needed.nodes] if self._makes_groups or "/" in needed.nodes or not matching else []
        values = {f"request.principal.{name}": value for name, value in self._of_run.items()}
        names = names_of([*(group.name for group in matching), *own])
        ids = self._in_own_domain(needed.nodes, self.nodes)
        return replace(_member("dynamic-group", names, self.dynamic_groups, ids), values=values)

    def _in_own_domain(self, group: str, found: Answer) -> dict[str, str]:
        """Return the OCID of a domain's *group*, if told, by its name to compare."""
        ocid = getattr(found.value, "ocid", None) if "/" in group else None
        return {name: str(ocid) for name in names_of([group]) if ocid}

    def elsewhere(self, kind: str, name: str) -> str:
        """Return ``domain/name`` of a group that statements name; empty if none does."""
        parsed = filter(None, (parse_statement(given.text) for given in self.there))
        every = {found for one in parsed if one.kind == kind for found in one.names}
        return next((found for found in sorted(every) if found.endswith(f"/{group_name(name)}")), "")

    # --- What they may do

    @cached_property
    def policies(self) -> list[tuple[str, Answer]]:
        """The policies of each compartment that can be about this launch."""
        tenancy, needed = self.tenancy, self.needed
        targets = [needed.network, needed.images, needed.bucket_in, needed.logs, needed.secrets_in]
        targets += [*needed.homes.values(), needed.project_in]
        ocids = [tenancy.places.jobs, *(one.partition("compartment id ")[2] for one in targets)]
        every = [tenancy.id, *(up.id for ocid in ocids for up in tenancy.chain(ocid))]
        request = tenancy.identity.list_policies
        homes = dict.fromkeys(filter(None, every))
        return [(home, tenancy.ask_all(f"list policies of {home}", request, home)) for home in homes]

    @cached_property
    def there(self) -> list[Given]:
        """The statements that are seen."""
        every = [(home, policy) for home, answer in self.policies for policy in answer.value or []]
        return [Given(text, home) for home, policy in every for text in policy.statements]

    def allows(self, one: Statement) -> Judgement:
        """Return whether the statements that are there allow what *one* would."""
        return judged(one.text, self._caller(one.of, one.text), self.there, self.tenancy.id, self.tenancy.chain)


# --- Statements ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parsed:
    """A statement that allows or denies something.

    *names* and *ids* are its subjects, in lower case, ``domain/name`` in a domain of its own. *verb* is empty where
    single permissions are listed. *compartment* is an OCID, ``tenancy``, or empty with a *path* from the policy's own
    on. *is_read* tells whether the condition could be read.
    """

    is_denial: bool
    kind: str
    names: frozenset[str]
    ids: frozenset[str]
    verb: str
    resource: str
    compartment: str
    path: tuple[str, ...]
    condition: Condition | None
    is_read: bool = True


@dataclass(frozen=True)
class Given:
    """A statement of a policy in the compartment *home*, an OCID."""

    text: str
    home: str


@dataclass(frozen=True)
class Caller:
    """The subject of a request: its groups, and values that conditions ask for.

    *is_seen* tells whether *ids* has the OCIDs of all its groups.
    """

    kind: str
    names: frozenset[str]
    ids: frozenset[str] = frozenset()
    values: Mapping[str, str] = field(default_factory=dict)
    is_seen: bool = True


def _member(kind: str, names: frozenset[str], seen: Answer, of_domain: Mapping[str, str] | None = None) -> Caller:
    """Return who is in groups; *seen* are those of Default, OCIDs *of_domain* others."""
    ids = {**{group_name(one.name): str(one.id) for one in seen.value or []}, **(of_domain or {})}
    is_seen = seen.is_given and all(name in ids for name in names if "/" in name)
    return Caller(kind, names, frozenset(ids[name] for name in names if name in ids), is_seen=is_seen)


@dataclass(frozen=True)
class Judgement:
    """Whether something is allowed; *denial* is a statement that takes it away, or may."""

    is_allowed: Known
    denial: str = ""


def parse_statement(text: str) -> Parsed | None:
    """Return the statement that *text* is; None where it is no such thing."""
    found = _STATEMENT.fullmatch(" ".join(text.split()))
    given = (found["subjects"] or "").strip() if found else ""
    parts = [_SUBJECT.fullmatch(part.strip()) for part in given.split(",")] if given else []
    if found is None or None in parts:
        return None
    condition, is_read = None, True
    if found["condition"]:
        try:
            condition = parse_condition(found["condition"])
        except ValueError:
            is_read = False
    return Parsed(
        is_denial=found["effect"].lower() == "deny",
        kind=found["kind"].lower(),
        names=frozenset(group_name(p["name"], p["domain"] or "") for p in parts if p and p["name"]),
        ids=frozenset(part["id"] for part in parts if part and part["id"]),
        verb=(found["verb"] or "").lower(),
        resource=(found["resource"] or "").lower(),
        compartment="tenancy" if found["tenancy"] else found["id"] or "",
        path=tuple(name.strip("'").lower() for name in (found["path"] or "").split(":") if name),
        condition=condition,
        is_read=is_read,
    )


def group_name(name: str, domain: str = "") -> str:
    """Return a group's name to compare: in lower case, with its domain unless ``Default``."""
    plain, place = (part.strip().strip("'").lower() for part in (name, domain))
    return plain if place in {"", "default"} else f"{place}/{plain}"


def judged(wanted: str, caller: Caller, there: Iterable[Given], tenancy: str, chain: Chain) -> Judgement:
    """Return whether statements allow *caller* what *wanted*, one of ours, would.

    None: one of them may, and its text does not tell; or one may take it away.
    """
    own = parse_statement(wanted)
    assert own is not None  # noqa: S101 - ours
    place = chain(tenancy if own.compartment == "tenancy" else own.compartment)
    asked = _Asked(own, caller, place, tenancy)
    found: list[Known] = []
    denials: dict[Known, str] = {}
    for given in there:
        parsed = parse_statement(given.text)
        if parsed is None:
            if any(name in given.text.lower() for name in caller.names):
                found.append(None)
        elif parsed.is_denial:
            denials.setdefault(asked.is_denied_by(parsed, given.home), given.text)
        else:
            found.append(asked.is_allowed_by(parsed, given.home))
    if True in denials:  # source: OCI's documentation of deny policies: they take precedence
        return Judgement(is_allowed=False, denial=denials[True])
    verdict = any_of(found)
    return Judgement(None, denials[None]) if verdict and None in denials else Judgement(verdict)


class _Asked:
    """A request, as far as one of our statements tells of it."""

    def __init__(self, own: Parsed, caller: Caller, place: Sequence[Ancestor], tenancy: str) -> None:
        self._own, self._caller, self._place, self._tenancy = own, caller, place, tenancy
        wanted = {name: value.replace("*", _ANY_NAME) for name, value in equalities(own.condition).items()}
        about = {"target.compartment.id": place[0].id} if place else {}
        self._values = {**caller.values, **about, **wanted}
        # As far as Oracle's pages tell, a list has no target.object.name.
        self._absent = {"target.object.name"} - set(wanted) if own.resource == "objects" else set()

    def is_allowed_by(self, given: Parsed, home: str) -> Known:
        verb: Known = VERBS.index(given.verb) >= VERBS.index(self._own.verb) if given.verb in VERBS else None
        return all_of([self.is_about(given, home), verb])

    def is_denied_by(self, given: Parsed, home: str) -> Known:
        """Return whether a part of what is asked is denied: one part is enough."""
        if self._caller.kind == "group" and self._caller.names == _NEVER_DENIED:
            return False
        # Oracle's page does not say whether denying to manage denies to read, too.
        is_sure = given.verb in VERBS and VERBS.index(given.verb) <= VERBS.index(self._own.verb)
        is_part = given.resource in FAMILIES.get(self._own.resource, ())
        about = self.is_about(replace(given, resource=self._own.resource) if is_part else given, home)
        return all_of([about, True if is_sure else None])

    def is_about(self, given: Parsed, home: str) -> Known:
        condition = holds(given.condition, self._values, self._absent) if given.is_read else None
        return all_of([self._is_caller(given), self._is_type(given), self._is_place(given, home), condition])

    def _is_caller(self, given: Parsed) -> Known:
        caller = self._caller
        # Source: OCI's documentation of policies, Subject: any-group is all users, instance principals and resource
        # principals; any-user is these, and services.
        if given.kind in {"any-user", "any-group"}:
            return given.kind == "any-user" or caller.kind != "service"
        if given.kind != caller.kind:
            return False
        if given.names & caller.names or given.ids & caller.ids:
            return True
        return None if given.ids and not caller.is_seen else False

    def _is_type(self, given: Parsed) -> Known:
        own = self._own.resource
        if not given.resource:
            return None  # single permissions, whose types their names tell to people alone
        if given.resource in {own, "all-resources"} or own in FAMILIES.get(given.resource, ()):
            return True
        return None if given.resource in FAMILIES.get(own, ()) else False

    def _is_place(self, given: Parsed, home: str) -> Known:
        place = self._place
        ids = [one.id for one in place]
        unknown: Known = False if place and place[-1].is_root else None
        if given.compartment == "tenancy" and home in {self._tenancy, *ids}:
            return True  # whatever compartment it is, and whether it is seen
        if home not in ids:
            return unknown
        if given.compartment:
            return True if given.compartment in ids else unknown
        at = ids.index(home)
        if len(given.path) == 1 and place[at].name == given.path[0]:
            return True  # a policy of a compartment may name that compartment
        below = [one.name for one in reversed(place[:at])][: len(given.path)]
        if len(below) < len(given.path):
            return False
        return all_of(None if not name else name == wanted for name, wanted in zip(below, given.path, strict=True))


def names_of(groups: Collection[str]) -> frozenset[str]:
    """Return names of settings, such as ``domain/name``, to compare."""
    return frozenset(group_name(name.rpartition("/")[2], name.rpartition("/")[0]) for name in groups if name)


# --- Conditions, of policies and of matching rules --------------------------------------------------------------------


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
    """Return the condition that *text* is; raise ValueError where it cannot be read."""
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
    """Return whether *condition* is true of a request with these *values*, by variable.

    None: nobody can tell. The request has no variables that are *absent*, or begin with such a word that ends with a
    dot: a comparison of one is false, whatever its relation.
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
    """Return whether all are true: a false one decides, else an unknown one."""
    found = list(parts)
    if False in found:
        return False
    return None if None in found else True


def any_of(parts: Iterable[Known]) -> Known:
    """Return whether one is true: a true one decides, else an unknown one."""
    found = all_of(None if part is None else not part for part in parts)
    return None if found is None else not found


def equalities(condition: Condition | None) -> dict[str, str]:
    """Return the values that *condition*, one of ours, wants, by variable."""
    if isinstance(condition, Group):
        return {name: value for part in condition.parts for name, value in equalities(part).items()}
    return {condition.variable: condition.value} if condition else {}
