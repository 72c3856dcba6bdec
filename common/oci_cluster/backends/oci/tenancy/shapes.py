"""Shapes by their names: form, flexible size, GPUs, and the platform of images."""

from __future__ import annotations

import difflib
import re

# Source: OCI's documentation of Compute shapes: a shape whose cores and memory are chosen has this at its name's end.
FLEXIBLE = ".Flex"
# Source: OCI's documentation of Data Science, "Supported Compute Shapes", and of Compute. New ones come: these are
# what a name is compared with that has none of the forms below.
KNOWN = (
    *("VM.Standard.E3.Flex", "VM.Standard.E4.Flex", "VM.Standard.E5.Flex", "VM.Standard3.Flex", "VM.Optimized3.Flex"),
    *("VM.Standard.A1.Flex", "VM.Standard.A2.Flex", "VM.Standard2.1", "VM.Standard2.4", "VM.Standard2.16"),
    *("VM.GPU2.1", "VM.GPU3.1", "VM.GPU3.4", "VM.GPU.A10.1", "VM.GPU.A10.2", "BM.GPU.A10.4"),
    *("BM.GPU2.2", "BM.GPU3.8", "BM.GPU4.8", "BM.GPU.A100-v2.8", "BM.GPU.H100.8", "BM.GPU.L40S.4"),
)
# The words of a shape's name: where it runs, its series, its processor, its size. VM.Standard.E6.Flex has this form.
FORM = re.compile(
    r"(VM|BM)\.(?P<series>Standard|Optimized|DenseIO|GPU|HPC)\d*(\.(?P<model>[A-Z]{1,3}\d{1,4}[A-Z]*(-[A-Za-z0-9]+)?))?"
    r"\.(?P<size>Flex|\d{1,3})"
)


def is_flexible(shape: str) -> bool:
    """Return whether cores and memory of *shape* are chosen."""
    return shape.endswith(FLEXIBLE)


def is_gpu(shape: str) -> bool:
    """Return whether *shape* has GPUs."""
    return re.match(r"(VM|BM)\.GPU", shape) is not None


def platform_of(shape: str) -> str:
    """Return the platform of images for nodes of *shape*, as container engines write it.

    Source: OCI's documentation of Compute shapes: those of Ampere (A1, A2, A4) and of Grace (GB200, GB300) are Arm.
    """
    return "linux/arm64" if re.match(r"(VM|BM)\.(Standard\.A\d+|GPU\.GB\d+)(\.|$)", shape) else "linux/amd64"


def nearest(shape: str) -> str:
    """Return the shape that *shape* is nearly; empty where it is like none."""
    if FORM.fullmatch(f"{shape}{FLEXIBLE}"):
        return f"{shape}{FLEXIBLE}"
    by_name = {name.lower(): name for name in KNOWN}
    alike = difflib.get_close_matches(shape.lower(), by_name, 1, 0.8)
    return by_name[alike[0]] if alike else ""
