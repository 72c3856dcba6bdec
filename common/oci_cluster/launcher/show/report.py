"""Clusters and their nodes as tables for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from oci_cluster.backends.base import Backend
from oci_cluster.contract.cluster import (
    QUEUE_STATES,
    Cluster,
    NodeState,
    Plan,
    State,
    any_running,
    cluster_code,
    was_main_killed,
    was_main_silent,
    was_main_told,
)
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.lives import is_interruptible, read_life, read_stop
from oci_cluster.contract.names import READY, config_file, heartbeat_file
from oci_cluster.contract.outcome import was_stopped
from oci_cluster.contract.storage.hanging_disk import asked, asked_dir
from oci_cluster.errors import ClusterError, ExitCode, LostPlanError, SettingsError, StorageError
from oci_cluster.launcher.lifecycle import stop_command
from oci_cluster.system.redaction import redact
from oci_cluster.system.screen import WHOLE, Screen
from oci_cluster.system.text import printable, seconds_since, span

T = TypeVar("T")

# What a node is that was ended alone, on purpose; the other words are the backend's.
LEFT = "LEFT"
# What a cluster is of whose nodes its backend knows nothing, and nobody has kept anything: how it ended is not known.
GONE = "GONE"
# How one has ended that somebody has stopped, and one that ended with an error.
STOPPED, FAILED = "STOPPED", "FAILED"
# GPUs of a node that are shown: machines have 16 at most, and MIG makes seven of each.
_MOST_GPUS = 112


def facts_of(backend: Backend, cluster: Cluster, plan: Plan, ready: Mapping[str, Any]) -> dict[str, str]:
    """Return main's facts out of ``MAIN_ready.json``, fit for a terminal.

    What main says of a connection holds on main; *backend* says how that is done from here.
    """
    facts = ready.get("facts")
    told = {printable(name): printable(value) for name, value in facts.items()} if isinstance(facts, dict) else {}
    if "connect" in told:
        told["connect"] = backend.connect(cluster, plan, told["connect"])
    return told


def outputs_of(cluster: Cluster, plan: Plan) -> str:
    """Return the place of what *cluster*, which has ended, has left; empty: nothing."""
    kept = cluster.directory / "outputs"
    try:
        if _has_files(kept):  # brought there, or written there
            return str(kept)
        return asked(cluster, plan, partial(_stored_outputs, cluster, plan))
    except (ClusterError, OSError):  # the work dir is away: what is not known is not told
        return ""


def _stored_outputs(cluster: Cluster, plan: Plan) -> str:
    cluster_dir = ClusterDir(plan.url, cluster.launch_id, plan.launch_key)
    if cluster_dir.local_path is None:
        return f"{plan.url}/outputs" if cluster_dir.is_used("outputs") else ""
    path = Path(plan.environment.get("OUTPUT_DIR") or cluster_dir.local_path / "outputs")
    return str(path) if _has_files(path) else ""


def why_silent(plan: Plan, node: str = "MAIN") -> str:
    """Return why a *node* that ended with 0 told nothing, and a fix."""
    image = plan.settings.get("IMAGE", "").replace("{framework}", plan.framework)
    told = f"the image {image}" if image else "its image"
    advice = f"build one: make build-{plan.framework}"
    return f"{node} ended with 0 and reported nothing: {told} does not run this project's agent; {advice}"


def why_killed(states: Sequence[NodeState], stop: Mapping[str, Any] | None, code: int) -> str:
    """Return which node ended the cluster, where the backend knows more than nodes."""
    caused = [state for state in states if state.cause]
    if code == ExitCode.LOST:
        mains = [state for state in caused if state.node == "MAIN" and (state.is_lost or not stop)]
        return f"main lost: {mains[0].cause}" if mains else ""
    told = [state for state in caused if stop and state.exit_code == stop.get("exit_code")]
    named = [state for state in told if stop and str(stop.get("reason")).startswith(f"{state.node} ")]
    return next((f"{state.node}: {state.cause}" for state in [*named, *told]), "")


def reason_of(
    backend: Backend, plan: Plan, states: Sequence[NodeState], stop: Mapping[str, Any], code: int | None
) -> str | None:
    """Return why the cluster ended, or is ending, where anybody says it."""
    if not states:
        return backend.why_gone
    if was_main_silent(states):
        return why_silent(plan)
    if code and (why := why_killed(states, stop, code)):
        return why
    unstarted = [state for state in states if code and state.never_started and state.details]
    return stop.get("reason") or next((f"{one.node} could not be started: {one.details}" for one in unstarted), None)


def _has_files(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def describe(backend: Backend, cluster: Cluster, plan: Plan, states: Sequence[NodeState]) -> dict[str, Any]:
    """Return all that is known of *cluster*: plan, backend, nodes."""
    cluster_dir = ClusterDir(plan.url, cluster.launch_id, plan.launch_key)
    life = _enter_life(cluster_dir) if is_interruptible(plan.environment) else 1
    placed = {node.name: node.address for node in plan.nodes}
    stop = _stop(cluster_dir)
    code = _code(states, stop or None)
    found = {
        **_head(cluster, _state(states, code, stop), code),
        "reason": reason_of(backend, plan, states, stop, code),
        **_queued(states, code),
        **_held(backend, cluster, states),
        "created": cluster.created,
        **({"life": life} if life > 1 else {}),
        "directory": backend.files(cluster, plan),
        "facts": facts_of(backend, cluster, plan, _read(cluster_dir, READY)) if code is None and states else {},
        **({"exposed": list(plan.limits.exposed)} if plan.limits.exposed else {}),
        "nodes": [
            {"address": state.address, **_node(backend, state, code), **_said(cluster_dir, state)}
            for state in (replace(state, address=state.address or placed.get(state.node, "")) for state in states)
        ],
        **({"refused": cluster_dir.refused} if cluster_dir.refused else {}),
    }
    return _redacted(found)


def tell(backend: Backend, cluster: Cluster, states: Sequence[NodeState]) -> dict[str, Any]:
    """Return all that is known of *cluster*, also without its plan or work dir."""
    try:
        plan = backend.load(cluster)
        return asked(cluster, plan, partial(describe, backend, cluster, plan, states))
    except (LostPlanError, SettingsError, StorageError) as error:
        return unreadable(backend, cluster, states, str(error))


def tell_and_keep(backend: Backend, cluster: Cluster, states: Sequence[NodeState]) -> dict[str, Any]:
    """Return all that is known of *cluster*; where it has ended, *backend* keeps how."""
    backend.keep_end(cluster, states)
    return tell(backend, cluster, states)


def unreadable(backend: Backend, cluster: Cluster, states: Sequence[NodeState], why: str) -> dict[str, Any]:
    """Return what is known of *cluster* without its plan and files: the backend's word."""
    code = _code(states, None)
    found: dict[str, Any] = {
        **_head(cluster, _state_word(code, None) if states else "UNKNOWN", code),
        "reason": None,
        "created": cluster.created,
        "directory": str(cluster.directory),
        "facts": {},
        "nodes": [{"address": state.address, **_node(backend, state, code), "phase": ""} for state in states],
        "unreadable": why,
    }
    return _redacted(found)


def overview(backend: Backend, cluster: Cluster, states: Sequence[NodeState]) -> dict[str, Any]:
    """Return what a list tells of *cluster*; each file may cost a request.

    `stop` alone is asked for, and that only of a main that was killed, or told to end: what a list says of it must be
    what launch.sh and status.sh have said.
    """
    has_to_ask = (was_main_killed(states) or was_main_told(states)) and not any_running(states)
    stop = _stop_of(backend, cluster) if has_to_ask else None
    code = _code(states, stop)
    found = {
        **_head(cluster, _state(states, code, stop), code),
        **_queued(states, code),
        **_held(backend, cluster, states),
        "created": cluster.created,
        "nodes": [_node(backend, state, code) for state in states],
        **({backend.handle_name: cluster.handle} if backend.handle_name else {}),
    }
    return _redacted(found)


def _head(cluster: Cluster, state: str, code: int | None) -> dict[str, Any]:
    about = {"name": cluster.name, "framework": cluster.framework, "backend": cluster.backend}
    return {**about, "state": state, "exit_code": code}


def _stop_of(backend: Backend, cluster: Cluster) -> Mapping[str, Any] | None:
    def look() -> Mapping[str, Any] | None:
        plan = backend.load(cluster)
        return _stop(asked_dir(cluster, plan)) or None

    return _found(look, None)  # where nothing is known of it: a main that was killed, then


def _redacted(found: dict[str, Any]) -> dict[str, Any]:
    """Return *found* without passwords, which a work dir's URL may have."""

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shown(inside) for name, inside in value.items()}
        if isinstance(value, list):
            return [shown(inside) for inside in value]
        return redact(value) if type(value) is str else value

    return {name: shown(value) for name, value in found.items()}


def _code(states: Sequence[NodeState], stop: Mapping[str, Any] | None) -> int | None:
    return None if any_running(states) or not states else int(cluster_code(states, stop))


def _state_word(code: int | None, stop: Mapping[str, Any] | None) -> str:
    """Return the state of a cluster that ended with *code*; None: it runs."""
    if code is None:
        return "IN_PROGRESS"
    if was_stopped(code, stop):
        return STOPPED
    return FAILED if code else "SUCCEEDED"


def _state(states: Sequence[NodeState], code: int | None, stop: Mapping[str, Any] | None) -> str:
    """Return the state of a cluster, also one that waits, or is gone."""
    if not states:
        return GONE
    return str(_queue_state(states, code) or _state_word(code, stop))


def _queue_state(states: Sequence[NodeState], code: int | None) -> State | None:
    words = {state.state for state in states}
    if code is not None or not words or not words <= QUEUE_STATES:
        return None
    return State.PREEMPTED if State.PREEMPTED in words else State.QUEUED


def is_over(found: Mapping[str, Any]) -> bool:
    """Return whether a cluster of which so much was *found* runs no more."""
    return found["exit_code"] is not None or found["state"] == GONE


def _queued(states: Sequence[NodeState], code: int | None) -> dict[str, str]:
    why = next((state.details for state in states if state.state in QUEUE_STATES and state.details), "")
    return {"queue": why} if why and _queue_state(states, code) else {}


def has_left(state: NodeState, code: int | None) -> bool:
    """Return whether a node was ended alone, in a cluster of this exit *code*."""
    was_told = state.exit_code == ExitCode.STOPPED and code != ExitCode.STOPPED and not state.cause
    return state.node != "MAIN" and was_told and not state.never_started


def _node(backend: Backend, state: NodeState, code: int | None) -> dict[str, Any]:
    shown = {name: getattr(state, field) for name, field in backend.node_fields.items()}
    if has_left(state, code):
        shown["state"] = LEFT
    waits = {"waiting_s": seconds_since(state.accepted)} if state.is_waiting and state.accepted else {}
    return {**shown, **({"cause": state.cause} if state.cause else {}), **waits}


def _held(backend: Backend, cluster: Cluster, states: Sequence[NodeState]) -> dict[str, str]:
    """Return what still takes machines of a cluster that has ended, and its end."""
    found = next((state.holds for state in states if state.holds), "")
    if not found or any_running(states):
        return {}
    return {"held": f"{found} still runs, and takes its machines: {stop_command(backend, cluster.name)} ends it"}


def status_text(found: Mapping[str, Any], screen: Screen = WHOLE) -> str:
    """Return what ``status.sh`` shows on *screen* of a cluster that :func:`describe` has described."""
    what = f"{found['framework'] or '?'} on {found['backend']}"
    life = f"life {found['life']}, " if "life" in found else ""
    head = f"{found['name']}  {what}, {_ending(found)}, {life}started {span(seconds_since(found['created']))} ago"
    lines = screen.lines(head)
    lines += screen.lines(f"reason: {printable(found['reason'])}") if found["reason"] else []
    lines += screen.lines(printable(found["queue"], 1000)) if "queue" in found else []
    lines += screen.lines(found["held"]) if "held" in found else []
    # Facts and the directory are lines of their own however long they are: they are there to be copied.
    lines += [f"{printable(name)}: {printable(value)}" for name, value in found["facts"].items()]
    lines += [f"exposed: {' '.join(map(str, found['exposed']))}"] if "exposed" in found else []
    lines += screen.lines(f"unreadable: {printable(found['unreadable'])}") if "unreadable" in found else []
    for name, why in found.get("refused", {}).items():
        lines += screen.lines(f"ignored: {name}: {why}")
    lines += [f"files: {found['directory']}", ""]
    rows = []
    for node in found["nodes"]:
        code = "" if node["state"] == LEFT else _text(node["exit_code"])
        rows.append([node["node"], node["address"], node["state"], code, printable(node["phase"])])
    return "\n".join([*lines, screen.table(["NODE", "ADDRESS", "STATE", "EXIT", "PHASE"], rows)])


def list_text(clusters: Sequence[Mapping[str, Any]], screen: Screen = WHOLE) -> str:
    """Return what ``list.sh`` shows on *screen*."""
    rows = []
    for c in clusters:
        counts = [_text(c["exit_code"]), _count(c["nodes"]), span(seconds_since(c["created"]))]
        rows.append([c["name"], c["framework"] or "?", c["backend"], c["state"], *counts])
    shown = screen.table(["NAME", "FRAMEWORK", "BACKEND", "STATE", "EXIT", "NODES", "AGE"], rows)
    notes = [f"{c['name']}: {c['held']}" for c in clusters if "held" in c]
    return "\n".join([shown, *(line for note in notes for line in screen.lines(note))])


def _count(nodes: Sequence[Mapping[str, Any]]) -> str:
    waits = [node["waiting_s"] for node in nodes if "waiting_s" in node]
    return f"{len(nodes)} ({len(waits)} waiting for {span(max(waits))})" if waits else str(len(nodes))


def _ending(found: Mapping[str, Any]) -> str:
    return f"{found['state']} with {found['exit_code']}" if found["exit_code"] else str(found["state"])


def _said(cluster_dir: ClusterDir, state: NodeState) -> dict[str, Any]:
    if state.never_started:
        return {"phase": f"never started{state.details and f': {state.details}'}"}
    if state.exit_code is not None:
        return {"phase": "ended"}
    if state.is_waiting:
        # Of a queue the whole cluster has a line.
        why = f": {state.details}" if state.details and state.state not in QUEUE_STATES else ""
        return {"phase": (f"waiting for {span(seconds_since(state.accepted))}" if state.accepted else "waiting") + why}
    name = heartbeat_file(state.node)
    said = _read(cluster_dir, name)
    if name in cluster_dir.refused:
        return {"phase": "unknown"}
    if "phase" not in said:  # no heartbeat is kept of it
        has_begun = _found(lambda: cluster_dir.is_there(config_file(state.node)), False)
        return {"phase": "running" if has_begun else "starting"}
    gpus = said.get("gpus")
    names = [printable(text, 100) for text in gpus[:_MOST_GPUS]] if isinstance(gpus, list) else []
    return {"phase": f"{said['phase']}{_still(said)}", **({"gpus": names} if names else {})}


def _still(said: Mapping[str, Any]) -> str:
    """Return for how long a node has computed nothing, and where it waits."""
    if type(said.get("still_s")) is not int:
        return ""
    waits = [printable(line, 200) for line in said["waits"][:2]] if isinstance(said.get("waits"), list) else []
    return f", still for {said['still_s']} s" + (f": {'; '.join(waits)}" if waits else "")


def _read(cluster_dir: ClusterDir, name: str) -> Mapping[str, Any]:
    """Return the file's fields, none where the work dir cannot tell."""
    return _found(lambda: cluster_dir.read(name) or {}, {})


def _stop(cluster_dir: ClusterDir) -> Mapping[str, Any]:
    return _found(lambda: read_stop(cluster_dir) or {}, {})


def _found(look: Callable[[], T], default: T) -> T:
    """Return what *look* finds in the work dir; *default* where that does not tell."""
    try:
        return look()
    except ClusterError:
        return default


def _enter_life(cluster_dir: ClusterDir) -> int:
    life = _found(lambda: read_life(cluster_dir), None)
    if life is None:
        return 1
    cluster_dir.enter_life(life.id)
    return life.number


def _text(code: int | None) -> str:
    return "" if code is None else str(code)
