"""Code of any shape: modules, scripts in folders, packages that are added; each as a real cluster of this machine."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from harness import Project
from unit.system.wheels import wheel

# What main and a worker import each from a module of the package, and from one beside the script.
DASK = """
from distributed import Client
{imports}
client = Client()
print("worker:", client.submit(near.where).result())
print("worker:", client.submit(far.where).result())
"""
WHERE = "import os\ndef where():\n    return __name__, os.getcwd() == os.environ['CODE_DIR']\n"


def files(place: Path, texts: dict[str, str]) -> None:
    """Write files below *place*."""
    for name, text in texts.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def test_a_module_imports_from_its_package_on_main_and_workers(project: Project) -> None:
    """Relative imports and those from the root; what a worker unpickles, it imports the same way."""
    imports = "from . import near\nimport far"
    texts = {"package/train.py": DASK.format(imports=imports), "package/near.py": WHERE, "far.py": WHERE}
    files(project.code / "src", texts)
    launch = project.launch("dask", "1", "--code", "src", "--module", "package.train")
    assert launch.wait(240) == 0, launch.err
    assert "MAIN     | worker: ('package.near', True)\n" in launch.out
    assert "MAIN     | worker: ('far', True)\n" in launch.out
    launch.assert_nothing_left()


def test_a_script_in_a_folder_imports_from_there_and_from_the_code(project: Project) -> None:
    """Workers too."""
    texts = {"train/entry.py": DASK.format(imports="import near, far"), "train/near.py": WHERE, "far.py": WHERE}
    files(project.code, texts)
    launch = project.launch("dask", "1", "--code", ".", "--entry", "train/entry.py")
    assert launch.wait(240) == 0, launch.err
    assert "MAIN     | worker: ('near', True)\n" in launch.out
    assert "MAIN     | worker: ('far', True)\n" in launch.out


# Neither ends before both have printed: who fails first has the other ended.
MODULE = """
import os, pathlib, sys, time
from .near import where
print(f"{where()[0]} {sys.argv[1:]}", flush=True)  # in one piece: a line of the agent's may come between two
pathlib.Path(f"printed-{os.getpid()}").touch()
while len([*pathlib.Path().glob("printed-*")]) < 2:
    time.sleep(0.05)
sys.exit(7)
"""


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "horovod"])
def test_every_node_runs_the_module(project: Project, framework: str) -> None:
    """With its arguments, under each framework's own launcher; its exit code is the cluster's."""
    files(project.code, {"package/__main__.py": MODULE, "package/near.py": WHERE})
    launch = project.launch(framework, "1", "--module", "package", "--", "a b")
    assert launch.wait(240) == 7, launch.err
    assert "package.near ['a b']" in launch.log("MAIN")


ADDED = """
import sys
from distributed import Client
def where():
    import small
    return small.version, sys.prefix
assert Client().submit(where).result() == where()
print(where())
"""


def test_packages_are_added_for_a_launch_and_for_no_other(project: Project, tmp_path: Path) -> None:
    """Main and workers have them; what cannot be added is refused before anything is started."""
    wheel(tmp_path / "wheels", "small", "1.0")
    places = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}
    entry = project.write("entry.py", ADDED)
    refused = project.launch("dask", "1", "--with", "small>=2", "--entry", entry, **places)
    assert refused.wait(240) == 78
    assert "small>=2 cannot be added" in refused.err
    assert project.cluster_dirs() == []
    launch = project.launch("dask", "1", "--with", "small", "--entry", entry, **places)
    assert launch.wait(240) == 0, launch.err
    found = re.search(r"\('1\.0', '(/.*/envs/dask\+\w+)'\)", launch.out)
    assert found
    shutil.rmtree(found[1])
    plain = project.launch("dask", "1", "--entry", entry)
    assert plain.wait(240) == 1
    assert "No module named 'small'" in plain.out


WRITES = """
import os, pathlib, model
os.makedirs("checkpoints", exist_ok=True)
pathlib.Path("checkpoints", "last.pt").write_text("weights")
pathlib.Path(__file__).parent.joinpath("checkpoints", "beside").write_text("too")
pathlib.Path("lost.txt").write_text("nobody asked for it")
print(os.getcwd() == os.environ["CODE_DIR"], model.read())
"""


def test_what_is_written_to_a_folder_of_outputs_is_kept(project: Project) -> None:
    """By the plain relative path; the user's own folder stays as it is."""
    entry = project.write("train.py", WRITES)
    project.write("model.py", "def read():\n    return open('data.txt').read()\n")
    project.write("data.txt", "read by a relative path")
    launch = project.launch("plain", "1", "--entry", entry, "--python", sys.executable, "--outputs", "checkpoints")
    assert launch.wait() == 0, launch.out
    assert "MAIN     | True read by a relative path\n" in launch.out
    outputs = launch.directory / "outputs"
    kept = sorted(str(path.relative_to(outputs)) for path in outputs.rglob("*") if path.is_file())
    assert kept == ["checkpoints/beside", "checkpoints/last.pt"]
    assert sorted(path.name for path in project.code.iterdir()) == ["data.txt", "model.py", "train.py"]
    launch.assert_nothing_left()


NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": {"name": "somebodys-conda", "display_name": "x", "language": "python"}},
}


def notebook(*cells: str) -> str:
    """Return a notebook with these cells, written with a kernel that is not here."""
    made = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "outputs": [], "execution_count": None, "source": cell}
        for n, cell in enumerate(cells)
    ]
    return json.dumps({**NOTEBOOK, "cells": made})


def test_a_profiler_runs_the_entry_point_and_what_it_writes_is_kept(project: Project) -> None:
    """On main alone, unless others are named; one that is not there ends the launch before anything is started."""
    script = "import os\nopen(os.environ['PROFILE'], 'w').write('spied')\n"
    launch = project.launch_plain(1, script, "--env", "PROFILE_CMD=env PROFILE={output}.txt")
    assert launch.wait() == 0, launch.err
    assert (launch.directory / "outputs" / "profile-MAIN.txt").read_text() == "spied"
    launch.assert_nothing_left()

    refused = project.launch_plain(1, script, "--env", "PROFILE_CMD=nowhere-spy record --")
    assert refused.wait() == 78
    assert "PROFILE_CMD: there is no program 'nowhere-spy': --with nowhere-spy adds it" in refused.err
    assert len(project.cluster_dirs()) == 1


def test_a_notebook_runs_on_the_cluster_and_its_outputs_are_kept(project: Project) -> None:
    """As they come; the copy has them, and the user's own notebook stays as it was."""
    cells = (
        "from distributed import Client\nclient = Client()\nprint('sum', client.submit(sum, [20, 22]).result())",
        "6 * 7",
    )
    # As on a busy machine: the kernel's thread passes on what the program has printed when the cell has ended.
    late = "send = sys.stdout.write\nsys.stdout.write = lambda text: time.sleep(0.5) or send(text)"
    program = f"import subprocess, sys, time\n{late}\nsubprocess.run(['echo', 'of a program'])"
    text = notebook(*cells, "import near\nnear.where()[0]", program)
    files(project.code, {"explore.ipynb": text, "near.py": WHERE})
    launch = project.launch("dask", "1", "--entry", "explore.ipynb")
    assert launch.wait(240) == 0, launch.err
    for line in ("sum 42", "42", "'near'"):
        assert f"MAIN     | {line}\n" in launch.out
    assert launch.out.count("MAIN     | of a program\n") == 1
    kept = json.loads((launch.directory / "outputs" / "explore.ipynb").read_text())
    assert kept["cells"][0]["outputs"][0]["text"] == ["sum 42\n"]
    assert (project.code / "explore.ipynb").read_text() == text
    launch.assert_nothing_left()


def test_a_cell_that_fails_ends_the_cluster_with_its_words(project: Project) -> None:
    """1, as a script's exception; what had run by then is kept."""
    files(project.code, {"bad.ipynb": notebook("print('begun')", "raise ValueError('bad row 7')", "print('never')")})
    launch = project.launch("dask", "1", "--entry", "bad.ipynb")
    assert launch.wait(240) == 1, launch.err
    assert "MAIN     | ValueError: bad row 7\n" in launch.out
    assert " ended with 1 (MAIN: ValueError: bad row 7 (cell 2:1)) after " in launch.err
    assert "never" not in launch.out
    assert json.loads((launch.directory / "outputs" / "bad.ipynb").read_text())["cells"][1]["outputs"]
    launch.assert_nothing_left()


@pytest.mark.parametrize(
    ("cell", "code", "said"),
    [
        ("import os\nos.kill(os.getpid(), 9)", 137, "the notebook's kernel ended with 137 (SIGKILL) in cell 2"),
        ("import sys\nsys.exit(3)", 3, "MAIN: begun; exit code 3"),
        ("import sys\nsys.exit()", 0, ""),
    ],
)
def test_a_notebook_ends_with_the_code_that_a_script_would_have(
    project: Project, cell: str, code: int, said: str
) -> None:
    """What the kernel is ended by is told, such as a lack of memory; what had run is kept."""
    files(project.code, {"ends.ipynb": notebook("print('begun')", cell, "print('never')")})
    launch = project.launch("dask", "1", "--entry", "ends.ipynb")
    assert launch.wait(240) == code, launch.err
    assert f" ended with {code} {f'({said}) ' if said else ''}after " in launch.err
    assert "never" not in launch.out
    kept = json.loads((launch.directory / "outputs" / "ends.ipynb").read_text())
    assert kept["cells"][0]["outputs"][0]["text"] == ["begun\n"]
    launch.assert_nothing_left()


# With the framework's own means: what it is called by itself, and how many there are.
EVERY_NODE = {
    "pytorch": """
import os
import torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
""",
    "tensorflow": """
import json, os
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank, size = json.loads(os.environ["TF_CONFIG"])["task"]["index"], strategy.num_replicas_in_sync
""",
}
# In two pieces: the kernel sends a line so by itself, too, where a process is slow.
TELLS = "print('I am', rank, 'of', size, end=' ', flush=True)\nprint(os.environ['NODE_NAME'])"
FAILS = "def check(row):\n    if rank == 1:\n        raise ValueError('bad row 7')\ncheck(7)"
WAITS = "import time\ntime.sleep(1000)"


@pytest.mark.parametrize("framework", [*EVERY_NODE])
def test_every_node_keeps_a_copy_of_its_notebook(project: Project, framework: str) -> None:
    """On one machine in one folder: none overwrites another's; each has the outputs of its node."""
    files(project.code, {"many.ipynb": notebook(EVERY_NODE[framework], TELLS)})
    launch = project.launch(framework, "1", "--entry", "many.ipynb")
    assert launch.wait(240) == 0, launch.err
    for rank, node, name in ((0, "MAIN", "many.ipynb"), (1, "WORKER_1", "many-rank-1.ipynb")):
        said = f"I am {rank} of 2 {node}\n"
        assert said in launch.log(node)
        kept = json.loads((launch.directory / "outputs" / name).read_text())
        assert kept["cells"][1]["outputs"][0]["text"] == [said]
    assert len([*(launch.directory / "outputs").glob("*.ipynb")]) == 2
    launch.assert_nothing_left()


@pytest.mark.parametrize("framework", ["pytorch"])
def test_every_rank_of_a_node_has_a_kernel_and_a_copy_of_its_own(project: Project, framework: str) -> None:
    """As on a node with several GPUs."""
    known = "import os\nrank, size = os.environ['RANK'], os.environ['WORLD_SIZE']"
    files(project.code, {"many.ipynb": notebook(known, TELLS)})
    launch = project.launch(framework, "1", "--entry", "many.ipynb", "--env", "NPROC_PER_NODE=2")
    assert launch.wait(240) == 0, launch.err
    for rank, node, name in ((1, "MAIN", "many-rank-1.ipynb"), (2, "WORKER_1", "many-rank-2.ipynb")):
        kept = json.loads((launch.directory / "outputs" / name).read_text())
        assert kept["cells"][1]["outputs"][0]["text"] == [f"I am {rank} of 4 {node}\n"]
    launch.assert_nothing_left()


@pytest.mark.parametrize("framework", [*EVERY_NODE])
def test_a_cell_that_fails_on_a_worker_ends_the_cluster_with_its_words(project: Project, framework: str) -> None:
    """The others, which wait for the worker for ever, are ended; of all there is a copy."""
    files(project.code, {"many.ipynb": notebook(EVERY_NODE[framework], TELLS, FAILS, WAITS)})
    launch = project.launch(framework, "1", "--entry", "many.ipynb")
    assert launch.wait(240) == 1, launch.err
    assert " ended with 1 (WORKER_1: ValueError: bad row 7 (cell 3:3)" in launch.err, launch.err + launch.out
    kept = json.loads((launch.directory / "outputs" / "many-rank-1.ipynb").read_text())
    assert kept["cells"][2]["outputs"][0]["ename"] == "ValueError"
    launch.assert_nothing_left()


def test_a_notebook_that_is_stopped_leaves_no_kernel(project: Project) -> None:
    """It is in a session of its own."""
    files(project.code, {"long.ipynb": notebook("import time\nprint('up', flush=True)\ntime.sleep(1000)")})
    launch = project.launch("dask", "1", "--entry", "long.ipynb")
    launch.wait_for("up")
    launch.interrupt()
    assert launch.wait() == 143
    launch.assert_nothing_left()
