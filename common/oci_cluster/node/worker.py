"""A worker or parameter server: follows main's attempts, and reports failures to it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oci_cluster.contract.files.liveness import Liveness
from oci_cluster.contract.files.lives import Life, read_stop
from oci_cluster.contract.files.signing import OTHER_LIFE
from oci_cluster.contract.names import CERTIFICATE, LIFE, config_file, exit_file, heartbeat_file
from oci_cluster.contract.outcome import Outcome
from oci_cluster.contract.settings.node import NodeSettings
from oci_cluster.errors import LostError, StorageError, TimedOutError
from oci_cluster.node.failure_detector import AFTER_S, Restart
from oci_cluster.node.loop import ENDED_WELL, INTERRUPTED, NoAnswer, NodeLoop, Role
from oci_cluster.node.script import Script, addresses_in

if TYPE_CHECKING:
    from oci_cluster.node.begin.life import Arrival

log = logging.getLogger("agent")

# The limit of attempts in a heartbeat: far above any MAX_RESTARTS, so that a hostile one cannot end all that follow.
_MAX_ATTEMPTS = 1_000_000_000


class Worker(Role):
    """Every node but main."""

    def __init__(self, settings: NodeSettings, *, script: Script, loop: NodeLoop) -> None:
        super().__init__(settings, script=script, loop=loop)
        self._main: Liveness | None = None
        # The latest attempt that main's heartbeat has shown.
        self._mains_attempt = 0
        # The counter of this node's last configuration.
        self._asked = 0
        self._failed_at: float | None = None
        # The failure that main has yet to be told: storage did not take it.
        self._unreported: Outcome | None = None
        self._arrival: Arrival | None = None
        if settings.interruptible:
            from oci_cluster.node.begin.life import Arrival  # noqa: PLC0415 - where a launch can have more than one life

            self._arrival = Arrival(loop.cluster_dir, settings.node)
        # Why this node has to leave the life that it is in; and the next one, where that is proved already.
        self._why_elsewhere = ""
        self._next: Life | None = None
        self._is_asking = False
        # The reason at the end if main does not come back.
        self._lost = ""

    def begin(self) -> None:
        """Do nothing: the launch's next life is main's to begin."""

    def join(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Publish this node, and return main's configuration of their common attempt."""
        node, loop = self._settings.node, self._loop
        while True:
            if self._arrival is not None and (self._why_elsewhere or not loop.cluster_dir.life):
                self._enter_life(self._arrival)
            loop.attempt = self._mains_attempt
            self._unreported = self._failed_at = None
            loop.wait_for(f"storage to remove {exit_file(node)}", self._retract_exit)
            self._asked = loop.publish(config_file(node), **own, attempt=loop.attempt)
            main = loop.wait_for(config_file("MAIN"), self._main_config)
            if self._why_elsewhere:  # it has begun another life meanwhile
                loop.restart_timeout()
            elif self._mains_attempt == loop.attempt:
                break
        self._watch_main()
        if main.get("tls"):
            pair = loop.wait_for(CERTIFICATE, lambda: loop.cluster_dir.read(CERTIFICATE))
            passphrase = loop.cluster_dir.key_for("certificate").hex().encode()
            self._script.hand_encrypted(str(pair.get("certificate")), str(pair.get("key")), passphrase)
        self._script.nodes_dir.put("MAIN", main)
        return main

    def _enter_life(self, arrival: Arrival) -> None:
        """Wait until main has proved its life; no other file counts from then on."""
        loop = self._loop
        self._main, self.suspect_at = None, math.inf  # who was main in another life may be silent
        try:
            life = self._next or loop.wait_for(LIFE, arrival.find)
        except TimedOutError as error:
            if self._lost:
                raise LostError(f"{self._lost}; it has not come back: {error}") from error
            raise
        self._why_elsewhere, self._next, self._is_asking, self._lost = "", None, False, ""
        self._mains_attempt = self._asked = 0
        loop.enter_life(life.id, life.number)
        if loop.cluster_dir.is_at_main:  # of a main that has been started again, this is all that is there
            self._watch_main()

    def _retract_exit(self) -> bool:
        """Remove the exit file of an earlier attempt, or of a predecessor."""
        cluster_dir, node = self._loop.cluster_dir, self._settings.node
        if not self._asked:
            # From here on, what this node writes is later than its predecessor's files, even where its clock is behind;
            # the predecessor may have ended before its first heartbeat.
            for name in (config_file(node), heartbeat_file(node)):
                cluster_dir.read(name)
        name = exit_file(node)
        # Else nodes that may not delete would end here, with nothing to delete.
        if cluster_dir.read(name) is not None or name in cluster_dir.unusable:
            cluster_dir.remove(name)
        return True

    def _main_config(self) -> dict[str, Any] | None:
        """Return main's configuration, if this node takes part or a later attempt exists."""
        if self._why_elsewhere:
            return {"why": self._why_elsewhere}
        main, attempt = self._loop.cluster_dir.read(config_file("MAIN")), self._loop.attempt
        if main is None or not self._settings.gang:
            return main
        # Main lives; its heartbeat tells when there is an attempt that this node has not heard of.
        self._watch_main()
        if self._mains_attempt > attempt:
            return main
        answers = main.get("answers")
        is_answer = isinstance(answers, dict) and answers.get(self._settings.node) == self._asked
        takes_part = main.get("attempt") == attempt and self._settings.node in addresses_in(main)
        # One that does not answer is of an earlier life of this rank's: somebody has put it back.
        return main if takes_part and is_answer else None

    def _watch_main(self) -> None:
        self._main = self._main or Liveness(self._loop.clock())

    def observe(self) -> None:
        """Read main's heartbeat; report what main has yet to be told."""
        if self._unreported is not None:
            self._report(self._unreported)
        if self._main is None:
            return
        heartbeat = self._loop.ask(lambda: self._loop.cluster_dir.read(heartbeat_file("MAIN")))
        timeout_s = self._settings.heartbeat_timeout_s
        told = None if isinstance(heartbeat, NoAnswer) else heartbeat
        silent_s = self._main.observe(told, self._loop.clock(), answered=heartbeat is told)
        if silent_s > timeout_s:
            raise LostError(f"main lost: no heartbeat for {silent_s:.0f} s (HEARTBEAT_TIMEOUT {timeout_s:g} s)")
        if not isinstance(heartbeat, NoAnswer):
            if self._arrival is not None:
                self._look_for_another_life(self._arrival, heartbeat)
            attempt = (heartbeat or {}).get("attempt")
            if self._settings.gang and type(attempt) is int and attempt < _MAX_ATTEMPTS:
                self._mains_attempt = max(self._mains_attempt, attempt)
        self.suspect_at = self._main.alive_at + timeout_s + AFTER_S
        storage_health = self._loop.storage_health
        if self._loop.cluster_dir.is_at_main:
            return  # who does not answer there is main
        if storage_health.error is not None and storage_health.duration_s > self._settings.timeout_s:
            raise StorageError(
                f"no answer for {self._settings.timeout_s:g} s (TIMEOUT): {storage_health.error}",
                exit_code=storage_health.error.exit_code,
            )

    def check_main(self) -> None:
        """Give up a silent main, or wait for its next life."""
        silent_s, limit_s = self._loop.main_silent_s, self._settings.heartbeat_timeout_s
        if silent_s <= limit_s:
            return
        error = self._loop.storage_health.error
        lost = f"main lost: no answer for {silent_s:.0f} s (HEARTBEAT_TIMEOUT {limit_s:g} s): {error}"
        if self._arrival is None:
            raise LostError(lost)
        if self._loop.cluster_dir.life and not self._why_elsewhere:
            self._arrival.renew()
            self._why_elsewhere, self._lost = "main does not answer", lost

    def _look_for_another_life(self, arrival: Arrival, heartbeat: Mapping[str, Any] | None) -> None:
        """Note an interruption of main, or a *heartbeat* of a newer life."""
        loop = self._loop
        if heartbeat is not None:
            if heartbeat.get("phase") == INTERRUPTED and not self._why_elsewhere:
                arrival.renew()
                self._why_elsewhere = "main was interrupted"
            return
        if loop.cluster_dir.unusable.get(heartbeat_file("MAIN")) != OTHER_LIFE or self._why_elsewhere:
            return
        if not self._is_asking:
            self._is_asking = True
            arrival.renew()
        life = loop.ask(arrival.find)
        if life is None or isinstance(life, NoAnswer):
            loop.observe_often()
            return
        self._is_asking = False
        if life.id != loop.cluster_dir.life:
            self._why_elsewhere, self._next = f"main has begun life {life.number}", life

    def ended(self, code: int) -> Outcome | None:
        """Return the outcome of the script's end, or None where main decides."""
        settings, loop = self._settings, self._loop
        if code == 0:
            # Not believed: a worker whose main has died may well leave with 0. The stop file, or main's silence, tells.
            log.info("waiting for the cluster's outcome")
            loop.phase = ENDED_WELL
            if settings.entry_on_all:
                loop.beat()  # else main may take it for one that hangs
            return None
        failure = self._script.outcome(code, "its start script")
        self._failed_at = loop.wall_clock()
        loop.phase = "failed" if settings.gang else "stopping"
        self._report(failure)
        if settings.gang:
            log.warning("%s; waiting for main, which may start again", failure.reason)
            loop.observe_often()
            return None
        patience_until = loop.clock() + settings.grace_period_s
        loop.looks.often(loop.clock())
        while loop.clock() < patience_until:
            loop.raise_if_ended()  # raises the cluster's own outcome, when main has said it
            if self._arrival is not None:
                self.observe()
                if self._why_elsewhere:  # nothing has failed: main is ended, too, or begins another life
                    return None
            loop.wait(0.2)
        return failure

    def _report(self, failure: Outcome) -> None:
        """Report that the script has failed; without an answer, with the next heartbeat."""
        failed_at, has_left = self._failed_at or self._loop.wall_clock(), not self._settings.gang
        answer = self._loop.ask(lambda: self._loop.publish_exit(failure, ended_at=failed_at, has_left=has_left))
        self._unreported = failure if isinstance(answer, NoAnswer) else None

    def poll(self) -> Restart | None:
        """Return another life or attempt that main's heartbeat has told."""
        if self._why_elsewhere:
            return Restart(self._why_elsewhere, is_failure=False, begins_life=True)
        if self._mains_attempt > self._loop.attempt:
            return Restart("main has begun another attempt", is_failure=False)
        return None

    def restart(self, restart: Restart) -> None:
        """Log why; which attempt it is :meth:`join` finds out."""
        log.info("starting again: %s", restart.reason)

    @property
    def lost(self) -> tuple[str, ...]:
        """Nothing: the other nodes are main's to watch."""
        return ()

    def announce(self, outcome: Outcome) -> bool:
        """Return True: main announces the end. Tell main of an interruption at once."""
        if outcome.is_interruption and self._loop.cluster_dir.life:
            self._loop.ask(lambda: self.leave(outcome))
        return True

    def leave(self, outcome: Outcome) -> None:
        """Publish how this node has ended."""
        if self._arrival is not None and not self._loop.cluster_dir.life:
            is_of_interest = not outcome.is_interruption and self._loop.left_s > 0
            if not is_of_interest or read_stop(self._loop.cluster_dir) is not None:
                return
            if (life := self._arrival.find()) is None:
                raise StorageError("main has not said which life this is")
            self._loop.cluster_dir.enter_life(life.id)
        self._loop.publish_exit(outcome, ended_at=self._failed_at or self._loop.wall_clock(), has_left=True)
