"""The verbs on the backend `oci`: from a command line to what a person sees, with a service that the test plays."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.fake_data_science import DataScience, FakeService
from unit.fake_oci import COMPARTMENT, LEAST, MOUNT, NODES, ROOT, Checkout
from unit.signed_files import leave_log

from oci_cluster.backends import base
from oci_cluster.backends.oci import backend as oci_backend
from oci_cluster.backends.oci import service as oci_service
from oci_cluster.backends.oci.backend import OciBackend
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import BackendError, SettingsError, UsageError
from oci_cluster.launcher import context, lifecycle, verbs
from oci_cluster.launcher.launch import launch
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.launcher.show import logs
from oci_cluster.system import process

pytestmark = pytest.mark.usefixtures("empty_memory")

PROGRAM = "test.sh"
COMMON = ROOT / "common"


class Signals:
    """No signal; a wait lets time pass, and runs what the test has planned for it."""

    clock: Any = None
    steps: list[Callable[[], object]]

    def __init__(self, *, children: bool, outlives_terminal: bool) -> None:
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
        (self.checkout.root / "common").mkdir()  # where a reaper is started
        self.science = DataScience(clock)
        self.stored: list[str] = []
        self.environs: list[dict[str, str]] = []
        self.steps: list[Callable[[], object]] = []
        desk = self

        class AskedService(FakeService):
            def __init__(
                self, environ: dict[str, str], *, is_stopped: Callable[[], bool], sleep: Callable[[float], None]
            ) -> None:
                desk.environs.append(environ)
                super().__init__(desk.science, is_stopped=is_stopped, clock=clock)

            def use_for_storage(self) -> None:
                desk.stored.append("storage")

        monkeypatch.setattr(oci_service, "Service", AskedService)
        monkeypatch.setattr(Signals, "clock", clock)
        monkeypatch.setattr(Signals, "steps", self.steps, raising=False)
        monkeypatch.setattr(process, "Signals", Signals)
        for module in (verbs, launch, context):
            monkeypatch.setattr(module, "PROJECT_ROOT", self.checkout.root)
        monkeypatch.setattr(verbs.signal, "signal", lambda *_: None)
        for name in ("ensure_tools", "ensure_backend_tools"):  # this interpreter has what they would install
            for module in (launch, context):
                monkeypatch.setattr(module, name, lambda *_, **__: Path(sys.executable), raising=False)
        monkeypatch.setattr(base, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
        for kind, moved in ((OciBackend, {"clock": clock}), (Lifecycle, {"clock": clock, "sleep": clock.sleep})):
            defaults = {**(kind.__init__.__kwdefaults__ or {}), **moved}  # type: ignore[misc]
            monkeypatch.setattr(kind.__init__, "__kwdefaults__", defaults)  # type: ignore[misc]
        self.setenv = monkeypatch.setenv
        for name, text in {**LEAST, **MOUNT, "NODE_LOGS": "1", "BACKEND": "oci", "CLUSTER_PROGRAM": PROGRAM}.items():
            self.setenv(name, text)

    def run(self, verb: str, *words: str) -> int:
        return verbs.run(verb, words)

    def launch(self, *words: str, name: str = "mine") -> int:
        return self.run("launch", "plain", "2", "--name", name, *words)

    def cluster_dir(self) -> ClusterDir:
        """Return that of the cluster that was launched last."""
        job = [*self.science.jobs.values()][-1]
        environment = job.job_configuration_details.environment_variables
        url = f"memory://work/{environment['CLUSTER_ID']}"
        return ClusterDir(url, environment["LAUNCH_ID"], environment["LAUNCH_KEY"])

    def print_log(self, node: str, text: str) -> None:
        leave_log(self.cluster_dir(), node, text.encode())

    def end_all(self, state: str = "SUCCEEDED", details: str = "") -> None:
        for node in NODES:
            self.science.end(node, state, details)


@pytest.fixture
def desk(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path.resolve(), clock, monkeypatch)


def test_a_dry_run_prints_what_would_be_sent(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """A script, or JSON; nobody is asked, nobody needs to be known, and no file is left."""
    desk.setenv("WORK_DIR", "oci://bucket@ns/work")
    assert desk.launch("--dry-run") == 0
    assert capsys.readouterr().out.startswith("#!/usr/bin/env bash\n# Usage: my-launch.sh ")
    assert desk.launch("--dry-run", "--json") == 0
    assert set(json.loads(capsys.readouterr().out)) == {"job", "job_runs", "notes"}
    assert (desk.environs, desk.science.requests) == ([], [])
    assert not (desk.checkout.root / ".clusters").exists()


def test_the_sdk_is_imported_by_those_alone_who_ask() -> None:
    """It takes a third of a second, which a dry run does not spend."""
    code = "import sys; import oci_cluster.backends.oci.backend; sys.exit('oci' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env={"PYTHONPATH": str(COMMON)}).returncode == 0


def test_another_python_is_refused_in_a_dry_run_too(desk: Desk) -> None:
    """Nodes have that of their image."""
    with pytest.raises(UsageError, match="--python works with the backend local only; nodes on OCI use the Python"):
        desk.launch("--dry-run", "--python", sys.executable)


def test_packages_are_refused_in_a_dry_run_too(desk: Desk) -> None:
    """They belong into the image, and how they get there is said."""
    with pytest.raises(UsageError, match=r"list a, b>1 in a file requirements\.txt, then make build-"):
        desk.launch("--dry-run", "--with", "a,b>1")


def test_nodes_need_nothing_of_this_machine(desk: Desk) -> None:
    """Nothing is made for them."""
    backend = OciBackend(desk.checkout.root, COMPARTMENT, lambda: pytest.fail("nobody is to be asked"))
    plan = desk.checkout.plan()
    assert backend.prepare(plan, pytest.fail) is plan


def test_a_detached_launch_prints_its_name(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """And returns when all nodes have been created."""
    assert desk.launch("--detach") == 0
    assert capsys.readouterr().out == "mine\n"
    assert desk.science.nodes() == NODES
    assert desk.stored == ["storage"]
    assert logging.getLogger("oci").level == logging.WARNING


def test_a_launch_is_followed_to_its_end(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Logs come out of the cluster dir; its code is main's."""

    def end() -> None:
        desk.print_log("MAIN", "hello\nbye\n")
        desk.cluster_dir().publish("stop", exit_code=7, reason="the entry point failed")
        desk.end_all("FAILED", "exit code 7")

    desk.steps += [lambda: desk.print_log("MAIN", "hello\n"), end]
    assert desk.launch() == 7
    out, err = capsys.readouterr()
    assert out == "MAIN     | hello\nMAIN     | bye\n"
    assert f"{PROGRAM}: cluster mine started: 3 nodes; files in {desk.cluster_dir().url}, Job ocid1." in err
    assert "cluster mine ended with 7 (the entry point failed)" in err


@pytest.mark.parametrize(("ended", "expected"), [(7, 7), (0, 69)])
def test_what_fails_after_the_end_does_not_hide_the_clusters_code(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ended: int, expected: int
) -> None:
    """But makes no success of what was not all done."""

    def fail(*_: object) -> None:
        raise BackendError("no room")

    monkeypatch.setattr(OciBackend, "finish", fail)
    monkeypatch.setattr(lifecycle, "_INSIST_S", 0.0)  # the waits of these tests take no time
    words = ("FAILED", f"exit code {ended}") if ended else ("SUCCEEDED", "")

    def end() -> None:
        desk.cluster_dir().publish("MAIN_exit.json", exit_code=ended, reason="")
        desk.end_all(*words)

    desk.steps += [end]
    assert desk.launch() == expected
    assert f"{PROGRAM}: error: no room\n" in capsys.readouterr().err


def test_a_run_that_has_succeeded_and_told_nothing_is_no_success(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its image does not run the agent. Of a bucket that somebody has cleared since, the service's word counts."""
    desk.steps += [lambda: desk.end_all("SUCCEEDED", "")]
    assert desk.launch() == 78
    last = capsys.readouterr().err.splitlines()[-1]
    assert "ended with 78 (MAIN ended with 0 and reported nothing: the image iad.ocir.io/mytenancy/dask:1" in last
    assert desk.run("status", "mine") == 0
    assert "FAILED" in capsys.readouterr().out
    desk.cluster_dir().remove("launched.json")
    assert desk.run("status", "mine") == 0
    assert "SUCCEEDED" in capsys.readouterr().out


def test_a_cluster_that_could_not_be_started_ends_its_launch(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Main has no capacity: nobody waits for TIMEOUT, and the reason is told with what to do."""
    desk.steps += [
        lambda: desk.science.end("MAIN", "FAILED", "Out of capacity."),
        lambda: [desk.science.end(node, "FAILED", "exit code 69") for node in ("WORKER_1", "WORKER_2")],
    ]
    assert desk.launch() == 69
    assert "MAIN could not be started: Out of capacity.; choose another SHAPE" in capsys.readouterr().err


def test_a_status_is_shown(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """As text, or as JSON; the only cluster that runs needs no name."""
    desk.launch("--detach")
    capsys.readouterr()
    assert desk.run("status") == 0
    text = capsys.readouterr().out
    assert desk.run("status", "mine", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert all(word in text for word in ("mine", "MAIN", "WORKER_2", "ACCEPTED"))
    assert [node["node"] for node in found["nodes"]] == NODES
    assert found["directory"] == desk.cluster_dir().url
    fields = ["address", "node", "state", "exit_code", "ocid", "details", "never_started", "waiting_s", "phase"]
    assert list(found["nodes"][0]) == fields


@pytest.mark.parametrize(("words", "names"), [([], ["other"]), (["--all"], ["mine", "other"])])
def test_clusters_are_listed(
    desk: Desk, capsys: pytest.CaptureFixture[str], words: list[str], names: list[str]
) -> None:
    """Those that run, or all."""
    desk.launch("--detach")
    desk.end_all()
    desk.launch("--detach", name="other")
    capsys.readouterr()
    assert desk.run("list", *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [cluster["name"] for cluster in found] == names
    fields = ["name", "framework", "backend", "state", "exit_code", "created", "nodes", "job"]
    assert [list(cluster) for cluster in found] == [fields] * len(names)
    assert desk.run("list", *words) == 0
    text = capsys.readouterr().out
    assert [name for name in ("mine", "other") if name in text] == names


def test_logs_are_shown(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Of all nodes, or of one; those of a cluster that runs as far as they go."""
    desk.launch("--detach")
    desk.print_log("MAIN", "one\n")
    desk.print_log("WORKER_1", "two\n")
    capsys.readouterr()
    assert desk.run("logs", "mine") == 0
    assert capsys.readouterr().out == "MAIN     | one\nWORKER_1 | two\n"
    assert desk.run("logs", "mine", "--node", "WORKER_1") == 0
    assert capsys.readouterr().out == "WORKER_1 | two\n"


def test_logs_are_followed(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Until the cluster has ended."""
    desk.launch("--detach")
    capsys.readouterr()

    def end() -> None:
        desk.print_log("MAIN", "one\ntwo\n")
        desk.end_all()

    desk.steps += [lambda: desk.print_log("MAIN", "one\n"), end]
    assert desk.run("logs", "mine", "--follow") == 0
    assert capsys.readouterr().out == "MAIN     | one\nMAIN     | two\n"


def test_the_logs_of_no_node_are_refused(desk: Desk) -> None:
    """Those that there are, are named."""
    desk.launch("--detach")
    with pytest.raises(UsageError, match="mine has no node 'WORKER_9'; it has MAIN, WORKER_1, WORKER_2"):
        desk.run("logs", "mine", "--node", "WORKER_9")


def test_a_cluster_is_stopped(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Its name is printed; with --delete nothing of it is left."""
    desk.launch("--detach")
    capsys.readouterr()
    assert desk.run("stop", "--delete") == 0
    out, err = capsys.readouterr()
    assert (out, desk.science.nodes(), desk.science.jobs) == ("mine\n", [], {})
    assert err.startswith(f"{PROGRAM}: stopping mine\n")


def test_a_cluster_is_scaled(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """How many workers there are then is printed."""
    desk.launch("--detach")
    capsys.readouterr()
    assert desk.run("scale", "mine", "+1") == 0
    assert capsys.readouterr() == ("3\n", f"{PROGRAM}: WORKER_3 started\n")


def test_a_cluster_that_is_not_there_is_named(desk: Desk) -> None:
    """With those that there are."""
    desk.launch("--detach")
    with pytest.raises(UsageError, match="there is no cluster 'other'; known: mine"):
        desk.run("status", "other")


def test_a_cluster_is_found_by_its_id_too(desk: Desk) -> None:
    """As on every backend: the name of its cluster dir."""
    desk.launch("--detach")
    assert desk.run("status", desk.cluster_dir().url.rpartition("/")[2]) == 0


def test_config_env_tells_where_clusters_are_and_who_asks(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment wins over it."""
    monkeypatch.delenv("COMPARTMENT_OCID")
    with pytest.raises(SettingsError, match="COMPARTMENT_OCID is not set"):
        desk.run("list", "--all", "--json")
    lines = [f"COMPARTMENT_OCID={COMPARTMENT}", "OCI_CLI_PROFILE=mine", "OCI_CLI_REGION=here", "SHAPE=x"]
    (desk.checkout.root / "config.env").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("OCI_CLI_REGION", "there")
    assert desk.run("list", "--all", "--json") == 0
    environ = desk.environs[-1]
    assert (environ["OCI_CLI_PROFILE"], environ["OCI_CLI_REGION"], environ.get("SHAPE")) == ("mine", "there", None)


def test_a_look_every_two_seconds_is_often_enough() -> None:
    """Each is a request or two, for hours."""
    assert OciBackend.poll_s > 10 * logs._POLL_S


@pytest.mark.parametrize(("stopped_at", "slept"), [(0.0, 5.0), (1.0, 1.0), (9.0, 5.0)])
def test_a_signal_cuts_a_pause_short(desk: Desk, clock: Any, stopped_at: float, slept: float) -> None:
    """The one in which it comes: what is ended after it is waited for."""
    begun = clock.now
    backend = oci_backend.open_backend(desk.checkout.root, {}, lambda: clock.now - begun >= stopped_at)
    backend._sleep(5.0)
    assert slept - 0.01 <= clock.now - begun <= slept + 0.21
