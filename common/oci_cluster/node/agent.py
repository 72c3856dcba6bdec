"""The agent, one small process on every node: ``common/README.md`` describes its life."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from oci_cluster import __version__
from oci_cluster.contract.names import LIFE, STOP, config_file, exit_file, node_dir, remove_node_dir
from oci_cluster.contract.outcome import Outcome, exit_fields, stop_fields
from oci_cluster.contract.settings.node import NodeSettings
from oci_cluster.contract.storage.retry import poll_delays
from oci_cluster.errors import (
    ClusterError,
    ExitCode,
    LifeInterruptedError,
    NotPermittedError,
    SettingsError,
    StorageError,
    TimedOutError,
)
from oci_cluster.node.begin.address import address_in, local_addresses, pick_address
from oci_cluster.node.failure_detector import Restart
from oci_cluster.node.logs.pump import LogPump
from oci_cluster.node.loop import INTERRUPTED, NoAnswer, NodeLoop
from oci_cluster.node.script import Script
from oci_cluster.system.process import Children
from oci_cluster.system.redaction import redact

if TYPE_CHECKING:
    from oci_cluster.node.coordinator import Coordinator
    from oci_cluster.node.main import Main
    from oci_cluster.node.outputs import Uploads
    from oci_cluster.node.worker import Worker

T = TypeVar("T")
log = logging.getLogger("agent")

# How long a node that must end tries to leave its last word in a folder, which takes it at once or not: a disk that is
# full, or what somebody has put there. Whoever has told it to end waits for its grace and ten seconds.
_LAST_WORD_S = 5.0


class Agent:
    """One node, from its start to its exit code."""

    def __init__(
        self,
        settings: NodeSettings,
        environ: Mapping[str, str],
        *,
        loop: NodeLoop,
        children: Children,
        log_pump: LogPump | None = None,
        coordinator: Coordinator | None = None,
    ) -> None:
        """Prepare a node; *exchange* serves the cluster dir that main holds."""
        self._settings, self._environ = settings, environ
        self._loop, self._coordinator = loop, coordinator
        self._node_dir = node_dir(settings.launch_id, settings.node)
        self._script = Script(
            settings, environ, children=children, loop=loop, node_dir=self._node_dir, log_pump=log_pump
        )
        # A worker has no use for main's module, nor main for a worker's.
        self._role: Main | Worker
        if settings.is_main:
            from oci_cluster.node.main import Main  # noqa: PLC0415

            self._role = Main(settings, script=self._script, loop=loop)
        else:
            from oci_cluster.node.worker import Worker  # noqa: PLC0415

            self._role = Worker(settings, script=self._script, loop=loop)
        loop.role = self._role
        self._uploads = self._make_uploads(children)

    def run(self) -> int:
        """Live the node's life, tear down, and return its exit code."""
        try:
            outcome = self._run()
        except LifeInterruptedError as error:
            outcome = self._unless_it_succeeded(Outcome(error.exit_code, str(error), is_interruption=True))
        except ClusterError as error:
            outcome = Outcome(error.exit_code, str(error))
        except OSError as error:  # of this machine: storage has errors of its own
            outcome = Outcome(ExitCode.UNAVAILABLE, f"{self._settings.node}: {error}; make room there or allow it")
        # A bug: still nothing may be left running, and it must not look like success.
        except Exception as error:
            log.exception("bug in the agent")
            outcome = Outcome(ExitCode.BUG, f"bug in the agent of {self._settings.node}: {error!r}")
        return self._tear_down(outcome)

    def _run(self) -> Outcome:
        settings, loop = self._settings, self._loop
        self._make_node_dir()
        # First: from here on this node can report to the others what goes wrong.
        loop.wait_for("main" if loop.cluster_dir.is_at_main else "WORK_DIR", self._create_cluster_dir)
        self._raise_if_cluster_is_over()
        self._role.begin()
        address = settings.node_address or self._find_address()
        if self._coordinator is not None:
            # Of a pod, loopback alone is forwarded.
            addresses = [address, "127.0.0.1"] if settings.own_network else [address]
            self._coordinator.listen(addresses, settings.work_dir, nodes=len(settings.other_nodes))
        log.info("node=%s address=%s launch=%s pid=%d", settings.node, address, settings.launch_id, os.getpid())
        if not settings.launch_key:
            log.warning(
                "LAUNCH_KEY is not set: whoever can write to the WORK_DIR can command this node;"
                " give all nodes of the launch the same random one"
            )
        if settings.is_main and settings.launcher_version not in {"", __version__}:
            log.warning(
                "the nodes run version %s of the templates, the launcher is %s; if something goes wrong, build the"
                " image again: make build push",
                __version__,
                settings.launcher_version,
            )
        self._provide_code()
        if settings.vault_secrets:
            from oci_cluster.node.vault import Vault  # noqa: PLC0415 - where somebody wants secrets

            self._script.secrets = self._wait_for_another("OCI Vault", Vault(settings.vault_secrets).read)
        if self._uploads is not None and settings.interruptible:
            self._uploads.fetch()
        own = {"node": settings.node, "rank": settings.rank, "address": address, "facts": self._script.facts(address)}
        while True:
            ending = self._attempt(own)
            if isinstance(ending, Outcome):
                return ending
            self._end_attempt(ending)

    def _make_node_dir(self) -> None:
        """Make this node's private directory; remove one of an earlier life."""
        path, settings = self._node_dir, self._settings
        if settings.interruptible:
            # A node that still ends removes it; one that was killed does not need it.
            give_up_at = self._loop.clock() + settings.grace_period_s
            while path.exists() and self._loop.clock() < give_up_at:
                self._loop.wait(0.2)
            if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            raise SettingsError(
                f"{path} exists already and is not this node's; set TMPDIR to a folder where only you may write"
            ) from None

    def _create_cluster_dir(self) -> bool:
        self._loop.cluster_dir.create()
        self._loop.has_joined = True
        return True

    def _raise_if_cluster_is_over(self) -> None:
        """Raise if the launch is over: a node may have waited for hours."""
        loop, settings = self._loop, self._settings
        loop.raise_if_ended()
        if loop.cluster_dir.is_at_main and (settings.interruptible or not settings.is_main):
            return  # main is there, or cannot know whether it has been there before
        late_s = loop.wall_clock() - settings.start_by
        if late_s <= 0 or any(loop.read(name) is not None for name in (config_file("MAIN"), LIFE)):
            return
        raise TimedOutError(
            f"{settings.node} started {late_s:.0f} s after START_BY, when nobody waited for it any more"
        )

    def _find_address(self) -> str:
        settings = self._settings
        if not settings.cluster_nodes_metadata_file:
            return pick_address(local_addresses(), settings.subnet_cidr)
        path, own = Path(settings.cluster_nodes_metadata_file), local_addresses()

        def look() -> str | None:
            # Half of TIMEOUT is for what comes then.
            if (found := address_in(path, own)) is None and self._loop.left_s < settings.timeout_s / 2:
                found = pick_address(own, settings.subnet_cidr)
                log.warning("%s has no address of this node; %s is taken, its only one", path, found)
            return found

        return self._loop.wait_for(settings.cluster_nodes_metadata_file, look)

    def _provide_code(self) -> None:
        settings = self._settings
        if settings.code_uri:
            from oci_cluster.node.begin.code import fetch_code  # noqa: PLC0415 - tarfile, hashlib: where it is used

            def fetch() -> bool:
                fetch_code(settings.code_uri, settings.code_dir, environ=self._environ)
                return True

            self._wait_for_another("the code", fetch)
        if not settings.code_dir.is_dir():
            raise SettingsError(f"CODE_DIR {settings.code_dir} is not a directory")
        # Python itself looks for a module: it may be an installed one.
        if settings.entry_point and settings.ephemeral and not (settings.code_dir / settings.entry_point).is_file():
            raise SettingsError(f"ENTRY_POINT {settings.entry_point} is not a file in CODE_DIR {settings.code_dir}")

    def _wait_for_another(self, what: str, request: Callable[[], T]) -> T:
        """Return what *request* gets of a service other than the work dir; ask until ``TIMEOUT``."""
        is_told = False

        def poll() -> T | None:
            nonlocal is_told
            try:
                return request()
            except StorageError as error:
                if self._loop.left_s <= 0:
                    raise ClusterError(str(error), exit_code=ExitCode.UNAVAILABLE) from error
                self._loop.leave_alone(error)
                if not is_told:
                    log.warning("%s; trying again", redact(str(error)))
                is_told = True
                return None

        return self._loop.wait_for(what, poll)

    def _make_uploads(self, children: Children) -> Uploads | None:
        """Return the uploads of outputs, if the cluster dir is elsewhere and keeps them."""
        if self._loop.cluster_dir.local_path is not None or self._loop.cluster_dir.is_at_main:
            return None
        from oci_cluster.node.outputs import Uploads  # noqa: PLC0415 - where outputs are uploaded

        return Uploads(self._settings, self._environ, self._script, children, self._loop)

    def _attempt(self, own: Mapping[str, Any]) -> Outcome | Restart:
        self._script.start(own["address"], self._role.join(own))
        self._loop.phase = "running"
        if self._uploads is not None:
            self._uploads.begin()
        return self._supervise()

    def _supervise(self) -> Outcome | Restart:
        self._loop.looks.often(self._loop.clock())
        while True:
            self._loop.raise_if_ended()
            if (code := self._script.newly_ended()) is not None:
                if (outcome := self._role.ended(code)) is not None:
                    return outcome
                # The cluster's end is near: poll as often as at its beginning.
                self._loop.looks.often(self._loop.clock(), first_s=0.05)
            self._loop.run_due()
            if (ending := self._role.poll()) is not None:
                return ending
            if self._uploads is not None:
                self._uploads.poll()
            self._loop.wait_until_due()

    def _end_attempt(self, restart: Restart) -> None:
        """End this node's part in the attempt, before the next begins."""
        self._role.restart(restart)
        self._loop.phase = "restarting"
        self._loop.beat()  # the other nodes learn at once of main's next attempt
        self._script.end(self._loop.wait_beating)
        self._loop.restart_timeout()

    def _unless_it_succeeded(self, interruption: Outcome) -> Outcome:
        """Return the *interruption*, or the success of a main that came first."""
        has_succeeded = self._settings.is_main and self._script.newly_ended() == 0
        return (has_succeeded and self._role.ended(0)) or interruption

    def _tear_down(self, outcome: Outcome) -> int:
        loop = self._loop
        log.info("ending with %d: %s", outcome.exit_code, outcome.reason)
        announced = outcome
        if self._settings.is_main and not outcome.is_interruption:
            loop.tell(STOP, **stop_fields(outcome))  # before the others end
        self._write_termination_message(outcome, announced)
        loop.phase = INTERRUPTED if outcome.is_interruption else "stopping"
        if outcome.is_interruption and loop.has_joined:
            loop.beat()  # the others wait for the next life
        is_announced = loop.has_joined and self._role.announce(outcome)
        self._script.end(loop.wait)
        if self._uploads is not None and (failure := self._uploads.finish()):
            left = self._script.rescue_outputs()
            reason = (
                f"outputs of {self._settings.node} could not be uploaded: {failure}; they are in {left} on that node"
            )
            log.error("%s", reason)
            outcome = outcome if outcome.exit_code else Outcome(ExitCode.UNAVAILABLE, reason)
        if loop.cluster_dir.is_at_main and (count := self._script.count_own_outputs()):
            log.warning("files in OUTPUT_DIR go with this node, as WORK_DIR keeps none: %d", count)
        if outcome is not announced:
            self._write_termination_message(outcome, announced)
        if loop.has_joined:
            self._publish_end(outcome, is_announced=is_announced)
        if self._coordinator is not None:
            self._coordinator.leave(
                wait=loop.wait,
                lost=self._role.lost,
                is_interruption=outcome.is_interruption,
                grace_period_s=self._settings.grace_period_s,
                expected=self._settings.other_nodes,
            )
        loop.close_log()
        remove_node_dir(self._node_dir)
        return outcome.exit_code

    def _write_termination_message(self, outcome: Outcome, announced: Outcome) -> None:
        """Write how this node ended, and main's *announced* outcome, to ``TERMINATION_LOG``."""
        settings, loop = self._settings, self._loop
        if not settings.termination_log:
            return
        from oci_cluster.node.termination_message import write  # noqa: PLC0415 - where somebody reads them

        files = {exit_file(settings.node): exit_fields(outcome, time=loop.wall_clock(), attempt=loop.attempt)}
        if settings.is_main and not outcome.is_interruption:
            files[STOP] = stop_fields(announced)
        write(settings.termination_log, loop.cluster_dir, files)

    def _publish_end(self, outcome: Outcome, *, is_announced: bool) -> None:
        # Main's word is worth repeating for as long as anybody would still listen to it.
        began_at, usual_s = self._loop.clock(), self._settings.heartbeat_timeout_s
        short_s = usual_s if self._loop.cluster_dir.local_path is None else min(usual_s, _LAST_WORD_S)
        for delay in poll_delays(self._settings.poll_ceiling_s):
            is_announced = is_announced or self._role.announce(outcome)
            if is_announced and not isinstance(self._loop.ask(lambda: self._role.leave(outcome)), NoAnswer):
                break
            error = self._loop.storage_health.error
            # Where it had the files, main has ended, or its machine is gone.
            is_alone = not self._settings.is_main and self._loop.main_silent_s > self._settings.grace_period_s
            give_up_at = began_at + (short_s if self._loop.must_end else usual_s)
            if self._loop.clock() >= give_up_at or isinstance(error, NotPermittedError) or is_alone:
                log.error("the other nodes could not be informed: %s", error)
                break
            self._loop.wait(delay)
