"""check.sh --live: what is launched, what is told of it, and that nothing is left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.launcher.check.test_check import Checks
from unit.launcher.door import Door

from oci_cluster.backends.findings import Checked, fails
from oci_cluster.errors import BackendError, StoppedError, TimedOutError
from oci_cluster.launcher import verbs
from oci_cluster.launcher.args.command_line import CommandLine
from oci_cluster.launcher.check import check, live

PROOF = (
    "WORKER_1 | live: fine from WORKER_1 to MAIN: A_PORT 80\nMAIN     | live: {} from MAIN to WORKER_1: A_PORT 80{}\n"
)
WORK_DIR = "both nodes read and wrote the work dir, by which they found each other and ended"


class Launches:
    """What was launched, and what comes of it."""

    def __init__(self) -> None:
        self.lines: list[CommandLine] = []
        self.printed = PROOF.format("fine", "")
        self.code = 0
        self.error: Exception | None = None

    def launch(self, line: CommandLine) -> int:
        self.lines.append(line)
        self.code_of = {path.name: path.read_text() for path in Path(line.value("--entry")).parent.iterdir()}
        sys.stdout.write(self.printed)
        sys.stdout.flush()
        assert not sys.stdout.isatty()
        assert sys.stdout.fileno() == sys.stderr.fileno()
        if self.error:
            raise self.error
        return self.code


@pytest.fixture
def launches(door: Door, monkeypatch: pytest.MonkeyPatch) -> Launches:
    made, checks = Launches(), Checks()
    monkeypatch.setattr(check, "PROJECT_ROOT", door.root)
    monkeypatch.setattr(live, "PROJECT_ROOT", door.root)
    monkeypatch.setattr(check, "check_of", lambda _name: checks.findings)
    monkeypatch.setattr("oci_cluster.launcher.context.ensure_tools", lambda *_: Path(sys.prefix) / "bin" / "python")
    monkeypatch.setattr(live, "launch", made.launch)
    for name, text in {"common/live/prove.py": "proof", "dask/live/peers.py": "peers"}.items():
        (door.root / name).parent.mkdir()
        (door.root / name).write_text(text)
    monkeypatch.setattr(made, "checks", checks, raising=False)
    return made


Report = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def report(launches: Launches, capfd: pytest.CaptureFixture[str]) -> Report:
    """Return what runs check.sh --live, and returns its exit code and the lines of item ``live``."""

    def run(*words: str) -> tuple[int, list[str]]:
        code = verbs.run("check", ["dask", "3", "--live", *words])
        return code, [line for line in capfd.readouterr().out.splitlines() if " live " in line or line[:2] == "  "]

    return run


def test_two_nodes_prove_it_and_are_removed(door: Door, launches: Launches, report: Report) -> None:
    """With the user's own settings, and not with the user's script."""
    settings = "MIN_WORKERS=1\nA_PORT=80\nB_PORTS=90:99\nNODE_PORTS=A_PORT,B_PORTS\n"
    (door.root / "dask" / "settings.env").write_text(settings)
    code, lines = report("--env", "X=1", "--ttl", "2h", "--", "arg")
    assert (code, lines) == (
        0,
        [
            "fine     live              from WORKER_1 to MAIN: A_PORT 80",
            "fine     live              from MAIN to WORKER_1: A_PORT 80",
            f"fine     live              {WORK_DIR}",
        ],
    )
    (line,) = launches.lines
    assert (line.words, line.rest) == (["dask", "1"], [])
    entry = Path(line.value("--entry"))
    assert launches.code_of[entry.name] == "proof"
    assert launches.code_of["peers.py"] == "peers"
    assert not entry.parent.exists()
    assert line.value("--ttl") == "10m"
    assert line.given["--env"][0] == "X=1"
    assert ("--env", "LIVE_PORTS=A_PORT=80 B_PORTS=90:99") in line.typed
    assert {("--env", "LIVE_MEETING=99"), ("--env", "CUDA_VISIBLE_DEVICES=")} <= {*line.typed}
    assert not line.has("--live", "--json")


def test_a_framework_that_needs_all_ports_meets_on_any(launches: Launches, report: Report) -> None:
    report()
    assert {"LIVE_PORTS=", "LIVE_MEETING=29999"} <= set(launches.lines[0].given["--env"])


def test_what_it_may_cost_is_said_before(
    door: Door, launches: Launches, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many nodes, of which size, for how long at most."""
    monkeypatch.setattr(launches, "error", BackendError("no"))
    verbs.run("check", ["dask", "3", "--live"])
    said = "oci_cluster: live: 2 nodes of dask on local, for 10 min at most; they are removed then\n"
    shown = capfd.readouterr().err
    assert said in shown
    assert shown.index(said) < shown.index("WORKER_1 |")
    plan: Any = type("P", (), {"settings": {"SHAPE": "S", "OCPUS": "2", "GPUS": ""}, "provision_timeout_s": 600.0})()
    told = live.bound(Checked("dask", 1, door.root, {}, plan), "oci")
    size = "2 nodes of dask on oci with SHAPE=S OCPUS=2, for 10 min at most, and 10 min at most until they have started"
    assert told == f"{size}; they are removed then"
    assert live.bound(Checked("dask", 1, door.root, {}, None), "oci").startswith("2 nodes of dask on oci, for 10 min")


def test_a_port_that_is_not_reached_fails(launches: Launches, report: Report) -> None:
    launches.printed, launches.code = PROOF.format("fails", ": timed out"), 1
    code, lines = report("--backend", "cloud")
    assert code == 1
    assert lines[1] == "fails    live              from MAIN to WORKER_1: A_PORT 80: timed out"
    assert lines[3] == "fails    live              the cluster of two nodes ended with 1; its last lines are above"
    assert live._fix(Checked("dask", 1, Path(), {}, None), "oci").startswith("./scripts/setup.sh dask --apply ")


def test_a_cluster_that_does_not_come_about_fails_with_its_reason(launches: Launches, report: Report) -> None:
    launches.printed, launches.error = "", TimedOutError("not ready after 300 s")
    code, lines = report()
    told = "the cluster of two nodes ended with 1: not ready after 300 s; its last lines are above"
    assert (code, lines[0]) == (1, f"fails    live              {told}")


def test_an_end_without_a_proof_is_none(launches: Launches, report: Report) -> None:
    """0 alone does not say that anything was reached."""
    launches.printed = "MAIN     | something else\n"
    assert report()[0] == 1


def test_nothing_is_started_where_something_fails(launches: Launches, report: Report) -> None:
    """It would cost, and tell nothing new."""
    checks: Any = launches
    checks.checks.found = [fails("bucket", "there is none", "make it")]
    code, lines = report()
    assert (code, launches.lines) == (1, [])
    assert lines[-1] == "  live: no nodes were started, as something will fail: fix that first"


def test_the_cluster_is_removed_whatever_became_of_it(
    door: Door, launches: Launches, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its files; what cannot be removed is said."""
    seen: list[tuple[str, bool]] = []

    class Lives:
        def __init__(self, *_: Any) -> None:
            pass

        def stop(self, cluster: Any, *, delete: bool) -> None:
            seen.append((cluster.name, delete))

    door.run("mine")
    monkeypatch.setattr(live, "Lifecycle", Lives)
    monkeypatch.setattr(door.backend, "find", lambda name: door.backend.clusters if name.startswith("check-") else [])
    launches.error = BackendError("no")
    report()
    assert seen == [("mine", True)]

    def broken(_name: str) -> None:
        raise BackendError("gone")

    monkeypatch.setattr(door.backend, "find", broken)
    assert report()[0] == 1


def test_a_ctrl_c_stops_the_check_too(launches: Launches, report: Report) -> None:
    """When the cluster is removed; whether the launch tells it by its code or by an error."""
    launches.code = 143
    with pytest.raises(StoppedError, match="was stopped, and is removed"):
        report()
    launches.error = StoppedError("stopped")
    with pytest.raises(StoppedError):
        report()
