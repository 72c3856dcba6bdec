"""Logs of nodes in the cluster dir, for ``logs.sh``, wherever nodes run.

Objects cannot be added to. So a node's log is in parts: the last is written again, whole, when there is more, until it
has ``PART_BYTES``; then the next begins. ``logs/<node>.<when it started>.<part>.log``, in the order of their names.

Each part ends with a seal: a line that signs the part's name and all that stands before. It is written again with the
part. Who has read a part so far reads on from there, and checks the rest with what is known of the beginning.
"""

from __future__ import annotations

import hmac
import re
from pathlib import Path
from typing import TYPE_CHECKING

from oci_cluster.contract.files.cluster_dir import MAX_BYTES, ClusterDir
from oci_cluster.contract.files.log_times import StampedLog

if TYPE_CHECKING:
    from oci_cluster.system.console import Say

FOLDER = "logs"
_SEAL = "\nsigned {}\n"
SEAL_BYTES = len(_SEAL.format("0" * 64))
# Small enough to be written again every few seconds, large enough that a day's log is not thousands of objects. With
# its seal, as much as one request reads.
PART_BYTES = MAX_BYTES - SEAL_BYTES
_PART = re.compile(r"(?P<start>(?P<node>MAIN|(WORKER|PS)_[1-9][0-9]{0,5})\.[0-9]{10,15})\.[0-9]{6}\.log")


def sealed(cluster_dir: ClusterDir, name: str, text: bytes) -> bytes:
    """Return the content of the file *name* that holds *text*."""
    return text + _seal(_signing(cluster_dir, name, text))


def unsealed(cluster_dir: ClusterDir, name: str, body: bytes) -> bytes | None:
    """Return the text in *body*, if this launch has sealed it as *name*."""
    text = body[:-SEAL_BYTES]
    return text if hmac.compare_digest(body, sealed(cluster_dir, name, text)) else None


def _signing(cluster_dir: ClusterDir, name: str, text: bytes = b"") -> hmac.HMAC:
    named = f"{cluster_dir.launch_id} {name}\n".encode()
    return hmac.new(cluster_dir.key_for("logs"), named + text, "sha256")


def _seal(signing: hmac.HMAC) -> bytes:
    return _SEAL.format(signing.hexdigest()).encode()


class NodeLogs:
    """Copies the nodes' logs, each with its times, from the cluster dir."""

    def __init__(self, cluster_dir: ClusterDir, directory: Path, say: Say) -> None:
        self._cluster_dir = cluster_dir
        self._directory = directory
        self._say = say
        self._copied: dict[str, int] = {}
        self._copies: dict[str, StampedLog] = {}
        # The signature of each part, as far as it is copied.
        self._signing: dict[str, hmac.HMAC] = {}
        # Sizes of parts that are left out: they are read again when they have changed.
        self._left_out: dict[str, int] = {}

    def fetch(self) -> list[str]:
        """Copy what is new; return the nodes that have printed something."""
        sizes = self._cluster_dir.sizes(FOLDER)
        nodes = []
        for name in sorted(sizes):
            part = _PART.fullmatch(name)
            if part is None:
                continue
            is_new = sizes[name] - SEAL_BYTES > self._copied.get(name, 0) or name not in self._copied
            if is_new and self._left_out.get(name) != sizes[name]:
                copy = self._copies.setdefault(part["start"], StampedLog(self._directory, part["node"]))
                self._copy(name, sizes[name], copy)
            if name in self._copied:
                nodes.append(part["node"])
        for copy in self._copies.values():
            copy.flush()
        return list(dict.fromkeys(nodes))

    def _copy(self, name: str, size: int, copy: StampedLog) -> None:
        """Add what is new in the part *name*, if the node signed it."""
        start = self._copied.get(name, 0)
        body = self._cluster_dir.read_bytes(f"{FOLDER}/{name}", start)
        if not body:  # it has gone meanwhile
            return
        text, seal = body[:-SEAL_BYTES], body[-SEAL_BYTES:]
        signing = (self._signing.get(name) or _signing(self._cluster_dir, f"{FOLDER}/{name}")).copy()
        signing.update(text)
        if not hmac.compare_digest(seal, _seal(signing)):
            if not self._left_out:
                self._say(f"left out of the logs: {name} and others like it, which no node of this launch has signed")
            self._left_out[name] = size
            return
        copy.add(text)
        self._signing[name] = signing
        self._copied[name] = start + len(text)
