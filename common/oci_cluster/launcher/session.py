"""The verb ``session``: a cluster whose main runs a server for one person, with limits on its time."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.config import PROJECT_ROOT, SettingsReader, framework_defaults, framework_dir, read_config
from oci_cluster.contract.session import TOKEN_FILE, verifier_of
from oci_cluster.contract.settings_table import FLAGS
from oci_cluster.errors import UsageError
from oci_cluster.launcher.beside import variables_beside
from oci_cluster.launcher.command_line import OPTIONS, CommandLine
from oci_cluster.launcher.kinds import SETTING, Kind, read_kind
from oci_cluster.launcher.launch import launch
from oci_cluster.launcher.opening import open_named
from oci_cluster.launcher.packages import packages_of
from oci_cluster.launcher.planning import Request, make_plan
from oci_cluster.launcher.session_policy import check_policy
from oci_cluster.launcher.variables import plain_names, variables_of
from oci_cluster.system.console import program, say_to_stderr

if TYPE_CHECKING:
    from oci_cluster.backends.base import Backend

# A day's work, and a long lunch: what nobody uses any more costs no longer.
_LIMITS = {"TTL": "8h", "IDLE_LIMIT": "1h"}
# Options that give a setting.
_SETTINGS = {
    **{flag: setting for setting, flag in FLAGS.items() if f"{flag}=" in OPTIONS["session"]},
    "--idle": "IDLE_LIMIT",
}
# A public key as ssh-keygen writes it: its kind, the key, and a comment that nobody needs.
_PUBLIC_KEY = re.compile(r"((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]{3,60} [A-Za-z0-9+/]{40,20000}={0,3})(?:[ \t].*)?")
_PUBLIC_KEYS = "~/.ssh/id_*.pub"


def run_session(line: CommandLine) -> int:
    """Launch a session, tell how to reach it, and follow it to its end; return its exit code.

    Raises:
        ClusterError: what is said to the person.
    """
    kind = read_kind(PROJECT_ROOT, line.words[0])
    session = _Session(line, kind)
    session.check()
    if line.has("--in"):
        session.beside = variables_beside(line, kind)
    code = launch(line, session.plan, session.attend)
    if code == 0 and line.has("--detach"):
        say_to_stderr(program())(f"connect.sh {session.name} prints how to reach it; it {session.limits}")
    return code


@dataclass
class _Session:
    """What was asked for, and what has become of it."""

    line: CommandLine
    kind: Kind
    beside: Mapping[str, str] = field(default_factory=dict)
    """What main is given of the cluster that it is beside."""
    name: str = ""
    limits: str = ""
    """When it ends by itself, in words."""

    def check(self) -> None:
        """Refuse what this kind has no use for."""
        line, kind = self.line, self.kind
        if line.has("--in") and not kind.beside:
            raise UsageError(
                f"--in: a session of {kind.name} is not beside a cluster; connect.sh reaches the ports of one"
            )
        if line.has("--key") and not _is_ssh(kind):
            raise UsageError(f"--key is for sessions of ssh; {kind.name} is reached by a token: leave it out")
        if line.has("--open") and (not kind.url or line.has("--detach")):
            why = "no browser opens it" if not kind.url else "with --detach nobody waits for it: connect.sh NAME --open"
            raise UsageError(f"--open: {kind.name}: {why}")

    def plan(self, line: CommandLine, backend: Backend) -> Plan:
        """Return the plan of the session, which the policy allows."""
        framework, workers = line.value("--framework", "dask"), line.value("--workers", "0")
        environment = variables_of(line.typed, os.environ, Path.cwd())
        python = line.value("--python")
        request = Request(
            framework,
            workers,
            backend.name,
            self._settings(environment, workers),
            environment,
            plain_names(line.typed),
            [],
            python,
            packages_of(line.given.get("--with", []), python),
            self._given_to_main(environment),
        )
        say, most = say_to_stderr(program()), backend.max_workers
        plan = make_plan(request, os.environ, root=PROJECT_ROOT, cwd=Path.cwd(), max_workers=most, say=say)
        self._check_workers(plan)
        check_policy(plan, PROJECT_ROOT)
        if backend.shows_key:
            token = secrets.token_hex(32)
            told = {**plan.environment, "SESSION_VERIFIER": verifier_of(token)}
            plan = replace(plan, environment=told, kept={TOKEN_FILE: token})
        self.name = plan.name
        ttl, idle = plan.environment.get("TTL", "0"), plan.environment.get("IDLE_LIMIT", "0")
        ends = [f"after {ttl}"] if ttl != "0" else []
        ends += [f"after {idle} without use"] if idle != "0" else []
        self.limits = f"ends {', or '.join(ends)}" if ends else "does not end by itself"
        return plan

    def _settings(self, environment: list[str], workers: str) -> dict[str, str]:
        """Return the settings that options give, and those that a session has where nobody gives others."""
        line = self.line
        settings = {setting: line.value(option) for option, setting in _SETTINGS.items() if line.has(option)}
        if len(line.words) == 2:
            settings["CLUSTER_NAME"] = line.words[1]
        typed = dict(pair.partition("=")[::2] for pair in environment)
        chosen = SettingsReader(settings, typed, os.environ, read_config(PROJECT_ROOT))
        settings |= {name: text for name, text in _LIMITS.items() if not chosen.text(name)}
        # Main alone is enough; a framework's own minimum is meant for training.
        return {**settings, "EPHEMERAL": "1", **({"MIN_WORKERS": "0"} if workers.strip("0") == "" else {})}

    def _given_to_main(self, environment: list[str]) -> dict[str, str]:
        typed = dict(pair.partition("=")[::2] for pair in environment)
        own = {name: typed.get(name, text) for name, text in self.kind.settings.items()}
        keys = {"SSH_AUTHORIZED": ",".join(public_keys(self.line.given.get("--key", [])))} if _is_ssh(self.kind) else {}
        return {**own, **keys, **self.beside, SETTING: self.kind.name}

    def _check_workers(self, plan: Plan) -> None:
        """Refuse workers where all nodes run the entry point: a session is on main alone."""
        defaults = framework_defaults(framework_dir(plan.framework, PROJECT_ROOT))
        runs_on_all = defaults.get("ENTRY_ON") == "all" or defaults.get("GANG") == "1"
        if runs_on_all and len(plan.nodes) > 1:
            raise UsageError(
                f"--workers: a session of {plan.framework} is main alone; workers are for --framework dask"
            )

    @contextlib.contextmanager
    def attend(self, cluster: Cluster, plan: Plan) -> Iterator[Callable[[], None]]:
        """Tell how the session is reached, when it is ready."""
        from oci_cluster.launcher.session_door import Door  # noqa: PLC0415 - what only this needs

        say = say_to_stderr(program())
        say(f"a session of {self.kind.name}, which {self.limits}; Ctrl-C ends it")
        opens = self.line.has("--open")
        door = Door(
            lambda is_stopped: open_named(self.line, is_stopped), self.kind, cluster, plan, opens=opens, say=say
        )
        try:
            yield door.ready
        finally:
            door.close()


def _is_ssh(kind: Kind) -> bool:
    return "{ssh_config}" in kind.command


def public_keys(files: list[str]) -> list[str]:
    """Return the public keys in *files*, or those that the user has in ``~/.ssh``, without their comments.

    Raises:
        UsageError: there is none, or a file holds none.
    """
    home = Path("~/.ssh").expanduser()
    paths = [Path(file).expanduser() for file in files] or sorted(home.glob("id_*.pub"))
    if not paths:
        raise UsageError(
            f"there is no {_PUBLIC_KEYS}; make a key with ssh-keygen -t ed25519, or name one: --key FILE.pub"
        )
    return [_public_key(path) for path in paths]


def _public_key(path: Path) -> str:
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise UsageError(
            f"--key {path} cannot be read: {error.strerror}; name the file with your public key, such as id_ed25519.pub"
        ) from error
    if "PRIVATE KEY" in text:
        raise UsageError(f"--key {path} is a private key, which stays with you; name the public one: {path}.pub")
    if not (found := _PUBLIC_KEY.fullmatch(text.strip())):
        raise UsageError(
            f"--key {path} holds no single public key as ssh-keygen writes it, such as 'ssh-ed25519 AAAA... me@here'"
        )
    return found[1]
