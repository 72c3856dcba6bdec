"""The package itself: its public names, and what an import of it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import oci_cluster

COMMON = Path(oci_cluster.__file__).parents[1]


def test_every_public_name_is_there() -> None:
    """Also for completion, before anything is imported."""
    for name in oci_cluster.__all__:
        assert getattr(oci_cluster, name).__name__ == name
    assert set(oci_cluster.__all__) <= set(dir(oci_cluster))
    with pytest.raises(AttributeError, match="module 'oci_cluster' has no attribute 'Clutser'"):
        _ = oci_cluster.Clutser


def test_an_import_of_the_package_imports_nothing_of_it() -> None:
    """Agents import it."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import oci_cluster; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code, COMMON], capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.split() if name.startswith("oci")] == ["oci_cluster"]


def test_the_door_imports_no_sdk_and_no_framework() -> None:
    """They are not there for everybody."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import oci_cluster; oci_cluster.Cluster, oci_cluster.Job\n"
        "print(sorted({'oci', 'ocifs', 'lightkube', 'httpx2', 'dask', 'distributed', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code, COMMON], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_types_are_told() -> None:
    assert (COMMON / "oci_cluster" / "py.typed").exists()
