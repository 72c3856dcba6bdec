"""How nodes and their files are named."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from oci_cluster.contract import names
from oci_cluster.contract.names import (
    config_file,
    exit_file,
    heartbeat_file,
    link_node_dir,
    node_dir,
    node_name,
    rank_of,
    remove_node_dir,
)


@pytest.mark.parametrize(("mode", "rank", "name"), [("MAIN", 0, "MAIN"), ("WORKER", 2, "WORKER_2"), ("PS", 4, "PS_4")])
def test_nodes_have_the_contracts_names(mode: str, rank: int, name: str) -> None:
    """Files, logs and messages name a node by role and rank, main by its role alone."""
    assert node_name(mode, rank) == name


def test_a_nodes_directory_is_known_beforehand() -> None:
    """A backend can remove the private directory of an agent that was killed: launch and node name it."""
    assert node_dir("1f2e", "WORKER_2") == Path(tempfile.gettempdir()) / "1f2e-WORKER_2"


def test_a_long_name_of_temporary_files_gets_a_short_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A link, which goes with the directory; what somebody else has put there is neither followed nor removed."""
    (tmp_path / "links").mkdir()
    monkeypatch.setattr(names, "_LINKS", tmp_path / "links")
    short, place = Path("/tmp/1f2e-WORKER_2"), tmp_path / ("long" * 9) / "1f2e-WORKER_2"
    assert link_node_dir(short) == short
    place.mkdir(parents=True)
    link = link_node_dir(place)
    assert (link, link.resolve()) == (tmp_path / "links" / "1f2e-WORKER_2", place)
    assert link_node_dir(place) == link
    remove_node_dir(place)
    assert not place.exists()
    assert not link.is_symlink()
    place.mkdir()
    link.symlink_to(tmp_path)
    assert link_node_dir(place) == place
    remove_node_dir(place)
    assert link.readlink() == tmp_path


def test_a_short_name_that_another_user_has_made_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It leads there today, and elsewhere tomorrow."""
    (tmp_path / "links").mkdir()
    monkeypatch.setattr(names, "_LINKS", tmp_path / "links")
    place = tmp_path / ("long" * 9) / "1f2e-WORKER_2"
    place.mkdir(parents=True)
    link = link_node_dir(place)
    assert link != place
    monkeypatch.setattr(os, "geteuid", lambda: link.lstat().st_uid + 1)
    assert link_node_dir(place) == place


@pytest.mark.parametrize("where", ["", "gone", 300 * "n", "private"])
def test_a_full_disk_makes_no_other_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str) -> None:
    """Whoever removes what is left must not look elsewhere than who has made it, when there was room."""
    (tmp_path / "private").mkdir()
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    if where:
        monkeypatch.setenv("TMPDIR", str(tmp_path / where))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "_get_default_tempdir", full)
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert node_dir("1f2e", "MAIN") == (tmp_path / where if where == "private" else Path("/tmp")) / "1f2e-MAIN"


def test_files_have_the_contracts_names() -> None:
    """A node's files are named as the contract's table of files has them."""
    assert [config_file("MAIN"), heartbeat_file("WORKER_2"), exit_file("PS_4")] == [
        "MAIN_config.json",
        "WORKER_2_heartbeat.json",
        "PS_4_exit.json",
    ]


@pytest.mark.parametrize(("node", "rank"), [("MAIN", 0), ("WORKER_1", 1), ("WORKER_12", 12), ("PS_3", 3)])
def test_a_nodes_name_tells_its_rank(node: str, rank: int) -> None:
    """Main is 0."""
    assert rank_of(node) == rank
