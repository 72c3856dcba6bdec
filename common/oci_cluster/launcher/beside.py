"""What ``--in NAME`` gives a session: a client of the cluster NAME, or the place of its outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.config import PROJECT_ROOT
from oci_cluster.errors import ClusterError, UsageError
from oci_cluster.launcher.command_line import CommandLine
from oci_cluster.launcher.connecting import Connected
from oci_cluster.launcher.kinds import Kind
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.launcher.opening import opened
from oci_cluster.launcher.report import outputs_of
from oci_cluster.system.console import program, say_to_stderr

if TYPE_CHECKING:
    from oci_cluster.backends.base import Backend


def variables_beside(line: CommandLine, kind: Kind) -> dict[str, str]:
    """Return what main of a session of *kind* is given of the cluster that *line* names with ``--in``.

    TensorBoard shows what this machine can read: it is then a session of this machine, wherever the cluster is.

    Raises:
        UsageError: that cluster has not what the session needs, or it is out of reach.
        ClusterError: what the backend says.
    """
    say = say_to_stderr(program())
    backend = opened(line)
    try:
        lifecycle = Lifecycle(backend, PROJECT_ROOT, say)
        cluster = lifecycle.choose(line.value("--in"))
        plan = backend.load(cluster)
        if kind.beside == "dask":
            return _client_of(backend, lifecycle, cluster, plan)
        place = _outputs(cluster, plan, is_running=lifecycle.is_running(cluster))
    finally:
        backend.close()
    say(f"showing {place}")
    line.given["--backend"] = ["local"]
    return {"IN_OUTPUTS": place}


def _client_of(backend: Backend, lifecycle: Lifecycle, cluster: Cluster, plan: Plan) -> dict[str, str]:
    """Return what a Client() of Dask needs on another node to reach *cluster*."""
    if not (backend.is_this_machine and backend.is_free_to_ask and _is_here(plan)):
        raise UsageError(
            f"--in {cluster.name}: nodes of another cluster do not reach a scheduler on {backend.name}; "
            f"run the notebook on main instead: session.sh jupyter --workers N, or on your machine: "
            f"connect.sh {cluster.name} --python"
        )
    if plan.framework != "dask" or "DASHBOARD_PORT" not in plan.limits.ports:
        raise UsageError(
            f"--in {cluster.name}: Client() connects to clusters of Dask, and this one is of {plan.framework}"
        )
    if not lifecycle.is_running(cluster):
        raise UsageError(f"--in {cluster.name}: it has ended; list.sh shows the clusters that run")
    connected = Connected(backend, cluster, plan, say_to_stderr(program()))
    try:
        host, port = connected.connections.reach("MAIN", plan.limits.ports["DASHBOARD_PORT"])
        target = cluster.directory / "client"
        target.mkdir(mode=0o700, exist_ok=True)
        variables = connected.client(target)
    finally:
        connected.close()
    return {**variables, "IN_DASHBOARD": f"{host}:{port}", "SESSION_ALONE": "1"}


def _is_here(plan: Plan) -> bool:
    """Return whether the nodes are processes of this machine, as those of the session are."""
    return all(node.address.startswith("127.") for node in plan.nodes)


def _outputs(cluster: Cluster, plan: Plan, *, is_running: bool) -> str:
    """Return where this machine reads what *cluster* leaves."""
    if place := outputs_of(cluster, plan):
        return place
    try:
        cluster_dir = ClusterDir(plan.url, cluster.launch_id, plan.launch_key)
        here = cluster_dir.local_path
        if here is not None and here.is_dir():  # nothing has been written, yet
            return str(Path(plan.environment.get("OUTPUT_DIR") or here / "outputs"))
        if here is None and is_running and "://" in plan.url and not plan.url.startswith("main:"):
            return f"{plan.url}/outputs"
    except ClusterError:  # this machine does not read its work dir
        pass
    why = "they come here when it has ended" if is_running else "it has left none"
    raise UsageError(f"--in {cluster.name}: there are no outputs to show: {why}")
