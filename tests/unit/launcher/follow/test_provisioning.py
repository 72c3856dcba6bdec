"""Nodes that wait for a host: what is said of them, how long they may, and when nobody needs them any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from unit.fake_backend import LIMITS, plan_of
from unit.launcher.following import Run, nothing

from oci_cluster.contract.cluster import State
from oci_cluster.contract.names import STOP, heartbeat_file
from oci_cluster.errors import BackendError, StorageError
from oci_cluster.launcher.follow.provisioning import bounded, names_of


def wait_for_hosts(run: Run, *nodes: str, **fields: Any) -> None:
    """Have *nodes* wait for their hosts."""
    for node in nodes:
        run.node(node, None, is_waiting=True)
        known = run.backend.nodes[run.cluster.launch_id][node]
        changed = {"state": State.ACCEPTED, "id": f"run-{node}", **fields}
        run.backend.nodes[run.cluster.launch_id][node] = replace(known, **changed)


def starts(run: Run, *nodes: str) -> Callable[[], None]:
    """Have *nodes* get their hosts."""

    def start() -> None:
        for node in nodes:
            run.node(node, None, is_waiting=False)

    return start


def obeys(run: Run) -> None:
    """Have the backend cancel the nodes that it is told to end where they wait; others see their stop file."""

    def end() -> None:
        _, *nodes = run.calls[-1]
        for node in nodes:
            if run.backend.nodes[run.cluster.launch_id][node].is_waiting:
                run.node(node, 143, is_waiting=False, never_started=True)

    run.backend.on["end"] = end


def long(run: Run, seconds: float) -> Callable[[], None]:
    """Have *seconds* pass."""

    def passes() -> None:
        run.clock.now += seconds

    return passes


def follow(run: Run, *steps: Callable[[], object], provision_timeout_s: float = 1800, **limits: Any) -> int:
    run.plan = replace(run.plan, provision_timeout_s=provision_timeout_s)
    return run.follow(*steps, **limits)


ALL = ("MAIN", "WORKER_1", "WORKER_2")


# --- What is said ---------------------------------------------------------------------------------------------------


def test_who_waits_is_said_once_a_minute(run: Run) -> None:
    """In which state, for how long, and what the backend says of it."""
    wait_for_hosts(run, *ALL, details="Job run accepted.")
    follow(
        run, long(run, 59), long(run, 1), long(run, 30), long(run, 31), starts(run, "MAIN"), long(run, 60),
        starts(run, *ALL), long(run, 600), lambda: run.end(0, 0, 0),
    )  # fmt: skip
    waiting = "(Job run accepted.): MAIN, WORKER_1, WORKER_2"
    assert run.said[:-1] == [
        f"0 of 3 nodes have started; 3 ACCEPTED for 1m {waiting}",
        f"0 of 3 nodes have started; 3 ACCEPTED for 2m {waiting}",
        "1 of 3 nodes have started; 2 ACCEPTED for 3m (Job run accepted.): WORKER_1, WORKER_2",
    ]


def test_nodes_that_wait_for_another_reason_are_told_apart(run: Run) -> None:
    """By state, and by what the backend says."""
    wait_for_hosts(run, "WORKER_1", details="no host")
    wait_for_hosts(run, "WORKER_2")
    follow(run, long(run, 61), starts(run, *ALL), lambda: run.end(0, 0, 0))
    assert run.said[0] == (
        "1 of 3 nodes have started; 1 ACCEPTED for 1m (no host): WORKER_1; 1 ACCEPTED for 1m: WORKER_2"
    )


def test_many_names_make_no_long_line() -> None:
    """A thousand nodes may wait."""
    assert names_of([f"WORKER_{rank}" for rank in range(1, 1000)]) == (
        "WORKER_1, WORKER_2, WORKER_3, WORKER_4, WORKER_5 and 994 more"
    )


def test_what_needs_attention_is_said_when_it_comes_and_when_it_goes(run: Run) -> None:
    """Once, with the backend's reason; another reason is said, too."""

    def trouble(details: str) -> Callable[[], None]:
        return lambda: wait_for_hosts(run, "WORKER_1", state=State.NEEDS_ATTENTION, details=details)

    steps = [trouble("no capacity"), nothing, trouble("no address"), lambda: wait_for_hosts(run, "WORKER_1")]
    follow(run, *steps, starts(run, *ALL), lambda: run.end(0, 0, 0))
    assert run.said[:-1] == [
        "WORKER_1 is NEEDS_ATTENTION: no capacity",
        "WORKER_1 is NEEDS_ATTENTION: no address",
        "WORKER_1 needed attention; now ACCEPTED",
    ]


def test_a_cluster_whose_nodes_start_at_once_is_told_nothing_of_it(run: Run) -> None:
    """And asked nothing."""
    follow(run, long(run, 3600), lambda: run.end(0, 0, 0))
    assert (len(run.said), run.calls) == (1, [])


# --- Nodes that come too late ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [("MAIN",), ("WORKER_2",), ALL], ids=["main", "a worker", "all"])
def test_nodes_that_never_start_end_the_launch(run: Run, late: tuple[str, ...]) -> None:
    """With 75 and their names, when PROVISION_TIMEOUT is over; they are canceled, and the others see the stop file."""
    obeys(run)
    wait_for_hosts(run, *late)
    others = [name for name in ALL if name not in late]
    code = follow(
        run, long(run, 1798), long(run, 3), lambda: [run.node(name, 75) for name in others], workers_to_begin=2
    )
    assert (code, run.calls) == (75, [("end", *sorted(late))])
    reason = f"{', '.join(late)} did not start within 1800 s (PROVISION_TIMEOUT)"
    assert (run.cluster_dir.read(STOP) or {})["reason"] == reason
    assert f"{reason}; stopping the other nodes" in run.said
    assert run.said[-1].startswith(
        f"cluster mine ended with 75 ({reason}); never started: {late[0]} (ACCEPTED for 30m)"
    )


def test_nodes_of_one_launch_are_late_together(run: Run) -> None:
    """Though the backend has told the id of one sooner: a pod is made after another one."""
    obeys(run)
    wait_for_hosts(run, "MAIN")
    wait_for_hosts(run, "WORKER_1", "WORKER_2", id="")
    code = follow(run, long(run, 3), lambda: wait_for_hosts(run, *ALL), long(run, 1798))
    assert (code, run.calls) == (75, [("end", *ALL)])
    assert (run.cluster_dir.read(STOP) or {})["reason"].startswith(f"{', '.join(ALL)} did not start within 1800 s")


def test_a_wait_for_a_quota_is_none_for_a_host(run: Run) -> None:
    """Also where a node that has its quota has no pod yet."""
    wait_for_hosts(run, *ALL, state=State.QUEUED, id="")
    code = follow(
        run,
        long(run, 7200),
        lambda: wait_for_hosts(run, *ALL, id=""),
        long(run, 1700),
        starts(run, *ALL),
        lambda: run.end(0, 0, 0, stop={"exit_code": 0, "reason": "r"}),
    )
    assert (code, run.calls) == (0, [])
    assert "did not start within" not in "".join(run.said)


def test_a_late_worker_that_is_not_needed_is_canceled_alone(run: Run) -> None:
    """MIN_WORKERS says that the cluster can do without."""
    obeys(run)
    wait_for_hosts(run, "WORKER_2")
    code = follow(run, long(run, 1801), nothing, lambda: run.end(0, 0), workers_to_begin=1)
    assert (code, run.calls) == (0, [("end", "WORKER_2")])
    assert run.said[1] == "WORKER_2 did not start within 1800 s (PROVISION_TIMEOUT); the cluster goes on without"
    assert run.cluster_dir.read(STOP) is None


def test_a_late_worker_of_a_cluster_that_works_is_canceled_alone(run: Run) -> None:
    """It is ready without; a worker that was added has its own time."""
    obeys(run)

    def is_added() -> None:
        run.node("WORKER_3", None, id="run-3")
        wait_for_hosts(run, "WORKER_3")

    run.cluster_dir.publish("MAIN_ready.json", facts={})
    steps = [long(run, 5000), is_added, long(run, 1799), nothing, long(run, 2)]
    assert follow(run, *steps, lambda: run.end(0, 0, 0), workers_to_begin=3) == 0
    assert run.calls == [("end", "WORKER_3")]
    assert run.cluster_dir.read(STOP) is None


@pytest.mark.parametrize("waiting", [("MAIN",), ALL])
def test_the_ttl_bounds_a_main_that_never_starts(run: Run, waiting: tuple[str, ...]) -> None:
    """From the launch on, as main cannot count it."""
    obeys(run)
    wait_for_hosts(run, *waiting)
    others = [name for name in ALL if name not in waiting]
    code = follow(run, long(run, 301), lambda: [run.node(name, 75) for name in others], ttl_s=300)
    assert code == 75
    assert "TTL of 300 s reached before MAIN had started; launch with a longer --ttl" in run.said[-1]


def test_without_a_limit_nodes_may_wait(run: Run) -> None:
    """0 is none."""
    wait_for_hosts(run, *ALL)
    assert follow(run, long(run, 10**6), starts(run, *ALL), lambda: run.end(0, 0, 0), provision_timeout_s=0) == 0
    assert run.calls == []


def test_workers_that_wait_in_vain_for_main_end_the_launch(run: Run) -> None:
    """Main would find nobody."""
    obeys(run)
    wait_for_hosts(run, "MAIN")
    code = follow(run, lambda: run.nodes(WORKER_1=75, WORKER_2=75), nothing, workers_to_begin=1)
    assert (code, run.calls) == (75, [("end", "MAIN")])
    assert (run.cluster_dir.read(STOP) or {})["reason"] == "WORKER_1 ended before MAIN had started: exit code 75"


@pytest.mark.parametrize("main", [143, 0])
def test_a_worker_that_ends_well_before_main_has_started_ran_no_agent(run: Run, main: int) -> None:
    """An agent waits for main: 78, as where main is faster; also where main has just begun, and ends likewise."""
    wait_for_hosts(run, "MAIN")
    run.backend.on["end"] = lambda: run.node(
        "MAIN", main, is_waiting=False, never_started=bool(main), has_reported=bool(main)
    )
    code = follow(run, lambda: run.nodes(WORKER_1=0, WORKER_2=0), nothing)
    stop = run.cluster_dir.read(STOP) or {}
    assert (code, stop["exit_code"], run.calls) == (78, 78, [("end", "MAIN")])
    assert "WORKER_1 ended with 0 and reported nothing: " in stop["reason"]


def test_a_main_that_waited_in_vain_has_the_names_of_who_never_started(run: Run) -> None:
    """TIMEOUT is main's own."""
    obeys(run)
    wait_for_hosts(run, "WORKER_2", details="no host")

    def gives_up() -> None:
        run.cluster_dir.publish(STOP, reason="not ready (TIMEOUT)", exit_code=75)
        run.nodes(MAIN=75, WORKER_1=75)

    assert follow(run, long(run, 600), gives_up, nothing) == 75
    assert run.said[-1].startswith(
        "cluster mine ended with 75 (not ready (TIMEOUT)); never started: WORKER_2 (ACCEPTED for 10m: no host)"
    )


# --- A cluster that is over -----------------------------------------------------------------------------------------


def test_when_main_has_ended_what_waits_is_canceled(run: Run) -> None:
    """Nobody needs it, and the code is main's."""
    obeys(run)
    wait_for_hosts(run, "WORKER_2")
    assert follow(run, lambda: run.nodes(MAIN=0, WORKER_1=0), nothing) == 0
    assert run.calls == [("end", "WORKER_2")]
    assert "the cluster is over; canceling what has not started: WORKER_2" in run.said
    assert not [text for text in run.said if "has left" in text]


def test_when_a_stop_file_is_there_what_waits_is_canceled(run: Run) -> None:
    """The others obey it."""
    obeys(run)
    wait_for_hosts(run, "WORKER_2")
    run.cluster_dir.publish(STOP, reason="stopped by stop.sh", exit_code=143)
    seen: list[list[Any]] = []
    steps = [lambda: seen.append([*run.calls]), lambda: run.nodes(MAIN=143, WORKER_1=143), nothing]
    assert follow(run, *steps) == 143
    assert seen == [[("end", "WORKER_2")]] == [run.calls], "main still runs then"


def test_the_first_ctrl_c_ends_what_waits(run: Run) -> None:
    """At once: it reads no stop file."""
    obeys(run)
    wait_for_hosts(run, *ALL)
    assert follow(run, run.signals.send, nothing) == 143
    assert (run.calls, len(run.signals.waits)) == ([("end", *ALL)], 2)


def test_the_first_ctrl_c_ends_what_waits_in_a_cluster_that_works(run: Run) -> None:
    """Though main takes its time."""
    obeys(run)
    run.cluster_dir.publish("MAIN_ready.json", facts={})
    wait_for_hosts(run, "WORKER_2")
    seen: list[list[Any]] = []
    follow(run, run.signals.send, lambda: seen.append([*run.calls]), lambda: run.end(143, 143))
    assert seen == [[("end", "WORKER_2")]]


def test_a_node_that_has_left_a_file_has_started(run: Run) -> None:
    """Whatever a backend says that tells late: it ends in order, and is not cut short."""
    wait_for_hosts(run, "WORKER_2")
    run.cluster_dir.publish(heartbeat_file("WORKER_2"), beat=1)
    steps = [nothing, lambda: run.nodes(MAIN=0, WORKER_1=0), nothing, long(run, 3000)]
    assert follow(run, *steps, lambda: run.node("WORKER_2", 0, is_waiting=False)) == 0
    assert run.calls == []


def test_a_file_of_an_earlier_life_says_nothing_of_a_later_one(run: Run) -> None:
    """A worker was lost, and its replacement waits."""
    obeys(run)
    run.cluster_dir.publish(heartbeat_file("WORKER_2"), beat=1)
    replaced = lambda: wait_for_hosts(run, "WORKER_2", id="another run")  # noqa: E731 - one expression
    assert follow(run, nothing, replaced, lambda: run.nodes(MAIN=0, WORKER_1=0), nothing) == 0
    assert run.calls == [("end", "WORKER_2")]


def test_what_shares_its_life_with_a_node_that_works_is_not_canceled_at_once(run: Run) -> None:
    """A run with node groups: its main ends in order first, as long as that may take."""
    obeys(run)
    for node in ALL:
        run.node(node, None, id="one run")
    wait_for_hosts(run, "WORKER_2", id="one run")
    run.cluster_dir.publish(STOP, reason="done", exit_code=0)
    seen: list[list[Any]] = []
    steps = [nothing, long(run, 14), lambda: seen.append([*run.calls]), long(run, 2), lambda: run.end(0, 0)]
    follow(run, *steps)
    assert (seen, run.calls) == ([[]], [("end", "WORKER_2")])
    assert run.clock.now - 1000 > LIMITS.grace_period_s + run.backend.end_margin_s


def test_a_cancel_is_repeated_where_it_is_not_seen_and_where_it_fails(run: Run) -> None:
    """Not with every look."""
    wait_for_hosts(run, "WORKER_2")
    failures = iter([BackendError("busy")])

    def fail_once() -> None:
        for error in failures:
            raise error

    run.backend.on["end"] = fail_once
    over = lambda: run.nodes(MAIN=0, WORKER_1=0)  # noqa: E731 - one expression
    canceled = lambda: run.node("WORKER_2", 143, is_waiting=False, never_started=True)  # noqa: E731
    assert follow(run, over, nothing, nothing, long(run, 11), canceled) == 0
    assert run.said[-1].startswith("cluster mine ended with 0; WORKER_2 had no place when the cluster ended; after ")
    assert run.calls == [("end", "WORKER_2")] * 3
    assert "WORKER_2 could not be canceled: busy; trying again" in run.said


def test_storage_that_is_away_keeps_nobody_from_being_canceled(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the backend says is all that is known."""
    obeys(run)
    wait_for_hosts(run, "WORKER_2")

    def away(*_: object, **_named: object) -> None:
        raise StorageError("no route")

    def over() -> None:
        run.nodes(MAIN=0, WORKER_1=0)
        monkeypatch.setattr("oci_cluster.contract.files.cluster_dir.ClusterDir.listing", away)

    assert follow(run, over, nothing) == 0
    assert run.calls == [("end", "WORKER_2")]


def test_a_stop_file_that_nobody_can_read_any_more_has_still_been_written(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher knows what it has asked for."""
    obeys(run)
    wait_for_hosts(run, *ALL)

    def away(*_: object, **_named: object) -> None:
        raise StorageError("no route")

    def asks() -> None:
        run.clock.now += 1801
        monkeypatch.setattr("oci_cluster.contract.files.cluster_dir.ClusterDir.read", away)

    assert follow(run, asks, nothing) == 75
    assert "ended with 75 (MAIN, WORKER_1, WORKER_2 did not start within 1800 s" in run.said[-1]


# --- Launches that nobody follows -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provision_s", "ttl_s", "start_by"),
    [
        (1800, 0, "2026-01-02T00:40:00Z"),
        (1800, 300, "2026-01-02T00:15:00Z"),
        (0, 3600, "2026-01-02T01:10:00Z"),
        (0, 0, ""),
    ],
)
def test_who_is_not_followed_is_told_until_when_to_start(
    run: Run, monkeypatch: pytest.MonkeyPatch, provision_s: float, ttl_s: float, start_by: str
) -> None:
    """After PROVISION_TIMEOUT, or the TTL, and the ten minutes by which clocks may differ."""
    monkeypatch.setattr("oci_cluster.launcher.follow.provisioning.now", lambda: "2026-01-02T00:00:00Z")
    plan = plan_of(run.directory, limits=replace(LIMITS, ttl_s=ttl_s), provision_timeout_s=provision_s)
    assert bounded(plan).environment.get("START_BY", "") == start_by
