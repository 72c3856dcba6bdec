"""Ends a cluster whose launcher was killed, by a process that waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path

from oci_cluster.contract.settings.settings_files import PROJECT_ROOT, own_environment
from oci_cluster.errors import SettingsError

# A shell, as it costs a megabyte: it waits for a line, and becomes the verb that ends a cluster where another one comes
# than that which dismisses it, or none. That line is the reason.
_WAIT = 'read -r line; [ "${line}" = dismissed ] || exec "$@" "${line}"'
_DISMISSED = b"dismissed\n"
# What fits into a pipe that nobody reads yet: 65,536 bytes on Linux (pipe(7)), and on macOS when it has grown.
_MOST_BYTES = 60_000


class Reaper:
    """A process that ends a cluster when its launcher has been killed.

    KILL, a crash and an out-of-memory kill leave a launcher no time to end what it has started. The kernel closes its
    end of a pipe all the same.
    """

    def __init__(
        self, backend: str, cluster_id: str, *, root: Path = PROJECT_ROOT, own: Mapping[str, str] | None = None
    ) -> None:
        """Watch over the cluster *cluster_id* of *backend*, which need not be there yet.

        *own* are settings besides those of environment and ``config.env``. They may be secrets: they are handed on
        through a pipe, and neither in words nor in variables.
        """
        self._lock, self._is_told = threading.Lock(), False
        words = [sys.executable, "-m", "oci_cluster", "orphan", backend, cluster_id]
        # Where relative paths start: as exec_cluster in common/lib.sh.
        environ = {**own_environment(root, os.environ), "CLUSTER_CWD": str(Path.cwd())}
        kept = [_readable(own)] if own else []
        try:
            # Neither pipes, whose readers would wait for it, nor claims of addresses: these are the launcher's. A
            # Ctrl-C in the terminal is not for it.
            self._process = subprocess.Popen(  # noqa: S603 - a text of ours, and words that it does not read
                ["/bin/sh", "-c", _WAIT, "reaper", *words, "".join(map(str, kept))],
                env=environ,
                cwd=root / "common",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=kept,
                start_new_session=True,
            )
        finally:
            for descriptor in kept:
                os.close(descriptor)
        _reapers.add(self)

    def dismiss(self) -> None:
        """Let it go: the cluster has ended, or goes on without a launcher."""
        self._tell(_DISMISSED)

    def end_cluster(self, reason: str) -> None:
        """Have it end the cluster now; return when that is done, or has failed."""
        self._tell(reason.encode() + b"\n")

    def release(self) -> None:
        """Have it end the cluster, where there is one, and wait for nothing."""
        with self._lock:
            self._is_told = True
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _tell(self, line: bytes) -> None:
        """Give it its one line: of two threads, the first one's."""
        with self._lock:
            is_told, self._is_told = self._is_told, True
        if not is_told:
            self._process.communicate(line)

    def leave_to_launcher(self) -> None:
        """Let go of its pipe, in a fork, which may outlive the launcher."""
        pipe = self._process.stdin
        if pipe is not None and not pipe.closed:  # closed itself, its number would be another file's
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, pipe.fileno(), inheritable=False)
            os.close(null)


_reapers: weakref.WeakSet[Reaper] = weakref.WeakSet()


def _leave_all() -> None:
    for reaper in _reapers:
        reaper.leave_to_launcher()


os.register_at_fork(after_in_child=_leave_all)


def read_own(descriptor: int) -> dict[str, str]:
    """Return the settings that a reaper was given, out of its file *descriptor*."""
    with os.fdopen(descriptor) as file:
        return {str(name): str(text) for name, text in json.load(file).items()}


def _readable(own: Mapping[str, str]) -> int:
    content = json.dumps(dict(own)).encode()
    if len(content) > _MOST_BYTES:
        raise SettingsError(
            f"settings: they have {len(content)} bytes, {_MOST_BYTES} at most; put the longest into config.env"
        )
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    return reader
