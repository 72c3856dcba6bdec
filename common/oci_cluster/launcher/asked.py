"""Asks a work dir in a process of its own: a disk may hang.

A thread is not enough: a process ends only when none of its threads waits for such a disk, and with it the script.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.errors import ClusterError, StorageError
from oci_cluster.system.process import die_with_parent

# A list shows all other clusters within five seconds. A disk that answers at all takes a thousandth of that.
LIMIT_S = 4.0


class Asked:
    """A question that is being asked; its answer is what JSON can tell."""

    def __init__(self, question: Callable[[], Any]) -> None:
        """Ask *question*, which alone waits for storage."""
        self._body = b""
        self._is_told = False
        self._reader, writer = os.pipe()
        with warnings.catch_warnings():  # of other threads: a lock of theirs that the copy needs is no answer in time
            warnings.simplefilter("ignore", DeprecationWarning)
            self._child = os.fork()
        if self._child == 0:
            _tell(question, writer)
        os.close(writer)

    def wait(self, seconds: float) -> None:
        """Return when there is an answer, or after *seconds*."""
        until = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while not self._is_told and poll.poll(max(0.0, until - time.monotonic()) * 1000):
            body = os.read(self._reader, 65536)
            self._body += body
            self._is_told = not body

    def answer(self, until: float) -> Any:
        """Return the answer, *until* a moment of `time.monotonic`; raise StorageError where none comes."""
        self.wait(until - time.monotonic())
        os.close(self._reader)
        os.kill(self._child, signal.SIGKILL)
        # One that waits for a disk ends when that answers; whoever has this process's children then sees to it.
        os.waitpid(self._child, 0 if self._is_told else os.WNOHANG)
        if not self._is_told:
            raise StorageError(
                "its work dir does not answer: look at the disk or the service behind it, then ask again"
            )
        told = json.loads(self._body or b'{"bug": "it was killed"}')
        if "bug" in told:
            raise RuntimeError(told["bug"])
        if "error" in told:
            raise StorageError(told["error"])
        return told["found"]


def may_hang(cluster: Cluster, plan: Plan) -> bool:
    """Return whether the work dir may be on another disk than kept files."""
    return plan.url.startswith("file:") and plan.url != f"file://{cluster.directory}"


def _tell(question: Callable[[], Any], writer: int) -> None:
    """Write the answer to *question*, and end this process."""
    try:
        die_with_parent(signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        null = os.open(os.devnull, os.O_RDWR)
        for own in (0, 1, 2):
            os.dup2(null, own)
        for other in [int(path.name) for path in Path("/dev/fd").iterdir()]:
            if other > 2 and other != writer:
                with contextlib.suppress(OSError):  # that of the listing
                    os.close(other)
        try:
            told = {"found": question()}
        except ClusterError as error:
            told = {"error": str(error)}
        except Exception:  # noqa: BLE001 - it is raised where the answer is wanted
            told = {"bug": traceback.format_exc()}
        body = json.dumps(told).encode()
        while body:
            body = body[os.write(writer, body) :]
    finally:
        with contextlib.suppress(BaseException):
            os.close(writer)
        os._exit(0)
