"""The cluster dir, made of what pods tell, for a launcher that reaches no work dir: an fsspec file system.

Nodes tell by the termination messages of their pods, and by lines of main's log, signed as files are. A launcher tells
by an annotation of the Job.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import fsspec

from oci_cluster.backends.kubernetes import requests, states
from oci_cluster.backends.kubernetes.requests import PROTOCOL
from oci_cluster.contract.cluster_dir import MAX_BYTES
from oci_cluster.contract.names import LIFE, READY, STOP, WISH, config_file, exit_file, is_node

if TYPE_CHECKING:
    from oci_cluster.backends.kubernetes.backend import KubernetesBackend

Object = dict[str, Any]

# A line of a pod's log that is a file. Who prints one that is not signed tells nothing.
_TOLD = re.compile(rb"(?:^|\s)told (?P<name>[A-Za-z0-9_.-]{1,100}) (?P<body>\{.*\})\s*$")
_TOLD_NAMES = {READY, LIFE, STOP, WISH}


# Whom a thread asks: a program may have clusters of several Kubernetes, each followed by a thread.
_here = threading.local()


def told_of(line: bytes) -> tuple[str, bytes] | None:
    """Returns name and content of the file that a *line* of main's log tells, or None."""
    if b" told " not in line and not line.startswith(b"told "):
        return None
    found = _TOLD.search(line)
    if found is None or (name := found["name"].decode()) not in _TOLD_NAMES or len(found["body"]) > MAX_BYTES:
        return None
    return name, found["body"]


def last_words(message: str, node: str) -> dict[str, bytes]:
    """Returns the files in a pod's termination *message*: its exit file, on main `stop`."""
    known = {exit_file(node), *([STOP] if node == "MAIN" else [])}
    found = {}
    for line in message.splitlines():
        name, _, body = line.partition(" ")
        if name in known:
            found[name] = body.encode()
    return found


def files_of(job: Object, pods: Sequence[Object], lines: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns all files that pods, *lines* of main's log, and launchers tell of a cluster."""
    view = states.JobView.of(job)
    found = dict(lines)
    for pod in sorted(pods, key=states.created_of):
        index = states.index_of(pod)
        if index is None or index >= max(view.size, 1):
            continue
        node = states.node_of(index, view.environment).name
        if states.is_running(pod):
            # That it has come. Nothing of it can be read.
            found[config_file(node)] = b""
        message = states.termination_of(pod).get("message")
        found.update(last_words(str(message or ""), node))
    if stop := states.annotations_of(job).get(requests.STOP, ""):
        found[STOP] = stop.encode()
    return found


def register(teller: KubernetesBackend) -> None:
    """Opens ``pods://<namespace>/<job>`` URLs of this thread through *teller* from here on."""
    fsspec.register_implementation(PROTOCOL, PodFiles, clobber=True)
    _here.teller = teller


class PodFiles(fsspec.AbstractFileSystem):  # type: ignore[misc] # fsspec ships no types
    """The files of clusters whose nodes tell by their pods."""

    protocol = PROTOCOL
    root_marker = ""
    cachable = False

    def __init__(self, teller: KubernetesBackend | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._teller: KubernetesBackend = teller or _here.teller

    def _files(self, path: str) -> tuple[dict[str, bytes], str]:
        """Returns the files of the cluster dir of *path*, and the name of the one that it names."""
        _namespace, job, _cluster_id, *rest = [*str(self._strip_protocol(path)).split("/"), "", "", ""]
        return self._teller.told(job), "/".join(part for part in rest if part)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's
        """Lists the files of the cluster dir *path*; its folders are with the pods."""
        files, folder = self._files(path)
        if folder:
            raise FileNotFoundError(path)
        entries = [
            {"name": f"{path}/{name}", "size": len(body), "type": "file", "body": body} for name, body in files.items()
        ]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Describes the file *path*."""
        files, name = self._files(path)
        if name not in files:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(files[name]), "type": "file"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Returns what the file *path* holds."""
        files, name = self._files(path)
        if name not in files or (is_node(name.removesuffix("_config.json")) and not files[name]):
            raise FileNotFoundError(path)
        return files[name][start:end]

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        """Asks the nodes to stop, where *path* is that file; they read no other of a launcher."""
        _namespace, job, _cluster_id, name = self._strip_protocol(path).split("/", 3)
        if name != STOP:
            raise PermissionError(f"{name} cannot be written: nodes read nothing but {STOP} of a launcher")
        self._teller.ask_to_stop(job, value)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - fsspec's
        """Does nothing: there are no folders."""

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:  # noqa: FBT001, FBT002 - fsspec's
        """Does nothing: what is told goes with the Job."""
