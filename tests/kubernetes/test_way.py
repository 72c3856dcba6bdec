"""Ways to ports of pods: forwarded by a real API server and a real kubelet, by WebSocket."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Launch, wait_until
from kube.cluster import Cluster
from kube.faults import FaultyProxy
from kube.launches import SOON_S, Site
from kubernetes_rights import rules
from port_servers import echoed, many_at_once, read_all, read_some

from oci_cluster.backends import open_backend
from oci_cluster.backends.base import PortForward
from oci_cluster.backends.kubernetes.api import port_forward
from oci_cluster.errors import BackendError, NotPermittedError

PORT, EXPOSED = 7001, 7100
# Main: an echo on loopback, and a server where a script is told to listen, which says its name.
SERVERS = f"""
import os, socketserver, threading, time

class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)

class Name(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(name)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 64

name = os.urandom(4).hex().encode()
assert os.environ["EXPOSED_PORTS"] == "{EXPOSED}"
for place, handler in ((("127.0.0.1", {PORT}), Echo), ((os.environ["LISTEN_ADDRESS"], {EXPOSED}), Name)):
    threading.Thread(target=Server(place, handler).serve_forever, daemon=True).start()
print("entry up", flush=True)
time.sleep(1000)
"""


def launch(site: Site, **environ: str) -> Launch:
    """Have a cluster ``mine`` of main and one worker with these servers."""
    launched = site.launch("plain", 1, SERVERS, "--name", "mine", EXPOSE=str(EXPOSED), **environ)
    site.wait_for(launched, "entry up")
    site.wait_for(launched, "worker works")  # main waits for no worker
    return launched


@contextlib.contextmanager
def tunnel_to(site: Site, port: int, node: str = "MAIN", *, kubeconfig: Path | None = None) -> Iterator[PortForward]:
    """Have the way as a later verb opens it, for the site's user or for whom a *kubeconfig* is."""
    environ = {**site.project.environ, **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})}
    backend = open_backend("kubernetes", site.project.path, environ)
    with contextlib.closing(backend):
        (cluster,) = backend.find("mine")
        with contextlib.closing(
            backend.port_forward(cluster, backend.load(cluster), node, port, lambda _: None)
        ) as tunnel:
            yield tunnel


def name_of(tunnel: PortForward) -> str:
    with tunnel.dial() as connection:
        return read_all(connection).decode()


def test_ports_of_pods_are_reached_by_who_may(site: Site, kubernetes: Cluster) -> None:
    """And what is exposed by everybody, under a number that the launch tells. All goes with the Job."""
    launched = launch(site, EXPOSE_SERVICE="NodePort")
    services = kubernetes.api.items(f"api/v1/namespaces/{site.namespace}/services")
    (spec,) = [one["spec"] for one in services if one["spec"]["type"] == "NodePort"]
    assert f"; port {EXPOSED} of main is {spec['ports'][0]['nodePort']} of every machine" in launched.err
    assert f"exposed: {EXPOSED}" in site.run("status", "mine")
    assert_reached(site)
    site.run("connect", "mine", "--port", str(PORT), "--check")
    assert_told_which_right_is_missing(site, kubernetes)
    with tunnel_to(site, PORT) as tunnel:
        launched.interrupt()
        assert launched.wait(SOON_S) == 143, launched.err
        site.assert_nothing_left()
        with pytest.raises(BackendError, match="has no pod that runs"):
            tunnel.dial()


def assert_reached(site: Site) -> None:
    """64 MB come back as they were, and each of 50 connections at once has its own bytes; a refusal comes as such."""
    data = os.urandom(64 << 20)
    with tunnel_to(site, PORT) as tunnel:
        assert echoed(tunnel.dial, data) == data
        assert many_at_once(tunnel.dial, 50) == 50
    with tunnel_to(site, EXPOSED) as tunnel:
        assert len(name_of(tunnel)) == 8
    refused = pytest.raises(BackendError, match=rf"nobody listens on port {PORT} of WORKER_1.*connection refused")
    with pytest.MonkeyPatch.context() as patched, tunnel_to(site, PORT, "WORKER_1") as tunnel, refused:
        patched.setattr(port_forward, "_REFUSED_S", SOON_S)  # a busy kubelet says it later than a person would wait
        tunnel.dial()


def assert_told_which_right_is_missing(site: Site, kubernetes: Cluster) -> None:
    """Both verbs are needed: Kubernetes 1.36 wants `get` and `create` for a WebSocket."""
    others = [rule for rule in rules() if rule["resources"] != ["pods/portforward"]]
    right = {"apiGroups": [""], "resources": ["pods/portforward"]}
    told = f"may not reach port {PORT} of MAIN.*create and get of pods/portforward"
    for verbs in ([], ["get"], ["create"]):
        user = kubernetes.user(site.namespace, rules=[*others, *([{**right, "verbs": verbs}] if verbs else [])])
        refused = pytest.raises(NotPermittedError, match=told)
        with tunnel_to(site, PORT, kubeconfig=user.by_certificate()) as tunnel, refused:
            tunnel.dial()
    user = kubernetes.user(site.namespace, rules=rules())
    for kubeconfig in (user.by_certificate(), user.by_token(), user.by_plugin()):
        with tunnel_to(site, PORT, kubeconfig=kubeconfig) as tunnel:
            assert echoed(tunnel.dial, b"x") == b"x"


@pytest.mark.nightly  # until an evicted main is back
def test_a_pod_that_comes_back_is_found_by_the_same_way(site: Site, kubernetes: Cluster) -> None:
    """Evicted: its place is taken by another pod, of the next life."""
    launched = launch(site, HEARTBEAT_TIMEOUT="6")
    with tunnel_to(site, EXPOSED) as tunnel:
        first, pod = name_of(tunnel), site.pod(0)
        kubernetes.api.create(f"{pod}/eviction", {"metadata": {"name": pod.rpartition("/")[2]}})

        def second() -> str:
            try:
                return name_of(tunnel).replace(first, "")
            except BackendError:  # there is none yet, or it does not listen
                return ""

        wait_until(second, "main's next life to answer", SOON_S)
        assert site.pod(0) != pod
    launched.interrupt()
    assert launched.wait(SOON_S) == 143, launched.err
    site.assert_nothing_left()


def test_a_line_that_is_cut_costs_its_own_connection(site_behind: Site, proxy: FaultyProxy) -> None:
    """The next one is made anew; others stay."""
    launched = launch(site_behind)
    with tunnel_to(site_behind, PORT) as tunnel:
        with tunnel.dial() as cut:
            cut.sendall(b"x")
            assert read_some(cut, 1) == b"x"
            proxy.hang_up()
            assert read_all(cut) == b""
        with tunnel.dial() as kept, tunnel.dial() as other:
            refusing = proxy.misbehaving(path="/portforward", status=503, times=1)
            with refusing, pytest.raises(BackendError, match="503"):
                tunnel.dial()
            for connection in (kept, other):
                connection.sendall(b"x")
                assert read_some(connection, 1) == b"x"
    launched.interrupt()
    assert launched.wait(SOON_S) == 143, launched.err
