"""What ssh is told of a session."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from unit.fake_backend import plan_of

from oci_cluster.contract.cluster import Cluster
from oci_cluster.errors import BackendError
from oci_cluster.launcher.connect.connect import write_ssh_config

KEY = "ssh-ed25519 " + "A" * 68


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster.of(plan_of(tmp_path, "box", "1f2e3d4c"), tmp_path)
    return replace(cluster, directory=tmp_path / "100% mine" / "box-1f2e3d4c")


def test_the_one_key_that_the_host_may_have_is_pinned(cluster: Cluster) -> None:
    """Under the session's name, whatever port leads there; files of the user alone."""
    path = write_ssh_config(cluster, "127.0.0.1", 4711, {"ssh_host_key": KEY, "ssh_user": "node"})
    known = path.with_name("known_hosts")
    text = path.read_text()
    for line in ("Host box", "  Port 4711", "  User node", "  HostKeyAlias box", "  StrictHostKeyChecking yes"):
        assert f"{line}\n" in text
    assert f'  UserKnownHostsFile "{str(known).replace("%", "%%")}"\n' in text
    assert known.read_text() == f"box {KEY}\n"
    assert [file.stat().st_mode & 0o077 for file in (path, known, path.parent)] == [0, 0, 0]


def test_another_way_that_is_open_keeps_its_file(cluster: Cluster) -> None:
    """connect.sh beside session.sh has a port of its own, and may end first."""
    facts = {"ssh_host_key": KEY, "ssh_user": "node"}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        usual = write_ssh_config(cluster, "127.0.0.1", port, facts)
        other = write_ssh_config(cluster, "127.0.0.1", 4711, facts)
        assert (f"  Port {port}\n" in usual.read_text(), "  Port 4711\n" in other.read_text()) == (True, True)
        assert write_ssh_config(cluster, "127.0.0.1", port, facts) == usual
    assert write_ssh_config(cluster, "127.0.0.1", 4711, facts) == usual


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"ssh_user": "node"},
        {"ssh_host_key": KEY},
        {"ssh_host_key": KEY + "\n* " + KEY, "ssh_user": "node"},
        {"ssh_host_key": KEY.replace("ed25519", "rsa"), "ssh_user": "node"},
        {"ssh_host_key": KEY, "ssh_user": "node\n  ProxyCommand touch x"},
        {"ssh_host_key": KEY, "ssh_user": "-oProxyCommand=x"},
    ],
)
def test_what_is_no_key_and_no_user_is_not_written(cluster: Cluster, facts: dict[str, str]) -> None:
    """What main tells is data from outside; without a key nobody is connected."""
    with pytest.raises(BackendError, match="box has not published its ssh host key"):
        write_ssh_config(cluster, "127.0.0.1", 4711, facts)
    assert not cluster.directory.exists()
