"""Wheels of a few bytes, and an environment that has some: what real uv installs without a network."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def wheel(
    folder: Path, name: str, version: str, *, needs: tuple[str, ...] = (), script: bool = False, text: str = ""
) -> Path:
    """Make a wheel of *name* with one module, which knows its version."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {need}" for need in needs),
    ]
    files = {
        f"{name}.py": text or f"version = '{version}'\ndef main():\n    import sys\n    print(sys.prefix)\n",
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **({f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n"} if script else {}),
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"]))
    return path


UV = Path(sys.executable).with_name("uv")


def environment(root: Path, wheels: Path, *packages: str) -> Path:
    """Make an environment in *root* as a framework's first launch does, with *packages*; return its interpreter."""
    tools = root / ".venv" / "bin" / "python"
    tools.parent.mkdir(parents=True)
    tools.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')  # where YAML's parser is
    tools.chmod(0o755)
    python = root / ".venv" / "envs" / "dask" / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, python.parents[1])
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-index", "--find-links", wheels, *packages)
    (python.parents[1] / ".made-1").touch()
    return python


def has(python: Path) -> list[str]:
    """Return what the environment of *python* has: ``name=version``, sorted."""
    code = "import importlib.metadata as m; print(*sorted(d.name + '=' + d.version for d in m.distributions()))"
    return run(python, "-I", "-c", code).split()


def offline(monkeypatch: pytest.MonkeyPatch, wheels: Path) -> None:
    """Have a uv on PATH, and packages in *wheels* alone, whatever this machine tells pip and uv."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{UV.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(wheels.parent / "uv-cache"))


def run(*command: str | Path) -> str:
    """Run *command* and return what it prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
