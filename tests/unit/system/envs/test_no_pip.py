"""What stands in for pip in an environment of nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oci_cluster.system.envs.no_pip import put_into

pytestmark = pytest.mark.slow  # environments are made


@pytest.fixture(params=[".venv/envs/dask", ".venv-clusters/envs/dask", "opt/env"], ids=["here", "beside", "image"])
def environment(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return an environment without pip: on a user's machine, beside a ``.venv`` of his own, and in an image."""
    directory = tmp_path / "it's mine" / request.param
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    put_into(directory)
    return directory


@pytest.mark.parametrize("program", ["bin/pip", "bin/pip3", "bin/python -m pip"])
@pytest.mark.parametrize("words", ["install -q humanize x>4", "uninstall humanize"])
def test_packages_are_added_in_another_way(environment: Path, program: str, words: str) -> None:
    """78, and the options that do it; PATH may hold another pip, which is not called."""
    first, *rest = program.split()
    command = [environment / first, *rest, *words.split()]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    is_here, is_install = "envs" in environment.parts, words.startswith("install")
    names = ["humanize", "x>4"] if is_install else ["PACKAGE"]
    advice = f"packages are added when the image is built: list {' '.join(names)} in the file of EXTRA_ENV"
    if is_here:
        shown = ["--with humanize", "--with 'x>4'"] if is_install else ["--with PACKAGE"]
        advice = f"packages are added at the launch: {' '.join(shown)}"
    assert (ended.returncode, ended.stdout) == (78, "")
    assert ended.stderr == f"pip: error: all launches share this environment; {advice}\n"


def test_what_is_there_is_listed(environment: Path) -> None:
    """People look first."""
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "thing-1.2.dist-info").mkdir()
    (packages / "thing-1.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.2\n")
    for command in ("list", "freeze"):
        listed = subprocess.run([environment / "bin" / "pip", command], capture_output=True, text=True, check=True)
        assert listed.stdout == "thing==1.2\n"


def test_a_pip_that_is_there_stays(tmp_path: Path) -> None:
    """As conda brings one."""
    packages = tmp_path / "lib" / "python3.11" / "site-packages" / "pip"
    packages.mkdir(parents=True)
    put_into(tmp_path)
    assert list(packages.iterdir()) == []
    assert not (tmp_path / "bin").exists()
