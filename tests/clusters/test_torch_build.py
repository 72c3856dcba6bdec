"""`TORCH=cpu`: launches that make an environment, against indexes on this machine, by the real pip and the real uv."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from harness import Launch, Project, path_with_uv, with_own_environments
from unit.system.wheels import wheel

from oci_cluster.system.env_lock import head
from oci_cluster.system.pip_config import TORCH_CPU_INDEX

ENTRY = "import importlib.metadata as m\nprint('found', [m.version(name) for name in ('torch', 'helper')])"
PIP_LIST = ("torch==2.13.0", "helper==1.0")


class Indexes:
    """Two indexes: the default one has torch without a label and all else, PyTorch's has torch for CPUs alone."""

    def __init__(self, folder: Path, url: str, asked: list[str]) -> None:
        self.folder, self.url, self.asked = folder, url, asked
        self.wheels = [
            wheel(folder / "simple" / "torch", "torch", "2.13.0"),
            wheel(folder / "simple" / "helper", "helper", "1.0"),
        ]
        self.cpu_wheel = wheel(folder / "cpu" / "torch", "torch", "2.13.0+cpu")


@pytest.fixture
def indexes(tmp_path: Path) -> Iterator[Indexes]:
    """Return the indexes, as folders that a server lists (PEP 503)."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            asked.append(self.path)

    folder = tmp_path / "indexes"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Indexes(folder, f"http://127.0.0.1:{server.server_port}", asked)
    server.shutdown()
    server.server_close()


class Site:
    """A project in which PyTorch's index is the one of this machine; ``plain`` needs torch there."""

    def __init__(self, project: Project, tmp_path: Path, indexes: Indexes, uv: Path | None) -> None:
        self.project = with_own_environments(project, tmp_path / "other")
        settings = self.project.path / "common" / "oci_cluster" / "system" / "pip_config.py"
        text = settings.read_text()
        assert TORCH_CPU_INDEX in text
        settings.write_text(text.replace(TORCH_CPU_INDEX, f"{indexes.url}/cpu"))
        pip = "".join(f"      - {package}\n" for package in PIP_LIST)
        (self.project.path / "plain" / "env.yaml").write_text(f"name: plain\ndependencies:\n  - pip:\n{pip}")
        self.project.write("entry.py", ENTRY)
        self.environ = {
            "PATH": path_with_uv(tmp_path / "bin", uv),
            "PIP_INDEX_URL": f"{indexes.url}/simple",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": "",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_NO_CACHE_DIR": "1",
            "UV_CACHE_DIR": str(tmp_path / "cache"),
        }

    def lock(self, wheels: list[Path]) -> None:
        """Write the lock of the environment, with the hashes of *wheels*."""
        lines = [
            f"{package} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
            for package, path in zip(PIP_LIST, wheels, strict=True)
        ]
        (self.project.path / "plain" / "env-lock.txt").write_text(head(PIP_LIST) + "".join(lines))

    def launch(self, torch: str) -> Launch:
        launch = self.project.launch("plain", "0", "--entry", "entry.py", **self.environ, TORCH=torch)
        launch.process.wait(240)
        return launch


@pytest.fixture(params=["uv", "pip"])
def site(project: Project, tmp_path: Path, indexes: Indexes, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Return a project whose launches install with uv, or with pip."""
    uv = Path(sys.executable).with_name("uv") if request.param == "uv" else None
    site = Site(project, tmp_path, indexes, uv)
    yield site
    site.project.end_all()


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked", "not locked"])
def test_the_environment_has_the_build_for_cpus(site: Site, indexes: Indexes, *, is_locked: bool) -> None:
    """Beside a default index that has the same version without a label. An environment with that is made anew."""
    if is_locked:
        site.lock(indexes.wheels)
    for torch, found in (("", "2.13.0"), ("cpu", "2.13.0+cpu"), ("", "2.13.0+cpu")):
        launch = site.launch(torch)
        assert launch.wait() == 0, launch.err
        assert f"found ['{found}', '1.0']" in launch.out
        assert ("hashes are not checked" not in launch.err) or not is_locked
    assert [path for path in indexes.asked if path.startswith("/cpu/torch/")]


def test_no_other_build_is_taken_where_pytorchs_index_has_none(site: Site, indexes: Indexes) -> None:
    """The launch ends with the installer's words, and the next one does not take what this one has left."""
    indexes.cpu_wheel.unlink()
    for torch, code in (("cpu", 69), ("", 0)):
        launch = site.launch(torch)
        assert launch.wait() == code, launch.err
    assert "found ['2.13.0', '1.0']" in launch.out
    assert "environment of plain" in launch.err
