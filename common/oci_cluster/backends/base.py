"""The protocol of backends, and what those that share this machine have in common."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from oci_cluster.contract.cluster import Cluster, Node, NodeState, Plan
from oci_cluster.errors import BackendError, UsageError
from oci_cluster.system.console import Say

# Whether the launcher has been told to stop.
IsStopped = Callable[[], bool]

# A connection may take so long to be made: far above what one machine takes, below a browser's own patience.
_DIAL_S = 10.0
# How late a signal may be seen in a pause.
_SIGNAL_S = 0.2


def check_of_image(plan: Plan, nodes: str) -> None:
    """Raise UsageError where *plan* changes the Python of *nodes* that have an image's."""
    if plan.python:
        raise UsageError(
            f"--python works with the backend local only; {nodes} use the Python of their image; leave it out"
        )
    if plan.packages:
        listed = ", ".join(plan.packages)
        raise UsageError(
            f"--with works with the backend local only; images have their packages from their build: list {listed} "
            f"in a file requirements.txt, then make build-{plan.framework} EXTRA_ENV=requirements.txt (docs/images.md)"
        )


def sleeper(is_stopped: IsStopped) -> Callable[[float], None]:
    """Return a sleep that a stop ends; one begun after it lasts."""

    def sleep(seconds: float) -> None:
        until = time.monotonic() + seconds
        is_new = not is_stopped()
        while (left := until - time.monotonic()) > 0 and not (is_new and is_stopped()):
            time.sleep(min(left, _SIGNAL_S))

    return sleep


def port_is_free(address: str, port: int) -> bool:
    """Return whether *port* can be bound on *address*."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError:
            return False
    return True


class LogCopy(Protocol):
    """Brings the nodes' logs to this machine, as ``<node>.log`` in :attr:`directory`."""

    directory: Path

    def fetch(self) -> None:
        """Copy what is new.

        Raises:
            ClusterError: the backend did not answer; the next call goes on from there.
        """

    def drain(self, pause: Callable[[], bool], say: Say) -> None:
        """Copy what comes later than the nodes' end; called when they have ended.

        Args:
            pause: Shows what has come, and waits between two looks; returns whether more is wanted.
            say: Is told what is waited for.
        """

    def close(self) -> None:
        """End the copying."""


class LogsInPlace:
    """Logs that are on this machine already, at the latest when they are fetched."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def fetch(self) -> None:
        """Do nothing."""

    def drain(self, pause: Callable[[], bool], say: Say) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class PortForward(Protocol):
    """A way from this machine to one port of one node, until closed."""

    address: str
    """``HOST:PORT`` under which this machine reaches the port itself; empty where only :meth:`dial` does."""

    def dial(self) -> socket.socket:
        """Return a new connection to the port, for the caller to close. Several threads may call at once.

        Raises:
            BackendError: nobody listens there, or the way to it is cut; the next call may succeed.
            NotPermittedError: this person may not go there.
        """

    def close(self) -> None:
        """End what the way itself has started, and what costs."""


class DirectConnection:
    """A port that this machine reaches itself."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self._place = host, port

    def dial(self) -> socket.socket:
        """Return a new connection to the port; a BackendError where nobody listens there."""
        host, port = self._place
        try:
            return socket.create_connection((host, port), timeout=_DIAL_S)
        except OSError as error:
            raise BackendError(f"nobody listens on {host}:{port} ({error.strerror or error})") from error

    def close(self) -> None:
        """Do nothing."""


class Backend(Protocol):
    """One place where nodes run. It decides nothing about clusters.

    Every method may raise what its backend says: UsageError, SettingsError, BackendError, NotPermittedError; those that
    start or wait raise StoppedError when the launcher has been told to stop.
    """

    name: str
    max_workers: int
    """The largest number that it takes, with the source beside the number."""
    poll_s: float
    """Seconds between two calls of :meth:`states` while a cluster is followed."""
    why_gone: str
    """Text for a cluster that was launched, and of whose nodes nobody knows anything any more."""
    end_margin_s: float
    """The time that a node needs beyond ``GRACE_PERIOD``: to be told, to upload what it leaves."""
    end_timeout_s: float = 0.0
    """The time that the backend itself may need to end a node."""
    shows_key: bool = False
    """Whether everybody who may look at its clusters reads their ``LAUNCH_KEY``: sessions take another token then."""
    is_this_machine: bool
    """Whether its clusters are this machine's: then launches wait for each other, and the second sees the first."""
    is_free_to_ask: bool
    """Whether looking costs nothing: then a dry run checks the name."""
    node_fields: Mapping[str, str]
    """Fields of :class:`NodeState` that ``--json`` shows, under the names that this backend has for them."""
    ends_workers: str = "any"
    """Workers that it can end and start again: ``any``; or the ``last`` ones alone, as a Job has places for all."""
    handle_name: str = ""
    """Its own word for :attr:`Cluster.handle`; empty where it has none."""

    def check(self, plan: Plan | None = None) -> None:
        """Raise where settings of every verb, or of *plan*'s launch, are missing or wrong.

        The standard library must be enough: this comes before anything is installed.
        """

    def place(self, plan: Plan, say: Say = lambda _: None) -> Plan:
        """Return *plan* with what its nodes get here. Changes nothing.

        No service is asked that would know the caller. *say* is told what of the user's goes to another machine.
        """

    def preview(self, plan: Plan, *, as_json: bool) -> str:
        """Return what :meth:`start` would send for a placed *plan*: made by the same functions."""

    def prepare(self, plan: Plan, say: Say) -> Plan:  # noqa: ARG002 - most nodes bring all in their image
        """Make what nodes need on this machine; the next call goes on after an interruption."""
        return plan

    def start(self, plan: Plan, nodes: Sequence[Node], say: Say) -> Cluster:
        """Start all *nodes* of a placed *plan*, main first, or raise. Later ones join.

        Nothing is started twice. After an error :meth:`remove` finds what has been started.
        """

    def files(self, cluster: Cluster, plan: Plan) -> str:  # noqa: ARG002 - most come to one place
        """Return where a person finds what the nodes of *cluster* leave."""
        return str(cluster.directory)

    def started(self, cluster: Cluster, plan: Plan) -> str:
        """Return words for a person when *cluster* has been started: where its files are."""

    def connect(self, cluster: Cluster, plan: Plan, words: str) -> str:
        """Return the connection of a program outside; on main's own machine, main's *words*."""

    def find(self, name: str = "") -> list[Cluster]:
        """Return the clusters that there are, or those called *name*, the oldest first.

        Whatever became of their launchers, and from any checkout.
        """

    def load(self, cluster: Cluster) -> Plan:
        """Return the placed plan of *cluster*, checked, as anybody may have written it."""

    def states(self, clusters: Sequence[Cluster]) -> dict[str, list[NodeState]]:
        """Return the nodes by rank, by launch id; requests do not grow with *clusters*.

        A node that has been accepted and has not started is told as waiting. A node's state never goes backwards, and
        one that has just been made is there, however late the backend's own answers are.
        """

    def keep_end(self, cluster: Cluster, states: Sequence[NodeState]) -> None:  # noqa: ARG002 - most forget nothing
        """Keep here how *cluster* has ended, where its backend forgets it and nobody has."""
        return

    def why_fixed(self, cluster: Cluster) -> str:  # noqa: ARG002 - most take any
        """Return why no worker can be added or ended; empty where one can."""
        return ""

    def end(self, cluster: Cluster, nodes: Collection[str], *, at_once: bool = False) -> None:
        """Have *nodes* ended: TERM, their grace, KILL; *at_once* KILL. Does not wait.

        May be called again. Nodes that have ended are no error.
        """

    def finish(self, cluster: Cluster, say: Say) -> None:
        """Bring what would be lost to the cluster's directory; leave nothing that costs."""

    def remove(self, cluster: Cluster, say: Say) -> None:
        """Return when nothing of *cluster* is left, by its id; none is fine."""

    def logs(self, cluster: Cluster, directory: Path, *, follow: bool) -> LogCopy:
        """Return a copier of logs to *directory*; with *follow* of later lines, too."""

    def port_forward(self, cluster: Cluster, plan: Plan, node: str, port: int, say: Say) -> PortForward:
        """Return a way to *port* of *node*, which runs; it may take a minute.

        *say* is told what is waited for, and what the way itself costs or ends.
        """

    def close(self) -> None:
        """End what runs of this launcher's own, and give up its claims."""
