"""A node's settings, the facts that it publishes before it starts, and those of other nodes, checked.

Main's key opens the workers' ssh servers; a worker's proves that it is the one that published it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from ranks import log_once

from oci_cluster.contract.parsers import parse_bounds, parse_count
from oci_cluster.contract.settings.settings_files import SettingsReader, framework_defaults
from oci_cluster.errors import SettingsError
from oci_cluster.system.files import write_whole
from oci_cluster.system.gpus import gpus_here

# --- Settings, which settings.env explains ----------------------------------------------------------------------------


FRAMEWORKS = ("pytorch", "tensorflow")
_parse_port = partial(parse_count, minimum=1024, maximum=65535)
_parse_ranks = partial(parse_count, minimum=1, maximum=9999)


@dataclass(frozen=True)
class Options:
    framework: str
    ssh_port: int
    rendezvous_port: int
    slots: int
    """0: as many as the node has GPUs, or one."""
    min_np: int
    max_np: int
    reset_limit: int | None
    cooldown_s: tuple[int, int]
    grace_s: float
    """Between TERM and KILL for a rank: 5 s of the 10 that this node's own process usually has."""
    longer_grace_s: float
    """6 s of the usual 10: for main to see a rank of another node end, for an elastic job to let a node's go."""

    @property
    def is_elastic(self) -> bool:
        return bool(self.min_np or self.max_np)


def _parse_cooldown(text: str) -> tuple[int, int]:
    least, most = parse_bounds(text, maximum=3600)  # the least and the most that Horovod takes
    if least < 1:
        raise ValueError(f"{least} s is less than 1")
    return least, most


def read_options(environ: Mapping[str, str]) -> Options:
    """Return the settings in *environ*; a SettingsError names every one that is wrong."""
    read = SettingsReader(environ, framework_defaults(Path(__file__).resolve().parents[1]))
    period_s = read.value("GRACE_PERIOD", float, 10.0)  # the agent has resolved it
    options = Options(
        framework=read.text("HOROVOD_FRAMEWORK"),
        ssh_port=read.value("SSH_PORT", _parse_port),
        rendezvous_port=read.value("RENDEZVOUS_PORT", _parse_port),
        slots=read.value("SLOTS", lambda text: 0 if text == "auto" else parse_count(text, minimum=1, maximum=999)),
        min_np=read.value("MIN_NP", _parse_ranks, 0),
        max_np=read.value("MAX_NP", _parse_ranks, 0),
        reset_limit=read.value("RESET_LIMIT", parse_count) if read.text("RESET_LIMIT") else None,
        cooldown_s=read.value("BLACKLIST_COOLDOWN", _parse_cooldown),
        grace_s=0.5 * period_s,
        longer_grace_s=0.6 * period_s,
    )
    if options.max_np and options.min_np > options.max_np:
        read.complain("MIN_NP", f"MIN_NP: {options.min_np} is more than MAX_NP ({options.max_np})")
    if read.problems:
        raise SettingsError.of(read.problems, "horovod/settings.env explains each")
    return options


def check_binding(framework: str) -> None:
    """Raise a SettingsError where this environment's Horovod cannot do *framework*."""
    try:
        built = metadata.distribution("horovod").locate_file("horovod/metadata.json")
        versions = json.loads(Path(str(built)).read_text())
    except (metadata.PackageNotFoundError, OSError, ValueError) as error:
        raise SettingsError(f"this environment has no Horovod that can be used: {error}") from error
    if framework not in FRAMEWORKS or framework not in versions:
        there = ", ".join(name for name in FRAMEWORKS if name in versions) or "nothing"
        msg = f"HOROVOD_FRAMEWORK is {framework}, and this environment's Horovod was built for {there}"
        msg += "; there is no TensorFlow that it can use for Python 3.12 and newer" * (framework == "tensorflow")
        raise SettingsError(msg)


# --- Facts ------------------------------------------------------------------------------------------------------------

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
    write_whole(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
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
