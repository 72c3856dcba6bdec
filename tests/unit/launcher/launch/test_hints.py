"""Lines about what nothing would tell later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from oci_cluster.launcher.launch.entry_point import about_files, about_ranks


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["rows.csv"], "'rows.csv'"),
        (["--data", "rows.csv", "7"], "'rows.csv'"),
        (["rows.csv", "data"], "'rows.csv', 'data'"),
        (["both.csv"], ""),
        (["nowhere.csv", "", "--rows.csv", "-", "epochs=3"], ""),
        (["x" * 5000, "{" + "y/" * 3000 + "}"], ""),  # no name of a file
    ],
)
def test_a_file_that_is_where_the_user_is(tmp_path: Path, arguments: Sequence[str], named: str) -> None:
    """A script runs in its own folder: it would not find it there."""
    code = tmp_path / "my proj"
    (tmp_path / "data").mkdir()
    code.mkdir()
    for path in (tmp_path / "rows.csv", tmp_path / "both.csv", code / "both.csv"):
        path.touch()
    told = f"{named} is here, and the script runs in {code}; have it run here: --code . --entry 'my proj/train.py'"
    assert about_files(arguments, code, "train.py", tmp_path) == ([told] if named else [])
    assert about_files([str(tmp_path / "rows.csv")], code, "train.py", tmp_path) == []
    assert about_files(arguments, tmp_path, "train.py", tmp_path) == []


def test_the_script_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").touch()
    (line,) = about_files(["rows.csv"], Path("/code"), "train.py", tmp_path)
    assert line.endswith("have it run here: --code .")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("run.sh", "#!/bin/bash\naccelerate  launch --cpu inner.py\n", "(accelerate launch), on each node for itself"),
        (
            "run.sh",
            "set -e\n  OMP_NUM_THREADS=1 exec torchrun --standalone inner.py\n",
            "run.sh starts ranks itself (torchrun)",
        ),
        ("run", "python3 -m torch.distributed.run x.py\n", "(torch.distributed.run)"),
        ("run.sh", "deepspeed x.py\n", "launch the script that it starts with LAUNCHER=deepspeed: --entry SCRIPT.py"),
        ("run.sh", "horovodrun -np 2 x.py\n", "(horovodrun)"),
        ("run.sh", "# torchrun x.py\npython x.py torchrun\n", ""),
        (
            "t.py",
            "# MASTER_ADDR\nos.environ['MASTER_ADDR'] = 'localhost'\n",
            "t.py sets MASTER_ADDR, which nodes are given",
        ),
        ("t.py", 'if x:\n    os.environ["TF_CONFIG"] = json.dumps(x)\n', "t.py sets TF_CONFIG"),
        ("t.py", "torchrun = 3\nos.environ['MASTER_ADDR'] = address\nprint(os.environ['TF_CONFIG'])\n", ""),
        ("t.ipynb", "torchrun x.py", ""),
    ],
)
def test_an_entry_point_that_starts_ranks_itself(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    lines = about_ranks(tmp_path / name, "pytorch")
    assert [said in line for line in lines] == ([True] if said else [])
    assert about_ranks(tmp_path / "nowhere", "pytorch") == []


def test_other_frameworks_have_no_launchers_to_choose(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("deepspeed x.py\n")
    (line,) = about_ranks(tmp_path / "run.sh", "dask")
    assert "LAUNCHER" not in line
