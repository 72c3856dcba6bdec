"""Follows a cluster to its end: logs, phases, exit code."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from oci_cluster.backends.base import Backend, LogCopy
from oci_cluster.contract.cluster import Cluster, NodeState, Plan, any_running, cluster_code
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.liveness import Liveness
from oci_cluster.contract.files.lives import Life, is_interruptible, read_life, read_stop
from oci_cluster.contract.names import READY, STOP, config_file, heartbeat_file
from oci_cluster.contract.outcome import outcome_of
from oci_cluster.contract.storage.hanging_disk import AskedFiles, may_hang
from oci_cluster.errors import ClusterError, ExitCode
from oci_cluster.launcher.follow.autoscaler import Autoscaler
from oci_cluster.launcher.follow.provisioning import Provisioning, Watcher, names_of
from oci_cluster.launcher.lifecycle import insist, request_stop
from oci_cluster.launcher.show.logs import Fetches, MergedLogs
from oci_cluster.launcher.show.report import facts_of, has_left, outputs_of, reason_of, why_silent
from oci_cluster.system.console import Say
from oci_cluster.system.process import Interrupts, describe
from oci_cluster.system.text import now, printable


class FollowedLife:
    """The generation that main has begun last; None where a launch has but one."""

    def __init__(self, cluster_dir: ClusterDir, environment: Mapping[str, str]) -> None:
        self._cluster_dir = cluster_dir
        self._is_interruptible = is_interruptible(environment)
        self._life: Life | None = None
        # How many have been seen: where nobody keeps what was before, main begins to count anew.
        self._seen = 0

    @property
    def has_begun(self) -> bool:
        """Return whether a main has been seen that begins generations."""
        return self._life is not None

    def begun(self) -> int:
        """Return the number of the life that has begun just now, else 0."""
        if not self._is_interruptible:
            return 0
        before, self._life = self._life, read_life(self._cluster_dir) or self._life
        if self._life is None or (before is not None and before.id == self._life.id):
            return 0
        self.enter(self._cluster_dir)
        self._seen += 1
        number = max(self._life.number, self._seen)
        return number if number > 1 else 0

    def enter(self, cluster_dir: ClusterDir) -> ClusterDir:
        """Have only files of this life count in *cluster_dir*, and return it."""
        if self._life is not None:
            cluster_dir.enter_life(self._life.id)
        return cluster_dir

    def has_arrived(self, node: str, listing: Mapping[str, str]) -> bool:
        """Return whether *node* has come in this life, as the *listing* shows."""
        if self._life is None or not self._life.tells_arrivals:
            return config_file(node) in listing
        return node in self._life.answers


class LostNodes(Watcher):
    """Nodes that are lost for good: no other node gets their ranks.

    Main sees a node that was told to end, and which may live again, as after an eviction.
    """

    def __post_init__(self) -> None:
        self._since: dict[str, float] = {}

    def why_hopeless(self, nodes: Sequence[NodeState]) -> str:
        """Return why the cluster cannot go on without lost nodes; empty where it may.

        What main can end by itself it has ended after ``GRACE_PERIOD``.
        """
        gone = [node for node in nodes if node.is_lost and node.is_final]
        is_main_there = any(node.node == "MAIN" and node.is_running for node in nodes)
        if not gone or not is_main_there:
            return ""
        for node in gone:
            if node.node not in self._since:
                self._since[node.node] = self.clock()
                self.say(f"{node.node} is lost, and no other node takes its place: {node.details}")
        names = {node.node for node in gone}
        if _can_do_without(names, nodes, self.plan.limits.min_workers):
            return ""
        if self.clock() - min(self._since[name] for name in names) < self.plan.limits.grace_period_s:
            return ""
        return f"{gone[0].node} lost: {gone[0].details}; MIN_WORKERS is {self.plan.limits.min_workers}"


def _can_do_without(missing: Collection[str], nodes: Sequence[NodeState], fewest: int) -> bool:
    left = sum(node.node.startswith("WORKER") and node.node not in missing for node in nodes)
    return left >= fewest and all(name.startswith("WORKER") for name in missing)


# How a node ends that has waited in vain for main, or has given it up.
_GAVE_MAIN_UP = {int(ExitCode.TIMED_OUT), int(ExitCode.LOST)}


class UnresponsiveNodes(Watcher):
    """Nodes that show no life while their cluster is over."""

    def __post_init__(self) -> None:
        self._watched: dict[str, Liveness] = {}
        self._told: dict[str, float] = {}
        # A node that ends its start script shows nothing meanwhile.
        self._patience_s = self.plan.limits.grace_period_s + self.backend.end_margin_s

    def end(self, nodes: Sequence[NodeState]) -> None:
        """End *nodes* that have been silent since the cluster was over.

        A node whose storage does not answer this process either is not ended: nothing is known of it then.
        """
        # Who has not started cannot show anything.
        running = [state.node for state in nodes if state.is_running and not state.is_waiting]
        if not self._is_over(nodes, running):
            return
        for node in running:
            if node in self._told:
                self._kill(node)
            elif (silent_s := self._silence_of(node)) > self.plan.limits.heartbeat_timeout_s + self._patience_s:
                self._tell(node, silent_s)

    def _is_over(self, nodes: Sequence[NodeState], running: Sequence[str]) -> bool:
        """Return whether nothing that runs can change the outcome."""
        if any(state.node == "MAIN" and not state.is_running for state in nodes):
            return True
        if any(state.exit_code in _GAVE_MAIN_UP for state in nodes):
            return True
        try:
            return len(running) == 1 < len(nodes) and self.cluster_dir.is_there(STOP)
        except ClusterError:
            return False

    def _silence_of(self, node: str) -> float:
        watch = self._watched.setdefault(node, Liveness(self.clock()))
        try:
            heartbeat, answered = self.cluster_dir.read(heartbeat_file(node)), True
        except ClusterError:
            heartbeat, answered = None, False
        return watch.observe(heartbeat, self.clock(), answered=answered)

    def _tell(self, node: str, silent_s: float) -> None:
        self.say(f"{node} has shown no sign of life for {silent_s:.0f} s; ending it")
        try:
            if node == "MAIN":
                reason = f"main lost: no heartbeat for {silent_s:.0f} s"
                request_stop(self.backend, self.cluster, self.plan, reason, ExitCode.LOST)
            self.backend.end(self.cluster, [node])
        except ClusterError as error:
            self.say(f"{node} could not be ended: {error}; trying again")
            return
        self._told[node] = self.clock()

    def _kill(self, node: str) -> None:
        # The backend has a deadline of its own, after which it kills, and tells how the node ended.
        if self.clock() - self._told[node] < 2 * self._patience_s + self.backend.end_timeout_s:
            return
        self.say(f"{node} has not ended; killing it")
        try:
            self.backend.end(self.cluster, [node], at_once=True)
        except ClusterError as error:
            self.say(f"{node} could not be killed: {error}; trying again")
        self._told[node] = self.clock()


# A wrapper such as make passes on what the terminal has sent already; only a later Ctrl-C is a second one.
_SAME_SIGNAL_S = 1.0
# How long a refusal counts as one that passes: a service that has just started does not know anybody's rights yet.
_REFUSED_S = 30.0


class Follower:
    """Follows one cluster to its end."""

    def __init__(
        self,
        backend: Backend,
        cluster: Cluster,
        plan: Plan,
        *,
        say: Say,
        signals: Interrupts,
        on_ready: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to follow *cluster*; *on_ready* is called when it is ready, in each life."""
        self._backend, self._cluster, self._plan = backend, cluster, plan
        self._say, self._clock = say, clock
        self._signals, self._on_ready = signals, on_ready
        # What storage does not answer here is asked again in the next round.
        self._files = AskedFiles() if may_hang(cluster, plan) else None
        self._cluster_dir = self._open_dir(patience_s=0.0)
        self._life = FollowedLife(self._cluster_dir, plan.environment)
        self._unresponsive = UnresponsiveNodes(backend, cluster, plan, self._cluster_dir, say=say, clock=clock)
        self._lost = LostNodes(backend, cluster, plan, self._cluster_dir, say=say, clock=clock)
        self._provisioning = Provisioning(backend, cluster, plan, self._cluster_dir, say=say, clock=clock)
        self._autoscaler = Autoscaler(backend, cluster, plan, self._cluster_dir, say=say, clock=clock)
        self._started_at, self._ready, self._arrived = clock(), False, 0
        self._ended: set[tuple[str, int | str]] = set()
        self._refused: set[str] = set()
        self._is_stop_wanted = self._has_told_of_stop = self._stopping = self._is_over = False
        self._is_blind = self._is_stuck = False
        # The cluster's end as this launcher has asked for it, and as a stop file that is there tells it.
        self._asked: dict[str, Any] = {}
        # Why nothing is seen of the cluster's progress, and since when.
        self._unseen: tuple[ClusterError, float] | None = None
        self._signalled_at = -_SAME_SIGNAL_S
        self._fetches = Fetches(backend, clock)
        self._ending = ""

    def _open_dir(self, patience_s: float | None = None) -> ClusterDir:
        plan, launch_id = self._plan, self._cluster.launch_id
        return ClusterDir(plan.url, launch_id, plan.launch_key, patience_s=patience_s, files=self._files)

    def run(self, merged: MergedLogs, copy: LogCopy) -> int:
        """Follow to every node's end, with logs; conclude; return the cluster's exit code."""
        nodes: Sequence[NodeState] = ()
        with contextlib.closing(copy):
            for nodes in self._looks():
                for node in nodes:
                    merged.add(node.node)
                self._fetches.fetch(copy)
                merged.copy_new()
                self._show_phase()
                self._show_ended(nodes)
            self._fetch_last_logs(copy, merged)
            merged.finish()
        return self.conclude(self._end(nodes))

    def until_ready(self) -> int | None:
        """Follow until the cluster is ready: None; or until its end: its exit code.

        Raise ClusterError where nobody may see whether it is ready.
        """
        nodes: Sequence[NodeState] = ()
        for nodes in self._looks():
            self._show_phase()
            if self._ready:
                return None
            if self._unseen is not None and self._clock() - self._unseen[1] > _REFUSED_S:
                raise self._unseen[0]
            self._show_ended(nodes)
        return self._end(nodes)

    def _looks(self) -> Iterator[list[NodeState]]:
        while True:
            self._handle_signals()
            if (nodes := self._poll()) is not None:
                yield nodes
                if not any_running(nodes):
                    return
                self._cancel_unneeded_nodes(nodes)
            self._signals.wait(self._backend.poll_s)

    def _end(self, nodes: Sequence[NodeState]) -> int:
        stop = self._read_stop(self._life.enter(self._open_dir()))
        code = cluster_code(nodes, stop)
        reason = code and reason_of(self._backend, self._plan, nodes, stop or {}, code)
        why = f" ({printable(reason, 1000)})" if reason else " (main lost)" if code == ExitCode.LOST else ""
        if code and (never := self._provisioning.never_started(nodes)):
            why += f"; never started: {never};"
        elif never := names_of([node.node for node in nodes if node.never_started]):
            why += f"; {never} had no place when the cluster ended;"
        self._ending = f"cluster {self._cluster.name} ended with {code}{why} after {self._seconds()}"
        return code

    def conclude(self, code: int) -> int:
        """Bring what the ended cluster leaves, and say so; return the exit code."""
        if (failure := self.finish()) is not None:
            self._say(f"error: {failure}")
            code = code or failure.exit_code
        outputs = outputs_of(self._cluster, self._plan)
        self._say(self._ending + (f"; outputs in {outputs}" if outputs else ""))
        return code

    def finish(self) -> ClusterError | None:
        """Bring what the cluster, which has ended, leaves; return why that failed."""
        finish = partial(self._backend.finish, self._cluster, self._say)
        return insist(finish, self._say, wait=self._signals.wait, clock=self._clock)

    def _poll(self) -> list[NodeState] | None:
        """Return the nodes' states; None when the backend does not answer."""
        try:
            nodes = self._backend.states([self._cluster])[self._cluster.launch_id]
        except ClusterError as error:
            if not self._is_blind:
                self._say(f"cannot look at {self._cluster.name}: {error}; trying again")
            self._is_blind = True
            return None
        if self._is_blind:
            self._say(f"{self._cluster.name} answers again")
        self._is_blind = False
        return nodes

    def _fetch_last_logs(self, copy: LogCopy, merged: MergedLogs) -> None:
        """Show what comes of the logs after the nodes have ended; Ctrl-C ends that."""
        if (problem := insist(copy.fetch, self._say, wait=self._signals.wait, clock=self._clock)) is not None:
            self._say(f"the last lines of the logs are missing: {problem}")
            return

        def pause() -> bool:
            merged.copy_new()
            if self._signals.received is None:
                self._signals.wait(self._backend.poll_s)
            return self._signals.received is None

        copy.drain(pause, self._say)
        self._signals.received = None

    def _cancel_unneeded_nodes(self, nodes: Sequence[NodeState]) -> None:
        """End what cannot begin, and what waits or is silent after the end."""
        self._provisioning.look(nodes)
        self._give_up_if_hopeless(nodes)
        has_main_ended = any(node.node == "MAIN" and not node.is_running for node in nodes)
        if self._stopping or self._is_over or has_main_ended:
            self._provisioning.end(nodes)
        elif self._ready and not self._is_stop_wanted:
            self._autoscaler.look(nodes)
        self._unresponsive.end(nodes)

    def _give_up_if_hopeless(self, nodes: Sequence[NodeState]) -> None:
        """Stop a cluster with missing nodes: the others would wait for TIMEOUT."""
        if self._stopping or self._is_over:
            return
        if reason := self._lost.why_hopeless(nodes):
            self._stop_hopeless(reason, ExitCode.LOST)
            return
        overdue = self._provisioning.overdue(nodes)
        if self._ready:
            self._provisioning.give_up(nodes, overdue)
            return
        failed = [node for node in nodes if node.never_started]
        if any(node.node == "MAIN" for node in self._provisioning.waiting(nodes)):
            failed += [node for node in nodes if node.exit_code is not None and not node.never_started]
        missing = {*overdue.nodes, *(node.node for node in failed)}
        if not missing:
            return
        if _can_do_without(missing, nodes, self._plan.limits.workers_to_begin):
            self._provisioning.give_up(nodes, overdue)
        elif failed:
            self._stop_hopeless(*self._why_hopeless(failed[0]))
        else:
            self._stop_hopeless(overdue.reason, ExitCode.TIMED_OUT)

    def _why_hopeless(self, node: NodeState) -> tuple[str, int]:
        if node.never_started:
            why = f"{node.node} could not be started" + (f": {node.details}" if node.details else "")
            return why, node.exit_code or ExitCode.UNAVAILABLE
        if node.exit_code == 0 and not self._life.has_begun:  # an agent waits for main
            return why_silent(self._plan, node.node), ExitCode.SETTINGS
        why = f"{node.node} ended before MAIN had started: {describe(node.exit_code or 0)}"
        return why, node.exit_code or ExitCode.UNAVAILABLE

    def _stop_hopeless(self, reason: str, code: int) -> None:
        self._say(f"{reason}; stopping the other nodes")
        try:
            self._request_stop(reason, code)
        except ClusterError as error:
            self._say(f"the cluster could not be asked to stop: {error}; trying again")

    def _request_stop(self, reason: str, code: int) -> None:
        why = request_stop(self._backend, self._cluster, self._plan, reason, code)
        if why is not None and self._files is not None:  # for a person to look at the disk
            self._say(f"{why}; the nodes are ended without it")
        self._stopping = True
        self._asked = {"reason": reason, "exit_code": int(code)}

    def _seconds(self) -> str:
        return f"{self._clock() - self._started_at:.1f} s"

    def _handle_signals(self) -> None:
        if self._signals.received is not None:
            self._signals.received = None
            if self._clock() - self._signalled_at >= _SAME_SIGNAL_S:
                self._signalled_at = self._clock()
                self._handle_signal()
        if self._is_stop_wanted:
            self._stop_as_wanted()

    def _handle_signal(self) -> None:
        if not self._is_stop_wanted and not self._stopping:
            self._is_stop_wanted = True
            self._say(f"stopping cluster {self._cluster.name}; Ctrl-C again ends it at once")
            return
        self._say("ending the cluster at once")
        try:
            states = self._backend.states([self._cluster])[self._cluster.launch_id]
            self._backend.end(self._cluster, [state.node for state in states if state.is_running], at_once=True)
            self._asked = _tell_killed(self._cluster_dir)
        except ClusterError as error:
            self._say(f"the cluster could not be ended: {error}; press Ctrl-C to try again")

    def _stop_as_wanted(self) -> None:
        """Ask the nodes to stop; where nobody answers, again with each look."""
        try:
            self._request_stop("stopped by the launcher (Ctrl-C or a signal)", ExitCode.STOPPED)
        except ClusterError as error:
            if not self._has_told_of_stop:
                self._say(f"the cluster could not be asked to stop: {error}; trying again")
            self._has_told_of_stop = True
        else:
            self._is_stop_wanted = False
        # Where storage was slow to take it, what a wrapper has passed on is seen only now.
        self._signalled_at = self._clock()

    def _show_phase(self) -> None:
        try:
            if number := self._life.begun():
                self._ready = self._is_over = False
                self._arrived = 0
                self._say(f"life {number} of {self._cluster.name} begins: its nodes were interrupted")
            if self._ready:
                return
            listing = self._cluster_dir.listing()
            ready = self._cluster_dir.read(READY) if READY in listing else None
        except ClusterError as error:
            # Only a line of progress; the nodes themselves say what is wrong with the work dir.
            if error.exit_code == ExitCode.NOT_PERMITTED and self._unseen is None:
                self._unseen = error, self._clock()
                self._say(f"cannot see how far {self._cluster.name} is: {error}")
            elif isinstance(error.__cause__, TimeoutError) and not self._is_stuck:  # for a person to look at the disk
                self._is_stuck = True
                self._say(f"cannot see how far {self._cluster.name} is: {error}; it goes on")
            return
        self._unseen, self._is_stuck = None, False
        self._show_refused()
        self._provisioning.note_files(listing)
        self._is_over = self._is_over or (STOP in listing and self._read_stop() is not None)
        others = self._plan.node_names[1:]
        arrived = sum(self._life.has_arrived(node, listing) for node in others)
        if ready is not None:
            self._ready = True
            told = facts_of(self._backend, self._cluster, self._plan, ready)
            facts = "; ".join(f"{name} {value}" for name, value in told.items())
            self._say(f"ready after {self._seconds()}" + (f"; {facts}" if facts else ""))
            self._on_ready()
        elif arrived != self._arrived and STOP not in listing:
            self._arrived = arrived
            self._say(f"{arrived} of {len(others)} workers arrived")

    def _show_refused(self) -> None:
        for name, why in self._cluster_dir.refused.items():
            if name not in self._refused:
                self._refused.add(name)
                self._say(f"{name} ignored: {why}")

    def _show_ended(self, nodes: Sequence[NodeState]) -> None:
        """Name each node that did not end as the cluster did."""
        new = [node for node in nodes if node.exit_code is not None and (node.node, node.id) not in self._ended]
        stop = self._read_stop() if new else None
        outcome = outcome_of(stop).exit_code if stop else 0
        for node in new:
            self._ended.add((node.node, node.id))
            if has_left(node, outcome):
                self._say(f"{node.node} has left")
                continue
            if node.exit_code != outcome or node.cause:
                why = (node.details or "it never started") if node.never_started else describe(node.exit_code or 0)
                self._say(f"{node.node} ended with {node.exit_code} ({node.cause or why})")

    def _read_stop(self, cluster_dir: ClusterDir | None = None) -> Mapping[str, Any] | None:
        try:
            stop = read_stop(cluster_dir or self._cluster_dir)
        except ClusterError:
            stop = None  # the backend has told how the nodes ended; this would only have said why
        self._show_refused()
        return self._asked if "at_once" in self._asked else stop or self._asked or None


def _tell_killed(cluster_dir: ClusterDir) -> dict[str, Any]:
    """Write, and return, the ``stop`` of a cluster whose nodes have been killed."""
    reason, code = "ended at once by the launcher (Ctrl-C twice)", int(ExitCode.STOPPED)
    stop = {"reason": reason, "exit_code": code, "at_once": True}
    with contextlib.suppress(ClusterError):  # then this launcher tells it, and nobody else
        cluster_dir.publish(STOP, **stop, time=now())
    return stop
