"""The environment of a framework."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.system.fake_checkout import ENV_YAML, Checkout

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.system.envs import python_env
from oci_cluster.system.envs.python_env import ensure_framework


def test_a_frameworks_environment_is_made_with_uv(checkout: Checkout) -> None:
    """It has the pip packages of env.yaml, beside the launcher's own environment, which is made first."""
    python = checkout.framework()
    assert (python, checkout.calls()[2:]) == (
        checkout.root / ".venv" / "envs" / "dask" / "bin" / "python",
        [
            "ROOT/.venv/bin/python -m oci_cluster requirements ROOT/dask/env.yaml",
            "BIN/uv venv --quiet --allow-existing --python ROOT/.venv/bin/python ROOT/.venv/envs/dask",
            "BIN/uv pip install --python ROOT/.venv/envs/dask/bin/python --requirement wanted <dask==1.0 bokeh==2.0 >",
        ],
    )


def test_a_frameworks_environment_names_its_real_place(checkout: Checkout, tmp_path: Path) -> None:
    """Where .venv is a link, what is installed does not name the link, which may go before it does."""
    (tmp_path / "real").mkdir()
    (checkout.root / ".venv").symlink_to(tmp_path / "real")
    assert checkout.framework() == (tmp_path / "real").resolve() / "envs" / "dask" / "bin" / "python"


def test_a_frameworks_environment_is_made_once(checkout: Checkout) -> None:
    """The second launch takes the cached one."""
    first = checkout.framework()
    checkout.calls()
    assert (checkout.framework(), checkout.calls()) == (first, [])


def test_another_env_file_makes_the_environment_anew(checkout: Checkout) -> None:
    """When env.yaml changes nothing of the old environment is left."""
    leftover = checkout.framework().parent.parent / "leftover"
    leftover.touch()
    checkout.env_file.write_text(ENV_YAML.replace("dask==1.0", "dask==2.0"))
    checkout.calls()
    checkout.framework()
    assert (leftover.exists(), checkout.calls()[-1].endswith(" <dask==2.0 bokeh==2.0 >")) == (False, True)


def test_another_python_makes_the_environment_anew(checkout: Checkout) -> None:
    """Packages of one Python are of no use to another, when .venv is made anew with that."""
    leftover = checkout.framework().parent.parent / "leftover"
    leftover.touch()
    (checkout.root / ".venv" / "pyvenv.cfg").write_text("version_info = 4.0\n")
    checkout.framework()
    assert not leftover.exists()


def test_a_half_made_environment_is_made_anew(checkout: Checkout) -> None:
    """An installation that was broken off leaves no stamp: the next launch begins with an empty folder."""
    checkout.tools()
    checkout.set(STUB_FAILS="1")
    with pytest.raises(BackendError):
        checkout.framework()
    leftover = checkout.root / ".venv" / "envs" / "dask" / "leftover"
    leftover.touch()
    checkout.set(STUB_FAILS="0")
    assert (checkout.framework().exists(), leftover.exists()) == (True, False)


def test_an_env_file_that_cannot_be_used_leaves_the_old_environment(checkout: Checkout) -> None:
    """A wrong env.yaml is a wrong setting (78), found before anything is removed."""
    old = checkout.framework()
    checkout.env_file.write_text("dependencies:\n  - numpy\n")
    with pytest.raises(SettingsError, match=r"asks for conda packages \(numpy\)"):
        checkout.framework()
    assert old.exists()


def test_an_env_file_that_cannot_be_used_is_told_once(checkout: Checkout) -> None:
    """The verb's message is told without its program's name: who calls adds that."""
    checkout.env_file.write_text("dependencies:\n  - numpy\n")
    with pytest.raises(SettingsError) as caught:
        checkout.framework()
    assert str(caught.value).startswith(str(checkout.env_file))


# --- PyTorch's builds -----------------------------------------------------------------------------------------------

SIZE = "torch from PyPI brings NVIDIA's libraries: 5.4 GB on disk"
ADVICE = "; without a GPU, PyTorch's CPU build does with 1.1 GB: Ctrl-C, then TORCH=cpu before the same command"


def with_torch(checkout: Checkout) -> Checkout:
    """Have the framework ask for torch, on Linux on x86-64, without a GPU."""
    checkout.env_file.write_text(ENV_YAML.replace("bokeh==2.0", "torch==2.13.0"))
    checkout.tools()
    checkout.calls()
    checkout.said.clear()
    return checkout


@pytest.fixture(autouse=True)
def _linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(python_env.os, "uname", lambda: SimpleNamespace(machine="x86_64"))


def test_the_cpu_build_is_one_word_away(checkout: Checkout) -> None:
    """TORCH=cpu: PyTorch's index for torch, the user's for all else, and no other build, whatever the places have."""
    with_torch(checkout).set(PIP_EXTRA_INDEX_URL="https://mine/simple")
    ensure_framework(checkout.root, checkout.env_file, checkout.said.append, "cpu")
    assert checkout.calls()[-1] == (
        "BIN/uv pip install --python ROOT/.venv/envs/dask/bin/python --requirement wanted"
        " UV_INDEX=https://mine/simple UV_INDEX_STRATEGY=unsafe-best-match UV_TORCH_BACKEND=cpu"
        " <dask==1.0 torch==2.13.0 torch==2.13.0+cpu >"
    )
    assert not any(SIZE in said for said in checkout.said)


def test_the_size_is_said_before_it_begins(checkout: Checkout) -> None:
    """Who has no GPU is told how to do with less."""
    with_torch(checkout).framework()
    assert checkout.said[:2] == ["making the Python environment of dask (first time only)", f"  {SIZE}{ADVICE}"]


def test_with_a_gpu_the_size_alone_is_said(checkout: Checkout, tmp_path: Path) -> None:
    """It is what they need."""
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    with_torch(checkout).framework()
    assert checkout.said[1] == f"  {SIZE}"


def test_who_has_told_pip_of_cpu_builds_is_told_nothing(checkout: Checkout, tmp_path: Path) -> None:
    """A folder that has the wheel, or an index beside PyPI: their settings win."""
    (tmp_path / "torch-2.13.0+cpu-cp311-none-any.whl").touch()
    with_torch(checkout).set(PIP_FIND_LINKS=str(tmp_path))
    checkout.framework()
    checkout.env_file.write_text(checkout.env_file.read_text() + "      - more==1\n")
    checkout.set(PIP_FIND_LINKS="", PIP_EXTRA_INDEX_URL="https://mine/cpu")
    checkout.framework()
    assert not any(SIZE in said for said in checkout.said)


def test_an_environment_of_the_other_build_is_made_anew(checkout: Checkout) -> None:
    """Who asks for the CPU build gets it; who does not ask keeps what is there."""
    python = with_torch(checkout).framework()
    (python.parents[1] / "lib" / "python3" / "site-packages" / "torch-2.13.0.dist-info").mkdir(parents=True)
    checkout.calls()
    ensure_framework(checkout.root, checkout.env_file, checkout.said.append, "cpu")
    assert " torch==2.13.0+cpu >" in checkout.calls()[-1]
    (python.parents[1] / "lib" / "python3" / "site-packages" / "torch-2.13.0+cpu.dist-info").mkdir(parents=True)
    for torch in ("cpu", ""):
        ensure_framework(checkout.root, checkout.env_file, checkout.said.append, torch)
    assert checkout.calls() == []


def test_who_calls_in_another_python_makes_nothing_anew(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes' Python is that of the launcher's own environment, whichever one runs this code."""
    checkout.make_tools()
    checkout.framework()
    checkout.calls()
    monkeypatch.setattr(sys, "prefix", "/elsewhere")
    monkeypatch.setattr(sys, "version", "4.0")
    checkout.framework()
    assert checkout.calls() == []


@pytest.mark.parametrize("killed", [False, True])
def test_one_that_cannot_be_made_anew_leaves_the_old_one(checkout: Checkout, *, killed: bool) -> None:
    """Offline, or where PyTorch's index is not to be reached: the next launch without TORCH needs nothing."""
    directory = with_torch(checkout).framework().parents[1]
    (directory / "lib" / "python3" / "site-packages" / "torch-2.13.0.dist-info").mkdir(parents=True)
    added = directory.with_name("dask+0123456789ab")
    added.mkdir()
    if killed:  # in the middle of it: nobody puts the old one back
        directory.rename(directory.with_name("dask.old"))
        (directory / "bin").mkdir(parents=True)
    checkout.set(STUB_FAILS="1")
    with pytest.raises(BackendError):
        ensure_framework(checkout.root, checkout.env_file, checkout.said.append, "cpu")
    checkout.calls()
    checkout.framework()
    assert (checkout.calls(), added.exists()) == ([], True)
    checkout.set(STUB_FAILS="0")
    ensure_framework(checkout.root, checkout.env_file, checkout.said.append, "cpu")
    assert " torch==2.13.0+cpu >" in checkout.calls()[-1]
    assert sorted(path.name for path in directory.parent.iterdir()) == ["dask"]
