"""The verbs that people run: ``launch status list logs stop scale`` and others.

Only the standard library is imported before the launcher's own environment is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from oci_cluster.backends import open_backend
from oci_cluster.contract.cluster import Cluster
from oci_cluster.contract.parsers import parse_count, parse_duration
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import ClusterError, LostPlanError
from oci_cluster.launcher import context
from oci_cluster.launcher.args.command_line import ONE_BACKEND, CommandLine, read
from oci_cluster.launcher.context import chosen, given_settings, opened
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.system.console import is_terminal, program, say_to_stderr
from oci_cluster.system.lost_interrupts import raise_at
from oci_cluster.system.screen import screen_of

# Modules are imported by the verb that needs them: `stop` must not pay for what `launch` does.
# ruff: noqa: PLC0415
_ELSEWHERE = {
    "launch": ("launch.launch", "launch"),
    "session": ("session.session", "run_session"),
    "connect": ("connect.connect", "connect"),
    "check": ("check.check", "check"),
}


def run(verb: str, words: Sequence[str]) -> int:
    """Run one of the verbs that all backends have; return its exit code."""
    line = read(verb, words)
    heed_signals()
    if (shell := os.environ.pop("CLUSTER_SHELL", "")) and verb in {"launch", "session", "check"}:
        _end_with(int(shell))
    if verb in _ELSEWHERE:
        module, function = _ELSEWHERE[verb]
        code: int = getattr(import_module(f"oci_cluster.launcher.{module}"), function)(line)
        return code
    verbs = {"status": _status, "list": _list, "logs": _logs, "stop": _stop, "scale": _scale}
    return verbs[verb](line)


def read_equipped(verb: str, words: Sequence[str]) -> tuple[CommandLine, dict[str, str]]:
    """Return command line and settings of a *verb*, in a Python with its packages."""
    line = read(verb, words)
    heed_signals()
    if backend := ONE_BACKEND.get(verb):
        context.equip(backend)
    else:
        context.use_own_environment()
    return line, context.given_settings()


def heed_signals() -> None:
    """Have a signal end this as Ctrl-C does."""
    raise_at(signal.SIGTERM, signal.SIGHUP)


def _end_with(shell: int) -> None:
    """Have this process told to stop when the script's *shell* is killed (Linux)."""
    from oci_cluster.system.process import die_with_parent

    die_with_parent(signal.SIGTERM)
    if os.getppid() != shell:  # that was just now
        raise KeyboardInterrupt


def _status(line: CommandLine) -> int:
    from oci_cluster.launcher.show.report import status_text, tell_and_keep

    lifecycle, cluster = chosen(line, is_looking=True)
    found = tell_and_keep(lifecycle.backend, cluster, lifecycle.states(cluster))
    print(json.dumps(found, indent=2) if line.has("--json") else status_text(found, screen_of(sys.stdout, os.environ)))
    return 0


def _list(line: CommandLine) -> int:
    from oci_cluster.launcher.show.report import is_over, list_text, overview

    backend = opened(line, is_looking=True)
    clusters = backend.find()
    states = backend.states(clusters)
    for cluster in clusters:
        backend.keep_end(cluster, states[cluster.launch_id])
    found = [overview(backend, cluster, states[cluster.launch_id]) for cluster in clusters]
    shown = [cluster for cluster in found if line.has("--all") or not is_over(cluster) or "held" in cluster]
    print(json.dumps(shown, indent=2) if line.has("--json") else list_text(shown, screen_of(sys.stdout, os.environ)))
    return 0


def _logs(line: CommandLine) -> int:
    from oci_cluster.launcher.show.logs import Shown, view_logs
    from oci_cluster.system.process import Signals

    lines, follows = line.parsed("--tail", parse_count), line.has("-f", "--follow")
    lifecycle, cluster = chosen(line, is_looking=not follows)
    shown = Shown(line.value("--node"), lines, follows, is_terminal(sys.stdout, os.environ))
    with contextlib.closing(lifecycle.backend) as backend:
        signals = Signals(children=False, outlives_terminal=True)
        view_logs(backend, cluster, shown, out=sys.stdout, signals=signals, say=lifecycle.say)
    return 0


def _stop(line: CommandLine) -> int:
    older_than_s = line.parsed("--older-than", parse_duration) or 0.0
    with contextlib.closing(opened(line)) as backend:
        lifecycle = Lifecycle(backend, PROJECT_ROOT, say_to_stderr(program()))
        if line.has("--ended", "--older-than"):
            clusters = lifecycle.choose_all(ended=line.has("--ended"), older_than_s=older_than_s)
        else:
            chosen = [lifecycle.choose(name) for name in line.words or [""]]
            clusters = list({cluster.launch_id: cluster for cluster in chosen}.values())
        for cluster in clusters:
            with contextlib.suppress(LostPlanError):  # it is ended without
                backend.load(cluster)  # one that cannot be stopped is told before any is
        return _stop_each(clusters, lifecycle, delete=line.has("--delete"))


def _stop_each(clusters: Sequence[Cluster], lifecycle: Lifecycle, *, delete: bool) -> int:
    code = 0
    for cluster in clusters:
        try:
            lifecycle.stop(cluster, delete=delete)
        except ClusterError as error:
            if len(clusters) == 1:
                raise
            lifecycle.say(f"error: {cluster.name}: {error}")
            code = code or error.exit_code
        else:
            print(cluster.name, flush=True)
    return code


def _scale(line: CommandLine) -> int:
    lifecycle, cluster = chosen(line)
    with contextlib.closing(lifecycle.backend):
        print(lifecycle.scale(cluster, line.words[1]))
    return 0


def end_orphan(backend_name: str, cluster_id: str, own: str = "", reason: str = "") -> None:
    """End the cluster that nobody follows any more, if it is there.

    *own* is the file descriptor of its launcher's own settings; empty: it had none.
    """
    from oci_cluster.launcher.launch.cluster_reaper import read_own

    given = {**given_settings(), **(read_own(int(own)) if own else {})}
    with contextlib.closing(open_backend(backend_name, PROJECT_ROOT, given, lambda: False)) as backend:
        lifecycle = Lifecycle(backend, PROJECT_ROOT, say_to_stderr(program()))
        lifecycle.stop(lifecycle.choose_orphan(cluster_id), reason=reason or "its launcher was killed")
