"""OCI Logging delivers lines late, in any order, and twice: each is shown once."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from noted_times import read_times
from unit.backends.oci.fake_logging import DAY_S, GROUP, Logging, drained, follow, lines, logged_cluster
from unit.fake_data_science import COMPARTMENT, refusal
from unit.fake_oci import Launcher

from oci_cluster.backends.oci import logs
from oci_cluster.contract.cluster import Cluster
from oci_cluster.errors import ClusterError


@pytest.mark.parametrize(
    ("ahead_s", "node_ahead_s"),
    [
        pytest.param(0, 0, id="clocks agree"),
        pytest.param(240, -240, id="service ahead", marks=pytest.mark.slow),
        pytest.param(-240, 240, id="service behind", marks=pytest.mark.slow),
        pytest.param(0, 240, id="nodes ahead", marks=pytest.mark.slow),
        pytest.param(0, -240, id="nodes behind", marks=pytest.mark.slow),
    ],
)
def test_ten_thousand_lines_come_each_once(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path, *, ahead_s: float, node_ahead_s: float
) -> None:
    """0 to 30 s late, so in any order, a tenth of them twice; whatever the clocks tell."""
    chance = random.Random(7)  # noqa: S311 - no secret
    logging.ahead_s = ahead_s
    logging.begin()
    copy = logging.copy(cluster, tmp_path)
    runs = {node: logging.run_of(node) for node in ("MAIN", "WORKER_1")}
    sent: dict[str, list[str]] = {node: [] for node in runs}

    def work() -> None:
        for _ in range(84):
            for node, run in runs.items():
                text = f"line {len(sent[node])}"
                sent[node].append(text)
                ago_s = chance.uniform(0, 2) - node_ahead_s
                late_s, again_s = (chance.uniform(0, 30) - node_ahead_s for _ in range(2))
                entry = logging.print(run, text, ago_s=ago_s, late_s=late_s)
                if chance.random() < 0.1:
                    logging.print(run, text, ago_s=ago_s, late_s=again_s, entry=entry)

    follow(copy, launcher.clock, 120.0, work)
    logging.end()
    copy.fetch()
    said, _ = drained(copy, launcher.clock)
    assert said == ["waiting for late lines of OCI Logging, 90 s if none comes; Ctrl-C ends the waiting"]
    assert sum(map(len, sent.values())) > 10_000
    for node, texts in sent.items():
        assert sorted(lines(tmp_path, node)) == sorted(texts)


def test_lines_are_in_the_order_of_time_as_far_as_they_come_in_time(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """One that comes after ten seconds more is appended, and none is dropped."""
    main = logging.run_of("MAIN")
    copy = logging.copy(cluster, tmp_path)
    copy.fetch()
    logging.print(main, "two", late_s=4)
    logging.print(main, "one", ago_s=1, late_s=8)
    logging.print(main, "late", ago_s=1, late_s=29)
    follow(copy, launcher.clock, 10.0)
    assert lines(tmp_path) == []
    follow(copy, launcher.clock, 10.0)
    assert lines(tmp_path) == ["one", "two"]
    follow(copy, launcher.clock, 40.0)
    assert lines(tmp_path) == ["one", "two", "late"]


def test_what_is_there_at_first_does_not_wait(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """Its order is the search's."""
    for text, ago_s in (("two", 1), ("one", 2)):
        logging.print(logging.run_of("MAIN"), text, ago_s=ago_s)
    logging.copy(cluster, tmp_path).fetch()
    assert lines(tmp_path) == ["one", "two"]


def test_a_look_goes_on_where_the_last_one_ended(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """One search for all runs; back as far as lines are late, further every half a minute."""
    launcher.clock.sleep(1000)
    logging.begin(900)
    copy = logging.copy(cluster, tmp_path)
    follow(copy, launcher.clock, 33.0)
    spans = [_span(search) for search in logging.searches]
    assert spans[0] == pytest.approx(900 + 300 + 600)
    assert spans[1] == pytest.approx(4 + 30 + 600, abs=1.5)
    assert max(spans[1:-1]) < 700
    assert spans[-1] == pytest.approx(480 + 600, abs=10)
    assert len(spans) <= 12
    assert all(search["searchQuery"].count("source = ") == 3 for search in logging.searches)


def _span(search: dict[str, Any]) -> float:
    from unit.backends.oci.fake_logging import _seconds  # noqa: PLC0415 - of this test alone

    return _seconds(search["timeEnd"]) - _seconds(search["timeStart"])


def test_no_search_is_longer_than_fourteen_days(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """The fake refuses one that is; the lines of a month come in their order."""
    logging.begin(40 * DAY_S)
    for day in range(40):
        logging.print(logging.run_of("MAIN"), f"day {day}", ago_s=(39 - day) * DAY_S)
    logging.copy(cluster, tmp_path, follow=False).fetch()
    assert lines(tmp_path) == [f"day {day}" for day in range(40)]
    assert len(logging.searches) == 3


def test_a_search_that_finds_too_much_is_made_in_halves(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """What the service refuses so otherwise is told."""
    logging.most = 100
    logging.begin(1000)
    for number in range(1500):
        logging.print(logging.run_of("MAIN"), str(number), ago_s=900 - number / 2)
    logging.copy(cluster, tmp_path, follow=False).fetch()
    assert lines(tmp_path) == [str(number) for number in range(1500)]
    logging.fails[len(logging.searches) + 1] = refusal(400, "InvalidParameter", "the query cannot be parsed")
    with pytest.raises(ClusterError, match="cannot be parsed"):
        logging.copy(cluster, tmp_path, follow=False).fetch()


@pytest.mark.parametrize("may_look", [False, True])
def test_the_group_may_be_of_another_compartment(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path, *, may_look: bool
) -> None:
    """It is asked for its compartment, once. Who may not look at it searches in the Job's."""
    logging.compartment = "ocid1.compartment.oc1..logs" if may_look else COMPARTMENT
    logging.may_look_at_groups = may_look
    logging.print(logging.run_of("MAIN"), "hello")
    copy = logging.copy(cluster, tmp_path)
    follow(copy, launcher.clock, 10.0)
    assert lines(tmp_path) == ["hello"]
    assert logging.asked_groups == [GROUP]


def test_a_look_that_fails_in_the_middle_loses_and_doubles_nothing(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """The next one goes on from there, also where what has come is too old to be remembered."""
    logging.begin(100_000)
    for number in range(5000):
        logging.print(logging.run_of("MAIN"), str(number), ago_s=99_000 - number)
    logging.fails[4] = refusal(400, "SomethingElse")
    copy = logging.copy(cluster, tmp_path)
    with pytest.raises(ClusterError):
        copy.fetch()
    copy.fetch()
    follow(copy, launcher.clock, 30.0)
    assert lines(tmp_path) == [str(number) for number in range(5000)]


def test_a_node_that_comes_later_brings_nothing_back(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """Its lines from the first one on; the others' old ones, which are forgotten, not once more."""
    logging.begin(5000)
    for number in range(100):
        logging.print(logging.run_of("MAIN"), str(number), ago_s=4000 - number)
    copy = logging.copy(cluster, tmp_path)
    follow(copy, launcher.clock, 30.0)
    late = launcher.science.add_run(cluster.handle, freeform_tags={"oci-cluster-node": "WORKER_3"})
    late.time_accepted, late.time_finished = next(iter(launcher.science.runs.values())).time_accepted, None
    logging.print(late.id, "hello", ago_s=3000)
    follow(copy, launcher.clock, 60.0)
    assert lines(tmp_path) == [str(number) for number in range(100)]
    assert lines(tmp_path, "WORKER_3") == ["hello"]


def test_a_machine_that_has_slept_finds_what_was_printed_meanwhile(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look begins where the last one was, however long that is ago."""
    monkeypatch.setattr(logs, "_DEEP_EVERY_S", 100_000)
    copy = logging.copy(cluster, tmp_path)
    follow(copy, launcher.clock, 10.0)
    launcher.clock.sleep(3600)
    for number in range(100):
        logging.print(logging.run_of("MAIN"), str(number), ago_s=3500 - 30 * number)
    follow(copy, launcher.clock, 20.0)
    assert lines(tmp_path) == [str(number) for number in range(100)]


def test_a_look_that_goes_on_far_back_for_one_node_brings_nothing_back_of_others(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """One search for both goes back as far as the first look at the new one has failed."""
    logging.begin(5000)
    for number in range(100):
        logging.print(logging.run_of("MAIN"), str(number), ago_s=4000 - number)
    copy = logging.copy(cluster, tmp_path)
    copy.fetch()
    launcher.clock.sleep(4)
    late = launcher.science.add_run(cluster.handle, freeform_tags={"oci-cluster-node": "WORKER_3"})
    late.time_accepted, late.time_finished = next(iter(launcher.science.runs.values())).time_accepted, None
    for number in range(2500):
        logging.print(late.id, str(number), ago_s=4500 - number)
    logging.fails[len(logging.searches) + 2] = refusal(400, "SomethingElse")
    with pytest.raises(ClusterError):
        copy.fetch()
    follow(copy, launcher.clock, 60.0)
    assert lines(tmp_path) == [str(number) for number in range(100)]
    assert lines(tmp_path, "WORKER_3") == [str(number) for number in range(2500)]


@pytest.mark.slow
def test_a_log_larger_than_memory_is_copied(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of 50 MB is what may come again; and no more lines wait than are allowed to."""
    monkeypatch.setattr(logs, "_MAX_HELD", 500)
    logging.begin(60_000)
    main = logging.run_of("MAIN")
    text = "x" * 1000
    for number in range(50_000):
        logging.print(main, text, ago_s=55_000 - number)
    copy = logging.copy(cluster, tmp_path)
    remembered = []
    logging.on_search = lambda: remembered.append(sum(map(len, copy._nodes[main].seen._keys.values())))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    copy.fetch()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert (tmp_path / "MAIN.log").stat().st_size == 50_000 * 1001
    assert len(remembered) == 50
    assert max(remembered) <= logs._DEEP_S + 2 * 60 + 1000
    assert peak < 20e6  # the fake holds a list of what a search finds: 50,000 references


def test_lines_have_their_times_and_may_have_no_id(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """Without an id, the same text at the same moment is one line; stamps of the script's own stay."""
    main = logging.run_of("MAIN")
    for text, ago_s in (("one", 3), ("one", 3), ("one", 2), ("2026-01-01T00:00:00Z five", 1)):
        logging.print(main, text, ago_s=ago_s, entry="")
    logging.copy(cluster, tmp_path).fetch()
    assert lines(tmp_path) == ["one", "one", "2026-01-01T00:00:00Z five"]
    first, *others = [ms for ms, _ in read_times(tmp_path / "MAIN.times")]
    assert [ms - first for ms in others] == [1000, 2000]


def test_two_lines_of_one_moment_with_the_same_text_are_two(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """Their ids differ."""
    for _ in range(2):
        logging.print(logging.run_of("MAIN"), ".", ago_s=1)
    logging.copy(cluster, tmp_path).fetch()
    assert lines(tmp_path) == [".", "."]


def test_a_service_that_does_not_tell_the_time_is_asked_further_back(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """This machine's clock may be ahead of it by as much as requests may be."""
    logging.tells_time = False
    logging.ahead_s = -290.0
    logging.begin()
    copy = logging.copy(cluster, tmp_path)
    copy.fetch()
    for _ in range(20):
        logging.print(logging.run_of("MAIN"), "hello")
        follow(copy, launcher.clock, 10.0)
    follow(copy, launcher.clock, 60.0)
    assert lines(tmp_path) == ["hello"] * 20


def test_a_run_that_is_just_being_accepted_has_no_logs(
    launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path
) -> None:
    """Nobody is asked for them: there is no time to ask from."""
    for run in launcher.science.runs.values():
        run.time_accepted = None
    logging.copy(cluster, tmp_path).fetch()
    assert logging.searches == []


def test_a_runs_tag_is_no_path(launcher: Launcher, logging: Logging, cluster: Cluster, tmp_path: Path) -> None:
    """What OCI Logging has of a run that somebody has made is not written beyond the folder of the logs."""
    run = launcher.science.add_run(cluster.handle, freeform_tags={"oci-cluster-node": "../outside"})
    logging.begin()
    logging.print(run.id, "hello")
    (tmp_path / "logs").mkdir()
    logging.copy(cluster, tmp_path / "logs").fetch()
    assert not (tmp_path / "outside.log").exists()
    assert (tmp_path / "logs" / "MAIN.log").read_text() == "hello\n"


def test_a_thousand_runs_are_some_searches(launcher: Launcher, tmp_path: Path) -> None:
    """Of 40 runs each; and so many are not asked every two seconds."""
    cluster = logged_cluster(launcher, workers=99)
    logging = Logging(launcher)
    logging.begin()
    launcher.science.page_size = 1000
    copy = logging.copy(cluster, tmp_path)
    follow(copy, launcher.clock, 18.0)
    counts = [search["searchQuery"].count("source = ") for search in logging.searches]
    assert counts == [40, 40, 20] * 2
