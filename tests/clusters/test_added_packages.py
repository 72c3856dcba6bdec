"""Packages that launches add to a framework's environment, as the index has them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oci_cluster.system.envs.env_file import requirements

CHECKOUT = Path(__file__).resolve().parents[2]
ADDED = [CHECKOUT / "common" / "env-notebook.yaml", *CHECKOUT.glob("scripts/sessions/*/env.yaml")]


@pytest.mark.parametrize("file", ADDED, ids=lambda path: path.parent.name)
def test_the_oldest_python_can_have_them(file: Path) -> None:
    """Frameworks' own are locked for all Pythons: `make lock` fails where one cannot have them."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--python-version", "3.10", "--no-header", "-"],
        input="\n".join(requirements(file)),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "==" in done.stdout
