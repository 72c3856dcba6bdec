"""The Python API in pods: who asks by a token alone, and the notebook that shows it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psutil
import pytest
from harness import wait_until
from kube.cluster import Cluster, User
from kube.launches import Site
from users_python import Program, make_environment

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "python.ipynb"
# Reads who asks from stdin: neither a word nor a variable has it.
PROGRAM = """
import json, sys
from oci_cluster import Cluster, Token
about = json.loads(sys.stdin.readline())
who = Token(about["token"], about["server"], ca=about["ca"], namespace=about["namespace"])
cluster = Cluster("plain", 1, backend="kubernetes", auth=who, code=".").up().wait_ready()
print(cluster.status(), repr(who), flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="session")
def users_python(tmp_path_factory: pytest.TempPathFactory, checkout_copy: Path) -> Path:
    """Return the interpreter of a user's environment."""
    return make_environment(tmp_path_factory.mktemp("user") / "env", checkout_copy)


def test_a_token_is_enough_and_a_killed_program_leaves_nothing(
    site: Site, kubernetes: Cluster, user: User, users_python: Path
) -> None:
    """No kubeconfig is named; the guard, which then ends the cluster, has the token in no word and no variable."""
    token = user.token()
    about = {
        "token": token,
        "server": kubernetes.server,
        "ca": kubernetes.authority.file.read_text(),
        "namespace": site.namespace,
    }
    named = ("KUBECONFIG", "KUBE_CONTEXT", "NAMESPACE", "BACKEND", "PYTHONPATH")
    environ = {name: text for name, text in site.project.environ.items() if name not in named}
    (site.project.code / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [users_python, "program.py"],
        cwd=site.project.code,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(about) + "\n")
    process.stdin.flush()
    shown = process.stdout.readline()
    assert shown.startswith("IN_PROGRESS Token(")
    (guard,) = psutil.Process(process.pid).children()
    assert token not in f"{shown} {guard.cmdline()} {guard.environ()} {psutil.Process(process.pid).environ()}"
    process.kill()
    process.communicate()
    wait_until(lambda: not site.left(), lambda: f"nothing of {site.left()}")


@pytest.mark.nightly
def test_the_notebook_runs_in_pods(site: Site, users_python: Path) -> None:
    """The same cells as on this machine."""
    program = Program(users_python, site.project.code, site.project.environ)
    printed, html = program.run_notebook(NOTEBOOK, FRAMEWORK="plain")
    for line in ("IN_PROGRESS on kubernetes", "ended with 0", "7 because "):
        assert line in printed
    assert '<td style="text-align: left">WORKER_1</td>' in html
    assert site.left() == []
