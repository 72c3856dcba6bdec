"""Connections that say nothing, half a message, or nonsense without end: the project's own listeners go on."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest
from harness import Project, wait_until

pytestmark = pytest.mark.timeout(1800)  # the first to need Horovod's environment compiles it
SILENT = 200
# A server that takes one connection after the other is held up by each for Horovod's 3 s: 600 s in all.
START_S = 420.0
PYTORCH = """
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
add_up = lambda: dist.all_reduce(torch.ones(1))
"""
HOROVOD = """
import os, sys, time
import torch
import horovod.torch as hvd
hvd.init()
add_up = lambda: hvd.allreduce(torch.ones(1), name="ones")
"""
UNTIL_GO = (
    "add_up()\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)\nadd_up()\nsys.exit(7)\n"
)
# Script, and of each listener the node, the port, its setting, and the first half of a message.
FLOODED = {
    "pytorch": (PYTORCH, [("MAIN", 23600, "RENDEZVOUS_PORT", b"\x00\xce\xf7")]),
    "horovod": (
        HOROVOD,
        [
            ("MAIN", 23610, "RENDEZVOUS_PORT", b"PUT /global/0 HTTP/1.1\r\nContent-Length: 1000\r\n\r\nhalf"),
            ("WORKER_1", 23620, "SSH_PORT", b"SSH-2.0-half"),
        ],
    ),
}


class Flood:
    """Connections to one listener, from the moment at which it is there until ``stop``."""

    def __init__(self, address: str, port: int, half: bytes) -> None:
        self._end = (address, port)
        self._is_over = threading.Event()
        self._open: list[socket.socket] = []
        self.bytes_of_nonsense = 0
        self.is_whole = False
        self._threads = [threading.Thread(target=self._hold, args=(half,)), threading.Thread(target=self._talk)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Close everything."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        for connection in self._open:
            connection.close()

    def _connections(self) -> Iterator[socket.socket]:
        while not self._is_over.is_set():
            try:
                yield socket.create_connection(self._end, 10)
            except OSError:  # it does not listen yet, or no more
                self._is_over.wait(0.02)

    def _hold(self, half: bytes) -> None:
        for connection in self._connections():
            self._open.append(connection)
            if len(self._open) == 1:
                connection.sendall(half)
            if len(self._open) > SILENT:
                self.is_whole = True
                return

    def _talk(self) -> None:
        for connection in self._connections():
            connection.settimeout(10)
            try:
                while not self._is_over.is_set():
                    connection.sendall(os.urandom(4096))
                    self.bytes_of_nonsense += 4096
                    # For ever, and not as fast as this machine can: its CPUs are not what is tested.
                    self._is_over.wait(0.02)
            except OSError:  # hung up on; on to the next
                pass
            finally:
                connection.close()
            self._is_over.wait(0.05)


@pytest.mark.parametrize("framework", FLOODED)
def test_a_cluster_that_is_flooded_starts_runs_and_ends(project: Project, framework: str) -> None:
    """With its own code, and within the time that its start may take anyway."""
    script, listeners = FLOODED[framework]
    words = [word for _, port, setting, _ in listeners for word in ("--env", f"{setting}={port}")]
    entry = project.write("entry.py", script + UNTIL_GO)
    launch = project.launch(framework, "1", "--entry", entry, *words, TIMEOUT="300s")
    wait_until(lambda: " started: " in launch.err, "the start", 1700.0)
    nodes = launch.nodes()
    floods = [Flood(nodes[node]["address"], port, half) for node, port, _, half in listeners]
    try:
        for node in nodes:
            wait_until(
                lambda node=node: "\nup\n" in launch.log(node), f"{node}:\n{launch.err}{launch.out[-3000:]}", START_S
            )
        wait_until(lambda: all(flood.is_whole and flood.bytes_of_nonsense for flood in floods), "the flood")
        project.go()
        assert launch.wait() == 7, launch.err
    finally:
        for flood in floods:
            flood.stop()
    launch.assert_nothing_left()
