"""A cluster whose logs and nodes are elsewhere: what is fetched, what cannot begin, who does not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from unit.launcher.following import Run, nothing

from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, StorageError
from oci_cluster.launcher.lifecycle import request_stop


def stop_of(elsewhere: Run) -> dict[str, Any]:
    return dict(elsewhere.cluster_dir.read("stop") or {})


@pytest.fixture
def elsewhere(run: Run) -> Run:
    """Return a cluster whose backend is asked every two seconds."""
    run.backend.poll_s = 2.0
    return run


def never_start(run: Run, nodes: list[str], details: str) -> None:
    for node in nodes:
        run.node(node, 69, never_started=True, details=details)


def test_logs_are_fetched_with_each_look_and_at_the_end(elsewhere: Run) -> None:
    """As often as the backend is looked at, and once more when all have ended."""
    elsewhere.copy.on_fetch = lambda: (elsewhere.directory.parent / "MAIN.log").write_text(
        "x\n" * elsewhere.copy.fetched
    )
    assert elsewhere.follow(lambda: None, lambda: elsewhere.end(0, 0, 0)) == 0
    assert (elsewhere.copy.fetched, elsewhere.signals.waits) == (4, [2.0, 2.0])
    assert elsewhere.out.getvalue().count("MAIN     | x\n") == 4


def test_logs_that_cannot_be_fetched_now_are_fetched_later(elsewhere: Run) -> None:
    """Storage that does not answer for a while ends no launch and costs no line."""

    def fail() -> None:
        if elsewhere.copy.fetched < 6:
            raise StorageError("no route to storage")

    elsewhere.copy.on_fetch = fail
    assert elsewhere.follow(lambda: elsewhere.end(0, 0, 0)) == 0
    assert elsewhere.copy.fetched == 6
    assert not any("missing" in text for text in elsewhere.said)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_lines_that_come_after_the_end_are_waited_for(elsewhere: Run, *, is_interrupted: bool) -> None:
    """With a word on it; Ctrl-C ends the waiting, and neither the cluster's code nor what has come is lost."""
    looks = []

    def drain(pause: Callable[[], bool], say: Callable[[str], object]) -> None:
        say("waiting for late lines")
        for number in range(3):
            with (elsewhere.directory.parent / "MAIN.log").open("a") as log:
                log.write(f"late {number}\n")
            looks.append(number)
            if not pause():
                return

    elsewhere.copy.on_drain = drain
    interrupt = [lambda: None, elsewhere.signals.send] if is_interrupted else []
    assert elsewhere.follow(lambda: elsewhere.end(7, 0, 0), *interrupt) == 7
    count = 2 if is_interrupted else 3
    assert looks == [*range(count)]
    assert [f"late {number}\n" in elsewhere.out.getvalue() for number in range(count)] == [True] * count
    assert elsewhere.said.count("waiting for late lines") == 1
    assert elsewhere.signals.received is None


def test_last_lines_that_are_missing_are_told(elsewhere: Run) -> None:
    """After tries for 20 s, each delay within a tenth of its length; the cluster's code is what it is."""

    def fail() -> None:
        raise StorageError("no route to storage")

    elsewhere.copy.on_fetch = fail
    assert elsewhere.follow(lambda: elsewhere.end(7, 0, 0)) == 7
    assert elsewhere.copy.fetched - 2 in {8, 9}
    assert "the last lines of the logs are missing: no route to storage" in elsewhere.said
    assert 10 < sum(elsewhere.signals.waits) < 40


@pytest.mark.parametrize(
    ("never", "minimum", "is_given_up"),
    [
        (["MAIN"], 1, True),
        (["WORKER_2"], 2, True),
        (["WORKER_2"], 1, False),
        (["WORKER_1", "WORKER_2"], 1, True),
        ([], 2, False),
    ],
)
def test_a_cluster_that_cannot_begin_is_stopped(
    elsewhere: Run, never: list[str], minimum: int, *, is_given_up: bool
) -> None:
    """The other nodes would wait for TIMEOUT, and cost money meanwhile; with enough of them the cluster goes on."""
    never_start(elsewhere, never, "Out of capacity; try later")
    elsewhere.follow(lambda: elsewhere.end(69, 69, 69), workers_to_begin=minimum)
    stop = stop_of(elsewhere)
    assert bool(stop) is is_given_up
    if is_given_up:
        reason = f"{never[0]} could not be started: Out of capacity; try later"
        assert (stop["reason"], stop["exit_code"]) == (reason, 69)
        assert f"{reason}; stopping the other nodes" in elsewhere.said


def test_a_parameter_server_that_could_not_be_started_ends_the_wait(elsewhere: Run) -> None:
    """Every one is needed."""
    never_start(elsewhere, ["PS_3"], "Out of capacity")
    elsewhere.follow(lambda: elsewhere.end(69, 69, 69))
    assert stop_of(elsewhere)["exit_code"] == 69


def test_where_nobody_says_why_a_node_could_not_be_started_no_reason_is_given(elsewhere: Run) -> None:
    never_start(elsewhere, ["MAIN"], "")
    elsewhere.follow(lambda: elsewhere.end(69, 69, 69))
    assert stop_of(elsewhere)["reason"] == "MAIN could not be started"


def test_a_node_that_never_started_says_why(elsewhere: Run) -> None:
    """In the backend's words, not as an exit code of the user's script; once."""
    never_start(elsewhere, ["WORKER_2"], "Out of capacity; try later")
    elsewhere.follow(lambda: None, lambda: elsewhere.end(0, 0, 69), workers_to_begin=1)
    assert elsewhere.said.count("WORKER_2 ended with 69 (Out of capacity; try later)") == 1


def test_a_cluster_is_given_up_once(elsewhere: Run) -> None:
    """And not when it has been ready, or is stopping anyway."""
    never_start(elsewhere, ["MAIN"], "x")
    elsewhere.follow(lambda: None, lambda: None, lambda: elsewhere.end(69, 69, 69))
    assert sum("stopping the other nodes" in text for text in elsewhere.said) == 1


def test_a_cluster_that_was_ready_is_not_given_up(elsewhere: Run) -> None:
    """A worker that could not be added later is not missed."""
    elsewhere.cluster_dir.publish("MAIN_ready.json", facts={})
    never_start(elsewhere, ["WORKER_1", "WORKER_2"], "x")
    elsewhere.follow(lambda: elsewhere.end(0, 69, 69))
    assert stop_of(elsewhere) == {}


def lose(run: Run, node: str) -> None:
    run.node(node, None, is_lost=True, is_final=True, details="its pod was deleted")


def test_a_cluster_that_lacks_a_node_for_good_is_stopped(elsewhere: Run) -> None:
    """Main waits for it until TIMEOUT: the backend alone knows that it will not live again. Main first has its say."""
    lose(elsewhere, "WORKER_2")
    seen: list[bool] = []
    looks = [lambda: seen.append(bool(stop_of(elsewhere)))] * 7
    elsewhere.follow(*looks, lambda: elsewhere.end(76, 76, None), min_workers=2)
    assert elsewhere.said.count("WORKER_2 is lost, and no other node takes its place: its pod was deleted") == 1
    reason = "WORKER_2 lost: its pod was deleted; MIN_WORKERS is 2"
    assert (stop_of(elsewhere)["reason"], stop_of(elsewhere)["exit_code"]) == (reason, 76)
    assert seen[:5] == [False] * 5  # GRACE_PERIOD is 10 s


@pytest.mark.parametrize("node", ["MAIN", "WORKER_2"])
def test_a_cluster_that_lacks_nobody_it_needs_goes_on(elsewhere: Run, node: str) -> None:
    """With enough workers; and of a main that is gone workers know by themselves."""
    lose(elsewhere, node)
    elsewhere.follow(*[lambda: None] * 9, lambda: elsewhere.end(0, 0, None), min_workers=1)
    assert stop_of(elsewhere) == {}


def test_a_replacement_is_told_by_its_ocid(elsewhere: Run) -> None:
    """Where nodes have no pid: its own failure is another one."""
    elsewhere.node("WORKER_1", 9, id="a")
    elsewhere.follow(
        lambda: elsewhere.node("WORKER_1", 9, id="b"),
        lambda: None,
        lambda: elsewhere.end(0, 9, 0),
        workers_to_begin=0,
    )
    assert sum(text.startswith("WORKER_1 ended with 9") for text in elsewhere.said) == 2


def test_a_backend_that_does_not_answer_now_is_asked_later(elsewhere: Run) -> None:
    """A failure is not an answer: the cluster is followed to its end, as its nodes go on too. Told once each way."""
    failures = [True, True, False, False]

    def fail() -> None:
        if failures and failures.pop(0):
            msg = "cannot list the Job Runs: no answer from OCI"
            raise BackendError(msg)

    elsewhere.backend.on["states"] = fail
    assert elsewhere.follow(nothing, nothing, nothing, lambda: elsewhere.end(0, 0, 0)) == 0
    assert elsewhere.said[:2] == [
        "cannot look at mine: cannot list the Job Runs: no answer from OCI; trying again",
        "mine answers again",
    ]


def test_a_cause_that_the_backend_knows_is_told(elsewhere: Run) -> None:
    """Also of a node that ended as the cluster did: the code alone does not say it."""

    def end() -> None:
        elsewhere.end(137, 137, 137, stop={"exit_code": 137, "reason": "r"})
        elsewhere.node("MAIN", 137, cause="its memory ran out")

    elsewhere.follow(end)
    assert [text for text in elsewhere.said if " ended with 137" in text and "cluster" not in text] == [
        "MAIN ended with 137 (its memory ran out)"
    ]


def test_a_stop_may_have_a_code_of_its_own(run: Run) -> None:
    """Whoever gives up says why, and what the launch ends with."""
    request_stop(run.backend, run.cluster, run.plan, "no capacity", 69)
    assert (run.cluster_dir.read("stop") or {})["exit_code"] == 69


# --- What it leaves -------------------------------------------------------------------------------------------------


def test_what_a_cluster_leaves_is_asked_for_again(elsewhere: Run) -> None:
    """An engine that is being started again makes no failure of a success: 3 s, told once."""

    def fail() -> None:
        if elsewhere.calls.count(("finish", elsewhere.cluster.name)) < 4:
            raise BackendError("the engine does not answer")

    elsewhere.backend.on["finish"] = fail
    before = elsewhere.clock.now
    assert elsewhere.follower().finish() is None
    assert elsewhere.said == ["the engine does not answer; trying again"]
    assert 2 < elsewhere.clock.now - before < 4


@pytest.mark.parametrize(("error", "tries"), [(BackendError("gone"), {8, 9}), (NotPermittedError("not yours"), {1})])
def test_what_cannot_be_brought_is_told(elsewhere: Run, error: ClusterError, tries: set[int]) -> None:
    """After tries for 20 s; at once, where another try does not help."""

    def fail() -> None:
        raise error

    elsewhere.backend.on["finish"] = fail
    assert elsewhere.follower().finish() is error
    assert elsewhere.calls.count(("finish", elsewhere.cluster.name)) in tries
