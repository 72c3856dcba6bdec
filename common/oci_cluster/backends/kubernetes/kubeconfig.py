"""Kubeconfigs as kubectl reads them: several files are one, paths are beside the file that has them.

Source: "Organizing Cluster Access Using kubeconfig Files" in Kubernetes' documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from lightkube.config.kubeconfig import KubeConfig, SingleConfig

from oci_cluster.errors import SettingsError
from oci_cluster.system.text import printable

# A kind of entry, and what one is called in the list.
_KINDS = {"clusters": "cluster", "contexts": "context", "users": "user"}
# Of an entry: the values that are paths.
_PATHS = {
    "cluster": ("certificate-authority",),
    "context": (),
    "user": ("client-certificate", "client-key", "tokenFile"),
}

# What the name of a header may have, without `%`. Source: RFC 9110, 5.6.2.
_IN_HEADERS = "!#$&'*+-.^_`|~"

Entry = Mapping[str, Any]


def read(files: Sequence[Path]) -> dict[str, Any]:
    """Return *files* as one kubeconfig: of two values, or two entries of one name, the first counts, whole.

    Paths in it are absolute. A file that is empty says nothing.

    Raises:
        SettingsError: a file is no kubeconfig; names it.
    """
    merged: dict[str, Any] = {"current-context": "", **{kind: {} for kind in _KINDS}}
    for file in files:
        try:
            found = yaml.safe_load(file.read_text()) or {}
            merged["current-context"] = merged["current-context"] or found.get("current-context") or ""
            for kind, word in _KINDS.items():
                for entry in found.get(kind) or []:
                    merged[kind].setdefault(str(entry["name"]), _beside(file, word, entry.get(word) or {}))
        except Exception as error:  # what is in a file may be anything: YAML, types, names that are not there
            raise SettingsError(f"{file} is not a kubeconfig that can be used: {printable(error)}") from error
    return merged


def _beside(file: Path, word: str, entry: Entry) -> dict[str, Any]:
    """Return an *entry* of *file* whose paths no longer depend on where it is."""
    folder = file.absolute().parent
    absolute: dict[str, Any] = {name: str(folder / entry[name]) for name in _PATHS[word] if entry.get(name)}
    plugin = entry.get("exec")
    # As a shell has it: a name without a slash is looked for on PATH.
    if plugin and "/" in str(plugin.get("command")):
        absolute["exec"] = {**plugin, "command": str(folder / plugin["command"])}
    return {**entry, **absolute}


class Chosen:
    """One context of a kubeconfig, with the cluster and the user that it names."""

    def __init__(self, files: Sequence[Path], context: str) -> None:
        """Take *context* out of *files*; without a name the current one.

        Raises:
            SettingsError: a file is no kubeconfig, there is no such context, or it names what is not there.
        """
        found = read(files)
        name = context or str(found["current-context"])
        about: Entry = found["contexts"].get(name, {})
        cluster, user = str(about.get("cluster")), str(about.get("user") or "")
        if name not in found["contexts"]:
            listed = ", ".join(found["contexts"]) or "none"
            what = f"the context '{context}'" if context else "a current context"
            raise SettingsError(
                f"{', '.join(map(str, files))} has not {what}; it has: {listed}; name one with KUBE_CONTEXT"
            )
        if cluster not in found["clusters"] or (user and user not in found["users"]):
            missing = f"user '{user}'" if cluster in found["clusters"] else f"cluster '{cluster}'"
            raise SettingsError(f"{', '.join(map(str, files))} has not the {missing}, which the context '{name}' names")
        self.cluster: Entry = found["clusters"][cluster]
        self.user: Entry = found["users"].get(user, {})
        self.config = self._config(files[0], name, about)

    def _config(self, file: Path, name: str, about: Entry) -> SingleConfig:
        conf = {
            "clusters": [{"name": "c", "cluster": self.cluster}],
            "users": [{"name": "u", "user": self.user}],
            "contexts": [{"name": name, "context": {**about, "cluster": "c", "user": "u"}}],
        }
        try:
            config = KubeConfig.from_dict(conf, fname=file).get(name)
        except Exception as error:
            raise SettingsError(f"the context '{name}' of {file} cannot be used: {printable(error)}") from error
        assert config is not None  # noqa: S101 - it has that context
        return config

    @property
    def impersonation(self) -> list[tuple[str, str]]:
        """The headers with which the user asks in the name of somebody else; empty where the user does not.

        Source: "User impersonation" in Kubernetes' documentation.
        """
        user = self.user
        headers = [("Impersonate-User", user.get("as")), ("Impersonate-Uid", user.get("as-uid"))]
        headers += [("Impersonate-Group", group) for group in user.get("as-groups") or []]
        for key, texts in (user.get("as-user-extra") or {}).items():
            headers += [(f"Impersonate-Extra-{quote(str(key), safe=_IN_HEADERS)}", text) for text in texts]
        return [(name, str(text)) for name, text in headers if text]

    @property
    def proxy(self) -> str | None:
        """The proxy that leads to the API server; None: those of the environment do, as for kubectl."""
        return str(self.cluster.get("proxy-url") or "") or None

    @property
    def server_name(self) -> str | None:
        """The name that the API server's certificate has; None: that of its URL."""
        return str(self.cluster.get("tls-server-name") or "") or None
