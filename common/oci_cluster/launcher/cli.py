"""The verbs that people run, from the words of a command line to what they see: ``launch status list logs stop scale``.

Each script of that name is its header, which is the help, and a call of the verb here. Only the standard library is
imported before the launcher's own environment is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from oci_cluster.backends import open_backend
from oci_cluster.contract.config import PROJECT_ROOT
from oci_cluster.contract.settings_table import FLAGS
from oci_cluster.errors import ClusterError, ExitCode, LostPlanError, StoppedError
from oci_cluster.launcher.command_line import OPTIONS, CommandLine, check_words, parse
from oci_cluster.launcher.hints import hints
from oci_cluster.launcher.lifecycle import Lifecycle, started
from oci_cluster.launcher.opening import chosen, continue_in, equip, given_settings, open_named, opened
from oci_cluster.launcher.packages import packages_of
from oci_cluster.launcher.planning import Request, make_plan
from oci_cluster.launcher.variables import plain_names, variables_of
from oci_cluster.system.console import LastingOutput, Say, discard, is_terminal, program, say_to_stderr
from oci_cluster.system.interrupts import raise_at
from oci_cluster.system.python_env import ensure_tools
from oci_cluster.system.redaction import redact
from oci_cluster.system.screen import screen_of

if TYPE_CHECKING:
    from oci_cluster.backends.base import Backend, LogCopy
    from oci_cluster.contract.cluster import Cluster, Plan
    from oci_cluster.launcher.logs import MergedLogs, Output
    from oci_cluster.system.process import Signals

# Makes the plan that a command line asks for.
PlanOf: TypeAlias = "Callable[[CommandLine, Backend], Plan]"
# What is done while a cluster is followed; what it yields is called when that is ready.
Attend: TypeAlias = "Callable[[Cluster, Plan], AbstractContextManager[Callable[[], None]]]"

# Modules are imported by the verb that needs them: `stop` must not pay for what `launch` does.
# ruff: noqa: PLC0415

# Options of `launch` that give a setting.
_SETTINGS = {flag: setting for setting, flag in FLAGS.items() if f"{flag}=" in OPTIONS["launch"]}


def run(verb: str, words: Sequence[str]) -> int:
    """Run one of the verbs that all backends have; return its exit code.

    Raises:
        ClusterError: what is said to the person.
    """
    line = parse(verb, words)
    check_words(verb, line)
    heed_signals()
    if (shell := os.environ.pop("CLUSTER_SHELL", "")) and verb in {"launch", "session", "check"}:
        _end_with(int(shell))
    verbs = {
        "launch": launch,
        "session": _session,
        "status": _status,
        "list": _list,
        "logs": _logs,
        "stop": _stop,
        "scale": _scale,
        "connect": _connect,
        "check": _check,
    }
    return verbs[verb](line)


def heed_signals() -> None:
    """Have a signal end this as Ctrl-C does."""
    raise_at(signal.SIGTERM, signal.SIGHUP)


def _end_with(shell: int) -> None:
    """Have this process told to stop when the script's *shell*, which passes signals on to it, is killed (Linux)."""
    from oci_cluster.system.process import die_with_parent

    die_with_parent(signal.SIGTERM)
    if os.getppid() != shell:  # that was just now
        raise KeyboardInterrupt


# --- launch ---------------------------------------------------------------------------------------------------------


class _Interrupt:
    """What a signal does to a launch: it ends the steps that start nothing; from :meth:`note` on it is only noted."""

    signals: Signals | None = None

    def note(self) -> Signals:
        """Have signals noted from here on: whatever has been started is ended in order."""
        from oci_cluster.system.process import Signals

        # Calls of programs end all the time: their end must not cut every wait short.
        self.signals = Signals(children=False, outlives_terminal=True)
        return self.signals

    def is_stopped(self) -> bool:
        """Return whether one has been noted."""
        return self.signals is not None and self.signals.received is not None


def _nobody(_cluster: Cluster, _plan: Plan) -> AbstractContextManager[Callable[[], None]]:
    return contextlib.nullcontext(lambda: None)


def launch(line: CommandLine, plan_of: PlanOf | None = None, attend: Attend = _nobody) -> int:
    """Launch a cluster, and follow it to its end, as *line* says; return its exit code.

    Args:
        line: What was typed.
        plan_of: Makes the plan; by default that of an ordinary cluster.
        attend: Is entered while the cluster is followed, and returns what is called when it is ready.
    """
    say, interrupt = say_to_stderr(program()), _Interrupt()
    backend = open_named(line, interrupt.is_stopped)
    lifecycle = Lifecycle(backend, PROJECT_ROOT, say)
    try:
        plan = (plan_of or _plan)(line, backend)
        backend.check(plan)
        equip(backend.name)
        plan = backend.place(plan, say)
        if backend.is_free_to_ask:
            lifecycle.check_name(plan.name)
        if line.has("--dry-run"):
            print(redact(backend.preview(plan, as_json=line.has("--json"))))
            return 0
        plan = backend.prepare(plan, say)
        continue_in(ensure_tools(PROJECT_ROOT, say))  # which has just been made, where this is the first launch
        return _run(line, lifecycle, backend, plan, interrupt.note(), attend=attend)
    finally:
        backend.close()


def _run(
    line: CommandLine, lifecycle: Lifecycle, backend: Backend, plan: Plan, signals: Signals, *, attend: Attend
) -> int:
    """Launch *plan* and show it to its end, or detach from it; whatever fails, nothing goes on that nobody follows."""
    from oci_cluster.launcher.adapting import followed
    from oci_cluster.launcher.guard import Guard
    from oci_cluster.launcher.provisioning import bounded

    say = say_to_stderr(program())
    guard = Guard(backend.name, plan.cluster_id)
    try:
        cluster = lifecycle.launch(bounded(plan) if line.has("--detach") else followed(plan, backend))
        try:
            code = 0
            if not line.has("--detach"):
                with attend(cluster, plan) as on_ready:
                    code = _follow(backend, cluster, plan, say, signals, on_ready=on_ready)
            elif line.has("--wait") and (failed := _wait(backend, cluster, plan, say, signals)):
                code = failed
            elif signals.received is None:
                print(_status_json(lifecycle, backend, cluster) if line.has("--json") else cluster.name, flush=True)
            else:
                lifecycle.stop(cluster)
                code = ExitCode.STOPPED
        except BaseException as error:
            say(f"ending {cluster.name}, which nobody can follow")
            lifecycle.stop(cluster)
            if isinstance(error, BrokenPipeError):
                discard(sys.stdout)
                msg = "the reader of the output has gone"
                raise StoppedError(msg, exit_code=128 + signal.SIGPIPE) from error
            raise
    finally:
        guard.dismiss()
    return code


def _plan(line: CommandLine, backend: Backend) -> Plan:
    request, most, say = request_of(line, backend.name), backend.max_workers, say_to_stderr(program())
    plan = make_plan(request, os.environ, root=PROJECT_ROOT, cwd=Path.cwd(), max_workers=most, say=say)
    for hint in hints(plan, os.environ, Path.cwd()):
        say(f"note: {hint}")
    return plan


def request_of(line: CommandLine, backend: str) -> Request:
    """Return the launch that *line* asks for, on *backend*.

    Raises:
        UsageError: an option cannot be used.
    """
    settings = {setting: line.value(option) for option, setting in _SETTINGS.items() if line.has(option)}
    if line.has("--keep"):
        settings["EPHEMERAL"] = "0"
    framework, workers = line.words
    environment = variables_of(line.typed, os.environ, Path.cwd())
    python = line.value("--python")
    packages = packages_of(line.given.get("--with", []), python)
    plain = plain_names(line.typed)
    return Request(framework, workers, backend, settings, environment, plain, line.rest, python, packages)


def _follow(
    backend: Backend, cluster: Cluster, plan: Plan, say: Say, signals: Signals, *, on_ready: Callable[[], None]
) -> int:
    """Show *cluster* to its end; return its exit code."""
    from oci_cluster.launcher.follow import Follower, conclude

    say(started(backend, cluster, plan))
    copy = backend.logs(cluster, cluster.directory / "logs", follow=True)

    def lost(error: Exception) -> None:
        why = "the reader of the logs has gone" if isinstance(error, BrokenPipeError) else error
        say(f"{why}; {cluster.name} is followed to its end without them; Ctrl-C stops it")

    merged = _merged(copy, plan.node_names, LastingOutput(lost))
    follower = Follower(backend, cluster, plan, say=say, signals=signals, on_ready=on_ready)
    try:
        code = follower.run(merged, copy)
    finally:
        copy.close()
    return conclude(follower, code, say)


def _wait(backend: Backend, cluster: Cluster, plan: Plan, say: Say, signals: Signals) -> int:
    """Return 0 when *cluster* is ready; its exit code where it ended instead."""
    from oci_cluster.launcher.follow import Follower, conclude

    follower = Follower(backend, cluster, plan, say=say, signals=signals)
    code = follower.until_ready()
    return 0 if code is None else conclude(follower, code, say)


# --- The other verbs ------------------------------------------------------------------------------------------------


def _status(line: CommandLine) -> int:
    from oci_cluster.launcher.report import status_text

    backend, lifecycle, cluster = chosen(line, is_looking=True)
    if line.has("--json"):
        print(_status_json(lifecycle, backend, cluster))
    else:
        print(status_text(_describe(lifecycle, backend, cluster), screen_of(sys.stdout, os.environ)))
    return 0


def _describe(lifecycle: Lifecycle, backend: Backend, cluster: Cluster) -> dict[str, object]:
    from oci_cluster.launcher.report import tell

    states = lifecycle.states(cluster)
    backend.keep_end(cluster, states)
    return tell(backend, cluster, states)


def _status_json(lifecycle: Lifecycle, backend: Backend, cluster: Cluster) -> str:
    return json.dumps(_describe(lifecycle, backend, cluster), indent=2)


def _list(line: CommandLine) -> int:
    from oci_cluster.launcher.report import describe, is_over, list_text, overview, unreadable

    backend = opened(line, is_looking=True)
    clusters = backend.find()
    states = backend.states(clusters)
    found = []
    for cluster in clusters:
        of_it = states[cluster.launch_id]
        backend.keep_end(cluster, of_it)
        try:  # one that is damaged must not hide the others
            if backend.is_free_to_ask:
                found.append(describe(backend, cluster, backend.load(cluster), of_it))
            else:
                found.append(overview(backend, cluster, of_it))
        except ClusterError as error:
            found.append(unreadable(backend, cluster, of_it, str(error)))
    shown = [cluster for cluster in found if line.has("--all") or not is_over(cluster) or "held" in cluster]
    print(json.dumps(shown, indent=2) if line.has("--json") else list_text(shown, screen_of(sys.stdout, os.environ)))
    return 0


def _logs(line: CommandLine) -> int:
    from oci_cluster.launcher.logs import Shown, view_logs
    from oci_cluster.system.process import Signals

    lines = line.number("--tail")
    backend, lifecycle, cluster = chosen(line, is_looking=not line.has("-f", "--follow"))
    shown = Shown(line.value("--node"), lines, line.has("-f", "--follow"), is_terminal(sys.stdout, os.environ))
    try:
        out, say = sys.stdout, say_to_stderr(program())
        signals = Signals(children=False, outlives_terminal=True)
        view_logs(backend, cluster, lifecycle.states, shown, out=out, signals=signals, say=say)
    finally:
        backend.close()
    return 0


def _stop(line: CommandLine) -> int:
    say = say_to_stderr(program())
    older_than_s = line.seconds("--older-than")
    backend = opened(line)
    lifecycle = Lifecycle(backend, PROJECT_ROOT, say)
    try:
        if line.has("--ended", "--older-than"):
            clusters = lifecycle.choose_all(ended=line.has("--ended"), older_than_s=older_than_s)
        else:
            chosen = [lifecycle.choose(name) for name in line.words or [""]]
            clusters = list({cluster.launch_id: cluster for cluster in chosen}.values())
        for cluster in clusters:
            with contextlib.suppress(LostPlanError):  # it is ended without
                backend.load(cluster)  # one that cannot be stopped is told before any is
        return _stop_each(clusters, lifecycle, say, delete=line.has("--delete"))
    finally:
        backend.close()


def _stop_each(clusters: Sequence[Cluster], lifecycle: Lifecycle, say: Say, *, delete: bool) -> int:
    """Stop *clusters*, one after the other; return the exit code of the first that could not be, after the others."""
    code = 0
    for cluster in clusters:
        try:
            lifecycle.stop(cluster, delete=delete)
        except ClusterError as error:
            if len(clusters) == 1:
                raise
            say(f"error: {cluster.name}: {error}")
            code = code or error.exit_code
        else:
            print(cluster.name, flush=True)
    return code


def _scale(line: CommandLine) -> int:
    backend, lifecycle, cluster = chosen(line)
    try:
        print(lifecycle.scale(cluster, line.words[1]))
    finally:
        backend.close()
    return 0


def _session(line: CommandLine) -> int:
    from oci_cluster.launcher.session import run_session

    return run_session(line)


def _check(line: CommandLine) -> int:
    from oci_cluster.launcher.checking import check

    return check(line)


def _connect(line: CommandLine) -> int:
    from oci_cluster.launcher.connecting import connect

    return connect(line)


def end_orphan(backend_name: str, cluster_id: str, own: str = "", reason: str = "") -> None:
    """End the cluster that nobody follows any more, if it is there.

    Args:
        backend_name: Where its nodes run.
        cluster_id: Names it.
        own: The file that has its launcher's own settings; empty: it had none.
        reason: Why it ends; empty: its launcher was killed.
    """
    from oci_cluster.launcher.guard import read_own

    say = say_to_stderr(program())
    given = {**given_settings(), **(read_own(int(own)) if own else {})}
    backend = open_backend(backend_name, PROJECT_ROOT, given, lambda: False)
    lifecycle = Lifecycle(backend, PROJECT_ROOT, say)
    try:
        lifecycle.stop(lifecycle.choose_orphan(cluster_id), reason=reason or "its launcher was killed")
    finally:
        backend.close()


def _merged(copy: LogCopy, nodes: Sequence[str], out: Output | None = None) -> MergedLogs:
    from oci_cluster.launcher.logs import MergedLogs

    return MergedLogs(copy.directory, nodes, out or sys.stdout, colour=is_terminal(sys.stdout, os.environ))
