"""The agent: the one small process that runs on every node. ``common/README.md`` describes a node's life."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oci_cluster.address import address_of_rank, interface_of, local_addresses, pick_address
from oci_cluster.errors import (
    ClusterError,
    ExitCode,
    LostError,
    NotPermittedError,
    SettingsError,
    StoppedError,
    StorageError,
    TimedOutError,
)
from oci_cluster.exchange import (
    CERTIFICATE,
    READY,
    STOP,
    Exchange,
    config_file,
    exit_file,
    heartbeat_file,
    now,
    poll_delays,
    printable,
)
from oci_cluster.liveness import Failure, MainWatch, NodesWatch, Outcome, first_cause, is_member, outcome_of
from oci_cluster.nodes_dir import NodesDir, checked_address, parse_facts
from oci_cluster.process import Children, Signals, describe
from oci_cluster.settings import PROJECT_ROOT, NodeSettings, framework_defaults, node_dir, read_settings

if TYPE_CHECKING:
    from oci_cluster.node_logs import OwnLog

T = TypeVar("T")
log = logging.getLogger("agent")

# How long main waits for what other nodes report of a failure: launchers of ranks end within a second of it, and
# storage takes some tenths to tell.
_FIRST_CAUSE_S = 3.0
# Between two lines about outages that come and go.
_SAY_OUTAGE_S = 10.0
_STDERR = 2
# What a heartbeat may tell of attempts: far above any MAX_RESTARTS, so that a hostile one cannot end all that follow.
_MAX_ATTEMPTS = 1_000_000_000


class _NoAnswer:
    """Storage did not answer: neither yes nor no."""


NO_ANSWER: Final = _NoAnswer()


@dataclass(frozen=True)
class Again:
    """The gang is to start again."""

    reason: str
    is_failure: bool


class Agent:
    """One node, from its start to its exit code."""

    def __init__(
        self,
        settings: NodeSettings,
        environ: Mapping[str, str],
        *,
        exchange: Exchange,
        children: Children,
        signals: Signals,
        log_copy: OwnLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a node.

        Args:
            settings: What the node was told.
            environ: What its start script inherits.
            exchange: The cluster dir.
            children: Starts, reaps and ends processes.
            signals: TERM and INT, and the wait that they interrupt.
            log_copy: Has what this node prints, where that is to be in the cluster dir too.
            clock: Monotonic seconds.
        """
        self.settings = settings
        self._log_copy = log_copy
        self._environ = environ
        self._exchange = exchange
        self._children = children
        self._signals = signals
        self._clock = clock
        self._started_at = clock()
        self._deadline = self._started_at + settings.timeout_s
        self._node_dir = node_dir(settings.launch_id, settings.node)
        self._nodes_dir = NodesDir(self._node_dir / "nodes")
        self._child: int | None = None
        self._joined = False
        self._uploader: int | None = None
        self._upload_at = 0.0
        self._phase = "starting"
        self._beat = 0
        self._beat_at = 0.0
        self._outage: ClusterError | None = None
        self._outage_since = self._started_at
        self._outage_is_said = False
        self._say_outage_at = self._started_at
        self._other_launch_warned: set[str] = set()
        self._main_watch: MainWatch | None = None
        self._nodes_watch = NodesWatch(settings)
        # Frameworks whose start scripts know the other nodes; with those that do not, main reads no configurations.
        self._reads_configs = settings.wait_for_addresses or self._facts_script.exists()
        self._configs: dict[str, dict[str, Any]] = {}
        self._unread: set[str] = set()
        self._joined_nodes: list[str] = []
        self._taking_part: frozenset[str] = frozenset()
        self._has_run = False
        self._attempt = 0
        self._wanted_attempt = 0
        self._restarts = 0
        self._untold: dict[str, Any] | None = None
        self._failed_at: float | None = None

    def run(self) -> int:
        """Live the node's whole life and return its exit code. Whatever happens, it tears down."""
        try:
            outcome = self._live()
        except ClusterError as error:
            outcome = Outcome(error.exit_code, str(error))
        except OSError as error:  # of this machine: storage has errors of its own
            outcome = Outcome(ExitCode.UNAVAILABLE, f"{self.settings.node}: {error}; make room there or allow it")
        # A bug: still nothing may be left running, and it must not look like success.
        except Exception as error:
            log.exception("bug in the agent")
            outcome = Outcome(ExitCode.BUG, f"bug in the agent of {self.settings.node}: {error!r}")
        return self._tear_down(outcome)

    # --- Start ---------------------------------------------------------------------------------------------

    def _live(self) -> Outcome:
        settings = self.settings
        self._node_dir.mkdir(mode=0o700)
        # First: from here on the other nodes can be told what goes wrong.
        self._wait_for("WORK_DIR", self._create_cluster_dir)
        address = settings.address or self._address()
        log.info("node=%s address=%s launch=%s pid=%d", settings.node, address, settings.launch_id, os.getpid())
        if settings.code_uri:
            from oci_cluster.code import fetch_code  # noqa: PLC0415 - tarfile, hashlib: only where code is fetched

            fetch_code(settings.code_uri, settings.code_dir)
        if not settings.code_dir.is_dir():
            msg = f"CODE_DIR {settings.code_dir} is not a directory"
            raise SettingsError(msg)
        if settings.ephemeral and not (settings.code_dir / settings.entry_point).is_file():
            msg = f"ENTRY_POINT {settings.entry_point} is not a file in CODE_DIR {settings.code_dir}"
            raise SettingsError(msg)
        own = {"node": settings.node, "rank": settings.rank, "address": address, "facts": self._node_facts(address)}
        while True:
            main = self._publish_as_main(own) if settings.is_main else self._join(own)
            self._child = self._start_script(address, main)
            ending = self._supervise(self._child)
            if isinstance(ending, Outcome):
                return ending
            self._end_attempt(self._child, ending)

    def _address(self) -> str:
        settings = self.settings
        if not settings.nodes_metadata:
            return pick_address(local_addresses(), settings.subnet_cidr)
        path = Path(settings.nodes_metadata)
        return self._wait_for(settings.nodes_metadata, lambda: address_of_rank(path, settings.rank))

    def _create_cluster_dir(self) -> bool:
        self._exchange.create()
        self._joined = True
        return True

    @property
    def _facts_script(self) -> Path:
        return self.settings.framework_dir / "node-facts.sh"

    def _node_facts(self, address: str) -> dict[str, str]:
        """Return what the framework has to tell the other nodes about this one."""
        script = self._facts_script
        if not script.exists():
            return {}
        path = self._node_dir / "facts"
        with path.open("wb") as output:
            pid = self._start([str(script)], self._script_environ(address), output=output.fileno())
        try:
            while (code := self._children.code(pid)) is None:
                self._obey()
                if (left := self._deadline - self._clock()) <= 0:
                    msg = f"{script.name} did not end within {self.settings.timeout_s:g} s (TIMEOUT)"
                    raise TimedOutError(msg)
                self._signals.wait(min(1.0, left))
        finally:
            self._children.end(pid, self.settings.grace_period_s, wait=self._signals.wait, clock=self._clock)
        if code:
            msg = self._own_reason() or f"{script.name} ended: {describe(code)}"
            raise SettingsError(msg, exit_code=code)
        return parse_facts(path.read_text(errors="replace"))

    def _publish_as_main(self, own: Mapping[str, Any]) -> dict[str, Any]:
        settings = self.settings
        config: dict[str, Any] = {**own, "tls": settings.cluster_tls, "attempt": self._attempt}
        if settings.wait_for_addresses:
            config["nodes"] = self._wait_for_addresses()
            self._taking_part = frozenset(config["nodes"])
        if settings.cluster_tls and self._attempt == 0:
            from oci_cluster.certificate import make_certificate  # noqa: PLC0415 - only main needs it

            certificate, key = make_certificate(settings.cluster_name)
            self._hand_certificate(certificate, key)
            self._publish(CERTIFICATE, certificate=certificate, key=key)
        self._publish(config_file("MAIN"), **config)
        self._nodes_dir.put("MAIN", config)
        return config

    def _join(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Make this node known, and return main's configuration: of the attempt that this node takes part in."""
        node = self.settings.node
        while True:
            self._attempt = self._wanted_attempt
            self._untold = self._failed_at = None
            self._wait_for(f"storage to remove {exit_file(node)}", self._take_back_exit)
            self._publish(config_file(node), **own, attempt=self._attempt)
            main = self._wait_for(config_file("MAIN"), self._main_config)
            if self._wanted_attempt == self._attempt:
                break
        self._main_watch = self._main_watch or MainWatch(self.settings.heartbeat_timeout_s, self._clock())
        if main.get("tls"):
            pair = self._wait_for(CERTIFICATE, lambda: self._exchange.read(CERTIFICATE))
            self._hand_certificate(str(pair.get("certificate")), str(pair.get("key")))
        self._nodes_dir.put("MAIN", main)
        return main

    def _take_back_exit(self) -> bool:
        """Remove what this node's rank has said at an end that was not the last: of an attempt, or its predecessor."""
        name = exit_file(self.settings.node)
        if self._exchange.is_there(name):  # else nodes that may not delete would end here, with nothing to delete
            self._exchange.remove(name)
        return True

    def _main_config(self) -> dict[str, Any] | None:
        main = self._exchange.read(config_file("MAIN"))
        if main is None or not self.settings.gang:
            return main
        # Main lives; its heartbeat tells when there is an attempt that this node has not heard of.
        self._main_watch = self._main_watch or MainWatch(self.settings.heartbeat_timeout_s, self._clock())
        if self._wanted_attempt > self._attempt:
            return main
        takes_part = main.get("attempt") == self._attempt and self.settings.node in _nodes_of(main)
        return main if takes_part else None

    def _wait_for_addresses(self) -> dict[str, str]:
        """Return the address of every other node, by name, when all have come to this attempt."""

        def missing() -> list[str]:
            here = [node for node, config in self._configs.items() if config.get("attempt", 0) == self._attempt]
            return [node for node in self._nodes_watch.members if node not in here]

        def look() -> bool:
            self._watch_nodes(self._exchange.listing())
            self._nodes_watch.check()
            return not missing()

        self._wait_for("the other nodes", look, lambda: f"missing: {', '.join(missing())}")
        self._joined_nodes.clear()
        return {node: checked_address(self._configs[node], node) for node in self._nodes_watch.members}

    def _wait_for(self, what: str, look: Callable[[], T | None], explain: Callable[[], str] = lambda: "") -> T:
        """Return what *look* finds, looking until ``TIMEOUT`` is over; *explain* says what is missing then."""
        for delay in poll_delays(self.settings.poll_ceiling_s):
            found = self._ask(look)
            if found and not isinstance(found, _NoAnswer):
                return found
            self._obey()
            self._look_around()
            self._nodes_watch.check()
            left = self._deadline - self._clock()
            if left <= 0:
                waited = f"{self.settings.node} waited {self.settings.timeout_s:g} s (TIMEOUT) for {what}"
                if self._outage is not None:
                    raise StorageError(f"{waited}: {self._outage}")
                detail = explain() or self._exchange.unusable.get(what, "did main start?")
                raise TimedOutError(f"{waited} in {self._exchange.url}; {detail}")
            self._signals.wait(min(delay, left))
        raise AssertionError  # poll_delays never ends

    def _publish(self, name: str, **fields: Any) -> None:
        def write() -> bool:
            self._exchange.publish(name, **fields)
            return True

        self._wait_for(f"storage to take {name}", write)

    def _hand_certificate(self, certificate: str, key: str) -> None:
        for name, text in (("certificate.pem", certificate), ("key.pem", key)):
            path = self._node_dir / name
            path.touch(mode=0o600)
            path.write_text(text)

    def _start_script(self, address: str, main: Mapping[str, Any]) -> int:
        settings = self.settings
        script = settings.framework_dir / ("start-master.sh" if settings.is_main else "start-worker.sh")
        (self._node_dir / "ready").unlink(missing_ok=True)
        (self._node_dir / "reason").unlink(missing_ok=True)
        environ = {**self._script_environ(address), **self._peers(main), "MAIN_ADDRESS": checked_address(main, "MAIN")}
        if main.get("tls"):
            environ["TLS_CERT_FILE"] = str(self._node_dir / "certificate.pem")
            environ["TLS_KEY_FILE"] = str(self._node_dir / "key.pem")
        pid = self._start([str(script)], environ)
        self._has_run = True
        self._phase = "running"
        self._upload_at = self._clock() + settings.output_interval_s
        return pid

    def _start(self, command: list[str], environ: Mapping[str, str], output: int | None = None) -> int:
        try:
            pid = self._children.start(
                command, environ=environ, cwd=self.settings.code_dir, output=output, errors=_STDERR
            )
        except OSError as error:
            msg = f"{command[0]} cannot be started: {error}"
            raise SettingsError(msg) from error
        log.debug("started=%s pid=%d", command[0], pid)
        return pid

    def _script_environ(self, address: str) -> dict[str, str]:
        """Return what every script of the framework gets on this node."""
        settings = self.settings
        args_file = self._node_dir / "entry-args"
        args_file.write_bytes(b"".join(os.fsencode(arg) + b"\0" for arg in settings.entry_args))
        output_dir = self._output_dir()
        output_dir.mkdir(parents=True, exist_ok=True)
        environ = {
            **framework_defaults(settings.framework_dir),
            **self._environ,
            "MODE": settings.mode,
            "NODE_NAME": settings.node,
            "NODE_RANK": str(settings.rank),
            "WORKER_COUNT": str(settings.worker_count),
            "PS_COUNT": str(settings.ps_count),
            "CLUSTER_NAME": settings.cluster_name,
            "LAUNCH_ID": settings.launch_id,
            "NODE_ADDRESS": address,
            "ENTRY_POINT": settings.entry_point,
            "ENTRY_ARGS_FILE": str(args_file),
            "CODE_DIR": str(settings.code_dir),
            "OUTPUT_DIR": str(output_dir),
            "NODE_DIR": str(self._node_dir),
            "NODES_DIR": str(self._nodes_dir.path),
            "READY_FILE": str(self._node_dir / "ready"),
            "TIMEOUT": str(max(1, round(self._deadline - self._clock()))),
            "ATTEMPT": str(self._attempt),
            "EPHEMERAL": str(int(settings.ephemeral)),
            "PYTHONPATH": _python_path(settings.code_dir, self._environ.get("PYTHONPATH", "")),
        }
        if settings.find_interface:
            environ["NODE_INTERFACE"] = interface_of(address)
        return environ

    def _peers(self, main: Mapping[str, Any]) -> dict[str, str]:
        """Return the addresses of all nodes, as main's configuration has them; {} where this framework needs none."""
        if not self.settings.wait_for_addresses:
            return {}
        nodes = {str(node): text for node, text in _nodes_of(main).items() if is_member(str(node))}
        addresses = {node: checked_address({"address": text}, node) for node, text in nodes.items()}
        mine = [node for node in addresses if node.startswith(self.settings.mode)] or [self.settings.node]
        return {
            "WORKER_ADDRESSES": ",".join(text for node, text in addresses.items() if node.startswith("WORKER")),
            "PS_ADDRESSES": ",".join(text for node, text in addresses.items() if node.startswith("PS")),
            "ROLE_INDEX": str(mine.index(self.settings.node)) if self.settings.node in mine else "",
        }

    def _output_dir(self) -> Path:
        if self.settings.output_dir:
            return Path(self.settings.output_dir)
        cluster_dir = self._exchange.local_path
        return (cluster_dir or Path(tempfile.gettempdir())) / "outputs"

    # --- Supervision ---------------------------------------------------------------------------------------

    def _supervise(self, pid: int) -> Outcome | Again:
        is_ready = not self.settings.is_main
        has_ended = False
        delays = poll_delays(self.settings.poll_ceiling_s)
        while True:
            self._obey()
            own = None
            if not has_ended and (code := self._children.code(pid)) is not None:
                has_ended = True
                if self.settings.is_main and code == 0:
                    return Outcome(ExitCode.OK, self._end_of_main(code))
                own = self._failure_of_main(code) if self.settings.is_main else None
                if not self.settings.is_main and (outcome := self._worker_ended(code)) is not None:
                    return outcome
                # The cluster's end is near: look as often as at its beginning.
                delays = poll_delays(self.settings.poll_ceiling_s, first_s=0.05)
            self._look_around()
            if (ending := self._judge(own) if self.settings.is_main else self._follow_main()) is not None:
                return ending
            if not is_ready:
                is_ready = self._look_for_ready()
            self._upload_outputs()
            self._signals.wait(min(next(delays), self._beat_at - self._clock()))

    def _follow_main(self) -> Again | None:
        """Return what main's heartbeat has told a worker of a gang."""
        if self._wanted_attempt > self._attempt:
            return Again("main has begun another attempt", is_failure=False)
        return None

    def _judge(self, own: Failure | None) -> Outcome | Again | None:
        """Return what the failures of main itself (*own*) and of other nodes mean, None while all is well."""
        settings, watch = self.settings, self._nodes_watch
        is_short: LostError | None = None
        try:
            watch.check()
        except LostError as error:
            is_short = error
        # Who was lost before the attempt began has no part in it.
        has_failed = settings.gang and any(
            failure.attempt == self._attempt and node in self._taking_part for node, failure in watch.failures.items()
        )
        if own or is_short or has_failed:
            if not settings.entry_on_all:
                if own is None:
                    raise is_short or AssertionError
                return Outcome(own.exit_code, own.reason)
            outcome = self._first_cause(own)
            # A node that was taken away on purpose has not failed.
            is_failure = outcome.exit_code != ExitCode.STOPPED
            if settings.gang and not is_short and (self._restarts < settings.max_restarts or not is_failure):
                return Again(outcome.reason, is_failure)
            return outcome
        if settings.gang and self._joined_nodes:
            return Again(f"{', '.join(self._joined_nodes)} joined", is_failure=False)
        return None

    def _first_cause(self, own: Failure | None) -> Outcome:
        """Return the outcome that the first of several failures means, waiting for what other nodes still report."""
        watch, started_at = self._nodes_watch, self._clock()
        recent = started_at - self.settings.heartbeat_interval_s - _FIRST_CAUSE_S
        while True:
            if own is None and self._child is not None and (code := self._children.code(self._child)):
                own = self._failure_of_main(code)
            all_failures = [*watch.failures.values(), *([own] if own else [])]
            failures = [failure for failure in all_failures if failure.noticed_at >= recent] or all_failures
            told = {failure.node for failure in failures if failure.exit_code != ExitCode.LOST}
            quiet = [node for node in ("MAIN", *watch.members) if node not in told]
            is_clear = any(not failure.may_be_a_consequence for failure in failures)
            if is_clear or not quiet or self._clock() - started_at >= _FIRST_CAUSE_S:
                break
            self._obey()
            self._wait_beating(0.2)
            there = self._ask(self._exchange.listing)
            if not isinstance(there, _NoAnswer):
                self._watch_nodes(there)
        cause = first_cause(failures)
        reason = cause.reason if cause is own else f"{cause.node} failed first: {cause.reason}"
        if quiet and not is_clear:
            names = ", ".join(quiet)
            reason += f"; {names} had not failed {_FIRST_CAUSE_S:g} s later, which is what a hang looks like"
        return Outcome(cause.exit_code, reason)

    def _failure_of_main(self, code: int) -> Failure:
        return Failure("MAIN", code, self._end_of_main(code), time.time(), self._clock())

    def _end_of_main(self, code: int) -> str:
        log.debug("start script ended: %s", describe(code))
        what = "the entry point" if self.settings.ephemeral else "the service on main"
        return self._own_reason() or f"{what} ended: {describe(code)}"

    def _end_attempt(self, pid: int, again: Again) -> None:
        """End this node's part in the attempt, so that all can begin the next together."""
        settings = self.settings
        if settings.is_main:
            self._restarts += again.is_failure
            counted = f"restart {self._restarts} of {settings.max_restarts}" if again.is_failure else "starting again"
            log.warning("%s: %s", counted, again.reason)
            self._attempt += 1
            self._nodes_watch.begin(self._attempt)
        else:
            log.info("starting again: %s", again.reason)
        self._phase = "restarting"
        self._beat_now()  # main's tells the others at once
        self._children.end(pid, settings.grace_period_s, wait=self._wait_beating, clock=self._clock)
        self._child = None
        self._deadline = self._clock() + settings.timeout_s

    def _obey(self) -> None:
        """Raise what ends this node now: a signal, the ``stop`` file, the TTL."""
        if self._signals.received is not None:
            raise StoppedError(f"{self.settings.node} was told to stop by signal {self._signals.received}")
        stop = self._ask(lambda: self._exchange.is_there(STOP) and self._read_stop())
        if isinstance(stop, Outcome):
            raise StoppedError(stop.reason, exit_code=stop.exit_code)
        life = self._clock() - self._started_at
        if self.settings.is_main and 0 < self.settings.ttl_s <= life:
            msg = f"TTL of {self.settings.ttl_s:g} s reached"
            if self.settings.ephemeral:
                raise TimedOutError(f"{msg} before the entry point ended; launch with a longer --ttl")
            raise StoppedError(msg, exit_code=ExitCode.OK)

    def _read_stop(self) -> Outcome | None:
        fields = self._exchange.read(STOP)
        if fields is None:
            if (why := self._exchange.unusable.get(STOP, "")) and why not in self._other_launch_warned:
                self._other_launch_warned.add(why)
                log.warning("stop file ignored: %s", why)
            return None
        return outcome_of(fields)

    def _look_around(self) -> None:
        """Every ``HEARTBEAT_INTERVAL``: show that this node is alive, and see whether the others are."""
        if (log_copy := self._log_copy) is not None and self._joined and log_copy.is_due():
            self._ask(lambda: log_copy.ship(self._exchange))
        if self._clock() < self._beat_at:
            return
        self._beat_now()
        if self.settings.is_main:
            there = self._ask(self._exchange.listing)
            if isinstance(there, _NoAnswer):
                self._nodes_watch.look_in_vain(self._clock())
            else:
                self._watch_nodes(there)
        elif self._main_watch is not None:
            heartbeat = self._ask(lambda: self._exchange.read(heartbeat_file("MAIN")))
            if isinstance(heartbeat, _NoAnswer):
                self._main_watch.look(None, self._clock(), answered=False)
            else:
                self._main_watch.look(heartbeat, self._clock(), answered=True)
                attempt = (heartbeat or {}).get("attempt")
                if self.settings.gang and type(attempt) is int and attempt < _MAX_ATTEMPTS:
                    self._wanted_attempt = max(self._wanted_attempt, attempt)
            self._give_up_on_storage()

    def _beat_now(self) -> None:
        self._beat_at = self._clock() + self.settings.heartbeat_interval_s
        self._beat += 1
        self._ask(
            lambda: self._exchange.publish(
                heartbeat_file(self.settings.node), beat=self._beat, phase=self._phase, attempt=self._attempt
            )
        )
        if self._untold is not None:
            self._tell_failure(self._untold)

    def _wait_beating(self, seconds: float) -> None:
        """Wait for something of this node's own that may outlast ``HEARTBEAT_TIMEOUT``."""
        self._signals.wait(min(seconds, self._beat_at - self._clock()))
        if self._clock() >= self._beat_at:
            self._beat_now()

    def _watch_nodes(self, there: Mapping[str, str]) -> None:
        """Take note of who is there, and have start scripts on main see it."""
        joined = self._nodes_watch.look(there, self._clock(), self._read)
        if not self._reads_configs:
            return
        self._unread |= set(joined)
        for node in sorted(self._unread):
            config = self._read(config_file(node))
            if config is not None:
                self._unread.discard(node)
                self._configs[node] = config
                self._nodes_dir.put(node, config)
        self._joined_nodes += [node for node in joined if node not in self._joined_nodes]
        for node in self._configs.keys() - set(self._nodes_watch.members):
            del self._configs[node]
            self._nodes_dir.remove(node)

    def _read(self, name: str) -> dict[str, Any] | None:
        fields = self._ask(lambda: self._exchange.read(name))
        return None if isinstance(fields, _NoAnswer) else fields

    def _give_up_on_storage(self) -> None:
        """End a worker that has heard nothing but errors for ``TIMEOUT``: nobody else could end it."""
        if self._outage is not None and self._clock() - self._outage_since > self.settings.timeout_s:
            msg = f"no answer for {self.settings.timeout_s:g} s (TIMEOUT): {self._outage}"
            raise StorageError(msg, exit_code=self._outage.exit_code)

    def _worker_ended(self, code: int) -> Outcome | None:
        """Return the outcome that the end of a worker's start script means, None where main decides."""
        settings = self.settings
        log.debug("start script ended: %s", describe(code))
        if code == 0:
            # Not believed: a worker whose main has died may well leave with 0. The stop file, or main's silence, tells.
            log.info("waiting for the cluster's outcome")
            self._phase = "waiting"
            return None
        reason = self._own_reason() or f"its start script ended: {describe(code)}"
        self._failed_at = time.time()
        self._phase = "failed" if settings.gang else "stopping"
        self._tell_failure({"exit_code": code, "reason": reason, "has_left": not settings.gang})
        if settings.gang:
            log.warning("%s; waiting for main, which may start again", reason)
            return None
        patience = self._clock() + settings.grace_period_s
        while self._clock() < patience:
            self._obey()  # raises the cluster's own outcome, when main has said it
            self._signals.wait(0.2)
        return Outcome(code, reason)

    def _tell_failure(self, fields: dict[str, Any]) -> None:
        """Say that this node's start script has failed; where storage does not take it, with the next heartbeat."""
        is_told = self._ask(
            lambda: self._exchange.publish(
                exit_file(self.settings.node), **fields, attempt=self._attempt, time=self._failed_at
            )
        )
        self._untold = fields if isinstance(is_told, _NoAnswer) else None

    def _own_reason(self) -> str:
        """Return why the start script says that it ended; empty where it does not."""
        path = self._node_dir / "reason"
        return printable(path.read_text(errors="replace").strip()) if path.exists() else ""

    def _look_for_ready(self) -> bool:
        ready = self._node_dir / "ready"
        if not ready.exists():
            if self._clock() >= self._deadline:
                missing = ", ".join(self._nodes_watch.missing)
                what = (
                    f"missing: {missing}" if missing else f"nodes seen: {', '.join(self._nodes_watch.seen) or 'none'}"
                )
                msg = f"the cluster was not ready within {self.settings.timeout_s:g} s (TIMEOUT); {what}"
                raise TimedOutError(msg)
            return False
        facts = parse_facts(ready.read_text(errors="replace"))
        if isinstance(self._ask(lambda: self._exchange.publish(READY, facts=facts)), _NoAnswer):
            return False
        log.info("ready after %.1f s", self._clock() - self._started_at)
        self._phase = "ready"
        return True

    def _upload_outputs(self) -> None:
        """Start an upload of new outputs every ``OUTPUT_INTERVAL``: in a child, so that heartbeats go on."""
        if self._exchange.local_path is not None or self._clock() < self._upload_at:
            return
        if self._uploader is not None and self._children.code(self._uploader) is None:
            return
        if not self._has_outputs():
            return
        self._upload_at = self._clock() + self.settings.output_interval_s
        self._uploader = self._start_upload()

    def _has_outputs(self) -> bool:
        """Return whether there is anything to upload: to look elsewhere costs a process, with a client of storage."""
        return next((path for path in self._output_dir().rglob("*") if path.is_file()), None) is not None

    def _start_upload(self) -> int:
        command = [
            sys.executable,
            "-m",
            "oci_cluster",
            "upload-outputs",
            str(self._output_dir()),
            str(self._node_dir / "uploaded.json"),
        ]
        return self._children.start(command, environ=self._environ, cwd=Path("/"))

    def _ask(self, request: Callable[[], T]) -> T | _NoAnswer:
        """Return storage's answer; NO_ANSWER when it gave none, which is logged once and counted as an outage."""
        try:
            answer = request()
        except (StorageError, NotPermittedError) as error:
            if self._phase == "starting" and isinstance(error, NotPermittedError):
                raise
            if self._outage is None:
                self._outage_since = self._clock()
                # A full disk refuses writes and answers reads, in turns: once in a while is enough to say so.
                self._outage_is_said = self._outage_since >= self._say_outage_at
                if self._outage_is_said:
                    log.warning("no answer: %s; trying again", error)
                    self._say_outage_at = self._outage_since + _SAY_OUTAGE_S
            self._outage = error
            return NO_ANSWER
        if self._outage is not None:
            if self._outage_is_said:
                log.info("storage answers again after %.1f s", self._clock() - self._outage_since)
            self._outage = None
        return answer

    # --- End -----------------------------------------------------------------------------------------------

    def _tear_down(self, outcome: Outcome) -> int:
        settings = self.settings
        log.info("ending with %d: %s", outcome.exit_code, outcome.reason)
        self._phase = "stopping"
        told = not settings.is_main or (self._joined and self._tell_stop(outcome))
        if self._child is not None:
            code = self._children.end(self._child, settings.grace_period_s, wait=self._signals.wait, clock=self._clock)
            log.debug("start script ended: %s", describe(code))
        outcome = self._last_upload(outcome)
        if self._joined:
            self._say_goodbye(outcome, told=told)
        if (log_copy := self._log_copy) is not None:
            if self._joined:
                self._ask(lambda: log_copy.finish(self._exchange))
            log_copy.close()
        shutil.rmtree(self._node_dir, ignore_errors=True)
        return outcome.exit_code

    def _say_goodbye(self, outcome: Outcome, *, told: bool) -> None:
        # Main's word is worth repeating for as long as anybody would still listen to it.
        give_up = self._clock() + self.settings.heartbeat_timeout_s
        for delay in poll_delays(self.settings.poll_ceiling_s):
            told = told or self._tell_stop(outcome)
            if told and not isinstance(self._ask(lambda: self._say_exit(outcome)), _NoAnswer):
                break
            if self._clock() >= give_up or isinstance(self._outage, NotPermittedError):
                log.error("the other nodes could not be told: %s", self._outage)
                break
            self._signals.wait(delay)

    def _tell_stop(self, outcome: Outcome) -> bool:
        """Write ``stop`` unless this launch has one; return whether it is there now."""

        def tell() -> bool:
            try:
                is_told = self._exchange.read(STOP) is not None
            except SettingsError:  # a stop file of another schema is a stop file all the same
                is_told = True
            if not is_told:
                self._exchange.publish(STOP, reason=outcome.reason, exit_code=outcome.exit_code, time=now())
            return True

        return self._ask(tell) is True

    def _say_exit(self, outcome: Outcome) -> None:
        self._exchange.publish(
            exit_file(self.settings.node),
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            attempt=self._attempt,
            time=self._failed_at or time.time(),
            has_left=True,
        )
        if self.settings.is_main and self.settings.cluster_tls:
            self._exchange.remove(CERTIFICATE)

    def _last_upload(self, outcome: Outcome) -> Outcome:
        """Wait until every output is uploaded; outputs that are lost make a failure of a success."""
        if self._exchange.local_path is not None or not self._has_run or not self._has_outputs():
            return outcome
        log.info("uploading outputs")
        try:
            pid = self._start_upload()
            while (code := self._children.code(pid)) is None:
                self._signals.wait(1.0)
            failure = describe(code) if code else ""
        except OSError as error:
            failure = str(error)
        if not failure or outcome.exit_code != 0:
            return outcome
        return Outcome(ExitCode.UNAVAILABLE, f"outputs of {self.settings.node} could not be uploaded: {failure}")


def _nodes_of(main: Mapping[str, Any]) -> dict[str, Any]:
    nodes = main.get("nodes")
    return nodes if isinstance(nodes, dict) else {}


def _python_path(code_dir: Path, inherited: str) -> str:
    """Return the start script's ``PYTHONPATH``: the user's code, and what was there but for this package."""
    kept = [entry for entry in inherited.split(os.pathsep) if entry and Path(entry) != PROJECT_ROOT / "common"]
    return os.pathsep.join([str(code_dir), *kept])


def run_agent(environ: Mapping[str, str]) -> int:
    """Run this process as the agent of the node that *environ* describes; return its exit code.

    Raises:
        SettingsError: the settings do not make a node.
    """
    settings = read_settings(environ)
    log_copy = None
    if settings.node_logs:
        from oci_cluster.node_logs import OwnLog  # noqa: PLC0415 - where the backend keeps no logs by itself

        log_copy = OwnLog(settings.launch_id, settings.node)
    agent = Agent(
        settings,
        environ,
        exchange=Exchange(settings.cluster_url, settings.launch_id),
        children=Children(),
        signals=Signals(),
        log_copy=log_copy,
    )
    return agent.run()
