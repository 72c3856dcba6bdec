"""The nodes' logs out of the cluster dir, and which of the two places they come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.backends.oci.fake_logging import GROUP, Logging, logged_cluster
from unit.fake_oci import Launcher
from unit.signed_files import leave_log

from oci_cluster.errors import UsageError


def test_logs_come_from_the_cluster_dir(launcher: Launcher, tmp_path: Path) -> None:
    """Where the nodes leave them, OCI Logging is not asked."""
    logging = Logging(launcher)
    cluster = launcher.launch(LOG_GROUP_OCID=GROUP)
    stored = launcher.cluster_dir(cluster)
    leave_log(stored, "MAIN", b"hello\n")
    copy = launcher.backend.logs(cluster, tmp_path, follow=True)
    copy.fetch()
    copy.fetch()
    copy.drain(lambda: True, print)
    copy.close()
    assert copy.directory == tmp_path
    assert (tmp_path / "MAIN.log").read_text() == "hello\n"
    assert logging.searches == []


@pytest.mark.parametrize("is_another", [False, True])
def test_logs_come_from_oci_logging(launcher: Launcher, tmp_path: Path, *, is_another: bool) -> None:
    """The log group is what the Job tells."""
    logging = Logging(launcher)
    cluster = logged_cluster(launcher)
    logging.begin(10)
    logging.print(logging.run_of("MAIN"), "hello")
    (launcher.another() if is_another else launcher.backend).logs(cluster, tmp_path, follow=False).fetch()
    assert (tmp_path / "MAIN.log").read_text() == "hello\n"


def test_logs_that_are_nowhere_are_told(launcher: Launcher, tmp_path: Path) -> None:
    """With the two settings that would have kept them."""
    cluster = launcher.launch(NODE_LOGS="0")
    with pytest.raises(UsageError, match="mine was launched with NODE_LOGS=0 and without LOG_GROUP_OCID"):
        launcher.backend.logs(cluster, tmp_path, follow=False)
