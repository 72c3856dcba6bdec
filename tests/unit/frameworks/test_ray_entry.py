"""ray/entry/: what becomes of a script that names a Ray of its own machine; nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RAY = "def init(address=None, **options):\n    print('init', address, options)\n"


def run(folder: Path, code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a script as an entry point, with what stands for Ray."""
    (folder / "ray.py").write_text(RAY)
    path = f"{ROOT}/common/entry:{ROOT}/ray/entry:{folder}"
    return subprocess.run(
        [sys.executable, "-c", f"import ray\n{code}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("address", ["localhost:6379", "127.0.0.1", "local", "ray://localhost:10001"])
def test_an_address_of_one_machine_is_the_clusters(tmp_path: Path, address: str) -> None:
    """And so a size of its own is not asked for there."""
    ended = run(tmp_path, f"ray.init('{address}', num_cpus=4)", RAY_ADDRESS="10.0.0.1:6379", WORKER_COUNT="2")
    assert ended.stdout == "init None {}\n"
    assert ended.stderr.splitlines() == [
        f"ray.init('{address}') uses this cluster, whose address is another: leave it out",
        "ray.init(num_cpus=4) uses this cluster, of 2 workers; launch.sh sets their number and size",
    ]


@pytest.mark.parametrize("address", ["10.0.0.7:6379", "localhost.example:1", "auto"])
def test_other_addresses_are_as_they_are(tmp_path: Path, address: str) -> None:
    ended = run(tmp_path, f"ray.init('{address}')", RAY_ADDRESS="10.0.0.1:6379")
    assert (ended.stdout, ended.stderr) == (f"init {address} {{}}\n", "")


def test_without_a_cluster_nothing_changes(tmp_path: Path) -> None:
    ended = run(tmp_path, "ray.init('local', num_cpus=4)")
    assert (ended.stdout, ended.stderr) == ("init local {'num_cpus': 4}\n", "")
