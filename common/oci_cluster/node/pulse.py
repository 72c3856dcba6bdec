"""What a node does while it waits for anything: it shows that it is alive, obeys, and observes the other nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.names import STOP, exit_file, heartbeat_file
from oci_cluster.contract.outcome import Outcome, outcome_of
from oci_cluster.contract.polling import poll_delays
from oci_cluster.contract.settings import NodeSettings
from oci_cluster.errors import ClusterError, ExitCode, NotPermittedError, StoppedError, StorageError, TimedOutError
from oci_cluster.system.process import Signals
from oci_cluster.system.redaction import redact

if TYPE_CHECKING:
    from oci_cluster.node.own_log import OwnLog
    from oci_cluster.node.relay import Relay

T = TypeVar("T")
log = logging.getLogger("agent")

# Between two lines about outages that come and go.
_SAY_OUTAGE_S = 10.0


class NoAnswer:
    """Storage did not answer: neither yes nor no."""


NO_ANSWER: Final = NoAnswer()


class Outages:
    """Times in which storage does not answer: each is logged once, and those that come and go not every time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with a storage that answers."""
        self._clock = clock
        self._since = self._say_at = clock()
        self._is_said = False
        #: Storage's last words while it does not answer; None while it does.
        self.error: ClusterError | None = None

    @property
    def duration_s(self) -> float:
        """How long storage has not answered; 0 where it does."""
        return 0.0 if self.error is None else self._clock() - self._since

    def fail(self, error: ClusterError) -> None:
        """Take note of a request that failed."""
        if self.error is None:
            self._since = self._clock()
            # A full disk refuses writes and answers reads, in turns: once in a while is enough to say so.
            self._is_said = self._since >= self._say_at
            if self._is_said:
                log.warning("no answer: %s; trying again", error)
                self._say_at = self._since + _SAY_OUTAGE_S
        self.error = error

    def end(self) -> None:
        """Take note of an answer."""
        if self.error is not None and self._is_said:
            log.info("storage answers again after %.1f s", self.duration_s)
        self.error = None


class Pulse:
    """One node's life beside its work; whoever waits for anything waits here."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        cluster_dir: ClusterDir,
        signals: Signals,
        own_log: OwnLog | None,
        relay: Relay | None = None,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        """Begin a node's life; see :class:`~oci_cluster.node.agent.Agent` for the arguments."""
        self._settings = settings
        self._signals = signals
        self._own_log = own_log
        self._relay = relay
        self.cluster_dir = cluster_dir
        self.clock = clock
        self.wall_clock = wall_clock
        self.started_at = clock()
        self.outages = Outages(clock)
        #: What heartbeats tell: what this node is at, and which attempt at the entry point it takes part in.
        self.phase = "starting"
        self.attempt = 0
        #: Whether the cluster dir has been made: from then on this node can report to the others.
        self.has_joined = False
        #: Set by the node's role: what observes the other nodes after each heartbeat, and what ends a wait in vain.
        self.after_beat: Callable[[], None] = _do_nothing
        self.while_waiting: Callable[[], None] = _do_nothing
        self._deadline = self.started_at + settings.timeout_s
        self._beat = 0
        self._beat_at = 0.0
        self._warned: set[str] = set()

    # --- Time ----------------------------------------------------------------------------------------------

    @property
    def left_s(self) -> float:
        """What is left of ``TIMEOUT``; below 0 where it is over."""
        return self._deadline - self.clock()

    def restart_timeout(self) -> None:
        """Have ``TIMEOUT`` count from now on: each attempt has its own."""
        self._deadline = self.clock() + self._settings.timeout_s

    def wait(self, seconds: float) -> None:
        """Wait, for a signal at the longest."""
        self._signals.wait(seconds)

    def wait_until_beat(self, seconds: float) -> None:
        """Wait, until the next heartbeat is due at the longest."""
        self._signals.wait(min(seconds, self._beat_at - self.clock()))

    def wait_beating(self, seconds: float) -> None:
        """Wait for something of this node's own that may outlast ``HEARTBEAT_TIMEOUT``."""
        self.wait_until_beat(seconds)
        if self.clock() >= self._beat_at:
            self.beat()

    def wait_for(self, what: str, poll: Callable[[], T | None], explain: Callable[[], str] = lambda: "") -> T:
        """Return what *poll* finds, polling until ``TIMEOUT`` is over; *explain* says what is missing then.

        Raises:
            StoppedError, TimedOutError: see :meth:`obey`.
            TimedOutError, StorageError: it did not come in time.
        """
        # A work dir that is polled often costs little to poll: workers there have main's address 0.15 s sooner.
        ceiling_s = self._settings.poll_ceiling_s
        for delay in poll_delays(ceiling_s, first_s=min(0.2, ceiling_s / 10)):
            found = self.ask(poll)
            if found and not isinstance(found, NoAnswer):
                return found
            self.obey()
            self.live()
            self.while_waiting()
            if self.left_s <= 0:
                waited = f"{self._settings.node} waited {self._settings.timeout_s:g} s (TIMEOUT) for {what}"
                if self.outages.error is not None:
                    raise StorageError(f"{waited}: {self.outages.error}")
                detail = explain() or self.cluster_dir.unusable.get(what, "did main start?")
                raise TimedOutError(f"{waited} in {self.cluster_dir.url}; {detail}")
            self.wait(min(delay, self.left_s))
        raise AssertionError  # poll_delays never ends

    # --- Signs of life -------------------------------------------------------------------------------------

    def live(self) -> None:
        """Ship the log; every ``HEARTBEAT_INTERVAL`` show that this node is alive, and see whether the others are."""
        if (own_log := self._own_log) is not None and self.has_joined and own_log.is_due():
            self.ask(lambda: own_log.ship(self.cluster_dir))
        if self.clock() >= self._beat_at:
            self.beat()
            self.after_beat()

    def beat(self) -> None:
        """Publish a heartbeat now."""
        self._beat_at = self.clock() + self._settings.heartbeat_interval_s
        self._beat += 1
        self.ask(
            lambda: self.cluster_dir.publish(
                heartbeat_file(self._settings.node), beat=self._beat, phase=self.phase, attempt=self.attempt
            )
        )

    def close_log(self) -> None:
        """Write the last lines of this node's log, and ship them. What it prints from here on is not shipped."""
        if self._relay is not None:
            self._relay.finish()
        if (own_log := self._own_log) is not None:
            if self.has_joined:
                self.ask(lambda: own_log.ship(self.cluster_dir))
            own_log.close()

    # --- Obedience -----------------------------------------------------------------------------------------

    def obey(self) -> None:
        """Raise what ends this node now.

        Raises:
            StoppedError: a signal, the ``stop`` file, the TTL of a kept cluster.
            TimedOutError: the TTL, before the entry point has ended.
        """
        if self._signals.received is not None:
            raise StoppedError(f"{self._settings.node} was told to stop by signal {self._signals.received}")
        stop = self.ask(lambda: self.cluster_dir.is_there(STOP) and self._read_stop())
        if isinstance(stop, Outcome):
            raise StoppedError(stop.reason, exit_code=stop.exit_code)
        life_s = self.clock() - self.started_at
        if self._settings.is_main and 0 < self._settings.ttl_s <= life_s:
            msg = f"TTL of {self._settings.ttl_s:g} s reached"
            if self._settings.ephemeral:
                raise TimedOutError(f"{msg} before the entry point ended; launch with a longer --ttl")
            raise StoppedError(msg, exit_code=ExitCode.OK)

    def _read_stop(self) -> Outcome | None:
        fields = self.cluster_dir.read(STOP)
        if fields is None:
            if (why := self.cluster_dir.unusable.get(STOP, "")) and why not in self._warned:
                self._warned.add(why)
                log.warning("stop file ignored: %s", why)
            return None
        return outcome_of(fields)

    # --- Storage -------------------------------------------------------------------------------------------

    def ask(self, request: Callable[[], T]) -> T | NoAnswer:
        """Return storage's answer; NO_ANSWER when it gave none, which is logged once and counted as an outage.

        Raises:
            NotPermittedError: storage refuses already before the first start script has run.
        """
        try:
            answer = request()
        except (StorageError, NotPermittedError) as error:
            if self.phase == "starting" and isinstance(error, NotPermittedError):
                raise
            self.outages.fail(error)
            return NO_ANSWER
        self.outages.end()
        self._tell_refused()
        return answer

    def _tell_refused(self) -> None:
        """Say once of each file that somebody else writes into the work dir."""
        for name, why in self.cluster_dir.refused.items():
            if name != STOP and f"{name}: {why}" not in self._warned:
                self._warned.add(f"{name}: {why}")
                log.warning("%s ignored: %s", name, why)

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the fields of the file *name*; None where there is nothing to use, or no answer."""
        fields = self.ask(lambda: self.cluster_dir.read(name))
        return None if isinstance(fields, NoAnswer) else fields

    def publish(self, name: str, **fields: Any) -> int:
        """Publish the file *name*, waiting for storage to take it; return its counter."""
        return self.wait_for(f"storage to take {name}", lambda: self.cluster_dir.publish(name, **fields))

    def publish_exit(self, outcome: Outcome, *, time: float, has_left: bool) -> None:
        """Publish how this node, or its attempt, has ended, once, and raise what storage raises."""
        self.cluster_dir.publish(
            exit_file(self._settings.node),
            exit_code=outcome.exit_code,
            reason=redact(outcome.reason),
            attempt=self.attempt,
            time=time,
            has_left=has_left,
        )


def _do_nothing() -> None:
    """Stand where no role has set anything yet."""
