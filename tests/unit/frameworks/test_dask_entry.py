"""dask/entry/: what becomes of a client that asks for workers of its own; nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENTRY = f"{ROOT}/common/entry:{ROOT}/dask/entry"
DASK = """
class config:
    get = staticmethod(lambda name, default=None: __import__("os").environ.get("ADDRESS", default))
"""
DISTRIBUTED = """
from distributed.client import Client

class LocalCluster:
    def __init__(self, n_workers=None, loop=None, **worker_kwargs): pass

class Nanny:
    def __init__(self, memory_limit="auto", **worker_kwargs): pass

class Worker:
    def __init__(self, nthreads=None, name=None): pass
"""
CLIENT = """
class Client:
    def __init__(self, address=None, loop=None, name=None, **kwargs):
        print("connects", address, name, kwargs)
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return what runs a script as an entry point, with what stands for Dask."""
    for name, text in {"dask": DASK, "distributed": DISTRIBUTED, "distributed/client": CLIENT}.items():
        is_package = name == "distributed"
        (tmp_path / name).mkdir() if is_package else None
        (tmp_path / name / "__init__.py" if is_package else tmp_path / f"{name}.py").write_text(text)

    def run(code: str, *, path: str = f"{ENTRY}:{tmp_path}", **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environ},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )

    return run


@pytest.mark.parametrize(
    ("given", "connects", "said"),
    [
        ("", "None None {}", ""),
        (
            "n_workers=4, memory_limit='2GB', nthreads=1",
            "None None {}",
            (
                "Client(memory_limit='2GB', n_workers=4, nthreads=1) uses this cluster's 3 worker nodes;"
                " launch.sh sets their number and size\n"
            ),
        ),
        ("name='mine'", "None mine {}", ""),
        ("adress='x'", "None None {'adress': 'x'}", ""),
        ("'10.0.0.5:8786', n_workers=4", "10.0.0.5:8786 None {'n_workers': 4}", ""),
    ],
)
def test_a_client_that_asks_for_workers_takes_those_of_the_cluster(
    run: Run, given: str, connects: str, said: str
) -> None:
    """What is neither a client's nor a local cluster's stays, for Dask to refuse, and so does an address."""
    done = run(f"from distributed import Client; Client({given})", ADDRESS="tls://10.0.0.1:8786", WORKER_COUNT="3")
    assert (done.stdout, done.stderr) == (f"connects {connects}\n", said)


def test_in_a_cluster_that_adapts_nobody_is_told_a_number(run: Run) -> None:
    """The launch began with none, perhaps."""
    environ = {"ADDRESS": "tls://10.0.0.1:8786", "WORKER_COUNT": "0", "ADAPT": "0:9"}
    done = run("from distributed import Client; Client(n_workers=4)", **environ)
    assert done.stderr == "Client(n_workers=4) uses this cluster's worker nodes: as many as ADAPT=0:9 allows\n"


def test_without_a_cluster_a_client_starts_its_own(run: Run) -> None:
    """No address is configured: Dask does what it always does."""
    done = run("from distributed import Client; Client(n_workers=4)")
    assert (done.stdout, done.stderr) == ("connects None None {'n_workers': 4}\n", "")


def test_who_takes_a_local_cluster_is_told_what_to_write(run: Run) -> None:
    """It runs, on main alone: that must not go unseen."""
    done = run("from distributed import Client, LocalCluster; Client(LocalCluster())", ADDRESS="tls://10.0.0.1:8786")
    assert done.stdout.startswith("connects <distributed.LocalCluster object")
    assert done.stderr == (
        "LocalCluster has started its workers on main alone; write Client() to use this cluster's workers\n"
    )


def test_a_script_without_dask_imports_nothing_of_it(run: Run) -> None:
    """Nor does the folder stay among those that modules are looked for in."""
    done = run("import sys; print('dask' in sys.modules, 'distributed' in sys.modules, sys.path)")
    assert done.stdout.startswith("False False ")
    assert not [entry for entry in ENTRY.split(":") if entry in done.stdout]


def test_a_module_of_the_users_may_have_the_name_of_ours(run: Run, tmp_path: Path) -> None:
    """What changes Dask has gone out of the way by then."""
    (tmp_path / "on_import.py").write_text("print('mine')")
    assert run("import on_import").stdout == "mine\n"


def test_the_users_own_sitecustomize_is_imported_all_the_same(run: Run, tmp_path: Path) -> None:
    """One hides the other in Python; a fault of the user's is the user's, as ever."""
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    assert run("import sitecustomize; print(sitecustomize.__file__)").stdout == f"mine\n{tmp_path}/sitecustomize.py\n"
    (tmp_path / "sitecustomize.py").write_text("import nowhere")
    assert "No module named 'nowhere'" in run("").stderr
