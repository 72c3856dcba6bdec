"""What every backend must do, run against each of them: on places that a test plays.

A new backend joins with a class like ``unit.backends.docker_place``'s, and one line in ``PLACES``.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.backends.docker_place import DockerPlace
from unit.backends.kubernetes_place import KubernetesPlace
from unit.backends.local_place import LocalPlace
from unit.backends.oci_place import OciPlace
from unit.backends.places import Place

from oci_cluster.backends import known_backends, open_backend
from oci_cluster.contract.cluster import FILE, Cluster, Node, State, any_running
from oci_cluster.errors import ClusterError, StoppedError
from oci_cluster.launcher.connect.connect import Connected
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.launcher.show.logs import MergedLogs

PLACES = {"local": LocalPlace, "docker": DockerPlace, "oci": OciPlace, "kubernetes": KubernetesPlace}


@pytest.fixture(params=PLACES)
def place(request: Any, tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return a place where nothing runs yet."""
    place = PLACES[request.param](tmp_path, clock, monkeypatch)
    yield place
    place.close()


def launch(place: Place, name: str = "mine", workers: int = 2) -> Cluster:
    """Launch a cluster, as launch.sh does."""
    backend = place.backend
    return place.lifecycle.launch(backend.prepare(backend.place(place.plan(name, workers)), place.said.append))


NODES = ["MAIN", "WORKER_1", "WORKER_2"]


def test_every_backend_is_tested() -> None:
    """One that is added joins these tests."""
    assert sorted(PLACES) == known_backends()


def test_the_most_workers_are_those_that_were_measured(place: Place) -> None:
    most = {"local": 250, "docker": 100, "oci": 999, "kubernetes": 999}
    assert place.backend.max_workers == most[place.backend.name]


def test_where_others_read_the_key_sessions_have_another_secret(place: Place) -> None:
    """A Job of OCI has it in its variables, for all who may look; elsewhere these are its owner's, and root's."""
    assert place.backend.shows_key is (place.backend.name == "oci")


def test_a_launch_starts_every_node_once(place: Place) -> None:
    """Main and its workers, and nobody else."""
    cluster = launch(place)
    assert place.running() == NODES
    assert [state.node for state in place.lifecycle.states(cluster)] == NODES
    assert any_running(place.lifecycle.states(cluster))


def test_what_was_launched_is_nobody_elses_business(place: Place) -> None:
    """`cluster.json` has the variables of --env, secrets too; it stays so to the end, in whatever umask."""
    old = os.umask(0)
    try:
        cluster = launch(place)
        seen = [(cluster.directory / FILE).stat().st_mode & 0o777]
        for node in NODES:
            place.end(node, 0)
        place.settle()
        place.backend.finish(cluster, place.said.append)
        seen.append((cluster.directory / FILE).stat().st_mode & 0o777)
    finally:
        os.umask(old)
    assert seen == [0o600, 0o600]


@pytest.mark.parametrize("node", NODES)
def test_a_launch_starts_all_nodes_or_none(place: Place, node: str) -> None:
    """Whichever node is refused: nothing runs, nothing is listed, nothing is kept; the name is free again."""
    place.refuse(node)
    with pytest.raises(ClusterError):
        launch(place)
    assert place.running() == []
    assert place.backend.find() == []
    assert list((place.root / ".clusters").glob("mine*")) == []
    place.allow()
    launch(place)
    assert place.running() == NODES


def test_a_start_whose_answer_is_lost_starts_nothing_twice(place: Place) -> None:
    """Done, and not answered: each node is there once, or the launch fails and none is."""
    place.lose_answer_of("WORKER_1")
    try:
        launch(place)
    except ClusterError:
        assert place.running() == []
    else:
        assert place.running() == NODES


def test_a_launch_that_is_stopped_leaves_nothing(place: Place) -> None:
    """The launcher was told to stop while nodes were being started."""
    place.stop_launcher_at("WORKER_1")
    with pytest.raises(StoppedError):
        launch(place)
    assert place.running() == []
    assert place.backend.find() == []


def test_a_name_that_runs_is_taken(place: Place) -> None:
    """The second launch starts nothing and ends nothing."""
    launch(place)
    with pytest.raises(ClusterError, match="a cluster named 'mine' is running"):
        launch(place)
    assert place.running() == NODES


def test_a_cluster_is_found_whatever_became_of_its_launcher(place: Place) -> None:
    """By another process, which knows nothing but the checkout; with what it was launched with."""
    cluster, plan = launch(place), place.backend.load(launch(place, "other"))
    backend = place.another()
    found = {one.name: one for one in backend.find()}
    assert sorted(found) == ["mine", "other"]
    assert found["mine"].launch_id == cluster.launch_id
    loaded = backend.load(found["other"])
    assert loaded.url == plan.url
    assert loaded.limits == plan.limits
    for name in ("LAUNCH_ID", "WORKER_COUNT", "ENTRY_POINT"):
        assert loaded.environment[name] == plan.environment[name]


def test_clusters_are_found_the_oldest_first(place: Place) -> None:
    """As people read lists."""
    names = ["c", "a", "b"]
    for name in names:
        launch(place, name, 1)
        place.later()
    assert [cluster.name for cluster in place.backend.find()] == names
    assert [cluster.name for cluster in place.backend.find("a")] == ["a"]


def test_states_of_many_clusters_cost_no_more_requests_than_those_of_one(place: Place) -> None:
    """A list of a hundred clusters must not be a hundred requests."""
    clusters = [launch(place, "a", 1)]
    before = place.requests()
    place.backend.states(clusters)
    one = place.requests() - before
    clusters += [launch(place, name, 1) for name in "bc"]
    before = place.requests()
    states = place.backend.states(clusters)
    assert place.requests() - before <= max(one, 1)
    assert {launch_id: len(nodes) for launch_id, nodes in states.items()} == {
        cluster.launch_id: 2 for cluster in clusters
    }


def test_what_others_wrote_is_no_cluster(place: Place) -> None:
    """Tags, labels and files become names of files, and anybody may have written them."""
    cluster = launch(place)
    place.add_hostile()
    assert [found.name for found in place.another().find()] == ["mine"]
    assert [found.directory.parent for found in place.another().find()] == [cluster.directory.parent]


@pytest.mark.parametrize(("code", "state"), [(0, State.SUCCEEDED), (7, State.FAILED), (143, State.CANCELED)])
def test_the_exit_code_of_a_node_is_told(place: Place, code: int, state: State) -> None:
    """As its agent ended, in the words of all backends."""
    cluster = launch(place)
    place.end("WORKER_2", code)
    ended = place.lifecycle.states(cluster)[2]
    assert (ended.node, ended.exit_code, ended.state, ended.is_running) == ("WORKER_2", code, state, False)
    assert [node.is_running for node in place.lifecycle.states(cluster)] == [True, True, False]


@pytest.mark.parametrize("at_once", [False, True])
def test_nodes_are_ended_without_waiting(place: Place, clock: Any, *, at_once: bool) -> None:
    """Those that are named, and no others; those that have ended already are no error."""
    cluster = launch(place)
    began = clock()
    for _ in range(2):
        place.backend.end(cluster, ["WORKER_2", "WORKER_9"], at_once=at_once)
    assert clock() == began
    place.settle()
    assert place.running() == ["MAIN", "WORKER_1"]
    place.backend.end(cluster, NODES, at_once=at_once)
    place.settle()
    assert place.running() == []
    assert not place.lifecycle.is_running(cluster)


def test_a_node_that_has_not_started_waits_and_has_not_ended(place: Place) -> None:
    """In all backends that know such a node; on this machine nodes start at once."""
    cluster = launch(place)
    if not place.can_wait:
        assert not any(state.is_waiting for state in place.lifecycle.states(cluster))
        return
    place.hold("WORKER_2")
    worker = place.lifecycle.states(cluster)[2]
    assert (worker.state, worker.is_waiting, worker.is_running) == (State.ACCEPTED, True, True)
    place.begin()
    if place.backend.name == "oci":
        assert not any(state.is_waiting for state in place.lifecycle.states(cluster))


@pytest.mark.parametrize("node", ["MAIN", "WORKER_2"])
def test_a_node_that_has_not_started_is_ended_as_one_that_never_did(place: Place, node: str) -> None:
    """At once, and told so: its code is that of no script."""
    cluster = launch(place)
    if not place.can_wait:
        return
    place.hold(node)
    place.backend.end(cluster, [node])
    place.settle()
    (state,) = [state for state in place.lifecycle.states(cluster) if state.node == node]
    assert (state.state, state.exit_code, state.never_started, state.is_waiting) == (State.CANCELED, 143, True, False)


def test_a_cluster_of_which_nothing_has_started_is_stopped_at_once(place: Place, clock: Any) -> None:
    """Its nodes read no stop file: nobody waits for them to obey it."""
    cluster = launch(place)
    if not place.can_wait:
        return
    for node in NODES:
        place.hold(node)
    began = clock()
    place.lifecycle.stop(cluster)
    assert not place.lifecycle.is_running(cluster)
    assert clock() - began < place.backend.end_margin_s


def test_a_cluster_is_stopped_and_may_be_stopped_again(place: Place) -> None:
    """Its files stay."""
    cluster = launch(place)
    for _ in range(2):
        place.lifecycle.stop(cluster)
        assert place.running() == []
        assert not place.lifecycle.is_running(cluster)


def test_a_cluster_is_removed_and_may_be_removed_again(place: Place) -> None:
    """Nothing of it is left, and nothing of another is touched."""
    cluster, other = launch(place), launch(place, "other", 1)
    for _ in range(2):
        place.backend.remove(cluster, place.said.append)
        shutil.rmtree(cluster.directory, ignore_errors=True)
        assert [found.name for found in place.another().find()] == ["other"]
    assert place.running() == ["MAIN", "WORKER_1"]
    assert place.lifecycle.is_running(other)


def test_a_worker_joins_and_one_leaves(place: Place) -> None:
    """A lost worker's rank first, where another node can have it."""
    cluster = launch(place)
    place.end("WORKER_1", 9)
    workers = ["WORKER_1", "WORKER_2", "WORKER_3"]
    if not place.gives_ranks_again:
        workers = ["WORKER_2", "WORKER_3", "WORKER_4"]
    assert place.lifecycle.scale(cluster, "+2") == 3
    assert place.running() == ["MAIN", *workers]
    assert place.lifecycle.scale(cluster, "1") == 1
    place.settle()
    assert place.running() == ["MAIN", workers[0]]


def test_workers_that_could_not_join_leave_the_others_alone(place: Place) -> None:
    """The cluster goes on as it was."""
    cluster = launch(place)
    place.refuse("WORKER_3")
    with pytest.raises(ClusterError):
        place.lifecycle.scale(cluster, "+1")
    assert place.running() == NODES


def test_a_joining_node_is_given_what_the_others_were(place: Place) -> None:
    """Also by another process, later."""
    cluster = launch(place)
    backend = place.another()
    backend.start(backend.load(cluster), [Node("WORKER", 3)], place.said.append)
    given, joined = place.given("WORKER_1"), place.given("WORKER_3")
    own = {"MODE", "NODE_RANK", "NODE_NAME", "NODE_ADDRESS"}
    assert {name: joined[name] for name in joined if name not in own} == {
        name: given[name] for name in given if name not in own
    }
    assert (joined["MODE"], joined["NODE_RANK"]) == ("WORKER", "3")


def test_logs_are_brought_to_the_last_line(place: Place, tmp_path: Path) -> None:
    """Whole, when the node has ended: also what it printed last, and when it is asked again."""
    cluster = launch(place)
    place.print("WORKER_1", "first\n")
    directory = tmp_path / "logs of the test"
    directory.mkdir()
    copy = place.backend.logs(cluster, directory, follow=False)
    copy.fetch()
    place.print("WORKER_1", "last\n")
    place.end("WORKER_1", 0)
    copy = place.another().logs(cluster, directory, follow=False)
    copy.fetch()
    copy.close()
    assert (copy.directory / "WORKER_1.log").read_text().endswith("first\nlast\n")


@pytest.mark.parametrize("is_finished", [False, True])
def test_after_the_end_lines_of_all_nodes_are_in_the_order_of_time(
    place: Place, tmp_path: Path, *, is_finished: bool
) -> None:
    """Whether the launch has brought what is kept, or nobody has."""
    cluster = launch(place, workers=1)
    for second, text in enumerate(("one", "two", "three", "four", "five", "six")):
        place.print(NODES[second % 2], f"{text}\n", second)
    for node in NODES[:2]:
        place.end(node, 0)
    if is_finished:
        place.backend.finish(cluster, place.said.append)
    copy = place.another().logs(cluster, tmp_path / "copy", follow=False)
    (tmp_path / "copy").mkdir()
    copy.fetch()
    shown = io.StringIO()
    MergedLogs(copy.directory, NODES[:2], shown).copy_old()
    copy.close()
    assert [line.partition("| ")[2] for line in shown.getvalue().splitlines()][-6:] == [
        "one", "two", "three", "four", "five", "six",
    ]  # fmt: skip


def test_a_preview_changes_nothing(place: Place) -> None:
    """No node, no file, no claim that stays."""
    placed = place.backend.place(place.plan("mine", 2))
    assert place.backend.preview(placed, as_json=True)
    assert place.backend.preview(placed, as_json=False)
    assert place.running() == []
    assert not (place.root / ".clusters").exists()


def test_a_backend_is_opened_by_its_name(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the launcher does, which knows no class of any."""
    opened = open_backend(place.backend.name, place.root, place.settings)
    assert isinstance(opened, type(place.backend))
    opened.close()


def test_what_json_shows_of_a_node_is_there(place: Place) -> None:
    """Every name stands for a field of a node's state."""
    (state, *_) = place.lifecycle.states(launch(place))
    assert {"node", "state", "exit_code"} <= set(place.backend.node_fields)
    assert all(hasattr(state, field) for field in place.backend.node_fields.values())


def test_how_to_connect_is_true_here(place: Place) -> None:
    """Main's own words where main is on this machine; elsewhere where they hold, or what to do instead of them."""
    cluster, words = launch(place), "DASK_CONFIG=/tmp/1f2e-MAIN/client.yaml"
    told = place.backend.connect(cluster, place.backend.load(cluster), words)
    endings = {
        "local": words,
        "docker": f" exec -it {cluster.cluster_id}-MAIN env {words} python",
        "oci": "; see plain/README.md",
        "kubernetes": f" -- env {words} python",
    }
    assert told.endswith(endings[place.backend.name])
    assert (words in told) is (place.backend.name != "oci")  # nobody can log in to main there
    if place.backend.name in {"docker", "kubernetes"}:  # people copy it into their shell
        hostile = place.backend.connect(cluster, place.backend.load(cluster), "A=$(id); rm B")
        assert hostile.endswith(" env 'A=$(id);' rm B python")
    if place.backend.name == "oci":
        assert f"{place.backend.load(cluster).url}/MAIN_certificate.json" in told


@pytest.mark.parametrize("name", ["\x1b[2Jevil", "../evil"])
def test_a_session_that_others_have_named_moves_no_terminal(place: Place, name: str) -> None:
    """Whoever may write a Job or a container writes its name; another machine connects to it."""
    cluster = launch(place)
    place.forge("SESSION", name)
    if place.backend.name != "local":
        shutil.rmtree(cluster.directory)
    backend = place.another()
    with pytest.raises(ClusterError, match="evil") as caught:
        Connected(backend, cluster, backend.load(cluster), place.said.append).known_ports()
    assert str(caught.value).isprintable()


def test_the_lifecycle_is_the_same_for_all(place: Place) -> None:
    """No backend brings its own."""
    assert type(place.lifecycle) is Lifecycle
    assert not {"launch", "scale", "stop", "choose", "check_name"} & set(dir(place.backend))
