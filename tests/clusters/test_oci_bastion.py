"""Ways to a port of a node through OCI's Bastion: a real ssh, and the stand-in's sessions with a real sshd."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
import warm
from harness import PATIENCE_S, Project, wait_until
from oci_cloud import Cloud
from oci_service.handle import Service
from way_desk import CONTROLS, Desk, Node, ours, says, stop_looking, why_not

from oci_cluster.backends import open_backend
from oci_cluster.backends.oci.connect import tunnels
from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, SettingsError

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

COMMON = Path(__file__).resolve().parents[2] / "common"
# Holds a way open until it is killed.
HOLDER = """
import os, sys, time
from oci_cluster.backends.oci import service, settings
from oci_cluster.backends.oci.connect import tunnels
chosen = settings.tunnel_settings({sys.argv[1]: sys.argv[2]})
asker = tunnels.Asker({}, lambda: service.Service(os.environ), lambda text: None)
way = tunnels.tunnel_to(chosen, "127.0.0.1", int(sys.argv[3]), "demo-00000000", asker)
way.dial().sendall(b"x")
print("open", flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("oci") / "s", start=warm.command("oci_service")) as service:
        yield service


@pytest.fixture
def desk(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Return somebody who is known to OCI; whatever happened, no session is left, and no ssh."""
    for name, value in service.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WAYS_OF", str(os.getpid()))
    service.control(CONTROLS)
    node = Node()
    desk = Desk(service, node)
    yield desk
    service.control(CONTROLS)
    desk.close()
    node.close()
    wait_until(lambda: not ours(), lambda: f"the end of {ours()}")
    assert set(desk.states()) <= {"DELETED", "FAILED"}


# --- Connections


def test_bytes_flow_both_ways_and_the_end_leaves_nothing(desk: Desk) -> None:
    tunnel = desk.open()
    (session,) = desk.sessions()
    assert session["targetResourceDetails"]["targetResourcePort"] == desk.node.port
    assert session["displayName"].startswith("oci-cluster-demo-00000000-")
    assert session["sessionTtlInSeconds"] == 10800
    blocks = [bytes([number]) * 300_000 for number in range(3)]
    heard: dict[int, bytes] = {}

    def talk(number: int) -> None:
        with tunnel.dial() as connection:
            threading.Thread(target=connection.sendall, args=(blocks[number],), daemon=True).start()
            heard[number] = b""
            while len(heard[number]) < len(blocks[number]):
                heard[number] += connection.recv(1 << 16)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [heard[number] for number in range(3)] == blocks
    directory = tunnel._place.directory  # type: ignore[attr-defined]
    assert directory.stat().st_mode & 0o777 == 0o700
    tunnel.close()
    assert desk.states() == ["DELETED"]
    assert not directory.exists()
    tunnel.close()
    with pytest.raises(BackendError, match="closed"):
        tunnel.dial()


def test_a_port_where_nobody_listens_is_said(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    tunnel = desk.open(port)
    with pytest.raises(BackendError, match="nobody listens on that port of the node"):
        tunnel.dial()
    tunnel.close()


def test_ssh_that_ends_is_started_again_in_the_same_session(desk: Desk) -> None:
    tunnel = desk.open()
    (pid,) = ours("-N")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: desk.said[1:], "word of it")
    (said,) = desk.said[1:]
    assert "is there again" in said
    assert stop_looking(tunnel)
    assert desk.states() == ["ACTIVE"]
    tunnel.close()


# --- Sessions that end


def test_a_session_is_renewed_before_its_end_while_connections_go_on(desk: Desk) -> None:
    began = time.monotonic()
    desk.open().close()
    ttl_s = max(8, round(8 * (time.monotonic() - began)))  # several times what a session takes here and now
    desk.service.control({"bastion_ttl_s": ttl_s})
    tunnel = desk.open()
    old = tunnel.dial()
    assert says(old) == b"hello"
    wait_until(lambda: len(desk.sessions()) == 3 and len(ours("-N")) == 2, "the second session", ttl_s)
    assert says(old, b"still") == b"still"
    wait_until(lambda: tunnel._retired, "the second ssh")
    new = tunnel.dial()
    assert says(new) == b"hello"
    # The first session ends, and its connections with it; nobody has noticed.
    assert old.recv(1) == b""
    assert says(new, b"on") == b"on"
    assert stop_looking(tunnel)
    assert desk.said[2:] == []
    tunnel.close()
    assert set(desk.states()) == {"DELETED"}
    for connection in (old, new):
        connection.close()


def test_a_session_that_ends_early_is_replaced(desk: Desk) -> None:
    tunnel = desk.open()
    with tunnel.dial() as connection:
        assert says(connection) == b"hello"
        desk.service.control({"bastion_life_s": 2})
        assert connection.recv(1) == b""  # so it is over, though it has told three hours
    desk.service.control({"bastion_life_s": 0})
    assert stop_looking(tunnel)
    assert desk.states() == ["DELETED", "ACTIVE"]
    tunnel.close()


@contextlib.contextmanager
def held_open(desk: Desk, name: str, value: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that has a way of its own; whoever takes it kills it."""
    command = [sys.executable, "-c", HOLDER, name, value, str(desk.node.port)]
    environ = {**os.environ, "PYTHONPATH": str(COMMON)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        yield holder


def test_a_killed_process_leaves_no_session_no_ssh_and_no_key(desk: Desk) -> None:
    with held_open(desk, "BASTION_ID", desk.service.settings["BASTION_ID"]) as holder:
        assert desk.states() == ["ACTIVE"]
        (line,) = ours("-N").values()
        key = Path(next(word for word in line if word.startswith("IdentityFile=")).partition("=")[2])
        assert key.stat().st_mode & 0o777 == 0o600
        holder.kill()
    wait_until(lambda: desk.states() == ["DELETED"], "the end of its session")
    wait_until(lambda: not ours("-N"), "the end of its ssh")
    assert not key.parent.exists()


def test_what_cannot_be_deleted_is_said_with_the_command_that_does(desk: Desk) -> None:
    tunnel = desk.open()
    (session,) = desk.sessions()
    desk.service.control({"faults": [{"operation": "delete_session", "kind": "404"}]})
    tunnel.close()
    (said,) = desk.said[1:]
    assert "ask for the policy: allow group <yours> to manage bastion-session" in said
    assert said.endswith(f"oci bastion session delete --force --session-id {session['id']}")
    desk.service.control({"faults": [], "bastion_life_s": 0.01})
    assert desk.states() == ["DELETED"]


# --- Who is at the other end


def test_another_host_key_is_refused_before_anything_is_sent(desk: Desk) -> None:
    desk.service.control({"bastion_host_key": "other"})
    with pytest.raises(NotPermittedError, match=r"has another host key than it should have.*nothing was sent"):
        desk.open()
    assert desk.states() == ["DELETED"]
    assert desk.node.accepted == 0


def test_a_host_key_that_nobody_has_told_is_not_taken(desk: Desk) -> None:
    desk.service.control({"bastion_host_key": "untold"})
    with pytest.raises(
        NotPermittedError, match=r"OCI has not told the host key of host.bastion.*ssh-keyscan host.bastion"
    ):
        desk.open()
    assert desk.node.accepted == 0


def test_a_host_key_of_the_settings_counts_where_oci_tells_none(desk: Desk, tmp_path: Path) -> None:
    desk.open().close()
    key = (desk.service.directory / "bastion" / "host.pub").read_text().strip()
    desk.service.control({"bastion_host_key": "untold"})
    tunnel = desk.open(BASTION_HOST_KEY=key)
    assert stop_looking(tunnel)
    tunnel.close()
    with pytest.raises(NotPermittedError, match="has another host key than it should have"):
        desk.open(BASTION_HOST_KEY=tunnels.new_key(tmp_path).removesuffix(" oci-cluster"))


def test_what_a_session_says_is_no_command(desk: Desk, tmp_path: Path) -> None:
    there = tmp_path / "there"
    for hostile in (f"ssh -o ProxyCommand='touch {there}' x@evil.example.com", f"$(touch {there})"):
        desk.service.control({"bastion_ssh_metadata": {"command": hostile}})
        with pytest.raises(BackendError, match=r"which does not lead to host\.bastion\.us-ashburn-1\.oci\."):
            desk.open()
    assert not there.exists()
    assert desk.states() == ["DELETED"] * 2


# --- A bastion that is late, full or busy


def test_a_session_and_its_key_may_come_late(desk: Desk) -> None:
    desk.service.control({"bastion_creating_s": 1.5, "bastion_key_late_s": 2.5})
    tunnel = desk.open()
    assert stop_looking(tunnel)
    tunnel.close()


def test_a_session_that_fails_is_said_with_its_reason(desk: Desk) -> None:
    desk.service.control({"bastion_fails": "The target is not in the VCN."})
    with pytest.raises(BackendError, match=r"became FAILED: The target is not in the VCN\."):
        desk.open()
    assert desk.states() == ["FAILED"]


def test_a_full_bastion_is_said_with_what_to_do(desk: Desk) -> None:
    desk.service.control({"bastion_sessions": 0})
    with pytest.raises(ClusterError, match=r"400 LimitExceeded.*oci bastion session list --bastion-id"):
        desk.open()


def test_a_bastion_that_may_not_be_used_is_said_with_the_policy(desk: Desk) -> None:
    desk.service.control({"faults": [{"operation": "create_session", "kind": "404"}]})
    with pytest.raises(
        ClusterError, match="check BASTION_ID; or ask for the policy: allow group <yours> to use bastion"
    ):
        desk.open()


def test_a_busy_service_is_asked_again(desk: Desk) -> None:
    busy = {"kind": "429", "times": 1, "retry_after": 0.1}
    names = ("get_bastion", "create_session", "get_session", "delete_session")
    desk.service.control({"faults": [{"operation": name, **busy} for name in names]})
    desk.open().close()
    assert desk.states() == ["DELETED"]


# --- A host of the user's


def test_a_jump_host_is_reached_by_the_users_own_configuration(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jump_host(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tunnel = desk.open(SSH_JUMP="me@jump:2222")
    assert stop_looking(tunnel)
    (pid,) = ours("-N")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: desk.said, "word of it")
    assert stop_looking(tunnel)
    tunnel.close()
    assert desk.states() == []  # no bastion was asked
    (tmp_path / "authorized").write_text("")
    with pytest.raises(
        NotPermittedError, match=r"jump \(SSH_JUMP\) does not let ssh in.*'ssh -o BatchMode=yes -p 2222 me@jump'"
    ):
        desk.open(SSH_JUMP="me@jump:2222")


def test_a_killed_process_leaves_no_ssh_to_a_jump_host(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session ends there, and ssh with it."""
    write_jump_host(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with held_open(desk, "SSH_JUMP", "me@jump:2222") as holder:
        assert ours("-N")
        holder.kill()
    wait_until(lambda: not ours("-N"), "the end of its ssh")


def write_jump_host(directory: Path) -> None:
    """Have ``ssh`` of *directory* be ssh, with a configuration by which *jump* is an sshd of this machine."""
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / name], check=True)
    user = os.geteuid()
    public, host = ((directory / f"{name}.pub").read_text() for name in ("key", "host"))
    files = {
        "authorized": public,
        "known": f"[jump]:2222 {host}",
        "passwd": f"me:x:{user}:0::/:/bin/sh\nsshd:x:65534:65534::/:/bin/false\n",
        "sshd_config": f"HostKey {directory}/host\nAuthorizedKeysFile {directory}/authorized\nUsePAM no\n"
        "StrictModes no\nPermitRootLogin prohibit-password\n",
        "config": f"Host jump\nIdentityFile {directory}/key\nUserKnownHostsFile {directory}/known\n"
        f"ProxyCommand env LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_PASSWD={directory}/passwd"
        f" NSS_WRAPPER_GROUP=/etc/group /usr/sbin/sshd -i -f {directory}/sshd_config\n",
        "ssh": f'#!/bin/sh\nexec {shutil.which("ssh")} -F {directory}/config "$@"\n',
    }
    for name, text in files.items():
        (directory / name).write_text(text)
    (directory / "ssh").chmod(0o755)
    if user == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


# --- A cluster


@pytest.fixture
def far(project: Project, tmp_path: Path) -> Iterator[Cloud]:
    """Return a cloud whose nodes are on hosts of their own, which this machine itself does not reach."""
    with Service(tmp_path / "oci", hosts=True, start=warm.command("oci_service")) as service:
        yield Cloud(project, service)


@pytest.mark.skipif(bool(hosts.why_not()), reason=str(hosts.why_not()))
def test_a_port_of_a_node_of_a_cluster_is_reached(far: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = (
        "import os, socket\nserver = socket.create_server((os.environ['NODE_ADDRESS'], 0))\n"
        "print('port', server.getsockname()[1], flush=True)\n"
        "while (peer := server.accept()[0]).recv(4) != b'stop': peer.sendall(b'here'); peer.close()\n"
    )
    launch = far.launch_plain(1, serve)
    far.wait_for("port ")
    port = int(far.printed("MAIN").partition("port ")[2].split()[0])
    for name, value in far.environ.items():
        monkeypatch.setenv(name, value)

    sessions = far.service.bastion_sessions

    def states() -> list[str]:
        return [session["lifecycleState"] for session in sessions()]

    backend = open_backend("oci", far.project.path, dict(os.environ))
    (cluster,) = backend.find()
    plan = backend.load(cluster)
    with pytest.raises(SettingsError, match="set BASTION_ID"):
        open_backend("oci", far.project.path, {**os.environ, "BASTION_ID": ""}).port_forward(
            cluster, plan, "MAIN", port, lambda _: None
        )
    with pytest.raises(BackendError, match="WORKER_7 has not told its address yet"):
        backend.port_forward(cluster, plan, "WORKER_7", port, lambda _: None)
    tunnel = backend.port_forward(cluster, plan, "MAIN", port, lambda _: None)
    (target,) = {session["targetResourceDetails"]["targetResourcePrivateIpAddress"] for session in sessions()}
    assert ipaddress.ip_address(target) in hosts.SUBNET
    with tunnel.dial() as connection:
        connection.sendall(b"who?")
        assert connection.recv(4) == b"here"
    tunnel.close()
    with connected(far, cluster.name, str(port)) as (process, _):
        process.kill()  # the script alone: what it has started sees that
        wait_until(lambda: states() == ["DELETED"] * 2, "the end of its session")
    with connected(far, cluster.name, str(port)) as (process, here):
        with socket.create_connection(("127.0.0.1", here)) as connection:
            connection.sendall(b"stop")
        assert launch.wait(PATIENCE_S) == 0, launch.err
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    assert states() == ["DELETED"] * 3


@contextlib.contextmanager
def connected(cloud: Cloud, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield ``connect.sh`` for a cluster and a port, and the port of this machine that it has printed."""
    name, port = words
    with subprocess.Popen(
        [str(cloud.project.path / "scripts" / "connect.sh"), name, "--port", port],
        env={**cloud.project.environ, **cloud.environ},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        finally:
            process.kill()
