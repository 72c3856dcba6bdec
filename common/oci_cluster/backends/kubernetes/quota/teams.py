"""``teams.yaml``: an administrator's teams, read by one schema, and rendered as objects of Kubernetes.

All that is wrong is told in one message, each with its line. So YAML's nodes are read: plain data would keep the last
of two equal names, and lose where it stood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from oci_cluster.backends.kubernetes.cluster.requests import rendered
from oci_cluster.backends.kubernetes.quota.usage import amount, shown
from oci_cluster.backends.kubernetes.settings import EFFECTS, KEY, LABEL, NAME, TAINT, toleration
from oci_cluster.contract.parsers import matching, parse_count, parse_switch
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import SettingsError
from oci_cluster.system.text import printable

Object = dict[str, Any]
NO_QUEUE = (
    "Kueue is not installed here: a ResourceQuota refuses pods one by one, there is no queue, and nothing is all or "
    "nothing: half a cluster may start (docs/kueue.md)"
)
# Ours; Kueue's own are Never.
_PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


# --- The schema: a parser for each kind of word, which raises ValueError with what is expected ------------------------


def _one_of(*words: str) -> Callable[[str], str]:
    return matching("|".join(words), f"one of {', '.join(words)}")


_name = matching(NAME, "a name of small letters, digits and - (63 at most)")
_label = matching(KEY, "a name such as nvidia.com/gpu")
_label_value = matching(LABEL, "a label's value: letters, digits and . _ - (63 at most)")
_whole = matching("0|[1-9][0-9]{0,6}", "a whole number from 0 to 9999999")
_yes_no = matching("(?ai:yes|no|true|false|on|off|1|0)", "yes or no, or amounts such as {gpus: 4}")
# Source: Kubernetes' documentation of PriorityClass: larger values are for the system. Kueue takes 32 bits.
_priority = partial(parse_count, minimum=-1_000_000_000, maximum=1_000_000_000)


def _cohort(text: str) -> str:
    return "" if text in {"", "none", "null", "~"} else _name(text)


def _amount(text: str) -> str:
    if amount(text) < 0:
        raise ValueError(f"{text} is negative; write 0 or more")
    return text


def _bytes(text: str) -> str:
    if 0 < amount(_amount(text)) < 1024 * 1024:
        raise ValueError(f"{text} is less than a megabyte; write the unit, such as {text}Gi")
    return text


def _taint(text: str) -> dict[str, str]:
    found = TAINT.fullmatch(text)
    if not found or not found["effect"]:
        raise ValueError(f"'{text}' is not a taint KEY=VALUE:EFFECT with an effect of {', '.join(EFFECTS)}")
    return {name: word for name, word in found.groupdict().items() if word}


# A parser: a word; [rule]: a list, or one; {"name": rule, ...}: these names; {parser: rule}: all names that it takes;
# (parser, {...}): either.
_Rule = Any
_AMOUNTS: _Rule = {
    "gpus": _whole,
    "cpus": _amount,
    "memory": _bytes,
    "pods": _whole,
    "ephemeral-storage": _bytes,
    "resources": {_label: _amount},
}
_LIMITS: _Rule = {"borrow": (_yes_no, _AMOUNTS), "lend": (_yes_no, _AMOUNTS)}
_WHO_ENDS_WHOM: _Rule = {
    "withinClusterQueue": _one_of("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
    "reclaimWithinCohort": _one_of("Never", "LowerPriority", "Any"),
}
_FLAVOR: _Rule = {"labels": {_label: _label_value}, "taints": [_taint], "tolerations": [toleration], "gpu": _label}
_TEAM: _Rule = {
    "namespace": [_name],
    "namespaces": [_name],
    "queue": _name,
    "cohort": _cohort,
    "preemption": _WHO_ENDS_WHOM,
    **_LIMITS,
    "quota": {_name: {**_AMOUNTS, **_LIMITS}},
}
_SCHEMA: _Rule = {
    "name": _name,
    "cohort": _cohort,
    "preemption": _WHO_ENDS_WHOM,
    "priorities": {_name: _priority},
    "flavors": {_name: _FLAVOR},
    "teams": {_name: _TEAM},
}


# --- Reading ----------------------------------------------------------------------------------------------------------


def read_table(path: Path) -> Object:
    """Returns the teams in the file *path*, as the template takes them.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong; holds all that is.
    """
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {getattr(error, 'strerror', '') or error}") from error
    except yaml.YAMLError as error:
        mark, what = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
        line = f":{mark.line + 1}" if mark else ""
        raise SettingsError(f"{path}{line}: this is no YAML: {printable(what)}") from error
    reader = _Reader(path)
    table = reader.table(reader.read(root, _SCHEMA, "") if root else {})
    if reader.problems:
        ordered = [f"  {text}" for _, text in sorted(reader.problems, key=lambda one: one[0])]
        count = "1 thing is" if len(ordered) == 1 else f"{len(ordered)} things are"
        raise SettingsError("\n".join([f"{count} wrong in {path}, and nothing was changed:", *ordered]))
    return table


class _Reader:
    """Reads nodes, and notes each complaint; after one, its result is of no use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Where each part stands, by its place, such as ``teams.a.quota``.
        self.lines: dict[str, int] = {}
        self.problems: list[tuple[int, str]] = []

    def note(self, place: str, text: str, node: yaml.Node | None = None) -> None:
        line = node.start_mark.line + 1 if node else self.lines.get(place, 1)
        told = printable(f"{place + ': ' if place else ''}{text}", 1000)
        self.problems.append((line, f"{self.path}:{line}: {told}"))

    def read(self, node: yaml.Node, rule: _Rule, place: str) -> Any:
        if isinstance(rule, tuple):
            rule = rule[isinstance(node, yaml.MappingNode)]
        if isinstance(rule, dict):
            return self.mapping(node, rule, place)
        if isinstance(rule, list):
            nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
            return [self.read(one, rule[0], place) for one in nodes]
        text = node.value if isinstance(node, yaml.ScalarNode) else ""
        try:
            if text or rule is _cohort:
                return rule(text)
            self.note(place, "expected a word", node)
        except ValueError as error:
            self.note(place, str(error), node)
        return None

    def mapping(self, node: yaml.Node, rule: Mapping[Any, _Rule], place: str) -> Object:
        found: Object = {}
        if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
            return found
        if not isinstance(node, yaml.MappingNode):
            self.note(place, "expected names with values, such as `name: value`", node)
            return found
        parse: Any = next(filter(callable, rule), None)
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            here = f"{place}.{name}" if place else name
            if name in found:
                self.note(here, f"is there twice, first in line {self.lines[here]}", key)
            elif not parse and name not in rule:
                self.note(here, f"is not known; known are {', '.join(rule)}", key)
            else:
                self.lines[here] = key.start_mark.line + 1
                if parse:
                    self.read(key, parse, here)
                found[name] = self.read(value, rule[parse or name], here)
        return found

    # --- What one part says of another

    def table(self, top: Object) -> Object:
        """Returns *top* with defaults; complains of parts that contradict each other."""
        teams = [self.team(name, team, top) for name, team in top.get("teams", {}).items()]
        if not teams:
            self.note("teams", "there is no team; write one")
        owners: dict[str, str] = {}
        for team in teams:
            for namespace in filter(None, team["namespaces"]):
                # A queue of each would be there, and who pays would be chance.
                if (owner := owners.setdefault(namespace, team["name"])) != team["name"]:
                    told = f"namespace {namespace} is already that of team {owner}; a namespace has one team"
                    self.note(f"teams.{team['name']}", told)
        found = {"table": top.get("name", "teams"), "teams": teams}
        return {"priorities": {}, "flavors": {}, **top, **found}

    def team(self, name: str, team: Object, top: Object) -> Object:
        place = f"teams.{name}"
        cohort = team.get("cohort", top.get("cohort", "teams"))
        rows = [self.row(flavor, row, team, top, place) for flavor, row in team.get("quota", {}).items()]
        if not rows:
            self.note(place, "has no quota; write `quota:` with a flavor, its gpus, cpus and memory")
        if not cohort and any(isinstance(row[word], dict) for row in rows for word in _LIMITS):
            self.note(place, "has no cohort, so nobody borrows or lends: take borrow and lend out")
        # In Kueue all flavors of a group have the same resources.
        resources = dict.fromkeys(["cpu", "memory", *(name for row in rows for name in row["amounts"])])
        return {
            "name": name,
            "namespaces": list(dict.fromkeys([*team.get("namespace", []), *team.get("namespaces", [])])) or [name],
            "queue": team.get("queue", name),
            "cohort": cohort,
            "preemption": {**_PREEMPTION, **top.get("preemption", {}), **team.get("preemption", {})},
            "rows": rows,
            "covered": list(resources),
        }

    def row(self, flavor: str, row: Object, team: Object, top: Object, team_place: str) -> Object:
        flavors, place = top.get("flavors", {}), f"{team_place}.quota.{flavor}"
        if flavor not in flavors:
            self.note(place, f"there is no flavor {flavor}; there is {', '.join(flavors) or 'none; write `flavors:`'}")
        if missing := [word for word in ("cpus", "memory") if word not in row]:
            why = "all pods request them, and what a quota does not name is never given"
            self.note(place, f"{' and '.join(missing)} missing; {why}")
        gpu = flavors.get(flavor, {}).get("gpu", "nvidia.com/gpu")
        found: Object = {"flavor": flavor, "amounts": self.amounts(row, gpu, place)}
        for word in _LIMITS:
            limit = row.get(word, team.get(word, "yes"))
            if isinstance(limit, dict):
                here = f"{place if word in row else team_place}.{word}"
                limit = self.amounts(limit, gpu, here)
                if unknown := [name for name in limit if word in row and name not in found["amounts"]]:
                    self.note(here, f"{unknown[0]} is bounded here, and the quota does not name it")
            found[word] = limit
        return found

    def amounts(self, words: Object, gpu: str, place: str) -> Object:
        """Returns the amounts of a row by Kubernetes' names of the resources."""
        names, others = {"gpus": gpu, "cpus": "cpu"}, words.get("resources", {})
        found = {names.get(word, word): words[word] for word in _AMOUNTS if word in words and word != "resources"}
        for twice in others.keys() & found.keys():
            self.note(f"{place}.resources.{twice}", "has a word of its own: gpus, cpus, memory, pods")
        return {**found, **others}


# --- Objects ----------------------------------------------------------------------------------------------------------


def objects(table: Object, *, with_kueue: bool) -> list[Object]:
    """Returns the objects of *table*, each after those that it needs."""
    teams = []
    for team in table["teams"]:
        names = team["covered"]
        rows = [{**row, "quotas": [_quota(name, row, team["cohort"]) for name in names]} for row in team["rows"]]
        sums = {name: sum((amount(row["amounts"].get(name, "0")) for row in rows), amount("0")) for name in names}
        hard = {name if name == "pods" else f"requests.{name}": shown(total) for name, total in sums.items()}
        teams.append({**team, "rows": rows, "hard": hard})
    return rendered(PROJECT_ROOT, "teams.yaml.j2", {**table, "teams": teams, "with_kueue": with_kueue})


def _quota(resource: str, row: Object, cohort: str) -> Object:
    """Returns a resource's quota in a flavor: 0 where it lacks it."""
    found = {"name": resource, "nominalQuota": row["amounts"].get(resource, "0")}
    for word, field in (("borrow", "borrowingLimit"), ("lend", "lendingLimit")):
        limit = row[word]
        most = limit.get(resource) if isinstance(limit, dict) else None if parse_switch(limit) else "0"
        if cohort and most is not None:
            found[field] = most
    if "lendingLimit" in found:  # the API refuses more than there is
        found["lendingLimit"] = min(found["lendingLimit"], found["nominalQuota"], key=amount)
    return found


def hints(table: Object, *, with_kueue: bool) -> list[str]:
    """Returns sentences on what in *table* hardly does what is meant."""
    if not with_kueue:
        wide = [team for team in table["teams"] if len(team["namespaces"]) > 1]
        why = "gets no quota: a ResourceQuota bounds one namespace, and it has"
        return [NO_QUEUE, *(f"{team['name']} {why} {', '.join(team['namespaces'])}" for team in wide)]
    # Seen with Kueue 0.19: of a node selector it compares the labels alone that a flavor has. A cluster that asks for
    # the machines of one flavor is admitted to another that lacks that label, and its nodes never find a machine.
    found = []
    for team in table["teams"]:
        labels = {row["flavor"]: set(table["flavors"][row["flavor"]].get("labels", {})) for row in team["rows"]}
        if missing := [name for name in labels if labels[name] != set().union(*labels.values())]:
            found.append(
                f"{team['name']}: its flavors {', '.join(labels)} have not the same labels; a cluster that asks for "
                f"one of them by a label may be given {' or '.join(missing)}, and never start: give all the same label "
                "names"
            )
    return found
