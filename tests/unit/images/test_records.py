"""The records of what was built and pushed, and what a launch runs of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.stub_engine import DIGEST, Checkout

from oci_cluster.images import records as image_records


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("", f"r.example/team/dask:v1@{DIGEST}"),
        ("r.example/team/dask:v1", f"r.example/team/dask:v1@{DIGEST}"),
        ("r.example/team/dask:v2", "r.example/team/dask:v2"),
        (f"r.example/team/dask:v1@sha256:{1:064}", f"r.example/team/dask:v1@sha256:{1:064}"),
    ],
)
def test_a_launch_runs_exactly_what_was_pushed(built: Checkout, name: str, image: str) -> None:
    """The last push's digest goes with its own name, and with no name at all; never with another."""
    assert image_records.pushed_image(name, "dask", built.root) == name
    built.images().push(["dask"])
    assert image_records.pushed_image(name, "dask", built.root) == image
    assert image_records.pushed_image("", "pytorch", built.root) == ""


def test_a_placeholder_is_told_of(tmp_path: Path) -> None:
    """A dry run needs a name; no other image is taken for one."""
    assert image_records.placeholder("dask", "r.example/team/") == "r.example/team/dask:not-pushed"
    note = image_records.note_of(image_records.placeholder("dask", ""))
    assert note.startswith(
        "registry.invalid/dask:not-pushed stands for an image that was not pushed from here: make push-dask"
    )
    assert image_records.note_of("r.example/team/dask:v1") == ""


@pytest.mark.parametrize("text", ["", "[]", '{"image": 3, "id": "", "digest": "", "built": ""}', '{"image": "x"}'])
def test_a_record_that_is_none_counts_as_none(tmp_path: Path, text: str) -> None:
    """A build that was killed may leave anything."""
    (tmp_path / ".images").mkdir()
    (tmp_path / ".images" / "dask.json").write_text(text)
    assert image_records.read("dask", tmp_path) is None


def test_a_record_is_replaced_whole(tmp_path: Path) -> None:
    """Others of this machine may read it, as any file of a checkout."""
    for image in ("one", "two"):
        record = {"image": image, "id": "", "digest": "", "built": ""}
        image_records.write("dask", tmp_path, record)
        assert image_records.read("dask", tmp_path) == record
    (path,) = (tmp_path / ".images").iterdir()
    assert (path.name, path.read_text()) == ("dask.json", json.dumps(record, indent=2) + "\n")
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    ("record", "platform"),
    [
        ({"platform": "linux/amd64"}, "linux/amd64"),
        ({"platform": "linux/arm64/v8"}, "linux/arm64/v8"),
        ({}, ""),
        ({"platform": ""}, ""),
        ({"platform": "<no value>/<no value>"}, ""),
        ({"platform": 3}, ""),
    ],
)
def test_what_does_not_say_a_platform_is_not_known_to_have_one(record: dict[str, str], platform: str) -> None:
    """A record of an earlier version has none, and a file may say anything."""
    assert image_records.platform_of(record) == platform
