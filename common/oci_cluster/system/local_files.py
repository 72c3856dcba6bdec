"""Files of this machine, by the calls of an fsspec file system.

fsspec has the same, behind an import of 0.1 s of CPU: three quarters of what starting an agent costs, for each of them.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

from oci_cluster.system.files import read_regular, write_whole

PROTOCOL = "file"


class LocalFiles:
    """A replacement of fsspec's ``LocalFileSystem``, for paths without a protocol."""

    protocol = PROTOCOL

    def invalidate_cache(self) -> None:
        """Do nothing: nothing is kept."""

    def makedirs(self, path: str, *, exist_ok: bool) -> None:
        """Make the folder *path*, and those above it."""
        Path(path).mkdir(parents=True, exist_ok=exist_ok)

    def make_folders(self, root: str, path: str) -> None:
        """Make the folders of the file *path* below the folder *root*, never *root*.

        One whose disk has gone away would come to life in its place, and the disk could not come back to it.
        """
        made = Path(root)
        for part in Path(path).relative_to(root).parts[:-1]:
            made /= part
            made.mkdir(exist_ok=True)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
        """Replace the file *path*, whole; with the mode ``create`` only make it."""
        if mode != "create":
            write_whole(Path(path), value)
            return
        with Path(path).open("xb") as file:
            file.write(value)

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a regular file from *start* to *end*."""
        return read_regular(path, start, end)

    def info(self, path: str) -> dict[str, Any]:
        """Describe the file or folder *path*; a new description is a changed file."""
        return _describe(path, Path(path).stat())

    def ls(self, path: str, *, detail: bool) -> list[dict[str, Any]]:
        """Describe all that is in the folder *path*, always in *detail*."""
        assert detail  # noqa: S101 - nobody asks for less
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    found.append(_describe(entry.path, entry.stat()))
                except FileNotFoundError:  # it has just gone, or is a link that leads nowhere
                    continue
        return found

    def put_file(self, source: str, path: str) -> None:
        """Copy the file *source* to *path*."""
        shutil.copyfile(source, path)

    def rm_file(self, path: str) -> None:
        """Delete the file *path*."""
        Path(path).unlink()

    def rm(self, path: str, *, recursive: bool) -> None:
        """Delete the folder *path* with all that is in it."""
        assert recursive  # noqa: S101 - a single file is rm_file's
        shutil.rmtree(path)


def _describe(path: str, found: os.stat_result) -> dict[str, Any]:
    kind = "directory" if stat.S_ISDIR(found.st_mode) else "file"
    return {"name": path, "size": found.st_size, "type": kind, "mtime": found.st_mtime_ns, "ino": found.st_ino}
