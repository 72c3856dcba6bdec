"""A cluster that adapts, as its launcher has it: what main wishes for, within the bounds, and slower when refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.fake_backend import KEY, LAUNCH, FakeBackend, keep, plan_of
from unit.launcher.following import Run, nothing

from oci_cluster.contract.cluster import NodeState, State, clusters_dir
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import SCALE_REQUEST, STOP
from oci_cluster.errors import BackendError, StorageError
from oci_cluster.launcher.follow.autoscaler import Autoscaler, Change, change_of, followed


def fail(error: BaseException) -> Callable[..., Any]:
    def do(*_: object) -> None:
        raise error

    return do


class Adapted:
    """A cluster of main and one worker within ADAPT, and who follows it."""

    def __init__(self, root: Path, clock: Any, *, adapt: str = "1:4", url: str = "") -> None:
        place = clusters_dir(root)
        place.mkdir()
        self.backend = FakeBackend(place)
        plan = plan_of(place, workers=1, environment={"LAUNCH_KEY": KEY, "ADAPT": adapt})
        keep(place, plan)
        self.cluster = self.backend.run(plan)
        self.cluster_dir = ClusterDir(url or plan.url, LAUNCH, KEY)
        self.clock = clock
        self.said: list[str] = []
        self.autoscaler = Autoscaler(
            self.backend, self.cluster, plan, self.cluster_dir, say=self.said.append, clock=clock
        )

    def scale_request(self, workers: Any, *idle: str) -> None:
        self.cluster_dir.publish(SCALE_REQUEST, workers=workers, idle=list(idle))

    def look(self, *, after_s: float = 0.1) -> list[Any]:
        """Look once; return what the backend was asked for."""
        self.clock.now += after_s
        before = len(self.backend.calls)
        self.autoscaler.look(self.backend.states([self.cluster])[LAUNCH])
        return [call for call in self.backend.calls[before:] if call[0] in {"start", "end", "kill"}]

    def node(self, name: str, code: int | None, **fields: Any) -> None:
        self.backend.set_node(self.cluster, name, code, **fields)

    def starts_nothing(self, why: str = "no host") -> None:
        """Have the backend refuse before it has made any node."""
        self.backend.start = fail(BackendError(why))  # type: ignore[method-assign, assignment]


@pytest.fixture
def adapted(tmp_path: Path, clock: Any) -> Adapted:
    return Adapted(tmp_path, clock)


# --- What is to be done ---------------------------------------------------------------------------------------------


def states(*words: str) -> list[NodeState]:
    """Return workers: ``2`` runs, ``2?`` waits for a host."""
    return [
        NodeState(f"WORKER_{word.rstrip('?')}", State.IN_PROGRESS, id=word, is_waiting=word.endswith("?"))
        for word in words
    ]


@pytest.mark.parametrize(
    ("workers", "idle", "there", "added", "ended"),
    [
        (3, "", "1", 2, ""),
        (1, "", "1", 0, ""),
        (9, "", "1", 3, ""),  # ADAPT
        (0, "", "", 1, ""),
        (1, "2 3", "1 2 3", 0, "2 3"),
        (0, "1 2", "1 2", 0, "2"),  # one stays
        (0, "1", "1", 0, ""),  # and the last one
        (2, "3", "1 2 3 4?", 0, "3 4"),  # who waits has nothing to do either
        (1, "", "1 2? 3?", 0, "2 3"),
        (2, "", "1 2? 3?", 0, "3"),
        (1, "", "1 2 3", 0, ""),  # who works is let go by main first
        (2, "7", "1", 1, ""),  # who is not there cannot end
        (3, "2", "1 2", 2, "2"),
        (10, "2", "10 9 2", 1, "2"),  # who ends is there until it has ended
        (4, "1 2 3", "1 2 3", 1, "2 3"),
    ],
)
def test_what_is_done_is_what_main_wishes_within_the_bounds(
    workers: int, idle: str, there: str, added: int, ended: str
) -> None:
    """Idle ones go, missing ones come, and between 1 and 4 are left."""
    scale_request = {"workers": workers, "idle": [f"WORKER_{rank}" for rank in idle.split()]}
    done = change_of(scale_request, states(*there.split()), set(), (1, 4), ends="any")
    assert (done.added, sorted(done.ended)) == (added, [f"WORKER_{rank}" for rank in ended.split()])


@pytest.mark.parametrize(
    ("idle", "there", "ended"),
    [
        ("3", "1 2 3", "3"),
        ("2", "1 2 3", ""),
        ("2 4", "1 2 3 4", "4"),
        ("2 3 4", "1 2 3 4", "2 3 4"),
        ("2", "1 2 3?", "2 3"),
    ],
)
def test_where_only_the_last_ones_can_be_ended_no_others_are(idle: str, there: str, ended: str) -> None:
    """A Job has places for all from the first on: another one's would stay, and cost its quota."""
    scale_request = {"workers": 1, "idle": [f"WORKER_{rank}" for rank in idle.split()]}
    done = change_of(scale_request, states(*there.split()), set(), (1, 4), ends="last")
    assert done == Change(0, tuple(f"WORKER_{rank}" for rank in ended.split()))


def test_who_has_been_told_to_end_counts_no_more() -> None:
    """Neither as one that is there, nor is it told again."""
    scale_request = {"workers": 2, "idle": ["WORKER_2"]}
    assert change_of(scale_request, states("1", "2"), {("WORKER_2", "2")}, (1, 4), ends="any") == Change(added=1)


def test_a_wish_whose_idle_workers_are_no_names_ends_none() -> None:
    """It is main's own file; a bug there must not end what works."""
    for idle in (None, "WORKER_1", [1], {"WORKER_1": 1}):
        assert change_of({"workers": 2, "idle": idle}, states("1", "2"), set(), (1, 4), ends="any") == Change()


# --- What is done ---------------------------------------------------------------------------------------------------


def test_a_cluster_grows_and_shrinks_as_main_wishes(adapted: Adapted) -> None:
    """One line for each change; nothing is asked for at rest."""
    assert adapted.look() == []
    adapted.scale_request(3)
    assert adapted.look() == [("start", "WORKER_2", "WORKER_3")]
    assert adapted.look() == []
    adapted.scale_request(1, "WORKER_2", "WORKER_3")
    assert adapted.look() == [("end", "WORKER_2", "WORKER_3")]
    assert adapted.look() == []
    adapted.node("WORKER_2", 143)
    adapted.node("WORKER_3", 143)
    assert adapted.look() == []
    assert adapted.said == ["adapting: 1 -> 3 workers", "adapting: 3 -> 1 workers"]


def test_a_rank_comes_again_whose_worker_was_ended(adapted: Adapted) -> None:
    """It is another life, which may be ended, too."""
    adapted.scale_request(2)
    adapted.look()
    adapted.node("WORKER_2", None, id=8)
    adapted.scale_request(1, "WORKER_2")
    assert adapted.look() == [("end", "WORKER_2")]
    adapted.node("WORKER_2", 143)
    adapted.scale_request(2)
    assert adapted.look() == [("start", "WORKER_2")]
    adapted.node("WORKER_2", None, id=9)
    adapted.scale_request(1, "WORKER_2")
    assert adapted.look() == [("end", "WORKER_2")]


def test_a_node_that_does_not_end_is_told_again(adapted: Adapted) -> None:
    """The word may have got lost on the way."""
    adapted.node("WORKER_2", None)
    adapted.scale_request(1, "WORKER_2")
    assert adapted.look() == [("end", "WORKER_2")]
    assert adapted.look(after_s=119) == []
    assert adapted.look(after_s=2) == [("end", "WORKER_2")]


def test_a_refusal_is_told_and_the_next_try_comes_later_each_time(adapted: Adapted) -> None:
    """After 5 s, 10, 20, ... and 10 minutes at most; nothing ends because of it."""
    adapted.starts_nothing("no host for VM.GPU.A10.1")
    adapted.scale_request(2)
    pauses = []
    adapted.look()
    for _ in range(9):
        waited_s = 0
        while len(adapted.said) == len(pauses) + 1:
            adapted.look(after_s=1)
            waited_s += 1
        pauses.append(waited_s)
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 600, 600]
    assert adapted.said[:2] == [
        f"adapting: 1 workers cannot become 2: no host for VM.GPU.A10.1; no worker is added for {pause} s"
        for pause in (5, 10)
    ]
    assert adapted.backend.asked("end", "kill", "remove") == []


def test_after_a_quiet_time_a_refusal_counts_as_the_first(adapted: Adapted) -> None:
    """The quota may have been full for an hour, long ago."""
    adapted.starts_nothing()
    adapted.scale_request(2)
    adapted.look()
    adapted.look(after_s=5)
    assert adapted.said[-1].endswith("for 10 s")
    adapted.scale_request(1)
    adapted.look(after_s=60)
    adapted.scale_request(2)
    adapted.look()
    assert adapted.said[-1].endswith("for 5 s")


def test_an_end_that_is_refused_is_tried_again_as_late(adapted: Adapted) -> None:
    """It is told once for each try, and not with each look."""
    adapted.node("WORKER_2", None)
    adapted.scale_request(1, "WORKER_2")
    adapted.backend.on["end"] = fail(BackendError("busy"))
    for _ in range(100):
        adapted.look()
    assert adapted.said == [
        f"adapting: 2 workers cannot become 1: busy; no worker is added for {pause} s" for pause in (5, 10)
    ]


def test_idle_workers_are_ended_during_a_pause(adapted: Adapted) -> None:
    """What costs is not kept because something else was refused."""
    adapted.node("WORKER_2", None)
    adapted.starts_nothing()
    adapted.scale_request(3)
    adapted.look()
    adapted.scale_request(1, "WORKER_2")
    assert adapted.look() == [("end", "WORKER_2")]


def test_a_worker_that_ends_by_itself_is_replaced_and_not_at_once(adapted: Adapted) -> None:
    """One that fails at each start would be started ten times a second."""
    adapted.scale_request(2)
    adapted.look()
    adapted.node("WORKER_2", 1)
    assert adapted.look() == []
    assert adapted.said[-1] == "adapting: WORKER_2 has ended by itself; no worker is added for 5 s"
    assert adapted.look(after_s=5) == [("start", "WORKER_2")]
    adapted.node("WORKER_2", None, id=8)
    assert adapted.look() == []
    adapted.node("WORKER_2", 1)
    assert adapted.look(after_s=6) == []
    assert adapted.said[-1].endswith("for 10 s")


def test_a_cluster_that_fails_ends_without_a_word_about_its_workers(adapted: Adapted) -> None:
    """They end with its code, which the last line tells."""
    adapted.cluster_dir.publish(STOP, reason="the entry point ended", exit_code=1)
    adapted.scale_request(2)
    adapted.node("WORKER_1", 1)
    assert adapted.look(after_s=60) == []
    assert adapted.said == []


@pytest.mark.parametrize("code", [0, 143])
def test_workers_whose_cluster_ends_are_not_replaced(adapted: Adapted, code: int) -> None:
    """They end before main has; its `stop` may be seen after that."""
    adapted.node("WORKER_2", None)
    adapted.scale_request(2)
    adapted.look()
    adapted.node("WORKER_2", code)
    assert adapted.look() == []
    adapted.cluster_dir.publish(STOP, reason="the entry point ended", exit_code=0)
    assert adapted.look(after_s=60) == []
    assert adapted.said == []


def test_one_that_somebody_has_scaled_away_comes_back_where_there_is_work(adapted: Adapted) -> None:
    """Within a few seconds, and without a word: nothing has failed."""
    adapted.node("WORKER_2", None)
    adapted.scale_request(2)
    adapted.look()
    adapted.node("WORKER_2", 143)
    assert adapted.look() == []
    assert adapted.look(after_s=5) == [("start", "WORKER_2")]


@pytest.mark.parametrize("workers", ["3", True, None, 2.0, [3]])
def test_what_is_no_number_is_no_wish(adapted: Adapted, workers: Any) -> None:
    """A line that main has told without its fields is one, too."""
    adapted.scale_request(workers)
    assert adapted.look() == []


def test_a_wish_that_somebody_else_has_written_counts_for_nothing(adapted: Adapted) -> None:
    """Whoever can write to the work dir may be more than who launched the cluster."""
    ClusterDir(adapted.cluster_dir.url, LAUNCH, "another key").publish(SCALE_REQUEST, workers=4, idle=[])
    assert adapted.look() == []
    assert SCALE_REQUEST in adapted.cluster_dir.refused


def test_a_cluster_without_adapt_is_left_as_it_is(tmp_path: Path, clock: Any) -> None:
    """Whatever is in its work dir, and at no request."""
    adapted = Adapted(tmp_path, clock, adapt="")
    adapted.scale_request(3)
    adapted.cluster_dir.read = fail(AssertionError())  # type: ignore[method-assign, assignment]
    assert adapted.look() == []


@pytest.mark.usefixtures("empty_memory")
def test_storage_is_asked_every_four_seconds(tmp_path: Path, clock: Any) -> None:
    """0.25 requests per second, whatever the size of the cluster; an error is asked again then."""
    adapted = Adapted(tmp_path, clock, url="memory://work/mine")
    adapted.scale_request(1)
    asked: list[str] = []
    read = adapted.cluster_dir.read

    def note(name: str) -> Any:
        asked.append(name)
        return read(name)

    adapted.cluster_dir.read = note  # type: ignore[method-assign, assignment]
    for _ in range(40):
        adapted.look(after_s=1)
    assert asked == [SCALE_REQUEST] * 10


@pytest.mark.parametrize("adapt", ["", "1:4"])
def test_main_is_told_whether_somebody_follows(tmp_path: Path, adapt: str) -> None:
    """Where it adapts; which workers can be ended is the backend's word."""
    backend = FakeBackend(tmp_path)
    plan = replace(plan_of(tmp_path), environment={"ADAPT": adapt} if adapt else {})
    assert followed(plan, backend).environment.get("FOLLOWED") == ("any" if adapt else None)


def test_a_failing_look_leaves_the_follower_alone(adapted: Adapted) -> None:
    """Storage that does not answer is asked again."""
    adapted.scale_request(2)
    read, adapted.cluster_dir.read = adapted.cluster_dir.read, fail(StorageError("gone"))  # type: ignore[method-assign]
    assert adapted.look() == []
    adapted.cluster_dir.read = read  # type: ignore[method-assign]
    assert adapted.look() == [("start", "WORKER_2")]


# --- While a cluster is followed ------------------------------------------------------------------------------------


def test_only_a_cluster_that_is_ready_and_goes_on_is_changed(run: Run) -> None:
    """Before that its own workers are still to come; and what is being stopped must not grow."""
    run.backend.is_this_machine = False  # nothing there to lock
    run.plan = replace(run.plan, environment={**run.plan.environment, "ADAPT": "1:9"})
    asked: list[list[Any]] = []

    def scale_request(workers: int) -> None:
        asked.append(run.backend.asked("start"))
        run.cluster_dir.publish(SCALE_REQUEST, workers=workers, idle=[])

    def press_ctrl_c() -> None:
        asked.append(run.backend.asked("start"))
        run.signals.received = 2

    code = run.follow(
        lambda: scale_request(3),
        nothing,
        lambda: asked.append(run.backend.asked("start")),
        lambda: run.cluster_dir.publish("MAIN_ready.json", facts={}),
        nothing,
        press_ctrl_c,
        lambda: scale_request(5),
        nothing,
        lambda: run.end(143, 143, 143, 143),
    )
    assert code == 143
    assert asked == [[], [], [("start", "WORKER_3")], [("start", "WORKER_3")]]
    assert run.backend.asked("start") == [("start", "WORKER_3")]
    assert "adapting: 2 -> 3 workers" in run.said
