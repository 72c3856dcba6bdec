"""Which GPUs each node gets; tests/clusters/test_gpus.py has real nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from stub_gpus import listing
from unit.fake_local import make_plan

from oci_cluster.backends.local import gpus
from oci_cluster.backends.local.gpus import check_left, share_of, share_out
from oci_cluster.contract.cluster import Node, Plan
from oci_cluster.errors import SettingsError
from oci_cluster.system.gpus import gpus_in

TRAINS = "ENTRY_ON=all\nRANKS=auto\nRANKS_PER_NODE=RANKS\n"
MIG = "GPU 0: H100 (UUID: GPU-0)\n" + "".join(f"  MIG 1g.10gb Device {n}: (UUID: MIG-{n})\n" for n in range(5))


class Shop:
    """Launches on a machine with GPUs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.environ: dict[str, str] = {}
        self._patch = monkeypatch

    def plan(
        self, workers: int, there: str, *, servers: int = 0, each: str = "", settings: str = TRAINS, **own: str
    ) -> Plan:
        """Return the plan of a launch with its shares."""
        (self.folder / "settings.env").write_text(settings)
        self._patch.setattr(gpus, "gpus_here", lambda environ: gpus_in(there))
        nodes = [Node("MAIN", 0), *(Node("WORKER", rank + 1) for rank in range(workers))]
        nodes += [Node("PS", workers + 1 + rank) for rank in range(servers)]
        plan = make_plan(nodes=tuple(nodes), environment=own, settings={"GPUS_PER_NODE": each})
        return share_out(plan, self.folder, self.environ, self.said.append)

    def shares(self, workers: int, there: str, later: int = 0, **words: str) -> list[str | None]:
        """Return what each node sees of a launch, and of *later* workers; None: what the machine has."""
        plan = self.plan(workers, there, **words)  # type: ignore[arg-type]
        nodes = [*plan.nodes, *(Node("WORKER", len(plan.nodes) + rank) for rank in range(later))]
        return [share_of(plan, node).get("CUDA_VISIBLE_DEVICES") for node in nodes]


@pytest.fixture
def shop(root: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(root / "plain", monkeypatch)


def test_nodes_of_one_machine_share_its_gpus(shop: Shop) -> None:
    """In the order of their ranks; the next share is that of the next rank."""
    assert shop.shares(1, listing(4)) == ["0,1", "2,3"]
    assert shop.shares(0, listing(4)) == ["0,1,2,3"]
    assert shop.shares(1, "") == [None, None]
    assert shop.said == []
    assert shop.shares(2, listing(8), later=2) == ["0,1", "2,3", "4,5", "6,7", ""]
    assert shop.said.pop() == "GPUS_PER_NODE: 2 of 8 GPUs for each of 3 nodes; left over: 6,7"


def test_parameter_servers_get_none_and_do_not_count(shop: Shop) -> None:
    """The ranks of workers that join later follow theirs."""
    assert shop.shares(1, listing(3), later=1, servers=2) == ["0", "1", "", "", "2"]


@pytest.mark.parametrize(
    ("each", "expected"), [("all", [None, None]), ("0", ["", ""]), ("1", ["0", "1"]), ("2", ["0,1", "2,3"])]
)
def test_a_number_or_all(shop: Shop, each: str, expected: list[str | None]) -> None:
    assert shop.shares(1, listing(4), each=each, RANKS="1") == expected


def test_who_names_devices_has_shared_them_out(shop: Shop) -> None:
    assert shop.shares(5, listing(1), CUDA_VISIBLE_DEVICES="0") == [None] * 6


def test_instances_of_mig_go_to_nodes_one_by_one(shop: Shop) -> None:
    """A process sees one of them; Ray and Dask start processes that see one each."""
    assert shop.shares(1, MIG) == ["MIG-0", "MIG-1"]
    assert shop.shares(1, MIG, settings="") == ["MIG-2,MIG-3", "MIG-0,MIG-1"]


def test_workers_come_first_where_main_hands_out_work(shop: Shop) -> None:
    """There nodes do without, and one line says which."""
    assert shop.shares(2, listing(6), settings="") == ["4,5", "0,1", "2,3"]
    assert shop.said == []
    assert shop.shares(2, listing(1), later=1, settings="") == ["", "0", "", ""]
    assert shop.said.pop() == "GPUS_PER_NODE: 1 of 1 GPUs for each of 3 nodes; none for MAIN, WORKER_2"
    assert shop.shares(1, listing(4), later=1, settings="", each="2") == ["2,3", "0,1", ""]
    assert shop.shares(3, listing(1), SESSION="jupyter", SLOTS="9")[1:] == ["0", "", ""]


@pytest.mark.parametrize(
    ("workers", "there", "words", "why"),
    [
        (2, 2, {}, "this launch takes 3 GPUs (nodes: 3, each with 1), and this machine has 2; one node"),
        (1, 3, {"each": "2"}, "this launch takes 4 GPUs (nodes: 2, each with 2), and this machine has 3; one node"),
        (1, 0, {"each": "1"}, "this launch takes 2 GPUs (nodes: 2, each with 1), and this machine has 0; one node"),
        (
            0,
            1,
            {"each": "2", "settings": ""},
            "this launch takes 2 GPUs (nodes: 1, each with 2), and this machine has 1; one",
        ),
        (1, 4, {"RANKS": "4"}, "RANKS: 4 ranks on each node are more than its GPUs, 2 of 4; set RANKS=2, train"),
        (0, 2, {"RANKS": "3"}, "RANKS: 3 ranks on each node are more than its GPUs, 2 of 2; set RANKS=2, train"),
        (1, 1, {"settings": "GANG=1"}, "takes 2 GPUs"),
        (1, 1, {"settings": "S=auto\nRANKS_PER_NODE=S"}, "takes 2 GPUs"),
    ],
)
def test_what_does_not_fit_is_refused(shop: Shop, workers: int, there: int, words: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError) as refused:
        shop.plan(workers, listing(there), **words)  # type: ignore[arg-type]
    assert why in str(refused.value)
    assert "GPUS_PER_NODE=0" in str(refused.value)


def test_a_refusal_tells_what_the_environment_hides(shop: Shop) -> None:
    shop.environ["CUDA_VISIBLE_DEVICES"] = "3"
    with pytest.raises(
        SettingsError, match=r"takes 2 GPUs .*, and CUDA_VISIBLE_DEVICES=3 shows 1; one node .* where RANKS=auto is"
    ):
        shop.plan(1, listing(1))


def test_ranks_on_cpus_are_as_many_as_one_likes(shop: Shop) -> None:
    assert shop.shares(1, "", RANKS="4") == [None, None]
    assert shop.shares(1, listing(1), each="0", RANKS="4") == ["", ""]
    assert shop.shares(1, listing(1), each="all", RANKS="4") == [None, None]


def test_a_driver_that_hangs_fails_no_launch_on_cpus(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes are kept from asking it. Who wants GPUs is told."""

    def hang(_: object) -> None:
        raise TimeoutError("nvidia-smi has not answered")

    monkeypatch.setattr(gpus, "gpus_here", hang)
    placed = share_out(make_plan(), shop.folder, {}, shop.said.append)
    assert share_of(placed, placed.nodes[1]) == {"CUDA_VISIBLE_DEVICES": ""}
    assert shop.said == ["nvidia-smi has not answered; nodes see no GPU, as all that asks the driver would hang"]
    check_left(placed, shop.folder, [Node("WORKER", 9)])
    with pytest.raises(SettingsError, match="GPUS_PER_NODE=1: nvidia-smi has not answered; train on CPUs"):
        share_out(make_plan(settings={"GPUS_PER_NODE": "1"}), shop.folder, {}, shop.said.append)


def test_a_node_that_joins_needs_a_share_where_all_train(shop: Shop) -> None:
    plan = shop.plan(1, listing(3))
    check_left(plan, shop.folder, [Node("WORKER", 1), Node("WORKER", 2)])
    with pytest.raises(SettingsError, match="WORKER_3: there is no GPU left, those of this launch suffice for 3 nodes"):
        check_left(plan, shop.folder, [Node("WORKER", 2), Node("WORKER", 3)])
    check_left(shop.plan(1, listing(1), settings=""), shop.folder, [Node("WORKER", 3)])
    check_left(shop.plan(1, listing(1), each="0"), shop.folder, [Node("WORKER", 3)])
    check_left(shop.plan(1, ""), shop.folder, [Node("WORKER", 3)])
