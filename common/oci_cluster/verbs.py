"""The verbs of backends whose nodes are elsewhere: from a plan or a name to what a person sees."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from oci_cluster import plan as planning
from oci_cluster.clusters import Cluster, choose_cluster
from oci_cluster.errors import ClusterError, UsageError
from oci_cluster.follow import Follower, MergedLogs, is_terminal, say_to_stderr, show_logs
from oci_cluster.process import Signals
from oci_cluster.report import describe_cluster, list_text, status_text
from oci_cluster.settings import PROJECT_ROOT

Say = Callable[[str], None]


class Backend(Protocol):
    """What :class:`oci_cluster.jobs.Jobs` and :class:`oci_cluster.containers.Containers` have in common."""

    look_s: float

    def submit(self, plan: Mapping[str, Any], root: Path, say: Say) -> Cluster: ...  # noqa: D102
    def started(self, cluster: Cluster) -> str: ...  # noqa: D102
    def find(self) -> list[Cluster]: ...  # noqa: D102
    def load(self, cluster: Cluster) -> Cluster: ...  # noqa: D102
    def is_running(self, cluster: Cluster) -> bool: ...  # noqa: D102
    def state(self, cluster: Cluster) -> dict[str, Any]: ...  # noqa: D102
    def overview(self) -> list[dict[str, Any]]: ...  # noqa: D102
    def logs(self, cluster: Cluster, directory: Path, *, follow: bool) -> Callable[[], object]: ...  # noqa: D102
    def terminate(self, cluster: Cluster) -> None: ...  # noqa: D102
    def kill(self, cluster: Cluster) -> None: ...  # noqa: D102
    def finish(self, cluster: Cluster, say: Say) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def stop(self, cluster: Cluster, say: Say, *, delete: bool = False) -> None: ...  # noqa: D102
    def scale(self, cluster: Cluster, text: str, root: Path, say: Say, *, most: int) -> int: ...  # noqa: D102


class MakeBackend(Protocol):
    """Returns a backend for *settings*, or else for those of environment and ``config.env``.

    With *signals*, one of them ends what is not finished yet.
    """

    def __call__(self, settings: Mapping[str, str] | None = None, signals: Signals | None = None) -> Backend: ...  # noqa: D102


def run_submit(make: MakeBackend, args: argparse.Namespace, program: str) -> int:
    """Start the cluster of the plan on stdin; print its name, or follow it to its end."""
    signals = Signals(children=False)  # a look that is a program's call would end the wait for the next one
    say = say_to_stderr(program)
    plan = json.load(sys.stdin)
    backend = make(plan["settings"], signals)
    cluster = backend.submit(plan, PROJECT_ROOT, say)
    if not args.follow:
        print(cluster.name)
        return 0
    say(f"cluster {cluster.name} started: {len(plan['nodes'])} nodes; {backend.started(cluster)}")
    directory = cluster.directory / "logs"
    nodes = [node["node"] for node in plan["nodes"]]
    follower = Follower(
        cluster,
        state=backend.state,
        terminate=backend.terminate,
        kill=backend.kill,
        logs=_merged(directory, nodes),
        fetch_logs=backend.logs(cluster, directory, follow=True),
        least_workers=planning.workers_to_begin(plan, PROJECT_ROOT),
        look_s=backend.look_s,
        say=say,
        signals=signals,
    )
    try:
        code = follower.run()
        try:
            backend.finish(cluster, say)
        except ClusterError as error:
            say(f"error: {error}")
            code = code or error.exit_code
    finally:
        backend.close()
    return code


def run_status(make: MakeBackend, args: argparse.Namespace, _program: str) -> int:
    """Show a cluster and its nodes."""
    backend = make()
    cluster = _cluster(backend, args.name)
    found = describe_cluster(cluster, backend.state(cluster))
    print(json.dumps(found, indent=2) if args.json else status_text(found))
    return 0


def run_list(make: MakeBackend, args: argparse.Namespace, _program: str) -> int:
    """List clusters."""
    shown = [cluster for cluster in make().overview() if args.all or cluster["exit_code"] is None]
    print(json.dumps(shown, indent=2) if args.json else list_text(shown))
    return 0


def run_logs(make: MakeBackend, args: argparse.Namespace, _program: str) -> int:
    """Show the nodes' logs, merged."""
    backend = make()
    cluster = _cluster(backend, args.name)
    nodes = [node["node"] for node in backend.state(cluster)["nodes"]]
    if args.node and args.node not in nodes:
        msg = f"{cluster.name} has no node '{args.node}'; it has {', '.join(nodes)}"
        raise UsageError(msg)
    with tempfile.TemporaryDirectory() as scratch:
        fetch = backend.logs(cluster, Path(scratch), follow=args.follow)
        logs = _merged(Path(scratch), [args.node] if args.node else nodes)
        is_running = (lambda: backend.is_running(cluster)) if args.follow else (lambda: False)
        try:
            show_logs(logs, is_running, Signals(children=False), fetch=fetch, look_s=backend.look_s)
        finally:
            backend.close()
    return 0


def run_stop(make: MakeBackend, args: argparse.Namespace, program: str) -> int:
    """Stop a cluster."""
    backend = make()
    cluster = _cluster(backend, args.name)
    try:
        backend.stop(cluster, say_to_stderr(program), delete=args.delete)
    finally:
        backend.close()
    print(cluster.name)
    return 0


def run_scale(make: MakeBackend, args: argparse.Namespace, program: str) -> int:
    """Add workers, or end some."""
    backend = make()
    say = say_to_stderr(program)
    print(backend.scale(_cluster(backend, args.name), args.workers, PROJECT_ROOT, say, most=args.most_workers))
    return 0


def _cluster(backend: Backend, name: str) -> Cluster:
    return backend.load(choose_cluster(name, backend.find(), backend.is_running))


def _merged(directory: Path, nodes: Sequence[str]) -> MergedLogs:
    return MergedLogs(directory, nodes, sys.stdout, colour=is_terminal(sys.stdout, os.environ))
