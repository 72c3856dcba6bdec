"""Which Kubernetes is asked, and who asks: kubeconfig, context, namespace, token. Nothing of it is ever written."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2 as httpx
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ConfigError

from oci_cluster.errors import NotPermittedError, SettingsError
from oci_cluster.system.text import printable

# Where a pod finds who it is. Source: Kubernetes' documentation, "Accessing the API from a Pod".
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT_KUBECONFIG = "~/.kube/config"
# Seconds to connect; between two bytes of an answer. A list of a thousand pods takes one or two.
_TIMEOUTS = httpx.Timeout(30.0, connect=10.0)
# For a program that prints a token: `oci ce cluster generate-token` takes 0.6 s, one that asks a person longer.
_PLUGIN_S = 120.0


@dataclass(frozen=True)
class Access:
    """One Kubernetes, as one user sees it."""

    config: SingleConfig
    namespace: str

    @property
    def context(self) -> str:
        """The context's name; empty inside a pod."""
        return "" if self.config.fname is None else str(self.config.context_name)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self.config.cluster.server)

    def client(self) -> httpx.Client:
        """Return what makes requests.

        Raises:
            SettingsError: certificate or key cannot be read.
        """
        # Proxies of the environment count, as they do for kubectl.
        return httpx.Client(base_url=self.server, verify=self.tls, auth=self.auth, timeout=_TIMEOUTS)

    @cached_property
    def auth(self) -> httpx.Auth | None:
        """What says in a request who asks, where no certificate does: a token, one that a program prints, a password.

        Raises:
            SettingsError: it cannot be read, or is of a kind that nobody here knows.
        """
        user = self.config.user
        if user is not None and user.exec is not None and not (user.token or user.token_file):
            return _TokenOfPlugin(user.exec)
        with self._usable():
            return client_adapter.user_auth(user)

    @property
    def tls(self) -> ssl.SSLContext:
        """Whom to trust as the API server, and the user's certificate.

        Raises:
            SettingsError: certificate or key cannot be read.
        """
        config = self.config
        with self._usable():
            if config.user is None:
                return httpx.create_ssl_context()
            return client_adapter.verify_cluster(config.cluster, config.user, config.abs_file)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, ConfigError) as error:
            msg = f"the context '{self.context}' of your kubeconfig cannot be used: {printable(error)}"
            raise SettingsError(msg) from error


def open_access(given: Mapping[str, str]) -> Access:
    """Return the Kubernetes that *given*, the settings, name: ``KUBECONFIG``, ``KUBE_CONTEXT`` and ``NAMESPACE``.

    Without a kubeconfig, inside a pod, that pod's own service account asks. A program may give a token instead, under
    names that neither an environment nor ``config.env`` has.

    Raises:
        SettingsError: there is no kubeconfig, or it has no such context.
    """
    context, namespace = given.get("KUBE_CONTEXT", ""), given.get("NAMESPACE", "")
    if token := given.get("kubernetes.token"):
        server, authority = given["kubernetes.server"], given.get("kubernetes.ca", "")
        return Access(_of_token(token, server, authority, namespace), namespace)
    files = [Path(name).expanduser() for name in given.get("KUBECONFIG", "").split(os.pathsep) if name]
    files = files or [Path(_DEFAULT_KUBECONFIG).expanduser()]
    found = [file for file in files if file.is_file()]
    if not found and not given.get("KUBECONFIG") and _SERVICE_ACCOUNT.is_dir():
        config = KubeConfig.from_service_account().get()
        assert config is not None  # noqa: S101 - it has one context
        return Access(config, namespace or config.namespace)
    if not found:
        named = ", ".join(str(file) for file in files)
        msg = f"there is no kubeconfig: {named}; name yours with KUBECONFIG (docs/kubernetes.md says how to get one)"
        raise SettingsError(msg)
    config = _chosen(found, context)
    return Access(config, namespace or config.namespace)


def _of_token(token: str, server: str, ca: str, namespace: str) -> SingleConfig:
    """Return what asks *server*, whose authority is *ca*, PEM, with a bearer *token*."""
    authority = base64.b64encode(ca.encode()).decode() if ca else None
    cluster = Cluster(server=server, certificate_auth_data=authority)
    made = KubeConfig.from_one(cluster=cluster, user=User(token=token), namespace=namespace or None).get()
    assert made is not None  # noqa: S101 - it has one context
    return made


def _chosen(files: list[Path], context: str) -> SingleConfig:
    """Return the *context* of the first of *files* that has it; without a name the first file's current one."""
    known: list[str] = []
    file = files[0]
    try:
        for file in files:
            config = KubeConfig.from_file(file)
            known += config.contexts
            wanted = context or config.current_context or ""
            if wanted in config.contexts:
                chosen = config.get(wanted)
                if chosen is not None and chosen.context.cluster in config.clusters:
                    return chosen
    except Exception as error:  # what is in a file may be anything: YAML, types, names that are not there
        msg = f"{file} is not a kubeconfig that can be used: {printable(error)}"
        raise SettingsError(msg) from error
    listed = ", ".join(known) or "none"
    what = f"the context '{context}'" if context else "a current context"
    msg = f"{', '.join(map(str, files))} has not {what}; it has: {listed}; name one with KUBE_CONTEXT"
    raise SettingsError(msg)


class _TokenOfPlugin(httpx.Auth):
    """A token that a program prints, as kubectl has it: asked once, and again when the API does not take it any more.

    lightkube's own knows neither version v1 nor a time limit.
    """

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin
        self._token = ""

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
            response = yield request
            if response.status_code != 401:  # HTTP's: not known (any more)
                return
            response.read()
        self._token = self._ask()
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request

    def _ask(self) -> str:
        plugin = self._plugin
        command = [plugin.command, *(plugin.args or [])]
        version = str(plugin.apiVersion or "")
        info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        own = {variable.name: variable.value for variable in plugin.env or []}
        environ = {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            done = subprocess.run(  # noqa: S603 - the user's own kubeconfig names it, an argument list
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PLUGIN_S,
                check=False,
            )
            said = done.stderr.decode(errors="replace").strip()
            if done.returncode:
                msg = f"it ended with {done.returncode}: {said[-500:]}"
                raise ValueError(msg)
            token = json.loads(done.stdout)["status"]["token"]
            if not isinstance(token, str) or not token.isascii() or not token.isprintable():
                msg = "it printed no token"
                raise ValueError(msg)
        except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
            what = printable(f"{type(error).__name__} {error}" if isinstance(error, KeyError) else error)
            msg = f"'{' '.join(command[:4])}', which your kubeconfig names for a token, gave none: {what}"
            raise NotPermittedError(msg) from error
        return token
