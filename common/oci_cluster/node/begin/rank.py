"""The rank of a node that the service started as one of a group.

Nobody tells the node. The group says what its nodes are, workers or parameter servers. The number that the service
gives may count through all groups or begin anew in each, and its list of addresses does not say which group an address
is of. So each node takes a rank of its group's own by a file that storage makes only once; the number is where it
begins to look.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.lives import read_stop
from oci_cluster.contract.names import claim_file, node_name
from oci_cluster.contract.outcome import outcome_of
from oci_cluster.contract.settings.node import NodeSettings, read_settings
from oci_cluster.contract.storage.retry import Waiting, poll_delays
from oci_cluster.errors import SettingsError, StoppedError, StorageError, TimedOutError
from oci_cluster.node.begin.life import Arrival

log = logging.getLogger(__name__)


_WAITING = Waiting()


def with_own_rank(environ: Mapping[str, str], waiting: Waiting = _WAITING) -> Mapping[str, str]:
    """Return *environ* of a node of a group, with its rank."""
    told = environ.get("NODE_RANK", "")
    settings = read_settings({**environ, "NODE_RANK": "1"})
    if settings.is_main:
        return environ
    ranks = [*ranks_of_group(settings, told)]
    taken = (
        f"all {len(ranks)} ranks of {settings.mode} are taken: the service has started more nodes than the launch asked"
        " for, or one of them again; launch again"
    )
    rank = claim_rank(settings, ranks, uuid.uuid4().hex, taken=taken, waiting=waiting)
    log.info("rank %d of group %s; the service's number is %s", rank, settings.node_group, told or "not given")
    return {**environ, "NODE_RANK": str(rank)}


def claim_rank(settings: NodeSettings, ranks: Sequence[int], holder: str, *, taken: str, waiting: Waiting) -> int:
    """Return the first free one of *ranks*, which is *holder*'s from now on.

    Where all are taken, the error says *taken*.
    """
    cluster_dir = ClusterDir(settings.cluster_url, settings.launch_id, settings.launch_key)
    arrival = Arrival(cluster_dir, f"{settings.mode}-{holder}")
    give_up_at = waiting.clock() + settings.timeout_s
    for delay in poll_delays(settings.poll_ceiling_s):
        try:
            cluster_dir.create()
            if not settings.interruptible or cluster_dir.life or _enter_life(cluster_dir, arrival):
                if (rank := _claim(cluster_dir, settings, ranks, holder)) is None:
                    raise SettingsError(f"{taken} ({cluster_dir.url})")
                return rank
            if waiting.clock() >= give_up_at:
                limit = f"{settings.timeout_s:g} s (TIMEOUT)"
                raise TimedOutError(f"no main has begun a life within {limit} in {cluster_dir.url}")
        except StorageError as error:
            if waiting.clock() >= give_up_at:
                raise
            log.warning("no rank yet: %s; trying again", error)
        waiting.sleep(delay)
    raise AssertionError  # poll_delays never ends


def _enter_life(cluster_dir: ClusterDir, arrival: Arrival) -> bool:
    """Return whether main has told this life: in each, ranks are free again."""
    if (stop := read_stop(cluster_dir)) is not None:
        outcome = outcome_of(stop)
        raise StoppedError(outcome.reason, exit_code=outcome.exit_code)
    life = arrival.find()
    if life is None:
        return False
    cluster_dir.enter_life(life.id)
    arrival.leave()
    return True


def ranks_of_group(settings: NodeSettings, index: str = "") -> Iterator[int]:
    """Yield the ranks of this node's group; that of *index* comes first."""
    first, count = (1, settings.worker_count) if settings.mode == "WORKER" else (settings.first_ps, settings.ps_count)
    number = int(index) if index.isascii() and index.isdigit() and len(index) < 7 else first
    # Counted through, it is the rank; counted in the group, it is how many come before.
    start = number - first if first <= number < first + count else number
    yield from (first + (start + step) % count for step in range(count))


def _claim(cluster_dir: ClusterDir, settings: NodeSettings, ranks: Sequence[int], holder: str) -> int | None:
    """Take the first of *ranks* that is free, and return it, if any."""
    for rank in ranks:
        name = claim_file(node_name(settings.mode, rank), cluster_dir.life)
        try:
            cluster_dir.publish_once(name, holder=holder)
        except StorageError as error:
            # Somebody has it, or the answer was lost, or storage does not answer: the file tells.
            claim = cluster_dir.read(name)
            if claim is None and name not in cluster_dir.unusable:
                raise StorageError(f"{name} cannot be written: {error}") from error
            if claim is None or claim.get("holder") != holder:
                continue
        return rank
    return None
