"""Which Kubernetes is asked, and who asks: kubeconfig, context, namespace, token. Nothing of it is ever written."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import httpx2 as httpx
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ConfigError

from oci_cluster.backends.kubernetes.kubeconfig import Chosen
from oci_cluster.backends.kubernetes.plugin import Plugin, PluginAuth
from oci_cluster.errors import SettingsError
from oci_cluster.system.text import printable

# Where a pod finds who it is. Source: Kubernetes' documentation, "Accessing the API from a Pod".
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT_KUBECONFIG = "~/.kube/config"


@dataclass(frozen=True)
class Access:
    """One Kubernetes, as one user sees it."""

    config: SingleConfig
    namespace: str
    chosen: Chosen | None = None
    """What a kubeconfig says besides; None where there is none."""

    @property
    def context(self) -> str:
        """The context's name; empty inside a pod."""
        return "" if self.config.fname is None else str(self.config.context_name)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self.config.cluster.server)

    @property
    def proxy(self) -> str | None:
        """The proxy of the kubeconfig; None: those of the environment count, as they do for kubectl."""
        return self.chosen.proxy if self.chosen else None

    @property
    def server_name(self) -> str | None:
        """The name of the API server's certificate, where that is not its URL's."""
        return self.chosen.server_name if self.chosen else None

    def client(self) -> httpx.Client:
        """Return what makes requests.

        Raises:
            NotPermittedError: a program of the kubeconfig does not say who asks.
            SettingsError: certificate or key cannot be read, or there is no such proxy.
        """
        tls = self.tls
        with self._usable():
            return httpx.Client(base_url=self.server, verify=tls, auth=self.auth_with(tls), proxy=self.proxy)

    def auth_with(self, tls: ssl.SSLContext) -> httpx.Auth:
        """Return what says in a request who asks: a token, one that a program prints, a password, whom it stands for.

        Args:
            tls: What the request is made with: it gets a new certificate where a program prints another one.

        Raises:
            SettingsError: it cannot be read, or is of a kind that nobody here knows.
        """
        user = self.config.user
        if self._plugin is not None:
            own: httpx.Auth = PluginAuth(self._plugin, tls)
        else:
            with self._usable():
                own = client_adapter.user_auth(user) or httpx.Auth()
        return _Asking(own, self.chosen.impersonation if self.chosen else [], self.server_name)

    @cached_property
    def _plugin(self) -> Plugin | None:
        user = self.config.user
        if user is None or user.exec is None or user.token or user.token_file or self.chosen is None:
            return None
        return Plugin(self.chosen)

    @property
    def tls(self) -> ssl.SSLContext:
        """Whom to trust as the API server, and the user's certificate.

        Raises:
            NotPermittedError: a program of the kubeconfig does not say who asks.
            SettingsError: certificate or key cannot be read.
        """
        config = self.config
        with self._usable():
            if config.user is None:
                return httpx.create_ssl_context()
            tls = client_adapter.verify_cluster(config.cluster, config.user, config.abs_file)
        if self._plugin is not None:
            self._plugin.credential().certify(tls)
        return tls

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, ImportError, ConfigError) as error:
            raise SettingsError(
                f"the context '{self.context}' of your kubeconfig cannot be used: {printable(error)}"
            ) from error


class _Asking(httpx.Auth):
    """Adds to each request of another auth whom it stands for, and what the server is called."""

    def __init__(self, own: httpx.Auth, impersonation: Sequence[tuple[str, str]], server_name: str | None) -> None:
        self._own, self._impersonation, self._server_name = own, impersonation, server_name

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers = httpx.Headers([*request.headers.multi_items(), *self._impersonation])
        if self._server_name:
            request.extensions = {**request.extensions, "sni_hostname": self._server_name}
        yield from self._own.sync_auth_flow(request)


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
        raise SettingsError(
            f"there is no kubeconfig: {named}; name yours with KUBECONFIG (docs/kubernetes.md says how to get one)"
        )
    chosen = Chosen(found, context)
    return Access(chosen.config, namespace or chosen.config.namespace, chosen)


def _of_token(token: str, server: str, ca: str, namespace: str) -> SingleConfig:
    """Return what asks *server*, whose authority is *ca*, PEM, with a bearer *token*."""
    authority = base64.b64encode(ca.encode()).decode() if ca else None
    cluster = Cluster(server=server, certificate_auth_data=authority)
    made = KubeConfig.from_one(cluster=cluster, user=User(token=token), namespace=namespace or None).get()
    assert made is not None  # noqa: S101 - it has one context
    return made
