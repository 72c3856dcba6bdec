"""The sizes of layers, out of what an engine tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.stub_engine import Checkout

from oci_cluster.errors import SettingsError
from oci_cluster.system.screen import Screen

SIZES = ["localhost/oci-cluster/dask:v1  2.0 MB", "     2.000 MB  apt", "     0.002 MB  COPY a /code"]


def test_sizes_show_the_layers_that_have_files(checkout: Checkout) -> None:
    """Of an image that is there, whatever the tag is now; else how to build it."""
    checkout.images().build(["dask"])
    assert checkout.images(TAG="v2").sizes(["dask"]).splitlines() == SIZES
    with pytest.raises(SettingsError, match="make build-pytorch"):
        checkout.images().sizes(["dask", "pytorch"])


def test_on_a_terminal_a_layer_is_one_line(tmp_path: Path) -> None:
    """A RUN of a page ends in an ellipsis."""
    checkout = Checkout(tmp_path, "podman")
    checkout.set(history=json.dumps([{"size": 1500, "CreatedBy": "RUN apt-get install " + "package " * 30}]))
    checkout.images().build(["dask"])
    line = checkout.images().sizes(["dask"], Screen(40)).splitlines()[1]
    assert line == "     0.002 MB  apt-get install package…"


def test_podman_tells_exact_sizes_as_json(tmp_path: Path) -> None:
    """Its templates have rounded ones."""
    checkout = Checkout(tmp_path, "podman")
    layers = [{"size": 2_000_000, "CreatedBy": "/bin/sh -c apt"}, {"size": 0, "CreatedBy": "ENV"}]
    checkout.set(history=json.dumps([*layers, {"size": 1500, "createdBy": "COPY a /code"}]))
    checkout.images().build(["dask"])
    assert checkout.images().sizes(["dask"]).splitlines() == SIZES
