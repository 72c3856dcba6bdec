"""What a node prints: lines that stay whole, progress bars that are seen, last lines that can be asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from noted_times import read_times

from oci_cluster.contract.files import node_logs
from oci_cluster.contract.files.log_times import StampedLog, Stamper
from oci_cluster.node.logs.pump import CUT_S, TAIL_BYTES, Lines, Reminder, _Log, remember

# --- Lines ----------------------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock: Clock) -> Lines:
    return Lines(b"\x1em\x1f", clock)


def test_whole_lines_pass_unchanged(lines: Lines) -> None:
    """Of the script and of the agent."""
    assert lines.add(b"one\ntwo\n") + lines.add(b"\x1em\x1fagent: x\n") + lines.end() == b"one\ntwo\nagent: x\n"


def test_a_last_line_without_an_end_is_not_glued_to_the_agents(lines: Lines) -> None:
    """What the entry point printed last is a line, and so is what the agent says of its end."""
    assert lines.add(b"done") + lines.add(b"\x1em\x1fagent: ending\n") == b"done\nagent: ending\n"


def test_the_end_of_a_line_that_the_agent_broke_is_not_an_empty_line(lines: Lines) -> None:
    """A script that ends its line after the agent's has ended it already; a Windows line end too."""
    broken = lines.add(b"50 %") + lines.add(b"\x1em\x1fagent: x\n")
    assert broken + lines.add(b"\nnext\r\n") == b"50 %\nagent: x\nnext\r\n"
    lines.add(b"60 %")
    lines.add(b"\x1em\x1fagent: y\n")
    assert lines.add(b"\r\nnext\n") == b"next\n"


def test_the_script_goes_on_with_its_line_after_the_agents(lines: Lines) -> None:
    """Only a line end that comes first is the broken line's."""
    lines.add(b"50 %")
    lines.add(b"\x1em\x1fagent: x\n")
    assert lines.add(b"\r60 %\n\n") == b"\r60 %\n\n"


def test_the_last_line_of_all_is_ended(lines: Lines) -> None:
    """A log ends with a line."""
    assert lines.add(b"last words") + lines.end() == b"last words\n"


def test_a_progress_bar_is_seen_every_ten_seconds(lines: Lines, clock: Clock) -> None:
    """A line that has no end gets one, counted from where it began; then again for what is drawn later."""
    log = lines.add(b"\r1 %")
    due = [lines.due_s]
    clock.now = 4.0
    log += lines.add(b"\r2 %") + lines.tick()
    due.append(lines.due_s)
    clock.now = CUT_S
    log += lines.tick()
    due.append(lines.due_s)
    clock.now = 12.0
    log += lines.add(b"\r3 %") + lines.tick()
    due.append(lines.due_s)
    clock.now = 22.0
    log += lines.tick()
    assert (log, due) == (b"\r1 %\r2 %\n\r3 %\n", [10.0, 6.0, None, 10.0])


def test_a_progress_bar_is_not_shown_twice_at_its_end(lines: Lines, clock: Clock) -> None:
    """Its own line end after ours adds no empty line, and where nothing was drawn since, nothing is due."""
    log = lines.add(b"\r100 %")
    clock.now = 11.0
    log += lines.tick()
    clock.now = 31.0
    log += lines.tick() + lines.add(b"\nnext\n") + lines.end()
    assert log == b"\r100 %\nnext\n"


def test_a_line_that_ends_in_time_is_left_alone(lines: Lines, clock: Clock) -> None:
    """Ten seconds count from the beginning of the line that is open, not of an older one."""
    log = lines.add(b"a")
    clock.now = 9.0
    log += lines.add(b"b\nc")
    clock.now = 18.0
    log += lines.tick()
    assert (log, lines.due_s) == (b"ab\nc", 1.0)


def test_a_line_of_the_agents_may_come_in_pieces(lines: Lines) -> None:
    """Its mark is found wherever a piece ends; what only begins like one is the script's."""
    whole = b"half\x1em\x1fagent\n\x1e rest\x1e"
    log = b"".join(lines.add(whole[at : at + 1]) for at in range(len(whole))) + lines.end()
    assert log == b"half\nagent\n\x1e rest\x1e\n"


# --- The last lines -------------------------------------------------------------------------------------------------


def test_what_the_agent_has_told_is_repeated_in_a_long_log(clock: Clock) -> None:
    """After a line, with much or with some time between: whoever reads the last MiBs of it finds it there."""
    reminder = Reminder(clock)
    told, newer, line = b"told ready {1}\n", b"told ready {2}\n", b"x" * 1023 + b"\n"
    assert reminder.add(told, told) == told
    short = line * 1023
    assert reminder.add(short, b"") == short  # not yet a long one
    assert reminder.add(line + line + b"begun", b"") == line + line + told + b"begun"
    assert reminder.add(line, b"") == line
    clock.now += 10
    assert reminder.add(b"no end of a line", b"") == b"no end of a line"
    assert reminder.add(newer, newer) == newer + newer
    assert reminder.add(line * 511 + b"11: agent: up\n", b"11: agent: up\n") == line * 511 + b"11: agent: up\n"
    assert reminder.add(line, b"") == line + newer


def test_who_has_told_nothing_is_not_repeated(clock: Clock) -> None:
    reminder = Reminder(clock)
    text = b"x\n" * (1 << 20)
    assert reminder.add(text, b"") == text


def test_the_tail_is_bounded() -> None:
    """However much is printed, the last bytes are kept, and memory does not grow."""
    tail = bytearray()
    for number in range(100_000):
        remember(tail, b"%07d\n" % number)
        assert len(tail) <= 4 * TAIL_BYTES
    assert (len(tail) >= TAIL_BYTES, bytes(tail[-8:])) == (True, b"0099999\n")


# --- The process ----------------------------------------------------------------------------------------------------

PRELUDE = """
import logging, os, signal, subprocess, sys, time
from oci_cluster.node.logs.pump import LogPump
logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
relay = LogPump("WORKER_1")

def script(text):
    return subprocess.Popen(["sh", "-c", text])

say = logging.getLogger("agent").info
"""


def run(lines: str, code: int = 0, **named: object) -> str:
    """Run a process that has a relay; return all that it and its script have printed, whole."""
    environ = {
        "PATH": "/usr/bin:/bin",
        "MARK": uuid.uuid4().hex,
        "PYTHONPATH": str(Path(node_logs.__file__).parents[3]),
        **{key: text for key, text in os.environ.items() if key.startswith("COVERAGE_")},
    }
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + lines],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
        **named,  # type: ignore[call-overload]
    )
    assert done.returncode == code, done.stdout
    return str(done.stdout)


def test_script_and_agent_are_one_log_in_the_order_of_events() -> None:
    """What the script printed before it ended stands before what the agent says of that, every time."""
    shown = run("""
for number in range(50):
    script(f"printf 'script {number}'; printf ' err' >&2").wait()
    say("agent %d", number)
relay.finish()
say("after")
""")
    expected = "".join(f"script {number} err\nagent {number}\n" for number in range(50))
    assert shown == f"{expected}after\n"


def test_the_last_lines_can_be_asked_for_again_and_forgotten() -> None:
    """All that the script has printed when it has ended is there, 64 KiB of it in a pipe included."""
    shown = run("""
script("yes | head -c 400000; echo last").wait()
say("agent")
first, second = relay.tail(), relay.tail()
relay.forget()
sys.stdout.write(f"{first == second} {len(first)} {first[-13:]!r} {relay.tail()!r}\\n")
relay.finish()
""")
    assert shown.endswith(f"last\nagent\nTrue {TAIL_BYTES} 'y\\nlast\\nagent\\n' ''\n")
    assert len(shown) > 400_000


def test_when_the_script_has_printed_last_is_known() -> None:
    """The agent's own lines do not count; part of a line does."""
    shown = run("""
def moments(*todo):
    for do in todo:
        before = relay.printed_at()
        do()
        relay.tail()  # all is read
        yield relay.printed_at() > before

told = list(moments(
    lambda: script("echo x").wait(),
    lambda: say("agent"),
    lambda: script("printf '50 percent'").wait(),
    lambda: None,
))
began = relay.printed_at() <= time.monotonic()
relay.finish()
print(began, told)
""")
    assert shown.endswith("True [True, False, True, False]\n")


def test_a_relay_that_was_killed_is_no_bug_of_the_agents() -> None:
    """The agent goes on, knows no last words, and says what it has to say where it said it before."""
    shown = run("""
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
import psutil

def relays():
    for process in psutil.process_iter():
        try:
            is_ours = process.name() == "log WORKER_1" and process.environ().get("MARK") == os.environ["MARK"]
        except psutil.Error:
            continue
        if is_ours:
            yield process

while not (mine := [*relays()]):  # it gives itself its name
    time.sleep(0.01)
for process in mine:
    process.kill()
while [*relays()]:
    time.sleep(0.01)
tail = [relay.tail(), relay.tail()]
relay.forget()
relay.finish()
relay.finish()
print(len(mine), tail)
""")
    assert shown == "1 ['', '']\n"


def test_what_is_left_of_a_node_can_still_print() -> None:
    """The agent is killed: its relay ends when the last that could print has ended, and loses nothing of it."""
    shown = run(
        """
script("sleep 0.3; printf 'last words'")
os.kill(os.getpid(), signal.SIGKILL)
""",
        code=-signal.SIGKILL,
    )
    assert shown == "last words\n"


def test_a_signal_to_the_whole_group_costs_no_last_lines() -> None:
    """As some engines send it."""
    shown = run(
        """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.killpg(0, signal.SIGTERM)
say("still here")
relay.finish()
""",
        start_new_session=True,
    )
    assert shown == "still here\n"


def test_a_node_whose_log_is_shipped_has_it_in_a_file_too(tmp_path: Path) -> None:
    """All of it, of script and agent, up to a signal to the whole group; there each line has its time before it."""
    (tmp_path / "own").touch()
    shown = run(
        f"""
relay.finish()
from pathlib import Path
relay = LogPump("MAIN", stamped=Path("{tmp_path}/own"))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
script("echo one; printf two >&2").wait()
say("agent")
os.killpg(0, signal.SIGTERM)
say("still here")
relay.finish()
say("not shipped")
""",
        start_new_session=True,
    )
    logs = tmp_path / "logs"
    logs.mkdir()
    StampedLog(logs, "MAIN").add((tmp_path / "own").read_bytes())
    assert shown == "one\ntwo\nagent\nstill here\nnot shipped\n"
    assert (logs / "MAIN.log").read_text() == "one\ntwo\nagent\nstill here\n"
    noted = [*read_times(logs / "MAIN.times")]
    assert {25} <= {size for _, size in noted} <= {4, 8, 14, 25}
    assert all(abs(moment / 1000 - time.time()) < 60 for moment, _ in noted)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full (Linux)")
def test_a_full_disk_costs_the_file_and_not_the_log() -> None:
    """What a container engine keeps is whole."""
    shown = run("""
relay.finish()
from pathlib import Path
relay = LogPump("MAIN", stamped=Path("/dev/full"))
script("echo one; echo two").wait()
relay.finish()
""")
    assert shown == "one\ntwo\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full (Linux)")
def test_what_could_not_be_written_is_counted(tmp_path: Path) -> None:
    """When the disk has room again; of a line that was half written, the rest is no line with a time."""
    output = os.open("/dev/full", os.O_WRONLY)
    log = _Log(output, Stamper(lambda: 1_700_000_000.0))
    written = [log.write(b"0123456789\n"), log.write(b"again\n")]
    file = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(file, output)
    written += [log.write(b"back\n"), log.write(b"next\n")]
    os.close(file)
    os.close(output)
    at = b"2023-11-14T22:13:20.000Z "
    assert written == [False, False, True, True]
    lines = [b"", at + b"17 bytes of this log could not be written", at + b"back", at + b"next", b""]
    assert (tmp_path / "log").read_bytes().split(b"\n") == lines


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full (Linux)")
def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    """The script's output is lost, as the disk is full; the script goes on to its own end."""
    shown = run(f"""
relay.finish()
full = os.open("/dev/full", os.O_WRONLY)
kept = os.dup(1), os.dup(2)
os.dup2(full, 1), os.dup2(full, 2)
relay = LogPump("MAIN")
code = script("echo one && echo two && touch {tmp_path}/went-on; exit 3").wait()
tail = relay.tail()
relay.finish()
os.dup2(kept[0], 1)
print(code, repr(tail))
""")
    assert (shown, (tmp_path / "went-on").exists()) == ("3 'one\\ntwo\\n'\n", True)


def test_the_times_of_a_log_stand_beside_it(tmp_path: Path) -> None:
    """Where stdout is a file: its size after what was written, up to the last line, as its reader will find it."""
    run(f"""
relay.finish()
out = os.open("{tmp_path}/MAIN.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(out, b"before\\n")
os.dup2(out, 1), os.dup2(out, 2)
from pathlib import Path
relay = LogPump("MAIN", times=Path("{tmp_path}/MAIN.times"))
script("echo one").wait()
script("sleep 0.2; printf two").wait()
relay.finish()
""")
    assert (tmp_path / "MAIN.log").read_text() == "before\none\ntwo\n"
    noted = [*read_times(tmp_path / "MAIN.times")]
    assert [size for _, size in noted][-1] == 15
    assert 11 in [size for _, size in noted]
    assert all(abs(moment / 1000 - time.time()) < 60 for moment, _ in noted)
