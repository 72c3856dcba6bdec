"""A worker of a gang under test, whose main does what the test says."""

from __future__ import annotations

from typing import Any

from unit.fake_cluster import MakeNode

from oci_cluster.contract.names import STOP, config_file, exit_file, heartbeat_file


class Follower:
    """The second worker of a gang, whose main does what the test says."""

    def __init__(self, make: MakeNode, *, attempt: int = 0, nodes: Any = None, **environ: str) -> None:
        more = {"MODE": "WORKER", "NODE_RANK": "2", "NODE_ADDRESS": "10.0.0.3", "GANG": "1", "POLL_CEILING": "1"}
        self.worker = make(**{**more, **environ})
        self.told: dict[str, Any] = {"attempt": attempt}
        self._config: dict[str, Any] = {}
        self._answered = 0
        self._is_silent = False
        self._beat = 0
        self.worker.world.every(1.0, self._live)
        self.begins(attempt, nodes=nodes)

    def _live(self) -> None:
        if self._is_silent:
            return
        self._beat += 1
        self.worker.files.publish(heartbeat_file("MAIN"), beat=self._beat, **self.told)
        self._answer()

    def falls_silent(self, at: float) -> None:
        """Have main be lost at a moment."""
        self.worker.world.at(at, lambda: setattr(self, "_is_silent", True))

    def _answer(self) -> None:
        """Publish main's configuration where it answers nobody's yet, as main does when it has read the workers'."""
        asked = self.worker.read(config_file("WORKER_2"))
        if self._config and asked.get("attempt") == self._config["attempt"] and asked["counter"] != self._answered:
            self._answered = asked["counter"]
            answers = {"WORKER_2": self._answered}
            self.worker.files.publish(config_file("MAIN"), **{"answers": answers, **self._config})

    def tells(self, attempt: object, at: float) -> None:
        """Have main's heartbeat tell of *attempt*."""
        self.worker.world.at(at, lambda: self.told.update(attempt=attempt))

    def begins(self, attempt: int, at: float = 0.0, nodes: Any = None, **fields: Any) -> None:
        """Have main publish what an attempt is to know: with both workers, where *nodes* does not say otherwise."""
        nodes = {"WORKER_1": "10.0.0.2", "WORKER_2": "10.0.0.3"} if nodes is None else nodes
        config = {"node": "MAIN", "rank": 0, "address": "10.0.0.1", "attempt": attempt, "nodes": nodes, **fields}

        def begin() -> None:
            self._config, self._answered = config, 0
            self.worker.files.publish(config_file("MAIN"), **config)
            self._answer()

        self.worker.world.at(at, begin)

    def stops(self, at: float, code: int = 0) -> int:
        """Run the worker, whose main ends the cluster at a moment."""
        self.worker.publish(STOP, at=at, reason="the entry point ended", exit_code=code)
        return self.worker.run()

    def exit_at(self, moment: float) -> list[Any]:
        """Return a list that will hold what the worker has told of its end by then."""
        return self.worker.seen_at(moment, lambda: self.worker.read(exit_file("WORKER_2")))
