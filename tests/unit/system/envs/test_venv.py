"""Which environment is the launcher's."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.system.fake_checkout import LOCKED, Checkout

from oci_cluster.system.envs.python_env import own_venv


@pytest.mark.parametrize(
    ("there", "name"),
    [
        ([], ".venv"),
        (["bin/python"], ".venv"),  # ours is made next
        (["pyvenv.cfg"], ".venv-clusters"),
        (["pyvenv.cfg", "bin/python", ".lock"], ".venv-clusters"),
        (["conda-meta/history", "bin/python"], ".venv-clusters"),
        (["pyvenv.cfg", ".launcher.lock"], ".venv"),
        (["pyvenv.cfg", ".uv.lock"], ".venv"),  # `make lock` came first
        (["pyvenv.cfg", ".tools-0a1b"], ".venv"),
        (["pyvenv.cfg", ".dev-installed"], ".venv"),
    ],
)
def test_a_venv_that_nothing_of_ours_has_made_is_the_users(tmp_path: Path, there: list[str], name: str) -> None:
    for file in there:
        (tmp_path / ".venv" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ".venv" / file).touch()
    assert own_venv(tmp_path) == tmp_path / name


def test_a_file_that_names_the_users_environment_stays(tmp_path: Path) -> None:
    (tmp_path / ".venv").write_text("mine\n")
    assert own_venv(tmp_path) == tmp_path / ".venv-clusters"


def test_nothing_is_installed_into_the_users_venv(checkout: Checkout) -> None:
    (checkout.root / ".venv").mkdir()
    (checkout.root / ".venv" / "pyvenv.cfg").touch()
    python = checkout.tools()
    assert python == checkout.root / ".venv-clusters" / "bin" / "python"
    assert checkout.calls() == [
        "BIN/uv venv --quiet --allow-existing --python BIN/host-python ROOT/.venv-clusters",
        f"BIN/uv pip install --python ROOT/.venv-clusters/bin/python {LOCKED}",
    ]
    assert checkout.said[0] == "making .venv-clusters for the launcher (first time only)"
    assert [path.name for path in (checkout.root / ".venv").iterdir()] == ["pyvenv.cfg"]
    checkout.tools()
    assert checkout.calls() == []
