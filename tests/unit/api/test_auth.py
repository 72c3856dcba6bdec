"""Who asks: what backends get, and where a secret never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.api.auth import (
    Auth,
    ConfigProfile,
    InstancePrincipal,
    Kubeconfig,
    ResourcePrincipal,
    SessionToken,
    Token,
)
from oci_cluster.backends.kubernetes.api.kubeconfig import open_access
from oci_cluster.errors import NotPermittedError, SettingsError

TOKEN = "eyJhbGciOi.s3cret"  # noqa: S105 - nobody's


def home(path: str) -> str:
    return str(Path(path).expanduser())


@pytest.mark.parametrize(
    ("auth", "settings"),
    [
        (
            ConfigProfile("TEAM", file="~/config", region="us-ashburn-1"),
            {
                "OCI_CLI_AUTH": "api_key",
                "OCI_CLI_CONFIG_FILE": "~/config",
                "OCI_CLI_PROFILE": "TEAM",
                "OCI_CLI_REGION": "us-ashburn-1",
            },
        ),
        (
            SessionToken(),
            {"OCI_CLI_AUTH": "security_token", "OCI_CLI_CONFIG_FILE": "~/.oci/config", "OCI_CLI_PROFILE": "DEFAULT"},
        ),
        (InstancePrincipal("us-ashburn-1"), {"OCI_CLI_AUTH": "instance_principal", "OCI_CLI_REGION": "us-ashburn-1"}),
        (ResourcePrincipal(), {"OCI_CLI_AUTH": "resource_principal"}),
        (Kubeconfig("~/k", context="team"), {"KUBECONFIG": "~/k", "KUBE_CONTEXT": "team"}),
        (Kubeconfig(namespace="mine"), {"KUBECONFIG": "~/.kube/config", "NAMESPACE": "mine"}),
    ],
)
def test_each_is_what_its_backend_reads(auth: Auth, settings: dict[str, str]) -> None:
    """Files in full: the current folder may change."""
    files = ("OCI_CLI_CONFIG_FILE", "KUBECONFIG")
    assert auth.settings() == {name: home(text) if name in files else text for name, text in settings.items()}


def test_a_token_is_what_asks_the_server_and_is_shown_nowhere() -> None:
    """Also where a kubeconfig is named; in names that no environment has."""
    token = Token(TOKEN, "https://10.0.0.1:6443", namespace="team")
    access = open_access({"KUBECONFIG": "/none", "KUBE_CONTEXT": "x", **token.settings()})
    assert (access.server, access.namespace, access.context) == ("https://10.0.0.1:6443", "team", "")
    assert access.config.user is not None
    assert access.config.user.token == TOKEN
    assert TOKEN not in repr(token)
    assert [name for name, text in token.settings().items() if TOKEN in text] == ["kubernetes.token"]
    with access.client() as client:
        assert str(client.base_url) == "https://10.0.0.1:6443"


def test_an_authority_is_a_file_or_its_text(tmp_path: Path) -> None:
    text = "-----BEGIN CERTIFICATE-----\nx\n"
    (tmp_path / "ca.pem").write_text(text)
    for ca in (text, str(tmp_path / "ca.pem")):
        assert Token(TOKEN, "https://k", ca=ca).settings()["kubernetes.ca"] == text
    with pytest.raises(SettingsError, match=r"ca='/none': No such file or directory; name a PEM file"):
        Token(TOKEN, "https://k", ca="/none").settings()


def test_after_logout_nothing_is_asked() -> None:
    token = Token(TOKEN, "https://k")
    token.logout()
    with pytest.raises(NotPermittedError, match="you have logged out of https://k; make another Token"):
        token.settings()


@pytest.mark.parametrize(
    ("token", "server", "said"),
    [
        (TOKEN, "http://k", "server='http://k': a token is sent to https:// only"),
        ("", "https://k", "token=: it is empty"),
        ("a\nb", "https://k", "has characters that no token has"),
    ],
)
def test_what_cannot_be_a_token_is_refused_and_not_shown(token: str, server: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Token(token, server)
    assert said in str(caught.value)
    assert TOKEN not in str(caught.value)
    with pytest.raises(NotImplementedError):
        Auth().settings()
