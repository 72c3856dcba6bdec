"""What main of a session runs, and the token that nobody sends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oci_cluster.contract.session import client_token, session_packages, session_token
from oci_cluster.contract.settings.node import read_settings
from oci_cluster.errors import SettingsError

LEAST = {
    "MODE": "MAIN",
    "WORKER_COUNT": "0",
    "FRAMEWORK": "dask",
    "WORK_DIR": "file:///data/work",
    "CLUSTER_ID": "c1",
    "LAUNCH_ID": "1f2e3d4c",
    "ENTRY_POINT": "train.py",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dask").mkdir()
    (tmp_path / "dask" / "start-master.sh").touch()
    return tmp_path


def test_main_of_a_session_runs_the_script_of_its_kind(root: Path) -> None:
    """Whatever script or module stands in the environment: that one is the user's."""
    script = root / "scripts" / "sessions" / "book" / "start.sh"
    given = {**LEAST, "SESSION": "book", "ENTRY_POINT": "train.py", "ENTRY_MODULE": "package.train"}
    with pytest.raises(SettingsError, match=f"SESSION: there is no {script}; an image that is older than this kind"):
        read_settings(given, root)
    script.parent.mkdir(parents=True)
    script.touch()
    settings = read_settings(given, root)
    assert (settings.entry_point, settings.entry_module, settings.session) == (str(script), "", "book")
    del given["ENTRY_POINT"], given["ENTRY_MODULE"]
    assert read_settings(given, root).entry_point == str(script)


@pytest.mark.parametrize("kind", ["../jupyter", "a/b", "", ".."])
def test_a_kind_is_a_name_and_no_path(root: Path, kind: str) -> None:
    """An empty one is none."""
    if kind:
        with pytest.raises(SettingsError, match="SESSION: "):
            read_settings({**LEAST, "SESSION": kind}, root)
    else:
        assert read_settings({**LEAST, "SESSION": kind}, root).entry_point == "train.py"


def test_a_session_of_another_launch_has_another_token() -> None:
    """And the key cannot be read out of it."""
    tokens = {session_token("key", "id"), session_token("key2", "id"), session_token("", "id"), session_token("", "x")}
    tokens |= {client_token("key", "id"), client_token("key2", "id")}
    assert len(tokens) == 6
    assert all(re.fullmatch("[0-9a-f]{64}", token) for token in tokens)


def test_a_kind_may_have_packages(tmp_path: Path) -> None:
    """They are added on this machine; what is no session has none."""
    folder = tmp_path / "scripts" / "sessions" / "book"
    folder.mkdir(parents=True)
    assert session_packages({"SESSION": "book"}, tmp_path) == []
    (folder / "env.yaml").touch()
    assert session_packages({"SESSION": "book"}, tmp_path) == [folder / "env.yaml"]
    (folder.parent / "env.yaml").touch()
    assert session_packages({}, tmp_path) == []
