"""`status`, `list` and `logs`."""

from __future__ import annotations

import json

import pytest
from unit.launcher.door import Door

from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.errors import LostPlanError, UsageError
from oci_cluster.launcher import verbs


def test_status_shows_the_only_running_cluster(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name the running cluster is meant; --json has all that is known of the one that is named."""
    door.run("ended", "aa", MAIN=0, WORKER_1=0)
    door.run("mine")
    assert verbs.run("status", []) == 0
    assert capsys.readouterr().out.startswith("mine  dask on local, IN_PROGRESS, started ")
    assert verbs.run("status", ["ended", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["state"], found["exit_code"]) == ("ended", "SUCCEEDED", 0)


@pytest.mark.parametrize("is_free", [True, False])
def test_list_shows_what_runs(door: Door, capsys: pytest.CaptureFixture[str], *, is_free: bool) -> None:
    """With --all what has ended too, the oldest first; --json is a list also where nothing runs."""
    door.backend.is_free_to_ask = is_free

    def listed(*words: str) -> list[tuple[str, int | None]]:
        assert verbs.run("list", [*words, "--json"]) == 0
        return [(cluster["name"], cluster["exit_code"]) for cluster in json.loads(capsys.readouterr().out)]

    assert listed("--all") == []
    door.run("ended", "aa", MAIN=7, WORKER_1=7)
    assert (listed(), listed("--all")) == ([], [("ended", 7)])
    door.run("mine")
    assert (listed(), listed("--all")) == ([("mine", None)], [("ended", 7), ("mine", None)])
    assert verbs.run("list", []) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["NAME", "mine"]


def test_logs_shows_what_there_is(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, of all nodes or of one, without colour where it is no terminal; claims are given up."""
    door.run()
    assert verbs.run("logs", ["mine"]) == 0
    assert capsys.readouterr().out == "MAIN     | hello of MAIN\nWORKER_1 | hello of WORKER_1\n"
    assert verbs.run("logs", ["--node", "WORKER_1"]) == 0
    assert capsys.readouterr().out == "WORKER_1 | hello of WORKER_1\n"
    assert door.backend.asked("logs", "close") == [("logs", False), "close"] * 2


@pytest.mark.parametrize("flag", ["-f", "--follow"])
def test_logs_follows_to_the_clusters_end(door: Door, capsys: pytest.CaptureFixture[str], flag: str) -> None:
    """What is printed meanwhile is shown too."""
    door.run()
    (cluster,) = door.backend.clusters
    door.backend.poll_s = 0.0
    looks = iter(range(100))

    def look() -> None:
        with (cluster.directory / "logs" / "MAIN.log").open("a") as log:
            log.write("more\n")
        if next(looks) == 4:
            door.backend.end_nodes(cluster)

    door.backend.on["states"] = look
    assert verbs.run("logs", [flag, "--node", "MAIN"]) == 0
    assert capsys.readouterr().out == "MAIN | hello of MAIN\n" + "MAIN | more\n" * 5


@pytest.mark.parametrize("node", ["WORKER_9", "../../secret", "MAIN.log"])
def test_logs_shows_no_other_file(door: Door, capsys: pytest.CaptureFixture[str], node: str) -> None:
    """A node that is not in the cluster is wrong usage, named with those that are."""
    door.run()
    with pytest.raises(UsageError) as caught:
        verbs.run("logs", ["mine", "--node", node])
    assert (str(caught.value), capsys.readouterr().out) == (
        f"mine has no node '{node}'; it has MAIN, WORKER_1",
        "",
    )


def test_logs_shows_nodes_that_were_added(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """They are in the backend's words, not in the plan."""
    door.run()
    (cluster,) = door.backend.clusters
    (cluster.directory / "logs" / "WORKER_2.log").write_text("hello of WORKER_2\n")
    door.backend.set_node(cluster, "WORKER_2", None)
    assert verbs.run("logs", ["mine"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "WORKER_2 | hello of WORKER_2"


@pytest.mark.parametrize(("words", "shown"), [([], ["MAIN", "WORKER_1", "WORKER_2"]), (["--node", "MAIN"], ["MAIN"])])
def test_logs_follows_nodes_that_are_added_meanwhile(
    door: Door, capsys: pytest.CaptureFixture[str], words: list[str], shown: list[str]
) -> None:
    """All that they print is shown, unless one node is wanted."""
    door.run()
    (cluster,) = door.backend.clusters
    door.backend.poll_s = 0.0
    looks = iter(range(100))

    def look() -> None:
        if (number := next(looks)) == 3:
            (cluster.directory / "logs" / "WORKER_2.log").write_text("hello of WORKER_2\n")
            door.backend.set_node(cluster, "WORKER_2", None)
        elif number == 6:
            door.backend.end_nodes(cluster)

    door.backend.on["states"] = look
    assert verbs.run("logs", ["-f", *words]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == shown


def test_one_cluster_that_cannot_be_described_hides_no_other(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """What its backend says of its nodes is there; status says why nothing more is known."""
    door.run("first", "aa")
    door.run("mine")
    load = door.backend.load

    def fail_once(cluster: Cluster) -> Plan:
        if cluster.name == "first":
            msg = "cluster.json is damaged"
            raise LostPlanError(msg)
        return load(cluster)

    door.backend.load = fail_once  # type: ignore[method-assign]
    assert verbs.run("list", []) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in shown[1:3]] == [
        ["first", "dask", "local", "IN_PROGRESS"],
        ["mine", "dask", "local", "IN_PROGRESS"],
    ]
    assert verbs.run("status", ["first"]) == 0
    assert "unreadable: cluster.json is damaged\n" in capsys.readouterr().out


@pytest.mark.parametrize("is_free", [True, False])
@pytest.mark.parametrize(("backend", "where"), [("local", ""), ("cloud", " --backend cloud")])
def test_what_has_ended_and_still_takes_machines_is_shown_with_what_ends_it(
    door: Door, capsys: pytest.CaptureFixture[str], backend: str, where: str, *, is_free: bool
) -> None:
    """Whoever looks at what runs looks for what costs."""
    door.backend.is_free_to_ask = is_free
    door.run(MAIN=0, WORKER_1=0)
    (cluster,) = door.backend.clusters
    told = f"container mesh still runs, and takes its machines: scripts/stop.sh mine{where} ends it"

    def shown(verb: str, *words: str) -> str:
        assert verbs.run(verb, [*words, "--backend", backend]) == 0
        return " ".join(capsys.readouterr().out.split())

    assert told not in shown("list", "--all") + shown("status", "mine")
    door.backend.set_node(cluster, "WORKER_1", 0, holds="container mesh")
    assert f"mine: {told}" in shown("list")
    assert told in shown("status", "mine")
    door.backend.set_node(cluster, "MAIN", None)
    assert told not in shown("list") + shown("status", "mine")
