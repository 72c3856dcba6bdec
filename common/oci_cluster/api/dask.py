"""A Dask cluster as ``distributed`` knows clusters: for clients, adaptive scaling and widgets.

Imported only where somebody asks for it: ``distributed`` need not be there.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from oci_cluster.api.request import no_dask
from oci_cluster.contract.names import is_worker, rank_of
from oci_cluster.errors import BackendError, ClusterError, UsageError

try:
    from dask.config import merge
    from distributed.core import rpc
    from distributed.deploy import Adaptive
    from distributed.deploy import Cluster as DistributedCluster
    from distributed.security import Security
except ModuleNotFoundError as error:
    raise no_dask(str(error.name)) from error

if TYPE_CHECKING:
    from collections.abc import Collection

    from oci_cluster.api.cluster import Cluster


class NodesAdaptive(Adaptive):  # type: ignore[misc] # likewise
    """Dask's own decision; nodes of the highest ranks may go."""

    async def workers_to_close(self, target: int) -> list[str]:
        """Return the workers of the last nodes that Dask could do without."""
        spare = set(await super().workers_to_close(target))
        chosen: list[str] = []
        for node in sorted(self.cluster.nodes, key=rank_of, reverse=True):
            workers = {name for name in self.cluster.plan if name.partition("-")[0] == node}
            if not workers <= spare | (workers - self.observed):
                break
            chosen += sorted(workers)
        return chosen


class DaskCluster(DistributedCluster):  # type: ignore[misc] # distributed ships no types
    """The scheduler of a cluster of ours, and the means to change its workers."""

    def __init__(self, cluster: Cluster, address: str, security: Security, nodes: Collection[str]) -> None:
        super().__init__(asynchronous=False, quiet=True, name=cluster.name)
        self._cluster, self.security, self.nodes = cluster, security, set(nodes)
        self._loop_runner.start()
        self.scheduler_comm = rpc(address, connection_args=security.get_connection_args("client"))
        self.sync(self._start)
        # Workers that each node has: with several they are called WORKER_1-0 and so on.
        self._processes = 1 + max((int(name.partition("-")[2] or 0) for name in self.observed), default=0)

    @property
    def plan(self) -> set[str]:
        """Names of the workers that there are to be."""
        if self._processes == 1:
            return set(self.nodes)
        return {f"{node}-{number}" for node in self.nodes for number in range(self._processes)}

    requested = plan  # nodes have been started, or the launch of them fails

    @cached_property
    def dashboard_link(self) -> str:
        """The dashboard's URL on this machine."""
        try:
            return self._cluster.url("dashboard")
        except ClusterError:  # a link is no reason to fail
            return ""

    def adapt(self, Adaptive: Any = NodesAdaptive, **options: Any) -> Any:  # noqa: N803 - distributed's
        """Have Dask decide how many workers there are; see ``distributed.deploy.Cluster.adapt``."""
        if (minimum := options.get("minimum", 1)) < 1:
            raise UsageError(f"minimum={minimum}: a cluster ends without workers; keep 1 at least")
        return super().adapt(Adaptive, **{"minimum": 1, **options})

    def scale(self, n: int) -> Any:
        """Have *n* workers, rounded up to whole nodes."""
        return self.sync(self._scale, n)

    async def _scale(self, n: int) -> None:
        wanted = -(-n // self._processes)
        if wanted < len(self.nodes):
            ended = sorted(self.nodes, key=rank_of)[wanted:]
            workers = [name for name in self.plan if name.partition("-")[0] in ended]
            # What they hold goes to others first.
            await self.scheduler_comm.retire_workers(names=workers, remove=True, close_workers=False)
        await asyncio.to_thread(self._cluster.scale, wanted)
        self.nodes = await asyncio.to_thread(_worker_nodes, self._cluster)

    async def scale_down(self, workers: Collection[str]) -> None:
        """End the nodes of *workers*, which hold nothing any more."""
        gone = {name.partition("-")[0] for name in workers}
        await self._scale((len(self.nodes - gone)) * self._processes)

    def disconnect(self) -> None:
        """Say goodbye to the scheduler; the cluster goes on."""
        super().close()
        self._loop_runner.stop()

    async def close_all(self) -> None:
        """End the cluster."""
        await self._close()
        await asyncio.to_thread(self._cluster.down)

    def close(self, timeout: float | None = None) -> Any:  # noqa: ARG002 - distributed's
        """End the cluster, as closing a cluster of Dask's does."""
        return self.close_all() if self.asynchronous else self._cluster.down()


def connected(cluster: Cluster) -> DaskCluster:
    """Return *cluster* as ``distributed`` knows clusters, when it is ready."""
    if cluster.framework != "dask":
        raise UsageError(f"{cluster!r} has no scheduler of Dask's; only clusters of dask have clients")
    cluster.wait_ready()
    address, security = connection_of(cluster)
    try:
        return DaskCluster(cluster, address, security, _worker_nodes(cluster))
    except OSError as error:
        raise BackendError(
            f"the scheduler of {cluster.name}, {address}, does not answer ({error}); see what it says: logs('MAIN')"
        ) from error


def connection_of(cluster: Cluster) -> tuple[str, Security]:
    """Return the scheduler's address for this machine, and its security."""
    with tempfile.TemporaryDirectory(prefix="oci-cluster-client-") as target:
        files = sorted(Path(cluster.client_files(Path(target))["DASK_CONFIG"]).glob("*.yaml"))
        found = merge(*(yaml.safe_load(path.read_text()) for path in files))
        tls = found.get("distributed", {}).get("comm", {}).get("tls")
        if tls is None:
            return str(found["scheduler-address"]), Security()
        # The texts themselves: no file needs to stay.
        certificate, key = (Path(tls["client"][name]).read_text() for name in ("cert", "key"))
    own = {"tls_ca_file": certificate, "tls_client_cert": certificate, "tls_client_key": key}
    return str(found["scheduler-address"]), Security(require_encryption=True, **own)


def _worker_nodes(cluster: Cluster) -> set[str]:
    nodes = cluster.details()["nodes"]
    return {node["node"] for node in nodes if is_worker(node["node"]) and node["exit_code"] is None}
