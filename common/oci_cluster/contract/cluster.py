"""Plans, launched clusters and states of nodes: what launcher and backends exchange."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from oci_cluster.contract.names import node_name
from oci_cluster.contract.outcome import outcome_of
from oci_cluster.contract.parsers import parse_port
from oci_cluster.contract.settings.node import min_workers_of
from oci_cluster.contract.settings.settings_files import SettingsReader, framework_defaults
from oci_cluster.errors import ExitCode, LostPlanError, NotPermittedError, SettingsError
from oci_cluster.system.files import read_kept
from oci_cluster.system.text import seconds_since, timestamp

SCHEMA = 1
FILE = "cluster.json"
# Of a plan in `cluster.json`, in this order.
_TEXTS = ("name", "framework", "backend", "created", "work_dir", "python", "project", "code_dir", "code_uri")
_CLUSTER_ID = re.compile(r"(.+)-([0-9a-f]{8})")


class State(str, Enum):
    """A node's state, in the words of OCI Data Science."""

    ACCEPTED = "ACCEPTED"
    IN_PROGRESS = "IN_PROGRESS"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    # Those that only the service itself uses.
    CANCELING = "CANCELING"
    NEEDS_ATTENTION = "NEEDS_ATTENTION"
    DELETED = "DELETED"
    # Of a cluster that a queue has not admitted yet, or has interrupted: it waits for a quota, and for no host.
    QUEUED = "QUEUED"
    PREEMPTED = "PREEMPTED"

    def __str__(self) -> str:
        """Return the word itself, in every version of Python."""
        return self.value

    @classmethod
    def of_exit_code(cls, code: int) -> State:
        """Return the state of a node that has ended with *code*."""
        return {int(ExitCode.OK): cls.SUCCEEDED, int(ExitCode.STOPPED): cls.CANCELED}.get(code, cls.FAILED)


# States of nodes that wait for a quota.
QUEUE_STATES = frozenset({State.QUEUED, State.PREEMPTED})


@dataclass(frozen=True)
class Node:
    """One node that is to run; without an *address* the node finds its own."""

    role: str
    rank: int
    address: str = ""

    @property
    def name(self) -> str:
        """``MAIN``, ``WORKER_2``, ``PS_4``."""
        return node_name(self.role, self.rank)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of this node alone."""
        own = {"MODE": self.role, "NODE_RANK": str(self.rank)}
        return {**own, "NODE_NAME": self.name, "NODE_ADDRESS": self.address} if self.address else own


def planned_nodes(workers: int, servers: int) -> tuple[Node, ...]:
    """Return main, the workers, and the parameter servers, whose ranks follow the workers'."""
    others = [Node("WORKER", rank) for rank in range(1, workers + 1)]
    others += [Node("PS", rank) for rank in range(workers + 1, workers + servers + 1)]
    return (Node("MAIN", 0), *others)


@dataclass(frozen=True)
class Limits:
    """The settings that the launcher obeys, too. Times are seconds; *ttl_s* 0: no limit."""

    min_workers: int
    workers_to_begin: int
    """Fewer workers than these cannot become ready: all, where main waits for every address."""
    timeout_s: float
    ttl_s: float
    grace_period_s: float
    heartbeat_timeout_s: float
    ports: Mapping[str, int]
    """The single ports of main, by setting: the framework's ``*_PORT``."""
    exposed: tuple[int, ...] = ()
    """Those that servers of the user's own listen on."""


@dataclass(frozen=True)
class _Launch:
    """What a plan and a launched cluster have in common."""

    name: str
    launch_id: str
    framework: str
    backend: str
    created: str
    project: str
    """The name of the folder that it was launched from."""

    @property
    def cluster_id(self) -> str:
        """The name of its files, and of all that it has in a backend."""
        return f"{self.name}-{self.launch_id}"

    @property
    def head(self) -> dict[str, Any]:
        """These fields, for a plan of a cluster, and a cluster of a plan."""
        return {field.name: getattr(self, field.name) for field in fields(_Launch)}


@dataclass(frozen=True)
class Plan(_Launch):
    """A launch, decided and checked before anything is done."""

    nodes: tuple[Node, ...]
    environment: Mapping[str, str]
    """What every node is given."""
    settings: Mapping[str, str]
    """The backend's own."""
    limits: Limits
    work_dir: str = ""
    code_dir: str = ""
    code_uri: str = ""
    python: str = ""
    """The nodes' interpreter, where they are processes of this machine."""
    provision_timeout_s: float = 0.0
    """How long its launcher waits until all nodes have started; 0: as long as it takes."""
    packages: tuple[str, ...] = ()
    """What is added to the packages of the framework's environment, where the nodes are processes of this machine."""
    placed: Mapping[str, str] = field(default_factory=dict)
    """What the backend has added, in its own words."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Private files that the launcher keeps of it, and no node gets: their texts by their names."""
    code_keys: frozenset[str] = frozenset()
    """Files of the code, by their paths in it, that hold a private key, and go to the nodes all the same."""
    plain: frozenset[str] = frozenset()
    """Variables that somebody says are no secrets, whatever they look like."""
    chosen: frozenset[str] = frozenset()
    """The settings that somebody has given: where a port is taken that is not among them, a launch may take another."""

    @property
    def url(self) -> str:
        """Its cluster dir."""
        return f"{self.work_dir.rstrip('/')}/{self.cluster_id}"

    @property
    def launch_key(self) -> str:
        """The key that its nodes sign with; empty where an older version launched it."""
        return self.environment.get("LAUNCH_KEY", "")

    @property
    def node_names(self) -> list[str]:
        """The nodes that it was launched with, main first."""
        return [node.name for node in self.nodes]

    def to_json(self) -> dict[str, Any]:
        """Return it as ``cluster.json`` holds it."""
        return {
            "schema": SCHEMA,
            "launch_id": self.launch_id,
            "cluster_id": self.cluster_id,
            **{name: getattr(self, name) for name in _TEXTS},
            "settings": dict(self.settings),
            "environment": dict(self.environment),
            "nodes": [{"node": node.name, "environment": node.environment} for node in self.nodes],
            **({"packages": list(self.packages)} if self.packages else {}),
            **({"placed": dict(self.placed)} if self.placed else {}),
        }

    @classmethod
    def load(cls, directory: Path, root: Path) -> Plan:
        """Return the plan whose ``cluster.json`` is in *directory*; *root* has the frameworks."""
        try:
            found = json.loads(read_kept(directory / FILE))
            if not isinstance(found, dict) or not {"name", "launch_id", "cluster_id", "created"} <= set(found):
                raise ValueError("not what launch.sh writes")
            seconds_since(str(found["created"]))  # else no list that has it could be shown
            nodes = [node["environment"] for node in found.get("nodes", [])]
            environment = {str(name): str(text) for name, text in found.get("environment", {}).items()}
            texts: dict[str, Any] = {name: str(found.get(name, "")) for name in _TEXTS}
            texts["backend"] = texts["backend"] or "local"
            plan = cls(
                **texts,
                launch_id=str(found["launch_id"]),
                nodes=tuple(
                    Node(own["MODE"], int(own["NODE_RANK"]), str(own.get("NODE_ADDRESS", ""))) for own in nodes
                ),
                environment=environment,
                settings=dict(found.get("settings", {})),
                limits=limits_of(environment, root / str(found.get("framework") or "none")),
                placed=dict(found.get("placed", {})),
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, SettingsError) as error:
            raise LostPlanError(f"{directory / FILE} does not say what was launched: {error}") from error
        if found["cluster_id"] != plan.cluster_id:
            raise LostPlanError(f"{directory / FILE} does not say what was launched: not what launch.sh writes")
        return plan


@dataclass(frozen=True)
class Cluster(_Launch):
    """A launched cluster, as tags, labels or ``cluster.json`` tell: enough to end it."""

    directory: Path
    """Its folder in this checkout, which may not be there."""
    handle: str = ""
    """The backend's own id of it, such as the Job's OCID."""
    style: str = ""
    """Which of the backend's ways to run nodes it was launched in."""

    @classmethod
    def of(cls, plan: Plan, clusters_dir: Path) -> Cluster:
        """Return the cluster that *plan* is launched as, kept in *clusters_dir*."""
        return cls(**plan.head, directory=clusters_dir / plan.cluster_id)

    @property
    def age_key(self) -> tuple[str, str]:
        """The key that sorts clusters, the oldest first."""
        return self.created, self.launch_id


@dataclass(frozen=True)
class NodeState:
    """One node as its backend describes it."""

    node: str
    state: State
    exit_code: int | None = None
    """None until it has ended; and for a node of which nobody knows how it ended, see *is_lost*."""
    id: str | int = ""
    """The backend's own: one for each life of a node, which its replacement does not have."""
    address: str = ""
    details: str = ""
    """What the backend itself says of it, fit for a terminal."""
    never_started: bool = False
    """Whether it has ended and had never started: its exit code is then that of no script."""
    cause: str = ""
    """Why it ended, where its exit code does not tell: its memory ran out."""
    is_lost: bool = False
    """Whether it is gone without an exit code: killed together with whoever would have recorded one."""
    is_waiting: bool = False
    """Whether it has been accepted and has not started: it waits for a host, which may never come."""
    is_final: bool = False
    """Whether it has ended in a backend that gives its rank to no other node."""
    has_reported: bool = True
    """False where it has ended, and its agent has never told anything: something else ran in its place."""
    holds: str = ""
    """What still takes its machine though it has ended, such as ``container mesh``; empty where nothing does."""
    accepted: str = ""
    """When the backend accepted it, as :func:`now` tells times; empty where that is not known."""

    @property
    def is_running(self) -> bool:
        """True from before it has begun until it has ended."""
        return self.exit_code is None and not self.is_lost


def any_running(states: Sequence[NodeState]) -> bool:
    """Return whether a cluster of these nodes runs."""
    return any(node.is_running for node in states)


def cluster_code(states: Sequence[NodeState], stop: Mapping[str, Any] | None) -> int:
    """Return the cluster's exit code: main's, or 76 where main was lost.

    A main that has ended with 0 and told nothing is no success: nobody has run the entry point. The ``stop`` file tells
    what the *states* do not: main's entry point was killed, and not main itself; main was lost, and ended by whoever
    noticed; why one was given up that never started; a person has had all nodes killed (``at_once``).
    """
    main = next((state for state in states if state.node == "MAIN"), None)
    code = None if main is None else main.exit_code
    if main is not None and main.never_started and stop is not None and (told := outcome_of(stop).exit_code):
        return told  # who has given it up has said why
    if (code is None or was_main_killed(states)) and stop is not None and stop.get("at_once") is True:
        return ExitCode.STOPPED
    if code is None or (code == ExitCode.STOPPED and stop is not None and stop.get("exit_code") == ExitCode.LOST):
        return ExitCode.LOST
    if was_main_killed(states) and (stop is None or stop.get("exit_code") != code):
        return ExitCode.LOST
    return ExitCode.SETTINGS if was_main_silent(states) else int(code)


def was_main_silent(states: Sequence[NodeState]) -> bool:
    """Return whether main ended with 0 and told nothing: its image runs no agent."""
    return any(state.node == "MAIN" and state.exit_code == 0 and not state.has_reported for state in states)


def was_main_killed(states: Sequence[NodeState]) -> bool:
    """Return whether a signal ended main or its entry point; ``stop`` tells which."""
    code = _code_of_main(states)
    return code is not None and code > 128 and code != ExitCode.STOPPED  # 128 + the signal, as shells have it


def was_main_told(states: Sequence[NodeState]) -> bool:
    """Return whether main was told to end: by a person, or as lost."""
    return _code_of_main(states) == ExitCode.STOPPED


def _code_of_main(states: Sequence[NodeState]) -> int | None:
    return next((state.exit_code for state in states if state.node == "MAIN"), None)


def limits_of(environment: Mapping[str, str], framework_folder: Path) -> Limits:
    """Return the limits that the nodes' *environment*, or else the framework in *framework_folder*, sets."""
    defaults = framework_defaults(framework_folder)
    read = SettingsReader(environment, defaults)
    worker_count = read.setting("WORKER_COUNT", 0)
    waits_for_all = any([*map(read.setting, ("GANG", "WAIT_FOR_ADDRESSES"))])
    fewest = min_workers_of(read, worker_count)
    session = ["SESSION_PORT"] if environment.get("SESSION_PORT") else []
    limits = Limits(
        min_workers=fewest,
        workers_to_begin=worker_count if waits_for_all else fewest,
        timeout_s=read.setting("TIMEOUT"),
        ttl_s=read.setting("TTL"),
        grace_period_s=read.setting("GRACE_PERIOD"),
        heartbeat_timeout_s=read.setting("HEARTBEAT_TIMEOUT"),
        ports={name: read.value(name, parse_port) for name in (*defaults, *session) if name.endswith("_PORT")},
        exposed=read.setting("EXPOSE") or (),
    )
    read.setting("INTERRUPTIBLE")  # who reads it later does not check it
    if read.problems:
        raise SettingsError.of(read.problems, "")
    return limits


def clusters_dir(root: Path) -> Path:
    """Return where the checkout *root* keeps what it knows of clusters: plans, logs, outputs."""
    return root / ".clusters"


def kept_clusters(root: Path, backend: str, mark: str) -> list[Cluster]:
    """Return the clusters of *backend* that the checkout *root* keeps, the oldest first.

    One that is just being written is not one yet. One whose plan is gone is one still: what its folder's name tells,
    where it has the *mark*, a file that this backend alone makes there, when nodes begin.
    """
    place = clusters_dir(root)
    try:
        paths = list(place.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:  # nobody may take this for "nothing runs"
        raise NotPermittedError(
            f"{place} cannot be read: {error.strerror}; it is another user's: work in a checkout of your own"
        ) from error
    found = []
    for path in paths:
        try:
            plan = Plan.load(path, root)
        except LostPlanError:
            with contextlib.suppress(OSError):  # no mark: it has not begun, or is not ours
                found += _without_plan(path, backend, (path / mark).stat().st_mtime)
        else:
            if plan.backend == backend:
                found.append(replace(Cluster.of(plan, place), directory=path))
    return sorted(found, key=lambda cluster: cluster.age_key)


def _without_plan(directory: Path, backend: str, begun: float) -> list[Cluster]:
    """Return the cluster that the name of *directory* tells, if it does."""
    named = _CLUSTER_ID.fullmatch(directory.name)
    name, launch_id = named.groups() if named else ("", "")
    return [Cluster(name, launch_id, "", backend, timestamp(begun), "", directory)] if named else []
