"""queue.sh on a real Kueue: whoever waits is told why, in which place, and by whom it was preempted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import wait_until
from kube import jobs
from kube.cluster import Cluster
from kube.identity import new_name
from quotas import ENDLESS, GPU, Two, ready, run, two_teams

from oci_cluster.backends.kubernetes.cluster.kueue import waiting_line


@pytest.fixture
def two(kubernetes: Cluster, tmp_path: Path) -> Iterator[Two]:
    """Return two teams, whose table is not applied yet."""
    with two_teams(kubernetes, tmp_path / "teams.yaml") as made:
        yield made


def unused(two: Two, missing: int) -> str:
    """Return in which words Kueue says that some GPUs are missing."""
    return f"insufficient unused quota for {GPU} in flavor {two.flavor}, {missing} more needed"


def test_who_waits_is_told_why_and_in_which_place(two: Two) -> None:
    """By a user of one namespace, who sees that alone, and by an administrator."""
    two.apply()
    api, (low, lowest) = two.cluster.api, two.table["priorities"]
    user = two.cluster.user(two.a).by_token()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(two.job(two.a, "first", 12))
        api.until(first, ready(12), "the first to run")
        stack.enter_context(two.job(two.a, "second", 6))
        stack.enter_context(two.job(two.a, "third", 5, **{"priority-class": low}))
        stack.enter_context(two.job(two.a, "large", 30, **{"priority-class": lowest}))
        strange = jobs.job("strange", 1, ENDLESS, labels={"kueue.x-k8s.io/queue-name": "nowhere"})
        stack.enter_context(jobs.running(api, two.a, strange))

        def rows() -> dict[str, Any]:
            found = run(user, "queue", "--json")
            assert found.said == f"only namespace {two.a} is shown: you may not see the clusters of others"
            return {row["cluster"]: row for row in found.json()}

        def are_told() -> bool:
            return len(found := rows()) == 5 and all(row["why"] or row["state"] == "RUNNING" for row in found.values())

        wait_until(lambda: are_told() and rows()["large"]["is_impossible"], lambda: json.dumps(rows(), indent=1)[:3000])
        found = rows()
        shown = {name: (row["place"], row["waiting"], row["why"]) for name, row in found.items()}
        assert shown["second"] == (1, 3, unused(two, 2))
        assert shown["third"] == (2, 3, unused(two, 1))
        assert shown["large"][2].startswith(
            f"it can never start: insufficient quota for {GPU} in flavor {two.flavor}, "
        )
        assert shown["large"][2].endswith("> maximum capacity (16); request less, or ask your administrator")
        assert shown["strange"][:2] == (None, None)
        assert "LocalQueue nowhere doesn't exist" in shown["strange"][2]
        assert [found["first"][key] for key in ("state", "nodes", "gpus")] == ["RUNNING", 12, {GPU: "12"}]
        assert found["second"]["line"].partition(",")[2] == f" place 1 of 3 in {two.a}: {unused(two, 2)}"
        assert [row["cluster"] for row in two.queue(two.a, "--json").json()] == ["first", "second", "third", "large"]
        table = two.queue(two.a).shown.splitlines()
        assert table[0].split()[:4] == ["TEAM", "QUEUE", "CLUSTER", "OWNER"]
        assert "1 of 3" in table[2]


def test_who_was_preempted_is_told_by_whom(two: Two) -> None:
    two.apply()
    api, low = two.cluster.api, next(iter(two.table["priorities"]))
    with two.job(two.a, "borrower", 12, **{"priority-class": low}) as path:
        api.until(path, ready(12), "the borrower to run")
        with two.job(two.b, "owner", 8) as other:
            api.until(other, ready(8), "the owner to run")
            row = two.row_of(two.a, "borrower")
            assert row["preempted"] == {"count": 1, "reason": "InCohortReclamation", "by": two.b}
            assert f"by {two.b} and queued again, place 1 of 1 in {two.a}: {unused(two, 4)}" in row["line"]
            assert f"preempted once, last by {two.b}" in two.queue(two.a).shown
        api.until(path, ready(12), "the borrower to run again")
        wait_until(lambda: two.row_of(two.a, "borrower")["state"] == "RUNNING", lambda: two.queue(two.a).shown)
        row = two.row_of(two.a, "borrower")
        assert (row["preempted"]["count"], row["line"], row["why"]) == (1, "", "")


def test_a_low_priority_gives_way_in_its_own_team(two: Two) -> None:
    two.table["teams"][two.a]["borrow"] = False
    two.apply()
    api, low = two.cluster.api, next(iter(two.table["priorities"]))
    with two.job(two.a, "low", 8, **{"priority-class": low}) as path:
        api.until(path, ready(8), "the low one to run")
        with two.job(two.a, "normal", 8) as other:
            api.until(other, ready(8), "the other one to run")
            row = two.row_of(two.a, "low")
            assert row["preempted"] == {"count": 1, "reason": "InClusterQueue", "by": two.a}
            assert f"queued again, place 1 of 1 in {two.a}: " in row["line"]


def test_a_job_that_kueue_has_not_seen_is_told_so(two: Two) -> None:
    with two.job(two.a, "early", 1) as path:
        made = two.cluster.api.get(path)
        assert waiting_line(made, None, [], 0.0) == "queued 0s: Kueue has not seen it yet"


def test_a_flavor_without_the_label_that_is_asked_for_is_given_all_the_same(two: Two) -> None:
    """What `apply` warns of: this is Kueue's own way, and the day that it changes the warning can go."""
    row = two.table["teams"][two.a]["quota"][two.flavor]
    other = new_name("labelled")
    two.table["flavors"][other] = {"gpu": GPU, "labels": {"quota.example/shape": "large"}}
    two.table["teams"][two.a]["quota"] |= {other: row}
    assert f"may be given {two.flavor}, and never start" in two.apply().said
    body = jobs.job("picky", 1, ENDLESS, labels={"kueue.x-k8s.io/queue-name": two.a}, **{GPU: "1"})
    body["spec"]["template"]["spec"]["nodeSelector"] = {"quota.example/shape": "large"}
    with jobs.running(two.cluster.api, two.a, body):
        wait_until(lambda: two.row_of(two.a, "picky").get("state") == "STARTING", lambda: two.queue().shown)
        wait_until(lambda: two.row(two.a)["used"] == "1", lambda: f"quota to be held: {two.row(two.a)}")
