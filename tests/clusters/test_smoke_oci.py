"""`make smoke-oci` against the stand-in: it resolves every guess, finds those that are wrong, and leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE_S, wait_until
from oci_service.handle import Service

pytest.importorskip("oci", reason="needs an environment with oci-cli and ocifs")

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "iad.ocir.io/stand-in/dask:1"
# As the real service, but in seconds.
SHORT = {"minute_s": 4, "cancel_grace_s": 6, "ingest_delay_s": [0, 2], "ingest_duplicates": 0.2}


class Smoke:
    """Somebody with a tenancy, and what a ladder has left in it."""

    def __init__(self, service: Service, place: Path) -> None:
        self.service = service
        self._page = place / "guesses.md"
        image = {
            "entrypoint": [str(ROOT / "common" / "entrypoint.sh")],
            "environment": {
                "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                "PYTHONPATH": sysconfig.get_path("purelib"),
            },
        }
        service.control({"images": {IMAGE: image}, **SHORT})

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        paths = f"{ROOT}/tests:{ROOT}/common"
        given = {**self.service.environ, **self.service.settings, "IMAGE": IMAGE, "SMOKE_READY_S": "2", **environ}
        command = [sys.executable, "-m", "smoke_oci", "--framework", "dask", "--page", str(self._page), *words]
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": paths, **given},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def climb(self, *words: str, **environ: str) -> tuple[int, str]:
        """Return the exit code, and what was said."""
        process = self.start(*words, **environ)
        _, said = process.communicate(timeout=PATIENCE_S * 2)
        return process.returncode, said

    def verdicts(self) -> dict[str, str]:
        rows = re.findall(r"^\| `([\w-]+)` \| .* \| (right|WRONG|could not tell|not tested) \|", self.text(), re.M)
        return dict(rows)

    def text(self) -> str:
        return self._page.read_text()

    def assert_nothing_is_left(self) -> None:
        assert {job["lifecycleState"] for job in self.service.jobs()} <= {"DELETED"}
        ended = {"SUCCEEDED", "FAILED", "CANCELED", "DELETED"}
        assert {run["lifecycleState"] for run in self.service.job_runs()} <= ended
        assert self.service.objects("work/smoke-") == []


@pytest.fixture
def smoke(tmp_path: Path) -> Iterator[Smoke]:
    with Service(tmp_path / "oci", python=sys.executable) as service:
        yield Smoke(service, tmp_path)


def testable() -> set[str]:
    from smoke_oci.guesses import GUESSES  # noqa: PLC0415 - beside what it is started as

    return {name for name, guess in GUESSES.items() if guess.rung}


@pytest.mark.timeout(400)
def test_every_guess_is_resolved(smoke: Smoke) -> None:
    """Those that it lists as testable: all are right of the stand-in that the guesses describe."""
    code, said = smoke.climb("--yes")
    assert code == 0, said + smoke.text()
    verdicts = smoke.verdicts()
    assert {name for name, verdict in verdicts.items() if verdict == "right"} == testable(), smoke.text()
    assert set(verdicts.values()) == {"right", "not tested"}
    smoke.assert_nothing_is_left()
