"""Main: publishes what all nodes need, watches the others, and decides what failures mean."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oci_cluster.contract.files.lives import read_stop
from oci_cluster.contract.first_cause import first_cause, may_be_a_consequence
from oci_cluster.contract.names import (
    CERTIFICATE,
    LIFE,
    READY,
    SCALE_REQUEST,
    STOP,
    config_file,
    exit_file,
    heartbeat_file,
)
from oci_cluster.contract.outcome import Outcome, stop_fields
from oci_cluster.contract.settings.node import NodeSettings
from oci_cluster.contract.storage.retry import poll_delays
from oci_cluster.errors import ExitCode, LostError, NotPermittedError, SettingsError, StorageError, TimedOutError
from oci_cluster.node.failure_detector import Failure, NodesWatch, Restart, by_role_and_rank
from oci_cluster.node.loop import ENDED_WELL, NoAnswer, NodeLoop, Role
from oci_cluster.node.script import Script, checked_address
from oci_cluster.system.redaction import redact

if TYPE_CHECKING:
    from oci_cluster.contract.files.cluster_dir import ClusterDir
    from oci_cluster.node.begin.life import LedLife
    from oci_cluster.node.scale_request import ScaleRequest

log = logging.getLogger("agent")

# How long main waits at least for what other nodes report of a failure: launchers of ranks end within a second of it,
# and storage takes some tenths to show it.
_MIN_PATIENCE_S = 3.0
# How often main looks for these reports at least: workers write them at once.
_PATIENT_POLL_S = 0.5
# A node that hangs never reports. A healthy one does, but where machines are busy and time-outs of a framework run from
# different moments, later than others: 17 s after an attempt of 33 s has been seen. What slows its report
# has slowed the attempt, so it may take as long as that did; an attempt of hours is worth a minute more.
_MAX_PATIENCE_S = 60.0
# Of how many nodes that have not failed main asks what they are at.
_MAX_ASKED = 16
# How soon, and how often at least, a main that stands still asks whether the others do, a request each. Workers compute
# for hours while main waits for them.
_ASK_S, _ASK_CEILING_S = 5.0, 300.0


class Main(Role):
    """The node that leads the cluster."""

    def __init__(self, settings: NodeSettings, *, script: Script, loop: NodeLoop) -> None:
        super().__init__(settings, script=script, loop=loop)
        self._nodes = self._watch()
        self._life: LedLife | None = None
        self._scale_request: ScaleRequest | None = None
        if settings.interruptible:
            from oci_cluster.node.begin.life import LedLife  # noqa: PLC0415 - where a launch can have more than one

            self._life = LedLife(loop)
        if settings.adapt:
            from oci_cluster.node.scale_request import ScaleRequest  # noqa: PLC0415 - where a cluster adapts

            self._scale_request = ScaleRequest(settings, settings.adapt, loop, script.node_dir / "scale-request")
        self._has_to_begin_life = False
        # Frameworks whose start scripts know the other nodes; with those that do not, main reads no configurations.
        self._reads_configs = settings.wait_for_addresses or script.has_facts
        self._configs: dict[str, dict[str, Any]] = {}
        self._unread: set[str] = set()
        # Nodes that have come since the attempt began, and those that it began with.
        self._newcomers: list[str] = []
        self._participants: frozenset[str] = frozenset()
        self._failure: Failure | None = None
        self._restarts = 0
        self._is_ready = False
        # When the others are asked whether all stands still with them, too; less and less often while it does not.
        self._ask_at, self._asks = 0.0, poll_delays(_ASK_CEILING_S, first_s=_ASK_S)
        # Elsewhere a list is one request, and tells of the stop file as well; on this machine a look at a file is less.
        # So does it where nodes wait for main's answer.
        self._lists_always = loop.cluster_dir.local_path is None or settings.interruptible
        self._listing: Mapping[str, str] = {}

    def _watch(self) -> NodesWatch:
        return NodesWatch(self._settings, self._loop.cluster_dir.unusable, self._loop.wall_clock)

    # --- Start ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin the next life of the launch, where there can be more than one."""
        if self._life is not None:
            self._life.begin()
            self._loop.tell(LIFE, number=self._life.number)

    def join(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Publish what the other nodes need of main for this attempt, and return it."""
        settings, loop = self._settings, self._loop
        if is_another_life := self._has_to_begin_life:
            self.begin()
            self._has_to_begin_life = False
        config: dict[str, Any] = {**own, "tls": settings.cluster_tls, "attempt": loop.attempt}
        if settings.wait_for_addresses:
            config["nodes"] = self._wait_for_addresses()
            # The nodes' configurations that this one answers: none of an earlier attempt.
            config["answers"] = {node: self._configs[node]["counter"] for node in config["nodes"]}
            self._participants = frozenset(config["nodes"])
        if settings.cluster_tls and (loop.attempt == 0 or is_another_life):
            from oci_cluster.contract.files.certificate import encrypted, make_certificate  # noqa: PLC0415 - where it is asked for

            certificate, key = make_certificate(settings.cluster_name, wall_clock=loop.wall_clock)
            self._script.hand_certificate(certificate, key)
            passphrase = loop.cluster_dir.key_for("certificate").hex().encode()
            loop.publish(CERTIFICATE, certificate=certificate, key=encrypted(key, passphrase))
        loop.publish(config_file("MAIN"), **config)
        self._script.nodes_dir.put("MAIN", config)
        return config

    def _wait_for_addresses(self) -> dict[str, str]:
        """Return the other nodes' addresses, by name, when all have joined this attempt."""
        attempt = self._loop.attempt

        def missing() -> list[str]:
            present = {node for node, config in self._configs.items() if config.get("attempt", 0) == attempt}
            return [node for node in (*self._nodes.members, *self._nodes.awaited) if node not in present]

        def poll() -> bool:
            listing = self._look()
            if self._lists_always:
                self._loop.looks.done(self._loop.clock())
                if STOP in listing:
                    self._loop.looks.at = self._loop.clock()
            self._nodes.check()
            return not missing()

        self._loop.wait_for("the other nodes", poll, missing)
        self._newcomers.clear()
        return {node: checked_address(self._configs[node], node) for node in self._nodes.members}

    # --- The other nodes -----------------------------------------------------------------------------------

    def _look(self) -> Mapping[str, str]:
        try:
            self._listing = self._loop.cluster_dir.listing()
        except (StorageError, NotPermittedError):
            self._nodes.count_outage(self._loop.clock())
            self.suspect_at = self._nodes.suspect_at
            raise
        if self._life is None or self._life.number:  # else all that is there is of an earlier life
            self._take_note(self._listing)
        self.suspect_at = self._nodes.suspect_at
        return self._listing

    def check(self) -> None:
        """Raise where too few nodes are left."""
        self._nodes.check()

    def may_be_stopped(self) -> bool:
        """Return whether a list, which is a look at all nodes too, has a ``stop`` file."""
        return not self._lists_always or STOP in self._look()

    def observe(self) -> None:
        """List the cluster dir, unless each look does; prove one heartbeat."""
        is_suspect = self._loop.clock() >= self.suspect_at
        if (is_suspect or not self._lists_always) and isinstance(self._loop.ask(self._look), NoAnswer):
            return
        self._nodes.prove_one(self._listing, self._loop.clock(), self._loop.read)

    def _take_note(self, listing: Mapping[str, str]) -> None:
        if self._life is not None:
            self._life.note(listing)
        joined = self._nodes.observe(listing, self._loop.clock(), self._loop.read)
        self._script.hand_members(self._nodes.members)
        if not self._reads_configs:
            return
        self._unread |= set(joined)
        for node in sorted(self._unread):
            config = self._loop.read(config_file(node))
            if config is not None:
                self._unread.discard(node)
                self._configs[node] = config
                self._script.nodes_dir.put(node, config)
        self._newcomers += [node for node in joined if node not in self._newcomers]
        for node in self._configs.keys() - set(self._nodes.members):
            del self._configs[node]
            self._script.nodes_dir.remove(node)

    # --- Supervision ---------------------------------------------------------------------------------------

    def ended(self, code: int) -> Outcome | None:
        """Return the outcome of a success; :meth:`poll` judges a failure with others."""
        if code == 0:
            return self._outcome(code)
        self._failure = self._own_failure(code)
        return None

    def poll(self) -> Outcome | Restart | None:
        """Return what failures and newcomers mean, if anything; publish when the cluster is ready."""
        settings, nodes = self._settings, self._nodes
        shortage: LostError | None = None
        try:
            nodes.check()
        except LostError as error:
            shortage = error
        # A node that was lost before the attempt began has no part in it.
        has_failed = settings.gang and any(
            failure.attempt == self._loop.attempt and node in self._participants
            for node, failure in nodes.failures.items()
        )
        if self._failure or shortage or has_failed:
            return self._judge(shortage)
        if settings.gang and self._newcomers:
            return Restart(f"{', '.join(self._newcomers)} joined", is_failure=False)
        self._poll_ready()
        self._poll_standstill()
        if (
            self._scale_request is not None
            and self._is_ready
            and (request := self._scale_request.look(nodes.members)) is not None
        ):
            self._loop.tell(SCALE_REQUEST, **request)
        return None

    def _judge(self, shortage: LostError | None) -> Outcome | Restart:
        """Return what one or several failures mean; *shortage* where too few nodes are left."""
        settings = self._settings
        if self._life is not None and (node := self._interrupted()):
            # The nodes that are left start again with it, or all in another life.
            is_short = not settings.gang or shortage is not None
            return Restart(f"{node} was interrupted", is_failure=False, begins_life=is_short)
        if not settings.entry_on_all:
            if self._failure is None:
                raise shortage or AssertionError
            return self._failure.outcome()
        outcome = self._first_cause()
        # A node that was taken away on purpose has not failed.
        is_failure = outcome.exit_code != ExitCode.STOPPED or outcome.is_unasked
        if settings.gang and not shortage and (self._restarts < settings.max_restarts or not is_failure):
            return Restart(outcome.reason, is_failure)
        return outcome

    def _interrupted(self) -> str:
        """Return the interrupted node that a failure comes from; wait for others' reports."""
        # Nobody knows which node gets TERM first: the others soon tell, or this node gets it, too.
        loop = self._loop
        until = loop.clock() + _MIN_PATIENCE_S
        interrupted = self._nodes.interrupted
        while not (found := [node for node, at in interrupted.items() if at >= loop.clock() - _MAX_PATIENCE_S]):
            if (left_s := until - loop.clock()) <= 0:
                return ""
            loop.raise_if_ended()
            loop.wait_beating(min(_PATIENT_POLL_S, left_s))
            loop.ask(self._look)
        return found[0]

    def _first_cause(self) -> Outcome:
        """Return the outcome of the first cause, after waiting for other nodes' reports."""
        nodes, loop = self._nodes, self._loop
        noticed_at = loop.clock()
        delays = poll_delays(min(self._settings.poll_ceiling_s, _PATIENT_POLL_S))
        ran_s = noticed_at - self._script.started_at
        patience_s = min(max(_MIN_PATIENCE_S, ran_s), _MAX_PATIENCE_S)
        recent = noticed_at - self._settings.heartbeat_interval_s - _MIN_PATIENCE_S
        ended_well: set[str] = set()
        while True:
            if self._failure is None and (code := self._script.exit_code):
                self._failure = self._own_failure(code)
            all_failures = [*nodes.failures.values(), *([self._failure] if self._failure else [])]
            failures = [failure for failure in all_failures if failure.noticed_at >= recent] or all_failures
            reported = {failure.node for failure in failures if failure.exit_code != ExitCode.LOST}
            # Parameter servers have no end of their own: they neither follow the others nor hang.
            others = [node for node in nodes.members if not node.startswith("PS")]
            unreported = [node for node in ("MAIN", *others) if node not in reported | ended_well]
            is_clear = any(not may_be_a_consequence(failure) for failure in failures)
            waited_s = loop.clock() - noticed_at
            if is_clear or not unreported or waited_s >= patience_s:
                break
            loop.raise_if_ended()
            loop.wait_beating(min(next(delays), patience_s - waited_s))
            loop.ask(self._look)
            if STOP in self._listing:
                loop.looks.at = loop.clock()
            ended_well |= self._ended_well(unreported)
        cause = first_cause(failures)
        reason = cause.reason if cause is self._failure else cause.told(" failed first")
        if unreported and not is_clear:
            names = ", ".join(unreported)
            reason += f"; {names} had not failed {patience_s:.0f} s later, which is what a hang looks like"
        elif ended_well and not is_clear:
            names = ", ".join(sorted(ended_well, key=by_role_and_rank))
            reason += f"; {names} had ended with 0: the script left there while {cause.node} waited for it"
        return cause.outcome(reason)

    def _ended_well(self, nodes: Sequence[str]) -> set[str]:
        """Return those of a few *nodes* whose entry point has ended with 0."""
        asked = [node for node in nodes if node != "MAIN"] if len(nodes) <= _MAX_ASKED else []
        beats = {node: self._loop.read(heartbeat_file(node)) or {} for node in asked}
        ended = {"phase": ENDED_WELL, "attempt": self._loop.attempt}.items()
        return {node for node, beat in beats.items() if ended <= beat.items()}

    def _own_failure(self, code: int) -> Failure:
        return Failure.of("MAIN", self._outcome(code), time=self._loop.wall_clock(), noticed_at=self._loop.clock())

    def _outcome(self, code: int) -> Outcome:
        what = "the entry point" if self._settings.ephemeral else "the service on main"
        return self._script.outcome(code, what)

    def _poll_standstill(self) -> None:
        """Warn once that all nodes have stood still for ``SILENCE_TIMEOUT``, and where."""
        if not (own := self._script.standstill):
            self._asks = poll_delays(_ASK_CEILING_S, first_s=_ASK_S)
            return
        if self._loop.clock() < self._ask_at:
            return
        from oci_cluster.node.hang_detector import ask_all  # noqa: PLC0415 - where it happens

        told = ask_all(own, self._nodes.members, self._loop.read)
        self._ask_at = math.inf if told else self._loop.clock() + next(self._asks)
        if told:
            log.warning("%s", told)

    def _poll_ready(self) -> None:
        if self._is_ready:
            return
        loop, facts = self._loop, self._script.ready()
        if facts is None:
            if loop.left_s <= 0:
                missing, seen = ", ".join(self._nodes.missing), ", ".join(self._nodes.seen)
                what = f"missing: {missing}" if missing else f"nodes seen: {seen or 'none'}"
                raise TimedOutError(
                    f"the cluster was not ready within {self._settings.timeout_s:g} s (TIMEOUT); {what}"
                )
        elif not isinstance(loop.ask(lambda: loop.cluster_dir.publish(READY, facts=facts)), NoAnswer):
            log.info("ready after %.1f s", loop.clock() - loop.started_at)
            loop.phase = "ready"
            self._is_ready = True
            loop.tell(READY, facts={name: redact(text) for name, text in facts.items()})

    def restart(self, restart: Restart) -> None:
        """Begin the next attempt: main's heartbeat tells of it."""
        self._restarts += restart.is_failure
        counted = f"restart {self._restarts} of {self._settings.max_restarts}"
        log.warning("%s: %s", counted if restart.is_failure else "starting again", restart.reason)
        self._loop.attempt += 1
        if restart.begins_life:
            self._has_to_begin_life = True
            self._nodes = self._watch()
            for node in self._configs:
                self._script.nodes_dir.remove(node)
            for known in (self._configs, self._unread, self._newcomers):
                known.clear()
        self._nodes.begin(self._loop.attempt)
        if self._scale_request is not None:
            self._scale_request.forget()
        self._failure = None
        self._is_ready = False

    # --- End -----------------------------------------------------------------------------------------------

    @property
    def lost(self) -> list[str]:
        """The other nodes that say nothing any more."""
        return [node for node, failure in self._nodes.failures.items() if failure.is_silence]

    def announce(self, outcome: Outcome) -> bool:
        """Write ``stop`` unless there is one; return whether it is there, or not needed."""
        if outcome.is_interruption:
            return True
        return self._loop.ask(lambda: _stop(self._loop.cluster_dir, outcome)) is True

    def leave(self, outcome: Outcome) -> None:
        """Publish how main has ended; nobody needs the certificate any more."""
        is_in_no_life = self._life is not None and not self._life.number
        if is_in_no_life and self._loop.cluster_dir.read(exit_file("MAIN"), any_life=True) is not None:
            return  # what that says is how the launch has ended, and others have yet to read it
        self._loop.publish_exit(outcome, ended_at=self._loop.wall_clock(), has_left=True)
        cluster_dir = self._loop.cluster_dir
        # Of a life that has begun meanwhile it is another main's.
        if self._settings.cluster_tls and (self._life is None or cluster_dir.read(CERTIFICATE) is not None):
            cluster_dir.remove(CERTIFICATE)


def _stop(cluster_dir: ClusterDir, outcome: Outcome) -> bool:
    """Write ``stop`` unless there is one; return True. Raises what storage raises."""
    try:
        is_stopped = read_stop(cluster_dir) is not None
    except SettingsError:  # a stop file of another schema is a stop file all the same
        is_stopped = True
    if not is_stopped:
        cluster_dir.publish(STOP, **stop_fields(outcome))
    return True
