"""Identities for OCI and Kubernetes; none shows, logs or hands on a secret."""

from __future__ import annotations

from dataclasses import dataclass, field

from oci_cluster.errors import NotPermittedError, SettingsError
from oci_cluster.system.files import at_home


class Auth:
    """Somebody whom a backend knows."""

    backend = ""
    """The backend that it is for."""

    def settings(self) -> dict[str, str]:
        """Return it as the backend takes it; raise NotPermittedError where it has logged out."""
        raise NotImplementedError


def _full(path: str) -> str:
    """Return *path*, which may begin with ``~``, in full: the current folder may change."""
    return str(at_home(path).absolute())


class _Oci(Auth):
    backend = "oci"
    _kind = region = ""

    def settings(self) -> dict[str, str]:
        return {"OCI_CLI_AUTH": self._kind, **({"OCI_CLI_REGION": self.region} if self.region else {})}


@dataclass(frozen=True)
class ConfigProfile(_Oci):
    """An API key in a profile of OCI's configuration file, in *region*."""

    profile: str = "DEFAULT"
    file: str = "~/.oci/config"
    region: str = ""
    _kind = "api_key"

    def settings(self) -> dict[str, str]:
        """Return oci-cli's variables for it."""
        return {**super().settings(), "OCI_CLI_CONFIG_FILE": _full(self.file), "OCI_CLI_PROFILE": self.profile}


@dataclass(frozen=True)
class SessionToken(ConfigProfile):
    """A session of ``oci session authenticate``, in a profile of OCI's configuration file."""

    _kind = "security_token"


@dataclass(frozen=True)
class InstancePrincipal(_Oci):
    """The instance of OCI that this runs on; *region*, if not its own."""

    region: str = ""
    _kind = "instance_principal"


@dataclass(frozen=True)
class ResourcePrincipal(InstancePrincipal):
    """The notebook session, Job Run or function of OCI that this runs in."""

    _kind = "resource_principal"


@dataclass(frozen=True)
class Kubeconfig(Auth):
    """A context of a kubeconfig; *context* and *namespace*, if not the current ones."""

    path: str = "~/.kube/config"
    context: str = ""
    namespace: str = ""
    backend = "kubernetes"

    def settings(self) -> dict[str, str]:
        """Return the settings for it."""
        given = {"KUBECONFIG": _full(self.path), "KUBE_CONTEXT": self.context, "NAMESPACE": self.namespace}
        return {name: text for name, text in given.items() if text}


@dataclass
class Token(Auth):
    """A bearer token and the API server that knows it, ``https://HOST:PORT``.

    *ca* is the server's certificate authority: a PEM file, or its text; without, one that this machine trusts.
    """

    token: str = field(repr=False)
    server: str
    ca: str = field(default="", repr=False)
    namespace: str = "default"
    backend = "kubernetes"

    def __post_init__(self) -> None:
        """Raise SettingsError where it would be sent without encryption, or is none."""
        if not self.server.startswith("https://"):
            raise SettingsError(f"server='{self.server}': a token is sent to https:// only; name the API server so")
        if not self.token or not (self.token.isascii() and self.token.isprintable()):
            raise SettingsError(
                "token=: it is empty, or has characters that no token has; get one: kubectl create token NAME"
            )

    def settings(self) -> dict[str, str]:
        """Return it in names that no environment and no ``config.env`` has."""
        if not self.token:
            raise NotPermittedError(f"you have logged out of {self.server}; make another Token(...)")
        own = {"kubernetes.server": self.server, "kubernetes.token": self.token, "kubernetes.ca": self._authority()}
        return {**own, "NAMESPACE": self.namespace}

    def _authority(self) -> str:
        if not self.ca or "-----BEGIN" in self.ca:
            return self.ca
        try:
            return at_home(self.ca).read_text()
        except OSError as error:
            raise SettingsError(f"ca='{self.ca}': {error.strerror}; name a PEM file, or give its text") from error

    def logout(self) -> None:
        """Forget the token; clusters that run are followed to their end."""
        self.token = ""
