"""The control plane of a Kubernetes of tests: etcd, API server, controllers, scheduler, CoreDNS; Kueue is beside it."""

from __future__ import annotations

import secrets
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kube import kueue
from kube.api import Api, Object
from kube.identity import Authority, by_certificate, kubeconfig, signing_key
from kube.machines import Machine

# The first of the Services' addresses is the API's own, as everywhere. No other is used: there is no kube-proxy.
SERVICES = "10.96.0.0/24"
API_ADDRESS = "10.96.0.1"
_LOOPBACK = "127.0.0.1"
# Nobody is held back by a client's own limit.
_QUICK = ("--kube-api-qps=500", "--kube-api-burst=1000")
# A lost node is seen after 8 s, not 50. A thousand fake ones that had to tell so often that they live would keep two
# cores busy.
_GRACE_S, _GRACE_OF_FAKE_NODES_S = 8, 100
_FRONT = "front-proxy"
_USERS = {  # file: user, groups
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager",),
    "scheduler": ("system:kube-scheduler",),
    "kueue": ("kueue", "system:masters"),
    "dns": ("dns", "system:masters"),
    "kwok": ("kwok", "system:masters"),
}


class ControlPlane:
    """All that is no node, on one machine; every program has a user of its own.

    Args:
        machine: Where it runs.
        directory: For its data, certificates and kubeconfigs.
        tools: What ``build-tools.sh`` has made.
        server: Its URL for whoever is not in its network.
    """

    def __init__(self, machine: Machine, directory: Path, tools: Path, server: str) -> None:
        self.machine = machine
        self.directory = directory
        self.tools = tools
        self.server = server
        self.token = secrets.token_hex(16)  # an administrator's that never expires
        self.authority = Authority(directory)
        self.inside = f"https://{machine.host.address}"
        self.admin = self.kubeconfig("admin", server)
        self.api = Api(self.admin)

    def kubeconfig(self, file: str, server: str, *user: str) -> Path:
        """Write the kubeconfig of one of the programs, or of another *user* with groups."""
        name, *groups = user or _USERS[file]
        shown = by_certificate(*self.authority.sign(file, name, *groups))
        return kubeconfig(self.directory / f"{file}.conf", server, self.authority.file, shown)

    def start(self) -> None:
        """Start all of it but Kueue; return when the API answers."""
        self.machine.run("ip", "address", "add", f"{API_ADDRESS}/32", "dev", "lo")
        self._start_etcd()
        self._start_api()
        self.wait_for_api()
        self._start_controllers(_GRACE_S)
        self._start_quick("scheduler", "kube-scheduler")
        self._start_dns()

    def _start_etcd(self) -> None:
        client, peer = f"http://{_LOOPBACK}:2379", f"http://{_LOOPBACK}:2380"
        self.machine.start(
            *("etcd", "etcd", "--unsafe-no-fsync", f"--data-dir={self.directory / 'etcd'}", "--log-level=warn"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=default={peer}",
        )

    def _start_api(self) -> None:
        address = self.machine.host.address
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", _LOOPBACK, API_ADDRESS)
        sign = self.authority.sign
        server = sign("server", "kube-apiserver", hosts=(*names, address))
        kubelets = sign("kubelet-client", "kube-apiserver", "system:masters")
        front = sign("front", _FRONT)
        private, public = signing_key(self.directory)
        tokens = self.directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self.token},admin,admin,"system:masters"\n')
        self.machine.start(
            *("api", "kube-apiserver", f"--etcd-servers=http://{_LOOPBACK}:2379"),
            *("--bind-address=0.0.0.0", f"--advertise-address={address}", "--secure-port=443"),
            *(f"--tls-cert-file={server[0]}", f"--tls-private-key-file={server[1]}"),
            *(f"--client-ca-file={self.authority.file}", f"--token-auth-file={tokens}"),
            *("--authorization-mode=Node,RBAC", "--allow-privileged", f"--service-cluster-ip-range={SERVICES}"),
            *(f"--service-account-issuer=https://{API_ADDRESS}", f"--service-account-signing-key-file={private}"),
            *(f"--service-account-key-file={public}", "--endpoint-reconciler-type=none"),
            *(f"--kubelet-client-certificate={kubelets[0]}", f"--kubelet-client-key={kubelets[1]}"),
            *("--kubelet-preferred-address-types=InternalIP", "--max-requests-inflight=800"),
            *(f"--requestheader-client-ca-file={self.authority.file}", f"--requestheader-allowed-names={_FRONT}"),
            *("--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group"),
            *("--requestheader-extra-headers-prefix=X-Remote-Extra-", "--shutdown-delay-duration=0s"),
            *(f"--proxy-client-cert-file={front[0]}", f"--proxy-client-key-file={front[1]}"),
        )

    def _start_controllers(self, grace_s: int) -> None:
        self._start_quick(
            *("controllers", "kube-controller-manager", "--use-service-account-credentials"),
            f"--service-account-private-key-file={self.directory / 'accounts.key'}",
            f"--root-ca-file={self.authority.file}",
            *("--node-monitor-period=1s", f"--node-monitor-grace-period={grace_s}s", "--concurrent-gc-syncs=5"),
        )

    def _start_quick(self, name: str, program: str, *more: str) -> None:
        config = self.kubeconfig(name, self.inside)
        words = ("--leader-elect=false", f"--bind-address={_LOOPBACK}", f"--cert-dir={self.directory / name}")
        self.machine.start(name, program, f"--kubeconfig={config}", *words, *_QUICK, *more)

    def _start_dns(self) -> None:
        config = self.kubeconfig("dns", self.inside)
        corefile = self.directory / "Corefile"
        # ttl 5, and negative answers for 5 s, as CoreDNS's own default of the plugin has it; no upstream.
        corefile.write_text(
            f".:53 {{\n  bind {self.machine.host.address}\n  errors\n  kubernetes cluster.local in-addr.arpa {{\n"
            f"    kubeconfig {config}\n    ttl 5\n  }}\n  cache 5\n}}\n"
        )
        self.machine.start("dns", "coredns", "-conf", corefile)

    def wait_for_api(self) -> None:
        self.machine.wait_for(lambda: self.api.get("readyz", timeout=5) is not None, "api")

    def restart_api(self, *, orderly: bool = False) -> None:
        """Kill the API server, or end it in order, and start it again; return when it answers."""
        self.stop_api(orderly=orderly)
        self.start_api_again()

    def stop_api(self, *, orderly: bool = False) -> None:
        # In order it waits for its watchers, for up to a minute.
        self.machine.kill("api", signal.SIGTERM if orderly else signal.SIGKILL)

    def start_api_again(self) -> None:
        self.machine.start_again("api")
        self.wait_for_api()

    def start_kueue(self, settings: dict[str, Any] | None = None) -> None:
        """Start Kueue, or start it again with *settings* of its Configuration beside ours."""
        certificates = self.authority.sign("webhook", "webhook", hosts=(_LOOPBACK, "localhost"))
        config = self.kubeconfig("kueue", self.inside)
        kueue.start(
            self.machine,
            self.directory,
            source=self.tools / "kueue",
            api=self.api,
            kubeconfig=config,
            certificates=certificates,
            settings=settings or {},
        )

    def start_kwok(self) -> None:
        """Start what makes Nodes with the label ``type=kwok`` ready, and runs their pods in name only."""
        stages = self.tools / "kwok" / "stage"
        parts = ("node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease")
        pods = ("pod/fast/pod-ready", "pod/fast/pod-delete")
        config = self.directory / "kwok.yaml"
        config.write_text("\n---\n".join((stages / f"{part}.yaml").read_text() for part in (*parts, *pods)))
        words = (
            "--manage-nodes-with-label-selector=type=kwok",
            f"--config={config}",
            "--node-lease-duration-seconds=120",
        )
        self.machine.kill("controllers")
        self._start_controllers(_GRACE_OF_FAKE_NODES_S)
        known = self.kubeconfig("kwok", self.inside)
        self.machine.start("kwok", "kwok", f"--kubeconfig={known}", *words, f"--server-address={_LOOPBACK}:10247")
        self.machine.wait_for(lambda: self.machine.answers(10247, "healthz"), "kwok")

    def add_fake_nodes(self, count: int, resources: dict[str, str]) -> list[str]:
        """Make *count* Nodes that kwok runs; return their names."""
        if "kwok" not in self.machine.programs:
            self.start_kwok()
        names = [f"fake-{number:04}" for number in range(count)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: self.api.create("api/v1/nodes", _fake_node(name, resources)), names))
        return names

    def about(self) -> dict[str, str]:
        """Return what another process needs to know, which JSON can say."""
        return {"server": self.server, "admin": str(self.admin), "token": self.token}


def _fake_node(name: str, resources: dict[str, str]) -> Object:
    return {
        "metadata": {
            "name": name,
            "labels": {"type": "kwok", "kubernetes.io/hostname": name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        # Real pods must not go there: nothing runs them.
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"capacity": resources, "allocatable": resources},
    }
