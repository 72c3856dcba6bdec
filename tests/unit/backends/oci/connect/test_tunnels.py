"""How a node on OCI is reached: what the settings say, and what ssh is told."""

from __future__ import annotations

import itertools
import shlex
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oci_cluster.backends.oci.connect import http_proxy, tunnels
from oci_cluster.backends.oci.settings import Jump, tunnel_settings
from oci_cluster.errors import BackendError, NotPermittedError, SettingsError

BASTION = "ocid1.bastion.oc1.iad.aaaabastion"
HOST = "host.bastion.us-ashburn-1.oci.oraclecloud.com"
SESSION = "ocid1.bastionsession.oc1.iad.aaaasession"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


# --- Settings


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"BASTION_ID": BASTION}, BASTION),
        ({"SSH_JUMP": "jump"}, Jump("", "jump", 0)),
        ({"SSH_JUMP": "me@jump:2222", "BASTION_ID": BASTION}, Jump("me", "jump", 2222)),
    ],
)
def test_a_host_of_the_users_wins_over_a_bastion(given: dict[str, str], chosen: Jump | str) -> None:
    assert tunnel_settings(given) == chosen


def test_without_both_one_message_names_both_and_the_page() -> None:
    with pytest.raises(SettingsError, match=r"set BASTION_ID .*docs/oci\.md, 'Reach a port of a node'.*or SSH_JUMP"):
        tunnel_settings({"BASTION_ID": "", "SSH_JUMP": ""})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BASTION_ID", "ocid1.bastionsession.oc1.iad.aaaa"),
        ("BASTION_ID", "bastion"),
        ("BASTION_HOST_KEY", "SHA256:oyKkVXjwQGBw7SpPrMqXpY"),
        ("BASTION_HOST_KEY", "host ssh-ed25519 AAAA"),
        ("BASTION_HOST_KEY", "ssh-ed25519 AAAA\nother ssh-ed25519 AAAA"),
        *[
            ("SSH_JUMP", text)
            for text in ("-oProxyCommand=id", "me@-x", "a b", "me@", "jump:", "jump:0", "jump:65536", "a@b@c", "$(id)")
        ],
    ],
)
def test_what_cannot_be_one_is_said_by_its_name(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"bad settings: {name}: ") as caught:
        tunnel_settings({name: text})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("told", "address"), [({"address": "10.0.0.7"}, "10.0.0.7"), ({"address": "fd00::7"}, "fd00::7")]
)
def test_a_node_has_told_its_address(told: dict[str, str], address: str) -> None:
    assert tunnels.address_of("MAIN", told) == address


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (None, "MAIN has not told its address yet"),
        ({}, "MAIN has told an address that is none"),
        ({"address": "-oProxyCommand=id"}, "MAIN has told an address that is none"),
        ({"address": "10.0.0.7:22"}, "MAIN has told an address that is none"),
    ],
)
def test_a_node_without_an_address_is_said(told: dict[str, str] | None, why: str) -> None:
    with pytest.raises(BackendError, match=why):
        tunnels.address_of("MAIN", told)


# --- What ssh is told


def test_ssh_to_a_bastion_has_nothing_of_the_users(tmp_path: Path) -> None:
    """One key, one host key, no configuration, no agent, no question."""
    command = tunnels.bastion_command(tmp_path, HOST, 22, SESSION, is_pinned=True)
    assert command[1:3] == ["-F", "/dev/null"]
    assert command[-5:] == ["-p", "22", "-l", SESSION, HOST]
    options = dict(word.split("=", 1) for flag, word in itertools.pairwise(command) if flag == "-o")
    assert options["StrictHostKeyChecking"] == options["IdentitiesOnly"] == options["BatchMode"] == "yes"
    assert options["ExitOnForwardFailure"] == "yes"
    assert options["UserKnownHostsFile"] == f"{tmp_path}/known_hosts"
    assert options["GlobalKnownHostsFile"] == "/dev/null"
    assert (options["IdentityFile"], options["IdentityAgent"]) == (f"{tmp_path}/key", "none")
    assert "ProxyCommand" not in options
    assert int(options["ServerAliveInterval"]) > 0


def test_a_host_key_that_oci_has_not_told_is_looked_for_in_the_users_list(tmp_path: Path) -> None:
    command = tunnels.bastion_command(tmp_path, HOST, 22, SESSION, is_pinned=False)
    assert "StrictHostKeyChecking=yes" in command
    assert not [word for word in command if "KnownHostsFile" in word]


@pytest.mark.parametrize(("host", "is_lacking"), [(HOST, False), ("host.example.com", True)])
def test_a_host_key_in_the_machines_list_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, *, is_lacking: bool
) -> None:
    """Without the user's own list, as ssh does."""
    known = tmp_path / "ssh_known_hosts"
    known.write_text(f"{host} {tunnels.new_key(tmp_path).removesuffix(' oci-cluster')}\n")
    monkeypatch.setattr(tunnels, "_GLOBAL_KNOWN_HOSTS", known)
    service: Any = SimpleNamespace(region="us-ashburn-1", domain="oraclecloud.com")
    found = tunnels.lacking_host_key({"BASTION_ID": BASTION}, service)
    assert (found is not None) is is_lacking


def test_ssh_to_a_host_of_the_users_has_the_users_configuration() -> None:
    command = tunnels.jump_command(Jump("me", "jump", 2222))
    assert command[-5:] == ["-l", "me", "-p", "2222", "jump"]
    assert not [word for word in command if word == "-F" or word.startswith(("Identity", "StrictHostKey", "UserKnown"))]
    assert "ControlPath=none" in command
    assert tunnels.jump_command(Jump("", "jump", 0))[-2:] == ["RemoteCommand=none", "jump"]


def test_without_ssh_one_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"there is no ssh on this machine.*apt install openssh-client"):
        tunnels.program()


def test_a_private_directory_has_a_path_that_ssh_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A socket's path is short, and an option of ssh is split at blanks."""
    odd = tmp_path / "a b%h" / ("x" * 80)
    odd.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(odd))
    directory = tunnels.private_directory()
    try:
        assert str(directory).startswith("/tmp/oci-way-")
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert list(odd.iterdir()) == []
    finally:
        directory.rmdir()


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("Host key verification failed.", NotPermittedError, "has another host key than it should have"),
        ("me@h: Permission denied (publickey).", NotPermittedError, "does not let ssh in: .*; look"),
        ("connect to host h port 22: Connection timed out", BackendError, "does not get to h: .* timed out; look"),
        ("", BackendError, "ssh said nothing"),
    ],
)
def test_what_ssh_says_becomes_one_message(said: str, kind: type[Exception], words: str) -> None:
    failure = tunnels.refusal(said, "h", "look there")
    assert type(failure) is kind
    with pytest.raises(kind, match=words):
        raise failure


# --- Proxies


def test_ssh_goes_through_the_proxy_that_requests_to_oci_go_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its password is in no argument."""
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2@proxy.example.com:3128")
    command = tunnels.bastion_command(tmp_path, HOST, 22, SESSION, is_pinned=True)
    (proxy,) = [word for word in command if word.startswith("ProxyCommand=")]
    *_, program, host, port = shlex.split(proxy)
    assert (Path(program).name, host, port) == ("http_proxy.py", HOST, "22")
    assert "ProxyUseFdpass=yes" in command
    assert "hunter2" not in " ".join(command)
    monkeypatch.setenv("NO_PROXY", ".oraclecloud.com")
    assert "ProxyUseFdpass=yes" not in tunnels.bastion_command(tmp_path, HOST, 22, SESSION, is_pinned=True)


def test_a_proxy_that_ssh_cannot_use_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:hunter2@proxy.example.com:1080")
    with pytest.raises(SettingsError, match=r"HTTPS_PROXY is socks5://proxy\.example\.com.*NO_PROXY, or set SSH_JUMP"):
        tunnels.bastion_command(tmp_path, HOST, 22, SESSION, is_pinned=True)


class _Proxy:
    """A proxy that takes one request, and answers with these bytes."""

    def __init__(self, answer: bytes) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.asked = b""
        self._answer = answer
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection, self._server:
            while not self.asked.endswith(b"\r\n\r\n"):
                self.asked += connection.recv(4096)
            connection.sendall(self._answer)
            self.echoed = connection.recv(100) if b" 200 " in self._answer else b""

    def join(self) -> bytes:
        self._thread.join(20)
        return self.asked


def test_the_connection_is_passed_on_with_all_that_follows_the_proxys_answer() -> None:
    """The server's first words may be in the same packet."""
    proxy = _Proxy(b"HTTP/1.1 200 Fine\r\nX: y\r\n\r\nSSH-2.0-x\r\n")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        done = subprocess.run(
            [sys.executable, "-I", "-S", http_proxy.__file__, HOST, "22"],
            env={"HTTPS_PROXY": f"http://me:p%40ss@127.0.0.1:{proxy.port}"},
            stdout=theirs,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0
        _, (passed,), _, _ = socket.recv_fds(ours, 1, 1)
        with socket.socket(fileno=passed) as connection:
            assert connection.recv(100) == b"SSH-2.0-x\r\n"
            connection.sendall(b"SSH-2.0-y")
    assert proxy.join().splitlines()[0] == f"CONNECT {HOST}:22 HTTP/1.1".encode()
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in proxy.asked  # me:p@ss
    assert proxy.echoed == b"SSH-2.0-y"


@pytest.mark.parametrize(
    ("answer", "why"), [(b"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden"), (b"", "no answer"), (b"x", "x")]
)
def test_a_proxy_that_refuses_is_said(answer: bytes, why: str) -> None:
    proxy = _Proxy(answer)
    with pytest.raises(OSError, match=f"does not lead to {HOST}:22: .*{why}"):
        http_proxy.connect(HOST, 22, f"http://127.0.0.1:{proxy.port}")
    proxy.join()


def test_a_key_is_this_users_alone(tmp_path: Path) -> None:
    public = tunnels.new_key(tmp_path)
    assert public.split()[0] == "ssh-ed25519"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(BackendError, match="no key for ssh could be made in"):
        tunnels.new_key(tmp_path / "not there")
