"""Files of a cluster dir that cannot be used: half-written, huge, another launch's, hostile."""

from __future__ import annotations

import os
from typing import Any

import pytest
from unit.contract.fake_storage import KEY, LAUNCH, FailingFileSystem, document, leave, own

from oci_cluster.contract.files.cluster_dir import MAX_BYTES, ClusterDir
from oci_cluster.errors import SettingsError


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not usable (Expecting value: line 1 column 1 (char 0))"),
        (document()[:-1], "not usable (Expecting ',' delimiter: line 1 column 38 (char 37))"),
        (b"[1, 2]", "not usable (not a JSON object)"),
        (b"null", "not usable (not a JSON object)"),
        (b'"stop"', "not usable (not a JSON object)"),
        (document(pad="x" * MAX_BYTES), "not usable (larger than 1048576 bytes)"),
        (document(launch_id="other"), "of another launch ('other')"),
        (document(launch_id=None), "of another launch ('None')"),
        (document(launch_id=[LAUNCH]), "of another launch (\"['1f2e3d4c']\")"),
        (document(launch_id="x\n\033[2J" + "y" * 100), f"of another launch ('x\\n\\x1b[2J{'y' * 58}')"),
        (document(launch_id="old", schema=7), "of another launch ('old')"),
    ],
    ids=[
        "empty",
        "half-written",
        "list",
        "null",
        "string",
        "huge",
        "other launch",
        "no launch",
        "launch in a list",
        "control characters",
        "other launch of another schema",
    ],
)
def test_a_file_that_cannot_be_used_is_not_used(cluster_dir: ClusterDir, body: bytes, why: str) -> None:
    """Half-written, huge, foreign or shapeless files read as absent, with the reason kept for the log."""
    leave(cluster_dir, "stop", body)
    assert (cluster_dir.read("stop"), cluster_dir.unusable) == (None, {"stop": why})


@pytest.mark.parametrize("body", [b"\xff\xfe\x00\x81", b"\x00" * 10, b"{" * 100], ids=["bytes", "zeros", "braces"])
def test_bytes_that_are_no_text_are_not_used(cluster_dir: ClusterDir, body: bytes) -> None:
    """Garbage of any kind reads as absent, and is said to be unusable."""
    leave(cluster_dir, "stop", body)
    assert (cluster_dir.read("stop"), list(cluster_dir.unusable)) == (None, ["stop"])


def test_deeply_nested_json_is_not_used(cluster_dir: ClusterDir) -> None:
    """Half a megabyte of brackets is one more unusable file, not a bug in the agent."""
    leave(cluster_dir, "stop", b"[" * (MAX_BYTES // 2))
    assert (cluster_dir.read("stop"), list(cluster_dir.unusable)) == (None, ["stop"])


def test_a_file_of_the_largest_size_is_used(cluster_dir: ClusterDir) -> None:
    """The limit is the last size that is read."""
    leave(cluster_dir, "stop", own("stop", pad="x" * (MAX_BYTES - len(own("stop", pad="")))))
    assert set(cluster_dir.read("stop") or ()) == {"schema", "launch_id", "counter", "pad"}


def test_no_more_than_the_limit_is_asked_for(failing: type[FailingFileSystem]) -> None:
    """A hostile file cannot fill the node's memory: one byte more than the limit is requested, and no second look."""
    ClusterDir("failing://c", LAUNCH, KEY).read("stop")
    assert failing.calls == ["range 0-1048577", "cat_file"]


def test_a_complaint_ends_when_the_file_is_whole(cluster_dir: ClusterDir) -> None:
    """A half-written file is looked at again; once it is whole, nothing is said of it any more."""
    leave(cluster_dir, "stop", b"{")
    cluster_dir.read("stop")
    cluster_dir.publish("stop", reason="r")
    assert (cluster_dir.read("stop") or {})["reason"] == "r"
    assert cluster_dir.unusable == {}


@pytest.mark.parametrize(
    ("schema", "shown"), [(2, "'2'"), ("1", "'1'"), (None, "'None'"), ([1], "'[1]'"), ("x" * 99, f"'{'x' * 64}'")]
)
def test_an_unknown_schema_ends_the_node(cluster_dir: ClusterDir, schema: Any, shown: str) -> None:
    """This launch's file in a schema that is not ours is a wrong setting (78), named with the way out."""
    leave(cluster_dir, "MAIN_config.json", own("MAIN_config.json", schema=schema))
    with pytest.raises(SettingsError) as caught:
        cluster_dir.read("MAIN_config.json")
    assert str(caught.value) == (
        f"{cluster_dir.url}/MAIN_config.json has schema {shown}, this node knows 1;"
        " run the same version on every node and launcher"
    )


def test_a_file_sets_nothing_but_its_fields(cluster_dir: ClusterDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """LD_PRELOAD in a file is a field like any other: reading it changes no environment."""
    monkeypatch.setenv("WITNESS", "before")
    before = dict(os.environ)
    fields: dict[str, Any] = {"LD_PRELOAD": "/x.so", "WITNESS": "after", "environment": {"WITNESS": "x"}}
    leave(cluster_dir, "MAIN_config.json", own("MAIN_config.json", **fields))
    assert (cluster_dir.read("MAIN_config.json") or {})["WITNESS"] == "after"
    assert dict(os.environ) == before
