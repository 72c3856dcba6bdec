"""Wheels of a few bytes, and an environment that has some: what real pip installs without a network."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path


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


def environment(root: Path, wheels: Path, *packages: str) -> Path:
    """Make an environment in *root* as a framework's first launch does, with *packages*; return its interpreter."""
    tools = root / ".venv" / "bin" / "python"
    tools.parent.mkdir(parents=True)
    tools.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')  # where pip is
    tools.chmod(0o755)
    python = root / ".venv" / "envs" / "dask" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", python.parents[1])
    pip = ["-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--find-links", wheels]
    run(tools, *pip, *packages)
    (python.parents[1] / ".made-1").touch()
    return python


def run(*command: str | Path) -> str:
    """Run *command* and return what it prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
