"""What an entry point leaves in ``OUTPUT_DIR``, copied to the cluster dir where that is not on this machine."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.polling import poll_delays
from oci_cluster.contract.settings import read_settings
from oci_cluster.errors import StorageError
from oci_cluster.node.earlier_outputs import OutputsList, bring_outputs_back, repeated, state_of
from oci_cluster.system.files import write_whole
from oci_cluster.system.process import Children, describe

log = logging.getLogger("outputs")
agent_log = logging.getLogger("agent")

# How long one request is repeated, where TIMEOUT is not shorter: storage that is busy answers within some tries.
_REQUEST_PATIENCE_S = 60.0
# How often files are uploaded again that have changed meanwhile, where the next life is to believe them; the last
# upload of a node finds nothing that still changes.
_LISTED_PASSES = 3


class Uploads:
    """Uploads of this node's outputs: each by a child, so that heartbeats go on."""

    def __init__(
        self,
        environ: Mapping[str, str],
        source: Path,
        manifest: Path,
        *,
        interval_s: float,
        children: Children,
        wait: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        """Prepare them."""
        self._environ = environ
        self._source = source
        self._command = [sys.executable, "-m", "oci_cluster", "upload-outputs", str(source), str(manifest)]
        self._bring_back = [sys.executable, "-m", "oci_cluster", "fetch-outputs", str(source), str(manifest)]
        self._interval_s = interval_s
        self._children = children
        self._wait = wait
        self._clock = clock
        self._pid: int | None = None
        self._next_at: float | None = None

    def begin(self) -> None:
        """Take note that a start script runs: from now on there can be outputs."""
        self._next_at = self._clock() + self._interval_s

    def fetch(self) -> Callable[[], int | None]:
        """Begin to bring back what an earlier life has uploaded; return what tells the exit code of that."""
        pid = self._children.start(self._bring_back, environ=self._environ, cwd=Path("/"))
        return lambda: self._children.code(pid)

    def poll(self) -> None:
        """Start an upload if one is due."""
        if self._next_at is None or self._clock() < self._next_at:
            return
        if self._pid is not None and self._children.code(self._pid) is None:
            return
        if self._has_outputs():
            self._next_at = self._clock() + self._interval_s
            self._pid = self._start()

    def finish(self) -> str:
        """Upload what is left, and wait for it; return what went wrong, empty where nothing is lost."""
        if self._next_at is None or not self._has_outputs():
            return ""
        agent_log.info("uploading outputs")
        try:
            pid = self._start()
        except OSError as error:
            return str(error)
        while (code := self._children.code(pid)) is None:
            self._wait(1.0)
        return describe(code) if code else ""

    def _has_outputs(self) -> bool:
        """Return whether there is anything to upload: an upload costs a process, with a client of storage."""
        return next((path for path in self._source.rglob("*") if path.is_file()), None) is not None

    def _start(self) -> int:
        return self._children.start(self._command, environ=self._environ, cwd=Path("/"))


def upload_outputs(
    cluster_dir: ClusterDir,
    source: Path,
    prefix: str,
    manifest: Path,
    *,
    timeout_s: float,
    listed: str = "",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Upload every file under *source* that is new or changed since the last call; return how many there were.

    Links are not followed: they may lead anywhere. The file *manifest* remembers size and time of what was uploaded.
    The next life of the node *listed*, if one is named, is to believe these files.

    Raises:
        StorageError: something could not be uploaded within *timeout_s*.
        NotPermittedError: storage refused; not repeated.
    """
    done = _read_manifest(manifest)
    deadline = clock() + timeout_s
    told = OutputsList(cluster_dir, listed, manifest.with_name("listed.json")) if listed else None
    uploaded = 0
    # What changes meanwhile may be neither what it was nor what it is: nobody would believe it.
    for _ in range(_LISTED_PASSES if told else 1):
        changed = _changed(source, done)
        if told is not None and changed:
            states = {name: state for name, (path, _) in changed.items() if (state := state_of(path)) is not None}
            repeated(partial(told.expect, states), deadline, clock=clock, sleep=sleep)
        for name, (path, mark) in changed.items():
            if not _upload(cluster_dir, path, f"{prefix}/{name}", deadline=deadline, clock=clock, sleep=sleep):
                continue
            done[name] = mark
            write_whole(manifest, json.dumps(done))
            uploaded += 1
        if told is not None:
            repeated(partial(told.settle, {*_files(source)}), deadline, clock=clock, sleep=sleep)
        if not changed:
            break
    return uploaded


def _files(source: Path) -> dict[str, Path]:
    """Return the files under *source* by their names there; no links."""
    paths = (path for path in sorted(source.rglob("*")) if not path.is_symlink() and path.is_file())
    return {path.relative_to(source).as_posix(): path for path in paths}


def _changed(source: Path, done: Mapping[str, list[int]]) -> dict[str, tuple[Path, list[int]]]:
    """Return the files under *source* that are not as they were when they were *done*, with their size and time."""
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


def _upload(
    cluster_dir: ClusterDir,
    path: Path,
    name: str,
    *,
    deadline: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> bool:
    """Upload one file, repeating what fails until *deadline*; return False for one that has gone away meanwhile."""
    delays = poll_delays(5.0)
    while True:
        try:
            cluster_dir.upload(path, name)
        except StorageError as error:
            if not path.exists():
                return False
            if clock() >= deadline:
                raise
            log.warning("%s; trying again", error)
            sleep(next(delays))
        else:
            return True


def _read_manifest(path: Path) -> dict[str, list[int]]:
    """Return what has been uploaded; nothing where that is not known: then everything is uploaded once more."""
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def upload_node_outputs(environ: Mapping[str, str], source: Path, manifest: Path) -> None:
    """Upload the outputs of the node that *environ* describes, once; see :func:`upload_outputs`."""
    settings = read_settings(environ)
    # A request, such as a part of a large file, is repeated by itself; what fails for longer, with the whole file.
    patience_s = min(_REQUEST_PATIENCE_S, settings.timeout_s / 10)
    cluster_dir = ClusterDir(settings.cluster_url, settings.launch_id, settings.launch_key, patience_s=patience_s)
    prefix = f"outputs/{settings.node}"
    listed = settings.node if settings.interruptible else ""
    count = upload_outputs(cluster_dir, source, prefix, manifest, timeout_s=settings.timeout_s, listed=listed)
    log.info("uploaded=%d", count)


def bring_node_outputs(environ: Mapping[str, str], target: Path, manifest: Path) -> None:
    """Bring back what the node that *environ* describes has uploaded in an earlier life."""
    settings = read_settings(environ)
    patience_s = min(_REQUEST_PATIENCE_S, settings.timeout_s / 10)
    cluster_dir = ClusterDir(settings.cluster_url, settings.launch_id, settings.launch_key, patience_s=patience_s)
    count = bring_outputs_back(cluster_dir, settings.node, target, manifest, timeout_s=settings.timeout_s)
    if count:
        log.info("brought back=%d", count)
