"""Ports of this machine: those of the settings, or the next free ones where nobody has chosen them."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path

import pytest
from unit.fake_local import LIMITS, make_plan

from oci_cluster.backends.local import addresses as local
from oci_cluster.backends.local.addresses import Addresses
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import SettingsError

linux = pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.x and abstract sockets are Linux's")

pytestmark = pytest.mark.usefixtures("no_other_claims")


@dataclass
class Machine:
    """Launches of one framework on this machine."""

    folder: Path
    said: list[str]

    def declare(self, text: str) -> None:
        """Have the framework say of itself that *text*."""
        (self.folder / "settings.env").write_text(text)

    def plan(
        self,
        ports: Mapping[str, int],
        chosen: Sequence[str] = (),
        exposed: Sequence[int] = (),
        texts: Sequence[str] = (),
    ) -> Plan:
        """Return a plan with *ports*, of which somebody has *chosen* some; its nodes have the addresses *texts*."""
        limits = changed(LIMITS, ports=ports, exposed=tuple(exposed))
        plan = make_plan(limits=limits, chosen=frozenset(chosen))
        nodes = [changed(plan.nodes[rank > 0], rank=rank, address=text) for rank, text in enumerate(texts)]
        return changed(plan, nodes=tuple(nodes) or plan.nodes)

    def take(self, addresses: Addresses, plan: Plan) -> dict[str, str]:
        """Return the ports that a launch of *plan* takes instead."""
        ports = local.Ports(plan, self.folder, addresses)
        for problem in ports.problems:
            raise problem
        self.said += ports.said()
        return {name: str(port) for name, port in ports.moved.items()}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine, and a framework that says nothing of itself."""
    return Machine(tmp_path, [])


def run_of_free_ports(count: int) -> int:
    """Return the first of *count* ports that nobody has, one after the other."""
    for first in range(20000, 32000, count):
        if all(local.port_is_free("0.0.0.0", first + more) for more in range(count)):  # noqa: S104 - tried, not served
            return first
    raise AssertionError


@contextlib.contextmanager
def listening(address: str, port: int) -> Iterator[None]:
    """Be another program that has *port*."""
    with socket.create_server((address, port)):
        yield


def test_a_default_port_that_is_taken_is_the_next_free_one(machine: Machine) -> None:
    """Neither that of another setting of the same cluster, nor one that it exposes; what is free stays; it is told."""
    first = run_of_free_ports(6)
    plan = machine.plan({"A_PORT": first, "B_PORT": first + 1}, exposed=[first + 2])
    with listening("127.0.0.1", first), listening("127.0.0.1", first + 3), Addresses(1) as addresses:
        assert machine.take(addresses, plan) == {"A_PORT": str(first + 4)}
    assert machine.said == [f"A_PORT {first} is taken; this cluster has {first + 4}"]


def test_a_default_port_that_is_free_is_taken_as_it_is(machine: Machine) -> None:
    with Addresses(2) as addresses:
        assert machine.take(addresses, machine.plan({"A_PORT": run_of_free_ports(1)})) == {}
    assert machine.said == []


@pytest.mark.parametrize("declared", ["", "MACHINE_PORTS=A_PORT\n"])
def test_a_chosen_port_that_is_taken_is_named_with_its_setting(machine: Machine, declared: str) -> None:
    """Somebody else's listener is found before anything starts."""
    machine.declare(declared)
    port = run_of_free_ports(1)
    where = "this machine" if declared else r"127\.0\.0\.1"
    with listening("127.0.0.1", port), Addresses(1) as addresses:
        with pytest.raises(SettingsError, match=rf"^port {port} of {where} is taken .* --env A_PORT={port + 100}$"):
            machine.take(addresses, machine.plan({"A_PORT": port}, chosen=["A_PORT"]))
        with pytest.raises(SettingsError, match=rf"^EXPOSE: port {port} of 127\.0\.0\.1 is taken"):
            machine.take(addresses, machine.plan({}, exposed=[port]))


@linux
def test_another_clusters_addresses_leave_a_port_free(machine: Machine) -> None:
    """Only what is of all addresses is taken by another cluster, and it is so before that listens."""
    machine.declare("MACHINE_PORTS=ALL_PORT\n")
    first = run_of_free_ports(5)
    plan = machine.plan({"ALL_PORT": first, "OWN_PORT": first + 1})
    with Addresses(2) as mine, Addresses(2) as yours:
        assert machine.take(mine, plan) == {}
        assert machine.take(yours, plan) == {"ALL_PORT": str(first + 2)}
        with listening("127.0.0.200", first + 3), Addresses(1) as third:
            assert machine.take(third, plan) == {"ALL_PORT": str(first + 4)}
        with Addresses(1) as chosen, pytest.raises(SettingsError, match=f"port {first} of this machine is taken"):
            machine.take(chosen, machine.plan({"ALL_PORT": first}, chosen=["ALL_PORT"]))


@linux
def test_a_port_of_all_addresses_and_one_of_an_address_exclude_each_other(machine: Machine) -> None:
    """Whichever is there first: neither listens yet."""
    machine.declare("MACHINE_PORTS=ALL_PORT\n")
    first = run_of_free_ports(4)
    of_all, of_one = machine.plan({"ALL_PORT": first}), machine.plan({"OWN_PORT": first})
    with Addresses(1) as one, Addresses(1) as two, Addresses(1) as three:
        assert machine.take(one, of_all) == {}
        assert machine.take(two, of_one) == {"OWN_PORT": str(first + 1)}
        assert machine.take(three, of_all) == {"ALL_PORT": str(first + 2)}


@linux
def test_launches_at_the_same_moment_take_different_ports(machine: Machine) -> None:
    machine.declare("MACHINE_PORTS=ALL_PORT\n")
    first = run_of_free_ports(16)
    plan, begin, found = machine.plan({"ALL_PORT": first}), threading.Barrier(8), []

    def launch() -> None:
        begin.wait()
        found.append(machine.take(addresses.enter_context(Addresses(1)), plan).get("ALL_PORT", str(first)))

    with contextlib.ExitStack() as addresses:
        launches = [threading.Thread(target=launch) for _ in range(8)]
        for thread in launches:
            thread.start()
        for thread in launches:
            thread.join()
    assert len(found) == len(set(found)) == 8


@linux
def test_a_claim_lives_as_long_as_the_runner_and_no_longer(machine: Machine) -> None:
    """Ports that were looked at and not taken are nobody's."""
    machine.declare("MACHINE_PORTS=ALL_PORT\n")
    first = run_of_free_ports(3)
    plan = machine.plan({"ALL_PORT": first})
    with Addresses(1) as launched, listening("127.0.0.1", first):
        machine.take(launched, plan)
        runner = subprocess.Popen(["sleep", "100"], pass_fds=launched.descriptors())
    try:
        assert local.all_claims() == {"127.0.0.1", f"*:{first + 1}"}
        with listening("127.0.0.1", first), Addresses(1) as other:
            assert machine.take(other, plan) == {"ALL_PORT": str(first + 2)}
    finally:
        runner.kill()
        runner.wait()
    assert local.all_claims() == set()


@linux
def test_each_node_has_a_port_of_its_own_as_far_from_mains_as_its_address(machine: Machine) -> None:
    """None of them is another cluster's, and a port is no port where one of them would be."""
    machine.declare("PORTS_BY_ADDRESS=TASK_PORT\n")
    first = run_of_free_ports(12)
    plan = machine.plan({"TASK_PORT": first})
    with Addresses(1) as hole, Addresses(1) as one, Addresses(1) as between:
        hole.close()  # 127.0.0.1 is free, .2 and .3 are not
        assert machine.take(one, plan) == {}
        with Addresses(2) as apart:
            assert apart.texts == ["127.0.0.1", "127.0.0.4"]
            assert machine.take(apart, plan) == {"TASK_PORT": str(first + 1)}
            assert {f"*:{first + 1}", f"*:{first + 4}"} <= local.all_claims()
            machine.take(between, plan)
            assert f"*:{first + 2}" in local.all_claims()


@linux
def test_the_last_ports_of_a_machine_do_for_main_alone(machine: Machine) -> None:
    """A node beyond them says itself that it has none."""
    machine.declare("PORTS_BY_ADDRESS=TASK_PORT\n")
    with Addresses(3) as addresses:
        assert machine.take(addresses, machine.plan({"TASK_PORT": 65535}, chosen=["TASK_PORT"])) == {}
    refused = pytest.raises(SettingsError, match="port 65534 of this machine is taken")
    with listening("127.0.0.1", 65534), Addresses(3) as addresses, refused:
        machine.take(addresses, machine.plan({"TASK_PORT": 65534}))


@linux
def test_a_node_that_joins_has_an_address_whose_port_is_free(machine: Machine) -> None:
    """Those of other clusters and programs are passed over, and stay theirs."""
    machine.declare("PORTS_BY_ADDRESS=TASK_PORT\n")
    first = run_of_free_ports(8)
    with Addresses(1) as mine, Addresses(1) as yours:
        machine.take(mine, machine.plan({"TASK_PORT": first}))
        machine.take(yours, machine.plan({"TASK_PORT": first + 2}, chosen=["TASK_PORT"]))
        plan = machine.plan({"TASK_PORT": first}, texts=mine.texts)
        with listening("127.0.0.1", first + 3), Addresses(2, local.suits(plan, machine.folder)) as joining:
            assert joining.texts == ["127.0.0.5", "127.0.0.6"]
            assert {f"*:{first + 4}", f"*:{first + 5}"} <= local.all_claims()
            with Addresses(1) as other:
                assert other.texts == ["127.0.0.3"]


def test_nodes_that_share_an_address_have_one_port_after_the_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MacOS has 127.0.0.1 alone, and no claims."""
    monkeypatch.setattr(local, "has_loopback_range", lambda: False)
    machine.declare("PORTS_BY_ADDRESS=TASK_PORT\n")
    first = run_of_free_ports(6)
    with listening("127.0.0.1", first + 1), Addresses(2) as addresses:
        assert machine.take(addresses, machine.plan({"TASK_PORT": first})) == {"TASK_PORT": str(first + 2)}
    assert local.all_claims() == set()
