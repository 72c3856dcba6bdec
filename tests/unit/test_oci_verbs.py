"""The verbs of the backend `oci`: from plan or name to what a person sees, with a service that the test plays."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.played_oci import COMPARTMENT, Checkout, DataScience, PlayedService

from oci_cluster import follow, jobs, oci_service, oci_verbs, verbs
from oci_cluster.clusters import Cluster
from oci_cluster.errors import BackendError, SettingsError, UsageError
from oci_cluster.exchange import Exchange

pytestmark = pytest.mark.usefixtures("empty_memory")

MOUNT = {"WORK_DIR": "memory://work", "STORAGE_MOUNTS": "data=oci://data@ns", "CLUSTER_NAME": "mine"}
PROGRAM = "test.sh"


class Signals:
    """No signal; a wait lets time pass, and runs what the test has planned for it."""

    clock: Any = None
    steps: list[Callable[[], object]]

    def __init__(self, *, children: bool) -> None:
        assert not children  # looks that start programs would otherwise follow each other at once
        self.received: int | None = None

    def wait(self, seconds: float) -> None:
        type(self).clock.sleep(seconds)
        if self.steps:
            self.steps.pop(0)()


class Desk:
    """A person at a checkout, and the service that its scripts ask."""

    def __init__(self, place: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkout = Checkout(place)
        self.science = DataScience(clock)
        self.stored: list[str] = []
        self.environs: list[dict[str, str]] = []
        self.steps: list[Callable[[], object]] = []
        self._monkeypatch = monkeypatch
        desk = self

        class AskedService(PlayedService):
            def __init__(
                self, environ: dict[str, str], *, is_stopped: Callable[[], bool], sleep: Callable[[float], None]
            ) -> None:
                desk.environs.append(environ)
                super().__init__(desk.science, is_stopped=is_stopped, clock=clock)

            def use_for_storage(self) -> None:
                desk.stored.append("storage")

        monkeypatch.setattr(oci_service, "Service", AskedService)
        for module in (oci_verbs, verbs):
            monkeypatch.setattr(module, "PROJECT_ROOT", self.checkout.root)
        monkeypatch.setattr(Signals, "clock", clock)
        monkeypatch.setattr(Signals, "steps", self.steps, raising=False)
        monkeypatch.setattr(verbs, "Signals", Signals)
        monkeypatch.setattr(oci_verbs, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
        defaults = {**(jobs.Jobs.__init__.__kwdefaults__ or {}), "clock": clock}
        monkeypatch.setattr(jobs.Jobs.__init__, "__kwdefaults__", defaults)
        monkeypatch.setenv("COMPARTMENT_OCID", COMPARTMENT)

    def stdin(self, plan: dict[str, Any]) -> None:
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(plan)))

    def run(self, verb: str, **words: Any) -> int:
        args = argparse.Namespace(**words)
        if own := getattr(oci_verbs, f"run_{verb}", None):
            return int(own(args, PROGRAM))
        return int(getattr(verbs, f"run_{verb}")(oci_verbs.backend, args, PROGRAM))

    def launch(self, **settings: str) -> Cluster:
        plan = self.checkout.plan(**{**MOUNT, **settings})
        self.stdin(plan)
        self.run("submit", follow=False)
        return Cluster(Path(), plan)

    def print_log(self, cluster: Cluster, node: str, text: str) -> None:
        name = f"logs/{node}.1700000000000.000000.log"
        Exchange(cluster.url, cluster.launch_id).write_bytes(name, text.encode())


@pytest.fixture
def desk(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path.resolve(), clock, monkeypatch)


def test_a_check_prints_what_would_be_sent(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands, or JSON; nobody is asked, and nobody needs to be known."""
    desk.stdin(desk.checkout.plan(**MOUNT))
    assert desk.run("check", json=False) == 0
    assert capsys.readouterr().out.startswith("# What a launch sends, as commands of oci-cli. Nothing has been sent.")
    desk.stdin(desk.checkout.plan(**MOUNT))
    assert desk.run("check", json=True) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"job", "job_runs", "notes"}
    assert (desk.environs, desk.science.requests) == ([], [])


def test_nodes_need_nothing_of_this_machine(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """The launcher's interpreter is what `prepare` tells."""
    assert desk.run("prepare") == 0
    assert capsys.readouterr().out == f"{sys.executable}\n"


def test_a_detached_launch_prints_its_name(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """And returns when all nodes have been created."""
    desk.launch()
    assert capsys.readouterr().out == "mine\n"
    assert desk.science.nodes() == ["MAIN", "WORKER_1", "WORKER_2"]
    assert desk.stored == ["storage"]


def test_a_launch_is_followed_to_its_end(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Logs come out of the cluster dir; its code is main's."""
    plan = desk.checkout.plan(**MOUNT)
    cluster = Cluster(Path(), plan)
    desk.stdin(plan)

    def end() -> None:
        desk.print_log(cluster, "MAIN", "hello\nbye\n")
        Exchange(cluster.url, cluster.launch_id).publish("stop", exit_code=7, reason="the entry point failed")
        for node in ("MAIN", "WORKER_1", "WORKER_2"):
            desk.science.end(node, "FAILED", "exit code 7")

    desk.steps += [lambda: desk.print_log(cluster, "MAIN", "hello\n"), end]
    assert desk.run("submit", follow=True) == 7
    out, err = capsys.readouterr()
    assert out == "MAIN     | hello\nMAIN     | bye\n"
    assert f"{PROGRAM}: cluster mine started: 3 nodes; files in memory://work/{plan['cluster_id']}, Job ocid1." in err
    assert "cluster mine ended with 7 (the entry point failed)" in err


@pytest.mark.parametrize(("ended", "expected"), [(7, 7), (0, 69)])
def test_what_fails_after_the_end_does_not_hide_the_clusters_code(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ended: int, expected: int
) -> None:
    """But makes no success of what was not all done."""

    def fail(*_: object) -> None:
        raise BackendError("no room")

    monkeypatch.setattr(jobs.Jobs, "finish", fail)
    desk.stdin(desk.checkout.plan(**MOUNT))
    nodes = ("MAIN", "WORKER_1", "WORKER_2")
    state, said = ("FAILED", f"exit code {ended}") if ended else ("SUCCEEDED", "")
    desk.steps += [lambda: [desk.science.end(node, state, said) for node in nodes]]
    assert desk.run("submit", follow=True) == expected
    assert f"{PROGRAM}: error: no room\n" in capsys.readouterr().err


def test_a_cluster_that_could_not_be_started_ends_its_launch(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Main has no capacity: nobody waits for TIMEOUT, and the reason is told with what to do."""
    desk.stdin(desk.checkout.plan(**MOUNT))
    desk.steps += [
        lambda: desk.science.end("MAIN", "FAILED", "Out of capacity."),
        lambda: [desk.science.end(node, "FAILED", "exit code 69") for node in ("WORKER_1", "WORKER_2")],
    ]
    assert desk.run("submit", follow=True) == 69
    assert "MAIN could not be started: Out of capacity.; choose another SHAPE" in capsys.readouterr().err


def test_a_status_is_shown(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """As text, or as JSON; the only cluster that runs needs no name."""
    desk.launch()
    capsys.readouterr()
    assert desk.run("status", name="", json=False) == 0
    text = capsys.readouterr().out
    assert desk.run("status", name="mine", json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(word in text for word in ("mine", "MAIN", "WORKER_2", "ACCEPTED"))
    assert [node["node"] for node in found["nodes"]] == ["MAIN", "WORKER_1", "WORKER_2"]


@pytest.mark.parametrize(("all_", "names"), [(False, ["other"]), (True, ["mine", "other"])])
def test_clusters_are_listed(desk: Desk, capsys: pytest.CaptureFixture[str], *, all_: bool, names: list[str]) -> None:
    """Those that run, or all."""
    desk.launch()
    for node in ("MAIN", "WORKER_1", "WORKER_2"):
        desk.science.end(node, "SUCCEEDED")
    desk.launch(CLUSTER_NAME="other")
    capsys.readouterr()
    assert desk.run("list", all=all_, json=True) == 0
    assert [cluster["name"] for cluster in json.loads(capsys.readouterr().out)] == names
    assert desk.run("list", all=all_, json=False) == 0
    text = capsys.readouterr().out
    assert [name for name in ("mine", "other") if name in text] == names


def test_logs_are_shown(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Of all nodes, or of one; those of a cluster that runs as far as they go."""
    cluster = desk.launch()
    desk.print_log(cluster, "MAIN", "one\n")
    desk.print_log(cluster, "WORKER_1", "two\n")
    capsys.readouterr()
    assert desk.run("logs", name="mine", node=None, follow=False) == 0
    assert capsys.readouterr().out == "MAIN     | one\nWORKER_1 | two\n"
    assert desk.run("logs", name="mine", node="WORKER_1", follow=False) == 0
    assert capsys.readouterr().out == "WORKER_1 | two\n"


def test_logs_are_followed(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Until the cluster has ended."""
    cluster = desk.launch()
    capsys.readouterr()

    def end() -> None:
        desk.print_log(cluster, "MAIN", "one\ntwo\n")
        for node in ("MAIN", "WORKER_1", "WORKER_2"):
            desk.science.end(node, "SUCCEEDED")

    desk.steps += [lambda: desk.print_log(cluster, "MAIN", "one\n"), end]
    assert desk.run("logs", name="mine", node=None, follow=True) == 0
    assert capsys.readouterr().out == "MAIN     | one\nMAIN     | two\n"


def test_the_logs_of_no_node_are_refused(desk: Desk) -> None:
    """Those that there are, are named."""
    desk.launch()
    with pytest.raises(UsageError, match="mine has no node 'WORKER_9'; it has MAIN, WORKER_1, WORKER_2"):
        desk.run("logs", name="mine", node="WORKER_9", follow=False)


def test_a_cluster_is_stopped(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Its name is printed; with --delete nothing of it is left."""
    desk.launch()
    capsys.readouterr()
    assert desk.run("stop", name="", delete=True) == 0
    out, err = capsys.readouterr()
    assert (out, desk.science.nodes(), desk.science.jobs) == ("mine\n", [], {})
    assert err.startswith(f"{PROGRAM}: stopping mine\n")


def test_a_cluster_is_scaled(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """How many workers there are then is printed."""
    desk.launch()
    capsys.readouterr()
    assert desk.run("scale", name="mine", workers="+1", most_workers=999) == 0
    assert capsys.readouterr() == ("3\n", f"{PROGRAM}: WORKER_3 started\n")


def test_a_cluster_that_is_not_there_is_named(desk: Desk) -> None:
    """With those that there are."""
    desk.launch()
    with pytest.raises(UsageError, match="there is no cluster 'other'; known: mine"):
        desk.run("status", name="other", json=False)


def test_a_cluster_is_found_by_its_id_too(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """As on every backend: the name of its cluster dir."""
    cluster = desk.launch()
    assert desk.run("status", name=cluster.plan["cluster_id"], json=False) == 0


def test_config_env_tells_where_clusters_are_and_who_asks(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment wins over it."""
    monkeypatch.delenv("COMPARTMENT_OCID")
    with pytest.raises(SettingsError, match="COMPARTMENT_OCID is not set"):
        desk.run("list", all=True, json=True)
    lines = [f"COMPARTMENT_OCID={COMPARTMENT}", "OCI_CLI_PROFILE=mine", "OCI_CLI_REGION=here", "SHAPE=x"]
    (desk.checkout.root / "config.env").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("OCI_CLI_REGION", "there")
    assert desk.run("list", all=True, json=True) == 0
    environ = desk.environs[-1]
    assert (environ["OCI_CLI_PROFILE"], environ["OCI_CLI_REGION"], environ.get("SHAPE")) == ("mine", "there", None)


def test_a_look_every_two_seconds_is_often_enough() -> None:
    """Each is a request or two, for hours."""
    assert jobs.Jobs.look_s > 10 * follow._LOOK_S
