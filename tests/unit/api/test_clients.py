"""A cluster as clients of Dask ask it; what answers them is played."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator
from types import ModuleType

import pytest
from unit.api.conftest import Site

from oci_cluster import api
from oci_cluster.api.cluster import Cluster
from oci_cluster.errors import SettingsError, StoppedError


class FakeDask:
    """What a Dask cluster is asked."""

    scheduler_address = "tls://here"

    def __init__(self, notes: list[object]) -> None:
        self.notes = notes

    def __await__(self) -> Generator[None, None, FakeDask]:
        return self
        yield

    def get_client(self) -> str:
        return "a client"

    def adapt(self, **options: object) -> dict[str, object]:
        return options

    def disconnect(self) -> None:
        self.notes.append("disconnect")

    async def close_all(self) -> None:
        self.notes.append("close")


def test_a_client_that_cannot_be_is_refused_before_anything_is_launched(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install. A script, or somebody else, needs no client here."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (site.root / "plain").rename(site.root / "dask")
    with pytest.raises(SettingsError, match=r"no distributed, .*'\./common\[dask\]'"):
        Cluster("dask", 1, project=site.root, say=site.said.append).up()
    assert site.said == []
    Cluster("dask", 1, project=site.root, keep=True, say=site.said.append).up().down()


def test_a_dask_cluster_is_asked_by_its_clients(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is connected to once, and told when the cluster ends."""
    notes: list[object] = []
    module = ModuleType("oci_cluster.api.dask")
    vars(module)["connected"] = lambda cluster: notes.append("connect") or FakeDask(notes)  # type: ignore[func-returns-value]
    monkeypatch.setitem(sys.modules, "oci_cluster.api.dask", module)
    monkeypatch.setattr(api, "dask", module, raising=False)
    (site.root / "plain").rename(site.root / "dask")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    cluster = Cluster("dask", 1, project=site.root, say=site.said.append).up()

    async def by_client() -> None:
        await cluster
        await cluster.close()

    asyncio.run(by_client())
    assert (cluster.client(), cluster.scheduler_address) == ("a client", "tls://here")
    assert cluster.adapt(1, 3, interval="1s") == {"minimum": 1, "maximum": 3, "interval": "1s"}
    cluster.down()
    assert notes == ["connect", "close", "disconnect"]
    with pytest.raises(StoppedError, match="was ended: stopped by its program"):
        cluster.client()
