"""Logs of containers, as they come to this machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from unit.fake_engine import Launcher

from oci_cluster.system.engine import Engine


def test_logs_are_of_containers_then_of_what_was_kept(launcher: Launcher, tmp_path: Path) -> None:
    """logs.sh does not tell the two apart."""
    cluster = launcher.launch(1)
    for step in ("before", "after"):
        (tmp_path / step).mkdir()
        copy = launcher.backend.logs(launcher.found(), tmp_path / step, follow=False)
        copy.fetch()
        assert copy.directory == tmp_path / step
        assert (tmp_path / step / "WORKER_1.log").read_text() == "hello of WORKER_1\n"
        copy.close()
        if step == "before":
            launcher.fake.end_all()
            launcher.finish(cluster)


def test_logs_are_followed_by_one_client_for_each_node(launcher: Launcher, tmp_path: Path) -> None:
    """A log that is whole is not copied again; a client that has ended too early is replaced."""
    cluster = launcher.launch(1)
    copy = launcher.backend.logs(cluster, tmp_path, follow=True)

    def asked() -> int:
        """Return how many clients there have been, once those that there are have ended."""
        copy.fetch()
        for client in copy._clients.values():
            client.wait()
        return len(launcher.words("logs"))

    assert [asked(), asked()] == [2, 4]  # the first two have ended though their nodes run
    launcher.fake.end_all()
    launcher.states(cluster)
    whole = asked()
    assert asked() == whole == 6
    assert [words[1] for words in launcher.words("logs")] == ["--follow"] * 4 + ["--timestamps"] * 2
    assert (tmp_path / "WORKER_1.log").read_text() == "hello of WORKER_1\n"
    copy.close()
    assert sorted(path.name for path in tmp_path.glob("*.*")) == [
        "MAIN.log",
        "MAIN.times",
        "WORKER_1.log",
        "WORKER_1.times",
    ]


def test_a_log_that_takes_long_is_shown_as_far_as_it_has_come(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look has all of it."""
    launcher.launch(1)
    monkeypatch.setattr("oci_cluster.backends.docker.logs._REST_S", 0.01)
    slow = tmp_path / "slow"
    slow.write_text(
        "#!/bin/sh\necho 2026-01-01T00:00:00Z one\n"
        f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done\necho 2026-01-01T00:00:01Z two\n"
    )
    slow.chmod(0o755)
    copy = launcher.backend.logs(launcher.found(), tmp_path, follow=False)
    copy._engine = Engine(str(slow))
    log = tmp_path / "MAIN.log"
    deadline = time.monotonic() + 60
    while not log.exists() or not log.read_text():
        assert time.monotonic() < deadline
        copy.fetch()
    first = log.read_text()
    (tmp_path / "go").touch()
    for client in copy._clients.values():
        client.wait(60)
    monkeypatch.setattr("oci_cluster.backends.docker.logs._REST_S", 60.0)
    copy.fetch()
    assert (first, log.read_text()) == ("one\n", "one\ntwo\n")
    copy.close()
