"""The way to a port of a container: a program that the engine runs there passes bytes on, here in real processes."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import Any

import psutil
import pytest
from port_servers import echo, many_at_once, read_all, send_and_read, serving
from unit.fake_engine import Launcher

from oci_cluster.backends.base import PortForward
from oci_cluster.backends.docker import exec_proxy
from oci_cluster.backends.docker import port_forward as tunnel
from oci_cluster.contract.cluster import Cluster
from oci_cluster.errors import BackendError, NotPermittedError


@pytest.fixture
def cluster(launcher: Launcher) -> Cluster:
    return launcher.launch()


def tunnel_to(launcher: Launcher, cluster: Cluster, port: int, node: str = "WORKER_1") -> PortForward:
    plan = launcher.backend.load(cluster)
    return launcher.backend.port_forward(cluster, plan, node, port, launcher.said.append)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def relays() -> list[psutil.Process]:
    """Return what this process has started and is still there."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # just now
            if child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
    return found


def until(what: Any) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_bytes_go_both_ways_unchanged_and_an_end_passes_on(launcher: Launcher, cluster: Cluster) -> None:
    """The server sees the client's end, and answers after it; nothing of the connection is left."""
    data = os.urandom(3_000_000)
    with serving(echo) as port:
        tunnel = tunnel_to(launcher, cluster, port)
        assert tunnel.address == ""
        assert send_and_read(tunnel.dial, data) == data
    until(lambda: not relays())
    words = next(words for words in launcher.fake.calls() if words[0] == "exec")
    assert words[:3] == ["exec", "--interactive", f"{cluster.cluster_id}-WORKER_1"]
    assert words[-1] == str(port)


def test_the_servers_end_comes_while_the_client_still_sends(launcher: Launcher, cluster: Cluster) -> None:
    got: list[bytes] = []
    is_read = threading.Event()

    def end_first(connection: socket.socket) -> None:
        connection.sendall(b"done")
        connection.shutdown(socket.SHUT_WR)
        got.append(read_all(connection))
        is_read.set()

    with serving(end_first) as port, tunnel_to(launcher, cluster, port).dial() as connection:
        assert read_all(connection) == b"done"
        connection.sendall(b"and more")
        connection.shutdown(socket.SHUT_WR)
        assert is_read.wait(30)
    assert got == [b"and more"]


def test_the_containers_own_address_is_tried_after_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its name means there; one without a name has loopback alone."""
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "127.0.0.77")
    with serving(echo, "127.0.0.77") as port:
        found = exec_proxy.connect(port)
        assert isinstance(found, socket.socket)
        found.close()
        monkeypatch.setattr(socket, "gethostbyname", refuse)
        assert exec_proxy.connect(port) == "Connection refused"


def refuse(_: str) -> str:
    raise socket.gaierror(-2, "Name or service not known")


def test_connections_at_once(launcher: Launcher, cluster: Cluster) -> None:
    with serving(echo) as port:
        assert many_at_once(tunnel_to(launcher, cluster, port).dial, 8) == 8
    until(lambda: not relays())


def test_nobody_listens(launcher: Launcher, cluster: Cluster) -> None:
    """Told at once, with the node and its port."""
    port = free_port()
    with pytest.raises(BackendError, match=f"nobody listens on port {port} of WORKER_1 .Connection refused"):
        tunnel_to(launcher, cluster, port).dial()
    assert relays() == []


def test_a_container_that_is_gone(launcher: Launcher, cluster: Cluster) -> None:
    """In the engine's words; another one of its name is found."""
    with serving(echo) as port:
        tunnel = tunnel_to(launcher, cluster, port)
        launcher.fake.set("WORKER_1", Status="exited", ExitCode=1)
        with pytest.raises(BackendError, match=f"port {port} of WORKER_1 cannot be reached: .*is not running"):
            tunnel.dial()
        launcher.fake.set("WORKER_1", Status="running", ExitCode=0)
        assert send_and_read(tunnel.dial, b"again") == b"again"
        launcher.fake.forget("WORKER_1")
        with pytest.raises(BackendError, match=r"cannot be reached: .*No such container"):
            tunnel.dial()


def test_an_engine_that_one_may_not_use(launcher: Launcher, cluster: Cluster) -> None:
    tunnel = tunnel_to(launcher, cluster, 80)
    launcher.fake.fail("exec", "permission denied while trying to connect to the Docker daemon socket")
    with pytest.raises(NotPermittedError, match="you may not use the engine"):
        tunnel.dial()


def test_a_closed_socket_ends_what_was_started_for_it(
    launcher: Launcher, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the server says nothing, and reads nothing."""
    monkeypatch.setattr(tunnel._ExecLine, "last_s", 0.1)
    is_over = threading.Event()
    with serving(lambda _: is_over.wait(600) and None) as port:
        connection = tunnel_to(launcher, cluster, port).dial()
        assert len(relays()) == 1
        connection.close()
        until(lambda: not relays())
        is_over.set()


def test_a_closed_way_ends_its_connections(launcher: Launcher, cluster: Cluster) -> None:
    with serving(echo) as port:
        tunnel = tunnel_to(launcher, cluster, port)
        with tunnel.dial() as connection:
            tunnel.close()
            assert read_all(connection) == b""
    until(lambda: not relays())


def test_a_program_of_the_engine_that_is_killed_ends_the_connection(launcher: Launcher, cluster: Cluster) -> None:
    with serving(echo) as port, tunnel_to(launcher, cluster, port).dial() as connection:
        relays()[0].kill()
        assert read_all(connection) == b""
