"""What nodes print: copied to the cluster dir by a node, and from there by the launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oci_cluster import node_logs
from oci_cluster.errors import StorageError
from oci_cluster.exchange import Exchange
from oci_cluster.node_logs import NodeLogs

pytestmark = pytest.mark.usefixtures("empty_memory")

# --- A node's own ---------------------------------------------------------------------------------------------------

# A process whose stdout is its own to give away. `wait_for` polls what tee has written.
PRELUDE = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from oci_cluster import node_logs
from oci_cluster.errors import StorageError
from oci_cluster.exchange import Exchange
from oci_cluster.node_logs import OwnLog

class Noting(Exchange):
    written = []
    def write_bytes(self, name, body):
        self.written.append((name.rpartition(".")[0].rpartition(".")[2], len(body)))
        super().write_bytes(name, body)

exchange = Noting("file://" + os.getcwd() + "/c1", "1f2e")
exchange.create()
now = 0.0

def wait_for(size):
    deadline = time.monotonic() + 20
    while own._path.stat().st_size < size:
        assert time.monotonic() < deadline, own._path.read_bytes()
        select_nothing()

def select_nothing():
    import select
    select.select([], [], [], 0.005)

def shipped():
    return b"".join(path.read_bytes() for path in sorted(Path("c1/logs").glob("*"))).decode()

def note(value):
    Path("notes").write_text(json.dumps(value))
"""
BEGIN = 'own = OwnLog("1f2e", "WORKER_1", clock=lambda: now)\n'


class Node:
    """A process that runs a few lines of Python, and what it has left."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "tmp").mkdir()
        self.environ = {
            "PATH": "/usr/bin:/bin",
            "TMPDIR": str(place / "tmp"),
            "PYTHONPATH": str(Path(node_logs.__file__).parents[1]),
            # With the test's coverage, where that is measured.
            **{key: text for key, text in os.environ.items() if key.startswith("COVERAGE_")},
        }

    def start(self, lines: str, begin: str = BEGIN) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-u", "-c", f"{PRELUDE}{begin}{lines}"],
            cwd=self.place,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, lines: str, begin: str = BEGIN) -> str:
        """Return what it has printed."""
        process = self.start(lines, begin)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        return out

    def log(self) -> str:
        """Return what is in the cluster dir."""
        return "".join(path.read_text() for path in self.parts())

    def parts(self) -> list[Path]:
        return sorted((self.place / "c1" / "logs").glob("*"))

    def notes(self) -> Any:
        return json.loads((self.place / "notes").read_text())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_all_that_a_node_prints_is_in_the_cluster_dir(node: Node) -> None:
    """Its own lines and its children's, of stdout and stderr; and still on its stdout, where an engine looks for it."""
    out = node.run("""
print("one")
subprocess.run(["sh", "-c", "echo two; echo three >&2"], check=True)
sys.stderr.write("four\\n")
own.finish(exchange)
own.close()
""")
    assert (out, node.log()) == ("one\ntwo\nthree\nfour\n",) * 2
    assert list((node.place / "tmp").iterdir()) == []


def test_a_logs_name_tells_node_beginning_and_part(node: Node) -> None:
    """In the order of their names the parts are the log; a replacement's begin later."""
    node.run('print("x")\nown.finish(exchange)\nown.close()')
    (part,) = node.parts()
    assert node_logs._PART.fullmatch(part.name)
    assert part.name.startswith("WORKER_1.")
    assert part.name.endswith(".000000.log")


def test_what_comes_after_the_end_is_printed_only(node: Node) -> None:
    """The node's stdout is its own again, and its stderr."""
    process = node.start("""
print("in the log")
own.finish(exchange)
print("after it")
sys.stderr.write("to stderr\\n")
own.close()
""")
    out, err = process.communicate(timeout=60)
    assert (out, err, node.log()) == ("in the log\nafter it\n", "to stderr\n", "in the log\n")


def test_a_log_is_in_parts(node: Node) -> None:
    """The last part is written again, whole, until it is full; a full one never again."""
    node.run(
        """
def more(count):
    global now, total
    sys.stdout.write("x" * count)
    total += count
    wait_for(total)
    now += 1
    if own.is_due():
        own.ship(exchange)

total = 0
for count in (60, 39, 1, 250, 10):
    more(count)
own.finish(exchange)
note(exchange.written)
own.close()
""",
        f"node_logs.PART_BYTES = 100\n{BEGIN}",
    )
    assert node.notes() == [
        ["000000", 60], ["000000", 99], ["000000", 100],
        ["000001", 100], ["000002", 100], ["000003", 50], ["000003", 60],
    ]  # fmt: skip
    assert [path.stat().st_size for path in node.parts()] == [100, 100, 100, 60]


def test_what_has_not_changed_is_not_written_again(node: Node) -> None:
    """A silent node costs no request."""
    node.run("""
print("x")
wait_for(2)
for now in (1.0, 2.0, 3.0):
    if own.is_due():
        own.ship(exchange)
own.finish(exchange)
note(exchange.written)
own.close()
""")
    assert node.notes() == [["000000", 2]]


def test_young_nodes_are_written_every_second_and_others_every_five(node: Node) -> None:
    """However often the agent looks around."""
    node.run("""
times = []
own._shipped = -1  # there is always something
while now < 75:
    if own.is_due():
        times.append(now)
    now += 0.5
note(times)
own.close()
""")
    assert node.notes() == [*range(60), 60, 65, 70]


def test_storage_that_fails_costs_no_line(node: Node) -> None:
    """What could not be written is written later, once."""
    node.run(
        """
def fail(name, body):
    raise StorageError("no route to storage")

def attempt(function):
    try:
        function(exchange)
    except StorageError:
        failed.append(1)

failed = []
write = exchange.write_bytes
for number in range(40):
    print(f"line {number:03}")
    wait_for(9 * (number + 1))
    now += 5
    exchange.write_bytes = fail if number % 3 else write
    attempt(own.ship)
exchange.write_bytes = fail
attempt(own.finish)
exchange.write_bytes = write
attempt(own.finish)
note(len(failed))
own.close()
""",
        f"node_logs.PART_BYTES = 50\n{BEGIN}",
    )
    assert node.log() == "".join(f"line {number:03}\n" for number in range(40))
    assert node.notes() > 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_last_words_of_a_group_that_is_told_to_end_are_kept(node: Node, number: signal.Signals) -> None:
    """Some engines send TERM to all processes of a container: what copies the log is not ended by it."""
    process = node.start("""
told = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: told.append(number))
print("begun")
while not told:
    select_nothing()
print("last words")
own.finish(exchange)
own.close()
""")
    assert process.stdout
    assert process.stdout.readline() == "begun\n"
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("last words\n", "", 0)
    assert node.log() == "begun\nlast words\n"


def test_a_process_that_stays_is_not_waited_for_for_ever(node: Node) -> None:
    """What has left the node's group may hold its stdout: what was printed until then is there."""
    process = node.start(
        """
daemon = subprocess.Popen(["sleep", "100"], start_new_session=True)
print("x")
wait_for(2)
own.finish(exchange)
daemon.kill()
own.close()
""",
        f"node_logs._LAST_LINES_S = 0.05\n{BEGIN}",
    )
    process.communicate(timeout=60)
    assert (process.returncode, node.log()) == (0, "x\n")


def test_nothing_is_lost_where_many_files_are_open(node: Node) -> None:
    """An engine may leave descriptors to its containers; a shell knows those of one digit alone."""
    out = node.run(
        'print("one")\nown.finish(exchange)\nown.close()',
        f"files = [os.open('/dev/null', os.O_RDONLY) for _ in range(12)]\n{BEGIN}",
    )
    assert (out, node.log()) == ("one\n", "one\n")
    assert sorted(path.name for path in node.place.iterdir()) == ["c1", "tmp"]


def test_the_copying_process_is_no_child(node: Node) -> None:
    """The agent ends what is left of its own: that must not be what copies its last words."""
    node.run("""
import psutil
print("x")
wait_for(2)
note([child.name() for child in psutil.Process().children(recursive=True)])
own.finish(exchange)
own.close()
""")
    assert node.notes() == []


# --- The launcher's copy --------------------------------------------------------------------------------------------


class Copy:
    """Logs in a cluster dir, and what is copied of them."""

    def __init__(self, url: str, place: Path) -> None:
        self.exchange = Exchange(url, "1f2e")
        self.place = place
        self.logs = NodeLogs(self.exchange, place)

    def leave(self, name: str, text: str) -> None:
        self.exchange.write_bytes(f"logs/{name}", text.encode())

    def fetch(self) -> tuple[list[str], dict[str, str]]:
        nodes = self.logs.fetch()
        return nodes, {path.name: path.read_text() for path in sorted(self.place.iterdir())}


@pytest.fixture(params=["file", "memory"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Copy:
    (tmp_path / "copy").mkdir()
    return Copy(f"file://{tmp_path}/c1" if request.param == "file" else "memory://work/c1", tmp_path / "copy")


FIRST = "1700000000000"


def test_a_cluster_that_has_printed_nothing_has_no_logs(copy: Copy) -> None:
    """That is no failure."""
    assert copy.fetch() == ([], {})


def test_only_what_is_new_is_copied(copy: Copy) -> None:
    """A part grows, the next begins; the copy grows with them."""
    copy.leave(f"MAIN.{FIRST}.000000.log", "one\n")
    looks = [copy.fetch()[1]]
    looks.append(copy.fetch()[1])
    copy.leave(f"MAIN.{FIRST}.000000.log", "one\ntwo\n")
    looks.append(copy.fetch()[1])
    copy.leave(f"MAIN.{FIRST}.000000.log", "one\ntwo\nthree")
    copy.leave(f"MAIN.{FIRST}.000001.log", "\nfour\n")
    copy.leave(f"WORKER_12.{FIRST}.000000.log", "worker\n")
    nodes, last = copy.fetch()
    assert looks == [{"MAIN.log": "one\n"}, {"MAIN.log": "one\n"}, {"MAIN.log": "one\ntwo\n"}]
    assert (nodes, last) == (
        ["MAIN", "WORKER_12"],
        {"MAIN.log": "one\ntwo\nthree\nfour\n", "WORKER_12.log": "worker\n"},
    )


def test_what_is_not_new_is_not_read(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is read from where the last look has ended."""
    asked: list[tuple[str, int]] = []
    read = copy.exchange.read_bytes
    monkeypatch.setattr(
        copy.exchange, "read_bytes", lambda name, start: (asked.append((name, start)), read(name, start))[1]
    )
    copy.leave(f"MAIN.{FIRST}.000000.log", "one\n")
    copy.fetch()
    copy.fetch()
    copy.leave(f"MAIN.{FIRST}.000000.log", "one\ntwo\n")
    copy.fetch()
    assert [start for _, start in asked] == [0, 4]


def test_a_replaced_node_has_one_log(copy: Copy) -> None:
    """The lines of its replacement follow its own."""
    copy.leave("WORKER_1.1700000000000.000000.log", "first\n")
    copy.leave("WORKER_1.1700000099999.000000.log", "second\n")
    assert copy.fetch() == (["WORKER_1"], {"WORKER_1.log": "first\nsecond\n"})


@pytest.mark.parametrize(
    "name",
    [
        "MAIN.log", f"MAIN.{FIRST}.0.log", f"MAIN.{FIRST}.000000.log.sh", f"main.{FIRST}.000000.log", "notes.txt",
        f"WORKER_0.{FIRST}.000000.log", f"WORKER_1\n.{FIRST}.000000.log", f"..{FIRST}.000000.log",
        f"WORKER_1234567.{FIRST}.000000.log", f"MAIN.{FIRST}.000000.log\n", f"PS_.{FIRST}.000000.log",
        f"OTHER_1.{FIRST}.000000.log",
    ],
)  # fmt: skip
def test_what_is_no_nodes_log_is_not_copied(copy: Copy, name: str) -> None:
    """Whoever can write to the bucket chooses names: none becomes a file here but a node's."""
    copy.leave(name, "hostile\n")
    copy.leave(f"MAIN.{FIRST}.000000.log", "one\n")
    assert copy.fetch() == (["MAIN"], {"MAIN.log": "one\n"})


def test_a_folder_among_the_logs_is_none(copy: Copy) -> None:
    """Only files are logs."""
    copy.exchange.write_bytes(f"logs/MAIN.{FIRST}.000000.log/x", b"1")
    assert copy.fetch() == ([], {})


def test_a_look_that_storage_did_not_answer_is_made_up_for(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was copied before stays, what was not comes with the next look; nothing comes twice."""
    for node in ("MAIN", "WORKER_1", "WORKER_2"):
        copy.leave(f"{node}.{FIRST}.000000.log", f"{node} one\n")
    read = copy.exchange.read_bytes

    def fail(name: str, start: int) -> bytes:
        if "WORKER_1" in name:
            raise StorageError("no route to storage")
        return read(name, start)

    monkeypatch.setattr(copy.exchange, "read_bytes", fail)
    with pytest.raises(StorageError):
        copy.fetch()
    monkeypatch.setattr(copy.exchange, "read_bytes", read)
    assert copy.fetch()[1] == {f"{node}.log": f"{node} one\n" for node in ("MAIN", "WORKER_1", "WORKER_2")}


def test_a_part_that_goes_while_it_is_looked_at_is_no_failure(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deletes the cluster meanwhile."""
    copy.leave(f"MAIN.{FIRST}.000000.log", "one\n")
    monkeypatch.setattr(
        copy.exchange, "sizes", lambda _: {f"MAIN.{FIRST}.000000.log": 4, f"PS_9.{FIRST}.000000.log": 9}
    )
    nodes, files = copy.fetch()
    assert (nodes, files["MAIN.log"], files.get("PS_9.log", "")) == (["MAIN", "PS_9"], "one\n", "")
