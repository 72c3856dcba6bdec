"""A launch is all or nothing; and which cluster a name means."""

from __future__ import annotations

import stat

import pytest
from unit.fake_backend import LAUNCH
from unit.launcher.life import Life, fail, refusal

from oci_cluster.contract.cluster import Cluster
from oci_cluster.errors import BackendError, StoppedError
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.system.files import locked

# --- Launch ---------------------------------------------------------------------------------------------------------


def test_a_launch_starts_all_nodes_in_a_directory_of_its_own(life: Life) -> None:
    """Logs and outputs have their folders before a node begins; nobody else on this machine looks into them."""
    plan = life.plan()
    seen: list[bool] = []
    directory = life.place / plan.cluster_id
    life.backend.on["start"] = lambda: seen.extend((directory / name).is_dir() for name in ("logs", "outputs"))
    cluster = life.lifecycle.launch(plan)
    assert (cluster, seen, life.said) == (Cluster.of(plan, life.place), [True, True], [])
    assert life.backend.asked("start", "remove") == [("start", "MAIN", "WORKER_1", "WORKER_2")]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize("error", [BackendError("no room"), KeyboardInterrupt(), StoppedError("stopped"), OSError("x")])
def test_a_launch_that_fails_leaves_nothing(life: Life, error: BaseException) -> None:
    """Whatever it failed of, Ctrl-C included: what was started is removed, its directory too, and the error stands."""
    life.backend.on["start"] = fail(error)
    plan = life.plan()
    with pytest.raises(type(error)) as caught:
        life.lifecycle.launch(plan)
    assert caught.value is error
    assert (life.backend.asked("remove"), life.said) == ([("remove", "mine")], [])
    assert not (life.place / plan.cluster_id).exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BackendError("no room"), "the launch failed; ending what was started"),
        (StoppedError("stopped while the Job Runs were being made"), "stopped while the Job Runs were being made"),
    ],
)
def test_an_end_that_takes_time_is_told(life: Life, error: Exception, said: str) -> None:
    """Where what was started is elsewhere, a person waits for its end."""
    life.elsewhere()
    life.backend.on["start"] = fail(error)
    refusal(lambda: life.lifecycle.launch(life.plan()), type(error))
    assert life.said == [said]


@pytest.mark.parametrize(
    ("is_far", "said"),
    [
        (
            True,
            ("NOT ENDED: mine may still be running and cost money (no answer); "
            "end it: scripts/stop.sh mine --delete --backend oci"),
        ),
        (False, "NOT ENDED: mine may still be running (no answer); end it: scripts/stop.sh mine --delete"),
    ],
)  # fmt: skip
def test_what_cannot_be_removed_is_named(life: Life, said: str, *, is_far: bool) -> None:
    """With the command that ends it; the launch's own error stands, and what is known of the cluster is kept."""
    if is_far:
        life.elsewhere()
    life.backend.on = {"start": fail(BackendError("no room")), "remove": fail(BackendError("no answer"))}
    plan = life.plan()
    assert refusal(lambda: life.lifecycle.launch(plan), BackendError) == "no room"
    assert life.said[-2:] == ["no answer; trying again", said]
    assert 14.5 <= life.passed < 20  # 20 s, less the longest pause: 5 s, spread by a tenth
    assert (life.place / plan.cluster_id).is_dir()


def test_what_cannot_be_removed_at_once_is_removed_when_the_backend_answers_again(life: Life) -> None:
    """An engine that was killed while it began a node, and is being started again."""
    life.backend.on = {"start": fail(BackendError("no room")), "remove": fail(BackendError("no answer"))}
    life.at(12, lambda: life.backend.on.pop("remove"))
    plan = life.plan()
    assert refusal(lambda: life.lifecycle.launch(plan), BackendError) == "no room"
    assert (life.said, life.passed < 17) == (["no answer; trying again"], True)
    assert not (life.place / plan.cluster_id).exists()


def test_a_second_running_cluster_of_a_name_is_refused(life: Life) -> None:
    """The message has both ways out; nothing is made."""
    life.run(launch_id="aa")
    plan = life.plan()
    assert refusal(lambda: life.lifecycle.launch(plan)) == (
        "a cluster named 'mine' is running; choose another --name, or end it: scripts/stop.sh mine"
    )
    assert (life.backend.asked("start", "remove"), (life.place / plan.cluster_id).exists()) == ([], False)


def test_a_name_of_an_ended_or_of_another_cluster_is_free(life: Life) -> None:
    """Only a running one stands in the way."""
    life.ended("mine", "aa")
    life.run("other", "bb")
    life.lifecycle.check_name("mine")


def test_a_command_names_the_backend_that_is_not_the_default(life: Life) -> None:
    """As it must be typed."""
    life.elsewhere()
    life.run(launch_id="aa")
    assert refusal(lambda: life.lifecycle.check_name("mine")).endswith(": scripts/stop.sh mine --backend oci")


def test_a_directory_that_is_somebody_elses_is_named_and_stays(life: Life) -> None:
    """Nothing was started, and so nothing is removed."""
    plan = life.plan()
    (life.place / plan.cluster_id / "logs").mkdir(parents=True)
    assert refusal(lambda: life.lifecycle.launch(plan), BackendError).startswith(
        f"{life.place / plan.cluster_id} cannot be written: "
    )
    assert (life.backend.asked("start", "remove"), (life.place / plan.cluster_id / "logs").is_dir()) == ([], True)


def test_launches_on_one_machine_wait_for_each_other(life: Life) -> None:
    """The name is looked for and taken under one lock, which is free again afterwards."""
    held: list[bool] = []

    def look() -> None:
        try:
            with (life.place / ".lock").open("rb") as file:
                import fcntl  # noqa: PLC0415

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held.append(False)
        except BlockingIOError:
            held.append(True)

    life.backend.on = {"find": look, "start": look}
    life.lifecycle.launch(life.plan())
    with locked(life.place / ".lock"):
        pass
    look()
    assert held == [True, True, False]


def test_a_launch_that_waits_for_another_says_so_and_can_be_stopped(life: Life) -> None:
    """That one may be suspended, by Ctrl-Z; nothing has been started."""
    plan = life.plan()
    lifecycle = Lifecycle(life.backend, life.root, life.said.append, is_stopped=lambda: bool(life.said))
    with locked(life.place / ".lock"), pytest.raises(StoppedError):
        lifecycle.launch(plan)
    assert life.said == ["waiting: another launch.sh or scale.sh of this checkout is at work"]
    assert life.backend.asked("start", "remove") == []


# --- Which cluster is meant -----------------------------------------------------------------------------------------


def test_without_a_name_the_only_running_cluster_is_meant(life: Life) -> None:
    """Who has one cluster need not say its name."""
    life.ended("new", "bb")
    old = life.run("old", "aa")
    assert life.lifecycle.choose("") is old


def test_without_a_name_several_running_clusters_are_not_guessed_among(life: Life) -> None:
    """With several running clusters each is named, and nothing is chosen."""
    life.run("a", "aa")
    life.run("b", "bb")
    life.ended("ended", "cc")
    assert refusal(lambda: life.lifecycle.choose("")) == (
        "which cluster? running: a, b; scripts/list.sh --all shows those that have ended"
    )


def test_without_a_name_no_ended_cluster_is_meant(life: Life) -> None:
    """A cluster that has ended must be named."""
    life.ended("ended", "aa")
    assert refusal(lambda: life.lifecycle.choose("")) == (
        "which cluster? running: none; scripts/list.sh --all shows those that have ended"
    )


def test_the_running_cluster_of_a_name_wins(life: Life) -> None:
    """Of several clusters of one name the running one is meant, also when a later one has ended."""
    life.ended("mine", "1")
    running = life.run("mine", "2")
    life.ended("mine", "3")
    assert life.lifecycle.choose("mine") is running


def test_the_latest_of_a_name_is_meant(life: Life) -> None:
    """Where none of a name runs, the latest is meant."""
    life.ended("mine", "1")
    latest = life.ended("mine", "2")
    life.run("other", "3")
    assert life.lifecycle.choose("mine") is latest


def test_an_id_names_an_older_cluster(life: Life) -> None:
    """A cluster's id names it among others of its name."""
    older = life.ended("mine", "1")
    life.run("mine", "2")
    assert life.lifecycle.choose("mine-1") is older


def test_of_two_that_run_under_one_name_that_of_this_checkout_is_meant(life: Life) -> None:
    """Somebody has made the other one up, in a place that both can write to."""
    own = life.run("mine", "1")
    life.run("mine", "2")
    assert refusal(lambda: life.lifecycle.choose("mine")) == (
        "which 'mine'? somebody has made a second one, and both run: mine-1, mine-2; name one of these"
    )
    assert life.lifecycle.choose("mine-1") is own
    (own.directory / "cluster.json").touch()
    assert life.lifecycle.choose("mine") is own


def test_no_name_stands_for_another_clusters_id(life: Life) -> None:
    """Who ends a cluster by its id ends that one, whatever somebody has called another."""
    own = life.run("mine", "1")
    life.run("mine-1", "2")
    assert life.lifecycle.choose("mine-1") is own


def test_an_unknown_name_is_named_with_those_known(life: Life) -> None:
    """A name that no cluster has is told with the names that there are, each once."""
    life.ended("a", "1")
    life.ended("b", "2")
    life.ended("a", "3")
    assert refusal(lambda: life.lifecycle.choose("c")) == "there is no cluster 'c'; known: a, b"


def test_an_unknown_name_where_there_are_no_clusters(life: Life) -> None:
    """Without any cluster the message says so, and nobody is asked for states."""
    life.backend.on["states"] = fail(AssertionError())
    assert refusal(lambda: life.lifecycle.choose("../etc")) == "there is no cluster '../etc'; known: none"


# --- The cluster of a launcher that was killed -----------------------------------------------------------------------


def test_an_orphan_that_no_list_has_yet_is_waited_for(life: Life) -> None:
    """Its launcher was killed when the service had just made it: nobody else will end it."""
    life.elsewhere()
    life.at(30, life.run)
    assert life.lifecycle.choose_orphan(f"mine-{LAUNCH}").name == "mine"
    assert 30 <= life.passed < 40


@pytest.mark.parametrize(("is_elsewhere", "patience_s"), [(True, 120), (False, 0)])
def test_an_orphan_that_never_came_to_be_is_not_waited_for_for_ever(
    life: Life, *, is_elsewhere: bool, patience_s: float
) -> None:
    """The launcher was killed before it had made anything; on this machine that is seen at once."""
    if is_elsewhere:
        life.elsewhere()
    refusal(lambda: life.lifecycle.choose_orphan(f"mine-{LAUNCH}"))
    assert patience_s <= life.passed < patience_s + 10
