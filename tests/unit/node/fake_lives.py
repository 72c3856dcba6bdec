"""Nodes of one launch that live one after the other; mains and workers of other lives, whom the test plays."""

from __future__ import annotations

import signal
from typing import Any

from unit.fake_cluster import FOR_EVER_S, KEY, LAUNCH, MakeNode, Node

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import LIFE, READY, arrival_file, config_file, exit_file, heartbeat_file

ONE, TWO = "1" * 32, "2" * 32


class Launch:
    """One launch whose nodes live one after the other, or whose others the test plays."""

    def __init__(self, make: MakeNode) -> None:
        self._make = make
        self._work_dir = ""

    def node(self, rank: int = 0, **environ: str) -> Node:
        """Return a node of this launch, which is started now, with a clock that is an hour after its predecessor's."""
        mode = {} if not rank else {"MODE": "WORKER", "NODE_RANK": str(rank), "NODE_ADDRESS": f"10.0.0.{rank + 1}"}
        given = {"INTERRUPTIBLE": "1", "POLL_CEILING": "1", **mode, **environ}
        node = self._make(**given, **({"WORK_DIR": self._work_dir} if self._work_dir else {}))
        self._work_dir = node.settings.work_dir
        return node

    def main(self, **environ: str) -> Node:
        """Return main, whose start script is ready at once."""
        main = self.node(**environ)
        main.ready_at_once()
        return main


def term(node: Node, at: float) -> None:
    """Send TERM to a node at a moment."""
    node.world.at(at, lambda: setattr(node.world, "received", signal.SIGTERM))


def of(node: Node, life: str) -> ClusterDir:
    """Return the cluster dir as another node of *life* sees it."""
    held = node.files._fs._ask if node.files.is_at_main else None
    cluster_dir = ClusterDir(node.settings.cluster_url, LAUNCH, KEY, held=held)
    cluster_dir._signer._wall_clock_ns = lambda: int(node.world.wall_clock() * 1e9)
    cluster_dir.enter_life(life)
    return cluster_dir


class OtherMain:
    """A main that answers the nodes which arrive, as its life has it."""

    def __init__(
        self, node: Node, life: str = TWO, number: int = 2, *, at: float = 0.0, until: float = FOR_EVER_S
    ) -> None:
        self.life = life
        self._node, self._until, self._number = node, until, number
        self.files = of(node, life)
        self._beat = number * 1000
        self.phase = "ready"
        self.answers = True
        node.world.at(at, lambda: node.world.every(1.0, self._live, until=until))

    def _live(self) -> None:
        self._beat += 1
        answers = {}
        for rank in (1, 2):
            arrival = self.files.read(arrival_file(f"WORKER_{rank}"), any_life=True)
            if arrival is not None and self.answers:
                answers[f"WORKER_{rank}"] = arrival["counter"]
        self.files.publish(LIFE, number=self._number, answers=answers)
        self.files.publish(config_file("MAIN"), node="MAIN", rank=0, address=f"10.0.{self._number}.1")
        self.files.publish(heartbeat_file("MAIN"), beat=self._beat, phase=self.phase, attempt=0)


def lead_earlier(node: Node, *, ended: dict[str, Any] | None = None) -> ClusterDir:
    """Have a main have led a life before; return the cluster dir as that saw it."""
    earlier = of(node, ONE)
    earlier.publish(LIFE, number=1, answers={"WORKER_1": 1})
    earlier.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.1.1")
    earlier.publish(heartbeat_file("MAIN"), beat=1, phase="ready", attempt=0)
    earlier.publish(READY, facts={"dashboard": "old"})
    if ended is not None:
        earlier.publish(exit_file("MAIN"), exit_code=143, reason="x", attempt=0, time=1.0, has_left=True, **ended)
    return earlier


class Workers:
    """Workers of the life that *main* leads, played by the test."""

    def __init__(self, main: Node, *others: str) -> None:
        self._main = main
        self.beating = {"WORKER_1", "WORKER_2", *others}
        self._beat = 0
        main.world.every(1.0, self._live)

    @property
    def files(self) -> ClusterDir:
        return of(self._main, self._main.read(LIFE).get("life", ""))

    def _live(self) -> None:
        self._beat += 1
        life = self._main.read(LIFE)
        for node in sorted(self.beating) if life else ():
            config, attempt = (
                self._main.read(config_file(node)),
                self._main.read(heartbeat_file("MAIN")).get("attempt", 0),
            )
            if config.get("life") != life["life"] or config.get("attempt", 0) < attempt:
                self._come(node, attempt)
            self.files.publish(heartbeat_file(node), beat=self._beat, phase="ready", attempt=attempt)

    def _come(self, node: str, attempt: int) -> None:
        address = f"10.0.0.{int(node[-1]) + 1}"
        self.files.publish(config_file(node), node=node, address=address, attempt=attempt)

    def interrupt(self, node: str, at: float, *, back_at: float = FOR_EVER_S, attempt: int = 0) -> None:
        def leave() -> None:
            self.beating.discard(node)
            self.files.publish(
                exit_file(node), exit_code=143, reason="interrupted: x", has_left=True, interrupted=True, time=1.0
            )

        def come_back() -> None:
            self.files.remove(exit_file(node))
            self._come(node, attempt)
            self.beating.add(node)

        self._main.world.at(at, leave)
        if back_at < FOR_EVER_S:
            self._main.world.at(back_at, come_back)
