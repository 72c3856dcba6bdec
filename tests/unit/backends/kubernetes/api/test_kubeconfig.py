"""Which Kubernetes is meant, and who asks: kubeconfigs, contexts, programs that print tokens."""

from __future__ import annotations

import json
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from oci_cluster.backends.kubernetes.api import kubeconfig as module
from oci_cluster.backends.kubernetes.api.kubeconfig import confirm, open_access
from oci_cluster.errors import NotPermittedError, SettingsError, UsageError


def kubeconfig(path: Path, *names: str, current: str = "", user: Any = None) -> Path:
    """Write a kubeconfig with contexts of these *names*."""
    path.write_text(
        json.dumps(
            {
                "current-context": current or None,
                "contexts": [
                    {"name": n, "context": {"cluster": n, "user": "u", "namespace": f"ns-{n}"}} for n in names
                ],
                "clusters": [{"name": n, "cluster": {"server": f"https://{n}.test"}} for n in names],
                "users": [{"name": "u", "user": user or {"token": "t"}}],
            }
        )
    )
    return path


def test_the_context_that_is_named_or_the_current_one(tmp_path: Path) -> None:
    """With its namespace, unless another is named."""
    given = {"KUBECONFIG": str(kubeconfig(tmp_path / "c", "a", "b", current="b"))}
    assert (open_access(given).context, open_access(given).namespace) == ("b", "ns-b")
    named = open_access({**given, "KUBE_CONTEXT": "a", "NAMESPACE": "mine"})
    assert (named.server, named.namespace) == ("https://a.test", "mine")


def test_several_files_as_kubectl_has_them(tmp_path: Path) -> None:
    """They are one, of which the first counts that has an entry; one that is empty, or not there, says nothing."""
    (tmp_path / "empty").touch()
    first = kubeconfig(tmp_path / "1", "a", current="a", user={"token": "first"})
    second = kubeconfig(tmp_path / "2", "b", current="b", user={"token": "second"})
    files = ":".join(map(str, (tmp_path / "none", tmp_path / "empty", first, second)))
    access = open_access({"KUBECONFIG": files, "KUBE_CONTEXT": "b"})
    assert (access.server, access.config.user.token) == ("https://b.test", "first")
    assert open_access({"KUBECONFIG": files}).context == "a"


def test_paths_are_beside_the_file_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token's, and a program's that has a slash; a bare name is looked for on PATH."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "token").write_text("T\n")
    program = tmp_path / "mine" / "plugin"
    program.write_text('#!/bin/sh\necho \'{"status": {"token": "P"}}\'\n')
    program.chmod(0o700)
    seen: list[str] = []
    have_answered(monkeypatch, lambda request: seen.append(request.headers["Authorization"]) or httpx.Response(200))
    plugin = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}}
    monkeypatch.chdir(tmp_path)
    for user in ({"tokenFile": "token"}, plugin):
        kubeconfig(tmp_path / "mine" / "c", "a", current="a", user=user)
        with open_access({"KUBECONFIG": "mine/c"}).client() as client:
            client.get("/x")
    assert seen == ["Bearer T", "Bearer P"]


def test_who_stands_for_somebody_else_says_so_in_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody launches as himself, and may do more, who asks as a robot that may do less."""
    extra = {"acme.com/team": ["vision", "speech"]}
    user = {"token": "t", "as": "robot", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": extra}
    file = kubeconfig(tmp_path / "c", "a", current="a", user=user)
    seen: list[tuple[str, str]] = []
    have_answered(monkeypatch, lambda request: seen.extend(request.headers.multi_items()) or httpx.Response(200))
    with open_access({"KUBECONFIG": str(file)}).client() as client:
        client.get("/x")
    assert [pair for pair in seen if pair[0].startswith("impersonate-")] == [
        ("impersonate-user", "robot"),
        ("impersonate-uid", "7"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-extra-acme.com%2fteam", "vision"),
        ("impersonate-extra-acme.com%2fteam", "speech"),
    ]


def test_a_proxy_of_the_kubeconfig_is_used_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before those of the environment; of a kind that nobody here speaks it is named."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    file = kubeconfig(tmp_path / "c", "a", current="a")
    about = json.loads(file.read_text())

    def access_by(proxy: str) -> Any:
        about["clusters"][0]["cluster"]["proxy-url"] = proxy
        file.write_text(json.dumps(about))
        return open_access({"KUBECONFIG": str(file)})

    def ask(client: httpx.Client) -> None:
        with pytest.raises(httpx.HTTPError):
            client.get("/x")

    with (
        socket.create_server(("127.0.0.1", 0)) as proxy,
        access_by(f"http://127.0.0.1:{proxy.getsockname()[1]}").client() as client,
    ):
        asking = threading.Thread(target=ask, args=[client])
        asking.start()
        guest, _ = proxy.accept()
        with guest:
            assert guest.recv(100).startswith(b"CONNECT a.test:443")
        asking.join()
    with pytest.raises(SettingsError, match=r"the context 'a' of your kubeconfig cannot be used.*gopher"):
        access_by("gopher://x").client()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has not a current context"),
        ("{", "is not a kubeconfig"),
        ("[1]", "is not a kubeconfig"),
        ("a: 1", "has not a current context"),
        ("users: 1", "is not a kubeconfig"),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str, said: str) -> None:
    """Told with its name, and what is wrong."""
    file = tmp_path / "c"
    file.write_text(text) if text else kubeconfig(file, "a")
    with pytest.raises(SettingsError, match=said) as raised:
        open_access({"KUBECONFIG": str(file)})
    assert str(file) in str(raised.value)


def test_no_kubeconfig_at_all(tmp_path: Path) -> None:
    """Says where one was looked for."""
    with pytest.raises(SettingsError, match="there is no kubeconfig"):
        open_access({"KUBECONFIG": str(tmp_path / "none")})


def test_a_context_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    """Typing errors."""
    file = kubeconfig(tmp_path / "c", "a", "b")
    with pytest.raises(SettingsError, match="it has: a, b"):
        open_access({"KUBECONFIG": str(file), "KUBE_CONTEXT": "x"})


@pytest.mark.parametrize(("kind", "missing"), [("users", "user 'u'"), ("clusters", "cluster 'a'")])
def test_what_a_context_names_and_is_not_there_is_named(tmp_path: Path, kind: str, missing: str) -> None:
    """The context itself is there."""
    file = kubeconfig(tmp_path / "c", "a", current="a")
    file.write_text(json.dumps({**json.loads(file.read_text()), kind: []}))
    with pytest.raises(SettingsError, match=f"has not the {missing}, which the context 'a' names"):
        open_access({"KUBECONFIG": str(file)})


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_token_that_a_program_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Asked once, and once more when the API does not take it any more."""
    # It counts its calls.
    script = tmp_path / "plugin"
    answer = f'{{"apiVersion": "client.authentication.k8s.io/{version}", "status": {{"token": "T\'$n\'"}}}}'
    script.write_text(f"echo x >>{tmp_path}/calls; n=$(wc -l <{tmp_path}/calls)\necho '{answer}'\n")
    user = {"exec": {"apiVersion": f"client.authentication.k8s.io/{version}", "command": "sh", "args": [str(script)]}}
    access = open_access({"KUBECONFIG": str(kubeconfig(tmp_path / "c", "a", current="a", user=user))})
    seen: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return httpx.Response(401 if seen[-1] == "Bearer T1" and len(seen) == 2 else 200, json={})

    have_answered(monkeypatch, handle)
    with access.client() as client:
        for _ in range(3):
            client.get("/x")
    assert [text.replace(" ", "") for text in seen] == ["BearerT1", "BearerT1", "BearerT2", "BearerT2"]


def have_answered(monkeypatch: pytest.MonkeyPatch, handle: Any) -> None:
    """Have *handle* answer all requests of clients that are made from now on."""
    monkeypatch.setattr(module.httpx, "Client", partial(httpx.Client, transport=httpx.MockTransport(handle)))


@pytest.mark.parametrize("script", ["exit 3", "echo no json", "echo '{}'", 'echo \'{"status": {"token": 7}}\''])
def test_a_program_that_prints_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Told with its name; nothing is sent."""
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}}
    access = open_access({"KUBECONFIG": str(kubeconfig(tmp_path / "c", "a", current="a", user=user))})
    have_answered(monkeypatch, lambda _request: 1 / 0)
    with pytest.raises(NotPermittedError, match="gave none"), access.client() as client:
        client.get("/x")


def test_a_certificate_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    """It was printed in the place of one; nothing is sent."""
    script = 'echo \'{"status": {"clientCertificateData": "no PEM", "clientKeyData": "none"}}\''
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}}
    access = open_access({"KUBECONFIG": str(kubeconfig(tmp_path / "c", "a", current="a", user=user))})
    with pytest.raises(NotPermittedError, match="a program of your kubeconfig has printed cannot be used"):
        access.client()


def test_a_program_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever."""
    monkeypatch.setattr(module, "_PLUGIN_S", 0.2)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep", "args": ["60"]}}
    access = open_access({"KUBECONFIG": str(kubeconfig(tmp_path / "c", "a", current="a", user=user))})
    with pytest.raises(NotPermittedError, match="timed out"), access.client() as client:
        client.get("/x")


class Terminal:
    def __init__(self, answer: str, *, is_one: bool = True) -> None:
        self._answer, self._is_one = answer, is_one

    def isatty(self) -> bool:
        return self._is_one

    def readline(self) -> str:
        return self._answer


def test_a_context_that_nobody_has_named_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal; elsewhere it is refused, with the words that name it."""
    monkeypatch.delenv("KUBE_CONTEXT", raising=False)
    access = open_access({"KUBECONFIG": str(kubeconfig(tmp_path / "c", "prod", current="prod"))})
    said: list[str] = []
    monkeypatch.setattr("sys.stderr", Terminal(""))
    monkeypatch.setattr("sys.stdin", Terminal("", is_one=False))
    with pytest.raises(UsageError, match="KUBE_CONTEXT=prod"):
        confirm(access, {}, said.append)
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    with pytest.raises(Exception, match="not launched"):
        confirm(access, {}, said.append)
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    monkeypatch.setenv("KUBE_CONTEXT", "")
    given: dict[str, str] = {}
    confirm(access, given, said.append)
    assert given == {"KUBE_CONTEXT": "prod"}
    assert "https://prod.test" in said[0]
    confirm(access, {"KUBE_CONTEXT": "prod"}, lambda _: pytest.fail("asked again"))
