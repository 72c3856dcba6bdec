"""Several nodes on a machine with GPUs, which a stub of nvidia-smi lists: what each node sees."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from harness import UNTIL_GO, Project, wait_until
from stub_gpus import listing, stub_nvidia_smi, uuid

H100 = "NVIDIA H100 80GB HBM3"
ENTRY = "import os\nprint('sees', os.environ.get('CUDA_VISIBLE_DEVICES', 'all'))\n" + UNTIL_GO


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return a PATH with a folder in which nvidia-smi can be."""
    (tmp_path / "bin").mkdir()
    return f"{tmp_path / 'bin'}:{os.environ['PATH']}"


@pytest.fixture
def ranked(project: Project) -> Project:
    """Have the nodes of `gang` have ranks."""
    file = project.path / "gang" / "settings.env"
    text = file.read_text()
    file.write_text(f"{text}RANKS=auto\nRANKS_PER_NODE=RANKS\n")
    yield project
    file.write_text(text)


@pytest.mark.parametrize(
    ("workers", "gpus", "given", "expected"),
    [
        (1, 4, {}, ["0,1", "2,3"]),
        (0, 4, {"RANKS": "4"}, ["0,1,2,3"]),
        (1, 4, {"RANKS": "2", "CUDA_VISIBLE_DEVICES": f"3,{uuid(1)[:8]}"}, "RANKS: 2 ranks on each node"),
        (1, 4, {"CUDA_VISIBLE_DEVICES": f"3,{uuid(1)[:8]}"}, ["3", uuid(1)[:8]]),
        (1, 1, {}, "this launch takes 2 GPUs (nodes: 2, each with 1), and this machine has 1; one node"),
        (1, 4, {"RANKS": "4"}, "RANKS: 4 ranks"),
        (1, 1, {"GPUS_PER_NODE": "0", "RANKS": "4"}, ["", ""]),
        (1, 1, {"GPUS_PER_NODE": "all", "RANKS": "4"}, ["all", "all"]),
        (
            1,
            4,
            {"GPUS_PER_NODE": "3"},
            "this launch takes 6 GPUs (nodes: 2, each with 3), and this machine has 4; one node",
        ),
        (1, 0, {"RANKS": "4"}, ["all", "all"]),
    ],
)
def test_nodes_share_the_gpus_of_this_machine(
    ranked: Project, tmp_path: Path, path: str, *, workers: int, gpus: int, given: dict[str, str], expected: object
) -> None:
    """Nodes, GPUs and ranks; what each node sees, or why nothing was started. nvidia-smi is asked once, if at all."""
    stub_nvidia_smi(tmp_path / "bin", listing(gpus))
    entry = ranked.write("entry.py", ENTRY)
    launch = ranked.launch("gang", str(workers), "--entry", entry, "--python", sys.executable, PATH=path, **given)
    if isinstance(expected, str):
        assert (launch.wait(), expected in launch.err) == (78, True), launch.err
        assert ranked.cluster_dirs() == []
        assert (tmp_path / "bin" / "asked").read_text() == "-L\n"  # nodes ask, too
        return
    nodes = ["MAIN", *(f"WORKER_{rank}" for rank in range(1, workers + 1))]
    for node in nodes:
        launch.wait_for("entry up", node)
    ranked.go()
    assert launch.wait() == 0, launch.err
    assert [launch.log(node).partition("sees ")[2].partition("\n")[0] for node in nodes] == expected


def nodes_with_gpus(project: Project) -> dict[str, list[str]]:
    """Return what status.sh tells of the GPUs of nodes, when all have told them."""

    def look() -> dict[str, list[str]] | None:
        nodes = json.loads(project.run("status", "--json").stdout)["nodes"]
        return {node["node"]: node["gpus"] for node in nodes} if all("gpus" in node for node in nodes) else None

    return wait_until(look, "the nodes' GPUs")


def test_who_joins_gets_the_share_of_its_rank_and_none_starts_without(
    project: Project, tmp_path: Path, path: str
) -> None:
    """A replacement that of the lost one, a new node the next; where all train, who would get none is refused."""
    stub_nvidia_smi(tmp_path / "bin", listing(3))
    entry = project.write("entry.py", ENTRY)
    launch = project.launch("gang", "1", "--entry", entry, "--python", sys.executable, PATH=path, MIN_WORKERS="0")
    for sees, node in (("0", "MAIN"), ("1", "WORKER_1")):
        launch.wait_for(f"sees {sees}", node)
    assert nodes_with_gpus(project) == {"MAIN": [H100], "WORKER_1": [H100]}
    assert "left over: 2\n" in launch.err
    name = json.loads((launch.directory / "cluster.json").read_text())["name"]
    assert project.run("scale", name, "+1").returncode == 0
    launch.wait_for("sees 2", "WORKER_2")
    refused = project.run("scale", name, "+1")
    assert (refused.returncode, "WORKER_3: there is no GPU" in refused.stderr) == (78, True), refused.stderr
    assert project.run("scale", name, "1").returncode == 0
    assert project.run("scale", name, "+1").returncode == 0
    wait_until(lambda: launch.log("WORKER_2").count("sees 2") == 2, "the replacement of WORKER_2")
    project.go()
    assert launch.wait() == 0, launch.err
