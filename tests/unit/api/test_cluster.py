"""Clusters as objects, on a backend that a test plays."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest
from unit.api.conftest import Site, until

from oci_cluster.api import background
from oci_cluster.api.cluster import Cluster
from oci_cluster.errors import (
    BackendError,
    ClusterFailedError,
    LostPlanError,
    NotPermittedError,
    SettingsError,
    StoppedError,
    TimedOutError,
    UsageError,
)


def calls(site: Site) -> list[str]:
    return [call if isinstance(call, str) else call[0] for call in site.backend.calls]


def test_up_takes_the_steps_of_a_launch_and_follows(site: Site) -> None:
    """In their order; a guard is there before anything runs, with the program's settings, and is dismissed at last."""
    cluster = site.cluster(name="mine", settings={"NPROCS": 2})
    assert repr(cluster) == "<Cluster plain on local: not launched>"
    assert cluster.up() is cluster
    assert calls(site)[:4] == ["place", "find", "prepare", "find"]
    assert (site.notes, site.guards[0].own) == (["guard local"], {"NPROCS": "2"})
    site.ready()
    assert cluster.wait_ready(60) is cluster
    assert (cluster.name, cluster.status(), cluster.backend, cluster.project) == (
        "mine",
        "IN_PROGRESS",
        "local",
        site.root,
    )
    assert cluster.details()["facts"] == {"greeting": "hello"}
    cluster.down()
    assert site.notes == ["guard local", "dismissed"]
    assert cluster.status() == "STOPPED"
    assert cluster.details()["reason"] == "stopped by its program"
    assert site.said[-1].startswith("cluster mine ended with 143 (stopped by its program) after ")
    cluster.down()  # one that has ended is as good


def test_the_thread_that_follows_has_the_backend_know_it(site: Site) -> None:
    """What nodes tell without storage, a thread sees that has loaded the plan."""
    threads: list[str] = []
    load = site.backend.load
    site.backend.load = lambda cluster: threads.append(threading.current_thread().name) or load(cluster)  # type: ignore[method-assign, func-returns-value]
    site.cluster(name="mine").up().down()
    assert "oci_cluster mine" in threads


@pytest.mark.parametrize(("keep", "followed"), [(False, "any"), (True, None)])
def test_main_knows_whether_a_program_follows_that_starts_workers(
    site: Site, *, keep: bool, followed: str | None
) -> None:
    """A cluster with ADAPT grows and shrinks as it does with launch.sh."""
    cluster = site.cluster(settings={"ADAPT": "1:2"}, keep=keep).up()
    (plan,) = site.backend.plans.values()
    assert plan.environment.get("FOLLOWED") == followed
    cluster.down()


def test_one_that_has_ended_is_not_forgotten(site: Site) -> None:
    """A program may end as soon as it is told, while the thread still tidies up."""
    followed: list[object] = []
    site.backend.on["close"] = lambda: followed.extend(background._followed)
    site.cluster().up().down()
    until(lambda: "close" in site.backend.calls)
    assert followed == []


def test_what_is_not_launched_says_so_and_is_ended_already(site: Site) -> None:
    cluster = site.cluster()
    cluster.down()
    for act in (cluster.status, cluster.wait, cluster.details, cluster.logs, cluster.follow):
        with pytest.raises(UsageError, match="this Cluster is not launched; call up"):
            act()  # type: ignore[operator]
    assert cluster._repr_html_() == "<code>&lt;Cluster plain on local: not launched&gt;</code>"


def test_it_is_launched_once(site: Site) -> None:
    with site.cluster(name="mine") as cluster:
        with pytest.raises(UsageError, match="mine has been launched already; make another Cluster"):
            cluster.up()
        assert cluster.__enter__() is cluster


def test_a_launch_that_fails_leaves_nothing(site: Site) -> None:
    """Neither a guard nor claims nor a thread; the object can be launched again."""

    def fail() -> None:
        msg = "no room"
        raise BackendError(msg)

    site.backend.on["start"] = fail
    cluster = site.cluster()
    with pytest.raises(BackendError, match="no room"):
        cluster.up()
    assert site.notes == ["guard local", "dismissed"]
    assert calls(site)[-2:] == ["remove", "close"]
    assert background._followed == {}
    del site.backend.on["start"]
    cluster.up().down()


def test_the_guard_of_a_launch_that_is_interrupted_looks_for_what_is_left(site: Site) -> None:
    """A second interrupt ends the removal of what was started."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    site.backend.on["start"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        site.cluster().up()
    assert site.notes == ["guard local", "released"]


def test_an_interrupt_while_its_thread_is_started_ends_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has the object of a cluster that goes on."""

    def fail(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(background.threading.Thread, "start", fail)
        with pytest.raises(KeyboardInterrupt):
            site.cluster().up()
    (launched,) = site.backend.clusters
    assert {state.exit_code for state in site.backend.nodes[launched.launch_id].values()} == {143}
    assert (site.notes, background._followed, calls(site)[-1]) == (["guard local", "dismissed"], {}, "close")


@pytest.mark.parametrize("keep", [False, True])
def test_an_interrupt_when_all_has_just_been_started_ends_it(site: Site, *, keep: bool) -> None:
    """Nobody follows it yet, and nobody would end it."""

    def say(line: str) -> None:
        if " started: " in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        site.cluster(keep=keep, say=say).up()
    (launched,) = site.backend.clusters
    assert {state.exit_code for state in site.backend.nodes[launched.launch_id].values()} == {143}
    assert site.notes == ["guard local", "dismissed"]


def test_a_success_is_0_and_brings_what_it_leaves(site: Site) -> None:
    cluster = site.cluster().up()
    site.end(0)
    assert (cluster.wait(60), cluster.status()) == (0, "SUCCEEDED")
    assert "finish" in calls(site)
    assert cluster.outputs == ""
    directory = next((site.root / ".clusters").glob("plain-*"))
    (directory / "outputs" / "model").touch()
    assert cluster.outputs == directory / "outputs"


@pytest.mark.parametrize(
    ("reason", "node"),
    [("WORKER_1: ValueError: bad row 7 (train.py:3)", "WORKER_1"), ("the entry point ended: exit code 7", "")],
)
def test_a_failure_has_code_reason_node_and_next_step(site: Site, reason: str, node: str) -> None:
    """The node where the reason names one: all nodes end with the cluster's code."""
    cluster = site.cluster(name="mine").up()
    site.end(7, reason)
    for wait in (cluster.wait, cluster.wait_ready):
        with pytest.raises(ClusterFailedError) as caught:
            wait(60)  # type: ignore[operator]
        error = caught.value
        assert (error.exit_code, error.reason, error.node) == (7, reason, node)
        assert error.next_step == "what its nodes have printed: logs()"


def test_one_that_is_gone_is_no_success(site: Site) -> None:
    cluster = site.cluster(name="mine").up()
    site.backend.nodes[site.backend.clusters[0].launch_id].clear()
    with pytest.raises(ClusterFailedError, match=r"mine ended with 76 \(its nodes are gone\)"):
        cluster.wait(60)
    with pytest.raises(ClusterFailedError, match=r"mine ended with 76 \(its nodes are gone\)"):
        Cluster.find("mine", project=site.root).wait(60)


def test_the_one_node_that_ended_so_is_named(site: Site) -> None:
    cluster = site.cluster(workers=2).up()
    (launched,) = site.backend.clusters
    site.backend.set_node(launched, "WORKER_1", 0)
    site.backend.set_node(launched, "WORKER_2", 0)
    site.end(7, "it failed")
    with pytest.raises(ClusterFailedError) as caught:
        cluster.wait(60)
    assert caught.value.node == "MAIN"


def test_a_main_that_was_lost_is_the_node_that_failed(site: Site) -> None:
    """It has told nothing; the workers, which end for it, have the cluster's code."""
    cluster = site.cluster(workers=1).up()
    (launched,) = site.backend.clusters
    with site._ending:
        site.backend.set_node(launched, "MAIN", 137)
        site.backend.set_node(launched, "WORKER_1", 76)
    with pytest.raises(ClusterFailedError) as caught:
        cluster.wait(60)
    error = caught.value
    assert (error.exit_code, error.reason, error.node) == (76, "MAIN was lost", "MAIN")


def test_one_that_was_ready_and_has_ended_is_not_ready(site: Site) -> None:
    """Whoever launched it, and whoever finds it."""
    cluster = site.cluster(name="mine").up()
    site.ready()
    cluster.wait_ready(60)
    site.end(7, "it failed")
    with pytest.raises(ClusterFailedError):
        cluster.wait(60)
    for one in (cluster, Cluster.find("mine", project=site.root)):
        with pytest.raises(ClusterFailedError, match="mine ended with 7"):
            one.wait_ready(60)


def test_a_wait_has_an_end_and_the_cluster_goes_on(site: Site) -> None:
    with site.cluster(name="mine") as cluster:
        with pytest.raises(TimedOutError, match=r"mine is not ready after 0\.01 s, and goes on; wait again, or end it"):
            cluster.wait_ready(0.01)
        with pytest.raises(TimedOutError, match=r"mine has not ended after 0\.01 s"):
            cluster.wait(0.01)
        assert cluster.status() == "IN_PROGRESS"
    with pytest.raises(StoppedError, match="mine was ended: stopped by its program"):
        cluster.wait()


def test_nobody_who_may_not_see_waits_for_ready(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait ends, and the cluster is followed to its end all the same."""
    refused = NotPermittedError("not yours")
    monkeypatch.setattr(
        "oci_cluster.launcher.follow.follower.Follower.until_ready", lambda _: (_ for _ in ()).throw(refused)
    )
    with site.cluster() as cluster, pytest.raises(NotPermittedError, match="not yours"):
        cluster.wait_ready(60)
    assert cluster.status() == "STOPPED"


def test_one_that_cannot_be_followed_is_ended_and_says_why(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        msg = "a bug"
        raise RuntimeError(msg)

    monkeypatch.setattr("oci_cluster.launcher.follow.follower.Follower.run", fail)
    cluster = site.cluster(name="mine").up()
    site.ready()
    with pytest.raises(RuntimeError, match="a bug"):
        cluster.wait(60)
    assert "ending mine, which nobody can follow" in site.said
    assert "error: mine could not be followed to its end: a bug" in site.said
    until(lambda: site.notes == ["guard local", "dismissed"])
    assert cluster.status() == "STOPPED"


def test_the_guard_of_one_that_could_not_be_ended_stays(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        msg = "no answer"
        raise BackendError(msg)

    monkeypatch.setattr("oci_cluster.launcher.follow.follower.Follower.until_ready", lambda _: None)
    monkeypatch.setattr("oci_cluster.launcher.follow.follower.Follower.run", fail)
    monkeypatch.setattr("oci_cluster.launcher.lifecycle.Lifecycle.stop", fail)
    cluster = site.cluster(name="mine").up()
    with pytest.raises(BackendError, match="no answer"):
        cluster.wait(60)
    assert "error: mine could not be followed to its end: no answer" in site.said
    assert site.notes == ["guard local"]


@pytest.mark.parametrize(("keep", "raises", "state"), [(False, False, "STOPPED"), (True, True, "STOPPED")])
def test_with_ends_it(site: Site, *, keep: bool, raises: bool, state: str) -> None:
    """Also one that is to be kept, where something is raised."""
    cluster = site.cluster(keep=keep)
    try:
        with cluster:
            if raises:
                raise KeyError
    except KeyError:
        pass
    assert cluster.status() == state


def test_one_that_is_deleted_is_ended_already(site: Site) -> None:
    with site.cluster() as cluster:
        cluster.down(delete=True)
        site.backend.on["states"] = lambda: (_ for _ in ()).throw(BackendError("it is not there"))
        cluster.down(delete=True)


def test_one_that_has_ended_and_was_deleted_by_somebody_is_ended_already(site: Site) -> None:
    with site.cluster() as cluster:
        site.end(0)
        cluster.wait(60)
        site.backend.on["states"] = lambda: (_ for _ in ()).throw(BackendError("it is not there"))


def test_one_that_is_kept_goes_on_and_has_no_guard(site: Site) -> None:
    """Whoever waits for it looks by itself."""
    with site.cluster(name="mine", keep=True) as cluster:
        assert site.notes == ["guard local", "dismissed"]
    assert (cluster.status(), background._followed) == ("IN_PROGRESS", {})
    with pytest.raises(TimedOutError):
        cluster.wait_ready(0.01)
    with pytest.raises(TimedOutError):
        cluster.wait(0.01)
    site.ready()
    cluster.wait_ready(60)
    site.end(0)
    assert cluster.wait(60) == 0


def test_another_program_finds_it(site: Site) -> None:
    site.cluster(name="mine", keep=True).up()
    found = Cluster.find("mine", project=site.root, say=site.said.append)
    assert (found.name, found.framework, found.status()) == ("mine", "plain", "IN_PROGRESS")
    assert repr(found) == "<Cluster plain on local: name='mine'>"
    with found:
        pass
    assert found.status() == "IN_PROGRESS"  # `with` ends what it launches
    with pytest.raises(UsageError, match="there is no cluster 'other'; known: mine"):
        Cluster.find("other", project=site.root)
    found.down(delete=True)
    assert "remove" in calls(site)


def test_it_grows_and_shrinks(site: Site) -> None:
    with site.cluster(workers=1) as cluster:
        assert (cluster.scale("+1"), cluster.scale(3)) == (2, 3)
        assert "WORKER_3 started" in site.said
        with pytest.raises(UsageError, match="0 workers are not possible"):
            cluster.scale(0)


def test_logs_are_those_of_the_verb(site: Site) -> None:
    with site.cluster(name="mine") as cluster:
        (launched,) = site.backend.clusters
        for node in ("MAIN", "WORKER_1"):
            (launched.directory / "logs" / f"{node}.log").write_text(f"one\ntwo of {node}\n")
        assert cluster.logs("WORKER_1", tail=1) == "WORKER_1 | two of WORKER_1\n"
        assert cluster.logs().count("\n") == 4
        with pytest.raises(UsageError, match="mine has no node 'WORKER_7'; it has MAIN, WORKER_1"):
            cluster.logs("WORKER_7")


def test_follow_prints_to_the_end_while_others_ask(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    with site.cluster() as cluster:
        (launched,) = site.backend.clusters
        (launched.directory / "logs" / "MAIN.log").write_text("one\n")
        follower = threading.Thread(target=cluster.follow, args=("MAIN",))
        follower.start()
        until(lambda: ("logs", True) in site.backend.calls)
        assert cluster.status() == "IN_PROGRESS"
        site.end(0)
        follower.join(60)
        assert not follower.is_alive()
    assert capsys.readouterr().out == "MAIN | one\n"


def test_the_forgotten_are_ended_by_their_guards_and_named(site: Site) -> None:
    cluster = site.cluster(name="mine").up()
    site.guards[0].on_end = lambda: site.end(143, "its program has ended")
    background._end_the_forgotten()
    assert "ending mine, which still runs; end clusters with down(), or keep them: keep=True" in site.said
    assert site.notes == ["guard local", "its program has ended"]
    assert (cluster.status(), background._followed) == ("STOPPED", {})


def test_a_fork_ends_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the objects, and has launched none of them."""
    with site.cluster():
        with monkeypatch.context() as fork:
            fork.setattr(background.os, "getpid", lambda: 1)
            background._end_the_forgotten()
        assert site.notes == ["guard local"]


def test_who_has_logged_out_asks_nothing_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = site.cluster().up()
    cluster._auth = type(
        "Out", (), {"settings": staticmethod(lambda: (_ for _ in ()).throw(NotPermittedError("out")))}
    )()
    with pytest.raises(NotPermittedError, match="out"):
        cluster.status()
    cluster._auth = None
    cluster.down()


def test_a_plan_that_is_lost_is_told_and_not_raised(site: Site) -> None:
    cluster = site.cluster().up()

    def lose(_: object) -> None:
        msg = "gone"
        raise LostPlanError(msg)

    load, site.backend.load = site.backend.load, lose  # type: ignore[method-assign, assignment]
    assert cluster.details()["unreadable"] == "gone"
    site.backend.load = load  # type: ignore[method-assign]
    cluster.down()


def test_a_port_is_reached_by_connects_ways_until_the_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    class Fake:
        def __init__(self, backend: object, cluster: object, plan: object, say: object, root: Path) -> None:
            self.backend = site.backend
            assert root == site.root

        def known_ports(self) -> dict[str, int]:
            return {"dashboard": 8787}

        def url(self, node: str, port: object, *, check: bool) -> str:
            asked.append((node, port.number, check))  # type: ignore[attr-defined]
            return "http://here/"

        def client(self, target: Path) -> dict[str, str]:
            (target / "token").touch()
            return {"WHERE": "there", "TOKEN_AT": str(target / "token")}

        def close(self) -> None:
            asked.append("close")

    monkeypatch.setattr("oci_cluster.api.cluster.Connected", Fake)
    monkeypatch.setenv("WHERE", "elsewhere")
    (site.root / "plain" / "client").mkdir()
    (site.root / "plain" / "client" / "imported.py").write_text("import os\nos.environ['SEEN'] = os.environ['WHERE']\n")
    monkeypatch.setenv("SEEN", "")
    with site.cluster() as cluster:
        site.ready()
        assert (cluster.url(), cluster.url(6006, "WORKER_1")) == ("http://here/", "http://here/")
        with contextlib.suppress(ZeroDivisionError), cluster.client_environment() as variables:
            assert variables.items() <= os.environ.items()
            assert Path(os.environ["TOKEN_AT"]).exists()
            assert os.environ["SEEN"] == "there"
            raise ZeroDivisionError
        assert (os.environ["WHERE"], "TOKEN_AT" in os.environ) == ("elsewhere", False)
        assert os.environ["SEEN"] == "elsewhere"
        assert not Path(variables["TOKEN_AT"]).exists()
    assert asked == [("MAIN", 8787, True), ("WORKER_1", 6006, True), "close"]


def test_an_option_that_is_none_is_a_type_error(site: Site) -> None:
    with pytest.raises(TypeError, match="wrkers"):
        site.cluster(wrkers=3)


def test_other_attributes_are_none(site: Site) -> None:
    """Those of Dask's clusters are asked of Dask's clusters alone."""
    with pytest.raises(AttributeError, match="'Cluster' object has no attribute 'scheduler_address'"):
        _ = site.cluster().scheduler_address
    with pytest.raises(SettingsError, match="is not a checkout"):
        site.cluster(project=site.root / "plain")
