"""A project and a user's folder, of which a test has a launch planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import ClusterError
from oci_cluster.launcher.launch.plan import Request, make_plan

SETTINGS_ENV = "SCHEDULER_PORT=8786\nDASHBOARD_PORT=8787\nWORKER_PORTS=8700:8800\nNPROCS=1\nMIN_WORKERS=1\n"
HINT = "(config.env.example explains each)"


class Checkout:
    """A project with one framework, and a user's folder with a script, both with blanks in their paths."""

    def __init__(self, place: Path) -> None:
        self.root = place / "my project"
        self.cwd = place / "my work"
        (self.root / "dask" / "example").mkdir(parents=True)
        (self.root / "dask" / "example" / "train.py").touch()
        (self.root / "dask" / "start-master.sh").touch()
        (self.root / "dask" / "settings.env").write_text(SETTINGS_ENV)
        self.cwd.mkdir()
        self.said: list[str] = []
        (self.cwd / "my script.py").touch()

    def config(self, *lines: str) -> None:
        (self.root / "config.env").write_text("\n".join(lines) + "\n")

    def plan(self, environ: dict[str, str] | None = None, **asked: Any) -> Plan:
        request = Request(**{"framework": "dask", "workers": "2", "backend": "local", **asked})
        return make_plan(request, environ or {}, root=self.root, cwd=self.cwd, max_workers=250, say=self.said.append)

    def environment(self, environ: dict[str, str] | None = None, **asked: Any) -> dict[str, str]:
        return dict(self.plan(environ, **asked).environment)

    def code(self, **settings: str) -> tuple[str, str]:
        environment = self.environment(settings=settings)
        return environment["CODE_DIR"], environment["ENTRY_POINT"]


def refusal(kind: type[ClusterError], checkout: Checkout, environ: dict[str, str] | None = None, **asked: Any) -> str:
    with pytest.raises(kind) as caught:
        checkout.plan(environ, **asked)
    assert type(caught.value) is kind
    return str(caught.value)
