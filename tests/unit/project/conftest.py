from __future__ import annotations

from pathlib import Path

import pytest
from unit.project.user_project import UserProject


@pytest.fixture
def project(tmp_path: Path) -> UserProject:
    return UserProject(tmp_path)
