"""The verbs of the backend ``oci``: what ``scripts/backends/oci.sh`` calls, where its packages are."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from oci_cluster import local, oci_requests
from oci_cluster import plan as planning
from oci_cluster.clusters import Cluster, choose_cluster
from oci_cluster.errors import UsageError
from oci_cluster.follow import Follower, MergedLogs, is_terminal, say_to_stderr, show_logs
from oci_cluster.process import Signals
from oci_cluster.report import describe_cluster, list_text, status_text
from oci_cluster.settings import PROJECT_ROOT, read_settings_file

if TYPE_CHECKING:
    from oci_cluster.jobs import Jobs

# How late a signal may be seen in a pause.
_SIGNAL_S = 0.2
# Between two looks at the service: a request or two each, for hours; the end is seen this much later.
_LOOK_S = 2.0


def run_check(args: argparse.Namespace, _program: str) -> int:
    """Print what a launch of the plan on stdin would send."""
    print(oci_requests.check(json.load(sys.stdin), PROJECT_ROOT, as_json=args.json))
    return 0


def run_prepare(_args: argparse.Namespace, _program: str) -> int:
    """Print the interpreter that has what the launcher needs."""
    print(sys.executable)
    return 0


def run_submit(args: argparse.Namespace, program: str) -> int:
    """Create Job and Job Runs of the plan on stdin; print its name, or follow it to its end."""
    signals = Signals()
    say = say_to_stderr(program)
    plan = json.load(sys.stdin)
    backend = _backend(plan["settings"], signals)
    cluster = backend.submit(plan, PROJECT_ROOT, say)
    if not args.follow:
        print(cluster.name)
        return 0
    say(
        f"cluster {cluster.name} started: {len(plan['nodes'])} nodes; files in {cluster.url}, Job {cluster.plan['job']}"
    )
    directory = cluster.directory / "logs"
    nodes = [node["node"] for node in plan["nodes"]]
    follower = Follower(
        cluster,
        state=backend.state,
        terminate=backend.terminate,
        kill=backend.kill,
        logs=MergedLogs(directory, nodes, sys.stdout, colour=is_terminal(sys.stdout, os.environ)),
        fetch_logs=backend.logs(cluster, directory),
        least_workers=planning.workers_to_begin(plan, PROJECT_ROOT),
        look_s=_LOOK_S,
        say=say,
        signals=signals,
    )
    return follower.run()


def run_status(args: argparse.Namespace, _program: str) -> int:
    """Show a cluster and its nodes."""
    backend = _backend()
    cluster = _cluster(backend, args.name)
    found = describe_cluster(cluster, backend.state(cluster))
    print(json.dumps(found, indent=2) if args.json else status_text(found))
    return 0


def run_list(args: argparse.Namespace, _program: str) -> int:
    """List clusters."""
    shown = [cluster for cluster in _backend().overview() if args.all or cluster["exit_code"] is None]
    print(json.dumps(shown, indent=2) if args.json else list_text(shown))
    return 0


def run_logs(args: argparse.Namespace, _program: str) -> int:
    """Show the nodes' logs, merged."""
    backend = _backend()
    cluster = _cluster(backend, args.name)
    nodes = [node["node"] for node in backend.state(cluster)["nodes"]]
    if args.node and args.node not in nodes:
        msg = f"{cluster.name} has no node '{args.node}'; it has {', '.join(nodes)}"
        raise UsageError(msg)
    with tempfile.TemporaryDirectory() as scratch:
        fetch = backend.logs(cluster, Path(scratch))
        shown = [args.node] if args.node else nodes
        logs = MergedLogs(Path(scratch), shown, sys.stdout, colour=is_terminal(sys.stdout, os.environ))
        is_running = (lambda: backend.is_running(cluster)) if args.follow else (lambda: False)
        show_logs(logs, is_running, Signals(), fetch=fetch, look_s=_LOOK_S)
    return 0


def run_stop(args: argparse.Namespace, program: str) -> int:
    """Stop a cluster."""
    backend = _backend()
    cluster = _cluster(backend, args.name)
    backend.stop(cluster, say_to_stderr(program), delete=args.delete)
    print(cluster.name)
    return 0


def run_scale(args: argparse.Namespace, program: str) -> int:
    """Add workers, or end some."""
    backend = _backend()
    say = say_to_stderr(program)
    print(backend.scale(_cluster(backend, args.name), args.workers, PROJECT_ROOT, say, most=args.most_workers))
    return 0


def _backend(settings: Mapping[str, str] | None = None, signals: Signals | None = None) -> Jobs:
    """Return the backend `oci`, for the compartment that *settings* or else environment and `config.env` name.

    With *signals*, one of them ends what is not finished yet.
    """
    # A third of a second that `check`, which asks nobody, does not spend.
    from oci_cluster.jobs import Jobs  # noqa: PLC0415
    from oci_cluster.oci_service import Service, service_environ  # noqa: PLC0415

    def is_stopped() -> bool:
        return signals is not None and signals.received is not None

    def sleep(seconds: float) -> None:
        until = time.monotonic() + seconds
        is_new = not is_stopped()
        # Once stopped, what is being ended is waited for.
        while (left := until - time.monotonic()) > 0 and not (is_new and is_stopped()):
            time.sleep(min(left, _SIGNAL_S))

    config = PROJECT_ROOT / "config.env"
    given = {**(read_settings_file(config) if config.exists() else {}), **os.environ}
    service = Service(service_environ(given), is_stopped=is_stopped, sleep=sleep)
    service.use_for_storage()
    return Jobs(service, settings or given, local.state_dir(PROJECT_ROOT), is_stopped=is_stopped, sleep=sleep)


def _cluster(backend: Jobs, name: str) -> Cluster:

    return backend.load(choose_cluster(name, backend.find(), backend.is_running))
