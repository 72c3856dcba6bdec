"""ray/entry/: what becomes of a script that names a Ray of its own machine; nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RAY = "def init(address=None, **options):\n    print('init', address, options)\n"
ENVIRONMENT = "class RuntimeEnv(dict):\n    def __init__(self, **options):\n        print('asked', sorted(options))\n"
ASK = """
from ray.runtime_env import RuntimeEnv
try:
    RuntimeEnv(**{asked})
except ValueError as error:
    print(error)
"""


def run(folder: Path, code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a script as an entry point, with what stands for Ray."""
    (folder / "ray").mkdir(exist_ok=True)
    (folder / "ray" / "__init__.py").write_text(RAY)
    (folder / "ray" / "runtime_env.py").write_text(ENVIRONMENT)
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


@pytest.mark.parametrize(
    ("asked", "advice"),
    [
        ({"pip": ["humanize", "x>4"]}, "--with humanize --with 'x>4'"),
        ({"pip": {"packages": ["humanize"], "pip_check": False}}, "--with humanize"),
        ({"pip": "requirements.txt"}, "--with requirements.txt"),
        ({"uv": ["humanize"]}, "--with humanize"),
    ],
)
def test_packages_of_a_runtime_env_are_refused_at_once(tmp_path: Path, asked: dict[str, object], advice: str) -> None:
    """Ray would copy the environment on each node first, which takes minutes, and then have no pip."""
    (tmp_path / "pip.py").write_text("# stands in for pip\n")
    ended = run(tmp_path, ASK.format(asked=asked))
    assert ended.stdout.endswith(f"nodes have no pip; packages are added at the launch: {advice}\n")


def test_a_runtime_env_without_packages_or_beside_a_pip_is_as_it_is(tmp_path: Path) -> None:
    """One's own environment may have one."""
    (tmp_path / "pip.py").write_text("__version__ = '25'\n")
    code = "from ray.runtime_env import RuntimeEnv\nRuntimeEnv(pip=['x'])\nRuntimeEnv(env_vars={'A': '1'})"
    assert run(tmp_path, code).stdout == "asked ['pip']\nasked ['env_vars']\n"
