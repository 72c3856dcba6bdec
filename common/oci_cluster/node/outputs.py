"""Outputs in ``OUTPUT_DIR``, copied to a cluster dir on another machine, and back.

Before the entry point of a later life begins, it is brought back: the entry point resumes from the checkpoint in it.
Whoever can write to the work dir can write outputs. So a node seals a list of its own, with the size and the SHA-256 of
each. What is not so is left out: before an upload, the list has both what is there and what comes, because a node may
be killed in between.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.node_logs import sealed, unsealed
from oci_cluster.contract.settings.node import NodeSettings, read_settings
from oci_cluster.contract.storage.retry import Waiting, poll_delays
from oci_cluster.errors import StorageError
from oci_cluster.node.watchdog import REMOTE_S
from oci_cluster.system.files import write_whole
from oci_cluster.system.process import Children, describe

if TYPE_CHECKING:
    from oci_cluster.node.loop import NodeLoop
    from oci_cluster.node.script import Script

T = TypeVar("T")
log = logging.getLogger("outputs")
agent_log = logging.getLogger("agent")

# How long one request is repeated, where TIMEOUT is not shorter: storage that is busy answers within some tries.
_REQUEST_PATIENCE_S = 60.0
# How often files are uploaded again that have changed meanwhile, where the next life is to believe them; the last
# upload of a node finds nothing that still changes.
_LISTED_PASSES = 3
# An upload that is ended has nothing to tidy up.
_END_S = 1.0
# A list of a million files; what is larger somebody else has written.
MAX_LIST_BYTES = 256 << 20
# The piece of a large file that one request reads: few requests, and little memory.
_PIECE_BYTES = 16 << 20

_WAITING = Waiting()

# A file's size and its SHA-256.
State = tuple[int, str]
States = dict[str, list[State]]


class Uploads:
    """Uploads of this node's outputs: each by a child, so that heartbeats go on."""

    def __init__(
        self, settings: NodeSettings, environ: Mapping[str, str], script: Script, children: Children, loop: NodeLoop
    ) -> None:
        self._environ = environ
        self._source = script.output_dir
        self._manifest = script.node_dir / "uploaded.json"
        self._interval_s = settings.output_interval_s
        # How long an upload may stand still after TERM.
        self._patience_s = settings.grace_period_s + REMOTE_S
        self._children, self._loop = children, loop
        self._pid: int | None = None
        self._next_at: float | None = None

    def begin(self) -> None:
        """Take note that a start script runs: from now on there can be outputs."""
        self._next_at = self._loop.clock() + self._interval_s

    def fetch(self) -> None:
        """Bring the outputs of the life before back; wait for that."""
        pid = self._start("fetch-outputs")
        self._loop.wait_for("the outputs of the life before", lambda: self._children.code(pid) is not None)
        if code := self._children.code(pid):
            raise StorageError(
                f"the outputs of the life before cannot be brought back: {describe(code)}; the log says why"
            )

    def poll(self) -> None:
        """Start an upload if one is due."""
        if self._next_at is None or self._loop.clock() < self._next_at:
            return
        if self._pid is not None and self._children.code(self._pid) is None:
            return
        if self._has_outputs():
            self._next_at = self._loop.clock() + self._interval_s
            self._pid = self._start("upload-outputs")

    def finish(self) -> str:
        """Upload the rest and wait for it; return what went wrong, if anything."""
        if self._next_at is None or not self._has_outputs():
            return ""
        agent_log.info("uploading outputs")
        try:
            pid = self._start("upload-outputs")
        except OSError as error:
            return str(error)
        moved, moved_at = "", self._loop.clock()
        while (code := self._children.code(pid)) is None:
            self._loop.wait(1.0)
            # What moves is not cut short: how long a node may take to end is for the place to say where it runs.
            before, moved = moved, self._children.moved(pid)
            if not self._loop.must_end or moved != before:
                moved_at = self._loop.clock()
            elif (still_s := self._loop.clock() - moved_at) >= self._patience_s:
                self._children.end(pid, _END_S, wait=self._loop.wait, clock=self._loop.clock)
                return f"storage has taken nothing for {still_s:.0f} s, and this node has to end"
        return describe(code) if code else ""

    def _has_outputs(self) -> bool:
        """Return whether there is anything to upload: each upload costs a process."""
        return next((path for path in self._source.rglob("*") if path.is_file()), None) is not None

    def _start(self, verb: str) -> int:
        command = [sys.executable, "-m", "oci_cluster", verb, str(self._source), str(self._manifest)]
        return self._children.start(command, environ=self._environ, cwd=Path("/"))


def upload_outputs(
    cluster_dir: ClusterDir,
    source: Path,
    prefix: str,
    manifest: Path,
    *,
    timeout_s: float,
    listed: str = "",
    waiting: Waiting = _WAITING,
) -> int:
    """Upload every new or changed file under *source*; return how many there were.

    Links are not followed: they may lead anywhere. The file *manifest* remembers size and time of what was uploaded.
    The next life of the node *listed*, if one is named, is to believe these files. What fails is repeated for
    *timeout_s*.
    """
    done: dict[str, list[int]] = _read(manifest)
    retry = partial(repeated, deadline=waiting.clock() + timeout_s, waiting=waiting)
    told = OutputsList(cluster_dir, listed, manifest.with_name("listed.json")) if listed else None
    uploaded = 0
    # A file that changes meanwhile may be neither what it was nor what it is: nobody would believe it.
    for _ in range(_LISTED_PASSES if told else 1):
        changed = _changed(source, done)
        if told is not None and changed:
            states = {name: state for name, (path, _) in changed.items() if (state := state_of(path)) is not None}
            retry(partial(told.expect, states))
        for name, (path, mark) in changed.items():
            if not retry(partial(_upload, cluster_dir, path, f"{prefix}/{name}")):
                continue
            done[name] = mark
            write_whole(manifest, json.dumps(done))
            uploaded += 1
        if told is not None:
            retry(partial(told.settle, {*_files(source)}))
        if not changed:
            break
    return uploaded


def _files(source: Path) -> dict[str, Path]:
    paths = (path for path in sorted(source.rglob("*")) if not path.is_symlink() and path.is_file())
    return {path.relative_to(source).as_posix(): path for path in paths}


def _changed(source: Path, done: Mapping[str, list[int]]) -> dict[str, tuple[Path, list[int]]]:
    """Return the files under *source* that differ from *done*, with size and time."""
    changed = {}
    for name, path in _files(source).items():
        try:
            state = path.stat()
        except FileNotFoundError:
            continue  # a temporary file that has got its name meanwhile
        # Taken before the upload: a file that grows meanwhile differs next time.
        mark = [state.st_size, state.st_mtime_ns]
        if done.get(name) != mark:
            changed[name] = (path, mark)
    return changed


def _upload(cluster_dir: ClusterDir, path: Path, name: str) -> bool:
    try:
        cluster_dir.upload(path, name)
    except StorageError:
        if path.exists():
            raise
        return False
    return True


def _read(path: Path) -> dict[str, Any]:
    """Return what this node has noted in *path*; nothing where that is unknown."""
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return {}


# --- Outputs of an earlier life ---------------------------------------------------------------------------------------


def list_name(node: str) -> str:
    """Return the name of the list of *node*'s outputs."""
    return f"{node}_outputs.list"


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


def repeated(request: Callable[[], T], deadline: float, waiting: Waiting) -> T:
    """Return what *request* returns, repeating it until *deadline* where storage does not answer."""
    for delay in poll_delays(5.0):
        try:
            return request()
        except StorageError as error:
            if waiting.clock() >= deadline:
                raise
            log.warning("%s; trying again", error)
            waiting.sleep(delay)
    raise AssertionError  # poll_delays never ends


class OutputsList:
    """The list of this node's outputs, as the next life is to believe it."""

    def __init__(self, cluster_dir: ClusterDir, node: str, kept: Path) -> None:
        self._cluster_dir = cluster_dir
        self._node = node
        self._kept = kept
        self._states: States = _read(kept)
        self._expected: dict[str, State] = {}

    def expect(self, states: Mapping[str, State]) -> None:
        """Publish that files are what they were, or what *states* say: an upload begins."""
        self._expected = dict(states)
        self._tell({**self._states, **{name: [*self._states.get(name, []), state] for name, state in states.items()}})

    def settle(self, present: Collection[str]) -> None:
        """Publish that files are as expected, without those no longer *present*."""
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
    name = list_name(node)
    cluster_dir.write_bytes(name, sealed(cluster_dir, name, json.dumps(states).encode()))


def read_list(cluster_dir: ClusterDir, node: str) -> States:
    """Return what *node*'s outputs may be; nothing without a list to believe."""
    name = list_name(node)
    text = unsealed(cluster_dir, name, b"".join(_pieces(cluster_dir, name, MAX_LIST_BYTES)))
    # Whole, and this node's own: what is in it, a node has written.
    return {name: [(size, sha256) for size, sha256 in states] for name, states in json.loads(text or b"{}").items()}


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
    waiting: Waiting = _WAITING,
) -> int:
    """Copy the outputs of *node*'s earlier life to *target*; return how many.

    What is there already stays. What is brought needs no upload, says the *manifest*. What fails is repeated for
    *timeout_s*.
    """
    deadline = waiting.clock() + timeout_s
    states = repeated(lambda: read_list(cluster_dir, node), deadline, waiting)
    target.mkdir(parents=True, exist_ok=True)
    wanted = {name: found for name, found in states.items() if _is_inside(name) and not (target / name).exists()}
    _check_room(target, wanted)
    marks: dict[str, list[int]] = {}
    kept: States = {}
    for name, found in wanted.items():
        source = f"outputs/{node}/{name}"
        own = repeated(partial(_bring, cluster_dir, source, target / name, found), deadline, waiting)
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
        raise StorageError(
            f"outputs of the life before have {needed} bytes, and {target} has room for {free}; give it more"
        )


def _bring(cluster_dir: ClusterDir, source: str, path: Path, found: list[State]) -> State | None:
    """Copy *source* to *path* if it is one of *found*; return which."""
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


# --- Of this node -----------------------------------------------------------------------------------------------------


def upload_node_outputs(environ: Mapping[str, str], source: Path, manifest: Path) -> None:
    """Upload the outputs of the node that *environ* describes, once; see :func:`upload_outputs`."""
    settings, cluster_dir = _opened(environ)
    prefix = f"outputs/{settings.node}"
    listed = settings.node if settings.interruptible else ""
    count = upload_outputs(cluster_dir, source, prefix, manifest, timeout_s=settings.timeout_s, listed=listed)
    log.info("uploaded=%d", count)


def bring_node_outputs(environ: Mapping[str, str], target: Path, manifest: Path) -> None:
    """Bring back what the node that *environ* describes has uploaded in an earlier life."""
    settings, cluster_dir = _opened(environ)
    if count := bring_outputs_back(cluster_dir, settings.node, target, manifest, timeout_s=settings.timeout_s):
        log.info("brought back=%d", count)


def _opened(environ: Mapping[str, str]) -> tuple[NodeSettings, ClusterDir]:
    settings = read_settings(environ)
    # A request, such as a part of a large file, is repeated by itself; what fails for longer, with the whole file.
    patience_s = min(_REQUEST_PATIENCE_S, settings.timeout_s / 10)
    where = settings.cluster_url, settings.launch_id, settings.launch_key
    return settings, ClusterDir(*where, patience_s=patience_s)
