"""What ends a cluster whose launcher was killed: a process that waits for that, and for nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

from oci_cluster.contract.config import PROJECT_ROOT
from oci_cluster.system.process import use_files

# What a guard says that nothing ends together with its launcher any more.
_READY = b"+"
# What a launcher says that has nothing left to guard.
_DISMISSED = b"."


class Guard:
    """A process of its own session that ends a cluster as soon as this process is gone without having dismissed it.

    KILL, a crash and an out-of-memory kill leave a launcher no time to end what it has started. The kernel closes its
    end of a pipe all the same.
    """

    def __init__(self, backend: str, cluster_id: str) -> None:
        """Guard the cluster *cluster_id* of *backend*, which need not be there yet."""
        self._socket, theirs = socket.socketpair()  # no program that is started later inherits it
        self._pid = os.fork()
        if self._pid == 0:
            _wait_and_end(theirs.fileno(), ["orphan", backend, cluster_id])
        theirs.close()
        self._socket.recv(1)  # until then it is still in the process group of this one, and killed with that

    def dismiss(self) -> None:
        """Let it go: the cluster has ended, or goes on without a launcher."""
        with contextlib.suppress(BrokenPipeError):  # somebody has killed it
            self._socket.send(_DISMISSED)
        self._socket.close()
        os.waitpid(self._pid, 0)


def _wait_and_end(launcher: int, words: list[str]) -> None:
    """Be the guard; never returns."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        # Neither pipes, whose readers would wait for it, nor claims of addresses: these are the launcher's.
        use_files(os.open(os.devnull, os.O_WRONLY), keep=[launcher])
        os.write(launcher, _READY)
        if os.read(launcher, 1) != _DISMISSED:
            os.environ["CLUSTER_CWD"] = str(Path.cwd())  # as exec_cluster in common/lib.sh
            os.chdir(PROJECT_ROOT / "common")
            os.execv(sys.executable, [sys.executable, "-m", "oci_cluster", *words])  # noqa: S606 - our own interpreter
    finally:
        os._exit(0)
