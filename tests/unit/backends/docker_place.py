"""A container engine as a place where nodes run: a program that keeps containers in a file."""

from __future__ import annotations

from typing import Any

from unit.backends.places import Base
from unit.fake_engine import FakeEngine

from oci_cluster.backends.docker.backend import DockerBackend


class DockerPlace(Base):
    """A container engine: a program that keeps containers in a file."""

    name = "docker"

    def set_up(self) -> None:
        self._engine = FakeEngine(self.root.parent)
        self._stops_at = ""
        self.settings = {"IMAGE": "plain:1", "DOCKER": str(self._engine.program)}

    def make(self) -> DockerBackend:
        return DockerBackend(self._engine.engine, self.root, is_stopped=self._is_told, clock=self.clock)

    def _is_told(self) -> bool:
        return any(name.endswith(f"-{self._stops_at}") for name in self._engine.state["containers"] if self._stops_at)

    def _containers(self) -> dict[str, dict[str, Any]]:
        """Return the containers by the nodes that they are, those of later clusters last."""
        found = self._engine.state["containers"].values()
        return {str(one["Config"]["Labels"].get("oci-cluster.node")): one for one in found}

    def running(self) -> list[str]:
        found = self._engine.state["containers"].values()
        running = [one for one in found if one["State"]["Status"] == "running"]
        return sorted(str(one["Config"]["Labels"]["oci-cluster.node"]) for one in running)

    def requests(self) -> int:
        return len(self._engine.calls())

    def refuse(self, node: str) -> None:
        self._engine.fail("run", "docker: no space left on device", f"NODE_NAME={node}")

    def allow(self) -> None:
        self._engine.change(faults=[])

    def lose_answer_of(self, node: str) -> None:
        self._engine.fail("run", "error during connect: EOF", f"NODE_NAME={node}", is_done=True)

    def stop_launcher_at(self, node: str) -> None:
        self._stops_at = node

    def add_hostile(self) -> None:
        containers = self._engine.state["containers"]
        ours = next(iter(containers.values()))
        labels = ours["Config"]["Labels"]
        for number, other in enumerate(
            [
                {"oci-cluster.name": "../../etc"},
                {"oci-cluster.launch": "../../../etc"},
                {"oci-cluster.created": "\x1b[2J"},
                {"oci-cluster.name": "", "oci-cluster.launch": ""},
            ]
        ):
            config = {"Labels": {**labels, **other}, "Env": []}
            containers[f"hostile-{number}"] = {**ours, "Id": f"hostile{number}", "Config": config}
        self._engine.change(containers=containers)

    def end(self, node: str, code: int) -> None:
        self._engine.set(node, Status="exited", ExitCode=code)

    def hold(self, node: str) -> None:
        self._engine.set(node, Status="created", ExitCode=0)

    def given(self, node: str) -> dict[str, str]:
        return dict(text.split("=", 1) for text in self._containers()[node]["Config"]["Env"])

    def forge(self, name: str, text: str) -> None:
        containers = self._engine.state["containers"]
        for container in containers.values():
            container["Config"]["Env"].append(f"{name}={text}")
        self._engine.change(containers=containers)

    def print(self, node: str, text: str, second: int = 0) -> None:
        containers = self._engine.state["containers"]
        for name, container in containers.items():
            if name.endswith(f"-{node}"):
                container["log"] = container.get("log", "") + text
                container["seconds"] = [*container.get("seconds", []), second]
        self._engine.change(containers=containers)

    def settle(self) -> None:
        for backend in self._opened:
            backend.close()  # returns when the engine's clients have ended
        self.clock.sleep(10)  # one that is just being begun is waited for
