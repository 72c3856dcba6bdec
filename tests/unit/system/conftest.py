# Fresh checkouts, on a machine with uv and on one without.

from __future__ import annotations

from pathlib import Path

import pytest
from unit.system.fake_checkout import Checkout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Return a fresh checkout on a machine that has uv."""
    return Checkout(tmp_path, monkeypatch, uv=True)


@pytest.fixture
def without_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Return a fresh checkout on a machine that has pip only."""
    return Checkout(tmp_path, monkeypatch, uv=False)
