"""The current life of the launch: main begins it, other nodes prove it."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.lives import Life, read_life
from oci_cluster.contract.names import CERTIFICATE, LIFE, READY, arrival_file, config_file, exit_file
from oci_cluster.errors import LifeInterruptedError
from oci_cluster.node.loop import NodeLoop

log = logging.getLogger("agent")

# Under the name of a node; of one that has no rank yet, its role and a random word.
_ARRIVAL = re.compile(r"(?P<arrival>(WORKER|PS)(_[1-9][0-9]{0,6}|-[0-9a-f]{32}))_arrival\.json")
# Files of an earlier main that people, or programs without a life, would take for this one's.
_MAINS_OWN = (config_file("MAIN"), READY, CERTIFICATE, exit_file("MAIN"))


class LedLife:
    """The life that this main leads."""

    def __init__(self, loop: NodeLoop) -> None:
        self._loop = loop
        self._id = ""
        self._answers: dict[str, int] = {}
        # Fingerprints of the arrivals that have been read, and of the file that tells of this life.
        self._arrivals: dict[str, str] = {}
        self._shown = ""
        self._is_told = False
        #: 1 for the first life of the launch; 0 before any.
        self.number = 0

    def begin(self) -> None:
        """Begin the next life: from now on, no file of an earlier one counts."""
        self._id = secrets.token_hex(16)
        self.number = 0
        self._answers.clear()
        self._arrivals.clear()
        self._loop.wait_for(LIFE, self._begin)
        self._loop.enter_life(self._id, self.number)

    def _begin(self) -> bool:
        cluster_dir = self._loop.cluster_dir
        cluster_dir.enter_life(self._id)
        before = read_life(cluster_dir)
        # Its own, where storage has taken that without an answer.
        number = 1 if before is None else before.number + (before.id != self._id)
        listing = cluster_dir.listing()
        for name in _MAINS_OWN:
            if name in listing:
                cluster_dir.remove(name)
        self._tell(number)
        self.number = number
        return True

    def _tell(self, number: int) -> None:
        self._loop.cluster_dir.publish(LIFE, number=number, answers=self._answers)
        self._is_told = True

    def note(self, listing: Mapping[str, str]) -> None:
        """Answer the nodes that have arrived, as the cluster dir's *listing* shows."""
        cluster_dir = self._loop.cluster_dir
        # A node that is started again may arrive in the second in which it was interrupted.
        may_be_new = cluster_dir.has_coarse_times
        if may_be_new or listing.get(LIFE, "") != self._shown:
            self._check_that_it_leads()
            self._shown = listing.get(LIFE, "")
        for name, fingerprint in listing.items():
            found = _ARRIVAL.fullmatch(name)
            if found is None or (self._arrivals.get(name) == fingerprint and not may_be_new):
                continue
            fields = cluster_dir.read(name, any_life=True)
            self._arrivals[name] = fingerprint
            if fields is not None and self._answers.get(found["arrival"]) != fields["counter"]:
                self._answers[found["arrival"]] = fields["counter"]
                self._is_told = False
        if not self._is_told:
            # Those without a rank remove theirs, when it has been answered.
            here = {name for name in self._answers if "-" not in name or arrival_file(name) in listing}
            self._answers = {name: counter for name, counter in self._answers.items() if name in here}
            self._tell(self.number)

    def _check_that_it_leads(self) -> None:
        life = read_life(self._loop.cluster_dir)
        if life is None:  # somebody has removed or damaged it
            self._is_told = False
        elif life.id != self._id:
            raise LifeInterruptedError(
                f"interrupted: another main has begun life {life.number} of this launch; this one gives way"
            )


class Arrival:
    """A node's arrival, which main answers: nothing else proves that main lives."""

    def __init__(self, cluster_dir: ClusterDir, name: str) -> None:
        self._cluster_dir = cluster_dir
        self._name = name
        self._counter = 0

    def find(self) -> Life | None:
        """Return the current life once main has answered; arrive first, if that is new."""
        if not self._counter:
            # A predecessor's file must be older, even if this node's clock is behind.
            self._cluster_dir.read(arrival_file(self._name), any_life=True)
            self._counter = self._cluster_dir.publish(arrival_file(self._name))
        life = read_life(self._cluster_dir)
        if life is not None and life.answers.get(self._name) == self._counter:
            return life
        # Main's memory ends with main: the next one has not seen it.
        if self._cluster_dir.is_at_main and not self._cluster_dir.is_there(arrival_file(self._name)):
            self._counter = 0
        return None

    def renew(self) -> None:
        """Arrive anew at the next look: earlier answers say nothing of now."""
        self._counter = 0

    def leave(self) -> None:
        """Remove the arrival: it is answered, and nobody uses that name again."""
        self._cluster_dir.remove(arrival_file(self._name))
