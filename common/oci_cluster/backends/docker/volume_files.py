"""Files in a container's volume, for the cluster dir, and copies of them.

The launcher cannot see a volume as files: the engine may run in a virtual machine, as another user, or elsewhere. One
copy of a whole folder costs as much as one of a file, so a folder is copied at once, and asked for some time.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oci_cluster.backends.archive import write_states
from oci_cluster.backends.docker.commands import OUTPUTS, container_name
from oci_cluster.backends.docker.logs import start_whole, take_apart
from oci_cluster.backends.docker.states import Container
from oci_cluster.contract.cluster import FILE, Cluster, NodeState, Plan
from oci_cluster.contract.files.cluster_dir import MAX_BYTES, OPENERS, ClusterDir, SmallFiles
from oci_cluster.errors import BackendError, StorageError
from oci_cluster.system.archive import ArchiveError, ArchiveTooLargeError, pack_file, read_files, unpack_beneath
from oci_cluster.system.engine import PROTOCOL, Engine, EngineError
from oci_cluster.system.files import write_whole
from oci_cluster.system.text import printable

# A look asks for several files; they are of one moment.
_FRESH_S = 0.3
# A folder of small files. What else a node puts there must not fill the launcher's memory.
_MAX_BYTES = 64 * 2**20
_MAX_FILES = 10_000
# A file that is replaced while the engine packs it can end the archive early.
_TRIES = 3
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# Files of nodes about themselves, by the contract. Not the certificate, whose key is nobody's any more.
_KEPT_FILE = re.compile(r"(MAIN|(WORKER|PS)_[1-9][0-9]{0,5})_(config|heartbeat|exit|ready)\.json|stop")


def register(engine: Engine) -> None:
    """Have ``engine://<container>/<path>`` URLs opened through *engine* from here on."""
    OPENERS[PROTOCOL] = lambda: EngineFiles(engine)


class EngineFiles(SmallFiles):
    """Small files of one folder of a container; hostile until checked."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._folder = ""
        self._files: dict[str, bytes] | None = None
        self._read_at = 0.0

    def pipe_file(self, path: str, value: bytes) -> None:
        """Write *value* to the file *path*; make its folder where no node has."""
        folder, _slash, name = path.rpartition("/")
        self._files = None
        container, _slash, directory = folder.partition("/")
        # It will be root's, and the nodes' user must read it.
        how = {"mode": 0o644, "modified_s": int(time.time())}
        try:
            self._engine.call("cp", "-", f"{container}:/{directory}", stdin=pack_file(name, value, **how))
        except EngineError:
            parent, _slash, own = directory.rpartition("/")
            self._engine.call("cp", "-", f"{container}:/{parent}", stdin=pack_file(f"{own}/{name}", value, **how))

    def files_of(self, folder: str) -> dict[str, bytes]:
        """Return the files of *folder*, as they are or were a moment ago."""
        if self._files is None or self._folder != folder or self._clock() - self._read_at >= _FRESH_S:
            self._files = self._copy(folder)
            self._folder, self._read_at = folder, self._clock()
        return self._files

    def _copy(self, folder: str) -> dict[str, bytes]:
        container, _slash, directory = folder.partition("/")
        for left in reversed(range(_TRIES)):
            try:
                with self._engine.stream("cp", f"{container}:/{directory}", "-") as stream:
                    return read_files(
                        stream,
                        names=_FILE_NAME,
                        max_file_bytes=MAX_BYTES,
                        max_bytes=_MAX_BYTES,
                        max_files=_MAX_FILES,
                    )
            except EngineError as error:
                if error.is_absent:
                    raise FileNotFoundError(folder) from error
                raise
            except ArchiveTooLargeError as error:
                most = f"{_MAX_BYTES >> 20} MiB or {_MAX_FILES} files"
                raise StorageError(
                    f"the cluster dir holds more than {most}; let your script write to $OUTPUT_DIR instead"
                ) from error
            except ArchiveError as error:
                if not left:
                    raise StorageError(f"{folder} cannot be read: {error}") from error
        raise AssertionError


def copy_all(
    engine: Engine, cluster: Cluster, plan: Plan, nodes: Mapping[str, Container], states: Sequence[NodeState]
) -> None:
    """Copy logs, outputs, files and *states* of ended *nodes* to the cluster's directory."""
    register(engine)
    directory = cluster.directory
    try:
        if not (directory / FILE).exists():
            write_whole(directory / FILE, json.dumps(replace(plan, work_dir="").to_json(), indent=2))
        for node, container in nodes.items():
            _copy_log(engine, str(container["Id"]), directory / "logs", node)
        cluster_dir = ClusterDir(plan.url, cluster.launch_id, plan.launch_key)
        for name in cluster_dir.listing():
            if _KEPT_FILE.fullmatch(name):
                write_whole(directory / name, cluster_dir.read_bytes(name, 0))
        _copy_outputs(engine, container_name(cluster.cluster_id, "MAIN"), directory)
        write_states(cluster, states)
    except (OSError, EngineError, StorageError) as error:
        raise BackendError(
            f"what {cluster.name} leaves could not be copied to {directory}: {error}; it stays in the "
            f"engine; try again: scripts/stop.sh {cluster.name} --backend docker"
        ) from error


def _copy_log(engine: Engine, container: str, logs: Path, node: str) -> None:
    stamped = logs / f"{node}.new"
    if start_whole(engine, container, stamped).wait() != 0:
        raise EngineError(f"{engine.program} logs: {printable(stamped.read_text(errors='replace'))}")
    take_apart(stamped, logs, node)
    stamped.unlink()


def _copy_outputs(engine: Engine, container: str, directory: Path) -> None:
    """Copy the outputs' folders and plain files: a link may lead anywhere."""
    try:
        with engine.stream("cp", f"{container}:{OUTPUTS}", "-") as stream:
            unpack_beneath(stream, directory, prefix=Path(OUTPUTS).name)
    except EngineError as error:
        if not error.is_absent:  # no node has come so far as to make the folder
            raise
    except ArchiveError as error:
        raise StorageError(f"the outputs cannot be unpacked: {error}") from error
