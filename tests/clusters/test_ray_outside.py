"""Programs that take part in a real Ray cluster from outside, and a notebook on its main."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from harness import PATIENCE_S, Project, processes_of, wait_until
from session_client import assert_kept_secret, tab, token_of, url_of
from users_python import Program, blocks

from oci_cluster.system.envs.python_env import ensure_framework

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs" / "python.md").read_text()
# What Ray 2's proxy of clients says on a busy machine, seen once each: the server that it has just started has ended
# when its command line is asked for, or is not there after the proxy's own 30 s. Whoever connects again is served.
RAYS_RACES = ("psutil.ZombieProcess", "Starting Ray client server failed")
COMPUTES = """
import json, os
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init()
@ray.remote
def where():
    return os.environ["NODE_NAME"]
asked = [where.options(scheduling_strategy=On(node["NodeID"], soft=False)).remote() for node in ray.nodes()]
print(json.dumps([sorted(ray.get(asked)), "LAUNCH_KEY" in os.environ, "RAY_AUTH_TOKEN" in os.environ]), flush=True)
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """Return a Python that has Ray."""
    return ensure_framework(CHECKOUT, CHECKOUT / "ray" / "env.yaml", lambda _: None)


def is_rays_race(said: str) -> bool:
    return any(race in said for race in RAYS_RACES)


def test_a_program_outside_takes_part_by_a_token_that_nothing_shows(project: Project, python: Path) -> None:
    """The file that has it goes with the connection."""
    launch = project.launch("ray", "1", "--keep", "--detach", "--wait", "--name", "kept")
    assert launch.wait() == 0, launch.err
    program = project.code / project.write("outside.py", COMPUTES)
    with project.connected("kept", "--python") as line:
        given = dict(word.split("=", 1) for word in line.removeprefix("export ").split())
        environ = {**project.environ, **given}
        words = [str(python), str(program)]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if is_rays_race(done.stderr):
            done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.stdout, done.stderr
        assert json.loads(done.stdout.splitlines()[-1]) == [["MAIN", "WORKER_1"], False, False]
        path = Path(given["RAY_AUTH_TOKEN_PATH"])
        token = path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600
        assert token not in line
        assert_kept_secret(launch, token)
    assert not path.exists()
    # On this machine a cluster that stays says it, too.
    told = json.loads(project.run("status", "--json", "kept").stdout)["facts"]["connect"]
    here = dict(word.split("=", 1) for word in told.split())
    assert (here.keys(), Path(here["RAY_AUTH_TOKEN_PATH"]).read_text()) == (given.keys(), token)
    assert project.run("stop", "kept").returncode == 0
    launch.assert_nothing_left()


def test_what_the_page_shows_of_ray_runs_as_it_stands(project: Project, python: Path) -> None:
    """Ray is imported before the variables are there; nothing is left."""
    (text,) = [block for block in blocks(PAGE) if "import ray" in block]
    program = Program(python, project.code, project.environ)
    whole = f"import sys\nsys.path.append({str(project.path / 'common')!r})\n{text}"
    process = program.start(whole)
    out, err = process.communicate(timeout=PATIENCE_S)
    if is_rays_race(err):
        out, _ = program.run(whole)
    else:
        assert process.returncode == 0, f"{out}\n{err}"
    assert out.splitlines()[-1] == "285"
    for directory in project.cluster_dirs():
        launch_id = directory.name.rpartition("-")[2]
        wait_until(lambda: not processes_of(launch_id), "its end")  # noqa: B023 - it is waited for here


def test_a_notebook_on_main_computes_on_all_nodes(project: Project, tmp_path: Path) -> None:
    """A plain ray.init() connects; the launch's key is no kernel's."""
    session = project.session("jupyter", "book", "--framework", "ray", "--workers", "1")
    url = url_of(session)
    with tab(session, url, COMPUTES, tmp_path) as printed:
        wait_until(lambda: "reply" in printed.read_text(), lambda: f"the cell's end: {session.err}")
        (line,) = [line for line in printed.read_text().splitlines() if line.startswith("[[")]
        assert json.loads(line) == [["MAIN", "WORKER_1"], False, False], printed.read_text()
        assert_kept_secret(session, token_of(url))
    session.interrupt()
    assert session.wait() == 143
    session.assert_nothing_left()
