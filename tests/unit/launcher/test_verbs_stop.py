"""`stop` and `scale`."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

import pytest
from unit.launcher.door import Door

from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.errors import BackendError, LostPlanError, UsageError
from oci_cluster.launcher import verbs


@pytest.mark.parametrize(("flags", "last"), [([], "finish"), (["--delete"], "remove")])
def test_stop_prints_what_it_stopped(
    door: Door, capsys: pytest.CaptureFixture[str], flags: list[str], last: str
) -> None:
    """The cluster that is named is stopped, with --delete removed too, and its name printed."""
    door.run(MAIN=0, WORKER_1=0)
    assert verbs.run("stop", ["mine", *flags]) == 0
    assert (capsys.readouterr(), door.backend.calls[-2:]) == (("mine\n", ""), [(last, "mine"), "close"])


def test_several_clusters_are_stopped_one_after_the_other(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Each once, in the order of the words; those that nobody named stay."""
    for name, launch_id in (("a", "aa"), ("b", "bb"), ("c", "cc")):
        door.run(name, launch_id, MAIN=0, WORKER_1=0)
    assert verbs.run("stop", ["c", "a", "c", "--delete"]) == 0
    assert capsys.readouterr().out == "c\na\n"
    assert door.backend.asked("remove", "finish") == [("remove", "c"), ("remove", "a")]


def test_a_name_that_is_none_stops_nothing(door: Door) -> None:
    """All that is named is found before the first is touched."""
    door.run("a", "aa", MAIN=0, WORKER_1=0)
    with pytest.raises(UsageError, match="there is no cluster 'nope'; known: a"):
        verbs.run("stop", ["a", "nope", "--delete"])
    assert door.backend.asked("remove", "finish") == []


def test_a_cluster_that_cannot_be_loaded_stops_nothing(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with the second is told before the first is touched."""
    door.run("a", "aa", MAIN=0, WORKER_1=0)
    door.run("b", "bb", MAIN=0, WORKER_1=0)
    del door.backend.plans["bb"]
    with pytest.raises(KeyError):
        verbs.run("stop", ["a", "b", "--delete"])
    assert door.backend.asked("remove", "finish") == []


def test_a_cluster_whose_plan_is_lost_is_ended_by_its_backend(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can ask its nodes to end, and nothing else may run on because of that."""
    door.run("a", "aa", MAIN=None, WORKER_1=0)
    (cluster,) = door.backend.clusters

    def load(_: Cluster) -> Plan:
        msg = "cluster.json does not say what was launched: it is away"
        raise LostPlanError(msg)

    def end(cluster: Cluster, nodes: Collection[str], *, at_once: bool = False) -> None:
        assert (nodes, at_once) == ({"MAIN"}, False)
        door.backend.end_nodes(cluster, nodes)

    monkeypatch.setattr(door.backend, "load", load)
    monkeypatch.setattr(door.backend, "end", end)
    assert verbs.run("stop", ["a"]) == 0
    said = "oci_cluster: cluster.json does not say what was launched: it is away; ending its nodes\n"
    assert capsys.readouterr() == ("a\n", said)
    assert door.backend.asked("remove", "finish") == [("finish", "a")]
    assert not (cluster.directory / "stop").exists()


def test_one_that_cannot_be_stopped_does_not_keep_the_others(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, and the exit code is its error's."""
    door.run("a", "aa", MAIN=0, WORKER_1=0)
    door.run("b", "bb", MAIN=0, WORKER_1=0)

    def fail() -> None:
        del door.backend.on["remove"]
        msg = "no answer"
        raise BackendError(msg)

    door.backend.on["remove"] = fail
    assert verbs.run("stop", ["a", "b", "--delete"]) == 69
    assert capsys.readouterr() == ("b\n", "oci_cluster: error: a: no answer\n")


def aged(door: Door, name: str, launch_id: str, created: str, **codes: int | None) -> None:
    """Have a cluster be there that was launched at some time."""
    door.run(name, launch_id, **codes)
    door.backend.clusters[-1] = replace(door.backend.clusters[-1], created=created)


@pytest.mark.parametrize(
    ("words", "stopped"),
    [
        (["--ended"], ["old", "new"]),
        (["--ended", "--older-than", "1h"], ["old"]),
        (["--ended", "--older-than", "9999d"], []),
        (["--older-than", "1h"], ["runs"]),
    ],
)
def test_clusters_are_chosen_by_their_end_and_their_age(
    door: Door, capsys: pytest.CaptureFixture[str], words: list[str], stopped: list[str]
) -> None:
    """Those that run are never meant by --ended; without it, those that have ended are not."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    aged(door, "old", "aa", "2026-01-01T00:00:05Z", MAIN=0, WORKER_1=0)
    aged(door, "new", "bb", now, MAIN=7, WORKER_1=7)
    aged(door, "runs", "cc", "2026-01-01T00:00:05Z")
    aged(door, "runs-too", "dd", now)
    door.backend.on["states"] = lambda: [
        door.backend.end_nodes(cluster) for cluster in door.backend.clusters if (cluster.directory / "stop").exists()
    ]
    assert verbs.run("stop", [*words, "--delete"]) == 0
    assert capsys.readouterr().out.split() == stopped
    assert door.backend.asked("remove") == [("remove", name) for name in stopped]


def test_scale_prints_how_many_workers_there_are(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number alone is on stdout; progress is on stderr, under the script's name."""
    monkeypatch.setenv("CLUSTER_PROGRAM", "scale.sh")
    door.run()
    assert verbs.run("scale", ["mine", "+1"]) == 0
    assert capsys.readouterr() == ("2\n", "scale.sh: WORKER_2 started\n")
    assert door.backend.calls[-1] == "close"


@pytest.mark.parametrize(("verb", "words", "step"), [("stop", ["mine"], "finish"), ("scale", ["mine", "+1"], "start")])
def test_claims_are_given_up_where_a_verb_fails(door: Door, verb: str, words: list[str], step: str) -> None:
    """Whatever it failed of."""
    door.run(MAIN=0 if verb == "stop" else None)
    (cluster,) = door.backend.clusters
    if verb == "stop":
        door.backend.end_nodes(cluster)

    def fail() -> None:
        msg = "no answer"
        raise BackendError(msg)

    door.backend.on[step] = fail
    with pytest.raises(BackendError, match="no answer"):
        verbs.run(verb, words)
    assert door.backend.calls[-1] == "close"


@pytest.mark.parametrize("choice", [["--ended"], ["--older-than", "0"]])
def test_what_has_ended_and_still_takes_machines_is_stopped_by_either_choice(door: Door, choice: list[str]) -> None:
    """Who ends what has run for a day wants no bill for what runs on beside it."""
    door.run("done", "aa", MAIN=0, WORKER_1=0)
    door.run("held", "bb", MAIN=0, WORKER_1=0)
    held = next(cluster for cluster in door.backend.clusters if cluster.name == "held")
    door.backend.set_node(held, "MAIN", 0, holds="container mesh")
    assert verbs.run("stop", [*choice, "--delete"]) == 0
    removed = [name for _, name in door.backend.asked("remove")]
    assert removed == (["done", "held"] if choice == ["--ended"] else ["held"])
