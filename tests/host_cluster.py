"""Clusters whose nodes have hosts of their own, for tests.

A node is what a container runs: the agent, with the contract's environment and no NODE_ADDRESS. The work dir is a
directory that all hosts share, as if storage had a network of its own: a host whose link is cut still reaches it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import wait_until
from hosts import SUBNET, Host, Hosts

# Each adds up a 1 of every rank until the link is cut.
PYTORCH = """\
from datetime import timedelta
import torch
import torch.distributed as dist

# What a silent peer costs is the script's to say; unsaid, half an hour.
dist.init_process_group("gloo", timeout=timedelta(seconds=20))

def add_up():
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()
"""

TENSORFLOW = """\
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

def all_reduce():
    return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0))

@tf.function
def step():
    return strategy.run(all_reduce)

def add_up():
    return float(strategy.experimental_local_results(step())[0])
"""

HOROVOD = """\
import horovod.torch as hvd
import torch

hvd.init()

def add_up():
    return hvd.allreduce(torch.ones(1), op=hvd.Sum, name="ones").item()
"""

# The same of each; "add_up()" is then the number of ranks.
RANKS = {"pytorch": PYTORCH, "tensorflow": TENSORFLOW, "horovod": HOROVOD}

CHECKOUT = Path(__file__).resolve().parents[1]
# Whose programs run on hosts. On a machine whose checkout is mounted, the hosts' overlay does not hold it.
PYTHONS = (CHECKOUT / ".venv", Path(sys.base_prefix))
# On these hosts there is no node.
OTHERS = ("store", "neighbour")


class Cluster:
    """Main's agent on the first host, a worker's on each of the others but OTHERS."""

    def __init__(self, hosts: Hosts, framework: str, python: Path, project: Path, script: str, **environ: str) -> None:
        self.hosts = hosts
        self._work_dir = hosts.shared
        self.launch_id = secrets.token_hex(4)
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        nodes = [host for name, host in hosts.items() if name not in OTHERS]
        for rank, host in enumerate(nodes):
            (host.root / "code" / "entry.py").write_text(script)
            (host.root / "code" / "whose").write_text(host.name)
            contract = {
                "MODE": "WORKER" if rank else "MAIN",
                "NODE_RANK": str(rank),
                "WORKER_COUNT": str(len(nodes) - 1),
                "FRAMEWORK": framework,
                "WORK_DIR": f"file://{self._work_dir}",
                "CLUSTER_ID": "cluster",
                "LAUNCH_ID": self.launch_id,
                "ENTRY_POINT": "entry.py",
                "SUBNET_CIDR": str(SUBNET),
                "TIMEOUT": "240",
                "HEARTBEAT_INTERVAL": "0.5",
                "HEARTBEAT_TIMEOUT": "20",
                # As in an image.
                "PATH": f"{python.parent}:/usr/sbin:/usr/bin:/sbin:/bin",
                "PYTHONPATH": str(project / "common"),
                "HOME": "/root",
            }
            command = ["python", "-m", "oci_cluster", "agent"]
            self._agents[host.name] = host.start(command, {**contract, **environ}, self._log(host.name))

    def _log(self, name: str) -> Path:
        return self._work_dir / f"{name}.log"

    def log(self, name: str) -> str:
        """Return what a host's node has printed so far."""
        return self._log(name).read_text()

    def logs(self) -> str:
        """Return what all nodes have printed, for the message of a failure."""
        return "".join(f"\n--- {name}\n{self.log(name)}" for name in self._agents)

    def wait_for(self, text: str, name: str = "main") -> None:
        """Return when a host's node has printed *text*."""

        def look() -> bool:
            assert self._agents[name].poll() is None, f"{name} ended before it printed {text!r}{self.logs()}"
            return text in self.log(name)

        wait_until(look, f"{text!r} of {name}")

    def address(self, node: str) -> str:
        """Return the address that *node* has published."""
        return str(json.loads((self._work_dir / "cluster" / f"{node}_config.json").read_text())["address"])

    def go(self) -> None:
        """Let the entry point on main go on that waits for it."""
        (self.hosts["main"].root / "code" / "go").touch()

    def end(self, within_s: float = 240.0) -> dict[str, int]:
        """Return every agent's exit code; whatever it was, nothing of the cluster may be left on any host."""
        deadline = time.monotonic() + within_s
        for name, agent in self._agents.items():
            try:
                agent.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pytest.fail(f"the agent on {name} did not end within {within_s:g} s{self.logs()}")
        for host in map(self.hosts.__getitem__, self._agents):
            if host.is_up():
                wait_until(
                    lambda host=host: not host.processes(), f"the end of {host.processes()} on {host.name}", 60.0
                )
                assert not list((host.root / "tmp").glob(f"{self.launch_id}-*")), f"left on {host.name}"
        return {name: agent.returncode for name, agent in self._agents.items()}


Launch = Callable[..., Cluster]


@contextlib.contextmanager
def launching(checkout_copy: Path, tmp_path: Path) -> Iterator[Launch]:
    """Yield a function that starts a cluster: `launch(framework, hostnames, entry point's text, NAME=value...)`."""
    shared = tmp_path / "shared"
    shared.mkdir()
    readable = (checkout_copy, *PYTHONS)
    with contextlib.ExitStack() as stack:

        def launch(framework: str, names: tuple[str, ...], script: str, **environ: str) -> Cluster:
            python = Path(sys.executable) if framework == "plain" else interpreter_of(framework)
            hosts = stack.enter_context(Hosts(*names, shared=shared, readable=readable))
            if "store" in names:
                environ = {**serve_ftp(hosts["store"], tmp_path / "ftp.log"), **environ}
            return Cluster(hosts, framework, python, checkout_copy, script, **environ)

        yield launch


def interpreter_of(framework: str) -> Path:
    """Return the interpreter of a framework's environment, which is made if it is not there."""
    command = [sys.executable, "-m", "oci_cluster", "prepare", framework]
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT / "common")}
    done = subprocess.run(command, cwd="/", env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


def serve_ftp(host: Host, log: Path) -> dict[str, str]:
    """Serve files on *host*; return the variables by which a node has its work dir there."""
    command = [sys.executable, "-m", "pyftpdlib", "--interface", host.address, "--write", "--directory", "/tmp"]
    server = host.start(command, {}, log)

    def look() -> bool:
        assert server.poll() is None, log.read_text()
        return "starting FTP server" in log.read_text()

    wait_until(look, "the FTP server")
    # Its client's own 30 s would make a test of each request that gets no answer.
    return {"WORK_DIR": f"ftp://{host.address}:2121/", "FSSPEC_FTP": json.dumps({"timeout": 1})}
