"""The Python API, installed in an environment of a user's own: programs, threads, notebooks, and their ends."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import engine as engines
import pytest
from harness import Project, processes_of, wait_until
from oci_cloud import Cloud, image_of
from toy_image import build_toy_image
from users_python import Program, blocks, make_environment

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "python.md").read_text()
WHO = "\n## Who asks\n"
# A toy cluster's first lines.
PLAIN = "import sys\nfrom oci_cluster import *\nwords = {'python': sys.executable}\n"


@pytest.fixture(scope="module")
def users_python(tmp_path_factory: pytest.TempPathFactory, checkout_copy: Path) -> Path:
    """Return the interpreter of a user's environment."""
    return make_environment(tmp_path_factory.mktemp("user") / "env", checkout_copy)


@pytest.fixture
def program(users_python: Path, project: Project) -> Program:
    """Return what runs programs in a folder of the user's."""
    return Program(users_python, project.code, project.environ)


def launch_ids(project: Project) -> list[str]:
    return [directory.name.rpartition("-")[2] for directory in project.cluster_dirs()]


def assert_nothing_runs(project: Project) -> None:
    for launch_id in launch_ids(project):
        wait_until(lambda launch_id=launch_id: not processes_of(launch_id), "its end")


def listed(project: Project) -> dict[str, str]:
    return {found["name"]: found["state"] for found in json.loads(project.run("list", "--all", "--json").stdout)}


# --- What the page says


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "45\n"), (1, "2 workers\n"), (2, "1275\n"), (3, "/outputs\n"), (4, "IN_PROGRESS\n")],
)
def test_what_the_page_shows_runs_as_it_stands(program: Program, project: Project, number: int, said: str) -> None:
    """In an environment into which the package was installed, outside the checkout; nothing of it is left."""
    write = "import os\nopen(os.environ['OUTPUT_DIR'] + '/model', 'w').write('weights')\n"
    project.write("train.py", write)
    out, err = program.run(blocks(PAGE, end=WHO)[number])
    assert said in out
    assert "ended with" in err or number == 4
    assert_nothing_runs(project)
    for directory in project.cluster_dirs():  # a reader takes it for a stranger's
        assert "handshake" not in (directory / "logs" / "MAIN.log").read_text()


def test_the_page_has_no_other_programs() -> None:
    """Those of "Who asks" launch nothing; that of Ray runs in test_ray_outside.py."""
    assert (len(blocks(PAGE, end=WHO)), len(blocks(PAGE, begin=WHO))) == (6, 1)


def test_who_asks_is_told_without_asking_anybody(program: Program, project: Project) -> None:
    """Objects are made, and the places that they are for; none of them says what is secret."""
    out, err = program.run(blocks(PAGE, begin=WHO)[0] + "print(token, vars(Cluster('dask', 3)))\n")
    assert "Token(" in out
    assert "eyJhbGciOi" not in out + err


# --- A program and its clusters


def test_a_script_that_fails_raises_with_its_code_reason_and_node(program: Program, project: Project) -> None:
    project.write("train.py", "raise ValueError('bad row 7')\n")
    out, _ = program.run(
        PLAIN + "job = Job('plain', 1, entry='train.py', **words).submit()\n"
        "try:\n    job.wait()\n"
        "except ClusterFailedError as error:\n"
        "    print(error.exit_code, error.node, error.reason, '|', error.next_step, '|', job.status())\n"
    )
    assert out == "1 MAIN MAIN: ValueError: bad row 7 (train.py:1) | what its nodes have printed: logs() | FAILED\n"
    assert_nothing_runs(project)


def test_with_that_raises_leaves_nothing_also_of_a_cluster_that_is_to_be_kept(
    program: Program, project: Project
) -> None:
    text = "with Cluster('plain', 2, name='{0}', keep={1}, **words) as c:\n    {2}\n"
    _, err = program.run(PLAIN + text.format("mine", True, "c.wait_ready()[0]"), code=1)
    assert "TypeError" in err
    assert_nothing_runs(project)
    program.run(PLAIN + text.format("other", True, "c.wait_ready()"))
    assert listed(project) == {"mine": "STOPPED", "other": "IN_PROGRESS"}
    assert project.run("stop").returncode == 0


def test_two_threads_have_two_clusters(program: Program, project: Project) -> None:
    """At the same time: each waits for the other before it ends."""
    out, _ = program.run(
        PLAIN + "import threading\n"
        "both = threading.Barrier(2, timeout=200)\n"
        "def one(name):\n"
        "    with Cluster('plain', 1, name=name, **words) as c:\n"
        "        c.wait_ready()\n"
        "        both.wait()\n"
        "        print(name, c.status(), flush=True)\n"
        "        both.wait()\n"
        "threads = [threading.Thread(target=one, args=(name,)) for name in ('first', 'second')]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
    )
    assert sorted(out.splitlines()) == ["first IN_PROGRESS", "second IN_PROGRESS"]
    assert listed(project) == {"first": "STOPPED", "second": "STOPPED"}
    assert_nothing_runs(project)


def test_a_cluster_that_is_forgotten_is_named_and_ended_with_the_program(program: Program, project: Project) -> None:
    """Also where nobody holds the object any more."""
    _, err = program.run(PLAIN + "Cluster('plain', 1, name='mine', **words).up()\n")
    assert "oci_cluster: ending mine, which still runs; end clusters with down(), or keep them: keep=True\n" in err
    assert "Traceback" not in err
    assert_nothing_runs(project)
    found = json.loads(project.run("status", "mine", "--json").stdout)
    assert (found["state"], found["reason"]) == ("STOPPED", "its program has ended")


def test_a_program_that_is_killed_leaves_no_cluster(program: Program, project: Project) -> None:
    process = program.start(
        PLAIN + "Cluster('plain', 1, **words).up().wait_ready()\nprint('up', flush=True)\ninput()\n"
    )
    process.kill()
    process.communicate()
    program_text = PLAIN + "c = Cluster('plain', 1, **words).up().wait_ready()\nprint('up', flush=True)\nc.wait()\n"
    process = program.start(program_text)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.kill()
    process.communicate()
    assert_nothing_runs(project)
    assert set(listed(project).values()) == {"STOPPED"}


def test_an_interrupt_ends_a_wait_and_not_the_cluster(program: Program, project: Project) -> None:
    """KeyboardInterrupt is Python's own; the handlers of signals are, too."""
    process = program.start(
        PLAIN + "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit none\n"
        "before = [signal.getsignal(number) for number in signal.valid_signals()]\n"
        "c = Cluster('plain', 1, **words).up().wait_ready()\n"
        "assert before == [signal.getsignal(number) for number in signal.valid_signals()]\n"
        "try:\n    print('up', flush=True)\n    c.wait()\n"
        "except KeyboardInterrupt:\n    print(c.status())\n"
        "c.down()\n"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert (out, process.returncode) == ("IN_PROGRESS\n", 0), err
    assert_nothing_runs(project)


def test_messages_go_where_a_program_wants_them(program: Program, project: Project) -> None:
    """To its callable, or to its logging; then nothing is on stderr."""
    project.write("train.py", "print('hello')\n")
    job = "Job('plain', 1, entry='train.py', name='{}', **words{}).submit().wait()\n"
    out, err = program.run(
        PLAIN + "import logging\nlines = []\n" + job.format("mine", ", say=lines.append") + "print(lines[-1])\n"
        "logging.basicConfig(stream=sys.stdout, level=logging.INFO, format='%(name)s %(message)s')\n"
        + job.format("other", "")
    )
    assert err == ""
    assert "\ncluster mine ended with 0 after " in f"\n{out}"
    assert "\noci_cluster cluster other ended with 0 after " in out


def test_a_package_of_another_version_than_the_checkout_is_refused(program: Program, project: Project) -> None:
    """Nodes would run what the launcher does not mean."""
    other = project.scratch / "other"
    (other / "scripts" / "backends").mkdir(parents=True)
    contract = other / "common" / "oci_cluster" / "contract"
    contract.mkdir(parents=True)
    (contract.parent / "errors.py").touch()
    _, err = program.run(PLAIN + f"Cluster('plain', 1, project={str(other)!r})\n", code=1)
    assert f"is of another version than {other}, whose nodes it would launch; install it again: " in err


# --- The notebook


def test_the_notebook_runs_on_this_machine(program: Program, project: Project) -> None:
    """With a Dask client; its tables have the nodes, as they were at the end."""
    printed, html = program.run_notebook(DOCS / "python.ipynb")
    for line in ("IN_PROGRESS on local", "45", "3 1", "ended with 0", "7 because "):
        assert line in printed
    assert "'STOPPED'" in printed
    assert "WORKER_1 " in html
    assert "<script" not in html
    assert_nothing_runs(project)


@pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")
def test_the_notebook_runs_on_oci(users_python: Path, cloud: Cloud) -> None:
    """The same cells; its Jobs are ended."""
    project = cloud.project
    program = Program(users_python, project.code, {**project.environ, **cloud.environ})
    printed, html = program.run_notebook(DOCS / "python.ipynb", FRAMEWORK="plain", IMAGE=image_of("plain"))
    for line in ("IN_PROGRESS on oci", "3 1", "ended with 0", "7 because "):
        assert line in printed
    assert "WORKER_1 " in html
    cloud.assert_nothing_runs()


@pytest.mark.skipif(bool(engines.why_not()), reason=engines.why_not() or "runs")
def test_the_notebook_runs_in_containers(users_python: Path, project: Project, tmp_path: Path) -> None:
    """The same cells; the engine keeps nothing."""
    (tmp_path / "image").mkdir()
    with engines.running(tmp_path / "e") as engine:
        build_toy_image(engine, tmp_path / "image", "plain:1", "plain")
        own = {"BACKEND": "docker", "DOCKER": engine.docker, "DOCKER_HOST": engine.environ["DOCKER_HOST"]}
        program = Program(users_python, project.code, {**project.environ, **own})
        printed, html = program.run_notebook(DOCS / "python.ipynb", FRAMEWORK="plain", IMAGE="plain:1")
        for line in ("IN_PROGRESS on docker", "3 1", "ended with 0", "7 because "):
            assert line in printed
        assert "WORKER_1 " in html
        assert engine.run("ps", "--all", "--quiet").stdout == ""


def test_the_notebook_has_no_outputs() -> None:
    """Who opens it sees their own."""
    for cell in json.loads((DOCS / "python.ipynb").read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
