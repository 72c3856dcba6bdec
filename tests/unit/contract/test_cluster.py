from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from unit.fake_backend import keep, plan_of

from oci_cluster.contract.cluster import (
    FILE,
    Cluster,
    Node,
    NodeState,
    Plan,
    State,
    any_running,
    cluster_code,
    clusters_dir,
    kept_clusters,
    limits_of,
)
from oci_cluster.errors import NotPermittedError, SettingsError, UsageError
from oci_cluster.system.text import seconds_since

MARK = "begun"

CREATED = "2026-01-02T00:00:00Z"


def keep_in(root: Path, name: str, launch_id: str = "1f2e3d4c", created: str = CREATED, **changes: Any) -> Cluster:
    """Return a cluster whose cluster.json is kept in the checkout *root*."""
    return keep(clusters_dir(root), plan_of(root, name, launch_id, created=created, **changes))


# --- A plan ---------------------------------------------------------------------------------------------------------


def test_a_plan_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    """Every field, those of a backend included; limits are read anew out of what the nodes are given."""
    environment = {"WORKER_COUNT": "2", "MIN_WORKERS": "1", "TTL": "2h", "GRACE_PERIOD": "3"}
    plan = plan_of(
        tmp_path,
        environment=environment,
        settings={"SHAPE": "small"},
        code_dir="/code",
        code_uri="image",
        python="/my/python",
        placed={"image": "sha256:1"},
        limits=limits_of(environment, tmp_path / "none"),
    )
    kept = keep(tmp_path / "clusters", plan)
    assert Plan.load(kept.directory, tmp_path) == plan


def test_a_plan_names_its_files_by_name_and_launch(tmp_path: Path) -> None:
    """The cluster dir is in the work dir, with one slash between them; nodes are named main first."""
    plan = plan_of(tmp_path, work_dir="oci://bucket@ns/work/")
    assert (plan.cluster_id, plan.url) == ("mine-1f2e3d4c", "oci://bucket@ns/work/mine-1f2e3d4c")
    assert plan.node_names == ["MAIN", "WORKER_1", "WORKER_2"]


@pytest.mark.parametrize(
    ("node", "environment"),
    [
        (Node("WORKER", 2), {"MODE": "WORKER", "NODE_RANK": "2"}),
        (
            Node("MAIN", 0, "127.0.0.1"),
            {"MODE": "MAIN", "NODE_RANK": "0", "NODE_NAME": "MAIN", "NODE_ADDRESS": "127.0.0.1"},
        ),
    ],
)
def test_a_node_is_told_its_address_where_it_has_been_given_one(node: Node, environment: dict[str, str]) -> None:
    """Elsewhere the node itself finds it."""
    assert node.environment == environment


def test_a_directory_without_a_cluster_is_named(tmp_path: Path) -> None:
    """No cluster.json is wrong usage, with the directory's name."""
    with pytest.raises(UsageError) as caught:
        Plan.load(tmp_path, tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / FILE} does not say what was launched: ")


def test_a_half_written_cluster_is_named(tmp_path: Path) -> None:
    """A cluster.json that is no JSON is wrong usage, not a crash."""
    (tmp_path / FILE).write_text('{"name": ')
    with pytest.raises(UsageError) as caught:
        Plan.load(tmp_path, tmp_path)
    why = "Expecting value: line 1 column 10 (char 9)"
    assert str(caught.value) == f"{tmp_path / FILE} does not say what was launched: {why}"


BROKEN: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("no launch", lambda found: found.pop("launch_id")),
    ("an id of another cluster", lambda found: found.update(cluster_id="../../etc")),
    ("a time that is none", lambda found: found.update(created="yesterday")),
    ("nodes of another shape", lambda found: found.update(nodes=[7])),
    ("a rank that is none", lambda found: found["nodes"][0]["environment"].update(NODE_RANK="first")),
    ("an environment of another shape", lambda found: found.update(environment=["A=b"])),
    ("a limit that is none", lambda found: found.update(environment={"TTL": "soon"})),
]


@pytest.mark.parametrize("change", [change for _, change in BROKEN], ids=[name for name, _ in BROKEN])
def test_a_file_that_launch_did_not_write_is_no_cluster(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    """Anybody may have written it: what it lacks or says wrongly is wrong usage, never a crash."""
    directory = keep_in(tmp_path, "mine").directory
    found = json.loads((directory / FILE).read_text())
    change(found)
    (directory / FILE).write_text(json.dumps(found))
    with pytest.raises(UsageError, match="does not say what was launched: "):
        Plan.load(directory, tmp_path)


def test_a_plan_that_names_no_backend_is_a_local_ones(tmp_path: Path) -> None:
    """As an older version has written it."""
    directory = keep_in(tmp_path, "mine", backend="docker").directory
    found = json.loads((directory / FILE).read_text())
    del found["backend"]
    (directory / FILE).write_text(json.dumps(found))
    assert Plan.load(directory, tmp_path).backend == "local"


# --- Limits ---------------------------------------------------------------------------------------------------------


def test_every_limit_that_is_none_is_named(tmp_path: Path) -> None:
    """All in one message (78)."""
    with pytest.raises(SettingsError) as caught:
        limits_of({"TTL": "soon", "MIN_WORKERS": "some"}, tmp_path)
    assert ["TTL: 'soon'" in str(caught.value), "MIN_WORKERS: 'some'" in str(caught.value)] == [True, True]


def test_a_framework_that_is_gone_has_no_defaults(tmp_path: Path) -> None:
    """A cluster of it can still be shown and stopped."""
    assert limits_of({"WORKER_COUNT": "3"}, tmp_path / "none").min_workers == 3


# --- Clusters of a checkout -----------------------------------------------------------------------------------------


def test_clusters_are_found_the_oldest_first(tmp_path: Path) -> None:
    """Clusters are in the order of their launch, those of one second in that of their ids; other folders are none."""
    late = keep_in(tmp_path, "a", created="2026-01-03T00:00:00Z")
    second = keep_in(tmp_path, "b", launch_id="bb", created="2026-01-02T00:00:00Z")
    first = keep_in(tmp_path, "c", launch_id="aa", created="2026-01-02T00:00:00Z")
    (clusters_dir(tmp_path) / "logs").mkdir()
    assert kept_clusters(tmp_path, "local", MARK) == [first, second, late]


def test_no_clusters_are_found_where_there_is_nothing(tmp_path: Path) -> None:
    """A fresh checkout has no clusters."""
    assert kept_clusters(tmp_path / "none", "local", MARK) == []


def test_a_cluster_that_is_just_being_made_is_passed_over(tmp_path: Path) -> None:
    """An empty cluster.json is one that another launch is about to write."""
    kept = keep_in(tmp_path, "mine")
    (clusters_dir(tmp_path) / "other").mkdir()
    (clusters_dir(tmp_path) / "other" / FILE).touch()
    assert kept_clusters(tmp_path, "local", MARK) == [kept]


@pytest.mark.parametrize("body", ['{"name": ', "[]", "{}"], ids=["half-written", "list", "no fields"])
def test_one_unusable_cluster_does_not_hide_the_others(tmp_path: Path, body: str) -> None:
    """A cluster.json that cannot be used, or is still being written, is passed over."""
    kept = keep_in(tmp_path, "mine")
    (clusters_dir(tmp_path) / "other").mkdir()
    (clusters_dir(tmp_path) / "other" / FILE).write_text(body)
    assert kept_clusters(tmp_path, "local", MARK) == [kept]


@pytest.mark.parametrize("body", ["", '{"name": ', "{}", None], ids=["empty", "half-written", "no fields", "gone"])
def test_a_cluster_whose_plan_is_gone_is_one_still(tmp_path: Path, body: str | None) -> None:
    """Its nodes may run: it can be seen and ended by what its folder's name tells."""
    kept = keep_in(tmp_path, "mine-too", launch_id="1f2e3d4c")
    (kept.directory / FILE).unlink()
    if body is not None:
        (kept.directory / FILE).write_text(body)
    assert kept_clusters(tmp_path, "local", MARK) == []  # nothing has begun
    (kept.directory / MARK).touch()
    (found,) = kept_clusters(tmp_path, "local", MARK)
    assert (found.name, found.launch_id, found.backend, found.directory) == (
        "mine-too",
        "1f2e3d4c",
        "local",
        kept.directory,
    )
    assert seconds_since(found.created) < 60
    assert kept_clusters(tmp_path, "docker", "what docker leaves") == []


@pytest.mark.parametrize("name", ["notes", "-1f2e3d4c", "mine-1F2E3D4C", "mine-1f2e3d4c.old"])
def test_a_folder_that_no_launch_has_named_is_no_cluster(tmp_path: Path, name: str) -> None:
    """Whatever is in it."""
    folder = clusters_dir(tmp_path) / name
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    assert kept_clusters(tmp_path, "local", MARK) == []


def test_clusters_of_other_backends_are_theirs(tmp_path: Path) -> None:
    """Each backend finds its own."""
    kept = keep_in(tmp_path, "mine", backend="oci")
    keep_in(tmp_path, "other")
    assert kept_clusters(tmp_path, "oci", MARK) == [kept]


# --- States ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "is_running"),
    [
        (NodeState("MAIN", State.ACCEPTED), True),
        (NodeState("MAIN", State.IN_PROGRESS), True),
        (NodeState("MAIN", State.SUCCEEDED, 0), False),
        (NodeState("MAIN", State.IN_PROGRESS, is_lost=True), False),
    ],
)
def test_a_node_runs_until_it_has_ended_or_is_lost(state: NodeState, *, is_running: bool) -> None:
    """A node of which nobody knows how it ended does not run either."""
    assert (state.is_running, any_running([NodeState("WORKER_1", State.FAILED, 7), state])) == (is_running, is_running)


@pytest.mark.parametrize(("code", "state"), [(0, "SUCCEEDED"), (143, "CANCELED"), (7, "FAILED"), (137, "FAILED")])
def test_an_exit_code_has_a_state(code: int, state: str) -> None:
    """In the words of OCI, whatever Python formats them."""
    assert (str(State.of_exit_code(code)), f"{State.of_exit_code(code)}", json.dumps(State.of_exit_code(code))) == (
        state,
        state,
        f'"{state}"',
    )


# --- The cluster's exit code ----------------------------------------------------------------------------------------


def ends(main: int | None, worker: int | None = 0) -> list[NodeState]:
    return [NodeState("WORKER_1", State.FAILED, worker), NodeState("MAIN", State.FAILED, main)]


@pytest.mark.parametrize(
    ("nodes", "stop", "code"),
    [
        (ends(0), {"exit_code": 0}, 0),
        (ends(7), {"exit_code": 7}, 7),
        (ends(0, 1), {"exit_code": 0}, 0),
        (ends(75), None, 75),
        (ends(128), None, 128),
        (ends(143), None, 143),
        (ends(137), {"exit_code": 137}, 137),
        (ends(139), {"exit_code": 139}, 139),
        (ends(137), {"exit_code": 0}, 76),
        (ends(137), {"exit_code": 143}, 76),
        (ends(137), {"exit_code": 143, "at_once": True}, 143),
        (ends(None), {"exit_code": 143, "at_once": True}, 143),
        (ends(137), {"exit_code": 143, "at_once": 1}, 76),
        (ends(0), {"exit_code": 143, "at_once": True}, 0),
        (ends(137), {}, 76),
        (ends(137), None, 76),
        (ends(129), None, 76),
        (ends(None), {"exit_code": 0}, 76),
        ([NodeState("WORKER_1", State.SUCCEEDED, 0)], None, 76),
        ([], None, 76),
        (ends(137), {"exit_code": float("nan")}, 76),
        (ends(137), {"exit_code": True}, 76),
        (ends(137), {"exit_code": [137]}, 76),
        (ends(137), {"exit_code": "137"}, 76),
    ],
)
def test_the_clusters_code_is_mains_own(nodes: list[NodeState], stop: Mapping[str, Any] | None, code: int) -> None:
    """Main's code is the cluster's; a main that was killed, or is not known to have ended, is lost (76)."""
    assert cluster_code(nodes, stop) == code


@pytest.mark.parametrize(
    ("main", "stop", "code"),
    [(143, {"exit_code": 75}, 75), (69, {"exit_code": 143}, 143), (143, None, 143), (143, {"exit_code": 0}, 143)],
)
def test_of_a_main_that_never_started_who_gave_it_up_tells_the_code(
    main: int, stop: Mapping[str, Any] | None, code: int
) -> None:
    """It has said nothing itself. No stop file makes a success of it."""
    node = NodeState("MAIN", State.of_exit_code(main), main, never_started=True)
    assert cluster_code([node], stop) == code


def test_clusters_that_cannot_be_read_are_not_taken_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are another user's: "nothing runs" would be wrong."""
    keep_in(tmp_path, "mine")

    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(NotPermittedError, match=r"/\.clusters cannot be read: Permission denied; it is another user's"):
        kept_clusters(tmp_path, "local", MARK)
