# What a program outside a cluster needs: the framework's configuration, and the certificate from the cluster dir.

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from unit.fake_backend import KEY, LAUNCH, LIMITS, keep, plan_of

from oci_cluster.contract.certificate import encrypted, make_certificate
from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.names import CERTIFICATE
from oci_cluster.errors import BackendError, UsageError
from oci_cluster.launcher.client_files import client_port, write_client_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a framework that programs outside may connect to."""
    found = tmp_path / "frame"
    (found / "client").mkdir(parents=True)
    (found / "settings.env").write_text(
        "HEAD_PORT=1\nCLUSTER_TLS=1\nCLIENT_PORT=HEAD_PORT\nCLIENT_CONFIG=FRAME_CONFIG\n"
    )
    (found / "client" / "address.yaml").write_text("address: ${ADDRESS}\n")
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
    words = {"target": target, "address": "tls://127.0.0.1:9", "reach": unreachable}
    assert write_client_files(cluster, plan, folder, **words) == f"FRAME_CONFIG={target}/client"
    assert (target / "client" / "address.yaml").read_text() == 'address: "tls://127.0.0.1:9"\n'
    assert (target / "client" / "tls.yaml").read_text() == f'tls: ["{target}/certificate.pem", "{target}/key.pem"]\n'
    assert (target / "key.pem").read_text() == key
    assert stat.S_IMODE((target / "key.pem").stat().st_mode) == 0o600


def test_without_encryption_there_is_no_word_of_it(tmp_path: Path, folder: Path, plan: Plan) -> None:
    cluster = keep(tmp_path, plan)
    plain = replace(plan, environment={**plan.environment, "CLUSTER_TLS": "0"})
    target = tmp_path / "private"
    target.mkdir()
    write_client_files(cluster, plain, folder, target=target, address="tcp://127.0.0.1:9", reach=unreachable)
    assert [path.name for path in (target / "client").iterdir()] == ["address.yaml"]


def test_a_certificate_that_is_not_there_yet_is_told(tmp_path: Path, folder: Path, plan: Plan) -> None:
    cluster = keep(tmp_path, plan)
    with pytest.raises(BackendError, match="mine has no certificate yet; wait until it is ready"):
        write_client_files(cluster, plan, folder, target=tmp_path, address="", reach=unreachable)


def test_main_is_asked_where_the_cluster_dir_is_in_its_memory(tmp_path: Path, folder: Path, plan: Plan) -> None:
    """Through a way of its own, as nothing else reaches main."""
    cluster = keep(tmp_path, plan)
    at_main = replace(plan, environment={**plan.environment, "WORK_DIR": "main://head.example.org:7777"})

    def reach(node: str, port: int) -> tuple[str, int]:
        assert (node, port) == ("MAIN", 7777)
        msg = "no way"
        raise BackendError(msg)

    with pytest.raises(BackendError, match="no way"):
        write_client_files(cluster, at_main, folder, target=tmp_path, address="", reach=reach)


def test_a_framework_that_nobody_connects_to_is_named(tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "settings.env").write_text("HEAD_PORT=1\n")
    with pytest.raises(UsageError, match="no program outside connects to frame"):
        client_port(plan, tmp_path)
