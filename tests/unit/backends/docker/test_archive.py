"""What an ended cluster leaves: copied from the engine, read in the checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.fake_engine import Launcher

from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.files.log_times import StampedLog
from oci_cluster.errors import BackendError


def test_what_an_ended_cluster_leaves_is_copied_and_the_rest_removed(launcher: Launcher) -> None:
    """Logs, outputs, what the nodes said and how they ended: no key, no link, and no file of the launcher's own."""
    cluster = launcher.launch(1)
    launcher.leave_files(cluster)
    launcher.fake.end_all(7)
    launcher.finish(cluster)
    assert launcher.fake.left() == ([], [], [])
    directory = cluster.directory
    assert (directory / "logs" / "WORKER_1.log").read_text() == "hello of WORKER_1\n"
    names = sorted(path.name for path in (directory / "logs").iterdir())
    assert names == ["MAIN.log", "MAIN.times", "WORKER_1.log", "WORKER_1.times"]
    assert (directory / "outputs" / "deep" / "model").read_text() == "weights"
    assert not list(directory.rglob("link"))
    assert not list(directory.rglob("up"))
    assert not (directory / "MAIN_certificate.json").exists()
    assert (directory / "stop").read_text() == "7"
    assert json.loads((directory / "cluster.json").read_text())["name"] == "mine"
    launcher.backend = launcher.another()
    kept = launcher.found()
    assert launcher.codes(kept) == {"MAIN": 7, "WORKER_1": 7}
    assert launcher.backend.load(kept).url == f"file://{directory}"
    launcher.finish(cluster)  # a second time, as a stop.sh beside it does
    assert launcher.codes(kept) == {"MAIN": 7, "WORKER_1": 7}


def test_another_checkout_keeps_the_cluster_that_it_has_ended(launcher: Launcher, tmp_path: Path) -> None:
    """With what main's container told of its plan, in a folder that is private."""
    other = tmp_path / "other"
    other.mkdir()
    launcher.launch(1, TTL="1h", CPUS="2")
    launcher.leave_files(launcher.found())
    launcher.fake.end_all(7)
    launcher.backend = launcher.another(other)
    cluster = launcher.found()
    launcher.finish(cluster)
    assert (cluster.directory.parent, cluster.directory.stat().st_mode & 0o777) == (other / ".clusters", 0o700)
    assert (cluster.directory / "cluster.json").stat().st_mode & 0o777 == 0o600
    plan = Plan.load(cluster.directory, other)
    assert (plan.limits.ttl_s, plan.settings["CPUS"], plan.node_names) == (3600, "2", ["MAIN", "WORKER_1"])
    launcher.backend = launcher.another(other)
    assert launcher.codes(launcher.found()) == {"MAIN": 7, "WORKER_1": 7}
    assert launcher.backend.load(launcher.found()).url == f"file://{cluster.directory}"


def test_a_launcher_that_is_killed_loses_no_log_that_was_kept(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old and whole, or new and whole: with its times."""
    cluster = launcher.launch(1)
    launcher.fake.end_all()
    logs = cluster.directory / "logs"
    for name in ("MAIN.log", "MAIN.times"):
        (logs / name).write_text(f"what was kept in {name}")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(StampedLog, "flush", killed)
        with pytest.raises(KeyboardInterrupt):
            launcher.finish(cluster)
    assert [(logs / name).read_text() for name in ("MAIN.log", "MAIN.times")] == [
        "what was kept in MAIN.log",
        "what was kept in MAIN.times",
    ]
    launcher.finish(cluster)
    assert (logs / "MAIN.log").read_text() == "hello of MAIN\n"
    assert "what was kept" not in (logs / "MAIN.times").read_text()


@pytest.mark.parametrize("verb", ["logs", "cp"])
def test_what_could_not_be_copied_stays_in_the_engine(launcher: Launcher, verb: str) -> None:
    """With the command that tries again."""
    cluster = launcher.launch(1)
    launcher.leave_files(cluster)
    launcher.fake.end_all()
    launcher.fake.fail(verb, "docker: input/output error", "" if verb == "logs" else "outputs")
    with pytest.raises(BackendError, match=r"could not be copied .* try again: scripts/stop.sh mine --backend docker"):
        launcher.finish(cluster)
    assert len(launcher.fake.left()[0]) == 2
    launcher.fake.change(faults=[])
    launcher.stop(launcher.found())
    assert launcher.fake.left() == ([], [], [])


def test_outputs_that_are_no_archive_stay_in_the_engine(launcher: Launcher) -> None:
    """An engine that stops in the middle of an answer, and says that all is well."""
    cluster = launcher.launch(1)
    launcher.leave_files(cluster)
    launcher.fake.end_all()
    launcher.fake.change(cut=True)
    with pytest.raises(BackendError, match=r"outputs cannot be unpacked: .* it stays in the engine"):
        launcher.finish(cluster)
    assert len(launcher.fake.left()[0]) == 2


def test_records_that_are_none_tell_of_no_node(launcher: Launcher) -> None:
    """A cluster of which nothing is known has not succeeded."""
    cluster = launcher.launch(1)
    launcher.fake.end_all()
    launcher.finish(cluster)
    records = cluster.directory / "nodes.json"
    records.write_text(json.dumps({"nodes": json.loads(records.read_text())["nodes"][::-1]}))
    assert list(launcher.codes(cluster)) == ["MAIN", "WORKER_1"]  # whoever wrote them in which order
    for text in ('{"nodes": [{"node": "MAIN"}]}', '{"nodes": 1}', "[]", "{"):
        records.write_text(text)
        assert launcher.states(cluster) == []
