"""What the name of a shape tells."""

from __future__ import annotations

import pytest

from oci_cluster.backends.oci.tenancy.shapes import is_flexible, is_gpu, platform_of


@pytest.mark.parametrize(
    ("shape", "flexible", "gpu", "platform"),
    [
        ("VM.Standard2.4", False, False, "linux/amd64"),
        ("VM.Standard.E4.Flex", True, False, "linux/amd64"),
        ("VM.Standard.A1.Flex", True, False, "linux/arm64"),
        ("VM.GPU.A10.2", False, True, "linux/amd64"),
        ("VM.GPU2.1", False, True, "linux/amd64"),
        ("BM.GPU.GB200.4", False, True, "linux/arm64"),
        ("E4", False, False, "linux/amd64"),
    ],
)
def test_a_shapes_name_tells_its_kind(shape: str, platform: str, *, flexible: bool, gpu: bool) -> None:
    assert (is_flexible(shape), is_gpu(shape), platform_of(shape)) == (flexible, gpu, platform)
