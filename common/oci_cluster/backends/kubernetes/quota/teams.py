"""``teams.yaml``: an administrator's teams, checked, and rendered as objects of Kubernetes.

Names of parts and what parts say of each other are checked here, in one message. Values are the API's to check: an
apply is tried first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from oci_cluster.backends.kubernetes.cluster.manifests import rendered
from oci_cluster.backends.kubernetes.quota.usage import amount
from oci_cluster.backends.kubernetes.settings import EFFECTS, TAINT, toleration
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import SettingsError
from oci_cluster.system.text import printable

Object = dict[str, Any]
# Ours; Kueue's own are Never.
_PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
_MEGABYTE = 1 << 20
# The parts of a file: a type; [type]: a list, or one; {name: part}; {"*": part}: any name.
_AMOUNTS: Object = {
    **dict.fromkeys(("gpus", "cpus", "memory", "pods", "ephemeral-storage"), str),
    "resources": {"*": str},
}
_LIMITS: Object = {"borrow": (bool, _AMOUNTS), "lend": (bool, _AMOUNTS)}
_WHO_ENDS_WHOM: Object = dict.fromkeys(_PREEMPTION, str)
_TEAM: Object = {
    "namespace": [str],
    "namespaces": [str],
    "queue": str,
    "cohort": str,
    "preemption": _WHO_ENDS_WHOM,
    **_LIMITS,
    "quota": {"*": {**_AMOUNTS, **_LIMITS}},
}
_FLAVOR: Object = {"labels": {"*": str}, "taints": [str], "tolerations": [str], "gpu": str}
_FILE: Object = {
    "name": str,
    "cohort": str,
    "preemption": _WHO_ENDS_WHOM,
    "priorities": {"*": int},
    "flavors": {"*": _FLAVOR},
    "teams": {"*": _TEAM},
}


class _Loader(yaml.SafeLoader):
    """Refuses a name that is there twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML calls it
        names = [key.value for key, _ in node.value]
        for number, (key, _) in enumerate(node.value):
            if key.value in names[:number]:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
        return super().construct_mapping(node, deep)


def read_table(path: Path) -> Object:
    """Returns the teams in the file *path*, as the template takes them.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong; holds all that is.
    """
    try:
        top = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {getattr(error, 'strerror', '') or error}") from error
    except yaml.YAMLError as error:
        mark, what = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
        line = f":{mark.line + 1}" if mark else ""
        raise SettingsError(f"{path}{line}: this is no YAML: {printable(what)}") from error
    reader = _Reader()
    table = reader.table(reader.read(top, _FILE, ""))
    if reader.problems:
        count = "1 thing is" if len(reader.problems) == 1 else f"{len(reader.problems)} things are"
        raise SettingsError("\n".join([f"{count} wrong in {path}, and nothing was changed:", *reader.problems]))
    return table


class _Reader:
    """Reads parts, and notes each complaint; after one, its result is of no use."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def note(self, place: str, text: str) -> None:
        self.problems.append(f"  {printable(f'{place}: {text}', 1000)}")

    def read(self, value: Any, part: Any, place: str) -> Any:
        """Returns *value* with each word as text, where it is a *part*."""
        if isinstance(part, tuple):
            part = part[isinstance(value, dict)]
        if isinstance(part, list):
            words = value if isinstance(value, list) else [value] if value is not None else []
            return [self.read(word, part[0], place) for word in words]
        if not isinstance(part, dict):
            if not isinstance(value, str | int | float | None if part is str else part):
                self.note(place, f"expected {'yes or no' if part is bool else 'a number' if part is int else 'a word'}")
            return ("" if value is None else str(value)) if part is str else value
        if not isinstance(value, dict | None):
            self.note(place or "the file", "expected names with values, such as `name: value`")
            return {}
        found = {}
        for name, one in (value or {}).items():
            here = f"{place}.{name}" if place else str(name)
            if "*" in part or name in part:
                found[str(name)] = self.read(one, part.get("*") or part[name], here)
            else:
                self.note(here, f"is not known; known are {', '.join(part)}")
        return found

    # --- What one part says of another

    def table(self, top: Object) -> Object:
        """Returns *top* with defaults; complains of parts that contradict each other."""
        flavors = {name: self.flavor(name, flavor) for name, flavor in top.get("flavors", {}).items()}
        top = {"cohort": "teams", "preemption": {}, **top, "flavors": flavors}
        teams = [self.team(name, team, top) for name, team in top.get("teams", {}).items()]
        if not teams:
            self.note("teams", "there is no team; write one")
        owners: dict[str, str] = {}
        for team in teams:
            for namespace in team["namespaces"]:
                # A queue of each would be there, and who pays would be chance.
                if (owner := owners.setdefault(namespace, team["name"])) != team["name"]:
                    told = f"namespace {namespace} is already that of team {owner}; a namespace has one team"
                    self.note(f"teams.{team['name']}", told)
        return {"priorities": {}, **top, "table": top.get("name", "teams"), "teams": teams}

    def flavor(self, name: str, flavor: Object) -> Object:
        found: Object = {"labels": {}, "taints": [], "tolerations": [], "gpu": "nvidia.com/gpu", **flavor}
        for words, parse in (("taints", _taint), ("tolerations", toleration)):
            try:
                found[words] = [parse(word) for word in found[words]]
            except ValueError as error:
                self.note(f"flavors.{name}.{words}", str(error))
        return found

    def team(self, name: str, team: Object, top: Object) -> Object:
        place = f"teams.{name}"
        cohort = team.get("cohort", top["cohort"])
        cohort = "" if cohort == "none" else cohort
        rows = [self.row(flavor, row, team, top["flavors"], place) for flavor, row in team.get("quota", {}).items()]
        if not rows:
            self.note(place, "has no quota; write `quota:` with a flavor, its gpus, cpus and memory")
        if not cohort and any(isinstance(row[word], dict) for row in rows for word in _LIMITS):
            self.note(place, "has no cohort, so nobody borrows or lends: take borrow and lend out")
        # In Kueue all flavors of a group have the same resources.
        covered = list(dict.fromkeys(["cpu", "memory", *(name for row in rows for name in row["amounts"])]))
        return {
            "name": name,
            "namespaces": list(dict.fromkeys([*team.get("namespace", []), *team.get("namespaces", [])])) or [name],
            "queue": team.get("queue", name),
            "cohort": cohort,
            "preemption": {**_PREEMPTION, **top["preemption"], **team.get("preemption", {})},
            "rows": rows,
            "covered": covered,
        }

    def row(self, flavor: str, row: Object, team: Object, flavors: Object, team_place: str) -> Object:
        place = f"{team_place}.quota.{flavor}"
        if flavor not in flavors:
            self.note(place, f"there is no flavor {flavor}; there is {', '.join(flavors) or 'none; write `flavors:`'}")
        if missing := [word for word in ("cpus", "memory") if word not in row]:
            why = "all pods request them, and what a quota does not name is never given"
            self.note(place, f"{' and '.join(missing)} missing; {why}")
        gpu = flavors.get(flavor, {}).get("gpu", "")
        found: Object = {"flavor": flavor, "amounts": self.amounts(row, gpu, place)}
        for word in _LIMITS:
            limit = row.get(word, team.get(word, True))
            if isinstance(limit, dict):
                here = f"{place if word in row else team_place}.{word}"
                limit = self.amounts(limit, gpu, here)
                if unknown := [name for name in limit if word in row and name not in found["amounts"]]:
                    self.note(here, f"{unknown[0]} is bounded here, and the quota does not name it")
            found[word] = limit
        return found

    def amounts(self, words: Object, gpu: str, place: str) -> Object:
        """Returns the amounts of a row by Kubernetes' names of the resources."""
        names = {"gpus": gpu, "cpus": "cpu"}
        found = {names.get(word, word): words[word] for word in _AMOUNTS if word in words and word != "resources"}
        found |= words.get("resources", {})
        for name, text in found.items():
            try:
                number = amount(text)
            except ValueError as error:
                self.note(place, f"{name}: {error}")
                continue
            if name in {"memory", "ephemeral-storage"} and 0 < number < _MEGABYTE:
                self.note(place, f"{name}: {text} is less than a megabyte; write the unit, such as {text}Gi")
        return found


def _taint(text: str) -> dict[str, str]:
    found = TAINT.fullmatch(text)
    if not found or not found["effect"]:
        raise ValueError(f"'{text}' is not a taint KEY=VALUE:EFFECT with an effect of {', '.join(EFFECTS)}")
    return {name: word for name, word in found.groupdict().items() if word}


def objects(table: Object) -> list[Object]:
    """Returns the objects of *table*, each after those that it needs."""
    for team in table["teams"]:
        for row in team["rows"]:
            row["quotas"] = [_quota(resource, row, team["cohort"]) for resource in team["covered"]]
    return rendered(PROJECT_ROOT, "teams.yaml.j2", table)


def _quota(resource: str, row: Object, cohort: str) -> Object:
    """Returns a resource's quota in a flavor: 0 where it lacks it."""
    found = {"name": resource, "nominalQuota": row["amounts"].get(resource, "0")}
    for word, field in (("borrow", "borrowingLimit"), ("lend", "lendingLimit")):
        limit = row[word]
        most = limit.get(resource) if isinstance(limit, dict) else None if limit else "0"
        if cohort and most is not None:
            found[field] = most
    if "lendingLimit" in found:  # the API refuses more than there is
        found["lendingLimit"] = min(found["lendingLimit"], found["nominalQuota"], key=amount)
    return found


def hints(table: Object) -> list[str]:
    """Returns sentences on what in *table* hardly does what is meant."""
    # Seen with Kueue 0.19: of a node selector it compares the labels alone that a flavor has. A cluster that asks for
    # the machines of one flavor is admitted to another that lacks that label, and its nodes never find a machine.
    found = []
    for team in table["teams"]:
        labels = {row["flavor"]: set(table["flavors"][row["flavor"]]["labels"]) for row in team["rows"]}
        if missing := [name for name in labels if labels[name] != set().union(*labels.values())]:
            found.append(
                f"{team['name']}: its flavors {', '.join(labels)} have not the same labels; a cluster that asks for "
                f"one of them by a label may be given {' or '.join(missing)}, and never start: give all the same label "
                "names"
            )
    return found
