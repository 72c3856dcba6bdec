"""The rank of a node that the service has started: one for each node, whatever the service counts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from unit.fake_cluster import KEY, LAUNCH, make_project

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import LIFE, STOP
from oci_cluster.contract.storage.retry import Waiting
from oci_cluster.errors import SettingsError, StoppedError, StorageError, TimedOutError
from oci_cluster.node.begin.rank import with_own_rank

WORKERS, SERVERS = 4, 3
NUMBERS = {
    "through": {"WORKER": [1, 2, 3, 4], "PS": [5, 6, 7]},
    "through, servers first": {"WORKER": [4, 5, 6, 7], "PS": [1, 2, 3]},
    "through, main last": {"WORKER": [0, 1, 2, 3], "PS": [4, 5, 6]},
    "from 1": {"WORKER": [2, 3, 4, 5], "PS": [6, 7, 8]},
    "anew in each group": {"WORKER": [0, 1, 2, 3], "PS": [0, 1, 2]},
    "anew, from 1": {"WORKER": [1, 2, 3, 4], "PS": [1, 2, 3]},
    "all the same": {"WORKER": [0] * 4, "PS": [0] * 3},
    "missing": {"WORKER": [""] * 4, "PS": [""] * 3},
    "nonsense": {"WORKER": ["-1", "x", "9" * 30, "²"], "PS": ["1.5", " ", "٣"]},
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("oci_cluster.contract.settings.node.PROJECT_ROOT", make_project(tmp_path))
    monkeypatch.setattr("oci_cluster.contract.settings.node.read_settings.__defaults__", (tmp_path,))
    return tmp_path


def environ(url: str, mode: str, number: object, **more: str) -> dict[str, str]:
    own = {"MODE": mode, "NODE_GROUP": mode.lower(), "NODE_RANK": str(number)}
    counts = {"WORKER_COUNT": str(WORKERS), "PS_COUNT": str(SERVERS)}
    launch = {"LAUNCH_ID": LAUNCH, "LAUNCH_KEY": KEY, "CLUSTER_ID": "c1", "FRAMEWORK": "plain", "WORK_DIR": url}
    return {**own, **counts, **launch, "ENTRY_POINT": "train.py", "EPHEMERAL": "1", "TIMEOUT": "60", **more}


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("counting", NUMBERS)
def test_each_node_has_a_rank_of_its_own(root: Path, empty_memory: None, storage: str, counting: str) -> None:
    """However the service counts, and in whatever order nodes come: those that the launcher knows, each once."""
    url = f"file://{root}/work" if storage == "file" else "memory://work"
    nodes = [(mode, number) for mode, numbers in NUMBERS[counting].items() for number in numbers]
    random.Random(3).shuffle(nodes)  # noqa: S311 - no secret
    found: dict[str, list[int]] = {"WORKER": [], "PS": []}
    for mode, number in nodes:
        found[mode].append(int(with_own_rank(environ(url, mode, number))["NODE_RANK"]))
    assert {mode: sorted(ranks) for mode, ranks in found.items()} == {"WORKER": [1, 2, 3, 4], "PS": [5, 6, 7]}


def test_what_counts_through_is_kept(root: Path) -> None:
    """One request each: the service's number is the rank then."""
    for mode, numbers in NUMBERS["through"].items():
        for number in reversed(numbers):
            given = environ(f"file://{root}/work", mode, number)
            assert with_own_rank(given) == given


def test_main_has_no_rank_to_take(root: Path) -> None:
    """It is alone in its group."""
    given = environ(f"file://{root}/work", "MAIN", 0)
    assert with_own_rank(given) is given
    assert not (root / "work").exists()


def test_one_node_more_than_there_are_ranks_ends(root: Path) -> None:
    """With what has happened; nobody's rank is taken twice."""
    for _ in range(WORKERS):
        with_own_rank(environ(f"file://{root}/work", "WORKER", 0))
    with pytest.raises(SettingsError, match="all 4 ranks of WORKER are taken"):
        with_own_rank(environ(f"file://{root}/work", "WORKER", 0))


def test_a_claim_that_nobody_of_this_launch_has_signed_costs_its_rank_alone(root: Path) -> None:
    """Whoever may write to the bucket could also delete all of it."""
    cluster_dir = ClusterDir(f"file://{root}/work/c1", LAUNCH, "another key")
    cluster_dir.create()
    cluster_dir.publish("WORKER_1_claim.json", holder="x")
    assert with_own_rank(environ(f"file://{root}/work", "WORKER", 1))["NODE_RANK"] == "2"


class Storage:
    """A cluster dir whose answers get lost, before or after what was asked is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: Mapping[int, bool]) -> None:
        publish = ClusterDir.publish_once
        numbers = itertools.count()

        def publish_once(cluster_dir: ClusterDir, name: str, **fields: Any) -> None:
            is_done = fails.get(next(numbers))
            if is_done is not False:
                publish(cluster_dir, name, **fields)
            if is_done is not None:
                raise StorageError("503")

        monkeypatch.setattr(ClusterDir, "publish_once", publish_once)


@pytest.mark.parametrize("is_done", [False, True])
def test_an_answer_that_is_lost_costs_no_rank(
    root: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, *, is_done: bool
) -> None:
    """What was written is this node's; what was not is tried again."""
    Storage(monkeypatch, {0: is_done})
    given = environ(f"file://{root}/work", "WORKER", 3)
    assert with_own_rank(given, Waiting(clock, clock.sleep))["NODE_RANK"] == "3"
    assert len(clock.waits) == (0 if is_done else 1)


def test_storage_that_never_answers_is_not_asked_for_ever(
    root: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as TIMEOUT."""
    Storage(monkeypatch, dict.fromkeys(range(1000), False))
    with pytest.raises(StorageError, match="503"):
        with_own_rank(environ(f"file://{root}/work", "WORKER", 3), Waiting(clock, clock.sleep))
    assert 60 <= clock() - 1000 < 70


# --- Another life of the launch ---------------------------------------------------------------------------------------


class AnsweringMain:
    """Main, which answers whoever has arrived, while a node sleeps."""

    def __init__(self, url: str) -> None:
        self._files = ClusterDir(f"{url}/c1", LAUNCH, KEY)

    def begin(self, number: int) -> None:
        """Begin a life."""
        self._life, self._number = f"{number:032x}", number

    def sleep(self, _: float) -> None:
        """Answer all."""
        self._files.enter_life(self._life)
        names = [name for name in self._files.listing() if name.endswith("_arrival.json")]
        read = {name: self._files.read(name, any_life=True) or {} for name in names}
        answers = {name.removesuffix("_arrival.json"): fields["counter"] for name, fields in read.items()}
        self._files.publish(LIFE, number=self._number, answers=answers)

    def files(self) -> list[str]:
        """Return what is in the cluster dir."""
        return sorted(self._files.listing())


def test_in_another_life_all_ranks_can_be_taken_anew(root: Path, empty_memory: None) -> None:
    """Claims of the life before are still there; nobody removes them in time, and nobody has to."""
    main = AnsweringMain("memory://work")
    for number in (1, 2):
        main.begin(number)
        given = environ("memory://work", "WORKER", "0", INTERRUPTIBLE="1")
        ranks = [with_own_rank(given, Waiting(sleep=main.sleep))["NODE_RANK"] for _ in range(WORKERS)]
        assert sorted(ranks) == ["1", "2", "3", "4"]
    with pytest.raises(SettingsError, match="all 4 ranks of WORKER are taken"):
        with_own_rank(given, Waiting(sleep=main.sleep))
    assert [name for name in main.files() if name.endswith("_arrival.json")] == []


def test_a_node_without_a_rank_waits_for_the_life_that_answers(root: Path, empty_memory: None, clock: Any) -> None:
    """One of a main that is gone does not."""
    main = AnsweringMain("memory://work")
    main.begin(1)
    main.sleep(0)
    given = environ("memory://work", "WORKER", "0", INTERRUPTIBLE="1", TIMEOUT="30")
    with pytest.raises(TimedOutError, match=r"no main has begun a life within 30 s \(TIMEOUT\)"):
        with_own_rank(given, Waiting(clock, clock.sleep))


def test_a_node_without_a_rank_obeys_a_stop_of_the_launch(root: Path, empty_memory: None) -> None:
    """It came while nobody ran."""
    ClusterDir("memory://work/c1", LAUNCH, KEY).publish(STOP, reason="stopped by stop.sh", exit_code=143)
    with pytest.raises(StoppedError, match=r"stopped by stop\.sh"):
        with_own_rank(environ("memory://work", "WORKER", "0", INTERRUPTIBLE="1"))
