"""horovod/entry/: what has Horovod's services listen on one address. tests/clusters looks at real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NETWORK = """
class BasicService:
    _port = 99
    def _get_local_addresses(self):
        return {"all": []}

def find_port(server_factory):
    return server_factory(("", 1024))
"""


def run(code: str, path: Path, **environ: str) -> str:
    """Run *code* as the entry point of a node, with what stands for Horovod in *path*; return what it prints."""
    places = f"{ROOT / 'common' / 'entry'}:{ROOT / 'horovod' / 'entry'}:{path}"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": places, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        cwd=path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_horovods_services_listen_on_the_nodes_address_and_say_so(tmp_path: Path) -> None:
    """A script of its own `sitecustomize` has that too; neither folder of ours stays on the path."""
    folder = tmp_path / "horovod" / "runner" / "common" / "util"
    folder.mkdir(parents=True)
    (folder / "network.py").write_text(NETWORK)
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    code = (
        "import sys\nfrom horovod.runner.common.util.network import BasicService, find_port\n"
        "print(find_port(lambda where: where), BasicService()._get_local_addresses(), '/entry' in str(sys.path))"
    )
    said = run(code, tmp_path, NODE_ADDRESS="127.0.0.7", NODE_INTERFACE="lo")
    assert said == "mine\n('127.0.0.7', 1024) {'lo': [('127.0.0.7', 99)]} False\n"
    assert run(code, tmp_path) == "mine\n('', 1024) {'all': []} False\n"
