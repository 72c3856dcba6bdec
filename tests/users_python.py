"""A Python environment as users have them, with the door installed in it from a checkout."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from harness import PATIENCE_S

from oci_cluster.system.envs.installer import Uv
from oci_cluster.system.envs.python_env import ensure_framework, make_layer, uv_of, with_packages

CHECKOUT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Runs the notebook of the first word, and keeps it as the second; fails where a cell does.
_RUN_NOTEBOOK = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
try:
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
finally:
    nbformat.write(notebook, sys.argv[2])
"""


def make_environment(directory: Path, checkout: Path) -> Path:
    """Make an environment that has Dask, Jupyter's kernel, the SDKs, and the package of *checkout*; return its Python.

    All but the package is seen in environments that are there.
    """

    def say(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    dask = ensure_framework(CHECKOUT, CHECKOUT / "dask" / "env.yaml", say)
    seen = with_packages(CHECKOUT, dask, [], [CHECKOUT / "common" / "env-notebook.yaml"], say)
    uv = Uv(uv_of(CHECKOUT, say), say)
    make_layer(uv, directory, seen)
    (own,) = directory.glob("lib/python*/site-packages")
    (own / "_tools.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    python = directory / "bin" / "python"
    uv.install(directory, ["--no-deps", checkout / "common"])
    return python


class Program:
    """Programs of a user, who works in a folder outside the checkout."""

    def __init__(self, python: Path, folder: Path, environ: Mapping[str, str]) -> None:
        self.python = python
        self.folder = folder
        self.environ = {name: text for name, text in environ.items() if name != "PYTHONPATH"}

    def start(self, text: str, **environ: str) -> subprocess.Popen[str]:
        """Start the program *text*."""
        path = self.folder / f"program-{len(list(self.folder.glob('program-*')))}.py"
        path.write_text(text)
        return subprocess.Popen(
            [self.python, path.name],
            cwd=self.folder,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, text: str, *, code: int = 0, **environ: str) -> tuple[str, str]:
        """Run the program *text*, which ends with *code*; return what it has printed, and said."""
        process = self.start(text, **environ)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, f"{text}\n{out}\n{err}"
        return out, err

    def run_notebook(self, notebook: Path, **environ: str) -> tuple[str, str]:
        """Run the cells of *notebook*; return what they have printed, and their HTML."""
        kept = self.folder / "kept.ipynb"
        done = subprocess.run(
            [self.python, "-c", _RUN_NOTEBOOK, notebook, kept],
            cwd=self.folder,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outputs = [output for cell in json.loads(kept.read_text())["cells"] for output in cell.get("outputs", [])]
        data = [output["data"] for output in outputs if "data" in output]
        printed = ["".join(output.get("text", "")) for output in outputs if output.get("name") == "stdout"]
        values = ["".join(one.get("text/plain", "")) for one in data]
        return "".join(printed) + "\n".join(values), "\n".join("".join(one.get("text/html", "")) for one in data)


def blocks(page: str, begin: str = "", end: str = "\0") -> list[str]:
    """Return the Python of *page* between the lines *begin* and *end*, block by block."""
    return _BLOCK.findall(page.partition(begin)[2].partition(end)[0] if begin else page.partition(end)[0])
