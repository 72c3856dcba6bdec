"""Clusters as labels tell, and records in the checkout of ended ones."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from oci_cluster.contract.cluster import FILE, Cluster, NodeState, Plan, State, kept_clusters
from oci_cluster.contract.names import rank_of
from oci_cluster.contract.parsers import parse_name, parse_time
from oci_cluster.system.files import locked, not_writable, read_kept, write_whole
from oci_cluster.system.text import printable

_RECORDS = "nodes.json"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_LAUNCH_ID = re.compile(r"[0-9a-f]{8}")
LOCK = ".lock"
"""Held by who copies; so a cluster of this backend has it in its directory from its end on."""
# Of a node, in --json and in the records.
NODE_FIELDS: Mapping[str, str] = {
    **{name: name for name in ("node", "state", "exit_code", "address")},
    "ocid": "id",
    **{name: name for name in ("details", "never_started")},
}


def cluster_of_labels(labels: Mapping[str, str], launch_id: str, clusters_dir: Path, **fields: str) -> Cluster | None:
    """Return the cluster that *labels* tell; None where it is none of ours.

    Anybody may have written them, and its name and launch id become names of files.
    """
    try:
        cluster_id = parse_name(f"{parse_name(labels['name'])}-{launch_id}")
        parse_time(labels["created"])  # no month is 99, which has the form of one
    except ValueError:
        return None
    if not _LAUNCH_ID.fullmatch(launch_id) or not TIME.fullmatch(labels["created"]):
        return None
    shown = {field: printable(text) for field, text in labels.items()}
    return Cluster(**shown, **fields, launch_id=launch_id, directory=clusters_dir / cluster_id)


def with_kept(listed: Iterable[Cluster], root: Path, backend: str, name: str) -> list[Cluster]:
    """Return those *listed* and those kept here, or those called *name*, by age.

    Of one launch id the first counts, and what is kept here: whoever copies a cluster's labels takes no place.
    """
    kept = kept_clusters(root, backend, LOCK)
    own = {cluster.launch_id: cluster.name for cluster in kept}
    found: dict[str, Cluster] = {}
    for cluster in [*listed, *kept]:
        if own.get(cluster.launch_id, cluster.name) == cluster.name:
            found.setdefault(cluster.launch_id, cluster)
    named = [cluster for cluster in found.values() if name in {"", cluster.name}]
    return sorted(named, key=lambda cluster: cluster.age_key)


def owner() -> str:
    """Return the name of who launches, for a label."""
    import getpass  # noqa: PLC0415 - with a terminal's module, where nobody is asked

    try:
        return printable(getpass.getuser())[:100]
    except (KeyError, OSError):  # a user id without a name
        return "unknown"


def second_of(text: object) -> str:
    """Return a service's time, such as ``2026-01-31T23:59:59.123Z``, in whole seconds, if any."""
    whole, after = f"{str(text)[:19]}Z", str(text)[19:20]
    return whole if TIME.fullmatch(whole) and after in {"Z", "."} else ""


def copy_logs(cluster: Cluster, directory: Path) -> None:
    """Copy the logs that are kept of *cluster*, and their times, to *directory*."""
    kept = cluster.directory / "logs"
    if kept != directory:
        for path in [*kept.glob("*.log"), *kept.glob("*.times")]:
            shutil.copyfile(path, directory / path.name)


@contextmanager
def alone(cluster: Cluster) -> Iterator[None]:
    """Hold the lock of the cluster's directory: two verbs may come to one end."""
    make_directory(cluster)
    with locked(cluster.directory / LOCK):
        yield


def make_directory(cluster: Cluster) -> None:
    """Make the cluster's directory, which another checkout's launch has not made here."""
    try:
        cluster.directory.parent.mkdir(exist_ok=True)
        cluster.directory.mkdir(mode=0o700, exist_ok=True)
        (cluster.directory / "logs").mkdir(exist_ok=True)
    except OSError as error:
        raise not_writable(cluster.directory, error) from error


def write_plan(cluster: Cluster, plan: Plan) -> None:
    """Write *plan* into the cluster's directory."""
    try:
        write_whole(cluster.directory / FILE, json.dumps(plan.to_json(), indent=2))
    except OSError as error:
        raise not_writable(cluster.directory, error) from error


def write_states(cluster: Cluster, states: Sequence[NodeState]) -> None:
    """Record how the nodes of *cluster* ended; may raise OSError."""
    write_whole(cluster.directory / _RECORDS, json.dumps({"nodes": [record_of(state) for state in states]}))


def read_states(cluster: Cluster) -> list[NodeState]:
    """Return how the nodes ended, main first; none where that was not kept."""
    try:
        records = json.loads(read_kept(cluster.directory / _RECORDS))["nodes"]
        # One without a code was there when it was removed, whatever it did then.
        states = (replace(state, is_lost=state.exit_code is None) for state in map(recorded_state, records))
        return sorted(states, key=lambda state: rank_of(state.node))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def record_of(state: NodeState) -> dict[str, Any]:
    """Return *state* as a record, for when the backend has forgotten the node."""
    return {
        **{name: getattr(state, field) for name, field in NODE_FIELDS.items()},
        **({"cause": state.cause} if state.cause else {}),
        **({} if state.has_reported else {"has_reported": False}),
    }


def recorded_state(record: Mapping[str, Any]) -> NodeState:
    """Return the state of a record; ValueError, KeyError, TypeError: it is none."""
    found = {field: record[name] for name, field in NODE_FIELDS.items()}
    more = {"cause": str(record.get("cause", "")), "has_reported": record.get("has_reported") is not False}
    return NodeState(**{**found, "state": State(record["state"]), **more})
