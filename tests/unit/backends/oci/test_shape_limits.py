"""Which limits are about which shapes, by their names alone, and what nodes take of them."""

from __future__ import annotations

import pytest

from oci_cluster.backends.oci.shape_limits import (
    Machines,
    Unit,
    by_limit,
    counted,
    family_of,
    gpus_of,
    platform_of,
    unit_of,
)

E4 = "VM.Standard.E4.Flex"


@pytest.mark.parametrize(
    ("shape", "family", "gpus", "platform"),
    [
        ("VM.Standard2.4", "standard2", 0, "linux/amd64"),
        (E4, "standard-e4", 0, "linux/amd64"),
        ("VM.DenseIO.E4.Flex", "dense-io-e4", 0, "linux/amd64"),
        ("VM.Standard.A1.Flex", "standard-a1", 0, "linux/arm64"),
        ("VM.GPU.A10.2", "gpu-a10", 2, "linux/amd64"),
        ("VM.GPU2.1", "gpu2", 1, "linux/amd64"),
        ("BM.GPU.A100-v2.8", "gpu-a100-v2", 8, "linux/amd64"),
        ("BM.GPU.GB200.4", "gpu-gb200", 4, "linux/arm64"),
        ("VM.GPU.X.Flex", "gpu-x", 0, "linux/amd64"),
        ("E4", "", 0, "linux/amd64"),
    ],
)
def test_a_shapes_name_tells_its_family_its_gpus_and_its_platform(
    shape: str, family: str, gpus: int, platform: str
) -> None:
    assert (family_of(shape), gpus_of(shape), platform_of(shape)) == (family, gpus, platform)


@pytest.mark.parametrize(
    ("limit", "shape", "unit"),
    [
        ("ds-gpu-a10-count", "VM.GPU.A10.1", Unit.GPUS),
        ("ds-gpu-a10-count", "BM.GPU.A10.4", Unit.GPUS),
        ("ds-gpu4-count", "BM.GPU4.8", Unit.GPUS),
        ("gpu-a10-gpu-count", "VM.GPU.A10.1", Unit.GPUS),
        ("ds-standard-e4-core-count", E4, Unit.OCPUS),
        ("standard-e4-core-ad-count", E4, Unit.OCPUS),
        ("standard-e4-memory-regional-count", E4, Unit.GBS),
        ("ds-vm-standard-e4-memory-count", E4, Unit.GBS),
        ("ds-vm-standard2-1-count", "VM.Standard2.1", Unit.NODES),
        # Of others, or of nobody knows what.
        ("ds-gpu-a10-count", "VM.GPU.A100.1", None),
        ("ds-gpu-a100-count", "VM.GPU.A10.1", None),
        ("ds-standard-e4-core-count", "VM.Standard.E5.Flex", None),
        ("ds-bm-standard-e4-core-count", E4, None),
        ("ds-standard-e4-count", E4, None),
        ("ds-standard-e4-core-reserved-count", E4, None),
        ("ds-vm-standard2-1-count", "VM.Standard2.16", None),
        ("notebook-session-count", E4, None),
        ("ds--count", "E4", None),
    ],
)
def test_a_limit_is_about_a_shape_whose_family_it_names(limit: str, shape: str, unit: Unit | None) -> None:
    assert unit_of(limit, shape) is unit


def test_nodes_of_several_shapes_count_against_one_limit() -> None:
    """Main has one GPU, the workers two each; what counts OCPUs is a limit of its own."""
    machines = [Machines("VM.GPU.A10.1", 1, 15, 240), Machines("VM.GPU.A10.2", 3, 30, 480), Machines(E4, 1, 4, 64)]
    wanted = by_limit(["ds-gpu-a10-count", "ds-gpu2-count", "ds-standard-e4-core-count"], machines)
    assert [(one.limit, one.unit, one.amount) for one in wanted] == [
        ("ds-gpu-a10-count", Unit.GPUS, 7),
        ("ds-standard-e4-core-count", Unit.OCPUS, 4),
    ]
    assert by_limit([], machines) == []


def test_what_one_node_takes_that_nobody_knows_is_no_amount() -> None:
    """Never less than all of it."""
    machines = [Machines("VM.Standard2.1", 1, 1, 15), Machines("VM.Standard2.24", 3, 0, 0)]
    (wanted,) = by_limit(["ds-standard2-core-count"], machines)
    assert wanted.amount == 0


def test_roles_with_the_same_machine_are_counted_together() -> None:
    one, other = {"shape": E4, "ocpus": 4, "memory_gbs": 64}, {"shape": E4, "ocpus": 8, "memory_gbs": 64.5}
    machines = {"MAIN": one, "WORKER": one, "PS": other}
    assert counted({"MAIN": 1, "WORKER": 3, "PS": 0}, machines) == [Machines(E4, 4, 4, 64)]
    assert counted({"MAIN": 1, "WORKER": 3, "PS": 2}, machines) == [
        Machines(E4, 4, 4, 64),
        Machines(E4, 2, 8, 64.5),
    ]
