# A launcher of containers whose engine the test plays.

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.fake_engine import Launcher

from oci_cluster.system.engine import Engine


@pytest.fixture
def launcher(tmp_path: Path, clock: Any) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path.resolve(), clock)
    yield launcher
    launcher.backend.close()


@pytest.fixture
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an engine do what it is asked before time goes on."""
    start = Engine.start

    def start_and_wait(self: Engine, *words: str, output: Path) -> Any:
        client = start(self, *words, output=output)
        client.wait()
        return client

    monkeypatch.setattr(Engine, "start", start_and_wait)
