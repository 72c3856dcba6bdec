"""The other nodes, as the files of NODES_DIR tell. What stands in them comes from outside: checked before use."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from messages import log

_NAME = re.compile(r"MAIN|WORKER_[1-9][0-9]{0,4}")
# A public Ed25519 key is 51 bytes: 68 characters of base64.
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{68}")
_SLOTS = re.compile(r"[1-9][0-9]{0,2}")


@dataclass(frozen=True)
class Node:
    name: str
    address: str
    key: str
    """Main's client key, or a worker's host key."""
    slots: int

    @property
    def rank(self) -> int:
        """The node's rank in the cluster, not one of Horovod's."""
        return int(self.name.partition("_")[2] or 0)

    @property
    def life(self) -> str:
        """A name of its own for each life of the node: its replacement has another key, and no failures yet."""
        return f"{self.name}-{hashlib.sha256(self.key.encode()).hexdigest()[:8]}" if self.rank else self.name


def read_node(path: Path) -> Node:
    """Return the node that the file *path* tells of; a ValueError says what is wrong with it."""
    if not _NAME.fullmatch(path.name):
        msg = f"'{path.name}' is no node's name"
        raise ValueError(msg)
    fields = dict(line.partition("=")[::2] for line in path.read_text(errors="replace").splitlines())
    key = fields.get("fact_ssh_public_key" if path.name == "MAIN" else "fact_ssh_host_key", "")
    if not _KEY.fullmatch(key):
        msg = f"{path.name} has published no Ed25519 key"
        raise ValueError(msg)
    slots = fields.get("fact_slots", "")
    if not _SLOTS.fullmatch(slots):
        msg = f"{path.name} has published no number of slots"
        raise ValueError(msg)
    address = str(ipaddress.ip_address(fields.get("address", "")))
    return Node(name=path.name, address=address, key=key, slots=int(slots))


class NodesDir:
    """The directory of those files, which the agent of main keeps up to date."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._refused: set[str] = set()

    def read(self) -> dict[str, Node]:
        """Return the nodes that are there, in the order of their ranks; one that cannot be used is logged once."""
        nodes = {}
        for path in self._path.iterdir():
            if path.name.startswith("."):
                continue  # not whole yet
            try:
                nodes[path.name] = read_node(path)
            except FileNotFoundError:
                continue  # gone just now
            except ValueError as error:
                if str(error) not in self._refused:
                    self._refused.add(str(error))
                    log(f"left out: {error}")
        return dict(sorted(nodes.items(), key=lambda item: item[1].rank))
