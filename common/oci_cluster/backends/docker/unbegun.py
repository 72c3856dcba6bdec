"""Containers that an engine has made and not begun: a launch is just beginning them, or nobody ever will."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from oci_cluster.backends.docker.states import Container, has_begun, state_of
from oci_cluster.contract.cluster import NodeState

# An engine makes a container and begins it within a second, on a busy machine within a few.
_BEGIN_S = 10.0


class Unbegun:
    """Which containers that are to be ended count as nodes that never began.

    No signal reaches a container that has not begun. One that a launch is just beginning reads the ``stop`` file then;
    one that an engine was beginning when it hung, or was killed, would be waited for without end.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Count by *clock*, monotonic seconds."""
        self._clock = clock
        # By the containers' ids: when they were first seen, and from when on they are given up.
        self._seen_at: dict[str, float] = {}
        self._given_up_at: dict[str, float] = {}

    def note(self, containers: Sequence[Container]) -> None:
        """Note which of *containers* have not begun."""
        for container in containers:
            if not has_begun(container):
                self._seen_at.setdefault(str(container["Id"]), self._clock())

    def give_up(self, ids: Iterable[str]) -> None:
        """Give up containers with these *ids* as soon as the engine has had its time for them."""
        self._given_up_at |= {id_: self._seen_at[id_] + _BEGIN_S for id_ in ids}

    def state(self, name: str, container: Container) -> NodeState:
        """Return what *container* tells of the node called *name*; see :func:`state_of`."""
        now = self._clock()
        return state_of(name, container, {id_ for id_, at in self._given_up_at.items() if now >= at})
