"""Programs of a kubeconfig that say who asks: by a token, or by a certificate.

Source: "client-go credential plugins" in Kubernetes' documentation. lightkube's own knows neither version v1, nor
certificates, nor a time limit.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx

from oci_cluster.backends.kubernetes.kubeconfig import Chosen
from oci_cluster.errors import NotPermittedError
from oci_cluster.system.text import printable

# `oci ce cluster generate-token` takes 0.6 s, a program that asks a person longer.
_PLUGIN_S = 120.0
_CLUSTER_CONFIG = "client.authentication.k8s.io/exec"


@dataclass(frozen=True)
class Credential:
    """What a program has printed."""

    token: str
    certificate: str
    """PEM; empty where it is by the token that one asks."""
    key: str

    def certify(self, tls: ssl.SSLContext) -> None:
        """Have *tls* show the certificate, where there is one.

        Raises:
            NotPermittedError: it is none, or the key is not its own.
        """
        if not self.certificate:
            return
        with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads files alone; the folder is private
            file = Path(folder, "client.pem")
            file.write_text(f"{self.certificate}\n{self.key}\n")
            try:
                tls.load_cert_chain(file)
            except ssl.SSLError as error:
                raise NotPermittedError(
                    f"the certificate that a program of your kubeconfig has printed cannot be used: {printable(error)}"
                ) from error


class Plugin:
    """The program, which is asked once, and again when the API does not take its answer any more."""

    def __init__(self, chosen: Chosen) -> None:
        """Have the one of a context."""
        self._chosen = chosen
        self._credential: Credential | None = None

    def credential(self) -> Credential:
        """Return its answer.

        Raises:
            NotPermittedError: it has none.
        """
        if self._credential is None:
            self._credential = self._ask()
        return self._credential

    def another(self) -> Credential:
        """Return what it answers now."""
        self._credential = None
        return self.credential()

    def _info(self) -> str:
        plugin, cluster = self._chosen.user["exec"], self._chosen.cluster
        spec: dict[str, Any] = {"interactive": False}
        if plugin.get("provideClusterInfo"):
            names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
            spec["cluster"] = {name: cluster[name] for name in names if cluster.get(name)}
            if file := cluster.get("certificate-authority"):
                spec["cluster"].setdefault("certificate-authority-data", _base64_of(Path(file)))
            for extension in cluster.get("extensions") or []:
                if extension.get("name") == _CLUSTER_CONFIG:
                    spec["cluster"]["config"] = extension.get("extension")
        return json.dumps({"apiVersion": str(plugin.get("apiVersion") or ""), "kind": "ExecCredential", "spec": spec})

    def _ask(self) -> Credential:
        plugin = self._chosen.user["exec"]
        command = [str(plugin["command"]), *map(str, plugin.get("args") or [])]
        try:
            if plugin.get("interactiveMode") == "Always":
                raise ValueError("it wants a terminal (interactiveMode: Always), and there is none for it")
            own = {str(one["name"]): str(one["value"]) for one in plugin.get("env") or []}
            done = subprocess.run(  # noqa: S603 - the user's own kubeconfig names it, an argument list
                command,
                env={**os.environ, **own, "KUBERNETES_EXEC_INFO": self._info()},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PLUGIN_S,
                check=False,
            )
            if done.returncode:
                raise ValueError(
                    f"it ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()[-500:]}"
                )
            return _credential_of(json.loads(done.stdout)["status"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, subprocess.TimeoutExpired) as error:
            what = printable(f"{type(error).__name__} {error}" if isinstance(error, KeyError) else error)
            hint = printable(plugin.get("installHint") or "") if isinstance(error, FileNotFoundError) else ""
            name = " ".join(command[:4])
            raise NotPermittedError(
                f"'{name}', which your kubeconfig names for a token, gave none: {what} {hint}".rstrip()
            ) from error


def _credential_of(status: Mapping[str, Any]) -> Credential:
    token, certificate, key = (status.get(name) or "" for name in ("token", "clientCertificateData", "clientKeyData"))
    if not all(isinstance(text, str) and text.isascii() for text in (token, certificate, key)):
        raise ValueError("what it printed is no text")
    if not token.isprintable() or not (token or (certificate and key)):
        raise ValueError("it printed neither a token nor a certificate with its key")
    return Credential(token, certificate, key)


def _base64_of(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


class PluginAuth(httpx.Auth):
    """Says in a request what a program has answered."""

    def __init__(self, plugin: Plugin, tls: ssl.SSLContext) -> None:
        """Have *plugin*'s certificate in *tls*, where that is what it prints."""
        self._plugin, self._tls = plugin, tls

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Ask, and once more with another answer where the API knows this one not (any more)."""
        self._say(request, self._plugin.credential())
        response = yield request
        if response.status_code == 401:  # HTTP's: not known
            response.read()
            credential = self._plugin.another()
            credential.certify(self._tls)
            self._say(request, credential)
            yield request

    def _say(self, request: httpx.Request, credential: Credential) -> None:
        if credential.token:
            request.headers["Authorization"] = f"Bearer {credential.token}"
        if credential.certificate:  # a connection that is kept would go on with the certificate that it began with
            request.headers["Connection"] = "close"
