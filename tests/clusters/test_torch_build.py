"""`TORCH=cpu`: launches that make an environment, out of a folder of wheels, by the real uv."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Launch, Project, path_with_uv, with_own_environments
from unit.system.wheels import wheel

from oci_cluster.system.envs.package_lists import head

ENTRY = "import importlib.metadata as m\nprint('found', [m.version(name) for name in ('torch', 'helper')])"
PIP_LIST = ("torch==2.13.0", "helper==1.0")


class Site:
    """A project in which ``plain`` needs torch, and a folder that has two builds of it."""

    def __init__(self, project: Project, tmp_path: Path) -> None:
        self.project = with_own_environments(project, tmp_path / "other")
        self.wheels = [wheel(tmp_path / "wheels", *package.split("==")) for package in PIP_LIST]
        self.cpu_wheel = wheel(tmp_path / "cpu", "torch", "2.13.0+cpu")
        pip = "".join(f"      - {package}\n" for package in PIP_LIST)
        (self.project.path / "plain" / "env.yaml").write_text(f"name: plain\ndependencies:\n  - pip:\n{pip}")
        self.project.write("entry.py", ENTRY)
        self.environ = {
            "PATH": path_with_uv(tmp_path / "bin", Path(sys.executable).with_name("uv")),
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_EXTRA_INDEX_URL": "",
            "UV_CACHE_DIR": str(tmp_path / "cache"),
        }

    def lock(self) -> None:
        """Write the lock of the environment, with the hashes of torch without a label, and of all else."""
        lines = [
            f"{package} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
            for package, path in zip(PIP_LIST, self.wheels, strict=True)
        ]
        (self.project.path / "plain" / "env-lock.txt").write_text(head(PIP_LIST) + "".join(lines))

    def launch(self, torch: str, *places: Path) -> Launch:
        """Launch it, to its end, where pip's settings name *places*."""
        links = " ".join(map(str, places))
        environ = {**self.environ, "PIP_FIND_LINKS": links, "TORCH": torch}
        launch = self.project.launch("plain", "0", "--entry", "entry.py", **environ)
        launch.process.wait(240)
        return launch


@pytest.fixture
def site(project: Project, tmp_path: Path) -> Iterator[Site]:
    """Return a project whose launches install torch."""
    site = Site(project, tmp_path)
    yield site
    site.project.end_all()


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked", "not locked"])
def test_the_environment_has_the_build_for_cpus(site: Site, *, is_locked: bool) -> None:
    """Beside the same version without a label. An environment with that is made anew."""
    if is_locked:
        site.lock()
    both = (site.wheels[0].parent, site.cpu_wheel.parent)
    for torch, places, found in (("", both[:1], "2.13.0"), ("cpu", both, "2.13.0+cpu"), ("", both, "2.13.0+cpu")):
        launch = site.launch(torch, *places)
        assert launch.wait() == 0, launch.err
        assert f"found ['{found}', '1.0']" in launch.out
        assert ("hashes are not checked" not in launch.err) or not is_locked


def test_no_other_build_is_taken_where_there_is_none(site: Site) -> None:
    """The launch ends with the installer's words, and the next one does not take what this one has left."""
    for torch, code in (("cpu", 69), ("", 0)):
        launch = site.launch(torch, site.wheels[0].parent)
        assert launch.wait() == code, launch.err
    assert "found ['2.13.0', '1.0']" in launch.out
    assert "environment of plain" in launch.err
