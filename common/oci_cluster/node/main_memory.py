"""The cluster dir of ``WORK_DIR=main://``: files in the memory of main's agent."""

from __future__ import annotations

import json
import threading
from typing import Any

from oci_cluster.contract.main_files import MAX_FILE, check_name
from oci_cluster.contract.repeats import RequestFailedError

# A node leaves five files of some hundred bytes: enough for many more nodes than one main can lead.
MOST_FILES = 20_000
MOST_BYTES = 64 << 20


class MainMemory:
    """Files by name, which several threads may use."""

    def __init__(self, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES) -> None:
        # Content and number of its version: every file that is written has a new one.
        self._files: dict[str, tuple[bytes, int]] = {}
        self._most_files, self._most_bytes = most_files, most_bytes
        self._bytes = 0
        self._version = 0
        self._lock = threading.Lock()

    def ask(self, request: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Do what a *request* wants, and return the answer; see :data:`~oci_cluster.contract.main_files.Ask`.

        Where there is no room, it raises RequestFailedError; where there is no such request, ValueError, TypeError,
        KeyError.
        """
        what, name = request.get("do"), str(request.get("name", ""))
        with self._lock:
            if what in {"read", "describe", "remove"} and name not in self._files:
                raise FileNotFoundError(name)
            if what == "read":
                return {}, self._files[name][0][int(request["start"]) : request["end"]]
            if what == "describe":
                content, version = self._files[name]
                return {"size": len(content), "version": version}, b""
            if what == "list":
                files = [(name, len(content), version) for name, (content, version) in self._files.items()]
                return {}, json.dumps(files).encode()
            if what == "write":
                self._write(check_name(name), body, is_new=request["is_new"] is True)
            elif what == "remove":
                self._bytes -= len(self._files.pop(name)[0])
            elif what == "clear":
                self._files.clear()
                self._bytes = 0
            elif what != "nothing":
                raise ValueError(f"main does not know what {str(what)[:64]!r} is; run the same version on every node")
        return {}, b""

    def _write(self, name: str, body: bytes, *, is_new: bool) -> None:
        before = self._files.get(name)
        if is_new and before is not None:
            raise FileExistsError(name)
        total = self._bytes + len(body) - len(before[0] if before else b"")
        count = len(self._files) + (before is None)
        if len(body) > MAX_FILE or total > self._most_bytes or count > self._most_files:
            raise RequestFailedError(
                f"no room for {name}, {len(body)} bytes, in the memory of main: {count} files and {total} bytes;"
                f" {self._most_files} files, {self._most_bytes} bytes, and {MAX_FILE} in one file are the limits",
                is_passing=False,
            )
        self._version += 1
        self._files[name] = (body, self._version)
        self._bytes = total

    def version(self, name: str) -> int:
        """Return the number of the version of a file; 0 where there is none."""
        with self._lock:
            return self._files.get(name, (b"", 0))[1]
