"""Facts that a node publishes before it starts; those of other nodes, checked.

Main's key opens the workers' ssh servers; a worker's proves that it is the one that published it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from endings import log_once
from options import Options

from oci_cluster.system.gpus import gpus_here

KEY_FILE = "ssh_key"
_NAME = re.compile(r"MAIN|WORKER_[1-9][0-9]{0,4}")
# A public Ed25519 key is 51 bytes: 68 characters of base64.
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{68}")
_SLOTS = re.compile(r"[1-9][0-9]{0,2}")


def main(options: Options) -> int:
    public_key = make_key(Path(os.environ["NODE_DIR"], KEY_FILE))
    name = "ssh_public_key" if os.environ["MODE"] == "MAIN" else "ssh_host_key"
    sys.stdout.write(f"{name}={public_key}\nslots={options.slots or gpu_count() or 1}\n")
    return 0


def gpu_count() -> int:
    """Return how many GPUs CUDA_VISIBLE_DEVICES names; where it is not set, nvidia-smi."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(gpus_here(os.environ))
    return len([device for device in visible.split(",") if device.strip() not in {"", "-1"}])


def make_key(path: Path) -> str:
    """Write a new private key to *path*, for this user; return its public half."""
    key = Ed25519PrivateKey.generate()
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def name_of(host: str) -> str:
    """Return the name of the node that Horovod knows as *host*."""
    return host.partition("-")[0]


def rank_of(name: str) -> int:
    """Return the cluster's rank, none of Horovod's, of a node's or host's name."""
    return int(name_of(name).partition("_")[2] or 0)


@dataclass(frozen=True)
class Node:
    name: str
    address: str
    key: str
    """Main's client key, or a worker's host key."""
    slots: int

    @property
    def host(self) -> str:
        """A name for each life of the node: its replacement has another key, and no failures yet."""
        is_main = self.name == "MAIN"
        return self.name if is_main else f"{self.name}-{hashlib.sha256(self.key.encode()).hexdigest()[:8]}"


def read_node(path: Path) -> Node:
    """Return the node that the file *path* tells of, or raise ValueError."""
    if not _NAME.fullmatch(path.name):
        raise ValueError(f"'{path.name}' is no node's name")
    fields = dict(line.partition("=")[::2] for line in path.read_text(errors="replace").splitlines())
    key = fields.get("fact_ssh_public_key" if path.name == "MAIN" else "fact_ssh_host_key", "")
    slots = fields.get("fact_slots", "")
    for text, form, what in ((key, _KEY, "Ed25519 key"), (slots, _SLOTS, "number of slots")):
        if not form.fullmatch(text):
            raise ValueError(f"{path.name} has published no {what}")
    return Node(path.name, str(ipaddress.ip_address(fields.get("address", ""))), key, int(slots))


def read_nodes(directory: Path) -> list[Node]:
    """Return the nodes that *directory* has files of, by rank; log others once."""
    nodes = []
    for path in directory.iterdir():
        if path.name.startswith("."):
            continue  # not whole yet
        try:
            nodes.append(read_node(path))
        except FileNotFoundError:
            continue  # gone just now
        except ValueError as error:
            log_once(f"left out: {error}")
    return sorted(nodes, key=lambda node: rank_of(node.name))
