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


# What all nodes ask main each second, where it has the files in its memory. Chosen: a request costs main 0.07 ms
# of CPU (1,000 connections, measured), so a cluster that waits takes less than a tenth of a core.
MOST_REQUESTS_OF_MAIN = 1000.0
# There nodes look more often: for `stop`, and for main's heartbeat, which tells of an interruption. Main serves its
# last words for GRACE_PERIOD and some seconds.
_LOOK_AT_MAIN_S = 1.0
_BEAT_AT_MAIN_S = 5.0


def paced_at_main(settings: NodeSettings) -> NodeSettings:
    """Return *settings* with intervals for a cluster whose files are in the memory of main."""
    often = replace(
        settings,
        poll_ceiling_s=min(settings.poll_ceiling_s, _LOOK_AT_MAIN_S),
        heartbeat_interval_s=min(settings.heartbeat_interval_s, _BEAT_AT_MAIN_S),
    )
    return paced(often, MOST_REQUESTS_OF_MAIN)


def paced(settings: NodeSettings, most_requests: float = MOST_REQUESTS) -> NodeSettings:
    """Return *settings* with intervals by which all nodes together make *most_requests* each second at most.

    Each node looks for the ``stop`` file every ``POLL_CEILING``, and while it waits for main as often for what it waits
    for. It writes a heartbeat every ``HEARTBEAT_INTERVAL``, and reads another one as often once it works.
    """
    looks, beats = 1 / settings.poll_ceiling_s, 1 / settings.heartbeat_interval_s
    factor = (len(settings.other_nodes) + 1) * max(looks + 2 * beats, 2 * looks + beats) / most_requests
    if factor <= 1:
        return settings
    interval_s = settings.heartbeat_interval_s * factor
    return replace(
        settings,
        poll_ceiling_s=settings.poll_ceiling_s * factor,
        heartbeat_interval_s=interval_s,
        heartbeat_timeout_s=max(settings.heartbeat_timeout_s, _INTERVALS_UNTIL_LOST * interval_s),
    )
