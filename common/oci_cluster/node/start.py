"""Turns a process into the agent of a node, by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.log_times import times_file
from oci_cluster.contract.parsers import is_at_main
from oci_cluster.contract.settings.node import NodeSettings, read_settings
from oci_cluster.contract.settings.schema import AT_MAIN_DEFAULTS
from oci_cluster.node.agent import Agent
from oci_cluster.node.logs.pump import LogPump
from oci_cluster.node.loop import NodeLoop
from oci_cluster.node.watchdog import REMOTE_S, NodeSignals
from oci_cluster.system.process import Children

if TYPE_CHECKING:
    from oci_cluster.node.coordinator import Coordinator


def run_agent(environ: Mapping[str, str], logs: Path | None = None) -> int:
    """Run this process as the agent of *environ*'s node; return its exit code.

    Whoever calls it has set up logging, and stdout and stderr: of this process nothing else is read. Where stdout is
    the node's log in the folder *logs*, the times of its lines are kept beside it.
    """
    try:
        return _run(environ, logs)
    except BaseException as error:
        if environ.get("TERMINATION_LOG"):
            from oci_cluster.node.termination_message import write_unstarted  # noqa: PLC0415 - where somebody reads them

            write_unstarted(environ, error)
        raise


def _run(environ: Mapping[str, str], logs: Path | None) -> int:
    if environ.get("OCI__MODE") and not (environ.get("MODE") or environ.get("JOB_COMPLETION_INDEX")):
        from oci_cluster.node.begin.ads import as_own  # noqa: PLC0415 - where ADS, or what was made for it, starts the nodes

        environ = as_own(environ)
    if environ.get("NODE_GROUP"):
        from oci_cluster.node.begin.rank import with_own_rank  # noqa: PLC0415 - where the service starts the nodes

        environ = with_own_rank(environ)
    settings = read_settings(environ)
    coordinator: Coordinator | None = None
    if settings.is_main and is_at_main(settings.work_dir):
        from oci_cluster.node.coordinator import Coordinator  # noqa: PLC0415 - where main has the files

        coordinator = Coordinator(settings.launch_id, settings.launch_key)
    held = None if coordinator is None else coordinator.memory.ask
    cluster_dir = ClusterDir(settings.cluster_url, settings.launch_id, settings.launch_key, held=held)
    if cluster_dir.is_at_main:
        settings = paced_at_main(settings)
    elif cluster_dir.local_path is None:
        settings = paced(settings)
    log_shipper = None
    if settings.node_logs:
        from oci_cluster.node.logs.shipper import LogShipper  # noqa: PLC0415 - where the backend keeps no logs by itself

        log_shipper = LogShipper(settings.launch_id, settings.node, nodes=len(settings.other_nodes) + 1)
    times = logs and times_file(logs, settings.node)
    stamped = log_shipper.path if log_shipper else None
    log_pump = LogPump(settings.node, times=times, stamped=stamped, max_bytes=settings.max_log_bytes)
    try:
        remote_s = REMOTE_S if cluster_dir.local_path is None else 0.0
        signals = NodeSignals(ttl_s=settings.ttl_s, limit_s=settings.grace_period_s + remote_s)
        loop = NodeLoop(settings, cluster_dir=cluster_dir, signals=signals, log_shipper=log_shipper, log_pump=log_pump)
        return Agent(
            settings, environ, loop=loop, children=Children(), log_pump=log_pump, coordinator=coordinator
        ).run()
    finally:
        log_pump.finish()


# --- How often the nodes of a large cluster ask storage: each less often, so that all together do not ask more --------

# Requests of all nodes of a cluster each second, while they wait for each other or nothing happens. Chosen: with the
# launcher's requests it is less than 200. The real limit of Object Storage is not known here.
MOST_REQUESTS = 190.0
# A node counts as lost after so many of its intervals at least. What storage does not take is written again within
# seconds, and who would be lost is looked at once more: so one heartbeat may be missing.
_INTERVALS_UNTIL_LOST = 2.5
# From this one on the interval of heartbeats grows with a cluster. Chosen: so a thousand nodes know in two minutes who
# is lost.
_GROWS_FROM_S = 15.0


# Requests of all nodes to main each second, if it has the files in its memory. Chosen: a request costs main 0.07 ms
# of CPU (1,000 connections, measured), so a cluster that waits takes less than a tenth of a core.
MOST_REQUESTS_OF_MAIN = 1000.0


def paced_at_main(settings: NodeSettings) -> NodeSettings:
    """Return *settings* with intervals for files in the memory of main."""
    often = replace(
        settings,
        poll_ceiling_s=min(settings.poll_ceiling_s, float(AT_MAIN_DEFAULTS["POLL_CEILING"])),
        heartbeat_interval_s=min(settings.heartbeat_interval_s, float(AT_MAIN_DEFAULTS["HEARTBEAT_INTERVAL"])),
    )
    return paced(often, MOST_REQUESTS_OF_MAIN)


def paced(settings: NodeSettings, most_requests: float = MOST_REQUESTS) -> NodeSettings:
    """Return *settings* with intervals for *most_requests* of all nodes a second.

    Each node looks for the ``stop`` file every ``POLL_CEILING``, and while it waits for main as often for what it waits
    for. It writes a heartbeat every ``HEARTBEAT_INTERVAL``, and reads another one as often once it works.
    """
    base_s = min(settings.heartbeat_interval_s, _GROWS_FROM_S)
    looks, beats = 1 / settings.poll_ceiling_s, 1 / base_s
    factor = (len(settings.other_nodes) + 1) * max(looks + 2 * beats, 2 * looks + beats) / most_requests
    if factor <= 1:
        return settings
    interval_s = max(settings.heartbeat_interval_s, base_s * factor)
    return replace(
        settings,
        poll_ceiling_s=settings.poll_ceiling_s * factor,
        heartbeat_interval_s=interval_s,
        heartbeat_timeout_s=max(settings.heartbeat_timeout_s, _INTERVALS_UNTIL_LOST * interval_s),
    )
