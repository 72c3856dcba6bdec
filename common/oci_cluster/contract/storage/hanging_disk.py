"""Asks a work dir in a process of its own: a disk may hang.

A thread is not enough: a process ends only when none of its threads waits for such a disk, and with it the script.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import ClusterError, StorageError
from oci_cluster.system.files import LocalFiles
from oci_cluster.system.process import die_with_parent

T = TypeVar("T")

# A list shows all other clusters within five seconds. A disk that answers at all takes a thousandth of that.
LIMIT_S = 4.0
_ADVICE = "look at the disk or the service behind it"


class Asked:
    """A question that another process answers."""

    def __init__(self, question: Callable[[], Any], url: str) -> None:
        """Ask *question* about the work dir *url*."""
        self._url, self._body, self._is_told = url, b"", False
        self._reader, writer = os.pipe()
        self._child = _fork(partial(_tell, question, writer), writer)
        os.close(writer)

    def wait(self, seconds: float) -> bool:
        """Return whether there is an answer, after *seconds* at most."""
        until = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while not self._is_told and poll.poll(max(0.0, until - time.monotonic()) * 1000):
            body = os.read(self._reader, 65536)
            self._body += body
            self._is_told = not body
        return self._is_told

    def end(self) -> None:
        """Kill the process; one that waits for a disk ends when that answers."""
        os.close(self._reader)
        os.kill(self._child, signal.SIGKILL)
        # Without an answer, whoever has this process's children then sees to it.
        os.waitpid(self._child, 0 if self._is_told else os.WNOHANG)

    def found(self) -> Any:
        """Return what the process has found, or raise what it has raised."""
        try:
            is_found, told = pickle.loads(self._body)  # noqa: S301 - a copy of this process has written it
        except (EOFError, pickle.UnpicklingError):  # nothing, or half of it
            raise OSError("the process that asked the work dir was killed") from None
        if not is_found:
            raise told
        return told

    def answer(self, until: float) -> Any:
        """Return the answer, *until* a moment of `time.monotonic`; raise StorageError where none comes."""
        is_told = self.wait(until - time.monotonic())
        self.end()
        if not is_told:
            raise StorageError(f"its work dir {self._url} does not answer: {_ADVICE}, then ask again")
        try:
            return self.found()
        except OSError as error:  # a disk that fails, too, says nothing of what is on it
            raise StorageError(str(error)) from error


class AskedFiles(LocalFiles):
    """Files of a work dir whose disk may hang: another process makes each call.

    A call waits for :data:`LIMIT_S` at most, and raises TimeoutError then; so do later calls, at once, until the disk
    has answered the first.
    """

    def __init__(self) -> None:
        """Begin without a call."""
        self._open: Asked | None = None

    def ask(self, name: str, *words: Any, **options: Any) -> Any:
        """Return what the call *name* of :class:`LocalFiles` returns."""
        if self._open is not None:
            if not self._open.wait(0.0):
                raise TimeoutError(f"it does not answer: {_ADVICE}")
            self._open.end()
        asked = self._open = Asked(partial(getattr(LocalFiles(), name), *words, **options), "")
        if not asked.wait(LIMIT_S):
            raise TimeoutError(f"it does not answer: {_ADVICE}")
        asked.end()
        self._open = None
        return asked.found()


def _by_process(name: str) -> Callable[..., Any]:
    return lambda files, *words, **options: files.ask(name, *words, **options)


for _name in ("makedirs", "make_folders", "pipe_file", "cat_file", "info", "ls", "put_file", "rm_file", "rm"):
    setattr(AskedFiles, _name, _by_process(_name))


def may_hang(cluster: Cluster, plan: Plan) -> bool:
    """Return whether the work dir may be on another disk than kept files."""
    return plan.url.startswith("file:") and plan.url != f"file://{cluster.directory}"


def asked_dir(cluster: Cluster, plan: Plan, patience_s: float | None = None) -> ClusterDir:
    """Open the cluster dir, whose files another process reads where the disk may hang."""
    files = AskedFiles() if may_hang(cluster, plan) else None
    return ClusterDir(plan.url, cluster.launch_id, plan.launch_key, patience_s=patience_s, files=files)


def asked(cluster: Cluster, plan: Plan, question: Callable[[], T]) -> T:
    """Return the answer to *question*; raise StorageError where the disk hangs."""
    if not may_hang(cluster, plan):
        return question()
    found: T = Asked(question, plan.url).answer(time.monotonic() + LIMIT_S)
    return found


def _fork(body: Callable[[], object], kept: int) -> int:
    """Run *body* in a process that ends with this thread, and holds only *kept*."""
    with warnings.catch_warnings():  # of other threads: a lock of theirs that the copy needs is no answer in time
        warnings.simplefilter("ignore", DeprecationWarning)
        parent, child = os.getpid(), os.fork()
    if child:
        return child
    try:
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:  # it was killed just now
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # Ctrl-C is for who has asked
        signal.set_wakeup_fd(-1)
        null = os.open(os.devnull, os.O_RDWR)
        for own in (0, 1, 2):
            os.dup2(null, own)
        for other in [int(path.name) for path in Path("/dev/fd").iterdir()]:
            if other > 2 and other != kept:
                with contextlib.suppress(OSError):  # that of the listing
                    os.close(other)
        body()
    finally:
        os._exit(0)


def _tell(question: Callable[[], Any], writer: int) -> None:
    """Write the answer to *question*."""
    told: tuple[bool, Any]
    try:
        told = True, question()
    except OSError as error:
        told = False, error
    except ClusterError as error:
        told = False, StorageError(str(error))
    except Exception:  # noqa: BLE001 - it is raised where the answer is wanted
        told = False, RuntimeError(traceback.format_exc())
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(pickle.dumps(told))
