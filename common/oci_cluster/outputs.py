"""What an entry point leaves in ``OUTPUT_DIR``, copied to the cluster dir where that is not on this machine."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from oci_cluster.errors import StorageError
from oci_cluster.exchange import Exchange, poll_delays
from oci_cluster.settings import read_settings

log = logging.getLogger("outputs")


def upload_outputs(
    exchange: Exchange,
    source: Path,
    prefix: str,
    manifest: Path,
    *,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Upload every file under *source* that is new or changed since the last call; return how many there were.

    Args:
        exchange: The cluster dir.
        source: ``OUTPUT_DIR``. Links are not followed: they may lead anywhere.
        prefix: Where in the cluster dir the files go, e.g. ``outputs/WORKER_2``.
        manifest: File of this machine that remembers size and time of what has been uploaded.
        timeout_s: How long failing requests are repeated, in all.
        clock: Monotonic seconds.
        sleep: Waits seconds; only tests give another.

    Raises:
        StorageError: something could not be uploaded within *timeout_s*.
        NotPermittedError: storage refused; not repeated.
    """
    done = _read_manifest(manifest)
    deadline = clock() + timeout_s
    uploaded = 0
    for path in sorted(source.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        name = path.relative_to(source).as_posix()
        try:
            state = path.stat()
        except FileNotFoundError:
            continue  # a temporary file that has got its name meanwhile
        # Taken before the upload: a file that grows meanwhile differs next time.
        mark = [state.st_size, state.st_mtime_ns]
        if done.get(name) == mark:
            continue
        if not _upload(exchange, path, f"{prefix}/{name}", deadline=deadline, clock=clock, sleep=sleep):
            continue
        done[name] = mark
        new = manifest.with_suffix(".new")
        new.write_text(json.dumps(done))
        new.replace(manifest)
        uploaded += 1
    return uploaded


def _upload(
    exchange: Exchange,
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
            exchange.upload(path, name)
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
    exchange = Exchange(settings.cluster_url, settings.launch_id)
    prefix = f"outputs/{settings.node}"
    count = upload_outputs(exchange, source, prefix, manifest, timeout_s=settings.timeout_s)
    log.info("uploaded=%d", count)
