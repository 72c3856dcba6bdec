"""What nvidia-smi lists, and what CUDA_VISIBLE_DEVICES leaves of it; a stub stands for nvidia-smi."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from stub_gpus import listing, stub_nvidia_smi, uuid

from oci_cluster.system import gpus
from oci_cluster.system.gpus import Gpu, gpus_here, gpus_in, visible

MIG = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0a5c)
  MIG 3g.40gb     Device  0: (UUID: MIG-1c2d-4e)
  MIG 1g.10gb     Device  1: (UUID: MIG-GPU-5f6a/7/0)
GPU 1: NVIDIA A10 (UUID: GPU-1a5c)
"""


def ids(found: list[Gpu]) -> list[str]:
    return [gpu.id for gpu in found]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_gpus_are_those_that_nvidia_smi_lists(tmp_path: Path, environ: dict[str, str]) -> None:
    """It is not asked where the environment hides all."""
    stub_nvidia_smi(tmp_path, listing(2))
    assert gpus_here(environ) == [Gpu(str(index), "NVIDIA H100 80GB HBM3", uuid(index)) for index in range(2)]
    assert ids(gpus_here({**environ, "CUDA_VISIBLE_DEVICES": "1"})) == ["1"]
    assert gpus_here({**environ, "CUDA_VISIBLE_DEVICES": ""}) == []
    assert (tmp_path / "asked").read_text() == "-L\n-L\n"


@pytest.mark.parametrize(
    ("text", "then"),
    [(listing(2), "exit 9"), ("No devices were found\n\x1b[31mGPU x: y\n", ""), ("", "")],
    ids=["fails", "rubbish", "silent"],
)
def test_what_names_no_gpu_counts_as_none(tmp_path: Path, environ: dict[str, str], text: str, then: str) -> None:
    stub_nvidia_smi(tmp_path, text, then)
    assert gpus_here(environ) == []


def test_a_machine_without_it_and_one_where_it_cannot_run(tmp_path: Path, environ: dict[str, str]) -> None:
    assert gpus_here({"PATH": str(tmp_path)}) == []
    (tmp_path / "nvidia-smi").write_bytes(b"\0")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert gpus_here(environ) == []


def test_one_that_hangs_is_not_waited_for(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what it has started, which holds its output."""
    stub_nvidia_smi(tmp_path, listing(1), "sleep 60")
    monkeypatch.setattr(gpus, "PATIENCE_S", 0.2)
    began_at = time.monotonic()
    with pytest.raises(TimeoutError, match=r"nvidia-smi has not answered for 0\.2 s"):
        gpus_here(environ)
    assert time.monotonic() - began_at < 30


def test_instances_stand_for_the_gpu_that_mig_has_split() -> None:
    found = gpus_in(MIG)
    assert ids(found) == ["MIG-1c2d-4e", "MIG-GPU-5f6a/7/0", "1"]
    assert [gpu.name for gpu in found][1:] == ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A10"]
    assert ids(visible(found, "MIG-GPU-5f6a/7/0")) == ["MIG-GPU-5f6a/7/0"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ["0", "1", "2"]),
        ("2,0", ["2", "0"]),
        (" 1 , 2", ["1", "2"]),
        ("1,-1,2", ["1"]),
        ("3,1", []),
        ("NoDevFiles", []),
        ("0,1,0", []),  # one that is named twice hides all
        (f"{uuid(1)},GPU-2a", [uuid(1), "GPU-2a"]),
        ("0,GPU-0a", []),
        ("GPU-,1", []),  # the beginning of several
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(text: str | None, expected: list[str]) -> None:
    assert ids(visible(gpus_in(listing(3)), text)) == expected
