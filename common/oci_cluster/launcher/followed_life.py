"""Which life of its launch a cluster is in, as a launcher sees it that has followed it through all of them."""

from __future__ import annotations

from collections.abc import Mapping

from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.lives import Life, is_interruptible, read_life
from oci_cluster.contract.names import config_file


class FollowedLife:
    """The life that main has begun last; None where a launch has but one."""

    def __init__(self, cluster_dir: ClusterDir, environment: Mapping[str, str]) -> None:
        """Look into *cluster_dir*; the nodes have this *environment*."""
        self._cluster_dir = cluster_dir
        self._is_interruptible = is_interruptible(environment)
        self._life: Life | None = None
        # How many have been seen: where nobody keeps what was before, main begins to count anew.
        self._seen = 0

    def begun(self) -> int:
        """Return the number of the life that has begun since the last look; 0 where none has, or it is the first."""
        if not self._is_interruptible:
            return 0
        before, self._life = self._life, read_life(self._cluster_dir) or self._life
        if self._life is None or (before is not None and before.id == self._life.id):
            return 0
        self.enter(self._cluster_dir)
        self._seen += 1
        number = max(self._life.number, self._seen)
        return number if number > 1 else 0

    def enter(self, cluster_dir: ClusterDir) -> ClusterDir:
        """Have only files of this life count in *cluster_dir*, and return it."""
        if self._life is not None:
            cluster_dir.enter_life(self._life.id)
        return cluster_dir

    def has_arrived(self, node: str, listing: Mapping[str, str]) -> bool:
        """Return whether *node* has come, as the cluster dir's *listing* shows: its files may be of an earlier life."""
        if self._life is None or not self._life.tells_arrivals:
            return config_file(node) in listing
        return node in self._life.answers
