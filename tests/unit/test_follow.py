from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from oci_cluster import follow
from oci_cluster.clusters import Cluster
from oci_cluster.errors import BackendError, NotPermittedError, StorageError
from oci_cluster.exchange import Exchange
from oci_cluster.follow import (
    Follower,
    MergedLogs,
    cluster_code,
    is_terminal,
    request_stop,
    say_to_stderr,
    show_logs,
)

LAUNCH = "1f2e3d4c"


# --- Logs -----------------------------------------------------------------------------------------------------------


class Logs:
    """A directory of logs, and what MergedLogs shows of them."""

    def __init__(self, place: Path, *nodes: str, colour: bool = False) -> None:
        self._place = place
        self._out = io.StringIO()
        self.merged = MergedLogs(place, nodes or ("MAIN", "WORKER_1"), self._out, colour=colour)

    def add(self, node: str, text: str | bytes) -> None:
        with (self._place / f"{node}.log").open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def shown(self) -> str:
        """Return what is new since the last call."""
        self.merged.copy_new()
        text = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return text

    def rest(self) -> str:
        self.merged.finish()
        return self.shown()


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def test_each_line_stands_after_its_nodes_name(logs: Logs) -> None:
    """Lines of all nodes are one text, in which names are as wide as the widest; an empty line ends at its bar."""
    logs.add("MAIN", "one\n\ntwo\n")
    logs.add("WORKER_1", "three\n")
    assert logs.shown() == "MAIN     | one\nMAIN     |\nMAIN     | two\nWORKER_1 | three\n"


def test_only_what_is_new_is_shown(logs: Logs) -> None:
    """A second look shows what came since the first."""
    logs.add("MAIN", "one\n")
    first = logs.shown()
    logs.add("MAIN", "two\n")
    assert [first, logs.shown(), logs.shown()] == ["MAIN     | one\n", "MAIN     | two\n", ""]


def test_a_line_is_shown_when_it_is_whole(logs: Logs) -> None:
    """A line that was written in pieces is shown once, in one piece."""
    logs.add("MAIN", "first ha")
    looks = [logs.shown()]
    logs.add("MAIN", "lf\nnext")
    assert [*looks, logs.shown()] == ["", "MAIN     | first half\n"]


def test_a_log_that_is_not_there_yet_is_waited_for(logs: Logs) -> None:
    """A node that has printed nothing has no log, which is no failure."""
    logs.add("WORKER_1", "x\n")
    before = logs.shown()
    logs.add("MAIN", "y\n")
    assert [before, logs.shown()] == ["WORKER_1 | x\n", "MAIN     | y\n"]


def test_the_end_shows_lines_that_were_never_ended(logs: Logs) -> None:
    """What a killed node last printed is shown in the end, once."""
    logs.add("MAIN", "a\nlast words")
    assert [logs.rest(), logs.rest()] == ["MAIN     | a\nMAIN     | last words\n", ""]


def test_a_redrawn_line_is_shown_as_last_drawn(logs: Logs) -> None:
    """Of a progress bar the last drawing is the line; a Windows line end is none."""
    logs.add("MAIN", "10 %\r50 %\r100 %\nplain\r\n")
    assert logs.shown() == "MAIN     | 100 %\nMAIN     | plain\n"


def test_a_line_without_an_end_is_shown_in_pieces(logs: Logs) -> None:
    """A progress bar that never ends its line cannot grow without bound."""
    logs.add("MAIN", "x" * 8192)
    within = logs.shown()
    logs.add("MAIN", "y")
    over = logs.shown()
    logs.add("MAIN", "z\n")
    assert [within, over, logs.shown()] == ["", f"MAIN     | {'x' * 8192}y\n", "MAIN     | z\n"]


def test_bytes_that_are_no_text_are_shown_as_such(logs: Logs) -> None:
    """Garbage in a log breaks nothing."""
    logs.add("MAIN", b"a\xff\xfeb\n")
    assert logs.shown() == "MAIN     | a\ufffd\ufffdb\n"


def test_a_letter_that_is_written_in_two_pieces_is_one(logs: Logs) -> None:
    """A look in the middle of a letter of several bytes does not break it."""
    logs.add("MAIN", "caf\u00e9"[:3].encode() + "\u00e9".encode()[:1])
    logs.shown()
    logs.add("MAIN", "\u00e9".encode()[1:] + b"\n")
    assert logs.shown() == "MAIN     | caf\u00e9\n"


def test_colours_belong_to_nodes(tmp_path: Path) -> None:
    """Each node's name has a colour by its place in the cluster, the sixth that of the first; the line has none."""
    names = [f"N{number}" for number in range(6)]
    logs = Logs(tmp_path, *names, colour=True)
    for name in names:
        logs.add(name, "x\n")
    colours = [36, 32, 33, 35, 34, 36]
    expected = [f"\033[{colour}m{name} |\033[0m x\n" for name, colour in zip(names, colours, strict=True)]
    assert logs.shown() == "".join(expected)


def test_a_node_that_is_added_is_shown_from_its_beginning(tmp_path: Path) -> None:
    """What it printed before anybody looked is shown too, and names keep to one width."""
    logs = Logs(tmp_path, "MAIN")
    logs.add("MAIN", "one\n")
    logs.add("WORKER_10", "hello\n")
    before = logs.shown()
    logs.merged.add("WORKER_10")
    logs.merged.add("PS_11")
    logs.add("MAIN", "two\n")
    assert [before, logs.shown()] == ["MAIN | one\n", "MAIN      | two\nWORKER_10 | hello\n"]


def test_a_node_that_is_merged_already_stays_as_it_is(logs: Logs) -> None:
    """A replacement writes on in the log of its rank: nothing is shown twice."""
    logs.add("MAIN", "one\n")
    first = logs.shown()
    logs.merged.add("MAIN")
    logs.add("MAIN", "two\n")
    assert [first, logs.shown()] == ["MAIN     | one\n", "MAIN     | two\n"]


def test_an_added_node_has_the_next_colour(tmp_path: Path) -> None:
    """As it would have had from the beginning."""
    logs = Logs(tmp_path, "N0", "N1", colour=True)
    logs.merged.add("N2")
    logs.add("N2", "x\n")
    assert logs.shown() == "\033[33mN2 |\033[0m x\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "colour"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_is_for_terminals(stream: io.StringIO, environ: dict[str, str], colour: bool) -> None:  # noqa: FBT001
    """Colour goes to terminals only, and to none where NO_COLOR has a value (no-color.org)."""
    assert is_terminal(stream, environ) is colour


def test_talk_goes_to_stderr_under_the_programs_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout is for results: progress is on stderr, after the name of the script that talks."""
    say_to_stderr("launch.sh")("2 of 3 workers arrived")
    assert capsys.readouterr() == ("", "launch.sh: 2 of 3 workers arrived\n")


# --- The cluster's exit code ----------------------------------------------------------------------------------------


def ends(main: int | None, worker: int | None = 0) -> list[dict[str, Any]]:
    return [{"node": "WORKER_1", "exit_code": worker}, {"node": "MAIN", "exit_code": main}]


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
        (ends(137), {}, 76),
        (ends(137), None, 76),
        (ends(129), None, 76),
        (ends(None), {"exit_code": 0}, 76),
        ([{"node": "WORKER_1", "exit_code": 0}], None, 76),
        ([], None, 76),
        (ends(137), {"exit_code": float("nan")}, 76),
        (ends(137), {"exit_code": True}, 76),
        (ends(137), {"exit_code": [137]}, 76),
        (ends(137), {"exit_code": "137"}, 76),
    ],
)
def test_the_clusters_code_is_mains_own(nodes: list[dict[str, Any]], stop: Mapping[str, Any] | None, code: int) -> None:
    """Main's code is the cluster's; a main that was killed, or is not known to have ended, is lost (76)."""
    assert cluster_code(nodes, stop) == code


# --- Showing and stopping -------------------------------------------------------------------------------------------


class FakeSignals:
    """Signals that come when a test says so: each wait runs the next step of a script."""

    def __init__(self, clock: Any) -> None:
        self.received: int | None = None
        self.steps: list[Callable[[], object]] = []
        self.waits: list[float] = []
        self._clock = clock

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._clock.now += seconds
        assert len(self.waits) < 100, "waits for something that never comes"
        if self.steps:
            self.steps.pop(0)()

    def send(self) -> None:
        self.received = 2


@pytest.fixture
def signals(clock: Any) -> FakeSignals:
    return FakeSignals(clock)


def test_logs_are_shown_while_the_cluster_runs(logs: Logs, signals: FakeSignals) -> None:
    """Following looks again and again, and shows the rest when the cluster has ended."""
    logs.add("MAIN", "one\n")
    signals.steps = [lambda: logs.add("MAIN", "two\n"), lambda: logs.add("MAIN", "rest")]
    show_logs(logs.merged, lambda: len(signals.waits) < 2, signals)
    assert (logs.shown(), signals.waits) == ("MAIN     | one\nMAIN     | two\nMAIN     | rest\n", [0.1, 0.1])


def test_logs_of_an_ended_cluster_are_shown_at_once(logs: Logs, signals: FakeSignals) -> None:
    """Without following nobody waits."""
    logs.add("MAIN", "one\nrest")
    show_logs(logs.merged, lambda: False, signals)
    assert (logs.shown(), signals.waits) == ("MAIN     | one\nMAIN     | rest\n", [])


def test_ctrl_c_ends_the_showing(logs: Logs, signals: FakeSignals) -> None:
    """A signal ends the showing of logs while the cluster goes on."""
    signals.steps = [signals.send]
    show_logs(logs.merged, lambda: True, signals)
    assert signals.waits == [0.1]


class Run:
    """A cluster of main and two workers, the backend's word on it, and a follower with all its surroundings."""

    def __init__(self, place: Path, clock: Any, signals: FakeSignals) -> None:
        names = ("MAIN", "WORKER_1", "WORKER_2")
        plan = {
            "name": "mine",
            "launch_id": LAUNCH,
            "cluster_id": "c1",
            "work_dir": f"file://{place}",
            "nodes": [{"node": name} for name in names],
        }
        self.directory = place / "c1"
        self.directory.mkdir()
        self.cluster = Cluster(self.directory, plan)
        self.exchange = Exchange(self.cluster.url, LAUNCH)
        self.clock = clock
        self.signals = signals
        self.running = True
        self.codes: dict[str, int | None] = dict.fromkeys(names)
        self.pids: dict[str, int] = {}
        self.calls: list[str] = []
        self.said: list[str] = []
        self.out = io.StringIO()
        self.logs = MergedLogs(place, names, self.out)

    def state(self, cluster: Cluster) -> dict[str, Any]:
        assert cluster is self.cluster
        nodes = [
            {
                "node": name,
                "exit_code": code,
                "state": "IN_PROGRESS" if code is None else "FAILED",
                "pid": self.pids.get(name, 7),
            }
            for name, code in self.codes.items()
        ]
        return {"running": self.running, "nodes": nodes}

    def end(self, *codes: int | None, stop: Mapping[str, Any] | None = None) -> None:
        if stop:
            self.exchange.publish("stop", **stop)
        self.codes.update(zip(self.codes, codes, strict=False))
        self.running = False

    def follow(self, *steps: Callable[[], object]) -> int:
        self.signals.steps = list(steps)
        follower = Follower(
            self.cluster,
            state=self.state,
            terminate=lambda _: self.calls.append("terminate"),
            kill=lambda _: self.calls.append("kill"),
            logs=self.logs,
            say=self.said.append,
            signals=self.signals,
            clock=self.clock,
        )
        return follower.run()

    def pause(self) -> None:
        self.clock.now += 2


@pytest.fixture
def run(tmp_path: Path, clock: Any, signals: FakeSignals) -> Run:
    return Run(tmp_path, clock, signals)


def nothing() -> None:
    """Let one look pass."""


def test_a_run_is_told_from_its_first_worker_to_its_end(run: Run) -> None:
    """A line for each phase, with the time it took; the logs; and the entry point's code in the end."""
    code = run.follow(
        nothing,
        lambda: run.exchange.publish("WORKER_2_config.json"),
        lambda: run.exchange.publish("WORKER_1_config.json"),
        lambda: run.exchange.publish("MAIN_ready.json", facts={"dashboard": "https://127.0.0.1:8787", "a": "b"}),
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


def test_facts_are_optional(run: Run) -> None:
    """A framework need not tell anything when it is ready."""
    run.follow(
        lambda: run.exchange.publish("MAIN_ready.json"), lambda: run.end(0, 0, 0, stop={"exit_code": 0, "reason": "r"})
    )
    assert run.said == ["ready after 0.1 s", "cluster mine ended with 0 after 0.2 s"]


def test_nodes_that_did_not_end_as_the_cluster_did_are_named(run: Run) -> None:
    """A worker that was lost in a run that succeeded is named once, in words."""
    run.exchange.publish("stop", exit_code=0, reason="r")
    run.codes["WORKER_2"] = 137
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
        lambda: run.codes.update(WORKER_3=None),
        lambda: run.codes.update(WORKER_3=9),
        lambda: run.end(0, 0, 0, 9, stop={"exit_code": 0, "reason": "r"}),
    )
    assert run.out.getvalue() == "WORKER_3 | I am new\n"
    assert run.said == ["WORKER_3 ended with 9 (exit code 9)", "cluster mine ended with 0 after 0.4 s"]


def test_the_end_of_a_replaced_node_is_told_as_its_predecessors_was(run: Run) -> None:
    """Two nodes had the rank one after the other: each end is a line, and each is told once."""
    run.codes["WORKER_2"] = 137

    def replace() -> None:
        run.codes["WORKER_2"], run.pids["WORKER_2"] = None, 8

    run.follow(
        nothing,
        replace,
        lambda: run.codes.update(WORKER_2=137),
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
    run.codes.update(WORKER_1=0, WORKER_2=3)
    run.follow(lambda: run.end(0, 0, 3, stop={"exit_code": 0, "reason": "r"}))
    assert run.said == ["WORKER_2 ended with 3 (exit code 3)", "cluster mine ended with 0 after 0.1 s"]


def test_a_lost_main_is_told(run: Run) -> None:
    """A main that was killed is no success of anybody, whatever an older word says."""
    code = run.follow(lambda: run.end(137, 76, 76))
    assert (code, run.said[-1]) == (76, "cluster mine ended with 76 (main lost) after 0.1 s")


def test_what_a_killed_cluster_left_is_ended(run: Run) -> None:
    """Nodes that are in progress in a cluster that does not run were killed: what they left is killed too."""
    code = run.follow(lambda: run.end(None, 76, 76))
    assert (code, run.calls) == (76, ["kill"])


def test_ctrl_c_asks_the_nodes_to_stop(run: Run) -> None:
    """The first signal writes the stop file, and the cluster is followed to its end."""
    code = run.follow(run.signals.send, lambda: run.end(143, 143, 143))
    stop = run.exchange.read("stop") or {}
    assert (code, run.calls, stop["reason"], stop["exit_code"]) == (
        143,
        [],
        "stopped by the launcher (Ctrl-C or a signal)",
        143,
    )
    assert run.said == [
        "stopping cluster mine; Ctrl-C again ends it at once",
        "cluster mine ended with 143 (stopped by the launcher (Ctrl-C or a signal)) after 0.2 s",
    ]


def test_one_ctrl_c_that_arrives_twice_is_one(run: Run) -> None:
    """Terminal and launch.sh both pass a Ctrl-C on: within a second it is the same one."""
    run.follow(run.signals.send, run.signals.send, lambda: run.end(143, 143, 143))
    assert (run.calls, run.said.count("ending it at once")) == ([], 0)


def test_one_ctrl_c_stays_one(run: Run) -> None:
    """A cluster that takes its time to stop is not killed for it: only another signal does that."""
    run.follow(run.signals.send, run.pause, run.pause, lambda: run.end(143, 143, 143))
    assert run.calls == []


def test_a_second_ctrl_c_ends_the_cluster_at_once(run: Run) -> None:
    """Who presses Ctrl-C again later does not want to wait."""
    run.follow(run.signals.send, run.pause, run.signals.send, lambda: run.end(137, 137, 137))
    assert (run.calls, run.said[1]) == (["kill"], "ending it at once")


def test_a_ctrl_c_that_could_not_be_passed_on_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither work dir nor backend answers: the cluster is followed on, and the next Ctrl-C is a first one again."""

    def fail(*_: object, **__: object) -> None:
        raise BackendError("no answer")

    monkeypatch.setattr(follow, "request_stop", fail)

    def mend() -> None:
        monkeypatch.undo()
        run.pause()
        run.signals.send()

    run.follow(run.signals.send, mend, lambda: run.end(143, 143, 143))
    assert run.said[:3] == [
        "stopping cluster mine; Ctrl-C again ends it at once",
        "it could not be told: no answer; Ctrl-C tries again",
        "stopping cluster mine; Ctrl-C again ends it at once",
    ]
    assert run.calls == []


def test_a_signal_that_came_before_the_first_look_counts(run: Run) -> None:
    """A Ctrl-C while the cluster was being started stops it."""
    run.signals.received = 15
    run.follow(lambda: run.end(143, 143, 143))
    assert (run.exchange.read("stop") or {})["exit_code"] == 143


def test_arrivals_are_not_told_while_the_cluster_stops(run: Run) -> None:
    """After the stop file nobody needs to know who arrives."""
    run.exchange.publish("stop", exit_code=143, reason="r")
    run.follow(lambda: run.exchange.publish("WORKER_1_config.json"), nothing, lambda: run.end(143, 143, 143))
    assert run.said == ["cluster mine ended with 143 (r) after 0.3 s"]


def test_a_work_dir_that_does_not_answer_ends_nothing(run: Run) -> None:
    """Progress and reason are the work dir's, the outcome is the backend's: an outage loses two lines, no code."""
    for name in ("MAIN_ready.json", "stop"):
        (run.directory / name).mkdir()
    code = run.follow(nothing, lambda: run.end(7, 0, 7))
    assert (code, run.said) == (
        7,
        [
            "MAIN ended with 7 (exit code 7)",
            "WORKER_2 ended with 7 (exit code 7)",
            "cluster mine ended with 7 after 0.2 s",
        ],
    )


def test_a_stop_file_of_another_schema_loses_no_code(run: Run) -> None:
    """The backend's word on main counts where the stop file cannot be understood."""
    (run.directory / "stop").write_text(json.dumps({"schema": 9, "launch_id": LAUNCH}))
    assert run.follow(lambda: run.end(7, 7, 7)) == 7


def test_a_stop_file_without_fields_loses_no_code(run: Run) -> None:
    """A stop file of this launch that holds nothing else is no reason to stop following."""
    run.exchange.publish("stop")
    assert run.follow(lambda: run.end(7, 7, 7)) == 7


@pytest.mark.parametrize("facts", [["ab"], "abc", 7])
def test_facts_of_another_shape_end_nothing(run: Run, facts: Any) -> None:
    """Facts that are no object are passed over."""
    run.exchange.publish("MAIN_ready.json", facts=facts)
    run.follow(lambda: run.end(0, 0, 0, stop={"exit_code": 0, "reason": "r"}))
    assert run.said[0] == "ready after 0.0 s"


@pytest.mark.parametrize("place", ["fact", "name", "reason"])
def test_control_characters_do_not_reach_a_terminal(run: Run, place: str) -> None:
    """Who can write to the bucket cannot write to a terminal."""
    evil = "\033]0;evil\a"
    facts = {"fact": {"a": evil}, "name": {evil: "a"}}.get(place, {})
    run.exchange.publish("MAIN_ready.json", facts=facts)
    run.follow(lambda: run.end(7, 7, 7, stop={"exit_code": 7, "reason": evil if place == "reason" else "r"}))
    assert "\033" not in "".join(run.said)


# --- A request to stop ----------------------------------------------------------------------------------------------


def ask_to_stop(run: Run, exchange: Exchange | None = None) -> list[Cluster]:
    terminated: list[Cluster] = []
    request_stop(exchange or run.exchange, terminated.append, run.cluster, "stopped by stop.sh")
    return terminated


def test_a_cluster_is_asked_to_stop_by_its_stop_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop file has reason, code and time; the backend is left alone."""
    monkeypatch.setattr("oci_cluster.follow.now", lambda: "2026-01-02T03:04:05Z")
    assert (ask_to_stop(run), run.exchange.read("stop")) == (
        [],
        {
            "schema": 1,
            "launch_id": LAUNCH,
            "reason": "stopped by stop.sh",
            "exit_code": 143,
            "time": "2026-01-02T03:04:05Z",
        },
    )


def test_the_first_word_stands(run: Run) -> None:
    """A cluster that is ending already keeps its own reason and code."""
    run.exchange.publish("stop", reason="the entry point ended", exit_code=0)
    ask_to_stop(run)
    assert (run.exchange.read("stop") or {})["exit_code"] == 0


@pytest.mark.parametrize("body", [b"", b"{", json.dumps({"schema": 1, "launch_id": "older"}).encode()])
def test_a_stop_file_that_says_nothing_is_replaced(run: Run, body: bytes) -> None:
    """A half-written stop file, or an older launch's, does not keep a cluster from being stopped."""
    (run.directory / "stop").write_bytes(body)
    ask_to_stop(run)
    assert (run.exchange.read("stop") or {})["exit_code"] == 143


def test_the_backend_stops_what_the_work_dir_cannot(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the stop file cannot be written, the backend is asked."""

    def publish(*_: object, **__: object) -> None:
        raise NotPermittedError("read-only")

    monkeypatch.setattr(run.exchange, "publish", publish)
    assert ask_to_stop(run) == [run.cluster]


def test_the_backend_stops_a_cluster_of_another_version(run: Run) -> None:
    """A stop file of another schema is understood by nobody here: the backend is asked."""
    (run.directory / "stop").write_text(json.dumps({"schema": 9, "launch_id": LAUNCH}))
    assert ask_to_stop(run) == [run.cluster]


# --- Where logs and nodes are elsewhere -----------------------------------------------------------------------------


class Elsewhere:
    """A cluster of *run* whose logs are fetched, and whose nodes a backend may not be able to start."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.fetched = 0
        self.on_fetch: Callable[[], object] = lambda: None
        self.never_started: dict[str, str] = {}

    def fetch(self) -> None:
        self.fetched += 1
        self.on_fetch()

    def state(self, cluster: Cluster) -> dict[str, Any]:
        state = self.run.state(cluster)
        for node in state["nodes"]:
            del node["pid"]
            node["ocid"] = f"ocid1.{node['node']}"
            if details := self.never_started.get(node["node"]):
                node |= {"never_started": True, "details": details, "exit_code": 69, "state": "FAILED"}
        return state

    def follow(self, *steps: Callable[[], object], least_workers: int = 2) -> int:
        self.run.signals.steps = list(steps)
        return Follower(
            self.run.cluster,
            state=self.state,
            terminate=lambda _: self.run.calls.append("terminate"),
            kill=lambda _: self.run.calls.append("kill"),
            logs=self.run.logs,
            say=self.run.said.append,
            signals=self.run.signals,
            fetch_logs=self.fetch,
            least_workers=least_workers,
            look_s=2.0,
            clock=self.run.clock,
        ).run()


@pytest.fixture
def elsewhere(run: Run) -> Elsewhere:
    return Elsewhere(run)


def test_logs_are_fetched_with_each_look_and_at_the_end(elsewhere: Elsewhere) -> None:
    """As often as the backend is looked at, and once more when all have ended."""
    elsewhere.on_fetch = lambda: (elsewhere.run.directory.parent / "MAIN.log").write_text("x\n" * elsewhere.fetched)
    assert elsewhere.follow(lambda: None, lambda: elsewhere.run.end(0, 0, 0)) == 0
    assert (elsewhere.fetched, elsewhere.run.signals.waits) == (4, [2.0, 2.0])
    assert elsewhere.run.out.getvalue().count("MAIN     | x\n") == 4


def test_logs_that_cannot_be_fetched_now_are_fetched_later(elsewhere: Elsewhere) -> None:
    """Storage that does not answer for a while ends no launch and costs no line."""

    def fail() -> None:
        if elsewhere.fetched < 6:
            raise StorageError("no route to storage")

    elsewhere.on_fetch = fail
    assert elsewhere.follow(lambda: elsewhere.run.end(0, 0, 0)) == 0
    assert elsewhere.fetched == 6
    assert not any("missing" in text for text in elsewhere.run.said)


def test_last_lines_that_are_missing_are_told(elsewhere: Elsewhere) -> None:
    """After eight tries; the cluster's code is what it is."""

    def fail() -> None:
        raise StorageError("no route to storage")

    elsewhere.on_fetch = fail
    assert elsewhere.follow(lambda: elsewhere.run.end(7, 0, 0)) == 7
    assert elsewhere.fetched == 2 + 8
    assert "the last lines of the logs are missing: no route to storage" in elsewhere.run.said
    assert 10 < sum(elsewhere.run.signals.waits) < 40


def stop_of(elsewhere: Elsewhere) -> dict[str, Any]:
    return dict(elsewhere.run.exchange.read("stop") or {})


@pytest.mark.parametrize(
    ("never", "least", "is_given_up"),
    [
        (["MAIN"], 1, True),
        (["WORKER_2"], 2, True),
        (["WORKER_2"], 1, False),
        (["WORKER_1", "WORKER_2"], 1, True),
        ([], 2, False),
    ],
)
def test_a_cluster_that_cannot_begin_is_stopped(
    elsewhere: Elsewhere, never: list[str], least: int, *, is_given_up: bool
) -> None:
    """The other nodes would wait for TIMEOUT, and cost money meanwhile; with enough of them the cluster goes on."""
    elsewhere.never_started = dict.fromkeys(never, "Out of capacity; try later")
    elsewhere.follow(lambda: elsewhere.run.end(69, 69, 69), least_workers=least)
    stop = stop_of(elsewhere)
    assert bool(stop) is is_given_up
    if is_given_up:
        reason = f"{never[0]} could not be started: Out of capacity; try later"
        assert (stop["reason"], stop["exit_code"]) == (reason, 69)
        assert f"{reason}; stopping the other nodes" in elsewhere.run.said


def test_a_parameter_server_that_could_not_be_started_ends_the_wait(elsewhere: Elsewhere) -> None:
    """Every one is needed."""
    elsewhere.run.codes["PS_3"] = None
    elsewhere.never_started = {"PS_3": "Out of capacity"}
    elsewhere.follow(lambda: elsewhere.run.end(69, 69, 69))
    assert stop_of(elsewhere)["exit_code"] == 69


def test_a_node_that_never_started_says_why(elsewhere: Elsewhere) -> None:
    """In the backend's words, not as an exit code of the user's script; once."""
    elsewhere.never_started = {"WORKER_2": "Out of capacity; try later"}
    elsewhere.follow(lambda: None, lambda: elsewhere.run.end(0, 0, 69), least_workers=1)
    assert elsewhere.run.said.count("WORKER_2 ended with 69 (Out of capacity; try later)") == 1


def test_a_cluster_is_given_up_once(elsewhere: Elsewhere) -> None:
    """And not when it has been ready, or is stopping anyway."""
    elsewhere.never_started = {"MAIN": "x"}
    elsewhere.follow(lambda: None, lambda: None, lambda: elsewhere.run.end(69, 69, 69))
    assert sum("stopping the other nodes" in text for text in elsewhere.run.said) == 1


def test_a_cluster_that_was_ready_is_not_given_up(elsewhere: Elsewhere) -> None:
    """A worker that could not be added later is not missed."""
    elsewhere.run.exchange.publish("MAIN_ready.json", facts={})
    elsewhere.never_started = {"WORKER_1": "x", "WORKER_2": "x"}
    elsewhere.follow(lambda: elsewhere.run.end(0, 69, 69))
    assert stop_of(elsewhere) == {}


def test_a_replacement_is_told_by_its_ocid(elsewhere: Elsewhere) -> None:
    """Where nodes have no pid: its own failure is another one."""
    ocids = iter(["a", "a", "b", "b"])
    state = elsewhere.state

    def replaced(cluster: Cluster) -> dict[str, Any]:
        found = state(cluster)
        found["nodes"][1] |= {"ocid": next(ocids), "exit_code": 9, "state": "FAILED"}
        return found

    elsewhere.state = replaced  # type: ignore[method-assign]
    elsewhere.follow(lambda: None, lambda: None, lambda: elsewhere.run.end(0, 9, 0), least_workers=0)
    assert sum(text.startswith("WORKER_1 ended with 9") for text in elsewhere.run.said) == 2


def test_a_backend_that_does_not_answer_now_is_asked_later(elsewhere: Elsewhere) -> None:
    """A failure is not an answer: the cluster is followed to its end, as its nodes go on too."""
    state = elsewhere.state
    failures = [True, False, False]

    def fail(cluster: Cluster) -> dict[str, Any]:
        if failures and failures.pop(0):
            raise BackendError("cannot list the Job Runs: no answer from OCI")
        return state(cluster)

    elsewhere.state = fail  # type: ignore[method-assign]
    assert elsewhere.follow(lambda: None, lambda: elsewhere.run.end(0, 0, 0)) == 0


def test_a_cause_that_the_backend_knows_is_told(elsewhere: Elsewhere) -> None:
    """Also of a node that ended as the cluster did: the code alone does not say it."""
    state = elsewhere.state

    def explained(cluster: Cluster) -> dict[str, Any]:
        found = state(cluster)
        if found["nodes"][0]["exit_code"] is not None:
            found["nodes"][0]["cause"] = "its memory ran out"
        return found

    elsewhere.state = explained  # type: ignore[method-assign]
    elsewhere.follow(lambda: elsewhere.run.end(137, 137, 137, stop={"exit_code": 137, "reason": "r"}))
    assert [text for text in elsewhere.run.said if " ended with 137" in text and "cluster" not in text] == [
        "MAIN ended with 137 (its memory ran out)"
    ]


def test_fetched_logs_are_shown_to_their_end(logs: Logs, signals: FakeSignals) -> None:
    """What a last look brings is shown too; between two looks is the time that was asked for."""
    looks = iter(["one\n", "two\n", "rest"])
    show_logs(
        logs.merged, lambda: len(signals.waits) < 2, signals, fetch=lambda: logs.add("MAIN", next(looks)), look_s=2.0
    )
    assert (logs.shown(), signals.waits) == ("MAIN     | one\nMAIN     | two\nMAIN     | rest\n", [2.0, 2.0])


def test_a_stop_may_have_a_code_of_its_own(run: Run) -> None:
    """Whoever gives up says why, and what the launch ends with."""
    request_stop(run.exchange, lambda _: None, run.cluster, "no capacity", 69)
    assert (run.exchange.read("stop") or {})["exit_code"] == 69
