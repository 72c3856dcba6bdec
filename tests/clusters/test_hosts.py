"""Clusters whose nodes have hosts of their own, where wrong interfaces, wrong addresses and dead links show.

A node is what a container runs: the agent, with the contract's environment and no NODE_ADDRESS. The work dir is a
directory that all hosts share, as if storage had a network of its own: a host whose link is cut still reaches it. So
agents go on hearing of each other, and what happens is what the framework makes of a peer that is silent.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from harness import UNTIL_GO, wait_until
from hosts import SUBNET, Host, Hosts, why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"hosts of their own: {WHY_NOT}")

CHECKOUT = Path(__file__).resolve().parents[2]
# Whose programs run on hosts. On a machine whose checkout is mounted, the hosts' overlay does not hold it.
PYTHONS = (CHECKOUT / ".venv", Path(sys.base_prefix))
THREE = ("main", "worker1", "worker2")


class Cluster:
    """Main's agent on the first host, a worker's on each of the others but ``store``."""

    def __init__(self, hosts: Hosts, framework: str, python: Path, project: Path, script: str, **environ: str) -> None:
        self.hosts = hosts
        self._work_dir = hosts.shared
        self._launch_id = secrets.token_hex(4)
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        nodes = [host for name, host in hosts.items() if name != "store"]
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
                "LAUNCH_ID": self._launch_id,
                "ENTRY_POINT": "entry.py",
                "SUBNET_CIDR": str(SUBNET),
                "TIMEOUT": "120",
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
                assert not list((host.root / "tmp").glob(f"{self._launch_id}-*")), f"left on {host.name}"
        return {name: agent.returncode for name, agent in self._agents.items()}


Launch = Callable[..., Cluster]


@pytest.fixture
def launch(checkout_copy: Path, tmp_path: Path) -> Iterator[Launch]:
    """Return a function that starts a cluster: `launch(framework, hostnames, entry point's text, NAME=value...)`."""
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


# --- Hosts themselves -------------------------------------------------------------------------------------


def test_hosts_reach_each_other_over_one_link_alone(tmp_path: Path) -> None:
    """Not over the decoy, not when the link is cut; and nobody reaches them from outside."""
    # Nothing listens there: who is reached refuses at once, who is not says nothing.
    connect = "import socket, sys; socket.create_connection((sys.argv[1], 9), 2)"
    with Hosts("one", "two", shared=tmp_path, readable=PYTHONS) as hosts:

        def answer(address: str) -> str:
            log = tmp_path / "log"
            log.unlink(missing_ok=True)
            hosts["one"].start([sys.executable, "-c", connect, address], os.environ, log).wait(240)
            return log.read_text().splitlines()[-1].partition(":")[0]

        assert answer(hosts["two"].address) == "ConnectionRefusedError"
        assert answer(hosts["two"].decoy) != "ConnectionRefusedError"
        hosts.cut("two")
        assert answer(hosts["two"].address) != "ConnectionRefusedError"
        hosts.heal("two")
        wait_until(lambda: answer(hosts["two"].address) == "ConnectionRefusedError", "the link to be back", 60.0)
        with pytest.raises(OSError, match="No route to host"):
            socket.create_connection((hosts["two"].address, 9), 0.5)


def test_hosts_end_with_who_made_them(tmp_path: Path) -> None:
    """A test run that is killed has no time to tidy up: nothing of its hosts goes on all the same."""
    script = (
        "import hosts, os, pathlib, sys\n"
        "with hosts.Hosts('one', shared=pathlib.Path(sys.argv[1])) as made:\n"
        "    made['one'].start(['sleep', '1000'], os.environ, pathlib.Path(sys.argv[1], 'log'))\n"
        "    while not made['one'].processes(): pass\n"
        "    print(made['one'].pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT / "tests")}
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        first = psutil.Process(int(maker.stdout.readline()))
        maker.send_signal(signal.SIGKILL)
    # It is reaped when the last process in its namespace has ended.
    wait_until(lambda: not first.is_running(), "the end of the host", 60.0)


# --- What nodes of every framework do ---------------------------------------------------------------------


def test_address_inside_the_subnet_is_found_beside_a_decoy(launch: Launch) -> None:
    """Not the first interface, the default route's or the hostname's: the one that the other nodes reach."""
    script = "import os; print('node', os.environ['NODE_ADDRESS'], os.environ['NODE_INTERFACE'])"
    cluster = launch("plain", ("main", "worker1"), script, FIND_INTERFACE="1")
    assert cluster.end() == {"main": 0, "worker1": 0}
    assert f"node {cluster.hosts['main'].address} eth1\n" in cluster.log("main")
    assert cluster.address("WORKER_1") == cluster.hosts["worker1"].address


@pytest.mark.parametrize("cidr", ["203.0.113.0/24", ""])
def test_address_that_cannot_be_told_is_refused_with_what_was_seen(launch: Launch, cidr: str) -> None:
    """A SUBNET_CIDR that is none of this host's, or none where there are two addresses: 78, and both by name."""
    cluster = launch("plain", ("main",), "", SUBNET_CIDR=cidr, MIN_WORKERS="0")
    assert cluster.end() == {"main": 78}
    host = cluster.hosts["main"]
    assert f"eth0 {host.decoy}" in cluster.log("main")
    assert f"eth1 {host.address}" in cluster.log("main")


def test_worker_host_that_dies_is_named_and_the_cluster_goes_on(launch: Launch) -> None:
    """Down to MIN_WORKERS, with the entry point's own code."""
    cluster = launch("plain", THREE, UNTIL_GO + "exit(7)", MIN_WORKERS="1")
    cluster.wait_for("entry up")
    cluster.wait_for("worker works", "worker2")
    cluster.hosts["worker2"].kill()
    cluster.wait_for("WORKER_2 lost: no heartbeat")
    cluster.go()
    assert cluster.end() == {"main": 7, "worker1": 7, "worker2": -signal.SIGKILL}


def test_main_host_that_dies_ends_the_workers_with_76(launch: Launch) -> None:
    """Nobody is left to write `stop`: its heartbeat has ended."""
    cluster = launch("plain", THREE, UNTIL_GO)
    for name, text in (("main", "entry up"), ("worker1", "worker works"), ("worker2", "worker works")):
        cluster.wait_for(text, name)
    cluster.hosts["main"].kill()
    assert cluster.end() == {"main": -signal.SIGKILL, "worker1": 76, "worker2": 76}
    assert "main lost: no heartbeat" in cluster.log("worker1")


def test_work_dir_on_another_host_is_all_that_nodes_share(launch: Launch) -> None:
    """Nodes have no file system in common: configurations, heartbeats, the end and outputs go to and from a server."""
    script = "import os; open(os.environ['OUTPUT_DIR'] + '/result', 'w').write('42')"
    cluster = launch("plain", ("main", "worker1", "store"), script)
    assert cluster.end() == {"main": 0, "worker1": 0}, cluster.logs()
    assert (cluster.hosts["store"].root / "tmp/cluster/outputs/MAIN/result").read_text() == "42"


def test_worker_cut_off_from_storage_too_is_lost_and_ends_by_itself(launch: Launch) -> None:
    """Main hears nothing of it: 76. It hears nothing at all, and nobody can tell it to end: 69 after TIMEOUT."""
    cluster = launch("plain", ("main", "worker1", "store"), UNTIL_GO, TIMEOUT="8")
    cluster.wait_for("entry up")
    cluster.wait_for("worker works", "worker1")
    cluster.hosts.cut("worker1")
    assert cluster.end() == {"main": 76, "worker1": 69}, cluster.logs()
    assert "WORKER_1 lost: no heartbeat" in cluster.log("main")


# --- Dask -------------------------------------------------------------------------------------------------

DASK_CLIENT = "import socket, time\nfrom distributed import Client\nclient = Client()\n"


def test_dask_runs_on_all_hosts_each_with_its_own_code(launch: Launch) -> None:
    """Tasks run on both workers' hosts and see that host's files; every address is the subnet's; the result comes."""
    script = DASK_CLIENT + (
        "seen = client.run(lambda: [socket.gethostname(), open('/code/whose').read()])\n"
        "print('hosts', sorted(seen.values()))\n"
        "print('addresses', sorted(address.rpartition(':')[0] for address in [client.scheduler.address, *seen]))\n"
        "print('sum', sum(client.gather(client.map(lambda x: x * x, range(100)))))\n"
    )
    cluster = launch("dask", THREE, script)
    assert cluster.end() == dict.fromkeys(THREE, 0)
    assert "hosts [['worker1', 'worker1'], ['worker2', 'worker2']]\n" in cluster.log("main")
    assert f"addresses {[f'tls://{host.address}' for host in cluster.hosts.values()]}\n" in cluster.log("main")
    assert "sum 328350\n" in cluster.log("main")


def test_dask_does_without_a_worker_whose_link_is_cut(launch: Launch) -> None:
    """No connection is closed, it is just silent: its tasks run elsewhere, the result comes, every node says 0."""
    script = DASK_CLIENT + (
        "def slow(x):\n    time.sleep(0.2)\n    return x\n"
        "futures = client.map(slow, range(40))\n"
        "print('working', flush=True)\n"
        "print('sum', sum(client.gather(futures)))\n"
    )
    # Dask gives a silent peer up after 30 s; 11 is the least that it takes.
    cluster = launch("dask", THREE, script, NTHREAD="2", DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP="11s")
    cluster.wait_for("working")
    cluster.hosts.cut("worker2")
    assert cluster.end() == dict.fromkeys(THREE, 0), cluster.logs()
    assert "sum 780\n" in cluster.log("main")


# --- Frameworks whose nodes all run the entry point -------------------------------------------------------

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

FOR_EVER = """
print("sum", add_up(), flush=True)
while True:
    add_up()
"""

# A rank that hears nothing fails with an exception; Horovod's main takes a node whose ssh is silent for 30 s for lost.
ENTRY_POINTS = {"pytorch": (PYTORCH, 1), "tensorflow": (TENSORFLOW, 1), "horovod": (HOROVOD, 76)}


@pytest.mark.timeout(900)  # the first to need Horovod's environment compiles it
@pytest.mark.parametrize("framework", ENTRY_POINTS)
def test_ranks_on_all_hosts_add_up_and_end_when_a_link_is_cut(launch: Launch, framework: str) -> None:
    """They find each other in spite of the decoy; a silent peer ends them all, with the code that the README says."""
    script, code = ENTRY_POINTS[framework]
    cluster = launch(framework, THREE, script + FOR_EVER)
    for name in THREE:
        cluster.wait_for("sum 3.0\n", name)
    # Not on the decoy's address, and not on all: whoever is there is no node.
    assert {host.name: host.listening() for host in cluster.hosts.values()} == {
        host.name: {host.address} for host in cluster.hosts.values()
    }
    cluster.hosts.cut("worker2")
    assert cluster.end() == dict.fromkeys(THREE, code), cluster.logs()
