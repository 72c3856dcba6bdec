"""Where an image would be built: real venvs, the real uv, and tiny wheels in a directory in the place of an index."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from oci_cluster.images.install import install


def wheel(directory: Path, name: str, version: str, files: Mapping[str, str] | None = None, needs: str = "") -> None:
    """Make a wheel that holds *files*, or a module of its name."""
    meta = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in (files or {f"{name}.py": f"version = '{version}'\n"}).items():
            archive.writestr(path, text)
        needed = f"Requires-Dist: {needs}\n" if needs else ""
        archive.writestr(f"{meta}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
        archive.writestr(f"{meta}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{meta}/RECORD", "")


class Image:
    """Where an image would be built."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.wheels = place / "wheels"
        self.directory = place / "env"
        self.said: list[str] = []
        self.wheels.mkdir()
        for name in ("one", "two", "hooked"):
            wheel(self.wheels, name, "1")
        wheel(self.wheels, "one", "2")
        wheel(self.wheels, "needy", "1", needs="one<2")

    def file(self, *pip: str, conda: tuple[str, ...] = (), name: str = "env", folder: str = "dask") -> Path:
        path = self.place / folder / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        content = {"channels": ["conda-forge"], "dependencies": [*conda, *([{"pip": [*pip]}] if pip else [])]}
        path.write_text(json.dumps(content))
        return path

    def install(self, *files: Path, torch: str = "") -> None:
        install(self.directory, files, self.place / "cache", self.said.append, torch=torch)

    def run(self, code: str) -> str:
        python = self.directory / "bin" / "python"
        return subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    @property
    def packages(self) -> list[str]:
        return (self.directory / "packages.txt").read_text().splitlines()

    @property
    def site_packages(self) -> Path:
        return next(self.directory.glob("lib/*/site-packages"))
