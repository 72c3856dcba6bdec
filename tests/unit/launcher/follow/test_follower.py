"""What a person is told of a cluster, from its first worker to its end."""

from __future__ import annotations

import errno
import itertools
import json
from typing import Any

import pytest
from unit.fake_backend import LAUNCH
from unit.launcher.following import Run, nothing

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import NotPermittedError


def test_a_run_is_told_from_its_first_worker_to_its_end(run: Run) -> None:
    """A line for each phase, with the time it took; the logs; and the entry point's code in the end."""
    code = run.follow(
        nothing,
        lambda: run.cluster_dir.publish("WORKER_2_config.json"),
        lambda: run.cluster_dir.publish("WORKER_1_config.json"),
        lambda: run.cluster_dir.publish("MAIN_ready.json", facts={"dashboard": "https://127.0.0.1:8787", "a": "b"}),
        lambda: (run.directory.parent / "MAIN.log").write_text("hello"),
        lambda: run.end(0, 0, 0, stop={"reason": "the entry point ended with exit code 0", "exit_code": 0}),
    )
    assert (code, run.said, run.calls) == (
        0,
        [
            "1 of 2 workers arrived",
            "2 of 2 workers arrived",
            "ready after 0.4 s; dashboard https://127.0.0.1:8787; a b",
            "cluster mine ended with 0 after 0.6 s",
        ],
        [],
    )
    assert (run.out.getvalue(), run.signals.waits) == ("MAIN     | hello\n", [0.1] * 6)


def test_a_failure_is_told_with_its_reason(run: Run) -> None:
    """A code that is not 0 is told with the reason of the stop file, and is the follower's own."""
    code = run.follow(
        lambda: run.end(7, 7, 7, stop={"reason": "the entry point ended with exit code 7", "exit_code": 7})
    )
    assert (code, run.said) == (
        7,
        ["cluster mine ended with 7 (the entry point ended with exit code 7) after 0.1 s"],
    )


def test_the_last_line_says_where_outputs_are(run: Run) -> None:
    """Where there are any; see report.outputs_of."""
    (run.directory / "outputs").mkdir()
    (run.directory / "outputs" / "model").touch()
    run.follow(lambda: run.end(0, 0, 0, stop={"exit_code": 0, "reason": "r"}))
    assert run.said == [f"cluster mine ended with 0 after 0.1 s; outputs in {run.directory}/outputs"]


def test_facts_are_optional(run: Run) -> None:
    """A framework need not tell anything when it is ready."""
    run.follow(
        lambda: run.cluster_dir.publish("MAIN_ready.json"),
        lambda: run.end(0, 0, 0, stop={"exit_code": 0, "reason": "r"}),
    )
    assert run.said == ["ready after 0.1 s", "cluster mine ended with 0 after 0.2 s"]


def test_nodes_that_did_not_end_as_the_cluster_did_are_named(run: Run) -> None:
    """A worker that was lost in a run that succeeded is named once, in words."""
    run.cluster_dir.publish("stop", exit_code=0, reason="r")
    run.node("WORKER_2", 137)
    code = run.follow(nothing, lambda: run.end(0, 0))
    assert (code, run.said) == (
        0,
        ["WORKER_2 ended with 137 (killed by SIGKILL)", "cluster mine ended with 0 after 0.2 s"],
    )


def test_a_node_that_is_added_is_followed_too(run: Run) -> None:
    """scale.sh's worker was not in the plan: its log is shown, and its end told."""
    log = run.directory.parent / "WORKER_3.log"
    run.follow(
        lambda: log.write_text("I am new\n"),
        lambda: run.nodes(WORKER_3=None),
        lambda: run.nodes(WORKER_3=9),
        lambda: run.end(0, 0, 0, 9, stop={"exit_code": 0, "reason": "r"}),
    )
    assert run.out.getvalue() == "WORKER_3 | I am new\n"
    assert run.said == ["WORKER_3 ended with 9 (exit code 9)", "cluster mine ended with 0 after 0.4 s"]


def test_a_worker_that_was_scaled_away_has_left(run: Run) -> None:
    """scale.sh -1 is no failure, and reads like none; what is killed is another matter."""
    run.follow(
        lambda: run.nodes(WORKER_2=143), nothing, lambda: run.end(0, 0, 143, stop={"exit_code": 0, "reason": "r"})
    )
    assert run.said == ["WORKER_2 has left", "cluster mine ended with 0 after 0.3 s"]


def test_the_end_of_a_replaced_node_is_told_as_its_predecessors_was(run: Run) -> None:
    """Two nodes had the rank one after the other: each end is a line, and each is told once."""
    run.node("WORKER_2", 137)

    def replace() -> None:
        run.node("WORKER_2", None, id=8)

    run.follow(
        nothing,
        replace,
        lambda: run.nodes(WORKER_2=137),
        nothing,
        lambda: run.end(0, 0, 137, stop={"exit_code": 0, "reason": "r"}),
    )
    assert run.said == [
        "WORKER_2 ended with 137 (killed by SIGKILL)",
        "WORKER_2 ended with 137 (killed by SIGKILL)",
        "cluster mine ended with 0 after 0.5 s",
    ]


def test_a_node_that_ends_before_the_outcome_is_known_is_named(run: Run) -> None:
    """Without a stop file any code but 0 is worth a line."""
    run.nodes(WORKER_1=0, WORKER_2=3)
    run.follow(lambda: run.end(0, 0, 3, stop={"exit_code": 0, "reason": "r"}))
    assert run.said == ["WORKER_2 ended with 3 (exit code 3)", "cluster mine ended with 0 after 0.1 s"]


def test_a_lost_main_is_told(run: Run) -> None:
    """A main that was killed is no success of anybody, whatever an older word says."""
    code = run.follow(lambda: run.end(137, 76, 76))
    assert (code, run.said[-1]) == (76, "cluster mine ended with 76 (main lost) after 0.1 s")


def test_what_took_main_along_is_told_at_the_end(run: Run) -> None:
    """Where the backend alone knows it."""
    run.node("MAIN", 137, cause="its memory ran out")
    run.follow(lambda: run.end(137, 76, 76))
    assert run.said[-1] == "cluster mine ended with 76 (main lost: its memory ran out) after 0.1 s"


def test_a_main_that_is_gone_without_a_code_is_lost(run: Run) -> None:
    """Nodes in progress in a cluster that does not run were killed; what they left is swept after the following."""
    code = run.follow(lambda: run.end(None, 76, 76))
    assert (code, run.calls) == (76, [])


def test_a_work_dir_that_does_not_answer_ends_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress and reason are the work dir's, the outcome is the backend's: an outage loses two lines, no code."""

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("oci_cluster.system.files.LocalFiles.cat_file", fail)
    code = run.follow(nothing, lambda: run.end(7, 0, 7))
    assert (code, run.said) == (
        7,
        [
            "MAIN ended with 7 (exit code 7)",
            "WORKER_2 ended with 7 (exit code 7)",
            "cluster mine ended with 7 after 0.2 s",
        ],
    )


def test_who_may_not_see_whether_a_cluster_is_ready_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for what passes, and once; who waits for nothing else does not wait for ever."""

    def refuse(_: object) -> None:
        msg = "GET pods/log: 403"
        raise NotPermittedError(msg)

    monkeypatch.setattr("oci_cluster.contract.files.cluster_dir.ClusterDir.listing", refuse)
    steps, began_at = [run.pause] * 20, run.clock.now
    with pytest.raises(NotPermittedError, match="GET pods/log: 403"):
        run.follower(*steps).until_ready()
    assert run.said == ["cannot see how far mine is: GET pods/log: 403"]
    assert 30 < run.clock.now - began_at < 40


def test_a_refusal_that_passes_ends_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    listing, answers = ClusterDir.listing, itertools.count()

    def refuse_first(cluster_dir: ClusterDir) -> dict[str, str]:
        if next(answers) < 3:
            msg = "GET pods/log: 403"
            raise NotPermittedError(msg)
        return listing(cluster_dir)

    monkeypatch.setattr("oci_cluster.contract.files.cluster_dir.ClusterDir.listing", refuse_first)
    run.cluster_dir.publish("MAIN_ready.json")
    assert run.follower(*[run.pause] * 5).until_ready() is None
    assert run.said[-1].startswith("ready after ")


def test_a_stop_file_of_another_schema_loses_no_code(run: Run) -> None:
    """The backend's word on main counts where the stop file cannot be understood."""
    (run.directory / "stop").write_text(json.dumps({"schema": 9, "launch_id": LAUNCH}))
    assert run.follow(lambda: run.end(7, 7, 7)) == 7


def test_a_stop_file_without_fields_loses_no_code(run: Run) -> None:
    """A stop file of this launch that holds nothing else is no reason to stop following."""
    run.cluster_dir.publish("stop")
    assert run.follow(lambda: run.end(7, 7, 7)) == 7


@pytest.mark.parametrize("facts", [["ab"], "abc", 7])
def test_facts_of_another_shape_end_nothing(run: Run, facts: Any) -> None:
    """Facts that are no object are passed over."""
    run.cluster_dir.publish("MAIN_ready.json", facts=facts)
    run.follow(lambda: run.end(0, 0, 0, stop={"exit_code": 0, "reason": "r"}))
    assert run.said[0] == "ready after 0.0 s"


@pytest.mark.parametrize("place", ["fact", "name", "reason"])
def test_control_characters_do_not_reach_a_terminal(run: Run, place: str) -> None:
    """Who can write to the bucket cannot write to a terminal."""
    evil = "\033]0;evil\a"
    facts = {"fact": {"a": evil}, "name": {evil: "a"}}.get(place, {})
    run.cluster_dir.publish("MAIN_ready.json", facts=facts)
    run.follow(lambda: run.end(7, 7, 7, stop={"exit_code": 7, "reason": evil if place == "reason" else "r"}))
    assert "\033" not in "".join(run.said)


def test_a_cluster_that_is_taken_away_while_it_is_followed_is_lost_with_the_backends_word(run: Run) -> None:
    """Somebody has removed all that it was: no node tells how it ended."""
    code = run.follow(run.backend.nodes[LAUNCH].clear)
    assert (code, run.said[-1]) == (76, "cluster mine ended with 76 (its nodes are gone) after 0.1 s")
