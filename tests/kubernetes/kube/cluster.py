"""A Kubernetes of tests, as its holders see it: started by the first, shared by all, ended after the last."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hosts
from harness import wait_until

from kube import cgroups
from kube.api import Api, Object, condition
from kube.identity import Authority, by_certificate, by_plugin, kubeconfig, new_name, write_secret

_HERE = Path(__file__).resolve().parents[1]
_BUILD = _HERE / "build-tools.sh"
# For one call of kubectl.
_PATIENCE_S = 300.0


def why_not() -> str:
    """Return what is missing to run a Kubernetes here, but for its own programs; empty where nothing is."""
    if reason := hosts.why_not():
        return reason
    programs = {
        "/usr/bin/containerd": "containerd",
        "/usr/bin/ctr": "containerd",
        "runc": "runc",
        "flock": "util-linux",
    }
    if missing := [program for program in programs if not shutil.which(program)]:
        packages = dict.fromkeys(programs[program] for program in missing)
        return f"needs {', '.join(missing)} (Debian's {', '.join(packages)})"
    return cgroups.why_not()


def tools() -> Path:
    """Return what ``build-tools.sh`` has made; it makes it where it is not there."""
    done = subprocess.run([_BUILD], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"'{_BUILD}' ended with {done.returncode}; stderr says why")
    return Path(done.stdout.strip())


# What may be left behind: of events there are always some, users are their tests' own.
_MADE = {
    "api/v1": ("pods", "services", "configmaps", "secrets", "persistentvolumeclaims"),
    "apis/batch/v1": ("jobs",),
    "apis/networking.k8s.io/v1": ("networkpolicies",),
    "apis/policy/v1": ("poddisruptionbudgets",),
}


class Cluster:
    """A Kubernetes that runs as long as this process, or another one, holds it. A context manager.

    Args:
        directory: Its own; all that hold the same directory share one cluster.
        node_count: Of real nodes, ``n1``, ``n2`` ...; the first holder's word counts.
        with_kueue: Whether Kueue is installed; likewise.
    """

    def __init__(self, directory: Path, *, node_count: int = 2, with_kueue: bool = True) -> None:
        self.directory = directory
        self._options = (str(node_count), "kueue" if with_kueue else "plain")
        self._held = -1

    def __enter__(self) -> Cluster:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.directory / "held")
            # For both, which does not wait for a reader; closed when this process ends, however it does.
            self._held = os.open(self.directory / "held", os.O_RDWR | os.O_CLOEXEC)
            about = self._about()
            if about is None:
                try:
                    about = self._start()
                except BaseException:
                    self.__exit__()
                    raise
        self.about = about
        self.place = Path(about["place"])
        self.nodes: list[str] = about["nodes"]
        self.server: str = about["server"]
        self.admin = Path(about["admin"])
        self.bin = Path(about["tools"]) / "bin"
        self.authority = Authority(self.place)
        self.api = Api(self.admin)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._held)

    def _about(self) -> dict[str, Any] | None:
        """Return what its keeper has written, where that runs."""
        with contextlib.suppress(FileNotFoundError):
            about: dict[str, Any] = json.loads((self.directory / "about.json").read_text())
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
                client.connect(about["do"])
                return about
        return None

    def _start(self) -> dict[str, Any]:
        """Start the keeper, which is no child of this process: it may outlive it."""
        program = "import sys; sys.path[:0] = sys.argv[1:3]; from kube.keeper import keep; keep(*sys.argv[3:])"
        words = [sys.executable, "-I", "-c", program, str(_HERE), str(_HERE.parent), str(self.directory)]
        with (self.directory / "keeper.log").open("ab") as log:
            command = ["setsid", "--fork", *words, str(tools()), *self._options]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, check=False)
        about = self._about()  # its stdout ends when it is ready, or with it
        if done.returncode != 0 or about is None:
            said = (self.directory / "keeper.log").read_text(errors="replace")[-6000:]
            raise RuntimeError(f"no Kubernetes came up: {said}")
        return about

    def do(self, what: str, **arguments: object) -> Any:
        """Have the keeper do something: one of the methods of :class:`kube.keeper.Keeper`, by its name."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.about["do"])
            client.sendall(json.dumps({"do": what, "with": arguments}).encode() + b"\n")
            with client.makefile("rb") as answer:
                said = json.loads(answer.read())
        if "error" in said:
            raise RuntimeError(said["error"])
        return said["result"]

    def kubectl(self, *words: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl, for the administrator or for whom *kubeconfig* is; the caller looks at its exit code."""
        command = [str(self.bin / "kubectl"), f"--kubeconfig={kubeconfig or self.admin}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)

    def inside(self, machine: str) -> list[str]:
        """Return what runs a command in the network of a node, or of ``control``."""
        return ["nsenter", f"--target={self.do('inside', machine=machine)}", "--net"]

    def set_resource(self, node: str, name: str, count: int) -> None:
        """Have a node say that it has *count* of a resource, such as GPUs; nothing of it is real."""
        value = str(count)
        status = {"status": {"capacity": {name: value}, "allocatable": {name: value}}}
        self.api.patch(f"api/v1/nodes/{node}/status", status)
        self.api.until(
            f"api/v1/nodes/{node}",
            lambda found: found["status"]["allocatable"].get(name) == value,
            f"{value} {name} on {node}",
        )

    def wait_for_node(self, node: str, *, is_ready: bool = True) -> None:
        self.api.until(
            f"api/v1/nodes/{node}",
            lambda found: (condition(found, "Ready").get("status") == "True") is is_ready,
            f"{node} to be {'' if is_ready else 'not '}Ready",
        )

    @contextlib.contextmanager
    def namespace(self, *, pod_security: str = "restricted") -> Iterator[str]:
        """Have a new namespace, whose pods a standard bounds; the API removes it after the end, with all in it."""
        name = new_name("test")
        labels = {"pod-security.kubernetes.io/enforce": pod_security}
        self.api.create("api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        account = f"api/v1/namespaces/{name}/serviceaccounts/default"
        self.api.until(account, bool, "the namespace's service account")
        self.api.until(f"api/v1/namespaces/{name}/configmaps/kube-root-ca.crt", bool, "the namespace's certificate")
        try:
            yield name
        finally:
            self.api.delete(f"api/v1/namespaces/{name}")  # not waited for: it takes 5 s, and cannot be in the way

    def left_in(self, namespace: str) -> list[str]:
        """Return what is in a namespace that a launch can make, as ``pods/name``."""
        found = []
        for group, kinds in _MADE.items():
            for kind in kinds:
                for item in self.api.items(f"{group}/namespaces/{namespace}/{kind}"):
                    name = item["metadata"]["name"]
                    if name != "kube-root-ca.crt":
                        found.append(f"{kind}/{name}")
        return found

    def admin_by_token(self, server: str) -> Path:
        """Return a kubeconfig of the administrator for a proxy, which passes no certificate on."""
        file = self.place / f"{new_name('admin')}.conf"
        return kubeconfig(file, server, self.authority.file, {"token": self.about["token"]})

    def user(self, namespace: str, *, role: str = "edit", rules: Sequence[Object] = ()) -> User:
        """Return a new user with a ClusterRole in *namespace*, or with a Role of *rules*, and no right elsewhere."""
        return User(self, namespace, role, rules)


class User:
    """Somebody with rights in one namespace, by a certificate and by a token; ``name`` is the certificate's.

    Args:
        cluster: Where.
        namespace: Where it has its rights.
        role: The ClusterRole that it has there.
        rules: Of a Role of its own, in place of that.
    """

    def __init__(self, cluster: Cluster, namespace: str, role: str, rules: Sequence[Object]) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = new_name("user")
        self._files = cluster.place / self.name
        here = f"apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        kind = "ClusterRole"
        if rules:
            cluster.api.create(f"{here}/roles", {"metadata": {"name": self.name}, "rules": list(rules)})
            role, kind = self.name, "Role"
        account = {"kind": "ServiceAccount", "name": self.name, "namespace": namespace}
        person = {"kind": "User", "name": self.name, "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": kind, "name": role, "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": self.name}, "roleRef": reference, "subjects": [account, person]}
        cluster.api.create(f"{here}/rolebindings", binding)
        # It takes the API server a moment to know it.
        first = rules[0] if rules else {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
        resource, _, sub = first["resources"][0].partition("/")
        asked = {"namespace": namespace, "resource": resource, "subresource": sub}
        asked |= {"group": first["apiGroups"][0], "verb": first["verbs"][0]}
        review = {"spec": {"user": self.name, "resourceAttributes": asked}}
        reviews = "apis/authorization.k8s.io/v1/subjectaccessreviews"
        wait_until(lambda: cluster.api.create(reviews, review)["status"]["allowed"], lambda: f"the right to {asked}")
        # Who it is by a token: what has a name of its own, and no right but that.
        cluster.api.create(f"api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": self.name}})

    def set_rules(self, rules: Sequence[Object]) -> None:
        """Give it other rules, of one that was made with rules."""
        path = f"apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}/roles/{self.name}"
        self.cluster.api.patch(path, {"rules": list(rules)})

    def token(self, seconds: int = 3600) -> str:
        """Return a new token, good for *seconds*: at least 600, says the API."""
        path = f"api/v1/namespaces/{self.namespace}/serviceaccounts/{self.name}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return str(self.cluster.api.create(path, body)["status"]["token"])

    def by_certificate(self) -> Path:
        """Return a kubeconfig with a certificate, which a proxy between cannot pass on."""
        shown = by_certificate(*self.cluster.authority.sign(self.name, self.name))
        return self._kubeconfig("certificate", shown)

    def by_token(self, server: str = "") -> Path:
        """Return a kubeconfig with a token, for the cluster or for a proxy before it."""
        return self._kubeconfig("token", {"token": self.token()}, server)

    def by_plugin(self, server: str = "", token: str = "", *, version: str = "v1beta1") -> Path:
        """Return a kubeconfig whose token a program prints; ``token_file`` is where that reads it."""
        self.show_token(token or self.token())
        return self._kubeconfig("plugin", by_plugin(self.token_file, version=version), server)

    @property
    def token_file(self) -> Path:
        return self._files.with_suffix(".token")

    def plugin_calls(self) -> int:
        """Return how often the program was asked."""
        calls = self._files.with_suffix(".token.calls")
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    def show_token(self, token: str) -> None:
        """Have the program print *token* from now on: a launcher may ask it at any moment."""
        write_secret(self.token_file, token.encode())

    def _kubeconfig(self, how: str, shown: dict[str, Any], server: str = "") -> Path:
        file = self.cluster.place / f"{self.name}-{how}-{new_name('c')}.conf"
        return kubeconfig(file, server or self.cluster.server, self.cluster.authority.file, shown, self.namespace)
