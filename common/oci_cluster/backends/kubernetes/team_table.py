"""``teams.yaml``: what an administrator writes of teams, read and checked; all that is wrong is told in one message.

Each complaint has its line in the file. The places of values are those of YAML's nodes, so the text is not loaded as
plain data first: that would keep the last of two equal names, and lose where it stood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from oci_cluster.backends.kubernetes import team_words as words
from oci_cluster.errors import SettingsError

GPU = "nvidia.com/gpu"
# Of a row of a quota: the table's word, and Kubernetes' name of the resource. "gpus" is what the flavor says.
RESOURCES = {"cpus": "cpu", "memory": "memory", "pods": "pods", "ephemeral-storage": "ephemeral-storage"}
WITHIN = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
RECLAIM = ("Never", "LowerPriority", "Any")
_PARSERS = {"gpus": words.parse_whole, "pods": words.parse_whole, "cpus": words.parse_amount}
_TOP = ("name", "cohort", "preemption", "priorities", "flavors", "teams")
_OF_TEAM = ("namespace", "namespaces", "queue", "cohort", "preemption", "borrow", "lend", "quota")
_OF_FLAVOR = ("labels", "taints", "tolerations", "gpu")
_OF_ROW = ("gpus", *RESOURCES, "resources")


@dataclass(frozen=True)
class Flavor:
    """One kind of machines."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    tolerations: Sequence[Mapping[str, str]] = ()
    gpu: str = GPU


@dataclass(frozen=True)
class Row:
    """What a team has of one flavor: amounts by Kubernetes' names of the resources.

    Attributes:
        flavor: Whose machines.
        amounts: Its own.
        borrow: The most that it may have besides, by resource; None for a resource without a bound is left out.
        lend: The most that others may have of its own.
        may_borrow: False where it may borrow nothing at all.
        may_lend: False where it lends nothing at all.
    """

    flavor: str
    amounts: Mapping[str, str]
    borrow: Mapping[str, str] = field(default_factory=dict)
    lend: Mapping[str, str] = field(default_factory=dict)
    may_borrow: bool = True
    may_lend: bool = True


@dataclass(frozen=True)
class Team:
    """Who has a quota: namespaces, each with a queue of one name."""

    name: str
    namespaces: Sequence[str]
    queue: str
    cohort: str
    rows: Sequence[Row]
    within: str = "LowerPriority"
    reclaim: str = "Any"


@dataclass(frozen=True)
class Table:
    """What ``teams.yaml`` says.

    Attributes:
        name: Of the table: objects carry it, so that two tables of one Kubernetes leave each other alone.
        given: Which parts stand in the file that only Kueue can do, as ``teams.a.borrow``.
    """

    name: str
    teams: Sequence[Team]
    flavors: Sequence[Flavor]
    priorities: Mapping[str, int]
    given: Sequence[str] = ()


def read_table(path: Path) -> Table:
    """Return what the file *path* says.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong; holds all that is.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {getattr(error, 'strerror', '') or error}"
        raise SettingsError(msg) from error
    return parse_table(text, str(path))


def parse_table(text: str, file: str) -> Table:
    """Return what *text*, the content of *file*, says; raises as :func:`read_table`."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        msg = f"{file}:{line}: this is no YAML: {error.problem or error.context}"
        raise SettingsError(msg) from error
    except yaml.YAMLError as error:
        msg = f"{file}: this is no YAML: {error}"
        raise SettingsError(msg) from error
    reader = _Reader(file)
    table = reader.table(root)
    if reader.problems:
        ordered = [text for _, text in sorted(reader.problems, key=lambda one: one[0])]
        count = "1 thing is" if len(ordered) == 1 else f"{len(ordered)} things are"
        msg = f"{count} wrong in {file}, and nothing was changed:\n" + "\n".join(f"  {text}" for text in ordered)
        raise SettingsError(msg)
    return table


Entries = dict[str, tuple[yaml.Node, yaml.Node]]


class _Reader:
    """Reads nodes, and notes each complaint with its line; what is returned then is of no use."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[tuple[int, str]] = []
        self.given: list[str] = []

    def note(self, node: yaml.Node | None, place: str, text: str) -> None:
        line = node.start_mark.line + 1 if node is not None else 1
        self.problems.append((line, f"{self.file}:{line}: {place + ': ' if place else ''}{text}"))

    # --- Shapes

    def mapping(self, node: yaml.Node | None, place: str, known: Sequence[str] | None = None) -> Entries:
        """Return the entries of a mapping: those of *known* names, or of any."""
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self.note(node, place, "expected names with values, such as `name: value`")
            return {}
        found: Entries = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if not name:
                self.note(key, place, "a name must be a word")
            elif name in found:
                self.note(key, _join(place, name), f"is there twice, first in line {_line(found[name][0])}")
            elif known is not None and name not in known:
                self.note(key, _join(place, name), f"is not known; known are {', '.join(known)}")
            else:
                found[name] = (key, value)
        return found

    def listed(self, node: yaml.Node, place: str) -> list[tuple[yaml.Node, str]]:
        """Return the texts of a list; one text is a list of one."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        return [(one, text) for one in nodes if (text := self.text(one, place))]

    def text(self, node: yaml.Node, place: str) -> str:
        if isinstance(node, yaml.ScalarNode) and node.value:
            return str(node.value)
        self.note(node, place, "expected a word")
        return ""

    def parsed(self, node: yaml.Node, place: str, parse: Callable[[str], Any], default: Any) -> Any:
        """Return what *parse* makes of a text; *default* where it complains."""
        if text := self.text(node, place):
            try:
                return parse(text)
            except ValueError as error:
                self.note(node, place, str(error))
        return default

    def name(self, node: yaml.Node, place: str) -> str:
        return str(self.parsed(node, place, words.parse_name, ""))

    def choice(self, entries: Entries, name: str, place: str, words: Sequence[str], default: str) -> str:
        if name not in entries:
            return default
        node = entries[name][1]
        text = self.text(node, _join(place, name))
        if text and text not in words:
            self.note(node, _join(place, name), f"'{text}' is none of {', '.join(words)}")
        return text or default

    # --- The parts

    def table(self, root: yaml.Node | None) -> Table:
        top = self.mapping(root, "", _TOP)
        name = self.name(top["name"][1], "name") if "name" in top else "teams"
        cohort = self.cohort(top, "", "teams")
        policies = self.policies(top, "", ("LowerPriority", "Any"))
        priorities = {
            self.name(key, f"priorities.{word}"): self.parsed(node, f"priorities.{word}", words.parse_priority, 0)
            for word, (key, node) in self.mapping(top.get("priorities", (None, None))[1], "priorities").items()
        }
        flavors = {
            word: self.flavor(word, key, node)
            for word, (key, node) in self.mapping(top.get("flavors", (None, None))[1], "flavors").items()
        }
        entries = self.mapping(top.get("teams", (None, None))[1], "teams")
        if not entries:
            self.note(top["teams"][0] if "teams" in top else root, "teams", "there is no team; write one")
        teams = [self.team(word, nodes, flavors, (cohort, policies)) for word, nodes in entries.items()]
        self.one_owner(entries, teams)
        return Table(name, teams, list(flavors.values()), priorities, list(dict.fromkeys(self.given)))

    def one_owner(self, entries: Entries, teams: Sequence[Team]) -> None:
        """Complain of namespaces that two teams have: a queue of each would be there, and who pays would be chance."""
        owners: dict[str, str] = {}
        for team in teams:
            for namespace in team.namespaces:
                if owners.setdefault(namespace, team.name) != team.name:
                    text = (
                        f"namespace {namespace} is already that of team {owners[namespace]}; a namespace has one team"
                    )
                    self.note(entries[team.name][0], f"teams.{team.name}", text)

    def cohort(self, entries: Entries, place: str, default: str) -> str:
        """Return the name of those who lend to each other; empty for none."""
        if "cohort" not in entries:
            return default
        node = entries["cohort"][1]
        if isinstance(node, yaml.ScalarNode) and node.value in {"", "none", "null", "~"}:
            return ""
        if place:
            self.given.append(_join(place, "cohort"))
        return self.name(node, _join(place, "cohort"))

    def policies(self, entries: Entries, place: str, default: tuple[str, str]) -> tuple[str, str]:
        if "preemption" not in entries:
            return default
        here = _join(place, "preemption")
        self.given.append(here)
        found = self.mapping(entries["preemption"][1], here, ("withinClusterQueue", "reclaimWithinCohort"))
        within = self.choice(found, "withinClusterQueue", here, WITHIN, default[0])
        return within, self.choice(found, "reclaimWithinCohort", here, RECLAIM, default[1])

    def flavor(self, name: str, key: yaml.Node, node: yaml.Node) -> Flavor:
        place = f"flavors.{name}"
        self.name(key, place)
        entries = self.mapping(node, place, _OF_FLAVOR)
        labels = {}
        for label, (label_key, value) in self.mapping(
            entries.get("labels", (None, None))[1], f"{place}.labels"
        ).items():
            self.parsed(label_key, f"{place}.labels", words.parse_label_key, "")
            labels[label] = self.parsed(value, f"{place}.labels.{label}", words.parse_label_value, "")
        found: dict[str, list[dict[str, str]]] = {"taints": [], "tolerations": []}
        for what, parse in (("taints", words.parse_taint), ("tolerations", words.parse_toleration)):
            if what in entries:
                for one, _ in self.listed(entries[what][1], f"{place}.{what}"):
                    found[what].append(self.parsed(one, f"{place}.{what}", parse, {}))
        gpu = self.parsed(entries["gpu"][1], f"{place}.gpu", words.parse_label_key, GPU) if "gpu" in entries else GPU
        return Flavor(name, labels, found["taints"], found["tolerations"], gpu)

    def team(
        self,
        name: str,
        nodes: tuple[yaml.Node, yaml.Node],
        flavors: Mapping[str, Flavor],
        inherited: tuple[str, tuple[str, str]],
    ) -> Team:
        place, (key, node) = f"teams.{name}", nodes
        self.name(key, place)
        entries = self.mapping(node, place, _OF_TEAM)
        if "namespace" in entries and "namespaces" in entries:
            self.note(entries["namespace"][0], place, "has namespace and namespaces; write one of the two")
        namespaces = [name]
        if given := entries.get("namespaces") or entries.get("namespace"):
            namespaces = [self.name(one, f"{place}.namespaces") for one, _ in self.listed(given[1], place)]
            for twice in sorted({one for one in namespaces if one and namespaces.count(one) > 1}):
                self.note(given[0], place, f"namespace {twice} is there twice")
        queue = self.name(entries["queue"][1], f"{place}.queue") if "queue" in entries else name
        own_cohort = self.cohort(entries, place, inherited[0])
        within, reclaim = self.policies(entries, place, inherited[1])
        rows = []
        for flavor, (flavor_key, row) in self.mapping(entries.get("quota", (None, None))[1], f"{place}.quota").items():
            here = f"{place}.quota.{flavor}"
            if flavor not in flavors:
                known = ", ".join(flavors) or "none; write `flavors:`"
                self.note(flavor_key, here, f"there is no flavor {flavor}; there is {known}")
            rows.append(self.row(flavors.get(flavor, Flavor(flavor)), (flavor_key, row), here, (entries, place)))
        if not rows:
            self.note(key, place, "has no quota; write `quota:` with a flavor, its gpus, cpus and memory")
        if not own_cohort and (unused := [row for row in rows if row.borrow or row.lend]):
            self.note(
                key, place, f"has no cohort, so nobody borrows or lends: take borrow and lend out of {unused[0].flavor}"
            )
        return Team(name, namespaces, queue, own_cohort, rows, within, reclaim)

    def row(self, flavor: Flavor, nodes: tuple[yaml.Node, yaml.Node], place: str, team: tuple[Entries, str]) -> Row:
        (key, node), (of_team, team_place) = nodes, team
        entries = self.mapping(node, place, (*_OF_ROW, "borrow", "lend"))
        amounts = self.amounts(entries, flavor, place)
        if missing := [word for word in ("cpus", "memory") if word not in entries]:
            why = "all pods request them, and what a quota does not name is never given"
            self.note(key, place, f"{' and '.join(missing)} missing; {why}")
        limits: dict[str, tuple[bool, dict[str, str]]] = {}
        for word in ("borrow", "lend"):
            limits[word] = (True, {})
            if given := entries.get(word) or of_team.get(word):
                here = _join(place if word in entries else team_place, word)
                self.given.append(here)
                limits[word] = self.limit(given[1], flavor, here, amounts if word in entries else None)
        (may_borrow, borrow), (may_lend, lend) = limits["borrow"], limits["lend"]
        return Row(flavor.name, amounts, borrow, lend, may_borrow, may_lend)

    def limit(
        self, node: yaml.Node, flavor: Flavor, place: str, covered: Mapping[str, str] | None
    ) -> tuple[bool, dict[str, str]]:
        """Return whether anything may be lent or borrowed, and how much at most of which resource."""
        if isinstance(node, yaml.MappingNode):
            limits = self.amounts(self.mapping(node, place, _OF_ROW), flavor, place)
            for name in limits:
                if covered is not None and name not in covered:
                    self.note(node, place, f"{name} is bounded here, and the quota does not name it")
            return True, limits
        return bool(self.parsed(node, place, words.parse_yes_no, default=True)), {}

    def amounts(self, entries: Entries, flavor: Flavor, place: str) -> dict[str, str]:
        """Return the amounts of a row by Kubernetes' names of the resources."""
        found: dict[str, str] = {}
        others = self.mapping(entries.get("resources", (None, None))[1], f"{place}.resources")
        for word in entries:
            if resource := flavor.gpu if word == "gpus" else RESOURCES.get(word, ""):
                parse = _PARSERS.get(word, words.parse_bytes)
                found[resource] = self.parsed(entries[word][1], f"{place}.{word}", parse, "0")
        for resource, (key, node) in others.items():
            self.parsed(key, f"{place}.resources", words.parse_label_key, "")
            if resource in found or resource in RESOURCES.values():
                self.note(key, f"{place}.resources.{resource}", "has a word of its own: gpus, cpus, memory, pods")
            found[resource] = self.parsed(node, f"{place}.resources.{resource}", words.parse_amount, "0")
        return found


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
