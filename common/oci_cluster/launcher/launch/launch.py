"""Launches a cluster: the steps that scripts and programs in Python share.

Only the standard library is imported before the launcher's own environment is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from oci_cluster.backends import with_placeholder
from oci_cluster.backends.base import Backend
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.settings.schema import FLAGS
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import ExitCode, Problem, StoppedError
from oci_cluster.launcher.args.command_line import CommandLine
from oci_cluster.launcher.context import continue_in, equip, given_settings, open_named
from oci_cluster.launcher.launch.entry_point import hints, packages_of, plain_names, variables_of
from oci_cluster.launcher.launch.plan import Request, make_plan
from oci_cluster.launcher.lifecycle import Lifecycle, started
from oci_cluster.system.console import LastingOutput, Say, discard, is_terminal, program, say_to_stderr
from oci_cluster.system.envs.python_env import ensure_tools
from oci_cluster.system.redaction import redact

if TYPE_CHECKING:
    from oci_cluster.launcher.launch.cluster_reaper import Reaper
    from oci_cluster.system.process import Signals

# Makes the plan that a command line asks for.
PlanOf: TypeAlias = "Callable[[CommandLine, Backend], Plan]"
# What is done while a cluster is followed; what it yields is called when that is ready.
Attend: TypeAlias = "Callable[[Cluster, Plan], AbstractContextManager[Callable[[], None]]]"

# Modules are imported when they are needed: a dry run must not pay for what follows a cluster.
# ruff: noqa: PLC0415

# Options whose value is a setting of the launch: --keep has none, and which backend it is has been seen to.
_SETTINGS = {flag: setting for setting, flag in FLAGS.items() if flag not in {"--keep", "--backend"}}


def request_of(line: CommandLine, backend: str) -> Request:
    """Return the launch that *line* asks for, on *backend*."""
    settings = {setting: line.value(option) for option, setting in _SETTINGS.items() if line.has(option)}
    if line.has("--keep"):
        settings["EPHEMERAL"] = "0"
    framework, workers = line.words
    environment = variables_of(line.typed, os.environ, Path.cwd())
    python = line.value("--python")
    packages = packages_of(line.given.get("--with", []), python)
    plain = plain_names(line.typed)
    return Request(framework, workers, backend, settings, environment, plain, line.rest, python, packages)


def planned(request: Request, backend: Backend, say: Say, problems: list[Problem] | None = None) -> Plan:
    """Return the plan of *request* on *backend*, as this program's environment has it."""
    cwd, most = Path.cwd(), backend.max_workers
    return make_plan(request, os.environ, root=PROJECT_ROOT, cwd=cwd, max_workers=most, say=say, problems=problems)


def placed(plan: Plan, lifecycle: Lifecycle, equip: Callable[[str], None] = lambda _: None) -> Plan:
    """Return *plan* with what nodes get on the backend, checked.

    *equip* is called with the backend's name before more than the standard library is needed.
    """
    backend = lifecycle.backend
    backend.check(plan)
    equip(backend.name)
    plan = backend.place(plan, lifecycle.say)
    if backend.is_free_to_ask:
        lifecycle.check_name(plan.name)
    return plan


@contextlib.contextmanager
def launched(
    plan: Plan, lifecycle: Lifecycle, *, is_followed: bool, own: Mapping[str, str] | None = None
) -> Iterator[tuple[Cluster, Reaper]]:
    """Launch a prepared *plan*; yield the cluster, and the reaper that ends it.

    Where the block raises, the cluster is ended. Where that fails, its reaper tries again when this process is over.
    """
    from oci_cluster.launcher.follow.autoscaler import followed
    from oci_cluster.launcher.follow.provisioning import bounded
    from oci_cluster.launcher.launch.cluster_reaper import Reaper

    reaper = Reaper(lifecycle.backend.name, plan.cluster_id, root=lifecycle.root, own=own)
    try:
        cluster = lifecycle.launch(followed(plan, lifecycle.backend) if is_followed else bounded(plan))
    except Exception:
        reaper.dismiss()
        raise
    except BaseException:  # a second Ctrl-C may have cut short the removal of what was started
        reaper.release()
        raise
    try:
        yield cluster, reaper
    except BaseException:
        lifecycle.say(f"ending {cluster.name}, which nobody can follow")
        lifecycle.stop(cluster, reason="its launcher cannot follow it")
        reaper.dismiss()
        raise
    reaper.dismiss()


# --- For scripts ----------------------------------------------------------------------------------------------------


def _nobody(_cluster: Cluster, _plan: Plan) -> AbstractContextManager[Callable[[], None]]:
    return contextlib.nullcontext(lambda: None)


def launch(line: CommandLine, plan_of: PlanOf | None = None, attend: Attend = _nobody) -> int:
    """Launch a cluster, and follow it to its end; return its exit code.

    *attend* is entered while the cluster is followed, and yields what is called when it is ready.
    """
    say = say_to_stderr(program())
    signals: Signals | None = None

    def is_stopped() -> bool:
        return signals is not None and signals.received is not None

    with contextlib.closing(open_named(line, is_stopped)) as backend:
        lifecycle = Lifecycle(backend, PROJECT_ROOT, say, is_stopped=is_stopped)
        plan, is_preview = (plan_of or _plan)(line, backend), line.has("--dry-run")
        if is_preview and not backend.is_this_machine:
            plan = with_placeholder(plan, PROJECT_ROOT, given_settings())
        plan = placed(plan, lifecycle, partial(equip, is_preview=is_preview))
        if is_preview:
            print(redact(backend.preview(plan, as_json=line.has("--json"))))
            return 0
        plan = backend.prepare(plan, say)
        continue_in(ensure_tools(PROJECT_ROOT, say))  # which has just been made, where this is the first launch
        from oci_cluster.system.process import Signals

        # From here on a signal is noted, and what has been started is ended in order. Calls of programs end all the
        # time: their end must not cut every wait short.
        signals = Signals(children=False, outlives_terminal=True)
        return _run(line, lifecycle, plan, signals, attend)


def _run(line: CommandLine, lifecycle: Lifecycle, plan: Plan, signals: Signals, attend: Attend) -> int:
    from oci_cluster.launcher.show.report import tell_and_keep

    is_detached = line.has("--detach")
    with launched(plan, lifecycle, is_followed=not is_detached) as (cluster, _):
        try:
            if not is_detached:
                with attend(cluster, plan) as on_ready:
                    return _follow(lifecycle, cluster, plan, signals, on_ready)
            if line.has("--wait") and (failed := _wait(lifecycle, cluster, plan, signals)):
                return failed
            if signals.received is not None:
                lifecycle.stop(cluster)
                return ExitCode.STOPPED
            told = cluster.name
            if line.has("--json"):
                told = json.dumps(tell_and_keep(lifecycle.backend, cluster, lifecycle.states(cluster)), indent=2)
            print(told, flush=True)
        except BrokenPipeError as error:
            discard(sys.stdout)
            raise StoppedError("the reader of the output has gone", exit_code=128 + signal.SIGPIPE) from error
    return 0


def _plan(line: CommandLine, backend: Backend) -> Plan:
    say = say_to_stderr(program())
    plan = planned(request_of(line, backend.name), backend, say)
    for hint in hints(plan, Path.cwd()):
        say(f"note: {hint}")
    return plan


def _follow(lifecycle: Lifecycle, cluster: Cluster, plan: Plan, signals: Signals, on_ready: Callable[[], None]) -> int:
    from oci_cluster.launcher.follow.follower import Follower
    from oci_cluster.launcher.show.logs import MergedLogs

    backend, say = lifecycle.backend, lifecycle.say
    say(started(backend, cluster, plan))
    copy = backend.logs(cluster, cluster.directory / "logs", follow=True)

    def lost(error: Exception) -> None:
        why = "the reader of the logs has gone" if isinstance(error, BrokenPipeError) else error
        say(f"{why}; {cluster.name} is followed to its end without them; Ctrl-C stops it")

    colour = is_terminal(sys.stdout, os.environ)
    merged = MergedLogs(copy.directory, plan.node_names, LastingOutput(lost), colour=colour)
    return Follower(backend, cluster, plan, say=say, signals=signals, on_ready=on_ready).run(merged, copy)


def _wait(lifecycle: Lifecycle, cluster: Cluster, plan: Plan, signals: Signals) -> int:
    """Return 0 when *cluster* is ready; its exit code where it ended instead."""
    from oci_cluster.launcher.follow.follower import Follower

    follower = Follower(lifecycle.backend, cluster, plan, say=lifecycle.say, signals=signals)
    code = follower.until_ready()
    return 0 if code is None else follower.conclude(code)
