"""What a person sees of a cluster: its nodes' logs as one, a line for each phase, and the exit code in the end."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from oci_cluster.clusters import Cluster
from oci_cluster.errors import ClusterError, ExitCode
from oci_cluster.exchange import READY, STOP, Exchange, config_file, now, poll_delays, printable
from oci_cluster.liveness import outcome_of
from oci_cluster.process import Signals, describe

# Between two looks at logs and records of this machine: short enough to feel live, long enough to cost nothing.
_LOOK_S = 0.1
# How often the last lines are asked for where storage does not answer: 20 s in all.
_LAST_LOOKS = 8
# Ctrl-C reaches the follower twice, from the terminal and from launch.sh; only a later one is a second.
_SAME_SIGNAL_S = 1.0
# A line without an end is shown after so many characters, so that a progress bar cannot grow without bound.
_MOST_CHARACTERS = 8192
_COLOURS = (
    36,
    32,
    33,
    35,
    34,
)  # cyan, green, yellow, magenta, blue; the same node has the same one in every run


class MergedLogs:
    """The logs of all nodes, each line with its node's name before it."""

    def __init__(self, directory: Path, nodes: Sequence[str], out: TextIO, *, colour: bool = False) -> None:
        """Merge ``<node>.log`` in *directory* for each of *nodes* into *out*."""
        self._directory = directory
        self._out = out
        self._colour = colour
        self._width = 0
        self._files: dict[str, Path] = {}
        self._offsets: dict[str, int] = {}
        self._rests: dict[str, str] = {}
        # Incremental: a look may come in the middle of a letter of several bytes.
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._colours: dict[str, int] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: str) -> None:
        """Merge the log of *node* too, from its beginning; one that is merged already stays as it is."""
        if node in self._files:
            return
        self._width = max(self._width, len(node))
        if self._colour:
            self._colours[node] = _COLOURS[len(self._files) % len(_COLOURS)]
        self._files[node] = self._directory / f"{node}.log"
        self._offsets[node] = 0
        self._rests[node] = ""
        self._decoders[node] = codecs.getincrementaldecoder("utf-8")("replace")

    def copy_new(self) -> None:
        """Write the whole lines that the nodes have printed since the last call."""
        for node, path in self._files.items():
            try:
                with path.open("rb") as file:
                    file.seek(self._offsets[node])
                    new = file.read()
            except FileNotFoundError:
                continue
            if not new:
                continue
            self._offsets[node] += len(new)
            # A carriage return redraws a line on a terminal; in a merged log the last drawing is the line.
            lines = (self._rests[node] + self._decoders[node].decode(new)).split("\n")
            self._rests[node] = lines.pop()
            for line in lines:
                self._write(node, line)
            if len(self._rests[node]) > _MOST_CHARACTERS:
                self._write(node, self._rests[node])
                self._rests[node] = ""
        self._out.flush()

    def finish(self) -> None:
        """Write what is left, also lines that were never ended."""
        self.copy_new()
        for node, rest in self._rests.items():
            if rest:
                self._write(node, rest)
        self._rests = dict.fromkeys(self._rests, "")
        self._out.flush()

    def _write(self, node: str, line: str) -> None:
        prefix = f"{node:<{self._width}} |"
        if node in self._colours:
            prefix = f"\033[{self._colours[node]}m{prefix}\033[0m"
        shown = line.rstrip("\r").rpartition("\r")[2]
        self._out.write(f"{prefix} {shown}\n" if shown else f"{prefix}\n")


def cluster_code(nodes: Sequence[Mapping[str, Any]], stop: Mapping[str, Any] | None) -> int:
    """Return the cluster's exit code: main's, or 76 when main was killed or is not known to have ended.

    Args:
        nodes: The backend's word on each node.
        stop: The ``stop`` file. A main whose *entry point* was killed says so there; one that was killed itself cannot.
    """
    code = next((node["exit_code"] for node in nodes if node["node"] == "MAIN"), None)
    if code is None:
        return ExitCode.LOST
    was_killed = code > 128 and code != ExitCode.STOPPED  # 128 + the signal, as shells have it
    if was_killed and (stop is None or stop.get("exit_code") != code):
        return ExitCode.LOST
    return int(code)


def facts_of(ready: Mapping[str, Any]) -> dict[str, str]:
    """Return main's facts out of the fields of ``MAIN_ready.json``, fit for a terminal."""
    facts = ready.get("facts")
    return {printable(name): printable(value) for name, value in facts.items()} if isinstance(facts, dict) else {}


class Follower:
    """Follows one cluster to its end."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        state: Callable[[Cluster], Mapping[str, Any]],
        terminate: Callable[[Cluster], None],
        kill: Callable[[Cluster], None],
        logs: MergedLogs,
        say: Callable[[str], None],
        signals: Signals,
        fetch_logs: Callable[[], object] = lambda: None,
        least_workers: int = 0,
        look_s: float = _LOOK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to follow *cluster*.

        Args:
            cluster: What was launched.
            state: The backend's word on its nodes.
            terminate: Has the backend end the nodes in order.
            kill: Has it end them at once.
            logs: The nodes' logs.
            say: Shows a line of progress.
            signals: Ctrl-C and TERM.
            fetch_logs: Brings the nodes' logs to where *logs* looks, where they are elsewhere.
            least_workers: Without so many the cluster cannot begin: it is stopped as soon as too many have not started.
            look_s: Seconds between two looks at what the backend says.
            clock: Monotonic seconds.
        """
        self._cluster = cluster
        self._fetch_logs = fetch_logs
        self._least_workers = least_workers
        self._look_s = look_s
        self._state = state
        self._terminate = terminate
        self._kill = kill
        self._logs = logs
        self._say = say
        self._signals = signals
        self._clock = clock
        self._exchange = Exchange(cluster.url, cluster.launch_id)
        self._started_at = clock()
        self._ready = False
        self._arrived = 0
        self._ended: set[tuple[str, int | str | None]] = set()
        self._stopping = False
        self._is_blind = False
        self._told_at = -_SAME_SIGNAL_S

    def run(self) -> int:
        """Follow until every node has ended; return the cluster's exit code."""
        while True:
            self._obey()
            state = self._look()
            if state is None:
                self._signals.wait(self._look_s)
                continue
            for node in state["nodes"]:
                self._logs.add(node["node"])
            with contextlib.suppress(ClusterError):  # the next look brings what this one could not
                self._fetch_logs()
            self._logs.copy_new()
            self._show_phase()
            self._show_ended(state["nodes"])
            if not state["running"]:
                break
            self._give_up_if_hopeless(state["nodes"])
            self._signals.wait(self._look_s)
        self._fetch_last_logs()
        self._logs.finish()
        if any(node["state"] == "IN_PROGRESS" for node in state["nodes"]):
            self._kill(self._cluster)  # runner and agents were killed: whatever they left
        stop = self._read_stop()
        code = cluster_code(state["nodes"], stop)
        why = f" ({outcome_of(stop).reason})" if code and stop else " (main lost)" if code == ExitCode.LOST else ""
        self._say(f"cluster {self._cluster.name} ended with {code}{why} after {self._seconds()}")
        return code

    def _look(self) -> Mapping[str, Any] | None:
        """Return the backend's word on the nodes; None where it gives none, which is no word on them."""
        try:
            state = self._state(self._cluster)
        except ClusterError as error:
            if not self._is_blind:
                self._say(f"cannot look at {self._cluster.name}: {error}; trying again")
            self._is_blind = True
            return None
        if self._is_blind:
            self._say(f"{self._cluster.name} is seen again")
        self._is_blind = False
        return state

    def _fetch_last_logs(self) -> None:
        problem = ""
        for delay in itertools.islice(poll_delays(5.0, first_s=0.5), _LAST_LOOKS):
            try:
                self._fetch_logs()
            except ClusterError as error:
                problem = str(error)
                self._signals.wait(delay)
            else:
                return
        self._say(f"the last lines of the logs are missing: {problem}")

    def _give_up_if_hopeless(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Stop a cluster that lacks nodes which the backend could not start: the others would wait for TIMEOUT."""
        if self._ready or self._stopping:
            return
        failed = [node for node in nodes if node.get("never_started")]
        left = sum(node["node"].startswith("WORKER") for node in nodes) - sum(
            node["node"].startswith("WORKER") for node in failed
        )
        needed = [node for node in failed if not node["node"].startswith("WORKER")]  # main, and parameter servers
        if not failed or (left >= self._least_workers and not needed):
            return
        self._stopping = True
        reason = f"{failed[0]['node']} could not be started: {failed[0]['details']}"
        self._say(f"{reason}; stopping the other nodes")
        request_stop(self._exchange, self._terminate, self._cluster, reason, failed[0]["exit_code"])

    def _seconds(self) -> str:
        return f"{self._clock() - self._started_at:.1f} s"

    def _obey(self) -> None:
        if self._signals.received is None:
            return
        self._signals.received = None
        if self._clock() - self._told_at < _SAME_SIGNAL_S:
            return
        self._told_at = self._clock()
        if self._stopping:
            self._say("ending it at once")
            try:
                self._kill(self._cluster)
            except ClusterError as error:
                self._say(f"it could not be ended: {error}; Ctrl-C tries again")
            return
        self._stopping = True
        self._say(f"stopping cluster {self._cluster.name}; Ctrl-C again ends it at once")
        try:
            request_stop(self._exchange, self._terminate, self._cluster, "stopped by the launcher (Ctrl-C or a signal)")
        except ClusterError as error:
            self._stopping = False
            self._say(f"it could not be told: {error}; Ctrl-C tries again")

    def _show_phase(self) -> None:
        if self._ready:
            return
        try:
            ready = self._exchange.read(READY)
            there = self._exchange.listing()
        except ClusterError:
            return  # only a line of progress; the nodes themselves say what is wrong with the work dir
        total = len(self._cluster.plan["nodes"]) - 1
        arrived = sum(config_file(node["node"]) in there for node in self._cluster.plan["nodes"][1:])
        if ready is not None:
            self._ready = True
            facts = "; ".join(f"{name} {value}" for name, value in facts_of(ready).items())
            self._say(f"ready after {self._seconds()}" + (f"; {facts}" if facts else ""))
        elif arrived != self._arrived and STOP not in there:
            self._arrived = arrived
            self._say(f"{arrived} of {total} workers arrived")

    def _show_ended(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Name each node that did not end as the cluster did."""
        new = [node for node in nodes if node["exit_code"] is not None and _run_of(node) not in self._ended]
        stop = self._read_stop() if new else None
        outcome = outcome_of(stop).exit_code if stop else 0
        for node in new:
            self._ended.add(_run_of(node))
            if node["exit_code"] != outcome or node.get("cause"):
                why = node["details"] if node.get("never_started") else describe(node["exit_code"])
                why = node.get("cause") or why
                self._say(f"{node['node']} ended with {node['exit_code']} ({why})")

    def _read_stop(self) -> Mapping[str, Any] | None:
        try:
            return self._exchange.read(STOP)
        except ClusterError:
            return None  # the backend has told how the nodes ended; this would only have said why


def _run_of(node: Mapping[str, Any]) -> tuple[str, int | str | None]:
    """Return what tells a node from its replacement, which has its name."""
    return node["node"], node.get("pid") or node.get("ocid")


def show_logs(
    logs: MergedLogs,
    is_running: Callable[[], bool],
    signals: Signals,
    *,
    fetch: Callable[[], object] = lambda: None,
    look_s: float = _LOOK_S,
) -> None:
    """Show *logs*, and what is added for as long as *is_running* says; Ctrl-C ends the showing, not the cluster.

    *fetch* brings them to where *logs* looks, every *look_s* seconds.
    """
    while is_running() and signals.received is None:
        fetch()
        logs.copy_new()
        signals.wait(look_s)
    fetch()
    logs.finish()


def request_stop(
    exchange: Exchange,
    terminate: Callable[[Cluster], None],
    cluster: Cluster,
    reason: str,
    exit_code: int = ExitCode.STOPPED,
) -> None:
    """Ask the nodes of *cluster* to stop: by the ``stop`` file, or where that cannot be written by the backend."""
    try:
        if exchange.read(STOP) is None:
            exchange.publish(STOP, reason=reason, exit_code=int(exit_code), time=now())
    except ClusterError:
        terminate(cluster)


def is_terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether colour is wanted on *stream*: a terminal, and no ``NO_COLOR`` (no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR")


def say_to_stderr(program: str) -> Callable[[str], None]:
    """Return a function that shows a line of talk under *program*'s name."""

    def say(text: str) -> None:
        sys.stderr.write(f"{program}: {text}\n")
        sys.stderr.flush()

    return say
