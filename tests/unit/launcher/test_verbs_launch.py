"""`launch`: its steps, its signals, what was typed, the dry run."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from unit.launcher.door import Door, ended

from oci_cluster.contract.cluster import Plan, clusters_dir
from oci_cluster.errors import BackendError, SettingsError, UsageError
from oci_cluster.launcher import context, lifecycle, verbs
from oci_cluster.system.console import Say


def test_a_launch_places_checks_prepares_starts_and_follows(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """In this order; the code is the cluster's own, and claims are given up in the end."""
    ended(door, 7)
    assert verbs.run("launch", ["dask", "1", "--name", "mine"]) == 7
    names = [call if isinstance(call, str) else call[0] for call in door.backend.calls]
    assert names == ["place", "find", "prepare", "find", "start", "logs", "finish", "close"]
    shown = capsys.readouterr()
    (directory,) = clusters_dir(door.root).glob("mine-*")
    assert shown.err.splitlines()[:2] == [
        "oci_cluster: preparing",
        f"oci_cluster: cluster mine started: 2 nodes; files in {directory}",
    ]
    assert shown.err.splitlines()[-1].startswith("oci_cluster: cluster mine ended with 7 after ")


@pytest.mark.parametrize(("code", "launch"), [(0, 69), (7, 7)])
def test_what_could_not_be_brought_after_the_end_is_told(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int, launch: int
) -> None:
    """It makes a success none; a failure keeps its own code."""
    monkeypatch.setattr(lifecycle, "_INSIST_S", 0.0)
    ended(door, code)

    def fail() -> None:
        msg = "the logs are not here"
        raise BackendError(msg)

    door.backend.on["finish"] = fail
    assert verbs.run("launch", ["dask", "1"]) == launch
    error, last = capsys.readouterr().err.splitlines()[-2:]
    assert error == "oci_cluster: error: the logs are not here"
    assert last.startswith("oci_cluster: cluster dask-")


@pytest.mark.parametrize("words", [["--json"], []])
def test_a_dry_run_prints_what_would_be_sent_and_changes_nothing(
    door: Door, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Made by the backend of a placed plan; claims are given up."""
    assert verbs.run("launch", ["dask", "1", "--dry-run", "--detach", *words]) == 0
    shown = capsys.readouterr()
    assert (shown.err, json.loads(shown.out)["work_dir"]) == ("", f"file://{clusters_dir(door.root)}")
    assert door.backend.calls == ["place", "find", ("preview", bool(words)), "close"]
    assert not clusters_dir(door.root).exists()


def test_a_dry_run_asks_nobody_where_that_costs(door: Door) -> None:
    """The name is checked with the launch itself there."""
    door.backend.is_free_to_ask = False
    assert verbs.run("launch", ["dask", "1", "--dry-run"]) == 0
    assert door.backend.calls == ["place", ("preview", False), "close"]


@pytest.mark.parametrize(
    ("is_here", "registry", "image"),
    [
        (False, "r.example/team", "r.example/team/dask:not-pushed"),
        (False, "", "registry.invalid/dask:not-pushed"),
        (True, "", ""),
    ],
)
def test_a_dry_run_needs_no_image(
    door: Door, monkeypatch: pytest.MonkeyPatch, registry: str, image: str, *, is_here: bool
) -> None:
    """Where nodes are elsewhere; a launch does need one."""
    backends = door.root / "scripts" / "backends"
    backends.mkdir(parents=True)
    (backends / "cloud.env").write_text("IMAGE=\n")
    monkeypatch.setenv("REGISTRY", registry)
    monkeypatch.setattr(door.backend, "is_this_machine", is_here)
    checked: list[str] = []
    monkeypatch.setattr(door.backend, "check", lambda plan=None: plan and checked.append(plan.settings["IMAGE"]))
    for words in (["--dry-run"], []):
        ended(door, 0)
        assert verbs.run("launch", ["dask", "1", "--backend", "cloud", *words]) == 0
    assert checked == [image, ""]


@pytest.mark.parametrize(("words", "is_preview"), [(["--dry-run"], True), ([], False)])
def test_a_dry_run_has_no_more_installed_than_it_imports(
    door: Door, monkeypatch: pytest.MonkeyPatch, words: list[str], *, is_preview: bool
) -> None:
    """An SDK has half a gigabyte."""
    asked: list[bool] = []
    monkeypatch.setattr(context, "ensure_backend_tools", lambda *_, is_preview: asked.append(is_preview))
    ended(door, 0)
    assert verbs.run("launch", ["dask", "1", *words]) == 0
    assert asked == [is_preview]


@pytest.mark.parametrize("step", ["place", "find", "prepare", "start"])
def test_a_step_that_fails_ends_a_launch(door: Door, step: str) -> None:
    """No later one begins, and claims are given up; a dry run ends where it would have gone as far."""

    def fail() -> None:
        msg = "not here"
        raise SettingsError(msg)

    door.backend.on[step] = fail
    if step in {"place", "find"}:
        with pytest.raises(SettingsError, match="not here"):
            verbs.run("launch", ["dask", "1", "--dry-run"])
        assert door.backend.asked("preview", "close") == ["close"]
        door.backend.calls.clear()
    with pytest.raises(SettingsError, match="not here"):
        verbs.run("launch", ["dask", "1"])
    order = ["place", "find", "prepare", "start"]
    names = [call if isinstance(call, str) else call[0] for call in door.backend.asked(*order)]
    assert [*dict.fromkeys(names)] == order[: order.index(step) + 1]
    assert (bool(door.backend.asked("remove")), door.backend.calls[-1]) == (step == "start", "close")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("step", ["place", "find", "prepare"])
def test_a_signal_ends_steps_that_start_nothing(door: Door, step: str, number: int) -> None:
    """At once: whatever they wait for is left."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    door.backend.on[step] = lambda: os.kill(os.getpid(), number)
    with pytest.raises(KeyboardInterrupt):
        verbs.run("launch", ["dask", "1"])
    assert (door.backend.asked("start"), door.backend.calls[-1]) == ([], "close")


def test_what_was_typed_becomes_the_plan(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every option; relative paths start where the user is."""
    Path("src").mkdir()
    Path("src/mine.py").touch()
    Path("python").symlink_to(sys.executable)
    monkeypatch.setenv("TIME_OUT", "7")
    words = ["--entry", "src/mine.py", "--code", "src", "--python", "python", "--env", "A=b=c", "--env", "B="]
    words += ["--name", "mine", "--ps", "1", "--ttl", "2h", "--dry-run"]
    assert verbs.run("launch", ["dask", "2", *words, "--", "-x", "a b"]) == 0
    found = json.loads(capsys.readouterr().out)
    environment = {
        "ENTRY_POINT": "mine.py",
        "CODE_DIR": str(Path("src").resolve()),
        "A": "b=c",
        "B": "",
        "CLUSTER_NAME": "mine",
        "PS_COUNT": "1",
        "TTL": "2h",
        "TIMEOUT": "7",
        "EPHEMERAL": "1",
        "ARGS": '["-x", "a b"]',
    }
    assert {name: found["environment"][name] for name in environment} == environment
    assert (found["python"], [node["node"] for node in found["nodes"]]) == (
        str(Path("python").absolute()),
        ["MAIN", "WORKER_1", "WORKER_2", "PS_3"],
    )


def test_a_kept_cluster_runs_no_entry_point(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """--keep."""
    del door
    assert verbs.run("launch", ["dask", "2", "--keep", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["environment"]["EPHEMERAL"] == "0"


def test_variables_reach_the_plan_in_the_order_of_the_command_line(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line to what is shown."""
    del door
    monkeypatch.setenv("MY_TOKEN", "hush")
    Path("my.env").write_text("A=file\nB=file\nMY_SECRET=hush\n")
    words = ["--env", "A=1", "--env-file", "my.env", "--env=B=2", "--env", "MY_TOKEN", "--dry-run"]
    assert verbs.run("launch", ["dask", "2", *words]) == 0
    environment = json.loads(capsys.readouterr().out)["environment"]
    shown = {name: environment[name] for name in ("A", "B", "MY_TOKEN", "MY_SECRET")}
    assert shown == {"A": "file", "B": "2", "MY_TOKEN": "hush", "MY_SECRET": "hush"}


@pytest.mark.usefixtures("door")
def test_more_workers_than_the_backend_takes_are_refused() -> None:
    """Its limit is the launch's."""
    limit = "'251' is not a whole number from 0 to 250, which is what the local backend takes"
    with pytest.raises(UsageError, match=f"workers: {limit}; try 3"):
        verbs.run("launch", ["dask", "251"])


def test_plans_go_to_backends_as_they_were_made(door: Door) -> None:
    """A backend places what make_plan has decided."""
    seen: list[Plan] = []
    place = door.backend.place

    def note(plan: Plan, say: Say) -> Plan:
        seen.append(plan)
        return place(plan, say)

    door.backend.place = note  # type: ignore[method-assign]
    verbs.run("launch", ["dask", "1", "--dry-run", "--backend", "cloud"])
    assert [(plan.framework, plan.backend) for plan in seen] == [("dask", "cloud")]
