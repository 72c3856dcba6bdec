"""Why a node has failed: the start script's own word, the error that the entry point printed, or how it ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.fake_cluster import BEGINNING, MakeNode, Node, all_train

from oci_cluster.contract.names import STOP, exit_file

pytestmark = pytest.mark.usefixtures("empty_memory")

ERROR = 'Traceback (most recent call last):\n  File "{code}/train.py", line 3, in f\n    x\nValueError: bad row 7\n'
WORDS = "ValueError: bad row 7 (train.py:3)"


class LogPump:
    """Has what the script printed last."""

    def __init__(self, node: Node, text: str = ERROR) -> None:
        self.text = text.format(code=node.settings.code_dir)
        self.calls: list[str] = []
        node.agent._script._log_pump = self  # type: ignore[assignment]
        node.agent._loop._log_pump = self  # type: ignore[assignment]

    def tail(self) -> str:
        self.calls.append("tail")
        return self.text

    def printed_at(self) -> float:
        return float("inf")  # all the time

    def forget(self) -> None:
        self.calls.append("forget")

    def finish(self) -> None:
        self.calls.append("finish")


def test_the_reason_is_the_first_errors_own_words(main: Node) -> None:
    """In the stop file, which nodes, launch.sh and status.sh read; what an earlier attempt printed is forgotten."""
    log_pump = LogPump(main)
    main.child_ends(1, at=30)
    assert main.run() == 1
    assert main.read(STOP)["reason"] == f"MAIN: {WORDS}"
    assert log_pump.calls == ["forget", "tail", "finish"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0, "the entry point ended: exit code 0"),
        (2, f"MAIN: {WORDS}"),
        (3, f"MAIN: {WORDS}; exit code 3"),
        (137, "the entry point ended: killed by SIGKILL"),
        (134, "the entry point ended: killed by SIGABRT"),
        (143, "the entry point ended: exit code 143, as after SIGTERM; nobody has stopped the cluster"),
    ],
)
def test_only_an_end_of_its_own_has_last_words(main: Node, code: int, reason: str) -> None:
    """What was printed before a success, or before a signal, is not why it ended."""
    LogPump(main)
    main.child_ends(code, at=30)
    main.run()
    assert main.read(STOP)["reason"] == reason
    assert main.read(STOP).get("unasked", False) is (code == 143)


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("", "the entry point ended: exit code 7"),
        ("reading\nno dataset in /data\n", "MAIN: no dataset in /data; exit code 7"),
        (ERROR + "row 7 left out\n", "MAIN: row 7 left out; exit code 7"),
    ],
)
def test_without_an_error_the_reason_is_what_it_said_last(main: Node, printed: str, reason: str) -> None:
    """An entry point that says nothing is told by its exit code; an error that it has caught is no reason."""
    LogPump(main, printed)
    main.world.at(29, lambda: (main.node_dir / "entry-pid").write_text("12\n"))
    main.child_ends(7, at=30)
    main.run()
    assert main.read(STOP)["reason"] == reason


def test_what_a_service_prints_is_not_its_reason_but_an_error_is(worker: Node) -> None:
    """No entry point has run there."""
    LogPump(worker, ERROR + "closing connections\n")
    worker.main_lives()
    worker.child_ends(1, at=30)
    worker.run()
    assert worker.read(exit_file("WORKER_2"))["reason"] == f"WORKER_2: {WORDS}"


NOTE = json.dumps({"error": "ValueError", "message": "bad row 7", "frames": [["{code}/train.py", 3], ["/l.py", 9]]})


@pytest.mark.parametrize(
    ("note", "pid", "reason"),
    [
        (NOTE, 12, f"MAIN: {WORDS}"),
        (NOTE, 13, "MAIN: bye"),  # of another process
        ("{}", 12, "MAIN: bye"),
        ("no note", 12, "MAIN: bye"),
    ],
)
def test_what_its_python_has_noted_is_the_reason(main: Node, note: str, pid: int, reason: str) -> None:
    """Whatever was printed later."""
    LogPump(main, ERROR.replace("bad row 7", "caught") + "bye\n")

    def leave() -> None:
        (main.node_dir / "entry-pid").write_text("12\n")
        (main.node_dir / f"uncaught-{pid}").write_text(note.replace("{code}", str(main.settings.code_dir)))

    main.world.at(29, leave)
    main.child_ends(1, at=30)
    main.run()
    assert main.read(STOP)["reason"] == reason


@pytest.mark.parametrize(
    ("error", "frames", "is_first", "is_own"),
    [
        ("ValueError", ["train.py"], True, True),
        ("ValueError", ["train.py", "/usr/lib/json.py"], True, False),
        ("ValueError", ["train.py"], False, False),
        ("RuntimeError", ["train.py"], True, False),  # as of a collective
        ("ConnectionResetError", ["train.py"], True, False),
        ("ValueError", [], True, False),
    ],
)
def test_an_error_of_the_users_own_code_is_told_from_one_that_a_peer_brings_on(
    worker: Node, error: str, frames: list[str], *, is_first: bool, is_own: bool
) -> None:
    """Main waits for no other node's word then."""
    places = [[str(worker.settings.code_dir / file), 3] for file in frames]
    note = {"error": error, "message": "bad row 7", "frames": places, "is_first": is_first}

    def leave() -> None:
        (worker.node_dir / "entry-pid").write_text("12\n")
        (worker.node_dir / "uncaught-12").write_text(json.dumps(note))

    worker.main_lives()
    worker.world.at(29, leave)
    worker.child_ends(1, at=30)
    worker.run()
    told = worker.read(exit_file("WORKER_2"))
    assert told["reason"].startswith(f"WORKER_2: {error}: bad row 7")
    assert told.get("own_error", False) is is_own


def test_what_a_start_script_says_is_the_reason(main: Node) -> None:
    """It knows what happened; an error that somebody printed meanwhile does not stand for it."""
    LogPump(main)
    main.world.at(29, lambda: (main.node_dir / "reason").write_text("no ssh\n"))
    main.child_ends(1, at=30)
    main.run()
    assert main.read(STOP)["reason"] == "no ssh"


@pytest.mark.parametrize(
    ("text", "reason"), [(ERROR, f"MAIN: {WORDS}; rank 1 ended with 1"), ("", "rank 1 ended with 1")]
)
def test_a_launcher_of_ranks_says_which_one_it_was(main: Node, text: str, reason: str) -> None:
    """The error's own words come first."""
    LogPump(main, text)
    main.world.at(29, lambda: (main.node_dir / "entry-point-ended").write_text("rank 1 ended with 1\n"))
    main.child_ends(1, at=30)
    main.run()
    assert main.read(STOP)["reason"] == reason


@pytest.mark.parametrize("has_relay", [True, False])
def test_a_launcher_of_ranks_may_say_what_one_of_them_printed(main: Node, *, has_relay: bool) -> None:
    """On another node, which is named; what main's own log has last is of another rank."""
    if has_relay:
        LogPump(main, ERROR.replace("bad row 7", "mine"))

    def leave() -> None:
        (main.node_dir / "entry-point-ended").write_text("rank 2 on WORKER_2 ended: exit code 1\n")
        printed = ERROR.replace("{code}/", "").encode()
        (main.node_dir / "entry-point-printed").write_bytes(b"WORKER_2\x1b\n\xff" + printed)

    main.world.at(29, leave)
    main.child_ends(1, at=30)
    main.run()
    assert main.read(STOP)["reason"] == f"WORKER_2: {WORDS}; rank 2 on WORKER_2 ended: exit code 1"


def test_a_rank_with_a_code_of_its_own_has_no_error_of_another_one(main: Node) -> None:
    """What is in the log is of the rank beside it, which has lost its peer."""
    LogPump(main, "".join(f"[rank 0] {line}\n" for line in ERROR.splitlines()))
    main.world.at(29, lambda: (main.node_dir / "entry-point-ended").write_text("rank 1 ended with 9\n"))
    main.child_ends(9, at=30)
    main.run()
    assert main.read(STOP)["reason"] == "rank 1 ended with 9"


def test_an_entry_point_beside_no_other_code_has_its_own_lines(make: MakeNode, root: Path) -> None:
    """One that was given by its absolute path."""
    (root / "elsewhere").mkdir()
    (root / "elsewhere" / "go.py").touch()
    main = make(ENTRY_POINT=str(root / "elsewhere" / "go.py"))
    LogPump(
        main,
        ERROR.replace("{code}/train", f"{root}/elsewhere/go").replace(
            "    x\n", '    x\n  File "/l.py", line 1, in l\n'
        ),
    )
    main.child_ends(1, at=30)
    main.run()
    assert main.read(STOP)["reason"] == "MAIN: ValueError: bad row 7 (go.py:3)"


def test_a_workers_words_begin_with_its_name(worker: Node) -> None:
    """So its report needs nothing before it."""
    LogPump(worker)
    worker.main_lives()
    worker.child_ends(1, at=30)
    worker.run()
    assert worker.read(exit_file("WORKER_2"))["reason"] == f"WORKER_2: {WORDS}"


def test_main_tells_the_words_of_the_node_that_failed_first(make: MakeNode) -> None:
    """Its name is in them once."""
    main = all_train(make)
    said = f"WORKER_1: {WORDS}"
    main.publish(exit_file("WORKER_1"), at=30, exit_code=9, reason=said, time=BEGINNING + 29, has_left=True)
    main.child_ends(1, at=31)
    main.run()
    assert main.read(STOP)["reason"] == said
