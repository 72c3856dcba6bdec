"""Outputs of an earlier life, brought back before the entry point begins: it resumes from the checkpoint in them.

Whoever can write to the work dir can write outputs. So a node tells in a signed file which list of its outputs is its
own; the list has the size and the SHA-256 of each. What is not so is left out: before an upload, the list has both what
is there and what comes, because a node may be killed in between.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.names import outputs_file
from oci_cluster.contract.polling import poll_delays
from oci_cluster.errors import StorageError
from oci_cluster.system.files import write_whole

T = TypeVar("T")
log = logging.getLogger("outputs")

# A list of a million files; what is larger somebody else has written.
MAX_LIST_BYTES = 256 << 20
# What one request reads of a large file: few requests, and little memory.
_PIECE_BYTES = 16 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")

# What a file may be: its size and its SHA-256.
State = tuple[int, str]
States = dict[str, list[State]]


def list_name(node: str, sha256: str) -> str:
    """Return the name in the cluster dir of the list of *node*'s outputs that has this *sha256*."""
    return f"{node}_outputs-{sha256[:32]}.list"


def state_of(path: Path) -> State | None:
    """Return what the file *path* is now; None where it has gone."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
            return file.tell(), digest.hexdigest()
    except FileNotFoundError:
        return None


def repeated(
    request: Callable[[], T], deadline: float, *, clock: Callable[[], float], sleep: Callable[[float], None]
) -> T:
    """Return what *request* returns, repeating it until *deadline* where storage does not answer."""
    for delay in poll_delays(5.0):
        try:
            return request()
        except StorageError as error:
            if clock() >= deadline:
                raise
            log.warning("%s; trying again", error)
            sleep(delay)
    raise AssertionError  # poll_delays never ends


class OutputsList:
    """The list of this node's outputs, as the next life is to believe it."""

    def __init__(self, cluster_dir: ClusterDir, node: str, kept: Path) -> None:
        """Go on with the list in the file *kept* of this machine, if there is one."""
        self._cluster_dir = cluster_dir
        self._node = node
        self._kept = kept
        try:
            self._states: States = json.loads(kept.read_text())
        except (FileNotFoundError, ValueError):
            self._states = {}
        self._expected: dict[str, State] = {}

    def expect(self, states: Mapping[str, State]) -> None:
        """Tell that files may be what they were, or what *states* say: they are about to be uploaded."""
        self._expected = dict(states)
        self._tell({**self._states, **{name: [*self._states.get(name, []), state] for name, state in states.items()}})

    def settle(self, present: Collection[str]) -> None:
        """Tell that files are what was expected; of those that are not *present* any more, the next life has no use."""
        settled = {**self._states, **{name: [state] for name, state in self._expected.items()}}
        self._tell({name: states for name, states in settled.items() if name in present})
        self._expected = {}

    def _tell(self, states: States) -> None:
        if json.dumps(states) != json.dumps(self._states):
            publish_list(self._cluster_dir, self._node, states)
            self._states = states
            write_whole(self._kept, json.dumps(states))


def publish_list(cluster_dir: ClusterDir, node: str, states: States) -> None:
    """Tell what *node*'s outputs may be from now on."""
    before = cluster_dir.read(outputs_file(node), any_life=True) or {}
    body = json.dumps(states).encode()
    sha256 = hashlib.sha256(body).hexdigest()
    cluster_dir.write_bytes(list_name(node, sha256), body)
    cluster_dir.publish(outputs_file(node), size=len(body), sha256=sha256)
    if _SHA256.fullmatch(str(before.get("sha256"))) and before["sha256"] != sha256:
        cluster_dir.remove(list_name(node, before["sha256"]))


def read_list(cluster_dir: ClusterDir, node: str) -> States | None:
    """Return what *node*'s outputs may be; None where nobody has told, or nothing that can be believed."""
    told = cluster_dir.read(outputs_file(node), any_life=True) or {}
    size, sha256 = told.get("size"), str(told.get("sha256"))
    if type(size) is not int or not 0 <= size <= MAX_LIST_BYTES or not _SHA256.fullmatch(sha256):
        return None
    body = b"".join(_pieces(cluster_dir, list_name(node, sha256), size))
    if hashlib.sha256(body).hexdigest() != sha256:
        return None
    # Whole, and this node's own: what is in it, a node has written.
    return {name: [(size, sha256) for size, sha256 in states] for name, states in json.loads(body).items()}


def _pieces(cluster_dir: ClusterDir, name: str, size: int) -> Iterator[bytes]:
    """Yield what the file *name* holds, *size* bytes and one at most."""
    start = 0
    while start <= size and (piece := cluster_dir.read_bytes(name, start, min(_PIECE_BYTES, size + 1 - start))):
        start += len(piece)
        yield piece


def bring_outputs_back(
    cluster_dir: ClusterDir,
    node: str,
    target: Path,
    manifest: Path,
    *,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Copy the outputs that *node* has uploaded in an earlier life to *target*; return how many there were.

    What is there already stays. The *manifest* says of what is brought that it needs no upload, see
    :func:`upload_outputs`.

    Raises:
        StorageError: storage did not answer within *timeout_s*, or there is no room for them.
        NotPermittedError: storage refused.
    """
    deadline = clock() + timeout_s
    states = repeated(lambda: read_list(cluster_dir, node) or {}, deadline, clock=clock, sleep=sleep)
    target.mkdir(parents=True, exist_ok=True)
    wanted = {name: found for name, found in states.items() if _is_inside(name) and not (target / name).exists()}
    _check_room(target, wanted)
    marks: dict[str, list[int]] = {}
    kept: States = {}
    for name, found in wanted.items():
        source = f"outputs/{node}/{name}"
        bring = partial(_bring, cluster_dir, source, target / name, found)
        own = repeated(bring, deadline, clock=clock, sleep=sleep)
        if own is None:
            log.warning("%s is not as %s has written it; left out", source, node)
            continue
        state = (target / name).stat()
        marks[name], kept[name] = [state.st_size, state.st_mtime_ns], [own]
    write_whole(manifest, json.dumps(marks))
    write_whole(manifest.with_name("listed.json"), json.dumps(kept))
    return len(marks)


def _is_inside(name: str) -> bool:
    """Return whether *name* is a path that leads into no other place."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _check_room(target: Path, wanted: Mapping[str, list[State]]) -> None:
    needed = sum(max((size for size, _ in found), default=0) for found in wanted.values())
    if needed > (free := shutil.disk_usage(target).free):
        msg = f"outputs of the life before have {needed} bytes, and {target} has room for {free}; give it more"
        raise StorageError(msg)


def _bring(cluster_dir: ClusterDir, source: str, path: Path, found: list[State]) -> State | None:
    """Copy the file *source* to *path* if it is one of those *found*; return which, None where it is none."""
    largest = max((size for size, _ in found), default=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}.brought-back")
    digest, size = hashlib.sha256(), 0
    try:
        with temporary.open("xb") as file:
            for piece in _pieces(cluster_dir, source, largest):
                digest.update(piece)
                size += len(piece)
                file.write(piece)
        own = (size, digest.hexdigest())
        if own not in found:
            return None
        temporary.replace(path)
        return own
    finally:
        temporary.unlink(missing_ok=True)
