"""A node of a Kubernetes of tests: containerd and a kubelet on a machine of their own, pods on a bridge of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from kube.api import Api, condition
from kube.identity import Authority, by_certificate, kubeconfig
from kube.machines import Machine

PAUSE = "localhost/pause:1"
CLUSTER_DOMAIN = "cluster.local"
_CONTAINERD = "/usr/bin/containerd"
# Where its machine has the node's directory: short, as paths of sockets are at most 107 bytes long.
_HERE = Path("/node")


def pods_of(number: int) -> str:
    """Return the addresses of the pods of the node of this *number*."""
    return f"10.231.{number}.0/24"


class Node:
    """One node.

    Args:
        machine: Where it runs, with cgroups of its own.
        number: From 1; its pods' network is named by it.
        directory: For containers and volumes: on a disk, not in memory.
        dns: The address of the cluster's DNS.
        tools: What ``build-tools.sh`` has made.
    """

    def __init__(self, machine: Machine, number: int, directory: Path, dns: str, tools: Path) -> None:
        self.machine = machine
        self.name = machine.host.name
        self.number = number
        self.directory = directory
        self._dns = dns
        self._tools = tools
        self._socket = Path("/run/containerd.sock")  # of the machine's own /run
        directory.mkdir(parents=True)
        # Shared: what a kubelet mounts in there must be seen by the runtime's containers.
        for words in (("mkdir", _HERE), ("mount", "--bind", directory, _HERE), ("mount", "--make-rshared", _HERE)):
            machine.run(*words)

    def start_runtime(self) -> None:
        """Start containerd; return when it answers, with the image of pods' pauses."""
        (self.directory / "config.toml").write_text(self._config())
        (self.directory / "cni").mkdir()
        (self.directory / "cni" / "10-pods.conflist").write_text(json.dumps(self._network()))
        self.machine.start("containerd", _CONTAINERD, "--config", _HERE / "config.toml")
        self.machine.wait_for(lambda: self.ctr("version"), "containerd")

    def start_kubelet(self, server: str, authority: Authority) -> None:
        """Start the kubelet; it makes its Node by itself."""
        shown = by_certificate(*authority.sign(f"{self.name}", f"system:node:{self.name}", "system:nodes"))
        kubeconfig(self.directory / "kubelet.conf", server, authority.file, shown)
        (self.directory / "kubelet.json").write_text(json.dumps(self._settings(authority)))  # which is YAML, too
        root = _HERE / "kubelet"
        self.machine.start(
            *("kubelet", "kubelet", f"--kubeconfig={_HERE / 'kubelet.conf'}"),
            *(f"--config={_HERE / 'kubelet.json'}", f"--root-dir={root}"),
            *(
                f"--cert-dir={root / 'pki'}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.machine.host.address}",
            ),
        )

    def wait(self, api: Api) -> None:
        """Return when it is Ready."""
        path = f"api/v1/nodes/{self.name}"

        def is_ready() -> bool:
            found = api.find(path)
            return found is not None and condition(found, "Ready").get("status") == "True"

        self.machine.wait_for(is_ready, "kubelet")

    def ctr(self, *words: object, stdin: Path = Path("/dev/null")) -> str:
        """Run containerd's own client, in the namespace that the kubelet uses."""
        return self.machine.run("ctr", f"--address={self._socket}", "--namespace=k8s.io", *words, stdin=stdin)

    def import_image(self, archive: Path) -> None:
        """Load an archive as ``docker save`` writes it."""
        self.ctr("images", "import", "-", stdin=archive)
        # Pods run what was unpacked. The layers themselves, as large again on each machine, go.
        self.ctr("content", "prune", "references")

    def routes(self, others: Iterable[Machine]) -> list[str]:
        """Return the commands that lead the other machines to this one's pods."""
        return [
            f"{other.host.name} ip route replace {pods_of(self.number)} via {self.machine.host.address}"
            for other in others
            if other is not self.machine
        ]

    def _config(self) -> str:
        # An overlay cannot lie on an overlay, as the disk of a container is one: then layers are copied.
        probe = self.directory / "probe"
        for part in ("lower", "upper", "work", "merged"):
            (probe / part).mkdir(parents=True)
        options = f"lowerdir={probe}/lower,upperdir={probe}/upper,workdir={probe}/work"
        words = ["unshare", "--mount", "mount", "-t", "overlay", "-o", options, "overlay", str(probe / "merged")]
        is_overlay = subprocess.run(words, capture_output=True, check=False).returncode == 0
        return f"""\
version = 2
root = "{_HERE}/containerd"
state = "/run/containerd"
[grpc]
address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
# Without CAP_SYS_RESOURCE no process may lower its score.
restrict_oom_score_adj = true
sandbox_image = "{PAUSE}"
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{"overlayfs" if is_overlay else "native"}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{self._tools}/bin"
conf_dir = "{_HERE}/cni"
[plugins."io.containerd.internal.v1.opt"]
path = "{_HERE}/opt"
"""

    def _network(self) -> dict[str, object]:
        addresses = {
            "type": "host-local",
            "dataDir": "/run/cni",
            "ranges": [[{"subnet": pods_of(self.number)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipam": addresses}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}

    def _settings(self, authority: Authority) -> dict[str, object]:
        eviction = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.machine.host.address,
            "port": 10250,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority.file)},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            # The machine's disk and memory are shared: what others fill must evict no pod, and remove no image.
            "evictionHard": dict.fromkeys(eviction, "0%"),
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "resolvConf": "",
            "clusterDNS": [self._dns],
            "clusterDomain": CLUSTER_DOMAIN,
            "podLogsDir": str(_HERE / "logs"),
            # By default 10Mi and 10s: what is longer loses its beginning soon.
            "containerLogMaxSize": "2Mi",
            "containerLogMonitorInterval": "3s",
            "maxPods": 60,
            # A node that is lost is seen soon.
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "10s",
            "nodeLeaseDurationSeconds": 4,
            "kubeAPIQPS": 200,
            "kubeAPIBurst": 400,
            # Secrets and ConfigMaps of a new namespace are there at once.
            "syncFrequency": "5s",
            "serializeImagePulls": False,
        }
