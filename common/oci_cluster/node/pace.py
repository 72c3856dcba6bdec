"""How often the nodes of a large cluster ask storage: each less often, so that all together do not ask more."""

from __future__ import annotations

from dataclasses import replace

from oci_cluster.contract.settings import NodeSettings

# What all nodes of a cluster together ask each second while nothing happens. Chosen: with what they print (own_log.py)
# and what the launcher asks it is less than 200. What Object Storage really takes is not known here.
REQUESTS_AT_REST = 160.0
# A node counts as lost after so many of its intervals at least. What storage does not take is written again within
# seconds, and who would be lost is looked at once more: so one heartbeat may be missing.
_INTERVALS_UNTIL_LOST = 2.5


def paced(settings: NodeSettings) -> NodeSettings:
    """Return *settings* with intervals that suit the size of the cluster, where asking costs requests.

    At rest each node looks for the ``stop`` file every ``POLL_CEILING``, and every ``HEARTBEAT_INTERVAL`` it writes its
    own heartbeat and reads another one.
    """
    nodes = len(settings.other_nodes) + 1
    requests = nodes * (1 / settings.poll_ceiling_s + 2 / settings.heartbeat_interval_s)
    factor = requests / REQUESTS_AT_REST
    if factor <= 1:
        return settings
    interval_s = settings.heartbeat_interval_s * factor
    return replace(
        settings,
        poll_ceiling_s=settings.poll_ceiling_s * factor,
        heartbeat_interval_s=interval_s,
        heartbeat_timeout_s=max(settings.heartbeat_timeout_s, _INTERVALS_UNTIL_LOST * interval_s),
    )
