"""Names that node and launcher share: of nodes, of their directories, of the files in the cluster dir."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

ROLES = ("MAIN", "WORKER", "PS")

_NODE = re.compile(r"MAIN|(WORKER|PS)_[1-9][0-9]{0,6}")


def node_name(mode: str, rank: int) -> str:
    """Return the node's name in files, logs and messages: ``MAIN``, ``WORKER_2``, ``PS_4``."""
    return "MAIN" if mode == "MAIN" else f"{mode}_{rank}"


def node_dir(launch_id: str, node: str) -> Path:
    """Return *node*'s private directory: known beforehand, so that a backend can remove it for a killed agent."""
    return _temporary() / f"{launch_id}-{node}"


def node_dirs(launch_id: str) -> list[Path]:
    """Return the private directories that are there of nodes of the launch *launch_id*."""
    places = _temporary().glob(f"{launch_id}-*")
    return [path for path in places if is_node(path.name.partition("-")[2]) and not path.is_symlink()]


def _temporary() -> Path:
    """Return where temporary files go, the same for all processes: a full disk sends tempfile to another place."""
    named = [os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    places = (Path(name).absolute() for name in [*named, "/tmp"])  # noqa: S108 - the system's own
    return next((place for place in places if place.is_dir()), None) or Path(tempfile.gettempdir())


def is_node(text: str) -> bool:
    """Return whether *text* is the name of a node."""
    return _NODE.fullmatch(text) is not None


def is_worker(node: str) -> bool:
    """Return whether *node* is the name of a worker."""
    return node.startswith("WORKER_") and is_node(node)


def rank_of(node: str) -> int:
    """Return the rank of the node that is called *node*."""
    return 0 if node == "MAIN" else int(node.rpartition("_")[2])


STOP = "stop"


READY = "MAIN_ready.json"


CERTIFICATE = "MAIN_certificate.json"


LIFE = "MAIN_life.json"


WISH = "MAIN_wish.json"


def config_file(node: str) -> str:
    """Return the name of *node*'s configuration."""
    return f"{node}_config.json"


def heartbeat_file(node: str) -> str:
    """Return the name of *node*'s heartbeat."""
    return f"{node}_heartbeat.json"


def claim_file(node: str, life: str = "") -> str:
    """Return the name of the file by which a node that the service has started has become *node* in that *life*."""
    return f"{node}_claim{life and '-'}{life}.json"


def arrival_file(arrival: str) -> str:
    """Return the name of the file by which a node says that it is there before it knows its life."""
    return f"{arrival}_arrival.json"


def outputs_file(node: str) -> str:
    """Return the name of the file in which *node* tells what its outputs in the cluster dir are."""
    return f"{node}_outputs.json"


def exit_file(node: str) -> str:
    """Return the name of *node*'s last word."""
    return f"{node}_exit.json"
