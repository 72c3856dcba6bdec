"""A program outside a Dask cluster, which takes part in it through ``connect.sh --python``."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness import Project

PROGRAM = """
from distributed import Client
if __name__ == "__main__":
    with Client(timeout=60) as client:
        print(client.submit(lambda: 6 * 7).result())
"""


def assert_computes(project: Project, cluster: str, python: Path) -> None:
    """Have a program of *python*, which has Dask, compute in *cluster*; nothing of the connection is left."""
    program = project.write("outside.py", PROGRAM)
    with project.connected(cluster, "--python") as line:
        name, _, place = line.removeprefix("export ").partition("=")
        outside = subprocess.run(
            [str(python), program],
            cwd=project.code,
            env={**project.environ, name: place},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (outside.returncode, outside.stdout) == (0, "42\n"), outside.stderr
    assert not Path(place).exists()  # certificate and key are gone, too
