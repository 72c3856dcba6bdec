"""Lets a node live while it waits: heartbeats, obedience, a look at other nodes."""

from __future__ import annotations

import itertools
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.lives import read_stop
from oci_cluster.contract.names import STOP, exit_file, heartbeat_file
from oci_cluster.contract.outcome import Outcome, exit_fields, outcome_of
from oci_cluster.contract.settings.node import NodeSettings
from oci_cluster.contract.storage.retry import poll_delays
from oci_cluster.errors import (
    ClusterError,
    ExitCode,
    LifeInterruptedError,
    NotPermittedError,
    StoppedError,
    StorageError,
    TimedOutError,
)
from oci_cluster.system.process import Signals

if TYPE_CHECKING:
    from oci_cluster.node.logs.pump import LogPump
    from oci_cluster.node.logs.shipper import LogShipper
    from oci_cluster.node.script import Script

T = TypeVar("T")
log = logging.getLogger("agent")

# The phase of a node that was interrupted; of main, it tells the others to wait for another life.
INTERRUPTED = "interrupted"
# The phase of a worker whose start script has ended with 0: the cluster's end it does not know.
ENDED_WELL = "waiting"
# How soon storage is asked again that did not take a heartbeat, or did not show main's: a few in a row must fit into
# any HEARTBEAT_TIMEOUT.
_TRY_AGAIN_S = 1.0
# How soon main's heartbeat is read again where a word of main's is waited for.
_OFTEN_S = 0.5
# How much later than main a worker looks for `stop`, and the longest that this makes of POLL_CEILING. Chosen: with this
# and two requests each HEARTBEAT_INTERVAL, a worker at rest asks 0.25 times a second, and main 0.33 times.
_FEWER, _LOOK_AT_REST_S = 1.5, 6.0
# How long storage is asked to take the last lines of a log: longer than it may want to be left alone (`leave_alone`, by
# default), shorter than anybody waits for a node to end.
_LAST_LINES_S = 20.0
# Between two lines about outages that come and go.
_SAY_OUTAGE_S = 10.0


class NoAnswer:
    """Storage did not answer: neither yes nor no."""


NO_ANSWER: Final = NoAnswer()


class StorageHealth:
    """Times without answers of storage, logged once, and rarely if they repeat."""

    def __init__(self, clock: Callable[[], float], *, is_main: bool) -> None:
        """Begin with storage that answers; one that *is_main* may have yet to come."""
        self._clock = clock
        self._who = "main" if is_main else "storage"
        self._may_have_yet_to_come = is_main
        #: When it has answered last; None before it has.
        self.answered_at: float | None = None
        self._since = self._say_at = clock()
        self._is_said = False
        #: Storage's last error while it does not answer; None while it does.
        self.error: ClusterError | None = None

    @property
    def duration_s(self) -> float:
        """Seconds without an answer of storage; 0 if it answers."""
        return 0.0 if self.error is None else self._clock() - self._since

    def fail(self, error: ClusterError) -> None:
        """Take note of a request that failed."""
        if self.error is None:
            self._since = self._clock()
            # A full disk refuses writes and answers reads, in turns: once in a while is enough to say so.
            self._is_said = self._since >= self._say_at
            if self._is_said and self._may_have_yet_to_come:
                log.info("waiting for main: %s", error)
            elif self._is_said:
                log.warning("no answer: %s; trying again", error)
                self._say_at = self._since + _SAY_OUTAGE_S
        self.error = error

    def end(self) -> None:
        """Take note of an answer."""
        if self.error is not None and self._is_said:
            again = "" if self._may_have_yet_to_come else " again"
            log.info("%s answers%s after %.1f s", self._who, again, self.duration_s)
        self.error = None
        self.answered_at = self._clock()
        self._may_have_yet_to_come = False


class Schedule:
    """The moment when something is due: at an interval, sooner after a failed request."""

    def __init__(self, interval_s: float, *, first_s: float | None = None) -> None:
        """Begin with the interval; or with *first_s*, and more and more."""
        self._interval_s = interval_s
        self._delays: Iterator[float] = itertools.repeat(interval_s)
        if first_s is not None:
            self._delays = poll_delays(interval_s, first_s=first_s)
        self._answered = True
        #: When it is due.
        self.at = 0.0

    def done(self, moment: float, *, answered: bool = True) -> None:
        """Take note that it was done at *moment*, and whether storage *answered*."""
        if answered and not self._answered:
            self._delays = itertools.repeat(self._interval_s)
        elif self._answered and not answered:
            self._delays = poll_delays(self._interval_s, first_s=_TRY_AGAIN_S)
        self._answered = answered
        self.at = moment + next(self._delays)

    def often(self, moment: float, *, first_s: float = 0.2) -> None:
        """Make it due often from *moment* on, then less and less."""
        self._delays = poll_delays(self._interval_s, first_s=first_s)
        self.at = moment + next(self._delays)


class Role:
    """What main and workers do while they wait; :class:`NodeLoop` calls it."""

    #: When one of the other nodes would be lost, and is to be observed whatever the interval.
    suspect_at = math.inf

    def __init__(self, settings: NodeSettings, *, script: Script, loop: NodeLoop) -> None:
        self._settings = settings
        self._script = script
        self._loop = loop

    def told(self) -> Mapping[str, Any]:
        """Return what heartbeats tell besides phase and attempt."""
        return self._script.told()

    def observe(self) -> None:
        """Look at the other nodes; called every heartbeat interval."""

    def check(self) -> None:
        """Raise where a wait is in vain, as too few nodes are left."""

    def may_be_stopped(self) -> bool:
        """Return whether there may be a ``stop`` file, where that costs less than to read it."""
        return True

    def check_main(self) -> None:
        """Give up a silent main that has the files; called each turn."""


class NodeLoop:
    """The loop of one node: whoever waits for anything waits here."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        cluster_dir: ClusterDir,
        signals: Signals,
        log_shipper: LogShipper | None = None,
        log_pump: LogPump | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin the loop; *log_shipper* is for a cluster dir that gets logs."""
        self._settings = settings
        self._signals = signals
        self._log_shipper = log_shipper
        self._log_pump = log_pump
        self.cluster_dir = cluster_dir
        self.clock = clock
        self.wall_clock = wall_clock
        self.started_at = clock()
        self.storage_health = StorageHealth(clock, is_main=cluster_dir.is_at_main)
        #: For heartbeats: what this node does, and the attempt at the entry point that it takes part in.
        self.phase = "starting"
        self.attempt = 0
        #: True when the cluster dir has been made: from then on this node can report to the others.
        self.has_joined = False
        #: Set by the agent: main or a worker, whichever this node is.
        self.role: Role
        self._deadline = self.started_at + settings.timeout_s
        self._beat = 0
        self._beats = Schedule(settings.heartbeat_interval_s)
        self._observations = Schedule(settings.heartbeat_interval_s)
        ceiling_s = settings.poll_ceiling_s
        # Main, whose list shows what fails, too, looks more often than a worker, which looks for the end alone.
        rest_s = ceiling_s if settings.is_main else max(ceiling_s, min(_FEWER * ceiling_s, _LOOK_AT_REST_S))
        #: When the ``stop`` file is looked for.
        self.looks = Schedule(rest_s, first_s=self._young_s)
        # Until when storage wants to be left alone, and how many requests it has not answered.
        self._silent_until = self.started_at
        self._unanswered = 0
        self._warned: set[str] = set()
        #: The number of this node's life, for people; 1 if there is only one.
        self.life_number = 1

    # --- Time ----------------------------------------------------------------------------------------------

    @property
    def left_s(self) -> float:
        """The rest of ``TIMEOUT`` in seconds; below 0 when it is over."""
        return self._deadline - self.clock()

    @property
    def must_end(self) -> bool:
        """True after a signal or the TTL: nothing may hold this node up."""
        return self._signals.received is not None or 0 < self._settings.ttl_s <= self.clock() - self.started_at

    def restart_timeout(self) -> None:
        """Have ``TIMEOUT`` count from now on: each attempt has its own."""
        self._deadline = self.clock() + self._settings.timeout_s

    def wait(self, seconds: float) -> None:
        """Wait, for a signal at the longest."""
        self._signals.wait(seconds)

    def wait_until_due(self) -> None:
        """Wait until a heartbeat, a look at the others, or the log is due."""
        due = [self.looks.at, self._beats.at, self._observations.at, self.role.suspect_at]
        if self._log_shipper is not None and self.has_joined:
            due.append(self._log_shipper.look_at)
        # Storage that wants to be left alone would not be asked.
        self._signals.wait(max(min(due), self._silent_until) - self.clock())

    def wait_beating(self, seconds: float) -> None:
        """Wait for something of this node's own that may outlast ``HEARTBEAT_TIMEOUT``."""
        self._signals.wait(min(seconds, self._beats.at - self.clock()))
        if self.clock() >= self._beats.at:
            self.beat()

    def wait_for(self, what: str, poll: Callable[[], T | None], missing: Callable[[], Sequence[str]] = tuple) -> T:
        """Return what *poll* finds within ``TIMEOUT``; other *missing* nodes make it ask often.

        Raises what :meth:`raise_if_ended` does; TimedOutError, or StorageError, if it does not come in time.
        """
        # A work dir that is polled often costs little to poll: workers there have main's address 0.15 s sooner.
        delays, before = poll_delays(self._settings.poll_ceiling_s, first_s=self._young_s), missing()
        while True:
            found = self.ask(poll)
            if found and not isinstance(found, NoAnswer):
                return found
            if (left := missing()) != before:  # nodes come one after the other: the next is not far
                delays, before = poll_delays(self._settings.poll_ceiling_s, first_s=self._young_s), left
            self.raise_if_ended()
            self.run_due()
            self.role.check()
            if self.left_s <= 0:
                waited = f"{self._settings.node} waited {self._settings.timeout_s:g} s (TIMEOUT) for {what}"
                if (error := self.storage_health.error) is not None:
                    # A node that cannot reach main has waited for it in vain.
                    kind = TimedOutError if self.cluster_dir.is_at_main else StorageError
                    raise kind(f"{waited}: {error}")
                detail = (
                    f"missing: {', '.join(left)}" if left else self.cluster_dir.unusable.get(what, "did main start?")
                )
                raise TimedOutError(f"{waited} in {self.cluster_dir.url}; {detail}")
            self.wait(min(next(delays), self.left_s))

    @property
    def _young_s(self) -> float:
        return min(0.2, self._settings.poll_ceiling_s / 10)

    # --- Signs of life -------------------------------------------------------------------------------------

    def run_due(self) -> None:
        """Ship the log, publish heartbeats, and observe the other nodes, each when due."""
        if (log_shipper := self._log_shipper) is not None and self.has_joined and log_shipper.is_due():
            self.ask(lambda: log_shipper.ship(self.cluster_dir))
        if self.clock() >= self._beats.at:
            self.beat()
        if self.clock() >= min(self._observations.at, self.role.suspect_at):
            before = self._unanswered
            self.role.observe()
            self._observations.done(self.clock(), answered=self._unanswered == before)
        self.role.check_main()

    @property
    def main_silent_s(self) -> float:
        """Seconds since a main that has the files last answered; 0 elsewhere."""
        answered_at = self.storage_health.answered_at
        if not self.cluster_dir.is_at_main or self.storage_health.error is None or answered_at is None:
            return 0.0
        return self.clock() - answered_at

    def observe_often(self) -> None:
        """Call :meth:`Role.observe` often for a while: a word of others is awaited."""
        self._observations.often(self.clock(), first_s=_OFTEN_S)

    def beat(self) -> None:
        """Publish a heartbeat now."""
        began_at = self.clock()
        self._beat += 1
        taken = self.ask(
            lambda: self.cluster_dir.publish(
                heartbeat_file(self._settings.node),
                **{"beat": self._beat, "phase": self.phase, "attempt": self.attempt, **self.role.told()},
            )
        )
        self._beats.done(began_at, answered=not isinstance(taken, NoAnswer))

    def close_log(self) -> None:
        """Write and ship the last lines of this node's log; later lines are not."""
        if self._log_pump is not None:
            self._log_pump.finish()
        if (log_shipper := self._log_shipper) is not None:
            if self.has_joined:
                self._ship_last(log_shipper)
            log_shipper.close()

    def _ship_last(self, log_shipper: LogShipper) -> None:
        give_up_at = self.clock() + _LAST_LINES_S
        for delay in poll_delays(self._settings.poll_ceiling_s):
            shipped = self.ask(lambda: log_shipper.ship(self.cluster_dir))
            is_refused = isinstance(self.storage_health.error, NotPermittedError)
            if not isinstance(shipped, NoAnswer) or is_refused or self.clock() >= give_up_at:
                return
            self.wait(delay)

    # --- Obedience -----------------------------------------------------------------------------------------

    def raise_if_ended(self) -> None:
        """Raise what ends this node now.

        Raises:
            StoppedError: a signal, the ``stop`` file, the TTL of a kept cluster.
            LifeInterruptedError: TERM, where that ends this life alone.
            TimedOutError: the TTL, before the entry point has ended.
        """
        if (number := self._signals.received) is not None:
            self._end_by(number)
        if self.clock() >= self.looks.at:
            self.looks.done(self.clock())
            stop = self.ask(lambda: self._read_stop() if self.role.may_be_stopped() else None)
            if isinstance(stop, Outcome):
                raise StoppedError(stop.reason, exit_code=stop.exit_code)
        life_s = self.clock() - self.started_at
        if self._settings.is_main and 0 < self._settings.ttl_s <= life_s:
            msg = f"TTL of {self._settings.ttl_s:g} s reached"
            if self._settings.ephemeral:
                raise TimedOutError(f"{msg} before the entry point ended; launch with a longer --ttl")
            raise StoppedError(msg, exit_code=ExitCode.OK)

    def _end_by(self, number: int) -> None:
        node = self._settings.node
        if not self._settings.interruptible or number != signal.SIGTERM:
            raise StoppedError(f"{node} was told to stop by signal {number}")
        # `stop.sh` leaves the file first, and may send TERM as well.
        if isinstance(stop := self.ask(self._read_stop), Outcome):
            raise StoppedError(stop.reason, exit_code=stop.exit_code)
        raise LifeInterruptedError(f"interrupted: {node} was told to end by signal {number}")

    def _read_stop(self) -> Outcome | None:
        fields = read_stop(self.cluster_dir)
        if fields is None:
            if (why := self.cluster_dir.unusable.get(STOP, "")) and why not in self._warned:
                self._warned.add(why)
                log.warning("stop file ignored: %s", why)
            return None
        return outcome_of(fields)

    # --- Storage -------------------------------------------------------------------------------------------

    def ask(self, request: Callable[[], T]) -> T | NoAnswer:
        """Return storage's answer; NO_ANSWER in an outage, which is logged once.

        Storage that wants to be left alone is not asked. A refusal before the first start script raises
        NotPermittedError.
        """
        if self.clock() < self._silent_until:
            self._unanswered += 1
            return NO_ANSWER
        try:
            answer = request()
        except (StorageError, NotPermittedError) as error:
            if self.phase == "starting" and isinstance(error, NotPermittedError):
                raise
            self._unanswered += 1
            self.storage_health.fail(error)
            self.leave_alone(error)
            return NO_ANSWER
        self.storage_health.end()
        self._tell_refused()
        return answer

    def leave_alone(self, error: ClusterError) -> None:
        """Ask nothing for as long as *error* wants, one heartbeat interval at most."""
        wanted_s = error.retry_after_s if isinstance(error, StorageError) else 0.0
        if wanted_s > 0:
            self._silent_until = self.clock() + min(wanted_s, self._settings.heartbeat_interval_s)

    def _tell_refused(self) -> None:
        """Say once of each file that somebody else writes into the work dir."""
        for name, why in self.cluster_dir.refused.items():
            if name != STOP and f"{name}: {why}" not in self._warned:
                self._warned.add(f"{name}: {why}")
                log.warning("%s ignored: %s", name, why)

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the fields of the file *name*, if there is a usable one."""
        fields = self.ask(lambda: self.cluster_dir.read(name))
        return None if isinstance(fields, NoAnswer) else fields

    def publish(self, name: str, **fields: Any) -> int:
        """Publish the file *name*, waiting for storage to take it; return its counter."""
        return self.wait_for(f"storage to take {name}", lambda: self.cluster_dir.publish(name, **fields))

    def tell(self, name: str, **fields: Any) -> None:
        """Print the file *name* in this node's log too, for launchers that read only the log."""
        if self._settings.termination_log:
            from oci_cluster.node.termination_message import tell  # noqa: PLC0415 - where somebody wants to be told

            tell(self.cluster_dir, name, **fields)

    def publish_exit(self, outcome: Outcome, *, ended_at: float, has_left: bool) -> None:
        """Publish how this node, or its attempt, has ended; raise storage's errors."""
        fields = exit_fields(outcome, time=ended_at, attempt=self.attempt, has_left=has_left)
        self.cluster_dir.publish(exit_file(self._settings.node), **fields)

    def enter_life(self, life: str, number: int) -> None:
        """Count only files of *life* from now on, and show that to the others."""
        self.cluster_dir.enter_life(life)
        self.life_number = number
        log.info("life=%d", number)
        self.beat()
