from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oci_cluster.clusters import Cluster, choose_cluster, find_clusters
from oci_cluster.errors import UsageError


def keep(place: Path, name: str, launch_id: str = "1f2e3d4c", created: str = "2026-01-01T00:00:00Z") -> Cluster:
    """Return a cluster whose cluster.json is kept under *place*."""
    plan: dict[str, Any] = {
        "name": name,
        "launch_id": launch_id,
        "cluster_id": f"{name}-{launch_id}",
        "work_dir": "oci://bucket@ns/work/",
        "created": created,
    }
    directory = place / plan["cluster_id"]
    directory.mkdir(parents=True)
    (directory / "cluster.json").write_text(json.dumps(plan))
    return Cluster(directory, plan)


def running(*clusters: Cluster) -> Callable[[Cluster], bool]:
    return lambda cluster: cluster in clusters


def refusal(name: str, clusters: list[Cluster], is_running: Callable[[Cluster], bool]) -> str:
    with pytest.raises(UsageError) as caught:
        choose_cluster(name, clusters, is_running)
    return str(caught.value)


def test_a_cluster_is_what_was_launched(tmp_path: Path) -> None:
    """A cluster is read whole, and knows its name, launch and URL."""
    kept = keep(tmp_path, "mine")
    found = Cluster.load(kept.directory)
    assert found == kept
    assert [found.name, found.launch_id, found.url] == ["mine", "1f2e3d4c", "oci://bucket@ns/work/mine-1f2e3d4c"]


def test_a_directory_without_a_cluster_is_named(tmp_path: Path) -> None:
    """No cluster.json is wrong usage, with the directory's name."""
    with pytest.raises(UsageError) as caught:
        Cluster.load(tmp_path)
    assert str(caught.value).startswith(f"there is no cluster in {tmp_path}: ")


def test_a_half_written_cluster_is_named(tmp_path: Path) -> None:
    """A cluster.json that is no JSON is wrong usage, not a crash."""
    (tmp_path / "cluster.json").write_text('{"name": ')
    with pytest.raises(UsageError) as caught:
        Cluster.load(tmp_path)
    assert str(caught.value) == f"there is no cluster in {tmp_path}: Expecting value: line 1 column 10 (char 9)"


def test_clusters_are_found_the_oldest_first(tmp_path: Path) -> None:
    """Clusters are in the order of their launch, those of one second in that of their ids; other folders are none."""
    late = keep(tmp_path, "a", created="2026-01-03T00:00:00Z")
    second = keep(tmp_path, "b", launch_id="bb", created="2026-01-02T00:00:00Z")
    first = keep(tmp_path, "c", launch_id="aa", created="2026-01-02T00:00:00Z")
    (tmp_path / "logs").mkdir()
    assert find_clusters(tmp_path) == [first, second, late]


def test_no_clusters_are_found_where_there_is_nothing(tmp_path: Path) -> None:
    """A fresh checkout has no clusters."""
    assert find_clusters(tmp_path / "none") == []


def test_a_cluster_that_is_just_being_made_is_passed_over(tmp_path: Path) -> None:
    """An empty cluster.json is one that another launch is about to write."""
    kept = keep(tmp_path, "mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cluster.json").touch()
    assert find_clusters(tmp_path) == [kept]


@pytest.mark.parametrize("body", ['{"name": ', "[]", "{}"], ids=["half-written", "list", "no fields"])
def test_one_unusable_cluster_does_not_hide_the_others(tmp_path: Path, body: str) -> None:
    """A cluster.json that cannot be used, or is still being written, is passed over."""
    kept = keep(tmp_path, "mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cluster.json").write_text(body)
    assert find_clusters(tmp_path) == [kept]


def test_without_a_name_the_only_running_cluster_is_meant(tmp_path: Path) -> None:
    """Who has one cluster need not say its name."""
    old, new = keep(tmp_path, "old"), keep(tmp_path, "new")
    assert choose_cluster("", [old, new], running(old)) is old


def test_without_a_name_several_running_clusters_are_not_guessed_among(tmp_path: Path) -> None:
    """With several running clusters each is named, and nothing is chosen."""
    clusters = [keep(tmp_path, "a"), keep(tmp_path, "b"), keep(tmp_path, "ended")]
    assert refusal("", clusters, running(*clusters[:2])) == (
        "which cluster? running: a, b; scripts/list.sh --all shows those that have ended"
    )


def test_without_a_name_no_ended_cluster_is_meant(tmp_path: Path) -> None:
    """A cluster that has ended must be named."""
    assert refusal("", [keep(tmp_path, "ended")], running()) == (
        "which cluster? running: none; scripts/list.sh --all shows those that have ended"
    )


def test_the_running_cluster_of_a_name_wins(tmp_path: Path) -> None:
    """Of several clusters of one name the running one is meant, also when a later one has ended."""
    clusters = [keep(tmp_path, "mine", "1"), keep(tmp_path, "mine", "2"), keep(tmp_path, "mine", "3")]
    assert choose_cluster("mine", clusters, running(clusters[1])) is clusters[1]


def test_the_latest_of_a_name_is_meant(tmp_path: Path) -> None:
    """Where none of a name runs, the latest is meant."""
    clusters = [keep(tmp_path, "mine", "1"), keep(tmp_path, "mine", "2"), keep(tmp_path, "other", "3")]
    assert choose_cluster("mine", clusters, running(clusters[2])) is clusters[1]


def test_an_id_names_an_older_cluster(tmp_path: Path) -> None:
    """A cluster's id names it among others of its name."""
    clusters = [keep(tmp_path, "mine", "1"), keep(tmp_path, "mine", "2")]
    assert choose_cluster("mine-1", clusters, running(clusters[1])) is clusters[0]


def test_an_unknown_name_is_named_with_those_known(tmp_path: Path) -> None:
    """A name that no cluster has is told with the names that there are, each once."""
    clusters = [keep(tmp_path, "a", "1"), keep(tmp_path, "b", "2"), keep(tmp_path, "a", "3")]
    assert refusal("c", clusters, running()) == "there is no cluster 'c'; known: a, b"


def test_an_unknown_name_where_there_are_no_clusters() -> None:
    """Without any cluster the message says so."""
    assert refusal("../etc", [], running()) == "there is no cluster '../etc'; known: none"
