"""Which Kubernetes is meant, and who asks: kubeconfigs, contexts, programs that print tokens."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from oci_cluster.backends.kubernetes import access as module
from oci_cluster.backends.kubernetes.access import open_access
from oci_cluster.backends.kubernetes.checks import confirm
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
    """The first that has the context; one that is not there is passed over."""
    first, second = kubeconfig(tmp_path / "1", "a", current="a"), kubeconfig(tmp_path / "2", "b")
    files = f"{tmp_path / 'none'}:{first}:{second}"
    assert open_access({"KUBECONFIG": files, "KUBE_CONTEXT": "b"}).server == "https://b.test"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has not a current context"),
        ("{", "is not a kubeconfig"),
        ("[1]", "is not a kubeconfig"),
        ("a: 1", "is not a kubeconfig"),
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
    with access.client() as client, pytest.raises(NotPermittedError, match="gave none"):
        client.get("/x")


def test_a_program_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever."""
    monkeypatch.setattr(module, "_PLUGIN_S", 0.2)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sleep", "args": ["60"]}}
    access = open_access({"KUBECONFIG": str(kubeconfig(tmp_path / "c", "a", current="a", user=user))})
    with access.client() as client, pytest.raises(NotPermittedError, match="timed out"):
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
