"""The way to a port of a pod: by a real WebSocket, to an API server and a kubelet that the test plays."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kube.identity import Authority
from port_servers import echo, echoed, many_at_once, read_all, send_and_read, serving
from unit.backends.kubernetes.api.test_kubeconfig import kubeconfig
from unit.backends.kubernetes_place import KubernetesPlace
from unit.fake_forwarder import FakeForwarder

from oci_cluster.backends.base import PortForward
from oci_cluster.backends.kubernetes.api import port_forward as module
from oci_cluster.backends.kubernetes.api.kubeconfig import open_access
from oci_cluster.backends.kubernetes.api.port_forward import PortLine, open_line
from oci_cluster.backends.kubernetes.api.service import KubernetesError
from oci_cluster.contract.cluster import Cluster
from oci_cluster.errors import BackendError, NotPermittedError


@pytest.fixture
def place(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesPlace]:
    """Return a Kubernetes; what is at the other end of a connection that is half ended, may be silent for a moment."""
    monkeypatch.setattr(module, "_LOOK_S", 0.05)
    monkeypatch.setattr(module, "_SILENT_S", 2.0)  # on a busy machine an echo takes longer than a tenth of a second
    place = KubernetesPlace(tmp_path, clock, monkeypatch)
    yield place
    place.close()


@pytest.fixture
def forwarder(place: KubernetesPlace) -> Iterator[FakeForwarder]:
    with FakeForwarder() as forwarder:
        place.server = forwarder.url
        yield forwarder


@pytest.fixture
def cluster(place: KubernetesPlace, forwarder: FakeForwarder) -> Cluster:
    backend = place.backend
    return place.lifecycle.launch(backend.place(place.plan("mine", 2)))


def tunnel_to(place: KubernetesPlace, cluster: Cluster, port: int, node: str = "WORKER_1") -> PortForward:
    return place.backend.port_forward(cluster, place.backend.load(cluster), node, port, place.said.append)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_bytes_go_both_ways_unchanged(place: KubernetesPlace, forwarder: FakeForwarder, cluster: Cluster) -> None:
    """Of more than all buffers on the way hold; by the pod that the node is."""
    data = os.urandom(8_000_000)
    with serving(echo) as port:
        tunnel = tunnel_to(place, cluster, port)
        assert tunnel.address == ""
        assert send_and_read(tunnel.dial, data) == data
        pod = place.fake.pods()["WORKER_1"]["metadata"]["name"]
        assert forwarder.asked[-1][0] == f"/api/v1/namespaces/default/pods/{pod}/portforward?ports={port}"


def test_the_servers_end_is_the_connections(place: KubernetesPlace, cluster: Cluster) -> None:
    """With all that it has sent before."""
    with serving(lambda connection: connection.sendall(b"x" * 500_000)) as port:
        assert send_and_read(tunnel_to(place, cluster, port).dial, b"") == b"x" * 500_000


def test_connections_at_once(place: KubernetesPlace, cluster: Cluster) -> None:
    with serving(echo) as port:
        assert many_at_once(tunnel_to(place, cluster, port).dial, 20) == 20


def test_nobody_listens(place: KubernetesPlace, forwarder: FakeForwarder, cluster: Cluster) -> None:
    """In the kubelet's words; who listens later is reached, and who has listened before is missed."""
    port = free_port()
    tunnel = tunnel_to(place, cluster, port)
    with pytest.raises(BackendError, match=f"nobody listens on port {port} of WORKER_1.*error forwarding.*refused"):
        tunnel.dial()
    with serving(echo) as port:
        tunnel = tunnel_to(place, cluster, port)
        assert echoed(tunnel.dial, b"1") == b"1"
        assert echoed(tunnel.dial, b"2") == b"2"
    with tunnel.dial() as connection:  # who has answered before is not watched
        assert read_all(connection) == b""
    with pytest.raises(BackendError, match="nobody listens"):
        tunnel.dial()


def test_a_line_that_is_cut_costs_its_own_connection(
    place: KubernetesPlace, forwarder: FakeForwarder, cluster: Cluster
) -> None:
    with serving(echo) as port:
        tunnel = tunnel_to(place, cluster, port)
        with tunnel.dial() as connection:
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            forwarder.cut()
            assert read_all(connection) == b""
        assert echoed(tunnel.dial, b"again") == b"again"


def test_a_pod_that_took_the_place_of_another_is_found(
    place: KubernetesPlace, forwarder: FakeForwarder, cluster: Cluster
) -> None:
    """By its index; while there is none, that is said. Anybody may copy labels: the Job's own pods count."""
    with serving(echo) as port:
        tunnel = tunnel_to(place, cluster, port)
        pods = place.fake.objects["pods"]
        name = place.fake.pods()["WORKER_1"]["metadata"]["name"]
        pod = pods.pop(name)
        strange = {**pod, "metadata": {**pod["metadata"], "name": "strange", "ownerReferences": [{"uid": "x"}]}}
        pods["strange"] = strange
        with pytest.raises(BackendError, match="WORKER_1 has no pod that runs: there is none"):
            tunnel.dial()
        pods["waits"] = {**pod, "metadata": {**pod["metadata"], "name": "waits"}, "status": {"phase": "Pending"}}
        with pytest.raises(BackendError, match="WORKER_1 has no pod that runs: waits is Pending"):
            tunnel.dial()
        later = {**pod["metadata"], "name": "later", "creationTimestamp": "2026-01-01T01:00:00Z"}
        going = {**later, "name": "going", "creationTimestamp": "2026-01-01T02:00:00Z", "deletionTimestamp": "now"}
        pods |= {name: pod, "later": {**pod, "metadata": later}, "going": {**pod, "metadata": going}}
        assert echoed(tunnel.dial, b"x") == b"x"
        assert "/pods/later/portforward" in forwarder.asked[-1][0]


def test_a_cluster_that_has_ended(place: KubernetesPlace, cluster: Cluster) -> None:
    tunnel = tunnel_to(place, cluster, 80)
    place.backend.remove(cluster, place.said.append)
    with pytest.raises(BackendError, match="has no pod that runs"):
        tunnel.dial()


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        ((403, ""), NotPermittedError("you may not reach port 80 of MAIN.*create and get of pods/portforward")),
        ((401, ""), NotPermittedError("get a new token")),
        ((404, 'pods "x" not found'), BackendError('pods "x" not found')),
        ((503, ""), BackendError("Kubernetes refused GET .*portforward: 503")),
    ],
)
def test_what_the_api_refuses(
    place: KubernetesPlace,
    cluster: Cluster,
    forwarder: FakeForwarder,
    refusal: tuple[int, str],
    expected: Exception,
) -> None:
    """Told with what to do; 1.36 says nothing where `create` alone is missing."""
    forwarder.refusals.append(refusal)
    with pytest.raises(type(expected), match=str(expected)):
        tunnel_to(place, cluster, 80, "MAIN").dial()


def test_what_gets_no_answer_is_asked_once_more(
    place: KubernetesPlace, forwarder: FakeForwarder, cluster: Cluster
) -> None:
    """And no third time. What is refused is not."""
    with serving(echo) as port:
        tunnel = tunnel_to(place, cluster, port)
        forwarder.drops = 1
        assert echoed(tunnel.dial, b"x") == b"x"
        forwarder.drops = 2
        with pytest.raises(BackendError, match="did not answer GET"):
            tunnel.dial()
        assert len(forwarder.asked) == 4
        forwarder.refusals.append((503, ""))
        with pytest.raises(BackendError, match="503"):
            tunnel.dial()
        assert len(forwarder.asked) == 5


def test_an_api_that_does_not_answer(place: KubernetesPlace, cluster: Cluster) -> None:
    place.server = f"http://127.0.0.1:{free_port()}"
    backend = place.another()
    with pytest.raises(BackendError, match=r"Kubernetes did not answer GET .*portforward"):
        backend.port_forward(cluster, backend.load(cluster), "MAIN", 80, place.said.append).dial()


def test_a_closed_socket_and_a_closed_way_end_the_connection(
    place: KubernetesPlace, forwarder: FakeForwarder, cluster: Cluster
) -> None:
    """Of a server that says nothing, too."""
    is_over, before = threading.Event(), threading.active_count()
    with serving(lambda _: is_over.wait(600) and None) as port:
        tunnel = tunnel_to(place, cluster, port)
        tunnel.dial().close()
        with tunnel.dial() as connection:
            tunnel.close()
            assert read_all(connection) == b""
        is_over.set()
    deadline = time.monotonic() + 30
    while threading.active_count() > before:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


def test_nothing_is_sent_while_there_is_no_room() -> None:
    """The library would wait for it with what its receiving thread needs, and the other end for that."""
    mine, other = socket.socketpair()
    mine.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            mine.send(bytes(1 << 16))
    sent: queue.Queue[bytes] = queue.Queue()
    line = PortLine(SimpleNamespace(send=sent.put), mine, threading.Event())  # type: ignore[arg-type]
    sender = threading.Thread(target=line.send, args=(b"x" * 40_000,))
    sender.start()
    with pytest.raises(queue.Empty):
        sent.get(timeout=0.2)
    while select.select([other], [], [], 0)[0]:
        other.recv(1 << 20)
    found = [sent.get(timeout=30) for _ in range(3)]
    assert (b"".join(message[1:] for message in found), {message[:1] for message in found}) == (b"x" * 40_000, {b"\0"})
    sender.join()
    mine.close()
    other.close()


@pytest.mark.parametrize(("least", "version"), [("TLSv1_2", "TLSv1.2"), ("TLSv1_3", "TLSv1.3")])
def test_tls_is_of_the_version_that_two_threads_may_use(tmp_path: Path, least: str, version: str) -> None:
    """With 1.3 alone where a server takes nothing else; the authority of the kubeconfig counts."""
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.sign("server", "server", hosts=("127.0.0.1",)))
    tls.minimum_version = ssl.TLSVersion[least]
    with FakeForwarder(tls) as forwarder:
        file = kubeconfig(tmp_path / "c", "a", current="a")
        found = json.loads(file.read_text())
        found["clusters"][0]["cluster"] = {"server": forwarder.url, "certificate-authority": str(authority.file)}
        file.write_text(json.dumps(found))
        access = open_access({"KUBECONFIG": str(file)})
        # Of 1.3 alone: what two threads do at once to one connection may end it, once in dozens on a busy machine.
        for left in (2, 1, 0):
            try:
                open_line(access, "/x/portforward", 1, threading.Event()).free()
                break
            except KubernetesError:
                if not left or version != "TLSv1.3":
                    raise
        assert set(forwarder.versions) == {version}


def test_a_program_that_prints_tokens_is_asked_again_when_one_is_not_taken(
    tmp_path: Path, forwarder: FakeForwarder
) -> None:
    """As by all other requests, and with the same token."""
    script = tmp_path / "plugin"
    script.write_text(
        f'echo x >>{tmp_path}/calls; echo \'{{"status": {{"token": "T\'$(wc -l <{tmp_path}/calls)\'"}}}}\'\n'
    )
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": [str(script)]}}
    file = kubeconfig(tmp_path / "c", "a", current="a", user=user)
    file.write_text(file.read_text().replace("https://a.test", forwarder.url))
    access = open_access({"KUBECONFIG": str(file)})
    for refusals in ([], [(401, "Unauthorized")], []):
        forwarder.refusals += refusals
        open_line(access, "/x/portforward", 1, threading.Event()).free()
    assert [who.replace(" ", "") for _, who in forwarder.asked] == ["BearerT1", "BearerT1", "BearerT2", "BearerT2"]
