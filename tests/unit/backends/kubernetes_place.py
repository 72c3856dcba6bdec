"""A Kubernetes as a place where nodes run: its API in memory."""

from __future__ import annotations

import json
from typing import Any

from lightkube.config.kubeconfig import KubeConfig
from unit.backends.places import Base
from unit.fake_kubernetes import FakeKubernetes, RefusalError

from oci_cluster.backends.kubernetes.api.kubeconfig import Access
from oci_cluster.backends.kubernetes.api.service import Service
from oci_cluster.backends.kubernetes.backend import KubernetesBackend


def access(server: str = "https://kubernetes.test") -> Access:
    """Return the access to a Kubernetes, which is nowhere unless a *server* is named."""
    config = KubeConfig.from_server(server, "default").get()
    assert config is not None
    return Access(config, "default")


class KubernetesPlace(Base):
    """A Kubernetes: its API in memory."""

    name = "kubernetes"
    gives_ranks_again = False

    def set_up(self) -> None:
        self.fake = FakeKubernetes(self.clock)
        self._stops_at = ""
        self._refused = ""
        # What WebSockets are opened to.
        self.server = "https://kubernetes.test"
        self.settings = {"IMAGE": "plain:1", "NAMESPACE": "default"}
        kubeconfig = self.root.parent / "kubeconfig"
        context = {"cluster": "c", "user": "u", "namespace": "default"}
        kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "tests",
                    "contexts": [{"name": "tests", "context": context}],
                    "clusters": [{"name": "c", "cluster": {"server": "https://kubernetes.test"}}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                }
            )
        )
        self.settings |= {"KUBECONFIG": str(kubeconfig), "KUBE_CONTEXT": "tests"}

    def make(self) -> KubernetesBackend:
        def open_service(_settings: Any) -> Service:
            return Service(
                access(self.server),
                transport=self.fake,
                clock=self.clock,
                sleep=self.clock.sleep,
                is_stopped=self._is_told,
                patience_s=5.0,
            )

        return KubernetesBackend(
            self.root, self.settings, open_service, is_stopped=self._is_told, clock=self.clock, sleep=self.clock.sleep
        )

    def _is_told(self) -> bool:
        return bool(self._stops_at) and bool(self.fake.objects.get("jobs"))

    def running(self) -> list[str]:
        return sorted(name for name, pod in self.fake.pods().items() if pod["status"]["phase"] == "Running")

    def requests(self) -> int:
        return len(self.fake.asked)

    def refuse(self, node: str) -> None:
        """A Job has no nodes that are refused one by one: what makes them is."""

        def before(method: str, path: str, body: Any) -> None:
            if method == "PATCH" and "/jobs/" in path and not _is_end(body):
                raise RefusalError(403, "Forbidden", f"no room for {node}")

        self.fake.before = before

    def allow(self) -> None:
        self.fake.before = lambda *_: None

    def lose_answer_of(self, node: str) -> None:
        lost: list[str] = []

        def after(method: str, path: str, body: Any) -> None:
            if method == "POST" and path.endswith("/jobs") and not lost:
                lost.append(path)
                raise RefusalError(504, "Timeout", "the server was not able to return a response in time")

        self.fake.after = after

    def stop_launcher_at(self, node: str) -> None:
        self._stops_at = node

    def add_hostile(self) -> None:
        jobs = self.fake.objects["jobs"]
        ours = next(iter(jobs.values()))
        for number, (place, name, text) in enumerate(
            [
                ("annotations", "oci-cluster-name", "../../etc"),
                ("labels", "oci-cluster-launch", "../../../etc"),
                ("annotations", "oci-cluster-created", "\x1b[2J"),
                ("labels", "oci-cluster-launch", ""),
                ("labels", "oci-cluster-launch", "00000000"),
            ]
        ):
            meta = {**ours["metadata"], "name": f"hostile-{number}", "uid": f"h{number}"}
            meta[place] = {**meta[place], name: text}
            jobs[f"hostile-{number}"] = {**ours, "metadata": meta}

    def end(self, node: str, code: int) -> None:
        self.fake.end(node, code)

    def hold(self, node: str) -> None:
        self.fake.hold(node)

    def begin(self) -> None:
        self.fake.begin()

    def given(self, node: str) -> dict[str, str]:
        pod = self.fake.pods()[node]
        pairs = pod["spec"]["containers"][0]["env"]
        index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        own = {"MODE": "MAIN" if index == "0" else "WORKER", "NODE_RANK": index}  # as the agent takes it
        return {**{one["name"]: one.get("value", "") for one in pairs}, **own}

    def forge(self, name: str, text: str) -> None:
        for job in self.fake.objects["jobs"].values():
            env = job["spec"]["template"]["spec"]["containers"][0]["env"]
            env[:] = [one for one in env if one["name"] != name] + [{"name": name, "value": text}]

    def print(self, node: str, text: str, second: int = 0) -> None:
        self.fake.print(node, text, second)


def _is_end(body: Any) -> bool:
    return isinstance(body, dict) and "activeDeadlineSeconds" in body.get("spec", {})
