"""The agent: the one small process that runs on every node. ``common/README.md`` describes a node's life."""

from __future__ import annotations

import ipaddress
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from oci_cluster.address import local_addresses, pick_address
from oci_cluster.errors import (
    ClusterError,
    ExitCode,
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
from oci_cluster.liveness import MainWatch, NodesWatch, Outcome, outcome_of
from oci_cluster.process import Children, Signals, describe
from oci_cluster.settings import PROJECT_ROOT, NodeSettings, framework_defaults, node_dir, read_settings

T = TypeVar("T")
log = logging.getLogger("agent")

# Lines of READY_FILE: enough for some addresses, too few to flood `status`.
_MAX_FACTS = 32


class _NoAnswer:
    """Storage did not answer: neither yes nor no."""


NO_ANSWER: Final = _NoAnswer()


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a node.

        Args:
            settings: What the node was told.
            environ: What its start script inherits.
            exchange: The cluster dir.
            children: Starts, reaps and ends processes.
            signals: TERM and INT, and the wait that they interrupt.
            clock: Monotonic seconds.
        """
        self.settings = settings
        self._environ = environ
        self._exchange = exchange
        self._children = children
        self._signals = signals
        self._clock = clock
        self._started_at = clock()
        self._deadline = self._started_at + settings.timeout_s
        self._node_dir = node_dir(settings.launch_id, settings.node)
        self._child: int | None = None
        self._joined = False
        self._uploader: int | None = None
        self._upload_at = 0.0
        self._phase = "starting"
        self._beat = 0
        self._beat_at = 0.0
        self._outage: ClusterError | None = None
        self._outage_since = self._started_at
        self._other_launch_warned: set[str] = set()
        self._main_watch: MainWatch | None = None
        self._nodes_watch = NodesWatch(settings)

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
        address = settings.address or pick_address(local_addresses(), settings.subnet_cidr)
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
        main = self._publish_as_main(address) if settings.is_main else self._join(address)
        self._child = self._start_script(address, main)
        return self._supervise(self._child)

    def _create_cluster_dir(self) -> bool:
        self._exchange.create()
        self._joined = True
        return True

    def _publish_as_main(self, address: str) -> dict[str, Any]:
        settings = self.settings
        config: dict[str, Any] = {
            "node": settings.node,
            "rank": 0,
            "address": address,
            "tls": settings.cluster_tls,
        }
        if settings.wait_for_addresses:
            config["worker_addresses"] = self._wait_for_addresses()
        if settings.cluster_tls:
            from oci_cluster.certificate import make_certificate  # noqa: PLC0415 - only main needs it

            certificate, key = make_certificate(settings.cluster_name)
            self._hand_certificate(certificate, key)
            self._publish(CERTIFICATE, certificate=certificate, key=key)
        self._publish(config_file("MAIN"), **config)
        return config

    def _join(self, address: str) -> dict[str, Any]:
        settings = self.settings
        self._publish(config_file(settings.node), node=settings.node, rank=settings.rank, address=address)
        main = self._wait_for(config_file("MAIN"), lambda: self._exchange.read(config_file("MAIN")))
        self._main_watch = MainWatch(settings.heartbeat_timeout_s, self._clock())
        if main.get("tls"):
            pair = self._wait_for(CERTIFICATE, lambda: self._exchange.read(CERTIFICATE))
            self._hand_certificate(str(pair.get("certificate")), str(pair.get("key")))
        return main

    def _wait_for_addresses(self) -> list[str]:
        missing = list(self.settings.other_nodes)
        addresses: dict[str, str] = {}

        def look() -> bool:
            there = self._exchange.listing()
            for node in [node for node in missing if config_file(node) in there]:
                config = self._exchange.read(config_file(node))
                if config is not None:
                    addresses[node] = _checked_address(config, node)
                    missing.remove(node)
            return not missing

        self._wait_for("the configurations of the other nodes", look, lambda: f"missing: {', '.join(missing)}")
        return [addresses[node] for node in self.settings.other_nodes]

    def _wait_for(self, what: str, look: Callable[[], T | None], explain: Callable[[], str] = lambda: "") -> T:
        """Return what *look* finds, looking until ``TIMEOUT`` is over; *explain* says what is missing then."""
        for delay in poll_delays(self.settings.poll_ceiling_s):
            found = self._ask(look)
            if found and not isinstance(found, _NoAnswer):
                return found
            self._obey()
            self._look_around()
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
            "MAIN_ADDRESS": _checked_address(main, "MAIN"),
            "WORKER_ADDRESSES": ",".join(
                str(ipaddress.ip_address(str(text))) for text in main.get("worker_addresses") or ()
            ),
            "ENTRY_POINT": settings.entry_point,
            "ENTRY_ARGS_FILE": str(args_file),
            "CODE_DIR": str(settings.code_dir),
            "OUTPUT_DIR": str(output_dir),
            "NODE_DIR": str(self._node_dir),
            "READY_FILE": str(self._node_dir / "ready"),
            "TIMEOUT": str(max(1, round(self._deadline - self._clock()))),
            "EPHEMERAL": str(int(settings.ephemeral)),
            "PYTHONPATH": _python_path(settings.code_dir, self._environ.get("PYTHONPATH", "")),
        }
        if main.get("tls"):
            environ["TLS_CERT_FILE"] = str(self._node_dir / "certificate.pem")
            environ["TLS_KEY_FILE"] = str(self._node_dir / "key.pem")
        try:
            pid = self._children.start([str(script)], environ=environ, cwd=settings.code_dir)
        except OSError as error:
            msg = f"{script} cannot be started: {error}"
            raise SettingsError(msg) from error
        log.debug("started=%s pid=%d", script.name, pid)
        self._phase = "running"
        self._upload_at = self._clock() + settings.output_interval_s
        return pid

    def _output_dir(self) -> Path:
        if self.settings.output_dir:
            return Path(self.settings.output_dir)
        cluster_dir = self._exchange.local_path
        return cluster_dir / "outputs" if cluster_dir else Path("/tmp/outputs")  # noqa: S108 - a container's own

    # --- Supervision ---------------------------------------------------------------------------------------

    def _supervise(self, pid: int) -> Outcome:
        is_ready = not self.settings.is_main
        has_ended = False
        delays = poll_delays(self.settings.poll_ceiling_s)
        while True:
            self._obey()
            if not has_ended and (code := self._children.code(pid)) is not None:
                has_ended = True
                if (outcome := self._child_ended(code)) is not None:
                    return outcome
                # The cluster's end is near: look as often as at its beginning.
                delays = poll_delays(self.settings.poll_ceiling_s, first_s=0.05)
            self._look_around()
            if not is_ready:
                is_ready = self._look_for_ready()
            self._upload_outputs()
            self._signals.wait(min(next(delays), self._beat_at - self._clock()))

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
        if self._clock() < self._beat_at:
            return
        self._beat_at = self._clock() + self.settings.heartbeat_interval_s
        self._beat += 1
        self._ask(
            lambda: self._exchange.publish(heartbeat_file(self.settings.node), beat=self._beat, phase=self._phase)
        )
        if self.settings.is_main:
            there = self._ask(self._exchange.listing)
            if not isinstance(there, _NoAnswer):
                self._nodes_watch.look(there, self._clock(), self._read)
        elif self._main_watch is not None:
            heartbeat = self._ask(lambda: self._exchange.read(heartbeat_file("MAIN")))
            if isinstance(heartbeat, _NoAnswer):
                self._main_watch.look(None, self._clock(), answered=False)
            else:
                self._main_watch.look(heartbeat, self._clock(), answered=True)
            self._give_up_on_storage()

    def _read(self, name: str) -> dict[str, Any] | None:
        fields = self._ask(lambda: self._exchange.read(name))
        return None if isinstance(fields, _NoAnswer) else fields

    def _give_up_on_storage(self) -> None:
        """End a worker that has heard nothing but errors for ``TIMEOUT``: nobody else could end it."""
        if self._outage is not None and self._clock() - self._outage_since > self.settings.timeout_s:
            msg = f"no answer for {self.settings.timeout_s:g} s (TIMEOUT): {self._outage}"
            raise StorageError(msg, exit_code=self._outage.exit_code)

    def _child_ended(self, code: int) -> Outcome | None:
        """Return the outcome that the start script's end means, None where another node decides."""
        settings = self.settings
        log.debug("start script ended: %s", describe(code))
        if settings.is_main:
            what = "the entry point" if settings.ephemeral else "the service on main"
            return Outcome(code, self._own_reason() or f"{what} ended: {describe(code)}")
        if code == 0:
            # Not believed: a worker whose main has died may well leave with 0. The stop file, or main's silence, tells.
            log.info("waiting for the cluster's outcome")
            self._phase = "waiting"
            return None
        self._phase = "stopping"
        reason = self._own_reason() or f"its start script ended: {describe(code)}"
        self._ask(lambda: self._exchange.publish(exit_file(settings.node), exit_code=code, reason=reason))
        patience = self._clock() + settings.grace_period_s
        while self._clock() < patience:
            self._obey()  # raises the cluster's own outcome, when main has said it
            self._signals.wait(0.2)
        return Outcome(code, reason)

    def _own_reason(self) -> str:
        """Return why the start script says that it ended; empty where it does not."""
        path = self._node_dir / "reason"
        return printable(path.read_text(errors="replace").strip()) if path.exists() else ""

    def _look_for_ready(self) -> bool:
        ready = self._node_dir / "ready"
        if not ready.exists():
            if self._clock() >= self._deadline:
                seen = ", ".join(self._nodes_watch.seen) or "none"
                msg = f"the cluster was not ready within {self.settings.timeout_s:g} s (TIMEOUT); nodes seen: {seen}"
                raise TimedOutError(msg)
            return False
        facts = {}
        for line in ready.read_text(errors="replace").splitlines()[:_MAX_FACTS]:
            name, equals, value = line.partition("=")
            if equals:
                facts[printable(name)] = printable(value)
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
        self._upload_at = self._clock() + self.settings.output_interval_s
        self._uploader = self._start_upload()

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
                log.warning("no answer: %s; trying again", error)
            self._outage = error
            return NO_ANSWER
        if self._outage is not None:
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
        self._exchange.publish(exit_file(self.settings.node), exit_code=outcome.exit_code, reason=outcome.reason)
        if self.settings.is_main and self.settings.cluster_tls:
            self._exchange.remove(CERTIFICATE)

    def _last_upload(self, outcome: Outcome) -> Outcome:
        """Wait until every output is uploaded; outputs that are lost make a failure of a success."""
        if self._exchange.local_path is not None or self._child is None:
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


def _checked_address(config: Mapping[str, Any], node: str) -> str:
    try:
        return str(ipaddress.ip_address(str(config.get("address"))))
    except ValueError as error:
        msg = f"{config_file(node)} holds no usable address: {error}"
        raise SettingsError(msg) from error


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
    agent = Agent(
        settings,
        environ,
        exchange=Exchange(settings.cluster_url, settings.launch_id),
        children=Children(),
        signals=Signals(),
    )
    return agent.run()
