"""The files in a container's volume, read and written through the engine, as an fsspec file system.

The launcher cannot see a volume as files: the engine may run in a virtual machine, as another user, or elsewhere. One
copy of a whole folder costs as much as one of a file, so a folder is copied at once, and asked for some time.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import fsspec
from fsspec.config import conf

from oci_cluster.engine import PROTOCOL, Engine, EngineError
from oci_cluster.errors import StorageError
from oci_cluster.exchange import MAX_BYTES

if sys.version_info >= (3, 12):
    import tarfile
else:  # see code.py
    from backports import tarfile

# A look asks for several files; they are of one moment.
_FRESH_S = 0.3
# A folder of small files. What else a node puts there must not fill the launcher's memory.
_MOST_BYTES = 64 * 2**20
_MOST_FILES = 10_000
# A file that is replaced while the engine packs it can end the archive early.
_TRIES = 3
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def register(engine: Engine) -> None:
    """Have ``engine://<container>/<path>`` URLs opened through *engine* from here on."""
    fsspec.register_implementation(PROTOCOL, EngineFiles, clobber=True)
    conf[PROTOCOL] = {"engine": engine}


class EngineFiles(fsspec.AbstractFileSystem):  # type: ignore[misc] # fsspec ships no types
    """Small files right below one folder of a container; what its nodes have left is hostile until checked."""

    protocol = PROTOCOL
    root_marker = ""
    cachable = False

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic, **options: Any) -> None:
        """Ask *engine*."""
        super().__init__(**options)
        self._engine = engine
        self._clock = clock
        self._folder = ""
        self._files: dict[str, bytes] | None = None
        self._read_at = 0.0

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's
        """List the files of the folder *path*."""
        files = self._look(self._strip_protocol(path))
        # With their content: whoever compares listings sees a change of it.
        entries = [
            {"name": f"{path}/{name}", "size": len(body), "type": "file", "body": body} for name, body in files.items()
        ]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Describe the file *path*."""
        return {"name": path, "size": len(self._body(path)), "type": "file"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return what the file *path* holds."""
        return self._body(path)[start:end]

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        """Write *value* to the file *path*, in a folder that is there."""
        folder, _slash, name = self._strip_protocol(path).rpartition("/")
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(value), int(time.time())
            entry.mode = 0o644  # it will be root's, and the nodes' user must read it
            tar.addfile(entry, io.BytesIO(value))
        self._files = None
        container, _slash, directory = folder.partition("/")
        self._engine.call("cp", "-", f"{container}:/{directory}", stdin=archive.getvalue())

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - fsspec's
        """Do nothing: nodes make their folders themselves, as the user that they run as."""

    def _body(self, path: str) -> bytes:
        folder, _slash, name = self._strip_protocol(path).rpartition("/")
        files = self._look(folder)
        if name not in files:
            raise FileNotFoundError(path)
        return files[name]

    def _look(self, folder: str) -> dict[str, bytes]:
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
                    return _read(stream)
            except EngineError as error:
                if error.is_absent:
                    raise FileNotFoundError(folder) from error
                raise
            except (tarfile.TarError, EOFError) as error:
                if not left:
                    msg = f"{folder} cannot be read: {error}"
                    raise StorageError(msg) from error
        raise AssertionError


def _read(stream: Any) -> dict[str, bytes]:
    """Return the plain files at the first level of the archive *stream*; longer ones as far as tells that they are."""
    files: dict[str, bytes] = {}
    total = 0
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for entry in tar:
            _folder, slash, name = entry.name.removeprefix("./").partition("/")
            total += entry.size
            if total > _MOST_BYTES or len(files) > _MOST_FILES:
                msg = (
                    f"the cluster dir holds more than {_MOST_BYTES >> 20} MiB; what a script writes goes to $OUTPUT_DIR"
                )
                raise StorageError(msg)
            if slash and entry.isreg() and _FILE.fullmatch(name):
                content = tar.extractfile(entry)
                files[name] = content.read(MAX_BYTES + 1) if content else b""
    return files
