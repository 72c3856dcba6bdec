"""Clusters, plans and states of nodes, out of a container engine's answers.

Anybody may have written the labels of a container: one whose labels are none of ours is no node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oci_cluster.backends import archive
from oci_cluster.backends.docker import commands
from oci_cluster.contract.cluster import Cluster, Node, NodeState, Plan, State, limits_of
from oci_cluster.contract.names import rank_of
from oci_cluster.contract.parsers import parse_name
from oci_cluster.errors import ExitCode, SettingsError
from oci_cluster.system.text import printable

Container = Mapping[str, Any]
"""The answer of ``container inspect``."""

_NODE = re.compile(r"(MAIN)|(WORKER|PS)_([1-9][0-9]{0,5})")
# States of a container that will not run any more by itself: docker's and nerdctl's words, podman's `stopped`.
_ENDED = {"exited", "dead", "stopped", "removing"}
# Variables that image and engine give to every container.
_ENGINES_OWN = {"PATH", "HOSTNAME", "HOME", "TERM", "container"}
# An engine makes a container and begins it within a second, on a busy machine within a few.
_BEGIN_S = 10.0


def labels_of(container: Container) -> dict[str, str]:
    """Return the labels of *container*."""
    labels = (container.get("Config") or {}).get("Labels") or {}
    return {str(name): str(text) for name, text in labels.items()}


def node_of(container: Container) -> Node | None:
    """Return the node that *container* is, if any; the name is checked."""
    found = _NODE.fullmatch(labels_of(container).get(commands.NODE, ""))
    if found is None:
        return None
    return Node("MAIN", 0) if found[1] else Node(found[2], int(found[3]))


def launch_of(container: Container) -> str:
    """Return the launch id of *container*, which may be anybody's word."""
    return labels_of(container).get(commands.LAUNCH, "")


def nodes_of(containers: Sequence[Container]) -> dict[str, Container]:
    """Return those of *containers* that are nodes, by the nodes' names, main first."""
    found = {node.name: container for container in containers if (node := node_of(container))}
    return {name: found[name] for name in sorted(found, key=rank_of)}


def cluster_of(container: Container, clusters_dir: Path) -> Cluster | None:
    """Return the cluster of *container*; None where that is none of ours."""
    labels = labels_of(container)
    told = {field: labels.get(label, "") for field, label in commands.OF_CLUSTER.items()}
    return archive.cluster_of_labels(told, launch_of(container), clusters_dir, backend="docker")


def plan_of(cluster: Cluster, nodes: Mapping[str, Container], root: Path) -> Plan:
    """Return the plan of *cluster* as the containers of its *nodes* tell it.

    Its settings and its code are main's labels as they stand: only a node that is to be started needs them, and
    :func:`commands.checked` checks them then. A cluster whose code has gone can be looked at and ended. Without main's
    container nothing is known of what the nodes were given.
    """
    main = nodes.get("MAIN", {})
    labels = labels_of(main)
    environment = {name: text for name, text in _environment_of(main).items() if name not in commands.OWN}
    folder = root / _folder(cluster.framework)
    try:
        limits = limits_of(environment, folder)
    except SettingsError:
        # An image may add what is no value of a setting. Nodes refuse that themselves; they must be seen and ended.
        limits = limits_of({}, folder)
    return Plan(
        **cluster.head,
        nodes=tuple(node for container in nodes.values() if (node := node_of(container))),
        environment=environment,
        settings={name: labels.get(label, "") for name, label in commands.KEPT_SETTINGS.items()},
        limits=limits,
        work_dir=commands.work_dir(cluster.cluster_id),
        placed={"image": str(main.get("Image", "")), "code": labels.get(commands.CODE, "")},
    )


def _folder(framework: str) -> str:
    """Return the folder's name of *framework*, of none where that is no name."""
    try:
        return parse_name(framework)
    except ValueError:
        return "none"


def _environment_of(container: Container) -> dict[str, str]:
    """Return a node's environment, with what image and engine add to every node."""
    pairs = [str(text).partition("=") for text in (container.get("Config") or {}).get("Env") or []]
    return {name: text for name, _, text in pairs if name not in _ENGINES_OWN and "\n" not in text}


def has_begun(container: Container) -> bool:
    """Return whether *container* has been more than made."""
    return _status(container) != "created"


def _status(container: Container) -> str:
    return str((container.get("State") or {}).get("Status", "")).lower()


def _out_of_memory(container: Container) -> str:
    """Return that the memory of *container* ran out, and which limit it had."""
    limit = (container.get("HostConfig") or {}).get("Memory")
    if type(limit) is not int or limit <= 0:
        return "the memory of its machine ran out"
    had = f"{limit >> 20}m" if limit % (1 << 20) == 0 else str(limit)
    return f"its memory ran out; set MEMORY higher than {had}, or leave it out"


def state_of(name: str, container: Container, given_up: Collection[str] = ()) -> NodeState:
    """Return what *container* tells of the node called *name* that it is.

    Of one that has never begun, and is one of those *given_up*, by their ids: what it has become by that. No signal
    tells it to end.
    """
    said = container.get("State") or {}
    status = _status(container)
    details = printable(said.get("Error") or "")
    networks = (container.get("NetworkSettings") or {}).get("Networks") or {}
    addresses = [str(network.get("IPAddress") or "") for network in networks.values()]
    state, code, cause = State.IN_PROGRESS, None, ""
    is_waiting = status == "created" and not details
    never_started = status == "created" and bool(details)
    if is_waiting:
        state = State.ACCEPTED
    elif never_started:
        state, code = State.FAILED, int(ExitCode.UNAVAILABLE)
    elif status in _ENDED:
        code = int(said.get("ExitCode", ExitCode.LOST))
        state = State.of_exit_code(code)
        if said.get("OOMKilled"):
            cause = details = _out_of_memory(container)
    found = NodeState(
        node=name,
        state=state,
        exit_code=code,
        id=str(container.get("Id", "")),
        address=printable(next(iter(filter(None, addresses)), "")),
        details=details,
        never_started=never_started,
        cause=cause,
        is_waiting=is_waiting,
        accepted=archive.second_of(container.get("Created")),
    )
    if not is_waiting or found.id not in given_up:
        return found
    ended = replace(found, state=State.CANCELED, exit_code=int(ExitCode.STOPPED), is_waiting=False)
    return replace(ended, never_started=True, details="it was ended before it began")


class CreatedContainers:
    """Containers that are made and not begun; those to be ended never began.

    No signal reaches a container that has not begun. One that a launch is just beginning reads the ``stop`` file then;
    one that an engine was beginning when it hung, or was killed, would be waited for without end.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # By the containers' ids: when they were first seen, and from when on they are given up.
        self._seen_at: dict[str, float] = {}
        self._given_up_at: dict[str, float] = {}

    def note(self, containers: Sequence[Container]) -> None:
        """Note those of *containers* that have not begun."""
        for container in containers:
            if not has_begun(container):
                self._seen_at.setdefault(str(container["Id"]), self._clock())

    def give_up(self, ids: Iterable[str]) -> None:
        """Give up containers by *ids* as soon as the engine has had its time."""
        self._given_up_at |= {id_: self._seen_at[id_] + _BEGIN_S for id_ in ids}

    def state(self, name: str, container: Container) -> NodeState:
        """Return the state of the node called *name*, which *container* is; see :func:`state_of`."""
        now = self._clock()
        return state_of(name, container, {id_ for id_, at in self._given_up_at.items() if now >= at})
