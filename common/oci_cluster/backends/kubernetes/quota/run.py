"""``quota.sh`` and ``queue.sh``: applies ``teams.yaml``, shows, holds and resumes teams, shows who waits.

An apply is tried first, by the API's own dry run: what that makes of each object is compared with what is there. Only
when all of it can be done, anything is.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oci_cluster.backends.kubernetes.api.kubeconfig import open_access
from oci_cluster.backends.kubernetes.api.service import (
    KUEUE,
    LOOK_PATIENCE_S,
    PATIENCE_S,
    KubernetesError,
    Object,
    Service,
)
from oci_cluster.backends.kubernetes.cluster import kueue, states
from oci_cluster.backends.kubernetes.quota import usage
from oci_cluster.backends.kubernetes.quota.teams import hints, objects, read_table
from oci_cluster.errors import BackendError, NotPermittedError, UsageError
from oci_cluster.system.console import Say
from oci_cluster.system.screen import WHOLE, Screen
from oci_cluster.system.text import printable

Options = Mapping[str, Sequence[str]]

# What is ours carries it, with the table's name: only such objects are ever removed.
LABEL = "oci-cluster-teams"
# Kinds in the order in which one needs the other, with the paths of their lists; {} is a namespace.
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "WorkloadPriorityClass": f"{KUEUE}/workloadpriorityclasses",
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "LocalQueue": f"{KUEUE}/namespaces/{{}}/localqueues",
}
_SIGNS = {"added": "+", "changed": "~", "removed": "-", "kept": "!"}
# HTTP's: what no object of its own is wrong with is told as it is, such as a login that is not known.
_FORBIDDEN, _CONFLICT, _OF_OBJECTS = 403, 409, {400, 403, 409, 422}
# Whoever looks at a queue sees by this name who holds it. An apply does not name the field, so it resumes nobody.
_MANAGER_OF_HOLD = "oci-cluster-hold"
_VERB = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"')


@dataclass(frozen=True)
class Out:
    """The outputs of a verb: results, messages, and the width of the terminal."""

    show: Say
    say: Say
    screen: Screen = WHOLE


def run(verb: str, words: Sequence[str], options: Options, given: Mapping[str, str], out: Out) -> int:
    """Runs ``quota`` or ``queue`` with *words* and *options* that are checked."""
    action = words[0] if verb == "quota" else verb
    # What is wrong with it, is so without any Kubernetes.
    table = read_table(Path(words[1])) if action == "apply" else {}
    patience_s = LOOK_PATIENCE_S if action in {"show", "queue"} else PATIENCE_S
    service = Service(open_access(given), patience_s=patience_s, say=out.say)
    try:
        if service.find(KUEUE) is None:
            raise BackendError(
                "Kueue 0.19 or newer is not installed here (docs/kueue.md); scripts/list.sh shows clusters"
            )
        if action == "apply":
            _apply(service, table, words[1], options, out)
        elif action == "show":
            queues, counts = service.items(PATHS["ClusterQueue"]), _counts(service)
            teams = [usage.described(queue, *counts.get(states.name_of(queue), (0, 0))) for queue in queues]
            _print(teams, out.screen.table(usage.HEAD, usage.rows(teams), usage.BELOW), options, out)
        elif action == "queue":
            rows, notes = kueue.look(service, words[0] if words else "")
            for note in notes:
                out.say(note)
            _print(rows, out.screen.table(kueue.HEAD, kueue.table(rows), kueue.BELOW), options, out)
        else:
            policy = "None" if action == "resume" else "HoldAndDrain" if "--drain" in options else "Hold"
            _hold(service, words[1], policy, out)
    except KubernetesError as error:
        if not (verbs := _may_not(error)):
            raise
        raise NotPermittedError(
            f"you may not {verbs} in this Kubernetes; docs/kueue.md has the rights; ask its administrator"
        ) from error
    finally:
        service.close()
    for warning in service.warnings:
        out.say(f"Kubernetes warns: {warning}")
    return 0


def _may_not(error: KubernetesError) -> str:
    """Returns the right that the user lacks, such as ``list jobs.batch``, if any."""
    found = _VERB.search(str(error)) if error.code == _FORBIDDEN else None
    return f"{found['verb']} {found['resource']}.{found['group']}".rstrip(".") if found else ""


# --- Apply ------------------------------------------------------------------------------------------------------------


def _apply(service: Service, table: Object, file: str, options: Options, out: Out) -> None:
    force, prune = "--force" in options, "--prune" in options
    bodies = objects(table)
    changes = _tried(service, bodies, force=force)
    surplus = _surplus(service, table["table"], bodies)
    for note in hints(table):
        out.say(note)
    changes += [(item, "removed" if prune else "kept", []) for item in surplus]
    for item, what, its in changes:
        out.show("\n    ".join([f"{_SIGNS[what]} {_name_of(item)} {what}", *its]))
    if surplus and not prune:
        out.say("what is marked ! is not in the table any more, and stays; --prune removes it")
    done = Counter(what for _, what, _ in changes)
    counts = ", ".join(f"{done[what]} {what}" for what in ("added", "changed", "removed") if done[what])
    if not counts:
        out.say(f"nothing changes: all is as {file} says")
        return
    if "--dry-run" in options:
        out.say(f"a dry run: nothing was changed; it would be {counts}")
        return
    for item, what, _ in changes:
        if what == "removed":
            service.delete(_path_of(item))
        elif what != "kept":
            service.apply(_path_of(item), item, force=force)
    out.say(counts)
    if prune and any(item["kind"] == "ClusterQueue" for item in surplus):
        out.say("a team that is removed starts nothing more, and is gone when its clusters have ended")


def _tried(service: Service, bodies: Sequence[Object], *, force: bool) -> list[tuple[Object, str, list[str]]]:
    """Returns the *bodies* that would be added or changed, and how."""
    found: list[tuple[Object, str, list[str]]] = []
    problems: list[str] = []
    forbidden: dict[str, None] = {}
    new: set[str] = set()
    for body in bodies:
        try:
            is_later = body["metadata"].get("namespace") in new  # its namespace is only to be made
            now = None if is_later else service.find(_path_of(body))
            then = body if is_later else service.apply(_path_of(body), body, force=force, dry_run=True)
        except KubernetesError as error:
            if error.code not in _OF_OBJECTS:
                raise
            forbidden |= dict.fromkeys(filter(None, [_may_not(error)]))
            told = printable(error, 1500).replace("- .", " .")  # fields, whose lines are not apart any more
            problems.append(f"  {_name_of(body)}: {told}{_advice(body, error)}")
            continue
        owner = states.labels_of(now or {}).get(LABEL) or body["metadata"]["labels"][LABEL]
        if owner != body["metadata"]["labels"][LABEL] and not force:
            of_whom = f"is that of another table, whose name is '{printable(owner)}'"
            problems.append(f"  {_name_of(body)}: {of_whom}; --force takes it over")
        elif now is None:  # the API adds its own defaults, which the table does not say
            found.append((body, "added", [printable(line) for line in _lines(body)]))
            new |= {body["metadata"]["name"]} if body["kind"] == "Namespace" else set()
        elif lines := _differences(now, then):
            found.append((body, "changed", lines))
    if forbidden:
        raise NotPermittedError(
            f"you may not {', '.join(forbidden)} in this Kubernetes, and nothing was changed; quotas are set by its "
            "administrator (scripts/queue.sh shows your own clusters; docs/kueue.md has the rights)"
        )
    if problems:
        raise BackendError("\n".join(["the table cannot be applied, and nothing was changed:", *problems]))
    return found


def _advice(body: Object, error: KubernetesError) -> str:
    """Returns the next step for a field of another manager, or an immutable one."""
    if error.code == _CONFLICT:
        return "; --force takes over what is named"
    if "immutable" not in str(error) and "may not be changed" not in str(error):
        return ""
    about = body["metadata"]
    place = f" -n {about['namespace']}" if about.get("namespace") else ""
    return f"; remove it, and apply again: kubectl delete {body['kind'].lower()} {about['name']}{place}"


def _differences(now: Object, then: Object) -> list[str]:
    found = list(difflib.unified_diff([*_lines(now)], [*_lines(then)], lineterm="", n=0))[2:]
    return [printable(f"{line[0]} {line[1:]}") for line in found if not line.startswith("@@")]


def _lines(item: Object) -> Iterator[str]:
    """Yields a line for each field of *item* that somebody has wished."""
    kept = {name: item[name] for name in item if name not in {"apiVersion", "kind", "metadata", "status"}}
    about = {name: item["metadata"].get(name) or {} for name in ("labels", "annotations")}
    yield from _leaves({"metadata": about, **kept}, "")


def _leaves(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name in sorted(value):
            yield from _leaves(value[name], f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            name = (one.get("name") or one.get("key")) if isinstance(one, Mapping) else None
            yield from _leaves(one, f"{place}[{name or number}]")
    else:
        yield f"{place}: {value}"


def _surplus(service: Service, table: str, bodies: Sequence[Object]) -> list[Object]:
    """Returns what has the *table*'s label and is not in it; no namespace."""
    wanted = {_path_of(body) for body in bodies}
    found = []
    for kind in reversed(list(PATHS)[1:]):
        there = service.items(PATHS[kind].replace("namespaces/{}/", ""), labelSelector=f"{LABEL}={table}")
        items = [{"kind": kind, **one} for one in there if states.labels_of(one).get(LABEL) == table]
        found += [item for item in items if _path_of(item) not in wanted]
    return found


def _path_of(item: Mapping[str, Any]) -> str:
    about = item["metadata"]
    return f"{PATHS[item['kind']].format(about.get('namespace', ''))}/{about['name']}"


def _name_of(item: Mapping[str, Any]) -> str:
    about = item["metadata"]
    return f"{item['kind']} {'/'.join(filter(None, [about.get('namespace'), about['name']]))}"


# --- Hold, resume ----------------------------------------------------------------------------------------


def _hold(service: Service, team: str, policy: str, out: Out) -> None:
    queues = {states.name_of(one): one for one in service.items(PATHS["ClusterQueue"])}
    if team not in queues:
        raise UsageError(f"there is no team '{team}'; there is: {', '.join(queues) or 'none'}")
    if ((queues[team].get("spec") or {}).get("stopPolicy") or "None") == policy:
        out.say(f"{team} {'is not held' if policy == 'None' else 'is held already'}: nothing was changed")
        return
    running, waiting = _counts(service).get(team, (0, 0))  # before: those that wait may start at once
    path, body = f"{PATHS['ClusterQueue']}/{team}", {"spec": {"stopPolicy": policy}}
    service.patch(path, body, fieldManager=_MANAGER_OF_HOLD)
    if policy == "None":
        starts = f"{waiting} that wait start in their order, as quota becomes free"
        out.say(f"{team} is resumed: {starts}; {running} that run go on as they are")
        return
    runs = "are ended, and wait again at their old place" if policy == "HoldAndDrain" else "go on to their end"
    rest = f"{waiting} that wait, and new ones, wait until: scripts/quota.sh resume {team}"
    out.say(f"{team} is held: of its clusters, {running} that run {runs}; {rest}")


def _counts(service: Service) -> dict[str, tuple[int, int]]:
    """Returns running and waiting clusters by team; Kueue's own figure is late."""
    return kueue.counts(*(service.items(f"{KUEUE}/{kind}") for kind in ("localqueues", "workloads")))


def _print(found: object, table: str, options: Options, out: Out) -> None:
    out.show(json.dumps(found, indent=2) if "--json" in options else table)
