"""The agents of one launch on this machine, as a queue runs them: started, interrupted, started again; no launcher."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import processes_of, wait_until

from oci_cluster.backends.local.addresses import Addresses


class QueuedNodes:
    """Main and workers with one environment for all their lives."""

    def __init__(
        self, project: Path, scratch: Path, python: Path, framework: str, workers: int, **environ: str
    ) -> None:
        self.code, self.work_dir = scratch / "code", scratch / "work"
        self._logs, temporary = scratch / "logs", scratch / "tmp"
        for folder in (self.code, self.work_dir, self._logs, temporary):
            folder.mkdir()
        self.temporary = temporary
        self.launch_id = secrets.token_hex(4)
        self._addresses = Addresses(workers + 1)
        self._python = python
        self._environs: dict[str, dict[str, str]] = {}
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, int] = {}
        for rank, address in enumerate(self._addresses.texts):
            self._environs[f"WORKER_{rank}" if rank else "MAIN"] = {
                "MODE": "WORKER" if rank else "MAIN",
                "NODE_RANK": str(rank),
                "NODE_ADDRESS": address,
                "WORKER_COUNT": str(workers),
                "FRAMEWORK": framework,
                "WORK_DIR": f"file://{self.work_dir}",
                "CLUSTER_ID": "cluster",
                "LAUNCH_ID": self.launch_id,
                "LAUNCH_KEY": secrets.token_hex(32) if not rank else self._environs["MAIN"]["LAUNCH_KEY"],
                "ENTRY_POINT": "entry.py",
                "CODE_DIR": str(self.code),
                "TIMEOUT": "180",
                "POLL_CEILING": "0.5",
                "HEARTBEAT_INTERVAL": "0.5",
                "HEARTBEAT_TIMEOUT": "60",
                "INTERRUPTIBLE": "1",
                "NODE_CPUS": "1",
                "PATH": f"{python.parent}:/usr/sbin:/usr/bin:/sbin:/bin",
                "PYTHONPATH": str(project / "common"),
                "HOME": os.environ.get("HOME", "/root"),
                "TMPDIR": str(temporary),
                **environ,
            }

    @property
    def main_address(self) -> str:
        """Return the address of main, which no other cluster of this machine has."""
        return self._addresses.texts[0]

    def give(self, **environ: str) -> None:
        """Give all nodes more settings, before they are started."""
        for own in self._environs.values():
            own.update(environ)

    @property
    def names(self) -> list[str]:
        """Return the names of all nodes."""
        return [*self._environs]

    def write_entry(self, text: str) -> None:
        """Write the user's script."""
        (self.code / "entry.py").write_text(text)

    def start(self, nodes: Iterable[str] | None = None) -> None:
        """Start *nodes*, or all, each in a session of its own, as a container is."""
        for node in self.names if nodes is None else nodes:
            if node in self._agents:  # no service starts one twice at a time
                self._agents[node].wait(60)
            self._starts[node] = self._starts.get(node, 0) + 1
            with self._log(node).open("wb") as log:
                self._agents[node] = subprocess.Popen(
                    [str(self._python), "-m", "oci_cluster", "agent"],
                    cwd="/",
                    env=self._environs[node],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def _log(self, node: str, start: int | None = None) -> Path:
        return self._logs / f"{node}.{start or self._starts.get(node, 0)}.log"

    def log(self, node: str = "MAIN", start: int | None = None) -> str:
        """Return what a node has printed after its last start, or after that of a number."""
        path = self._log(node, start)
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self) -> str:
        """Return what all have printed, for the message of a failure."""
        return "".join(
            f"\n--- {path.name}\n{path.read_text(errors='replace')}" for path in sorted(self._logs.iterdir())
        )

    def file(self, name: str) -> dict[str, Any]:
        """Return a file of the cluster dir; nothing where it is not there, or not yet whole."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return dict(json.loads((self.work_dir / "cluster" / name).read_text()))
        return {}

    def wait_for_file(self, name: str) -> None:
        """Return when a file is in the cluster dir."""
        wait_until((self.work_dir / "cluster" / name).exists, lambda: f"{name}{self.logs()}")

    def environ(self, node: str) -> dict[str, str]:
        """Return what a node's agent is started with, each time."""
        return self._environs[node]

    def wait_for(self, text: str, node: str = "MAIN", start: int | None = None) -> None:
        """Return when a node has printed *text* after a start; fail when it has ended before."""

        def look() -> bool:
            has_ended = self._agents[node].poll() is not None
            if text in self.log(node, start):
                return True
            assert not has_ended, f"{node} ended before {text!r}{self.logs()}"
            return False

        wait_until(look, lambda: f"{text!r} of {node}{self.logs()}")

    def interrupt(self, nodes: Iterable[str] | None = None, number: int = signal.SIGTERM) -> None:
        """Send TERM to the agents of *nodes*, or of all that run."""
        for node, agent in self._agents.items():
            if agent.poll() is None and (nodes is None or node in nodes):
                agent.send_signal(number)

    def end(self, within_s: float = 240.0) -> dict[str, int]:
        """Return the exit codes of all that were started; nothing of them may be left."""
        deadline = time.monotonic() + within_s
        for node, agent in self._agents.items():
            try:
                agent.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pytest.fail(f"{node} did not end{self.logs()}")
        codes = {node: agent.returncode for node, agent in self._agents.items()}
        if -signal.SIGKILL not in codes.values():
            wait_until(lambda: not processes_of(self.launch_id), lambda: f"the end of {processes_of(self.launch_id)}")
            assert not list(self.temporary.glob(f"{self.launch_id}-*"))
        self._agents.clear()
        return codes

    def kill_processes(self) -> None:
        """Kill what killed agents have left, as a container's end does."""
        while left := processes_of(self.launch_id):
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def close(self) -> None:
        """Kill what a failed test has left."""
        self.kill_processes()
        for agent in self._agents.values():
            agent.wait()
        self._addresses.close()
