"""How a process becomes the agent of a node: what it needs is made, of what its environment says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.log_times import times_file
from oci_cluster.contract.settings import NodeSettings, read_settings
from oci_cluster.contract.values import is_at_main
from oci_cluster.node.agent import Agent
from oci_cluster.node.last_resort import REMOTE_S, NodeSignals
from oci_cluster.node.pace import paced, paced_at_main
from oci_cluster.node.relay import Relay
from oci_cluster.system.process import Children

if TYPE_CHECKING:
    from oci_cluster.node.exchange import Exchange


def run_agent(environ: Mapping[str, str], logs: Path | None = None) -> int:
    """Run this process as the agent of the node that *environ* describes; return its exit code.

    Whoever calls it has set up logging, and stdout and stderr: of this process nothing else is read. Where stdout is
    the node's log in the folder *logs*, the times of its lines are kept beside it.
    """
    try:
        return _run(environ, logs)
    except BaseException as error:
        if environ.get("TERMINATION_LOG"):
            from oci_cluster.node.last_words import write_unbegun  # noqa: PLC0415 - where somebody reads them

            write_unbegun(environ, error)
        raise


def _run(environ: Mapping[str, str], logs: Path | None) -> int:
    if environ.get("OCI__MODE") and not (environ.get("MODE") or environ.get("JOB_COMPLETION_INDEX")):
        from oci_cluster.node.ads import as_own  # noqa: PLC0415 - where ADS, or what was made for it, starts the nodes

        environ = as_own(environ)
    if environ.get("NODE_GROUP"):
        from oci_cluster.node.rank import with_own_rank  # noqa: PLC0415 - where the service starts the nodes

        environ = with_own_rank(environ)
    settings = read_settings(environ)
    cluster_dir, exchange = _open_cluster_dir(settings)
    if cluster_dir.is_at_main:
        settings = paced_at_main(settings)
    elif cluster_dir.local_path is None:
        settings = paced(settings)
    own_log = None
    if settings.node_logs:
        from oci_cluster.node.own_log import OwnLog  # noqa: PLC0415 - where the backend keeps no logs by itself

        own_log = OwnLog(settings.launch_id, settings.node, nodes=len(settings.other_nodes) + 1)
    times = logs and times_file(logs, settings.node)
    stamped = own_log.path if own_log else None
    relay = Relay(settings.node, times=times, stamped=stamped, max_bytes=settings.max_log_bytes)
    try:
        agent = Agent(
            settings,
            environ,
            cluster_dir=cluster_dir,
            children=Children(),
            signals=_signals(settings, cluster_dir),
            own_log=own_log,
            relay=relay,
            exchange=exchange,
        )
        return agent.run()
    finally:
        relay.finish()


def _signals(settings: NodeSettings, cluster_dir: ClusterDir) -> NodeSignals:
    remote_s = REMOTE_S if cluster_dir.local_path is None else 0.0
    return NodeSignals(ttl_s=settings.ttl_s, limit_s=settings.grace_period_s + remote_s)


def _open_cluster_dir(settings: NodeSettings) -> tuple[ClusterDir, Exchange | None]:
    """Return the cluster dir; and what serves it, on a main that has it in its memory."""
    place = settings.cluster_url, settings.launch_id, settings.launch_key
    if not (settings.is_main and is_at_main(settings.work_dir)):
        return ClusterDir(*place), None
    from oci_cluster.node.exchange import Exchange  # noqa: PLC0415 - where main has the files

    exchange = Exchange(settings.launch_id, settings.launch_key)
    return ClusterDir(*place, held=exchange.memory), exchange
