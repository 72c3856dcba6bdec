"""Names of nodes, of their directories, and of files in the cluster dir."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

ROLES = ("MAIN", "WORKER", "PS")

# Of a private directory's path. Of the 107 bytes of a socket's, that leaves 70 for a program's own folders.
_SHORT_BYTES = 36
_LINKS = Path("/tmp")  # noqa: S108 - the shortest place there is; what others have there is looked at
_NODE = re.compile(r"MAIN|(WORKER|PS)_[1-9][0-9]{0,6}")


def node_name(mode: str, rank: int) -> str:
    """Return the node's name in files, logs and messages: ``MAIN``, ``WORKER_2``, ``PS_4``."""
    return "MAIN" if mode == "MAIN" else f"{mode}_{rank}"


def node_dir(launch_id: str, node: str) -> Path:
    """Return *node*'s private directory; known beforehand, so that a backend can remove it."""
    return _temporary() / f"{launch_id}-{node}"


def link_node_dir(path: Path) -> Path:
    """Return a path of *path* with 36 bytes at most, if possible.

    The paths of Unix sockets have 107 bytes at most, and programs make sockets in folders of their own. Where temporary
    files are in a place with a long name, this is a link in /tmp.
    """
    if len(os.fsencode(path)) <= _SHORT_BYTES:
        return path
    link = _LINKS / path.name
    try:
        link.symlink_to(path)
    except OSError:  # somebody else's has that name, or there is no such place
        # This user's leads there already; others' may change.
        is_own = link.is_symlink() and link.lstat().st_uid == os.geteuid() and link.readlink() == path
        return link if is_own else path
    return link


def remove_node_dir(path: Path) -> None:
    """Remove a node's private directory *path* and its link, as far as possible."""
    link = _LINKS / path.name
    with contextlib.suppress(OSError):
        if link.is_symlink() and link.readlink() == path:
            link.unlink()
    shutil.rmtree(path, ignore_errors=True)


def node_dirs(launch_id: str) -> list[Path]:
    """Return the private directories that are there of nodes of the launch *launch_id*."""
    places = _temporary().glob(f"{launch_id}-*")
    return [path for path in places if is_node(path.name.partition("-")[2]) and not path.is_symlink()]


def _temporary() -> Path:
    """Return the folder of temporary files, the same for all processes and full disks."""
    named = [os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    places = (Path(name).absolute() for name in [*named, "/tmp"])  # noqa: S108 - the system's own
    # Not Path's own test, which ends at a folder of another user's, such as the TMPDIR that su leaves.
    return next((place for place in places if os.path.isdir(place)), None) or Path(tempfile.gettempdir())  # noqa: PTH112


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
LAUNCHED = "launched.json"
READY = "MAIN_ready.json"
CERTIFICATE = "MAIN_certificate.json"
LIFE = "MAIN_life.json"
SCALE_REQUEST = "MAIN_scale_request.json"


def _file_of(kind: str) -> Callable[[str], str]:
    return lambda node: f"{node}_{kind}.json"


config_file = _file_of("config")
heartbeat_file = _file_of("heartbeat")
# Of a node that does not know its life yet.
arrival_file = _file_of("arrival")
# How it has ended.
exit_file = _file_of("exit")


def claim_file(node: str, life: str = "") -> str:
    """Return the name of the file by which a node has become *node*."""
    return f"{node}_claim{life and '-'}{life}.json"
