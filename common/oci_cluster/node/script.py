"""The start script of this node: its environment, start, words and end."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import re
import secrets
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oci_cluster.contract.names import config_file, link_node_dir, rank_of
from oci_cluster.contract.outcome import Outcome
from oci_cluster.contract.parsers import no_profiler
from oci_cluster.contract.session import client_token, session_token, verifier_of
from oci_cluster.contract.settings.node import NodeSettings
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT, framework_defaults
from oci_cluster.errors import ExitCode, SettingsError, TimedOutError
from oci_cluster.node.begin.address import interface_of
from oci_cluster.node.failure_detector import is_member
from oci_cluster.node.loop import NodeLoop
from oci_cluster.system.files import write_whole
from oci_cluster.system.process import Children, describe
from oci_cluster.system.redaction import HIDDEN
from oci_cluster.system.text import printable

if TYPE_CHECKING:
    from oci_cluster.node.gpus import OwnGpus
    from oci_cluster.node.hang_detector import Standstill
    from oci_cluster.node.logs.pump import LogPump

log = logging.getLogger("agent")

_STDERR = 2
# How a launcher of ranks says which of them it was.
_RANK = re.compile(r"rank (\d+)")
# With which Python ends a script: for an error or a text, and for arguments that it does not take. Others are chosen.
_USUAL = {1, 2}
# Of the note of an error: a message has 4,000 characters at most, and a hundred frames.
_LONGEST_NOTE = 1 << 16
# A shorter one stands in any text.
_LEAST_SECRET = 4
# Enough for addresses, ports and keys, too few to flood a log or a start script.
MAX_FACTS = 32
_FACT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def parse_facts(text: str) -> dict[str, str]:
    """Return the ``name=value`` lines of *text*, fit for a terminal."""
    facts = {}
    for line in text.splitlines()[:MAX_FACTS]:
        name, equals, value = line.partition("=")
        if equals:
            facts[printable(name)] = printable(value)
    return facts


def checked_address(config: Mapping[str, Any], node: str) -> str:
    """Return the address in *node*'s configuration."""
    text = str(config.get("address"))
    try:
        if "%" in text:  # the scope of an IPv6 address: any text at all, and of no meaning on another node
            raise ValueError(f"{text!r} has a scope")
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise SettingsError(f"{config_file(node)} holds no usable address: {error}") from error


class NodesDir:
    """The directory ``NODES_DIR``: a file for each node that is present, ``name=value`` lines."""

    def __init__(self, path: Path) -> None:
        """Keep the files in *path*, which is made with the first of them."""
        self.path = path

    def put(self, node: str, config: Mapping[str, Any]) -> None:
        """Write what *config* says of *node*, whole."""
        facts = config.get("facts")
        lines = [f"rank={rank_of(node)}", f"address={checked_address(config, node)}"]
        for name, value in list(facts.items())[:MAX_FACTS] if isinstance(facts, dict) else ():
            if _FACT_NAME.fullmatch(str(name)):
                lines.append(f"fact_{name}={printable(value)}")
        self.path.mkdir(mode=0o700, exist_ok=True)
        write_whole(self.path / node, "\n".join(lines) + "\n")

    def remove(self, node: str) -> None:
        """Remove *node*'s file; one that is not there is as good as removed."""
        (self.path / node).unlink(missing_ok=True)


class Script:
    """The framework's start script, run once for each attempt; see ``common/README.md``."""

    def __init__(
        self,
        settings: NodeSettings,
        environ: Mapping[str, str],
        *,
        children: Children,
        loop: NodeLoop,
        node_dir: Path,
        log_pump: LogPump | None = None,
    ) -> None:
        self._settings, self._environ = settings, environ
        self._children = children
        self._loop = loop
        self.node_dir = node_dir
        self._log_pump = log_pump
        self._pid: int | None = None
        self._is_over = False
        self._members: str | None = None
        self._standstill: Standstill | None = None
        self._gpus = self._own_gpus()
        #: A standstill of this node, as the last heartbeat has told it.
        self.standstill: Mapping[str, Any] = {}
        #: Variables of scripts alone: this process and its other children do not have them.
        self.secrets: Mapping[str, str] = {}
        #: When it was started last, on the monotonic clock.
        self.started_at = 0.0
        self.nodes_dir = NodesDir(node_dir / "nodes")
        self._facts_script = settings.framework_dir / "node-facts.sh"
        self._own_outputs = node_dir / "outputs"
        local_path = loop.cluster_dir.local_path
        self.output_dir = Path(settings.output_dir or (local_path / "outputs" if local_path else self._own_outputs))

    # --- Facts ---------------------------------------------------------------------------------------------

    @property
    def has_facts(self) -> bool:
        """True if the framework has facts about each node for the others."""
        return self._facts_script.exists()

    def facts(self, address: str) -> dict[str, str]:
        """Return the framework's facts about this node, for the others; runs its ``node-facts.sh``."""
        if not self.has_facts:
            return {}
        name, path = self._facts_script.name, self.node_dir / "facts"
        with path.open("wb") as output:
            pid = self._start_child([str(self._facts_script)], self._basic_environ(address), output=output.fileno())
        try:
            while (code := self._children.code(pid)) is None:
                self._loop.raise_if_ended()
                if (left_s := self._loop.left_s) <= 0:
                    raise TimedOutError(f"{name} did not end within {self._settings.timeout_s:g} s (TIMEOUT)")
                self._loop.wait(min(1.0, left_s))
        finally:
            self._end_child(pid, self._loop.wait)
        if code:
            raise SettingsError(self._said("reason") or f"{name} ended: {describe(code)}", exit_code=code)
        return parse_facts(path.read_text(errors="replace"))

    # --- Start ---------------------------------------------------------------------------------------------

    def hand_certificate(self, certificate: str, key: str) -> None:
        """Write the certificate and key to files that only this user can read."""
        write_whole(self.node_dir / "certificate.pem", certificate)
        write_whole(self.node_dir / "key.pem", key)

    def hand_encrypted(self, certificate: str, key: str, passphrase: bytes) -> None:
        """Write both for an encrypted *key*.

        A copy of this process opens it: that takes 8 MB, which the agent of a worker needs for nothing else.
        """

        def hand() -> int:
            from oci_cluster.contract.files.certificate import decrypted  # noqa: PLC0415 - the copy has it, and ends

            self.hand_certificate(certificate, decrypted(key, passphrase))
            return 0

        pid = self._children.fork(
            hand, name="open key", cwd=self.node_dir, output=_STDERR, parent_death_signal=signal.SIGKILL
        )
        while (code := self._children.code(pid)) is None:
            self._loop.wait(1.0)
        if code:
            raise SettingsError(
                f"the key of the launch's certificate cannot be opened: {describe(code)}; the log says why"
            )

    def hand_members(self, nodes: Sequence[str]) -> None:
        """Tell main's script the nodes that have not left, one a line."""
        text = "".join(f"{node}\n" for node in nodes)
        if text != self._members:
            write_whole(self.node_dir / "members", text)
            self._members = text

    def start(self, address: str, main: Mapping[str, Any]) -> None:
        """Start it for the attempt that *main*'s configuration describes, on this node's *address*."""
        name = "start-master.sh" if self._settings.is_main else "start-worker.sh"
        said = ("ready", "scale-request", "reason", "entry-pid", "entry-point-ended", "entry-point-printed")
        left = (path for pattern in ("uncaught-*", "stack-*") for path in self.node_dir.glob(pattern))
        for path in [*(self.node_dir / name for name in said), *left]:
            path.unlink(missing_ok=True)
        self._hand_profile_cmd()
        if self._log_pump is not None:
            self._log_pump.forget()
        environ = {**self._basic_environ(address), **self._peers(main), "MAIN_ADDRESS": checked_address(main, "MAIN")}
        environ |= _ads_environ(self._settings, environ)
        if main.get("tls"):
            environ["TLS_CERT_FILE"] = str(self.node_dir / "certificate.pem")
            environ["TLS_KEY_FILE"] = str(self.node_dir / "key.pem")
        self._pid = self._start_child([str(self._settings.framework_dir / name)], environ)
        self._is_over = False
        self.started_at = self._loop.clock()
        self._standstill = self._watch_standstill()

    def _hand_profile_cmd(self) -> None:
        """Have `run_entry_point` put ``PROFILE_CMD`` before the entry point's command."""
        words = self._settings.profile_cmd
        if words and shutil.which(words[0], path=self._environ.get("PATH")) is None:
            raise SettingsError(no_profiler(words[0]))
        (self.node_dir / "profile-cmd").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))

    def _basic_environ(self, address: str) -> dict[str, str]:
        settings, node_dir = self._settings, self.node_dir
        args_file = node_dir / "entry-args"
        args_file.write_bytes(b"".join(os.fsencode(arg) + b"\0" for arg in settings.entry_args))
        is_own = self.output_dir == self._own_outputs
        self.output_dir.mkdir(mode=0o700 if is_own else 0o777, parents=True, exist_ok=True)
        environ = {
            **framework_defaults(settings.framework_dir),
            **self._environ,
            **self.secrets,
            "MODE": settings.mode,
            "NODE_NAME": settings.node,
            "NODE_RANK": str(settings.rank),
            "WORKER_COUNT": str(settings.worker_count),
            "PS_COUNT": str(settings.ps_count),
            "MIN_WORKERS": str(settings.min_workers),
            "CLUSTER_NAME": settings.cluster_name,
            "LAUNCH_ID": settings.launch_id,
            "LAUNCH_KEY": self._launch_key(),
            "NODE_ADDRESS": address,
            # A network of its own has a loopback that is nobody else's, and to which ports are forwarded.
            "LISTEN_ADDRESS": "0.0.0.0" if settings.own_network else address,  # noqa: S104 - see above
            "EXPOSED_PORTS": " ".join(map(str, settings.expose)),
            "ENTRY_POINT": settings.entry_point or settings.entry_module,
            "ENTRY_MODULE": settings.entry_module,
            "ENTRY_ARGS_FILE": str(args_file),
            "CODE_DIR": str(self._working_dir()),
            "OUTPUT_DIR": str(self.output_dir),
            "NODE_DIR": str(node_dir),
            "SHORT_NODE_DIR": str(link_node_dir(node_dir)),
            "CLIENT_DIR": self._environ.get("CLIENT_DIR", str(node_dir)),
            "NODES_DIR": str(self.nodes_dir.path),
            "READY_FILE": str(node_dir / "ready"),
            "TIMEOUT": str(max(1, round(self._loop.left_s))),
            "GRACE_PERIOD": _seconds(settings.grace_period_s),
            "ATTEMPT": str(self._loop.attempt),
            "LIFE": str(self._loop.life_number),
            "EPHEMERAL": str(int(settings.ephemeral)),
            "PYTHONPATH": _python_path(settings, self._working_dir(), self._environ.get("PYTHONPATH", "")),
        }
        if settings.session and settings.is_main:
            own = verifier_of(session_token(settings.launch_key, settings.launch_id))
            write_whole(node_dir / "session-verifier", settings.session_verifier or own)
            environ["IDLE_LIMIT"] = _seconds(settings.idle_limit_s)
        if settings.client_token:
            write_whole(node_dir / "client-token", client_token(settings.launch_key, settings.launch_id))
        if settings.find_interface:
            environ["NODE_INTERFACE"] = interface_of(address)
        return environ

    def _launch_key(self) -> str:
        """Return the key that scripts sign with: another one in each life."""
        key, life = self._settings.launch_key, self._loop.cluster_dir.life
        return hmac.digest(key.encode(), f"life {life}".encode(), "sha256").hex() if key and life else key

    def _working_dir(self) -> Path:
        """Return the working directory of scripts: the code, or links to it."""
        settings, own = self._settings, self.node_dir / "working"
        if not settings.output_folders:
            return settings.code_dir
        if not own.exists():
            make_working_dir(own, settings.code_dir, settings.output_folders, self.output_dir)
        return own

    def _peers(self, main: Mapping[str, Any]) -> dict[str, str]:
        """Return the addresses of all nodes, where this framework needs them."""
        settings = self._settings
        if not settings.wait_for_addresses:
            return {}
        nodes = {str(node): text for node, text in addresses_in(main).items() if is_member(str(node))}
        addresses = {node: checked_address({"address": text}, node) for node, text in nodes.items()}
        same_role = [node for node in addresses if node.startswith(settings.mode)] or [settings.node]
        return {
            "WORKER_ADDRESSES": ",".join(text for node, text in addresses.items() if node.startswith("WORKER")),
            "PS_ADDRESSES": ",".join(text for node, text in addresses.items() if node.startswith("PS")),
            "ROLE_INDEX": str(same_role.index(settings.node)) if settings.node in same_role else "",
        }

    def _start_child(self, command: list[str], environ: Mapping[str, str], output: int | None = None) -> int:
        try:
            pid = self._children.start(command, environ=environ, cwd=self._working_dir(), output=output, errors=_STDERR)
        except OSError as error:
            raise SettingsError(f"{command[0]} cannot be started: {error}") from error
        log.debug("started=%s pid=%d", command[0], pid)
        return pid

    def _watch_standstill(self) -> Standstill | None:
        """Return what notices a standstill from now on, if somebody wants it."""
        settings, log_pump = self._settings, self._log_pump
        is_usual = settings.session or not settings.ephemeral
        if not settings.silence_timeout_s or is_usual or log_pump is None or sys.platform != "linux":
            return None
        from oci_cluster.node.hang_detector import Standstill  # noqa: PLC0415 - where it is asked for

        printed_at, clock = log_pump.printed_at, self._loop.clock
        return Standstill(settings.silence_timeout_s, self.node_dir, self._places, printed_at=printed_at, clock=clock)

    def _own_gpus(self) -> OwnGpus | None:
        """Return what lists this node's GPUs; None where there can be none."""
        program = shutil.which("nvidia-smi", path=self._environ.get("PATH", ""))
        if program is None or self._environ.get("CUDA_VISIBLE_DEVICES") == "":
            return None
        from oci_cluster.node.gpus import OwnGpus  # noqa: PLC0415 - where there may be some

        children, clock = self._children, self._loop.clock
        return OwnGpus(program, self._environ, self.node_dir / "gpus", children=children, clock=clock)

    # --- What it says --------------------------------------------------------------------------------------

    @property
    def _places(self) -> list[Path]:
        code_dir = self._settings.code_dir
        return [code_dir, (code_dir / (self._settings.entry_point or ".")).parent]

    def told(self) -> Mapping[str, Any]:
        """Return what a heartbeat tells of this node: its GPUs, and a standstill."""
        # A main without an entry point waits for other nodes, for which there is TIMEOUT.
        has_begun = not self._settings.is_main or (self.node_dir / "entry-pid").exists()
        is_watched = self._standstill is not None and has_begun and not self._is_over
        self.standstill = self._standstill.told() if self._standstill is not None and is_watched else {}
        return {**(self._gpus.told() if self._gpus else {}), **self.standstill}

    def ready(self) -> dict[str, str] | None:
        """Return the facts of a cluster that is ready; None while it is not."""
        path = self.node_dir / "ready"
        return parse_facts(path.read_text(errors="replace")) if path.exists() else None

    def outcome(self, code: int, what: str) -> Outcome:
        """Return what it means that the script ended by itself with *code*.

        The reason is its own, the error it printed, or that *what* ended. An entry point that a signal ended has had no
        last words; what it printed before was something else.
        """
        is_unasked = code == ExitCode.STOPPED
        if reason := self._said("reason"):
            return Outcome(code, reason, is_unasked=is_unasked)
        how = self._said("entry-point-ended")
        if 0 < code <= 128:
            from oci_cluster.node.logs.last_error import last_error, uncaught_error  # noqa: PLC0415 - where something has failed

            places = self._places
            rank = _RANK.match(how)
            node, printed = self._printed()
            is_entry = any((self.node_dir / name).exists() for name in ("entry-pid", "entry-point-printed"))
            uncaught = uncaught_error(self._uncaught(), places)
            error = (uncaught and uncaught.text) or last_error(
                printed, places, rank=rank[1] if rank else "", only_errors=not is_entry
            )
            if error:
                how = how or ("" if code in _USUAL else describe(code))
                is_own = uncaught is not None and uncaught.is_own
                return Outcome(code, f"{node}: {error}" + (f"; {how}" if how else ""), is_own_error=is_own)
        # A shell passes on what it has waited for: which of both it was, nobody knows.
        ended = f"exit code {code}, as after SIGTERM; nobody has stopped the cluster" if is_unasked else describe(code)
        return Outcome(code, how or f"{what} ended: {ended}", is_unasked=is_unasked)

    def _uncaught(self) -> bytes:
        """Return the error that the entry point's Python has noted, if any."""
        if (self.node_dir / "entry-point-printed").exists():  # it was another one
            return b""
        try:
            pid = int((self.node_dir / "entry-pid").read_text())
            path = self.node_dir / f"uncaught-{pid}"
            note = path.read_bytes()[:_LONGEST_NOTE] if path.is_file() else b""
            return self._hide(note.decode(errors="replace")).encode()
        except (OSError, ValueError):
            return b""

    def _printed(self) -> tuple[str, str]:
        path = self.node_dir / "entry-point-printed"
        if path.exists():
            node, _, printed = path.read_text(errors="replace").partition("\n")
            return printable(node, 80), self._hide(printed)
        return self._settings.node, self._hide(self._log_pump.tail()) if self._log_pump is not None else ""

    def _said(self, name: str) -> str:
        path = self.node_dir / name
        return printable(self._hide(path.read_text(errors="replace").strip())) if path.exists() else ""

    def _hide(self, text: str) -> str:
        """Return *text* without the secrets that the script was given: others see reasons."""
        for secret in map(str.strip, self.secrets.values()):
            text = text.replace(secret, HIDDEN) if len(secret) >= _LEAST_SECRET else text
        return text

    # --- End -----------------------------------------------------------------------------------------------

    def count_own_outputs(self) -> int:
        """Return how many files go with this node's directory."""
        own = self._own_outputs.rglob("*") if self.output_dir == self._own_outputs else ()
        return sum(path.is_file() and not path.is_symlink() for path in own)

    def rescue_outputs(self) -> Path:
        """Return where outputs stay after this node, outside its private directory."""
        if self.output_dir == self._own_outputs and self.output_dir.is_dir():
            # Beside it, where a full disk has room for a name.
            name = f"{self.node_dir.name}-outputs-{secrets.token_hex(4)}"
            self.output_dir = self.output_dir.rename(self.node_dir.with_name(name))
        return self.output_dir

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last one started, once it has ended."""
        return None if self._pid is None else self._children.code(self._pid)

    def newly_ended(self) -> int | None:
        """Return its exit code when it has ended by itself, once."""
        if self._is_over or (code := self.exit_code) is None:
            return None
        self._is_over = True
        log.debug("start script ended: %s", describe(code))
        return code

    def end(self, wait: Callable[[float], None]) -> None:
        """End it and its children: TERM, ``GRACE_PERIOD``, KILL; *wait* waits seconds."""
        if self._pid is not None:
            code = self._end_child(self._pid, wait)
            log.debug("start script ended: %s", describe(code))
            self._pid = None

    def _end_child(self, pid: int, wait: Callable[[float], None]) -> int:
        return self._children.end(pid, self._settings.grace_period_s, wait=wait, clock=self._loop.clock)


def make_working_dir(target: Path, code_dir: Path, folders: Sequence[str], output_dir: Path) -> None:
    """Make *target* show *code_dir*, with its *folders* in *output_dir*."""
    target.mkdir()
    inner: dict[str, list[str]] = {}
    for folder in folders:
        head, _, rest = folder.partition("/")
        inner.setdefault(head, []).append(rest)
    if code_dir.is_dir():
        for path in code_dir.iterdir():
            if path.name not in inner:
                (target / path.name).symlink_to(path)
    for head, rests in inner.items():
        if "" in rests:  # the folder itself, and so all that is in it
            (output_dir / head).mkdir(parents=True, exist_ok=True)
            (target / head).symlink_to(output_dir / head)
        else:
            make_working_dir(target / head, code_dir / head, rests, output_dir / head)


def addresses_in(main: Mapping[str, Any]) -> dict[str, Any]:
    """Return the addresses by node in *main*'s configuration, unchecked; {} where it holds none."""
    nodes = main.get("nodes")
    return nodes if isinstance(nodes, dict) else {}


def _ads_environ(settings: NodeSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables of *environ* under ADS's names, for scripts written for it.

    Not ``RANK``, which ADS gives too: where nothing else is set, libraries take it for a rank of PyTorch's.
    """
    own_address = {} if settings.is_main else {"OCI__WORKER_IP": environ["NODE_ADDRESS"]}
    return {
        "OCI__CLUSTER_TYPE": settings.framework.upper(),
        "OCI__ENTRY_SCRIPT": environ["ENTRY_POINT"],
        "OCI__ENTRY_SCRIPT_ARGS": shlex.join(settings.entry_args),
        "OCI__MAIN_IP": environ["MAIN_ADDRESS"],
        "OCI__SYNC_DIR": environ["OUTPUT_DIR"],
        "OCI__WORK_DIR": settings.work_dir,
        "tmpdir": settings.cluster_url,
        **own_address,
        **{
            f"OCI__{name}": environ[name]
            for name in ("CODE_DIR", "EPHEMERAL", "MODE", "PS_COUNT", "TIMEOUT", "WORKER_COUNT")
        },
    }


def _seconds(value: float) -> str:
    return f"{value:f}".rstrip("0").rstrip(".")


def _python_path(settings: NodeSettings, code_dir: Path, inherited: str) -> str:
    """Return the start script's ``PYTHONPATH``: the user's code, without this package."""
    # Python looks in a script's own folder first. What workers unpickle may have been imported from there.
    is_own = bool(settings.entry_point) and not settings.session
    folder = (code_dir / settings.entry_point).parent if is_own else code_dir
    kept = [entry for entry in inherited.split(os.pathsep) if entry and Path(entry) != PROJECT_ROOT / "common"]
    return os.pathsep.join(dict.fromkeys([str(folder), str(code_dir), *kept]))
