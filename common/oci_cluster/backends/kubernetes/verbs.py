"""What ``quota.sh`` and ``queue.sh`` print, and what they end with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.backends.kubernetes import queue_view, quota, usage
from oci_cluster.backends.kubernetes.access import open_access
from oci_cluster.backends.kubernetes.differences import text
from oci_cluster.backends.kubernetes.service import LOOK_PATIENCE_S, PATIENCE_S, Service
from oci_cluster.backends.kubernetes.team_table import Table, read_table
from oci_cluster.backends.kubernetes.teams import NO_QUEUE
from oci_cluster.errors import BackendError
from oci_cluster.system.console import Say
from oci_cluster.system.screen import WHOLE, Screen

Options = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Out:
    """Whom results are shown to, and on what; and whom the rest is said to."""

    show: Say
    say: Say
    screen: Screen = WHOLE


def run(verb: str, words: Sequence[str], options: Options, given: Mapping[str, str], out: Out) -> int:
    """Run ``quota`` or ``queue``; return the exit code.

    Args:
        verb: Which.
        words: What was typed, checked by who calls.
        options: Likewise, with their values.
        given: Settings.
        out: Where results go, and what is said besides.

    Raises:
        ClusterError: what is said to the person.
    """
    verbs: dict[str, Callable[[], None]] = {
        "quota show": lambda: _show(service, options, out),
        "quota apply": lambda: _apply(service, tables[0], words[1], options, out),
        "quota hold": lambda: _hold(service, words[1], out, "HoldAndDrain" if "--drain" in options else "Hold"),
        "quota resume": lambda: _hold(service, words[1], out, "None"),
    }
    # What is wrong with it, is so without any Kubernetes.
    tables = [read_table(Path(words[1]))] if verb == "quota" and words[0] == "apply" else []
    is_looking = verb == "queue" or words[0] == "show"
    patience_s = LOOK_PATIENCE_S if is_looking else PATIENCE_S
    service = Service(open_access(given), patience_s=patience_s, say=out.say)
    try:
        if verb == "queue":
            _queue(service, words[0] if words else "", options, out)
        else:
            verbs[f"quota {words[0]}"]()
        for warning in service.warnings:
            out.say(f"Kubernetes warns: {warning}")
    finally:
        service.close()
    return 0


def _show(service: Service, options: Options, out: Out) -> None:
    if quota.has_kueue(service):
        queues = quota.cluster_queues(service)
        teams = usage.described(queues, quota.counts(service, queues))
        _print(teams, out.screen.table(usage.HEAD, usage.rows(teams), usage.BELOW), options, out)
        return
    out.say(NO_QUEUE)
    quotas = usage.plain_rows(quota.resource_quotas(service))
    head = ("TEAM", "NAMESPACE", "RESOURCE", "NOMINAL", "USED")
    _print(quotas, out.screen.table(head, [list(one.values()) for one in quotas]), options, out)


def _apply(service: Service, table: Table, file: str, options: Options, out: Out) -> None:
    force = "--force" in options
    planned = quota.plan_apply(service, table, prune="--prune" in options, force=force)
    for note in planned.notes:
        out.say(note)
    if planned.changes:
        out.show(text(planned.changes))
    if not any(one.what != "kept" for one in planned.changes):
        out.say(f"nothing changes: all is as {file} says")
        return
    counts = [f"{len(names)} {what}" for what in ("added", "changed", "removed") if (names := _names(planned, what))]
    if "--dry-run" in options:
        out.say(f"a dry run: nothing was changed; it would be {', '.join(counts)}")
        return
    quota.apply(service, planned, force=force)
    out.say(", ".join(counts))
    if any(name.startswith("ClusterQueue") for name in _names(planned, "removed")):
        out.say("a team that is removed starts nothing more, and is gone when its clusters have ended")


def _names(planned: quota.Planned, what: str) -> list[str]:
    return quota.names(planned.changes, what)


def _hold(service: Service, team: str, out: Out, policy: str) -> None:
    if not quota.has_kueue(service):
        raise BackendError(f"{NO_QUEUE}; so no team can be held or resumed")
    queue = quota.queue_of(service, team)
    if ((queue.get("spec") or {}).get("stopPolicy") or "None") == policy:
        out.say(f"{team} {'is not held' if policy == 'None' else 'is held already'}: nothing was changed")
        return
    count = quota.counts(service, [queue])[team]  # before: those that wait may start at once
    quota.set_policy(service, queue, policy)
    is_drained = policy == "HoldAndDrain"
    out.say(quota.after_resume(queue, count) if policy == "None" else quota.after_hold(queue, count, drain=is_drained))


def _queue(service: Service, team: str, options: Options, out: Out) -> None:
    if not quota.has_kueue(service):
        raise BackendError(f"{NO_QUEUE}; scripts/list.sh shows the clusters")
    view = queue_view.look(service)
    rows = queue_view.described(view, team)
    for note in view.notes:
        out.say(note)
    table = out.screen.table(queue_view.HEAD, queue_view.table(rows), queue_view.BELOW)
    _print(rows, table, options, out)


def _print(found: object, table: str, options: Options, out: Out) -> None:
    out.show(json.dumps(found, indent=2) if "--json" in options else table)
