"""Storage that does what a test tells it to, and files that somebody has left in a cluster dir."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import fsspec
from unit.signed_files import signed

from oci_cluster.contract.files.cluster_dir import ClusterDir

LAUNCH = "1f2e3d4c"
KEY = "5eed" * 16


class FailingFileSystem(fsspec.AbstractFileSystem):
    """Raises what a test tells it to, whatever is asked, and records what was asked."""

    protocol = "failing"
    cachable = False
    error: ClassVar[BaseException | None] = None
    calls: ClassVar[list[str]] = []

    def _answer(self, name: str, result: Any = None) -> Any:
        type(self).calls.append(name)
        if self.error is not None:
            raise self.error
        return result

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - fsspec's own
        self._answer("makedirs")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self._answer("pipe_file")

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        type(self).calls.append(f"range {start}-{end}")
        return bytes(self._answer("cat_file", b"{}"))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return dict(self._answer("info", {"name": path}))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's own
        return list(self._answer("ls", []))

    def rm_file(self, path: str) -> None:
        self._answer("rm_file")

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:  # noqa: FBT001, FBT002
        assert recursive
        self._answer("rm")

    def put_file(self, lpath: str, rpath: str, *_: Any, **__: Any) -> None:
        self._answer("put_file")

    def invalidate_cache(self, path: str | None = None) -> None:
        type(self).calls.append("invalidate_cache")


def leave(cluster_dir: ClusterDir, name: str, body: bytes) -> None:
    cluster_dir._fs.pipe_file(f"{cluster_dir._path}/{name}", body)


def document(**fields: Any) -> bytes:
    """Return what nobody has signed."""
    return json.dumps({"schema": 1, "launch_id": LAUNCH, **fields}).encode()


def own(name: str, **fields: Any) -> bytes:
    """Return what a node of the launch writes to the file *name*."""
    return signed(name, LAUNCH, KEY, **fields)
