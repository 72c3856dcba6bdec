# A Kubernetes in memory, and what check.sh finds there of a launch.

from __future__ import annotations

from pathlib import Path

import pytest
from unit.backends.kubernetes.check_api import Api, Launch

from oci_cluster.backends.kubernetes import check


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    monkeypatch.setattr(check, "open_service", made.open)
    return made


@pytest.fixture
def launch(api: Api, tmp_path: Path) -> Launch:
    return Launch(api, tmp_path)
