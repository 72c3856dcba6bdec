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
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import ClusterError, StorageError
from oci_cluster.system.files import LocalFiles
from oci_cluster.system.process import die_with_parent

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")

# A list shows all other clusters within five seconds. A disk that answers at all takes a thousandth of that.
LIMIT_S = 4.0


class Asked:
    """A question that is being asked; its answer is what JSON can tell."""

    def __init__(self, question: Callable[[], Any], url: str) -> None:
        """Ask *question* about the work dir *url*."""
        self._url, self._body, self._is_told = url, b"", False
        self._reader, writer = os.pipe()
        self._child = _fork(partial(_tell, question, writer), writer)
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
            why = f"its work dir {self._url} does not answer"
            raise StorageError(f"{why}: look at the disk or the service behind it, then ask again")
        told = json.loads(self._body or b'{"bug": "it was killed"}')
        if "bug" in told:
            raise RuntimeError(told["bug"])
        if "error" in told:
            raise StorageError(told["error"])
        return told["found"]


class AskedFiles(LocalFiles):
    """Files of a work dir whose disk may hang, read by another process.

    A call waits for :data:`LIMIT_S` at most, and raises TimeoutError then; so do later calls, at once, until the disk
    has answered the first.
    """

    def __init__(self) -> None:
        """Begin without the process."""
        self._pipe: Connection | None = None
        self._is_owed = False

    def ask(self, name: str, *words: Any, **options: Any) -> Any:
        """Return what the call *name* of :class:`LocalFiles` returns, made by the process."""
        if self._is_owed:
            self._receive(0.0)  # what nobody waits for any more
        if self._pipe is None:
            from multiprocessing import Pipe  # noqa: PLC0415 - where there is such a disk

            self._pipe, other = Pipe()
            child = _fork(partial(_serve, other), other.fileno())
            other.close()
            weakref.finalize(self, _end, child)
        self._pipe.send((name, words, options))
        is_found, told = self._receive(LIMIT_S)
        if not is_found:
            raise told
        return told

    def _receive(self, seconds: float) -> tuple[bool, Any]:
        assert self._pipe is not None  # noqa: S101 - it was asked
        self._is_owed = not self._pipe.poll(seconds)
        if self._is_owed:
            raise TimeoutError("it does not answer: look at the disk or the service behind it")
        try:
            is_found, told = self._pipe.recv()
        except EOFError:
            self._pipe = None  # it was killed; the next call has another
            raise TimeoutError("who asked it was killed") from None
        return is_found, told


def _by_process(name: str) -> Callable[..., Any]:
    return lambda files, *words, **options: files.ask(name, *words, **options)


for _name in ("makedirs", "make_folders", "pipe_file", "cat_file", "info", "ls", "put_file", "rm_file", "rm"):
    setattr(AskedFiles, _name, _by_process(_name))


def _serve(pipe: Connection) -> None:
    """Do what comes from *pipe*, until nobody is there any more."""
    files = LocalFiles()
    with contextlib.suppress(EOFError, OSError):
        while True:
            name, words, options = pipe.recv()
            try:
                told = True, getattr(files, name)(*words, **options)
            except Exception as error:  # noqa: BLE001 - it is raised where it was asked
                told = False, error
            pipe.send(told)


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


def _end(child: int) -> None:
    """Kill *child*; one that waits for a disk ends when that answers."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, os.WNOHANG)


def _tell(question: Callable[[], Any], writer: int) -> None:
    """Write the answer to *question*."""
    try:
        told = {"found": question()}
    except (ClusterError, OSError) as error:  # a disk that fails, too, says nothing of what is on it
        told = {"error": str(error)}
    except Exception:  # noqa: BLE001 - it is raised where the answer is wanted
        told = {"bug": traceback.format_exc()}
    body = json.dumps(told).encode()
    while body:
        body = body[os.write(writer, body) :]
