"""Clusters whose nodes have hosts of their own, where wrong interfaces, wrong addresses and dead links show.

The work dir is as on a network of its own: agents go on hearing of each other over a cut link, and what happens is
what the framework makes of a peer that is silent.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from harness import UNTIL_GO, wait_until
from host_cluster import CHECKOUT, PYTHONS, RANKS, Launch
from hosts import Hosts, why_not

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"hosts of their own: {WHY_NOT}")

THREE = ("main", "worker1", "worker2")


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


def test_address_inside_the_subnet_is_found_beside_a_decoy(launch_on_hosts: Launch) -> None:
    """Not the first interface, the default route's or the hostname's: the one that the other nodes reach."""
    script = UNTIL_GO + "print('node', os.environ['NODE_ADDRESS'], os.environ['NODE_INTERFACE'])"
    cluster = launch_on_hosts("plain", ("main", "worker1"), script, FIND_INTERFACE="1")
    # A worker that comes when main has ended publishes nothing any more.
    cluster.wait_for("worker works", "worker1")
    cluster.go()
    assert cluster.end() == {"main": 0, "worker1": 0}
    assert f"node {cluster.hosts['main'].address} eth1\n" in cluster.log("main")
    assert cluster.address("WORKER_1") == cluster.hosts["worker1"].address


@pytest.mark.parametrize("cidr", ["203.0.113.0/24", ""])
def test_address_that_cannot_be_told_is_refused_with_what_was_seen(launch_on_hosts: Launch, cidr: str) -> None:
    """A SUBNET_CIDR that is none of this host's, or none where there are two addresses: 78, and both by name."""
    cluster = launch_on_hosts("plain", ("main",), "", SUBNET_CIDR=cidr, MIN_WORKERS="0")
    assert cluster.end() == {"main": 78}
    host = cluster.hosts["main"]
    assert f"eth0 {host.decoy}" in cluster.log("main")
    assert f"eth1 {host.address}" in cluster.log("main")


def test_worker_host_that_dies_is_named_and_the_cluster_goes_on(launch_on_hosts: Launch) -> None:
    """Down to MIN_WORKERS, with the entry point's own code."""
    cluster = launch_on_hosts("plain", THREE, UNTIL_GO + "exit(7)", MIN_WORKERS="1")
    cluster.wait_for("entry up")
    cluster.wait_for("worker works", "worker2")
    cluster.hosts["worker2"].kill()
    cluster.wait_for("WORKER_2 lost: no heartbeat")
    cluster.go()
    assert cluster.end() == {"main": 7, "worker1": 7, "worker2": -signal.SIGKILL}


def test_main_host_that_dies_ends_the_workers_with_76(launch_on_hosts: Launch) -> None:
    """Nobody is left to write `stop`: its heartbeat has ended."""
    cluster = launch_on_hosts("plain", THREE, UNTIL_GO)
    for name, text in (("main", "entry up"), ("worker1", "worker works"), ("worker2", "worker works")):
        cluster.wait_for(text, name)
    cluster.hosts["main"].kill()
    assert cluster.end() == {"main": -signal.SIGKILL, "worker1": 76, "worker2": 76}
    assert "main lost: no heartbeat" in cluster.log("worker1")


def test_work_dir_on_another_host_is_all_that_nodes_share(launch_on_hosts: Launch) -> None:
    """Nodes have no file system in common: configurations, heartbeats, the end and outputs go to and from a server."""
    script = "import os; open(os.environ['OUTPUT_DIR'] + '/result', 'w').write('42')"
    cluster = launch_on_hosts("plain", ("main", "worker1", "store"), script)
    assert cluster.end() == {"main": 0, "worker1": 0}, cluster.logs()
    assert (cluster.hosts["store"].root / "tmp/cluster/outputs/MAIN/result").read_text() == "42"


def test_worker_cut_off_from_storage_too_is_lost_and_ends_by_itself(launch_on_hosts: Launch) -> None:
    """Main hears nothing of it: 76. It hears nothing at all, and nobody can tell it to end: 69 after TIMEOUT."""
    cluster = launch_on_hosts("plain", ("main", "worker1", "store"), UNTIL_GO, TIMEOUT="20")
    cluster.wait_for("entry up")
    cluster.wait_for("worker works", "worker1")
    cluster.hosts.cut("worker1")
    assert cluster.end() == {"main": 76, "worker1": 69}, cluster.logs()
    assert "WORKER_1 lost: no heartbeat" in cluster.log("main")


# --- Dask -------------------------------------------------------------------------------------------------

DASK_CLIENT = "import socket, time\nfrom distributed import Client\nclient = Client()\n"


def test_dask_runs_on_all_hosts_each_with_its_own_code(launch_on_hosts: Launch) -> None:
    """Tasks run on both workers' hosts and see that host's files; every address is the subnet's; the result comes."""
    script = DASK_CLIENT + (
        "seen = client.run(lambda: [socket.gethostname(), open('/code/whose').read()])\n"
        "print('hosts', sorted(seen.values()))\n"
        "print('addresses', sorted(address.rpartition(':')[0] for address in [client.scheduler.address, *seen]))\n"
        "print('sum', sum(client.gather(client.map(lambda x: x * x, range(100)))))\n"
    )
    cluster = launch_on_hosts("dask", THREE, script)
    assert cluster.end() == dict.fromkeys(THREE, 0)
    assert "hosts [['worker1', 'worker1'], ['worker2', 'worker2']]\n" in cluster.log("main")
    assert f"addresses {[f'tls://{host.address}' for host in cluster.hosts.values()]}\n" in cluster.log("main")
    assert "sum 328350\n" in cluster.log("main")


def test_dask_does_without_a_worker_whose_link_is_cut(launch_on_hosts: Launch) -> None:
    """No connection is closed, it is just silent: its tasks run elsewhere, the result comes, every node says 0."""
    script = DASK_CLIENT + (
        "def slow(x):\n    time.sleep(0.2)\n    return x\n"
        "futures = client.map(slow, range(40))\n"
        "print('working', flush=True)\n"
        "print('sum', sum(client.gather(futures)))\n"
    )
    # Dask gives a silent peer up after 30 s; 11 is the least that it takes.
    cluster = launch_on_hosts("dask", THREE, script, NTHREAD="2", DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP="11s")
    cluster.wait_for("working")
    cluster.hosts.cut("worker2")
    assert cluster.end() == dict.fromkeys(THREE, 0), cluster.logs()
    assert "sum 780\n" in cluster.log("main")


# --- Frameworks whose nodes all run the entry point -------------------------------------------------------

FOR_EVER = """
print("sum", add_up(), flush=True)
while True:
    add_up()
"""

# A rank that hears nothing fails with an exception; Horovod's main takes a node whose ssh is silent for 30 s for lost.
CODES = {"pytorch": 1, "tensorflow": 1, "horovod": 76}


@pytest.mark.timeout(1800)  # the first to need Horovod's environment compiles it
@pytest.mark.parametrize("framework", CODES)
def test_ranks_on_all_hosts_add_up_and_end_when_a_link_is_cut(launch_on_hosts: Launch, framework: str) -> None:
    """They find each other in spite of the decoy; a silent peer ends them all, with the code that the README says."""
    cluster = launch_on_hosts(framework, THREE, RANKS[framework] + FOR_EVER)
    for name in THREE:
        cluster.wait_for("sum 3.0\n", name)
    # Not on the decoy's address, and not on all, which TensorFlow cannot be told: whoever is there is no node.
    for host in cluster.hosts.values():
        assert {address for address, _ in host.listening()} == {host.address if framework != "tensorflow" else "*"}
    cluster.hosts.cut("worker2")
    assert cluster.end() == dict.fromkeys(THREE, CODES[framework]), cluster.logs()
