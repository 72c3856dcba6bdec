"""What OCI Logging may still deliver after the end is waited for; a cluster without a line is explained."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.backends.oci.fake_logging import Logging, drained, lines
from unit.fake_oci import Launcher

from oci_cluster.backends.oci import logs
from oci_cluster.contract.cluster import Cluster


@pytest.mark.parametrize("follow_too", [False, True])
def test_logs_of_a_cluster_that_ended_long_ago_are_not_waited_for(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path, *, follow_too: bool
) -> None:
    logging.begin(400)
    logging.print(logging.run_of("MAIN"), "hello", ago_s=200)
    logging.end(91)
    copy = logging.copy(cluster, tmp_path, follow=follow_too)
    copy.fetch()
    assert drained(copy, launcher.clock) == ([], 0.0)
    assert lines(tmp_path) == ["hello"]


def test_who_does_not_follow_is_told_that_more_may_come(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """Of a cluster that has just ended; of one that runs that goes without saying."""
    copy = logging.copy(cluster, tmp_path, follow=False)
    copy.fetch()
    assert drained(copy, launcher.clock) == ([], 0.0)
    logging.end(40)
    copy = logging.copy(cluster, tmp_path, follow=False)
    copy.fetch()
    assert drained(copy, launcher.clock) == (["OCI Logging may have more lines within 50 s: run this again then"], 0.0)


@pytest.mark.parametrize("is_followed", [True, False])
def test_that_no_node_has_left_a_line_is_said_with_the_policy(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path, *, is_followed: bool
) -> None:
    """Every node prints: runs that may not write there look like a cluster that has said nothing."""
    logging.end(ago_s=0.0 if is_followed else 10_000.0)
    copy = logging.copy(cluster, tmp_path, follow=is_followed)
    copy.fetch()
    said, _ = drained(copy, launcher.clock)
    assert "OCI Logging has no line of any node" in said[-1]
    assert "use log-content" in said[-1]
    logging.print(logging.run_of("WORKER_1"), "here")
    copy = logging.copy(cluster, tmp_path, follow=is_followed)
    copy.fetch()
    assert not any("no line of any node" in text for text in drained(copy, launcher.clock)[0])


def test_nodes_that_never_ran_have_no_lines(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """Their policies may be well."""
    logging.end(ago_s=10_000.0)
    for run in launcher.science.runs.values():
        run.time_started = None
    copy = logging.copy(cluster, tmp_path, follow=False)
    copy.fetch()
    assert drained(copy, launcher.clock) == ([], 0.0)


def test_the_waiting_begins_anew_with_each_new_line_and_ends_when_nobody_wants_it(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """A line that comes once more is no new one. Ctrl-C ends the waiting, and what was held is shown."""
    copy = logging.copy(cluster, tmp_path)
    copy.fetch()
    entry = logging.print(logging.run_of("MAIN"), "late", late_s=60)
    logging.print(logging.run_of("MAIN"), "late", late_s=120, entry=entry)
    logging.end()
    _, took_s = drained(copy, launcher.clock)
    assert 150 <= took_s <= 150 + 2 * logs._DEEP_EVERY_S
    assert lines(tmp_path) == ["late"]
    logging.print(logging.run_of("MAIN"), "last")
    launcher.clock.sleep(4)
    copy.fetch()
    said, took_s = drained(copy, launcher.clock, most_s=1.0)
    assert (len(said), took_s, lines(tmp_path)) == (1, 2.0, ["late", "last"])


def test_a_list_that_lags_ends_no_waiting(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """Who follows knows that the nodes have ended, whatever the list of runs still says."""
    copy = logging.copy(cluster, tmp_path)
    copy.fetch()
    logging.print(logging.run_of("MAIN"), "late", late_s=25)
    _, took_s = drained(copy, launcher.clock)
    assert took_s >= 90 + 25
    assert lines(tmp_path) == ["late"]
