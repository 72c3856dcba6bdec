"""The working directory whose folders of outputs are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.fake_cluster import Node

from oci_cluster.node.script import make_working_dir


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Return a folder of code, in which nobody may write."""
    (tmp_path / "my code" / "package" / "deep").mkdir(parents=True)
    (tmp_path / "my code" / "checkpoints").mkdir()
    for name in ("train.py", "package/model.py", "package/deep/data.csv"):
        (tmp_path / "my code" / name).write_text(name)
    return tmp_path / "my code"


def files(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


def test_it_shows_the_code_and_keeps_what_is_written_to_its_outputs(code: Path, tmp_path: Path) -> None:
    """By links: nothing is copied, and nothing is written to the code."""
    view, outputs = tmp_path / "view", tmp_path / "outputs"
    before = files(code)
    make_working_dir(view, code, ["checkpoints", "runs/a"], outputs)
    assert (view / "package" / "deep" / "data.csv").read_text() == "package/deep/data.csv"
    assert (view / "train.py").resolve() == code / "train.py"
    for name in ("checkpoints/last.pt", "runs/a/1", "beside.txt"):
        (view / name).write_text(name)
    assert files(outputs) == ["checkpoints/last.pt", "runs/a/1"]
    assert files(code) == before


def test_a_folder_inside_a_package_can_be_one(code: Path, tmp_path: Path) -> None:
    """Its neighbours are seen as before; two in one folder, and one in another's, are as good."""
    view, outputs = tmp_path / "view", tmp_path / "outputs"
    make_working_dir(view, code, ["package/out", "package/logs", "package/logs/more"], outputs)
    for name in ("package/out/1", "package/logs/2", "package/logs/more/3"):
        (view / name).parent.mkdir(exist_ok=True)
        (view / name).write_text(name)
    assert (view / "package" / "model.py").read_text() == "package/model.py"
    assert files(outputs) == ["package/logs/2", "package/logs/more/3", "package/out/1"]
    assert not (code / "package" / "out").exists()


def test_it_is_where_the_start_script_runs(root: Path) -> None:
    """CODE_DIR, the working directory and PYTHONPATH are this one; it goes with the node."""
    main = Node(root, OUTPUT_FOLDERS="checkpoints, logs")
    main.child_ends(0, at=1)
    assert main.run() == 0
    _, environ, cwd = main.children.started[0]
    assert cwd == Path(environ["NODE_DIR"]) / "working"
    assert (environ["CODE_DIR"], environ["PYTHONPATH"]) == (str(cwd), str(cwd))
    assert (root / "out" / "checkpoints").is_dir()
    assert (root / "out" / "logs").is_dir()
    assert not cwd.exists()
