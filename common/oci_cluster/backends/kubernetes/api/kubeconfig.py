"""Access to a Kubernetes: kubeconfig, context, namespace, token. Nothing of it is ever written.

Sources: "Organizing Cluster Access Using kubeconfig Files", "User impersonation" and "client-go credential plugins" in
Kubernetes' documentation. lightkube's own plugins know neither version v1, nor certificates, nor a time limit.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
import yaml
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ConfigError

from oci_cluster.errors import NotPermittedError, SettingsError, StoppedError, UsageError
from oci_cluster.system.console import Say
from oci_cluster.system.files import at_home
from oci_cluster.system.text import printable

Entry = Mapping[str, Any]

# Where a pod finds who it is. Source: Kubernetes' documentation, "Accessing the API from a Pod".
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT_KUBECONFIG = "~/.kube/config"
# A kind of entry in a kubeconfig, and what one is called in the list; of one, the values that are paths.
_KINDS = {"clusters": "cluster", "contexts": "context", "users": "user"}
_PATHS = {
    "cluster": ("certificate-authority",),
    "context": (),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
# What the name of a header may have, without `%`. Source: RFC 9110, 5.6.2.
_IN_HEADERS = "!#$&'*+-.^_`|~"
# `oci ce cluster generate-token` takes 0.6 s, a program that asks a person longer.
_PLUGIN_S = 120.0
_CLUSTER_CONFIG = "client.authentication.k8s.io/exec"


@dataclass(frozen=True)
class Access:
    """One Kubernetes, as one user sees it."""

    config: SingleConfig
    namespace: str
    cluster: Entry = field(default_factory=dict)
    """As the kubeconfig has it; empty where there is none. So is *user*."""
    user: Entry = field(default_factory=dict)

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
        """The proxy of the kubeconfig; None: the environment's, as for kubectl."""
        return str(self.cluster.get("proxy-url") or "") or None

    @property
    def server_name(self) -> str | None:
        """The name of the API server's certificate, where that is not its URL's."""
        return str(self.cluster.get("tls-server-name") or "") or None

    def client(self) -> httpx.Client:
        """Returns a client for the API.

        Raises:
            NotPermittedError: a program of the kubeconfig does not say who asks.
            SettingsError: certificate or key cannot be read, or there is no such proxy.
        """
        tls = self.tls
        with self._usable():
            return httpx.Client(base_url=self.server, verify=tls, auth=self.auth_with(tls), proxy=self.proxy)

    def auth_with(self, tls: ssl.SSLContext) -> httpx.Auth:
        """Returns the authentication of requests; *tls* gets each new certificate of a program."""
        own = httpx.Auth()
        if self._plugin is None:
            with self._usable():
                own = client_adapter.user_auth(self.config.user) or own
        return _Asking(self, own, self._plugin, tls)

    @cached_property
    def _plugin(self) -> _Plugin | None:
        has_own = not self.user.get("exec") or self.user.get("token") or self.user.get("tokenFile")
        return None if has_own else _Plugin(self.user["exec"], self.cluster)

    def impersonation(self) -> list[tuple[str, str]]:
        """Returns the headers by which the user asks in the name of somebody else."""
        user = self.user
        headers = [("Impersonate-User", user.get("as")), ("Impersonate-Uid", user.get("as-uid"))]
        headers += [("Impersonate-Group", group) for group in user.get("as-groups") or []]
        for key, texts in (user.get("as-user-extra") or {}).items():
            headers += [(f"Impersonate-Extra-{quote(str(key), safe=_IN_HEADERS)}", text) for text in texts]
        return [(name, str(text)) for name, text in headers if text]

    @property
    def tls(self) -> ssl.SSLContext:
        """The authority of the API server, and the user's certificate."""
        config = self.config
        with self._usable():
            if config.user is None:
                return httpx.create_ssl_context()
            tls = client_adapter.verify_cluster(config.cluster, config.user, config.abs_file)
        if self._plugin is not None:
            self._plugin.certify(tls)
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
    """Adds credentials, impersonation and the server's name to each request."""

    def __init__(self, access: Access, own: httpx.Auth, plugin: _Plugin | None, tls: ssl.SSLContext) -> None:
        self._access, self._own, self._plugin, self._tls = access, own, plugin, tls

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers = httpx.Headers([*request.headers.multi_items(), *self._access.impersonation()])
        if self._access.server_name:
            request.extensions = {**request.extensions, "sni_hostname": self._access.server_name}
        if self._plugin is None:
            yield from self._own.sync_auth_flow(request)
            return
        self._plugin.say(request)
        response = yield request
        if response.status_code == 401:  # HTTP's: the program's answer is not known (any more)
            response.read()
            self._plugin.ask()
            self._plugin.certify(self._tls)
            self._plugin.say(request)
            yield request


def open_access(given: Mapping[str, str]) -> Access:
    """Returns the access that ``KUBECONFIG``, ``KUBE_CONTEXT`` and ``NAMESPACE`` of *given* name.

    Without a kubeconfig, inside a pod, that pod's own service account asks. A program may give a token instead, under
    names that neither an environment nor ``config.env`` has.

    Raises:
        SettingsError: there is no kubeconfig, or it has no such context.
    """
    context, namespace = given.get("KUBE_CONTEXT", ""), given.get("NAMESPACE", "")
    if token := given.get("kubernetes.token"):
        server, authority = given["kubernetes.server"], given.get("kubernetes.ca", "")
        return Access(_of_token(token, server, authority, namespace), namespace)
    files = [at_home(name) for name in given.get("KUBECONFIG", "").split(os.pathsep) if name]
    files = files or [at_home(_DEFAULT_KUBECONFIG)]
    found = [file for file in files if file.is_file()]
    if not found and not given.get("KUBECONFIG") and _SERVICE_ACCOUNT.is_dir():
        config = _only(KubeConfig.from_service_account().get())
        return Access(config, namespace or config.namespace)
    if not found:
        named = ", ".join(str(file) for file in files)
        raise SettingsError(
            f"there is no kubeconfig: {named}; name yours with KUBECONFIG (docs/kubernetes.md says how to get one)"
        )
    config, cluster, user = _chosen(found, context)
    return Access(config, namespace or config.namespace, cluster, user)


def _of_token(token: str, server: str, ca: str, namespace: str) -> SingleConfig:
    authority = base64.b64encode(ca.encode()).decode() if ca else None
    cluster = Cluster(server=server, certificate_auth_data=authority)
    return _only(KubeConfig.from_one(cluster=cluster, user=User(token=token), namespace=namespace or None).get())


def _only(config: SingleConfig | None) -> SingleConfig:
    assert config is not None  # noqa: S101 - it has the one context
    return config


def confirm(access: Access, given: dict[str, str], say: Say) -> None:
    """Asks a person to agree to a context that no setting names.

    Raises:
        UsageError: there is no terminal to ask at.
        StoppedError: the answer was no.
    """
    if given.get("KUBE_CONTEXT") or not access.context:
        return
    where = f"context {access.context} ({access.server}), namespace {access.namespace}"
    advice = f"name it: KUBE_CONTEXT={shlex.quote(access.context)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"this would go to the kubeconfig's current {where}; if that is meant, {advice}")
    say(f"{where}; to be asked no more, {advice}")
    say("launch there? [y/N]")
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise StoppedError("not launched")
    # For all that this launcher starts, and who ends the cluster in its place: the current one may change.
    given["KUBE_CONTEXT"] = os.environ["KUBE_CONTEXT"] = access.context


# --- Kubeconfigs, as kubectl reads them -------------------------------------------------------------------------------


def _read(files: Sequence[Path]) -> dict[str, Any]:
    """Merges *files*, with absolute paths. The first of two equal names counts, whole."""
    merged: dict[str, Any] = {"current-context": "", **{kind: {} for kind in _KINDS}}
    for file in files:
        try:
            found = yaml.safe_load(file.read_text()) or {}
            merged["current-context"] = merged["current-context"] or found.get("current-context") or ""
            for kind, word in _KINDS.items():
                for entry in found.get(kind) or []:
                    merged[kind].setdefault(str(entry["name"]), _absolute(file, word, entry.get(word) or {}))
        except Exception as error:  # what is in a file may be anything: YAML, types, names that are not there
            raise SettingsError(f"{file} is not a kubeconfig that can be used: {printable(error)}") from error
    return merged


def _absolute(file: Path, word: str, entry: Entry) -> dict[str, Any]:
    folder = file.absolute().parent
    absolute: dict[str, Any] = {name: str(folder / entry[name]) for name in _PATHS[word] if entry.get(name)}
    plugin = entry.get("exec")
    # As a shell has it: a name without a slash is looked for on PATH.
    if plugin and "/" in str(plugin.get("command")):
        absolute["exec"] = {**plugin, "command": str(folder / plugin["command"])}
    return {**entry, **absolute}


def _chosen(files: Sequence[Path], context: str) -> tuple[SingleConfig, Entry, Entry]:
    """Returns *context*, or the current one, of *files*, with its cluster and its user."""
    found, listed = _read(files), ", ".join(map(str, files))
    name = context or str(found["current-context"])
    about: Entry = found["contexts"].get(name, {})
    cluster, user = str(about.get("cluster")), str(about.get("user") or "")
    if name not in found["contexts"]:
        there = ", ".join(found["contexts"]) or "none"
        what = f"the context '{context}'" if context else "a current context"
        raise SettingsError(f"{listed} has not {what}; it has: {there}; name one with KUBE_CONTEXT")
    if cluster not in found["clusters"] or (user and user not in found["users"]):
        missing = f"user '{user}'" if cluster in found["clusters"] else f"cluster '{cluster}'"
        raise SettingsError(f"{listed} has not the {missing}, which the context '{name}' names")
    entries = found["clusters"][cluster], found["users"].get(user, {})
    conf = {
        "clusters": [{"name": "c", "cluster": entries[0]}],
        "users": [{"name": "u", "user": entries[1]}],
        "contexts": [{"name": name, "context": {**about, "cluster": "c", "user": "u"}}],
    }
    try:
        return _only(KubeConfig.from_dict(conf, fname=files[0]).get(name)), *entries
    except Exception as error:
        raise SettingsError(f"the context '{name}' of {files[0]} cannot be used: {printable(error)}") from error


# --- Programs of a kubeconfig that say who asks: by a token, or by a certificate --------------------------------------


class _Plugin:
    """A credential plugin: run once, and again when the API refuses its answer."""

    def __init__(self, plugin: Entry, cluster: Entry) -> None:
        self._plugin, self._cluster = plugin, cluster
        # What it has printed: a token, or a certificate with its key, PEM.
        self._token = self._certificate = self._key = ""

    def certify(self, tls: ssl.SSLContext) -> None:
        """Has *tls* show the certificate, where there is one."""
        self._ask_first()
        if not self._certificate:
            return
        with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads files alone; the folder is private
            file = Path(folder, "client.pem")
            file.write_text(f"{self._certificate}\n{self._key}\n")
            try:
                tls.load_cert_chain(file)
            except ssl.SSLError as error:
                raise NotPermittedError(
                    f"the certificate that a program of your kubeconfig has printed cannot be used: {printable(error)}"
                ) from error

    def say(self, request: httpx.Request) -> None:
        """Puts the answer into *request*."""
        self._ask_first()
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        if self._certificate:  # a connection that is kept would go on with the certificate that it began with
            request.headers["Connection"] = "close"

    def _ask_first(self) -> None:
        if not (self._token or self._certificate):
            self.ask()

    def _info(self) -> str:
        plugin, cluster = self._plugin, self._cluster
        spec: dict[str, Any] = {"interactive": False}
        if plugin.get("provideClusterInfo"):
            names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
            spec["cluster"] = {name: cluster[name] for name in names if cluster.get(name)}
            if file := cluster.get("certificate-authority"):
                authority = base64.b64encode(Path(file).read_bytes()).decode()
                spec["cluster"].setdefault("certificate-authority-data", authority)
            for extension in cluster.get("extensions") or []:
                if extension.get("name") == _CLUSTER_CONFIG:
                    spec["cluster"]["config"] = extension.get("extension")
        return json.dumps({"apiVersion": str(plugin.get("apiVersion") or ""), "kind": "ExecCredential", "spec": spec})

    def ask(self) -> None:
        """Runs the program, and keeps its answer."""
        plugin = self._plugin
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
            self._take(json.loads(done.stdout)["status"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, subprocess.TimeoutExpired) as error:
            what = printable(f"{type(error).__name__} {error}" if isinstance(error, KeyError) else error)
            hint = printable(plugin.get("installHint") or "") if isinstance(error, FileNotFoundError) else ""
            name = " ".join(command[:4])
            raise NotPermittedError(
                f"'{name}', which your kubeconfig names for a token, gave none: {what} {hint}".rstrip()
            ) from error

    def _take(self, status: Entry) -> None:
        names = ("token", "clientCertificateData", "clientKeyData")
        token, certificate, key = (status.get(name) or "" for name in names)
        if not all(isinstance(text, str) and text.isascii() for text in (token, certificate, key)):
            raise ValueError("what it printed is no text")
        if not token.isprintable() or not (token or (certificate and key)):
            raise ValueError("it printed neither a token nor a certificate with its key")
        self._token, self._certificate, self._key = token, certificate, key
