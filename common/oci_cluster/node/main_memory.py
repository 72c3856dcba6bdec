"""The cluster dir of ``WORK_DIR=main://``: files in the memory of main's agent."""

from __future__ import annotations

import threading

from oci_cluster.contract.main_files import MAX_FILE, check_name
from oci_cluster.contract.repeats import RequestFailedError

# A node leaves five files of some hundred bytes: enough for many more nodes than one main can lead.
MOST_FILES = 20_000
MOST_BYTES = 64 << 20


class MainMemory:
    """A :class:`~oci_cluster.contract.main_files.Store` that several threads may use."""

    def __init__(self, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES) -> None:
        """Hold nothing yet, and never more than that."""
        self._files: dict[str, tuple[bytes, int]] = {}
        self._most_files, self._most_bytes = most_files, most_bytes
        self._bytes = 0
        self._version = 0
        self._lock = threading.Lock()

    def read(self, name: str, start: int, end: int | None) -> bytes:
        """Return the bytes of a file from *start* to *end*."""
        with self._lock:
            return self._files[self._there(name)][0][start:end]

    def write(self, name: str, body: bytes, *, is_new: bool) -> None:
        """Replace a file by *body*; one that *is_new* must not be there."""
        check_name(name)
        with self._lock:
            before = self._files.get(name)
            if is_new and before is not None:
                raise FileExistsError(name)
            total = self._bytes + len(body) - len(before[0] if before else b"")
            count = len(self._files) + (before is None)
            if len(body) > MAX_FILE or total > self._most_bytes or count > self._most_files:
                msg = (
                    f"no room for {name}, {len(body)} bytes, in the memory of main: {count} files and {total} bytes;"
                    f" {self._most_files} files, {self._most_bytes} bytes, and {MAX_FILE} in one file are the limits"
                )
                raise RequestFailedError(msg, is_passing=False)
            self._version += 1
            self._files[name] = (body, self._version)
            self._bytes = total

    def describe(self, name: str) -> tuple[int, int]:
        """Return size and version of a file."""
        with self._lock:
            body, version = self._files[self._there(name)]
            return len(body), version

    def names(self) -> list[tuple[str, int, int]]:
        """Return name, size and version of all files."""
        with self._lock:
            return [(name, len(body), version) for name, (body, version) in self._files.items()]

    def remove(self, name: str) -> None:
        """Delete a file."""
        with self._lock:
            body, _ = self._files.pop(self._there(name))
            self._bytes -= len(body)

    def clear(self) -> None:
        """Delete all files. What is written later has another version all the same."""
        with self._lock:
            self._files.clear()
            self._bytes = 0

    def reach(self) -> None:
        """Do nothing: they are here."""

    def _there(self, name: str) -> str:
        if name not in self._files:
            raise FileNotFoundError(name)
        return name
