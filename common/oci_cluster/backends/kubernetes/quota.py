"""``quota.sh``: what teams have, made so by ``teams.yaml``, shown, held and resumed. Nothing is decided by halves.

An apply is tried first, by the API's own dry run: that says what would change, what somebody else manages, and what the
user may not do. Only when all of it can be done, anything is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from oci_cluster.backends.kubernetes import teams
from oci_cluster.backends.kubernetes.differences import Change, change
from oci_cluster.backends.kubernetes.queue import state_of
from oci_cluster.backends.kubernetes.service import KubernetesError, Object, Service
from oci_cluster.backends.kubernetes.team_table import Table
from oci_cluster.backends.kubernetes.teams import KUEUE, LABEL, PATHS, name_of, path_of
from oci_cluster.errors import BackendError, NotPermittedError, SettingsError, UsageError
from oci_cluster.system.text import printable

_FORBIDDEN, _CONFLICT = 403, 409
# Whoever looks at a queue sees by this name who holds it. An apply does not name the field, so it resumes nobody.
_MANAGER_OF_HOLD = "oci-cluster-hold"
_MANAGER = re.compile(r'conflicts? with "(?P<manager>[^"]*)"')
_FIELD = re.compile(r"(?<![\w\"])\.(?:metadata|spec|value|description|preemptionPolicy)[^\s,]*")
_VERB = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"')


def has_kueue(service: Service) -> bool:
    """Return whether Kueue is installed.

    Raises:
        SettingsError: it is, and too old for what is written here.
    """
    group = service.find(f"/apis/{KUEUE.partition('/')[0]}")
    if group is None:
        return False
    versions = [str(one.get("groupVersion")) for one in group.get("versions") or []]
    if KUEUE not in versions:
        msg = f"Kueue here speaks {', '.join(versions)}, and {KUEUE} is needed: Kueue 0.19 or newer (docs/kueue.md)"
        raise SettingsError(msg)
    return True


@dataclass
class Planned:
    """What an apply would do.

    Attributes:
        changes: What changes, in order; removals last.
        bodies: What is sent for each change that adds or changes something.
        notes: What is said besides.
    """

    changes: list[Change] = field(default_factory=list)
    bodies: list[Object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan_apply(service: Service, table: Table, *, prune: bool, force: bool) -> Planned:
    """Return what it takes to have what *table* says; changes nothing.

    Args:
        service: Who asks.
        table: What is wanted.
        prune: Whether what an earlier table of this name has made, and this one has not, is to be removed.
        force: Whether fields that somebody else manages are taken over.

    Raises:
        NotPermittedError: the user may not do all of it; names all that.
        BackendError: somebody else manages a field, or the API refuses an object; names all.
    """
    planned = Planned()
    kinds: Sequence[str] = teams.OF_KUEUE
    if has_kueue(service):
        bodies, planned.notes = teams.objects(table), teams.hints(table)
    else:
        bodies, planned.notes = teams.plain_objects(table)
        kinds = teams.OF_PLAIN
    refused = _Refused()
    new: set[str] = set()
    for body in bodies:
        try:
            found = _tried(service, body, new, force=force)
        except KubernetesError as error:
            refused.note(body, error)
            continue
        except _OfAnotherTableError as error:
            refused.problems.append(printable(error))
            continue
        if found is not None:
            planned.changes.append(found)
            planned.bodies.append(body)
    refused.check()
    gone = _surplus(service, table, bodies, kinds)
    planned.changes += [Change("removed" if prune else "kept", item) for item in gone]
    if gone and not prune:
        planned.notes.append("what is marked ! is not in the table any more, and stays; --prune removes it")
    return planned


def _tried(service: Service, body: Object, new: set[str], *, force: bool) -> Change | None:
    """Return what an apply of *body* changes; *new* are namespaces that are not there yet."""
    if body["metadata"].get("namespace") in new:
        return change(None, body)
    now = service.find(path_of(body))
    owner = ((now or {}).get("metadata", {}).get("labels") or {}).get(LABEL)
    if owner not in {None, body["metadata"]["labels"][LABEL]} and not force:
        msg = f"{name_of(body)}: is that of another table, whose name is '{owner}'; --force takes it over"
        raise _OfAnotherTableError(msg)
    if now is None and body["kind"] == "Namespace":
        new.add(body["metadata"]["name"])
    then = service.apply(path_of(body), body, force=force, dry_run=True)
    # Of what is new only that is told which the table says; the API adds its own defaults.
    return change(now, then if now else body)


def _surplus(service: Service, table: Table, bodies: Sequence[Object], kinds: Sequence[str]) -> list[Object]:
    """Return what carries the label of *table*, and is not in it: never a namespace."""
    wanted = {path_of(body) for body in bodies}
    found = []
    for kind in teams.removable(kinds):
        path = PATHS[kind].replace("namespaces/{}/", "")
        for one in service.items(path, labelSelector=f"{LABEL}={table.name}"):
            item = {"kind": kind, **one}
            # A selector is a wish to the API; what is removed is looked at here.
            if (item["metadata"].get("labels") or {}).get(LABEL) == table.name and path_of(item) not in wanted:
                found.append(item)
    return found


def apply(service: Service, planned: Planned, *, force: bool) -> None:
    """Do what was planned, in order."""
    for body in planned.bodies:
        service.apply(path_of(body), body, force=force)
    for one in planned.changes:
        if one.what == "removed":
            service.delete(path_of(one.item))


class _OfAnotherTableError(Exception):
    """Two tables want one object."""


class _Refused:
    """Collects what the API refuses, so that a person is told all of it at once."""

    def __init__(self) -> None:
        self.forbidden: dict[str, None] = {}
        self.problems: list[str] = []

    def note(self, body: Object, error: KubernetesError) -> None:
        """Keep why *body* cannot be applied.

        Raises:
            KubernetesError: it is no answer about this object: the API cannot be reached, or does not know the user.
        """
        if error.code == _FORBIDDEN and (found := _VERB.search(str(error))):
            group = f".{found['group']}" if found["group"] else ""
            self.forbidden[f"{found['verb']} {found['resource']}{group}"] = None
        elif error.code == _CONFLICT and (managers := _MANAGER.findall(str(error))):
            fields = ", ".join(dict.fromkeys(field.rstrip("-") for field in _FIELD.findall(str(error))))
            whom = " and ".join(f"'{one}'" for one in dict.fromkeys(managers))
            self.problems.append(printable(f"{name_of(body)}: {fields} is managed by {whom}; --force takes it over"))
        elif error.code in {_FORBIDDEN, _CONFLICT, 400, 422}:  # HTTP's: refused, a webhook's no, invalid
            self.problems.append(printable(f"{name_of(body)}: {error}{_advice(body, error)}", 1500))
        else:
            raise error

    def check(self) -> None:
        if self.forbidden:
            msg = (
                f"you may not {', '.join(self.forbidden)} in this Kubernetes, and nothing was changed; quotas are "
                "set by its administrator (scripts/queue.sh shows your own clusters; docs/kueue.md has the rights)"
            )
            raise NotPermittedError(msg)
        if self.problems:
            listed = "\n".join(f"  {text}" for text in self.problems)
            msg = f"the table cannot be applied, and nothing was changed:\n{listed}"
            raise BackendError(msg)


def _advice(body: Object, error: KubernetesError) -> str:
    """Return what helps where a field can be set only once, such as the team of a LocalQueue."""
    if "immutable" not in str(error) and "may not be changed" not in str(error):
        return ""
    about = body["metadata"]
    place = f" -n {about['namespace']}" if about.get("namespace") else ""
    return f"; remove it, and apply again: kubectl delete {body['kind'].lower()} {about['name']}{place}"


# --- Show, hold, resume -----------------------------------------------------------------------------------------------


def cluster_queues(service: Service) -> list[Object]:
    """Return the teams: Kueue's ClusterQueues, by name.

    Raises:
        NotPermittedError: the user may not see them.
    """
    return sorted(_for_administrators(lambda: service.items(PATHS["ClusterQueue"])), key=_name)


def resource_quotas(service: Service) -> list[Object]:
    """Return the ResourceQuotas that a table has made, where there is no Kueue; raises as :func:`cluster_queues`."""
    path = PATHS["ResourceQuota"].replace("namespaces/{}/", "")
    return sorted(_for_administrators(lambda: service.items(path, labelSelector=LABEL)), key=_name)


def queue_of(service: Service, team: str) -> Object:
    """Return the ClusterQueue of a team.

    Raises:
        UsageError: there is no such team.
        NotPermittedError: the user may not see it.
    """
    queues = cluster_queues(service)
    found = next((one for one in queues if _name(one) == team), None)
    if found is None:
        msg = f"there is no team '{team}'; there is: {', '.join(_name(one) for one in queues) or 'none'}"
        raise UsageError(msg)
    return found


def set_policy(service: Service, queue: Object, policy: str) -> None:
    """Set the stop policy of a team: ``Hold``, ``HoldAndDrain`` or ``None``; raises NotPermittedError."""
    path, body = f"{PATHS['ClusterQueue']}/{_name(queue)}", {"spec": {"stopPolicy": policy}}
    _for_administrators(lambda: [service.patch(path, body, manager=_MANAGER_OF_HOLD)])


def _for_administrators(ask: Any) -> list[Object]:
    try:
        return list(ask())
    except KubernetesError as error:
        if error.code != _FORBIDDEN:
            raise
        found = _VERB.search(str(error))
        what = f"{found['verb']} {found['resource']}.{found['group']}" if found else "see or change quotas"
        msg = (
            f"you may not {what} in this Kubernetes: that is for its administrator; scripts/queue.sh shows the "
            "clusters of your namespace (docs/kueue.md has the rights)"
        )
        raise NotPermittedError(msg) from error


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def counts(service: Service, queues: Sequence[Object]) -> dict[str, tuple[int, int]]:
    """Return how many clusters of each team run, and how many wait.

    Counted here: Kueue's own figure leaves out what has come since a team is held. It counts where the user may not see
    the clusters.
    """
    found = {}
    for one in queues:
        status = one.get("status") or {}
        found[_name(one)] = status.get("reservingWorkloads") or 0, status.get("pendingWorkloads") or 0
    try:
        local, workloads = (service.items(f"/apis/{KUEUE}/{kind}") for kind in ("localqueues", "workloads"))
    except KubernetesError as error:
        if error.code != _FORBIDDEN:
            raise
        return found
    team_of = {
        (one["metadata"]["namespace"], _name(one)): str((one.get("spec") or {}).get("clusterQueue")) for one in local
    }
    states: dict[str, list[str]] = {name: [] for name in found}
    for one in workloads:
        key = one["metadata"]["namespace"], str((one.get("spec") or {}).get("queueName") or "")
        states.get(team_of.get(key, ""), []).append(state_of(one))
    return {
        name: (sum(one not in {"WAITING", "ENDED"} for one in its), its.count("WAITING"))
        for name, its in states.items()
    }


def after_hold(queue: Object, count: tuple[int, int], *, drain: bool) -> str:
    """Return what a hold means for the clusters of *queue*: of which *count* run and wait."""
    running, waiting = count
    name = _name(queue)
    if drain:
        runs = f"{running} that run are ended, and wait again at their old place"
    else:
        runs = f"{running} that run go on to their end"
    rest = f"{waiting} that wait, and new ones, wait until: scripts/quota.sh resume {name}"
    return f"{name} is held: of its clusters, {runs}; {rest}"


def after_resume(queue: Object, count: tuple[int, int]) -> str:
    """Return what a resume means for the clusters of *queue*: of which *count* run and wait."""
    running, waiting = count
    rest = f"{running} that run go on as they are"
    return f"{_name(queue)} is resumed: {waiting} that wait start in their order, as quota becomes free; {rest}"


def names(changes: Iterable[Change], what: str) -> list[str]:
    """Return the names of the objects of *changes* to which *what* happens."""
    return [one.name for one in changes if one.what == what]
