from __future__ import annotations

from pathlib import Path

import pytest
from unit.images.image import Image
from unit.stub_engine import Checkout
from unit.system.wheels import offline


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Return a checkout; whoever asks the engine without an environment of its own finds the stub's."""
    found = Checkout(tmp_path)
    monkeypatch.setenv("STUB", str(found.stub))
    monkeypatch.chdir(found.root)
    return found


@pytest.fixture
def built(checkout: Checkout) -> Checkout:
    """Return a checkout whose image for a registry has been built."""
    checkout.images(REGISTRY="r.example/team").build(["dask"])
    checkout.calls()
    checkout.said.clear()
    return checkout


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    """Return a place to build, on a base without conda."""
    found = Image(tmp_path)
    offline(monkeypatch, found.wheels)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return found
