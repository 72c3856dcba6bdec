"""The cluster dir as a launcher sees it that reaches neither main's memory nor a volume: what nodes tell otherwise.

Nodes tell by the last words of their pods, and by lines of main's log. What they tell is signed as files are. A
launcher tells by an annotation of the Job. All that is an fsspec file system: who reads a cluster dir needs not know.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import fsspec

from oci_cluster.backends.kubernetes import requests, states
from oci_cluster.backends.kubernetes.requests import PROTOCOL
from oci_cluster.contract.cluster_dir import MAX_BYTES
from oci_cluster.contract.names import LIFE, READY, STOP, WISH, config_file, exit_file, is_node

Object = dict[str, Any]

# A line of a pod's log that is a file. Who prints one that is not signed tells nothing.
_TOLD = re.compile(rb"(?:^|\s)told (?P<name>[A-Za-z0-9_.-]{1,100}) (?P<body>\{.*\})\s*$")
_TOLD_NAMES = {READY, LIFE, STOP, WISH}


# Whom a thread asks: a program may have clusters of several Kubernetes, each followed by a thread.
_here = threading.local()


def told_of(line: bytes) -> tuple[str, bytes] | None:
    """Return name and content of the file that a *line* of main's log tells; None where it tells none."""
    if b" told " not in line and not line.startswith(b"told "):
        return None
    found = _TOLD.search(line)
    if found is None or (name := found["name"].decode()) not in _TOLD_NAMES or len(found["body"]) > MAX_BYTES:
        return None
    return name, found["body"]


def last_words(message: str, node: str) -> dict[str, bytes]:
    """Return the files in the last words, *message*, of the pod that is *node*: its own exit file, on main `stop`."""
    known = {exit_file(node), *([STOP] if node == "MAIN" else [])}
    found = {}
    for line in message.splitlines():
        name, _, body = line.partition(" ")
        if name in known:
            found[name] = body.encode()
    return found


def files_of(job: Object, pods: Sequence[Object], lines: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return all files that are told of the cluster of *job*: by its *pods*, *lines* of main's log, and launchers."""
    view = states.JobView.of(job)
    found = dict(lines)
    for pod in sorted(pods, key=lambda pod: str((pod.get("metadata") or {}).get("creationTimestamp", ""))):
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


class Teller(Protocol):
    """What the files are asked of."""

    def told(self, job: str) -> dict[str, bytes]:
        """Return the files of the Job called *job*."""

    def ask_to_stop(self, job: str, body: bytes) -> None:
        """Have the file `stop` of the Job called *job* be *body*, and its nodes be told to end."""


def register(teller: Teller) -> None:
    """Have this thread open ``pods://<namespace>/<job>`` URLs through *teller* from here on."""
    fsspec.register_implementation(PROTOCOL, PodFiles, clobber=True)
    _here.teller = teller


class PodFiles(fsspec.AbstractFileSystem):  # type: ignore[misc] # fsspec ships no types
    """The files of clusters whose nodes tell by their pods."""

    protocol = PROTOCOL
    root_marker = ""
    cachable = False

    def __init__(self, teller: Teller | None = None, **options: Any) -> None:
        """Ask *teller*; None: whom this thread asks now."""
        super().__init__(**options)
        self._teller: Teller = teller or _here.teller

    def _files(self, path: str) -> tuple[dict[str, bytes], str]:
        """Return the files of the cluster dir that *path* is in, and the name of the one that it names."""
        _namespace, job, _cluster_id, *rest = [*str(self._strip_protocol(path)).split("/"), "", "", ""]
        return self._teller.told(job), "/".join(part for part in rest if part)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's
        """List the files of the cluster dir *path*; its folders are with the pods."""
        files, folder = self._files(path)
        if folder:
            raise FileNotFoundError(path)
        entries = [
            {"name": f"{path}/{name}", "size": len(body), "type": "file", "body": body} for name, body in files.items()
        ]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Describe the file *path*."""
        files, name = self._files(path)
        if name not in files:
            raise FileNotFoundError(path)
        return {"name": path, "size": len(files[name]), "type": "file"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return what the file *path* holds."""
        files, name = self._files(path)
        if name not in files or (is_node(name.removesuffix("_config.json")) and not files[name]):
            raise FileNotFoundError(path)
        return files[name][start:end]

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        """Ask the nodes to stop, where *path* is that file; nodes read no other of a launcher."""
        _namespace, job, _cluster_id, name = self._strip_protocol(path).split("/", 3)
        if name != STOP:
            raise PermissionError(f"{name} cannot be written: nodes read nothing but {STOP} of a launcher")
        self._teller.ask_to_stop(job, value)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - fsspec's
        """Do nothing: there are no folders."""

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:  # noqa: FBT001, FBT002 - fsspec's
        """Do nothing: what is told goes with the Job."""
