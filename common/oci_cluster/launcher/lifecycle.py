"""The life of a cluster, from launch to end: written once, for every backend."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from oci_cluster.backends.base import Backend, IsStopped
from oci_cluster.contract.cluster import (
    FILE,
    Cluster,
    Limits,
    Node,
    NodeState,
    Plan,
    any_running,
    clusters_dir,
    limits_of,
)
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.lives import read_stop
from oci_cluster.contract.names import STOP, is_worker, rank_of
from oci_cluster.contract.storage.hanging_disk import asked
from oci_cluster.contract.storage.retry import poll_delays
from oci_cluster.errors import (
    BackendError,
    ClusterError,
    ExitCode,
    LostPlanError,
    StoppedError,
    StorageError,
    UsageError,
)
from oci_cluster.launcher.launch.plan import free_ranks, scaled_workers
from oci_cluster.system.console import Say
from oci_cluster.system.files import locked, not_writable, write_whole
from oci_cluster.system.text import now, seconds_since

_TELL_AGAIN_S = 10.0
# How long a list may not have what has been made; the backend oci has the source of the number (SETTLES_S).
_LISTED_S = 120.0
# How long what has to be done at the end is tried where nobody answers.
_INSIST_S = 20.0


def stop_command(backend: Backend, *words: str) -> str:
    """Return the command that ends what *words* name on *backend*."""
    where = [] if backend.name == "local" else ["--backend", backend.name]
    return " ".join(["scripts/stop.sh", *words, *where])


def insist(
    ask: Callable[[], None], say: Say, *, wait: Callable[[float], None], clock: Callable[[], float]
) -> ClusterError | None:
    """Call *ask*; return why it failed.

    Where nobody answers, it is called again for 20 s: an engine that is being started again answers soon.
    """
    deadline, is_told = clock() + _INSIST_S, False
    delays = poll_delays(5.0, first_s=0.5)
    while True:
        try:
            ask()
        except (BackendError, StorageError) as error:
            if clock() + (delay := next(delays)) > deadline:
                return error
            if not is_told:
                say(f"{error}; trying again")
            is_told = True
            wait(delay)
        except ClusterError as error:
            return error
        else:
            return None


@dataclass(eq=False)
class Lifecycle:
    """Launches, finds, scales and ends the clusters of one backend."""

    backend: Backend
    root: Path
    """The checkout, which keeps logs and outputs."""
    say: Say
    is_stopped: IsStopped = field(default=lambda: False, kw_only=True)
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    sleep: Callable[[float], None] = field(default=time.sleep, kw_only=True)

    # --- Launch --------------------------------------------------------------------------------------------

    def launch(self, plan: Plan) -> Cluster:
        """Start the cluster of a placed *plan*; after a failure nothing is left.

        What is left all the same is named. Raise UsageError where a cluster of that name runs.
        """
        with self._one_at_a_time():
            self.check_name(plan.name)
            cluster = Cluster.of(plan, clusters_dir(self.root))
            _make_directory(cluster, plan.kept)
            try:
                return self.backend.start(plan, plan.nodes, self.say)
            except BaseException as error:  # Ctrl-C too: a cluster is started whole, or not at all
                self._roll_back(cluster, error)
                raise

    def check_name(self, name: str) -> None:
        """Raise where a cluster called *name* runs."""
        if self._running(self.backend.find(name)):
            raise UsageError(
                f"a cluster named '{name}' is running; choose another --name, or end it: {self._stop_command(name)}"
            )

    def _one_at_a_time(self) -> AbstractContextManager[object]:
        if not self.backend.is_this_machine:
            return contextlib.nullcontext()
        waiting = partial(self.say, "waiting: another launch.sh or scale.sh of this checkout is at work")
        return locked(clusters_dir(self.root) / ".lock", waiting, self.is_stopped)

    def _roll_back(self, cluster: Cluster, error: BaseException) -> None:
        if not self.backend.is_free_to_ask:  # else it takes no time that would have to be explained
            self.say(f"{error}" if isinstance(error, StoppedError) else "the launch failed; ending what was started")
        remove = partial(self.backend.remove, cluster, self.say)
        if (problem := insist(remove, self.say, wait=self.sleep, clock=self.clock)) is not None:
            what = "may still be running" + ("" if self.backend.is_this_machine else " and cost money")
            command = self._stop_command(cluster.name, "--delete")
            self.say(f"NOT ENDED: {cluster.name} {what} ({problem}); end it: {command}")
            return
        shutil.rmtree(cluster.directory, ignore_errors=True)

    def _stop_command(self, *words: str) -> str:
        return stop_command(self.backend, *words)

    # --- Find ----------------------------------------------------------------------------------------------

    def choose(self, name: str) -> Cluster:
        """Return the cluster called *name*, or the only one that runs.

        An id counts before a name. Of several that had the name it is the one that runs, else the latest. Of several
        that run, which no launch makes, it is that of this checkout.
        """
        clusters = self.backend.find()
        running = self._running(clusters)
        if not name:
            if len(running) == 1:
                return running[0]
            names = ", ".join(cluster.name for cluster in running) or "none"
            raise UsageError(f"which cluster? running: {names}; scripts/list.sh --all shows those that have ended")
        if by_id := [cluster for cluster in clusters if cluster.cluster_id == name]:
            return by_id[-1]
        named = [cluster for cluster in running if cluster.name == name]
        own = [cluster for cluster in named if (cluster.directory / FILE).exists()] or named
        if len(own) > 1:
            ids = ", ".join(cluster.cluster_id for cluster in own)
            raise UsageError(f"which '{name}'? somebody has made a second one, and both run: {ids}; name one of these")
        fitting = own or [cluster for cluster in clusters if cluster.name == name]
        if not fitting:
            known = ", ".join(dict.fromkeys(cluster.name for cluster in clusters)) or "none"
            raise UsageError(f"there is no cluster '{name}'; known: {known}")
        return fitting[-1]

    def choose_orphan(self, cluster_id: str) -> Cluster:
        """Return the cluster of a killed launcher; a list may have it late."""
        deadline = self.clock() + (0 if self.backend.is_this_machine else _LISTED_S)
        delays = poll_delays(5.0, first_s=0.5)
        while True:
            try:
                return self.choose(cluster_id)
            except UsageError:
                if self.clock() >= deadline:
                    raise
            self.sleep(next(delays))

    def choose_all(self, *, ended: bool, older_than_s: float) -> list[Cluster]:
        """Return the clusters that run, or have *ended*, launched so long ago at least.

        One that has ended, and still takes machines, is among both: it costs what one costs that runs.
        """
        clusters = self.backend.find()
        states = self.backend.states(clusters) if clusters else {}

        def is_meant(nodes: Sequence[NodeState]) -> bool:
            return not any_running(nodes) if ended else any_running(nodes) or any(node.holds for node in nodes)

        return [
            cluster
            for cluster in clusters
            if is_meant(states[cluster.launch_id]) and seconds_since(cluster.created) >= older_than_s
        ]

    def states(self, cluster: Cluster) -> list[NodeState]:
        """Return what the backend says of the nodes of *cluster*."""
        return self.backend.states([cluster])[cluster.launch_id]

    def is_running(self, cluster: Cluster) -> bool:
        """Return whether any node of *cluster* has not ended."""
        return any_running(self.states(cluster))

    def _running(self, clusters: Sequence[Cluster]) -> list[Cluster]:
        states = self.backend.states(clusters) if clusters else {}
        return [cluster for cluster in clusters if any_running(states[cluster.launch_id])]

    # --- Scale ---------------------------------------------------------------------------------------------

    def scale(self, cluster: Cluster, text: str) -> int:
        """Add workers to *cluster*, or end some: *text* is ``+1``, ``-1`` or the number.

        Return how many there are then. A lost worker's rank is given to its replacement, where the backend can do that.
        The highest ranks are ended.
        """
        with self._one_at_a_time():
            plan, states = _scalable(self.backend, cluster)
            workers = sorted(rank_of(state.node) for state in states if state.is_running and is_worker(state.node))
            limits = {"minimum": plan.limits.min_workers, "maximum": self.backend.max_workers}
            wanted = scaled_workers(text, len(workers), **limits)
            ended = [f"WORKER_{rank}" for rank in workers[wanted:]]
            added = self._resize(cluster, plan, states, wanted - len(workers), ended)
        for name in added:
            self.say(f"{name} started")
        if ended:
            self.say(f"ending {', '.join(sorted(ended))}")
            patience_s = self._patience_s(plan.limits) + self.backend.end_timeout_s
            if left := self._wait_for_end(cluster, patience_s, set(ended)):
                command = self._stop_command(cluster.name)
                raise BackendError(f"{', '.join(sorted(left))} did not end; end the whole cluster: {command}")
        return wanted

    def resize(self, cluster: Cluster, count: int, ended: Sequence[str]) -> list[str]:
        """Add *count* workers, have *ended* ones end, wait for nothing; return those added."""
        with self._one_at_a_time():
            plan, states = _scalable(self.backend, cluster)
            return self._resize(cluster, plan, states, count, ended)

    def _resize(
        self, cluster: Cluster, plan: Plan, states: Sequence[NodeState], count: int, ended: Sequence[str]
    ) -> list[str]:
        added = _new_workers(plan, states, count)
        if added:
            self.backend.start(plan, added, self.say)
            self._end_if_over(cluster, plan, {node.name for node in added})
        if ended:
            self.backend.end(cluster, ended)
        return [node.name for node in added]

    def _end_if_over(self, cluster: Cluster, plan: Plan, added: set[str]) -> None:
        others = [state for state in self.states(cluster) if state.node not in added]
        if any_running(others):
            return
        self._end_by_force(cluster, added, self._patience_s(plan.limits))
        if not others:  # they have been taken away; else who follows the cluster takes all away
            self.backend.remove(cluster, self.say)
        raise UsageError(f"{cluster.name} has ended meanwhile; launch it again: scripts/launch.sh")

    # --- End -----------------------------------------------------------------------------------------------

    def stop(self, cluster: Cluster, *, delete: bool = False, reason: str = "stopped by stop.sh") -> None:
        """End *cluster* and return when nothing of it runs; with *delete* remove its files.

        First by the ``stop`` file, so that its nodes end in order; then by the backend: TERM, in the end KILL.
        """
        self._stop_running(cluster, reason)
        if delete:
            self.backend.remove(cluster, self.say)
            shutil.rmtree(cluster.directory, ignore_errors=True)
        else:
            self.backend.finish(cluster, self.say)

    def _stop_running(self, cluster: Cluster, reason: str) -> None:
        """End what runs of *cluster*; by force where its plan is lost."""
        running = [state for state in self.states(cluster) if state.is_running]
        left = {state.node for state in running}
        if not left:
            return
        try:
            plan = self.backend.load(cluster)
        except LostPlanError as error:
            self.say(f"{error}; ending its nodes")
            self._end_by_force(cluster, left, self._patience_s(limits_of({}, self.root / "none")))
            return
        self.say(f"stopping {cluster.name}")
        request_stop(self.backend, cluster, plan, reason)
        # Who has not started reads no file. What shares its life with one that has, ends in order with it.
        started = {state.id for state in running if not state.is_waiting}
        if waiting := [state.node for state in running if state.is_waiting and state.id not in started]:
            self.backend.end(cluster, waiting)
        if left := self._wait_for_end(cluster, self._patience_s(plan.limits)):
            self.say(f"{cluster.name} has not ended by itself; ending its nodes")
            self._end_by_force(cluster, left, self._patience_s(plan.limits))

    def _end_by_force(self, cluster: Cluster, nodes: set[str], patience_s: float) -> None:
        deadline = self.clock() + 2 * patience_s + self.backend.end_timeout_s
        while nodes and self.clock() < deadline:
            # Told again: a node that was just being started may not have been there to be told.
            self.backend.end(cluster, nodes)
            nodes = self._wait_for_end(cluster, _TELL_AGAIN_S)
        if nodes:
            self.backend.end(cluster, nodes, at_once=True)
            nodes = self._wait_for_end(cluster, patience_s)
        if nodes:
            names = ", ".join(sorted(nodes))
            raise BackendError(f"{names} of {cluster.name} did not end; try again: {self._stop_command(cluster.name)}")

    def _patience_s(self, limits: Limits) -> float:
        return limits.grace_period_s + self.backend.end_margin_s

    def _wait_for_end(self, cluster: Cluster, patience_s: float, nodes: Collection[str] | None = None) -> set[str]:
        """Wait until *nodes*, or all, have ended; return those that have not."""
        deadline, delays = self.clock() + patience_s, poll_delays(self.backend.poll_s, first_s=0.05)
        while True:
            running = {state.node for state in self.states(cluster) if state.is_running}
            left = running if nodes is None else running & set(nodes)
            if not left or self.clock() > deadline:
                return left
            self.sleep(next(delays))


def _make_directory(cluster: Cluster, kept: Mapping[str, str]) -> None:
    try:
        cluster.directory.parent.mkdir(exist_ok=True)
        cluster.directory.mkdir(mode=0o700)
        (cluster.directory / "logs").mkdir()
        (cluster.directory / "outputs").mkdir()
        for name, text in kept.items():
            write_whole(cluster.directory / name, text)
    except OSError as error:
        if not isinstance(error, FileExistsError):  # then it is not ours
            shutil.rmtree(cluster.directory, ignore_errors=True)
        raise not_writable(cluster.directory, error) from error


def _scalable(backend: Backend, cluster: Cluster) -> tuple[Plan, list[NodeState]]:
    if why := backend.why_fixed(cluster):
        raise UsageError(f"{cluster.name} {why}")
    plan = backend.load(cluster)
    states = backend.states([cluster])[cluster.launch_id]
    if not any_running(states):
        raise UsageError(f"{cluster.name} has ended; launch it again: scripts/launch.sh")
    return plan, states


def started(backend: Backend, cluster: Cluster, plan: Plan) -> str:
    """Return the line that says that *cluster* has been started."""
    nodes = "1 node" if len(plan.nodes) == 1 else f"{len(plan.nodes)} nodes"
    return f"cluster {cluster.name} started: {nodes}; {backend.started(cluster, plan)}"


def _new_workers(plan: Plan, states: Sequence[NodeState], count: int) -> list[Node]:
    names = list(dict.fromkeys([*plan.node_names, *(state.node for state in states)]))
    taken = [state.node for state in states if state.is_running or state.is_final]
    return [Node("WORKER", rank) for rank in free_ranks(names, taken, count)]


def request_stop(
    backend: Backend, cluster: Cluster, plan: Plan, reason: str, exit_code: int = ExitCode.STOPPED
) -> ClusterError | None:
    """Ask nodes to stop by the ``stop`` file; return why the backend ends them instead."""

    def ask() -> None:
        cluster_dir = ClusterDir(plan.url, cluster.launch_id, plan.launch_key)
        if read_stop(cluster_dir) is None:
            cluster_dir.publish(STOP, reason=reason, exit_code=int(exit_code), time=now())

    try:
        asked(cluster, plan, ask)
    except ClusterError as error:
        running = [state.node for state in backend.states([cluster])[cluster.launch_id] if state.is_running]
        backend.end(cluster, running)
        return error
    return None
