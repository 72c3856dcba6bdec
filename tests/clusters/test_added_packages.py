"""Packages that launches add to a framework's environment, as the index has them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Project, path_with_uv, with_own_environments
from private_index import PASSWORD, nobody_sees_it, serving

from oci_cluster.system.envs.package_lists import requirements

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


def test_the_password_of_a_private_index_is_seen_by_nobody(project: Project, tmp_path: Path) -> None:
    """A launch that makes an environment out of it, and adds a package; neither in arguments nor in what is said."""
    own = with_own_environments(project, tmp_path / "other")
    pip = '{"dependencies": [{"pip": ["mine==1.0"]}]}'
    (own.path / "plain" / "env.yaml").write_text(pip)
    own.write("entry.py", "import mine, more\nprint('found', mine.version, more.version)\n")
    environ = {name: "" for name in os.environ if name.startswith(("PIP_", "UV_"))}
    environ |= {"PATH": path_with_uv(tmp_path / "bin", Path(sys.executable).with_name("uv"))}
    environ |= {"PIP_CONFIG_FILE": os.devnull, "UV_CACHE_DIR": str(tmp_path / "cache")}
    listening = socket.create_server(("127.0.0.1", 0))
    with serving(tmp_path / "index", listening, "mine==1.0", "more==2.0") as url, nobody_sees_it():
        words = ["plain", "1", "--with", "more==2.0", "--entry", "entry.py"]
        launch = own.launch(*words, **environ, PIP_INDEX_URL=url)
        code = launch.wait(240)
    own.end_all()
    assert code == 0, launch.err
    assert "found 1.0 2.0" in launch.out
    assert PASSWORD not in launch.out + launch.err
