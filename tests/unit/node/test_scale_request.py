"""Scale requests: what the start script on main asks for, passed on to who follows the cluster."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from unit.fake_cluster import MakeNode, Node, leaves, messages

from oci_cluster.contract.names import SCALE_REQUEST, config_file
from oci_cluster.node.scale_request import parse_scale_request

pytestmark = pytest.mark.usefixtures("empty_memory")


def adapts(make: MakeNode, **environ: str) -> Node:
    """Return a main of two workers whose cluster is ready at once."""
    main = make(**{"ADAPT": "1:10", "FOLLOWED": "any", "POLL_CEILING": "4", **environ})
    main.ready_at_once()
    return main


def asks(main: Node, at: float, *lines: str) -> None:
    def write() -> None:
        new = main.node_dir / "scale-request.new"
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(main.node_dir / "scale-request")

    main.world.at(at, write)


def passed_on(main: Node) -> dict[str, Any]:
    found = main.read(SCALE_REQUEST)
    return {name: found[name] for name in ("workers", "idle") if name in found}


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    lines = [record.getMessage() for record in caplog.records if record.name == "told"]
    return [json.loads(line.partition("json ")[2]) for line in lines if line.startswith(f"told {SCALE_REQUEST} ")]


def test_a_wish_is_passed_on_when_it_changes(make: MakeNode) -> None:
    """As a signed file of the cluster dir, for who may start nodes; and at rest nothing is asked of storage for it."""
    main = adapts(make)
    requests = main.requests()
    asks(main, 10, "workers=3")
    asks(main, 60, "workers=1", "idle=WORKER_2", "idle=WORKER_3")
    seen = [main.seen_at(moment, lambda: passed_on(main)) for moment in (9, 50, 90)]
    main.child_ends(0, at=100)
    assert main.run() == 0
    assert [found for (found,) in seen] == [
        {},
        {"workers": 3, "idle": []},
        {"workers": 1, "idle": ["WORKER_2", "WORKER_3"]},
    ]
    assert requests.count(SCALE_REQUEST) == 2


def test_a_cluster_that_does_not_adapt_has_no_wish(make: MakeNode) -> None:
    """Whatever lies there."""
    main = adapts(make, ADAPT="")
    asks(main, 10, "workers=3")
    main.child_ends(0, at=50)
    assert main.run() == 0
    assert passed_on(main) == {}


def test_before_it_is_ready_a_cluster_wishes_for_nothing(make: MakeNode) -> None:
    """The workers of the launch are still to come."""
    main = make(ADAPT="1:10")
    asks(main, 10, "workers=3")
    main.world.at(30, (main.node_dir / "ready").touch)
    seen = [main.seen_at(moment, lambda: passed_on(main)) for moment in (29, 40)]
    main.child_ends(0, at=50)
    assert main.run() == 0
    assert [found for (found,) in seen] == [{}, {"workers": 3, "idle": []}]


def test_storage_that_does_not_answer_is_asked_again(make: MakeNode) -> None:
    """The request of then is what it gets."""
    main = adapts(make)
    main.outage(5, 30)
    asks(main, 10, "workers=3")
    asks(main, 25, "workers=4")
    main.child_ends(0, at=60)
    assert main.run() == 0
    assert passed_on(main)["workers"] == 4


@pytest.mark.parametrize(("ceiling", "most"), [("4", 26), ("0.1", 101)])
def test_wishes_are_passed_on_at_a_bounded_rate(
    make: MakeNode, tmp_path: Any, caplog: pytest.LogCaptureFixture, ceiling: str, most: int
) -> None:
    """Once in POLL_CEILING or a second, however often a script changes its mind; the last one counts."""
    caplog.set_level(logging.INFO)
    main = adapts(make, POLL_CEILING=ceiling, TERMINATION_LOG=str(tmp_path / "log"))
    for number in range(1000):
        asks(main, 1 + number / 10, f"workers={number % 9 + 1}")
    main.child_ends(0, at=110)
    assert main.run() == 0
    assert most / 2 < len(told(caplog)) <= most
    assert told(caplog)[-1]["workers"] == passed_on(main)["workers"] == 999 % 9 + 1


def test_who_reads_mains_log_alone_is_told(make: MakeNode, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The longest request there can be fits into a line."""
    caplog.set_level(logging.INFO)
    main = adapts(make, TERMINATION_LOG=str(tmp_path / "log"))
    asks(main, 10, "workers=1", *(f"idle=WORKER_{1000000 + number}" for number in range(999)))
    main.child_ends(0, at=30)
    assert main.run() == 0
    (line,) = told(caplog)
    assert (line["workers"], len(line["idle"])) == (1, 100)


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["workers=3"], {"workers": 3, "idle": []}),
        (["workers=99"], {"workers": 10, "idle": []}),
        (["workers=0", "idle=WORKER_7"], {"workers": 2, "idle": ["WORKER_7"]}),
    ],
)
def test_a_wish_is_within_the_bounds(lines: list[str], wanted: dict[str, Any]) -> None:
    """The entry point runs as the same user, and may write there what it likes."""
    assert parse_scale_request("\n".join(lines), 2, 10) == wanted


@pytest.mark.parametrize(
    "line",
    ["", "workers=", "workers=x", "workers=-1", "workers", "idle=MAIN", "idle=PS_1", "idle=../x", "stop=1", "\0"],
)
def test_what_is_no_wish_is_ignored(make: MakeNode, line: str, caplog: pytest.LogCaptureFixture) -> None:
    """With a line that says why; the request before holds."""
    main = adapts(make)
    asks(main, 10, "workers=3")
    asks(main, 20, *([line] if line else []), *(["workers=4"] if line.startswith("idle") else []))
    main.child_ends(0, at=50)
    assert main.run() == 0
    assert passed_on(main)["workers"] == 3
    assert len(messages(caplog, "the scale request of the start script is ignored: ")) == 1


# --- Nobody gives it ------------------------------------------------------------------------------------------------


def test_a_cluster_that_nobody_follows_says_so_once(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """With what a person can do."""
    main = adapts(make, FOLLOWED="", CLUSTER_NAME="mine")
    for moment, workers in ((10, 2), (20, 5), (200, 9)):
        asks(main, moment, f"workers={workers}")
    main.child_ends(0, at=900)
    main.beats("WORKER_1")
    main.beats("WORKER_2")
    assert main.run() == 0
    assert messages(caplog, "workers wanted") == [
        (
            "workers wanted: 5, there: 2; nobody who may start nodes follows this cluster: launch it without --detach; "
            "by hand: scripts/scale.sh mine +3"
        )
    ]


@pytest.mark.parametrize(("joins_at", "is_told"), [(60, False), (0, True)])
def test_workers_that_do_not_come_are_told_of_once(
    make: MakeNode, caplog: pytest.LogCaptureFixture, joins_at: float, *, is_told: bool
) -> None:
    """After three minutes, though somebody follows: that launcher may be gone, or its machine."""
    main = adapts(make, CLUSTER_NAME="mine")
    for node in ("WORKER_1", "WORKER_2", "WORKER_3"):
        main.beats(node)
    asks(main, 10, "workers=3")
    if joins_at:
        main.publish(config_file("WORKER_3"), at=joins_at, node="WORKER_3", address="10.0.0.4")
    main.child_ends(0, at=900)
    assert main.run() == 0
    found = messages(caplog, "workers wanted")
    assert len(found) == is_told
    if is_told:
        assert found[0].startswith("workers wanted: 3, there: 2; so it has been for 18")
        assert found[0].endswith("; by hand: scripts/scale.sh mine +1")


def test_a_worker_that_has_left_is_not_there(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """Its place may be filled again."""
    main = adapts(make, FOLLOWED="", CLUSTER_NAME="mine")
    leaves(main, "WORKER_2", 143, 20, failed_at=20)
    main.beats("WORKER_1")
    asks(main, 10, "workers=2")
    main.child_ends(0, at=100)
    assert main.run() == 0
    assert len(messages(caplog, "workers wanted: 2, there: 1")) == 1
