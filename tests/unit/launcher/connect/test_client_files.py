# What a program outside a cluster needs: the framework's configuration, and the certificate from the cluster dir.

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from unit.fake_backend import KEY, LAUNCH, LIMITS, keep, plan_of

from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.files.certificate import encrypted, make_certificate
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import CERTIFICATE
from oci_cluster.contract.session import client_token
from oci_cluster.errors import BackendError, LostPlanError, UsageError
from oci_cluster.launcher.connect.client_files import Gate, client_port, write_client_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a framework that programs outside may connect to."""
    found = tmp_path / "frame"
    (found / "client").mkdir(parents=True)
    (found / "settings.env").write_text("HEAD_PORT=1\nCLUSTER_TLS=1\nCLIENT_PORT=HEAD_PORT\n")
    (found / "client" / "address.env").write_text("# As a shell has them.\nFRAME_CONFIG=${FILES}\n")
    (found / "client" / "address.yaml").write_text("address: ${ADDRESS}\n")
    (found / "client" / "tls.env").write_text("FRAME_TLS=1\nFRAME_KEY=${KEY}\n")
    (found / "client" / "tls.yaml").write_text("tls: [${CERTIFICATE}, ${KEY}]\n")
    return found


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return plan_of(tmp_path, framework="frame", limits=replace(LIMITS, ports={"HEAD_PORT": 4711}))


def unreachable(node: str, port: int) -> tuple[str, int]:
    raise AssertionError((node, port))


def test_the_configuration_has_address_and_certificate(tmp_path: Path, folder: Path, plan: Plan) -> None:
    cluster = keep(tmp_path, plan)
    cluster_dir = ClusterDir(plan.url, LAUNCH, KEY)
    certificate, key = make_certificate("mine")
    passphrase = cluster_dir.key_for("certificate").hex().encode()
    cluster_dir.publish(CERTIFICATE, certificate=certificate, key=encrypted(key, passphrase))
    target = tmp_path / "it's private"
    target.mkdir()

    assert client_port(plan, folder) == 4711
    gate = Gate("127.0.0.1", 9, "tls://127.0.0.1:9", unreachable)
    assert write_client_files(cluster, plan, folder, target, gate) == {
        "FRAME_CONFIG": f"{target}/client",
        "FRAME_TLS": "1",
        "FRAME_KEY": f"{target}/key.pem",
    }
    assert sorted(path.name for path in (target / "client").iterdir()) == ["address.yaml", "tls.yaml"]
    assert (target / "client" / "address.yaml").read_text() == 'address: "tls://127.0.0.1:9"\n'
    assert (target / "client" / "tls.yaml").read_text() == f'tls: ["{target}/certificate.pem", "{target}/key.pem"]\n'
    assert (target / "key.pem").read_text() == key
    assert stat.S_IMODE((target / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE((target / "client").stat().st_mode) == 0o700


def test_without_encryption_there_is_no_word_of_it(tmp_path: Path, folder: Path, plan: Plan) -> None:
    cluster = keep(tmp_path, plan)
    plain = replace(plan, environment={**plan.environment, "CLUSTER_TLS": "0"})
    target = tmp_path / "private"
    target.mkdir()
    gate = Gate("127.0.0.1", 9, "tcp://127.0.0.1:9", unreachable)
    assert write_client_files(cluster, plain, folder, target, gate) == {"FRAME_CONFIG": f"{target}/client"}
    assert [path.name for path in (target / "client").iterdir()] == ["address.yaml"]


def test_the_token_is_in_a_private_file_that_a_variable_names(tmp_path: Path, folder: Path, plan: Plan) -> None:
    """The nodes' own, which no variable and no other file has; without tokens nothing speaks of one."""
    cluster = keep(tmp_path, plan)
    (folder / "settings.env").write_text("HEAD_PORT=1\nCLIENT_PORT=HEAD_PORT\nCLIENT_TOKEN=1\n")
    (folder / "client" / "address.env").write_text("FRAME=frame://${HOST}:${PORT}\n")
    (folder / "client" / "token.env").write_text("TOKEN_AT=${TOKEN_FILE}\n")
    target = tmp_path / "private"
    target.mkdir()
    gate = Gate("127.0.0.1", 9, "http://127.0.0.1:9/", unreachable)
    found = write_client_files(cluster, plan, folder, target, gate)
    assert found == {"FRAME": "frame://127.0.0.1:9", "TOKEN_AT": f"{target}/client-token"}
    assert (target / "client-token").read_text() == client_token(KEY, LAUNCH)
    assert stat.S_IMODE((target / "client-token").stat().st_mode) == 0o600

    without = replace(plan, environment={**plan.environment, "CLIENT_TOKEN": "0"})
    (target / "client-token").unlink()
    assert write_client_files(cluster, without, folder, target, gate) == {"FRAME": "frame://127.0.0.1:9"}
    assert not (target / "client-token").exists()


def test_a_certificate_that_is_not_there_yet_is_told(tmp_path: Path, folder: Path, plan: Plan) -> None:
    cluster = keep(tmp_path, plan)
    with pytest.raises(BackendError, match="mine has no certificate yet; wait until it is ready"):
        write_client_files(cluster, plan, folder, tmp_path, Gate("", 0, "", unreachable))


def test_main_is_asked_where_the_cluster_dir_is_in_its_memory(tmp_path: Path, folder: Path, plan: Plan) -> None:
    """Through a way of its own, as nothing else reaches main."""
    cluster = keep(tmp_path, plan)
    at_main = replace(plan, environment={**plan.environment, "WORK_DIR": "main://head.example.org:7777"})

    def reach(node: str, port: int) -> tuple[str, int]:
        assert (node, port) == ("MAIN", 7777)
        msg = "no way"
        raise BackendError(msg)

    with pytest.raises(BackendError, match="no way"):
        write_client_files(cluster, at_main, folder, tmp_path, Gate("", 0, "", reach))


@pytest.mark.parametrize("url", ["main://nonsense\x1b[2J", "main://head:0", "main://head:99999"])
def test_a_work_dir_that_is_no_place_of_main_is_no_bug_of_ours(
    tmp_path: Path, folder: Path, plan: Plan, url: str
) -> None:
    """Whoever may write a Job writes it."""
    cluster = keep(tmp_path, plan)
    forged = replace(plan, environment={**plan.environment, "WORK_DIR": url})
    with pytest.raises(LostPlanError, match="mine does not say where main is") as caught:
        write_client_files(cluster, forged, folder, tmp_path, Gate("", 0, "", unreachable))
    assert str(caught.value).isprintable()


def test_a_framework_that_nobody_connects_to_is_named(tmp_path: Path, plan: Plan) -> None:
    """And those that somebody connects to."""
    (tmp_path / "frame").mkdir()
    (tmp_path / "frame" / "settings.env").write_text("HEAD_PORT=1\n")
    for other in ("second", "first"):
        (tmp_path / other / "client").mkdir(parents=True)
        (tmp_path / other / "client" / "address.env").touch()
    with pytest.raises(
        UsageError, match=r"no program outside connects to frame; .* with a CLIENT_PORT: first, second$"
    ):
        client_port(plan, tmp_path / "frame")
