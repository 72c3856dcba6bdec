"""The nodes' logs: from the cluster dir, or from OCI Logging as oci-cli answers for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.fake_oci import COMPARTMENT, Launcher
from unit.signed_files import leave_log

from oci_cluster.contract.cluster import Cluster
from oci_cluster.contract.log_times import read_times
from oci_cluster.errors import UsageError

GROUP = "ocid1.loggroup.oc1.iad.x"


class Logging:
    """OCI Logging: two lines in a page, of each run."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.asked: list[list[str]] = []

    def __call__(self, what: str, *words: str) -> dict[str, Any]:
        assert what == "search the logs"
        assert words[:2] == ("logging-search", "search-logs")
        options = dict(zip(words[2::2], words[3::2], strict=True))
        self.asked.append(list(words))
        run = options["--search-query"].partition("source = '*")[2].partition("'")[0]
        start = int(options.get("--page", "0"))
        found = self.lines.get(run, [])
        results = [self._result(line) for line in found[start : start + 2]]
        more = {"opc-next-page": str(start + 2)} if start + 2 < len(found) else {}
        return {"data": {"results": results}, **more}

    @staticmethod
    def _result(line: str) -> dict[str, Any]:
        """Return what is found of a line, which may begin with its second."""
        second, _, text = line.rpartition("@")
        time = {"datetime": int(second) * 1000} if second.isdigit() else {}
        return {"data": {**time, "logContent": {"data": {"message": text}}}}


@pytest.fixture
def logging(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> Logging:
    made = Logging()
    monkeypatch.setattr(launcher.service, "cli", made)
    return made


@pytest.fixture
def cluster(launcher: Launcher) -> Cluster:
    """Return a cluster whose logs are in OCI Logging alone."""
    cluster = launcher.launch(NODE_LOGS="0", LOG_GROUP_OCID=GROUP)
    launcher.science.jobs[cluster.handle].job_log_configuration_details = SimpleNamespace(log_group_id=GROUP)
    return cluster


def run_of(launcher: Launcher, node: str) -> str:
    return next(run.id for run in launcher.science.runs.values() if run.freeform_tags["oci-cluster-node"] == node)


@pytest.mark.parametrize("is_another", [False, True])
def test_logs_come_from_oci_logging(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path, *, is_another: bool
) -> None:
    """All pages, once; the log group is what the Job tells."""
    logging.lines[run_of(launcher, "MAIN")] = ["one", "two", "three"]
    copy = (launcher.another() if is_another else launcher.backend).logs(cluster, tmp_path, follow=True)
    copy.fetch()
    logging.lines[run_of(launcher, "MAIN")] += ["four"]
    logging.lines[run_of(launcher, "WORKER_2")] = ["hello"]
    copy.fetch()
    copy.close()
    assert copy.directory == tmp_path
    assert (tmp_path / "MAIN.log").read_text() == "one\ntwo\nthree\nfour\n"
    assert (tmp_path / "WORKER_2.log").read_text() == "hello\n"
    query = logging.asked[0][logging.asked[0].index("--search-query") + 1]
    assert query.startswith(f'search "{COMPARTMENT}/{GROUP}" | where source = ')


def test_lines_of_oci_logging_have_its_times(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """One that has none, or has one of the script's own, is a line all the same."""
    logging.lines[run_of(launcher, "MAIN")] = ["1@one", "5@2026-01-01T00:00:00Z five", "x"]
    logging.lines[run_of(launcher, "WORKER_1")] = ["3@three"]
    launcher.backend.logs(cluster, tmp_path, follow=False).fetch()
    assert (tmp_path / "MAIN.log").read_text() == "one\n2026-01-01T00:00:00Z five\nx\n"
    assert [*read_times(tmp_path / "MAIN.times")] == [(1000, 4), (5000, 30), (5000, 32)]
    assert [*read_times(tmp_path / "WORKER_1.times")] == [(3000, 6)]


def test_a_run_that_is_just_being_accepted_has_no_logs(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """Nobody is asked for them: there is no time to ask from."""
    for run in launcher.science.runs.values():
        run.time_accepted = None
    launcher.backend.logs(cluster, tmp_path, follow=False).fetch()
    assert logging.asked == []


def test_a_runs_tag_is_no_path(launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path) -> None:
    """What OCI Logging has of a run that somebody has made is not written beyond the folder of the logs."""
    run = launcher.science.add_run(cluster.handle, freeform_tags={"oci-cluster-node": "../outside"})
    logging.lines[run.id] = ["hello"]
    (tmp_path / "logs").mkdir()
    launcher.backend.logs(cluster, tmp_path / "logs", follow=False).fetch()
    assert not (tmp_path / "outside.log").exists()
    assert (tmp_path / "logs" / "MAIN.log").read_text() == "hello\n"


def test_logs_come_from_the_cluster_dir(launcher: Launcher, logging: Logging, tmp_path: Path) -> None:
    """Where the nodes leave them, OCI Logging is not asked."""
    cluster = launcher.launch(LOG_GROUP_OCID=GROUP)
    stored = launcher.cluster_dir(cluster)
    leave_log(stored, "MAIN", b"hello\n")
    copy = launcher.backend.logs(cluster, tmp_path, follow=True)
    copy.fetch()
    copy.fetch()
    copy.close()
    assert copy.directory == tmp_path
    assert (tmp_path / "MAIN.log").read_text() == "hello\n"
    assert logging.asked == []


def test_logs_that_are_nowhere_are_told(launcher: Launcher, tmp_path: Path) -> None:
    """With the two settings that would have kept them."""
    cluster = launcher.launch(NODE_LOGS="0")
    with pytest.raises(UsageError, match="mine was launched with NODE_LOGS=0 and without LOG_GROUP_OCID"):
        launcher.backend.logs(cluster, tmp_path, follow=False)
