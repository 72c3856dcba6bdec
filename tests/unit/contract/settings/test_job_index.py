"""Nodes that Kubernetes has started as one Job: all have the same environment, but for an index."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.contract.settings.node import read_settings
from oci_cluster.errors import SettingsError

ROOT = Path(__file__).resolve().parents[4]
TEMPLATE = {
    "WORKER_COUNT": "2",
    "PS_COUNT": "1",
    "FRAMEWORK": "dask",
    "WORK_DIR": "main://train-0.train:7000",
    "CLUSTER_ID": "c1",
    "LAUNCH_ID": "1f2e3d4c",
    "LAUNCH_KEY": "5eed",
    "ENTRY_POINT": "train.py",
}


@pytest.mark.parametrize(
    ("index", "node", "rank"),
    [("0", "MAIN", 0), ("1", "WORKER_1", 1), ("2", "WORKER_2", 2), ("3", "PS_3", 3), ("4", "WORKER_4", 4)],
)
def test_the_index_is_the_rank(index: str, node: str, rank: int) -> None:
    """Main, workers, parameter servers; who joins later is a worker."""
    settings = read_settings({**TEMPLATE, "JOB_COMPLETION_INDEX": index, "CODE_URI": "git+https://h/r@v1"}, ROOT)
    assert (settings.node, settings.rank) == (node, rank)
    assert settings.code_dir.parent.name == f"1f2e3d4c-{node}"


def test_a_mode_that_is_given_counts() -> None:
    """Somebody runs one node of his own in an Indexed Job."""
    given = {**TEMPLATE, "JOB_COMPLETION_INDEX": "0", "MODE": "WORKER", "NODE_RANK": "7"}
    assert read_settings(given, ROOT).node == "WORKER_7"
    assert read_settings({**given, "MODE": "MAIN"}, ROOT).node == "MAIN"


@pytest.mark.parametrize("index", ["-1", "one", "1000001", "1.5"])
def test_an_index_that_is_none_is_named(index: str) -> None:
    """With the value."""
    with pytest.raises(SettingsError, match=f"JOB_COMPLETION_INDEX: '{index}' is not a whole number"):
        read_settings({**TEMPLATE, "JOB_COMPLETION_INDEX": index}, ROOT)


def test_wrong_counts_are_named_once() -> None:
    """Though the index is looked up with them."""
    with pytest.raises(SettingsError) as caught:
        read_settings({**TEMPLATE, "JOB_COMPLETION_INDEX": "1", "WORKER_COUNT": "x", "PS_COUNT": "y"}, ROOT)
    assert str(caught.value).count("WORKER_COUNT") == str(caught.value).count("PS_COUNT") == 1


# --- What does not go with a work dir in the memory of main ---------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("NODE_LOGS", "1", "NODE_LOGS: 1 does not go with WORK_DIR main://"),
        ("CODE_URI", "main://train-0:7000/code.tar#sha256=00", "CODE_URI: code cannot be in the memory of main"),
        ("LAUNCH_KEY", "", "LAUNCH_KEY is not set"),
        ("WORK_DIR", "main://train-0", "is not main://HOST:PORT"),
        ("WORK_DIR", "main://train-0:70000", "is not main://HOST:PORT"),
        ("WORK_DIR", "main://train-0:0", "is not main://HOST:PORT"),
        ("WORK_DIR", "main://train-0:7000/folder", "is not main://HOST:PORT"),
        ("WORK_DIR", "main://me@train-0:7000", "is not main://HOST:PORT"),
        ("WORK_DIR", "main://:7000", "is not main://HOST:PORT"),
    ],
)
def test_what_does_not_go_with_it_is_refused(name: str, text: str, said: str) -> None:
    """Before anything has begun."""
    with pytest.raises(SettingsError, match=said):
        read_settings({**TEMPLATE, "JOB_COMPLETION_INDEX": "1", name: text}, ROOT)


@pytest.mark.parametrize("place", ["10.0.0.1:7000", "[fd00::1]:7000", "train-0.train.team-a.svc.cluster.local:7000/"])
def test_main_has_an_address_or_a_name(place: str) -> None:
    """And a port."""
    settings = read_settings({**TEMPLATE, "JOB_COMPLETION_INDEX": "1", "WORK_DIR": f"main://{place}"}, ROOT)
    assert settings.cluster_url == f"main://{place.rstrip('/')}/c1"
