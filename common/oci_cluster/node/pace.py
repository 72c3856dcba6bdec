"""How often the nodes of a large cluster ask storage: each less often, so that all together do not ask more."""

from __future__ import annotations

from dataclasses import replace

from oci_cluster.contract.settings import NodeSettings

# What all nodes of a cluster together ask each second, while they wait for each other or nothing happens. Chosen: with
# what the launcher asks it is less than 200. What Object Storage really takes is not known here.
MOST_REQUESTS = 190.0
# A node counts as lost after so many of its intervals at least. What storage does not take is written again within
# seconds, and who would be lost is looked at once more: so one heartbeat may be missing.
_INTERVALS_UNTIL_LOST = 2.5


def paced(settings: NodeSettings) -> NodeSettings:
    """Return *settings* with intervals that suit the size of the cluster, where asking costs requests.

    Each node looks for the ``stop`` file every ``POLL_CEILING``, and while it waits for main as often for what it waits
    for. It writes a heartbeat every ``HEARTBEAT_INTERVAL``, and reads another one as often once it works.
    """
    looks, beats = 1 / settings.poll_ceiling_s, 1 / settings.heartbeat_interval_s
    factor = (len(settings.other_nodes) + 1) * max(looks + 2 * beats, 2 * looks + beats) / MOST_REQUESTS
    if factor <= 1:
        return settings
    interval_s = settings.heartbeat_interval_s * factor
    return replace(
        settings,
        poll_ceiling_s=settings.poll_ceiling_s * factor,
        heartbeat_interval_s=interval_s,
        heartbeat_timeout_s=max(settings.heartbeat_timeout_s, _INTERVALS_UNTIL_LOST * interval_s),
    )
