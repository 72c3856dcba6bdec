"""Kubeconfigs of all kinds, each given to kubectl and to the launcher: both are the same user, or both are refused."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kube.cluster import Cluster, User
from kube.identity import by_certificate

from oci_cluster.backends.kubernetes.api.kubeconfig import open_access
from oci_cluster.backends.kubernetes.api.service import Service
from oci_cluster.errors import ClusterError

Object = dict[str, Any]
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Desk:
    """A folder in which somebody writes kubeconfigs."""

    def __init__(self, kubernetes: Cluster, user: User, folder: Path) -> None:
        self.kubernetes, self.user, self.folder = kubernetes, user, folder
        self.certificate, self.key = kubernetes.authority.sign(user.name, user.name)
        self.authority = kubernetes.authority.file

    def cluster(self, **more: Any) -> Object:
        return {"server": self.kubernetes.server, "certificate-authority": str(self.authority), **more}

    def file(self, name: str, user: Object | None = None, cluster: Object | None = None, **more: Any) -> str:
        """Write one with a context, a user and a cluster of the name ``a``; *more* replaces parts of it."""
        about: Object = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": self.user.namespace}}],
            "clusters": [{"name": "a", "cluster": cluster or self.cluster()}],
            "users": [{"name": "a", "user": user or {}}],
            **more,
        }
        path = self.folder / name
        path.write_text(json.dumps(about))
        return str(path)

    def program(self, status: Object) -> str:
        """Write a program that prints *status*; return its path beside the kubeconfigs."""
        path = self.folder / "bin" / "who"
        path.parent.mkdir()
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        path.with_suffix(".json").write_text(json.dumps(answer))
        path.write_text(f"#!/bin/sh\nexec cat '{path}.json'\n")
        path.chmod(0o700)
        return "bin/who"

    def plugin(self, status: Object, **more: Any) -> Object:
        about = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "IfAvailable", **more}
        return {"exec": {**about, "command": self.program(status)}}


def _paths_beside_it(desk: Desk) -> str:
    for name, source in (("ca.crt", desk.authority), ("me.crt", desk.certificate), ("me.key", desk.key)):
        (desk.folder / name).write_bytes(source.read_bytes())
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    return desk.file("c", user, desk.cluster(**{"certificate-authority": "ca.crt"}))


def _all_in_it(desk: Desk) -> str:
    data = {
        name: base64.b64encode(file.read_bytes()).decode()
        for name, file in (("client-certificate-data", desk.certificate), ("client-key-data", desk.key))
    }
    authority = base64.b64encode(desk.authority.read_bytes()).decode()
    return desk.file("c", data, {"server": desk.kubernetes.server, "certificate-authority-data": authority})


def _token_file_beside_it(desk: Desk) -> str:
    (desk.folder / "token").write_text(desk.user.token())
    return desk.file("c", {"tokenFile": "token"})


def _program_with_a_certificate(desk: Desk) -> str:
    status = {"clientCertificateData": desk.certificate.read_text(), "clientKeyData": desk.key.read_text()}
    return desk.file("c", desk.plugin(status))


def _first_file_is_empty(desk: Desk) -> str:
    (desk.folder / "empty").touch()
    return f"{desk.folder / 'empty'}:{desk.file('c', {'token': desk.user.token()})}"


def _parts_in_several_files(desk: Desk) -> str:
    contexts = desk.file("1", users=None, clusters=None)
    users = desk.file("2", {"token": desk.user.token()}, clusters=[], contexts=[])
    clusters = desk.file("3", {"token": "of nobody"}, contexts=[])
    return f"{desk.folder / 'none'}:{contexts}:{users}:{clusters}"


def _the_first_user_of_a_name_counts_whole(desk: Desk) -> str:
    token = desk.file("1", {"token": desk.user.token()}, contexts=[])
    return f"{token}:{desk.file('2', {'as': 'somebody-else', **by_certificate(desk.certificate, desk.key)})}"


def _as_somebody_else(desk: Desk) -> str:
    admin = json.loads(desk.kubernetes.admin.read_text())["users"][0]["user"]
    robot = {"as": "robot", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"acme.com/team": ["x", "y"]}}
    return desk.file("c", {**admin, **robot})


KUBECONFIGS: dict[str, Callable[[Desk], str]] = {
    "paths beside it": _paths_beside_it,
    "all in it": _all_in_it,
    "a token": lambda desk: desk.file("c", {"token": desk.user.token()}),
    "a token's file beside it": _token_file_beside_it,
    "a program beside it": lambda desk: desk.file("c", desk.plugin({"token": desk.user.token()})),
    "a program that prints a certificate": _program_with_a_certificate,
    "the first of two is empty": _first_file_is_empty,
    "parts in several files": _parts_in_several_files,
    "two users of one name": _the_first_user_of_a_name_counts_whole,
    "as somebody else": _as_somebody_else,
    "another name of the server": lambda desk: desk.file(
        "c", {"token": desk.user.token()}, desk.cluster(**{"tls-server-name": "kubernetes.default.svc"})
    ),
}
REFUSED: dict[str, Callable[[Desk], str]] = {
    "as somebody whom it may not be": lambda desk: desk.file("c", {"token": desk.user.token(), "as": "admin"}),
    "a proxy that is away": lambda desk: desk.file(
        "c", {"token": desk.user.token()}, desk.cluster(**{"proxy-url": "http://127.0.0.1:9"})
    ),
    "not the name of the server": lambda desk: desk.file(
        "c", {"token": desk.user.token()}, desk.cluster(**{"tls-server-name": "elsewhere.test"})
    ),
    "a user who is not there": lambda desk: desk.file("c", users=[]),
    "a program that fails": lambda desk: desk.file(
        "c", {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "false"}}
    ),
}


@pytest.fixture
def desk(kubernetes: Cluster, tmp_path: Path) -> Iterator[Desk]:
    with kubernetes.namespace() as namespace:
        yield Desk(kubernetes, kubernetes.user(namespace), tmp_path)


def whom_kubectl_finds(desk: Desk, files: str) -> Object | None:
    """Return whom the API takes kubectl for; None where it comes to nothing."""
    command = [str(desk.kubernetes.bin / "kubectl"), "auth", "whoami", "--output=json"]
    environ = {**os.environ, "KUBECONFIG": files}
    done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
    return dict(json.loads(done.stdout)["status"]["userInfo"]) if done.returncode == 0 else None


def whom_we_find(files: str) -> Object | None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        with closing(Service(open_access({"KUBECONFIG": files}), patience_s=1.0)) as service:
            found: Object = service.create(_REVIEWS, body)
    except ClusterError:
        return None
    return dict(found["status"]["userInfo"])


@pytest.mark.parametrize("which", KUBECONFIGS)
def test_one_is_who_one_is_for_kubectl(desk: Desk, which: str) -> None:
    """Nothing of a kubeconfig is changed."""
    files = KUBECONFIGS[which](desk)
    found = whom_kubectl_finds(desk, files)
    assert found
    before = {path: path.read_bytes() for path in desk.folder.rglob("*") if path.is_file()}
    assert found == whom_we_find(files)
    assert {path: path.read_bytes() for path in desk.folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("which", REFUSED)
def test_what_kubectl_refuses_is_refused(desk: Desk, which: str) -> None:
    files = REFUSED[which](desk)
    assert whom_kubectl_finds(desk, files) is None
    assert whom_we_find(files) is None
