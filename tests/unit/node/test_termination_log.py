"""What a node tells who cannot reach the cluster dir: TERMINATION_LOG, and lines in main's log."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.fake_cluster import KEY, LAUNCH, MakeNode, Node, messages
from unit.node.fake_lives import Launch, term

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import LIFE, READY, STOP, exit_file
from oci_cluster.contract.outcome import Outcome, exit_fields, stop_fields
from oci_cluster.errors import SettingsError
from oci_cluster.node import termination_message
from oci_cluster.node.start import run_agent

pytestmark = pytest.mark.usefixtures("empty_memory")
WORKER = {"MODE": "WORKER", "NODE_RANK": "2", "NODE_ADDRESS": "10.0.0.3"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where last words go."""
    return tmp_path / "termination-log"


def told(lines: list[str], place: Path) -> dict[str, dict[str, Any]]:
    """Return what is in *lines*, as any reader of the cluster dir takes it."""
    place.mkdir(exist_ok=True)
    found = {}
    for line in lines:
        name, _, text = line.partition(" ")
        (place / name).write_text(text)
        fields = ClusterDir(f"file://{place}", LAUNCH, KEY).read(name)
        assert fields is not None, line
        found[name] = fields
    return found


def words(path: Path) -> dict[str, dict[str, Any]]:
    text = path.read_text()
    assert len(text.encode()) <= 4096
    assert text.endswith("\n")
    return told(text.splitlines(), path.parent / "read")


def test_a_node_writes_how_it_has_ended(make: MakeNode, path: Path) -> None:
    """Signed as its exit file is; a worker says nothing of the cluster."""
    worker = make(**WORKER, TERMINATION_LOG=str(path))
    worker.main_lives()
    worker.publish(STOP, at=30, reason="the entry point: exit code 7", exit_code=7)
    assert worker.run() == 7
    found = words(path)
    assert list(found) == [exit_file("WORKER_2")]
    kept = worker.read(exit_file("WORKER_2"))
    same = ("exit_code", "reason", "attempt", "has_left", "launch_id", "schema")
    assert [found[exit_file("WORKER_2")][name] for name in same] == [kept[name] for name in same]


def test_main_writes_how_the_cluster_has_ended_too(make: MakeNode, path: Path) -> None:
    """In one file, whichever node's it is that people look at."""
    main = make(TERMINATION_LOG=str(path))
    main.ready_at_once()
    main.child_ends(7, at=20)
    assert main.run() == 7
    found = words(path)
    assert list(found) == [exit_file("MAIN"), STOP]
    assert {fields["exit_code"] for fields in found.values()} == {7}
    assert found[STOP]["reason"] == main.read(STOP)["reason"]


def test_outputs_that_could_not_be_uploaded_are_mains_end_and_not_the_clusters(make: MakeNode, path: Path) -> None:
    """As the files of the cluster dir have it."""
    main = make(TERMINATION_LOG=str(path))
    main.ready_at_once()
    main.children.upload_code = 1
    main.child_ends(0, at=20)
    assert main.run() == 69
    assert [fields["exit_code"] for fields in words(path).values()] == [69, 0]


def test_an_interrupted_main_says_nothing_of_the_launchs_end(launch: Launch, path: Path) -> None:
    """It begins again; and its words carry the life."""
    main = launch.main(TERMINATION_LOG=str(path))
    term(main, at=20)
    assert main.run() == 143
    found = words(path)
    assert list(found) == [exit_file("MAIN")]
    assert found[exit_file("MAIN")]["interrupted"] is True
    assert found[exit_file("MAIN")]["life"] == main.read(LIFE)["life"]


def test_what_ends_a_node_before_it_has_joined_is_told(make: MakeNode, path: Path) -> None:
    """Storage, or main, has never answered."""
    worker = make(**WORKER, TERMINATION_LOG=str(path), TIMEOUT="5", WORK_DIR="main://main-0:7000")
    worker.cluster_dir.fault = SettingsError("of another version")
    assert worker.run() == 78
    assert words(path)[exit_file("WORKER_2")]["reason"] == "of another version"


@pytest.mark.parametrize(("index", "files"), [("0", ["MAIN_exit.json", "stop"]), ("2", ["WORKER_2_exit.json"])])
def test_bad_settings_are_told(path: Path, index: str, files: list[str]) -> None:
    """By who has an index alone, too: the reason is the whole message, as far as there is room."""
    environ = {
        "JOB_COMPLETION_INDEX": index,
        "WORKER_COUNT": "three",
        "LAUNCH_ID": LAUNCH,
        "LAUNCH_KEY": KEY,
        "TERMINATION_LOG": str(path),
    }
    with pytest.raises(SettingsError):
        run_agent(environ)
    found = words(path)
    assert list(found) == files
    assert found[files[0]]["exit_code"] == 78
    assert "WORKER_COUNT: 'three' is not a whole number" in found[files[0]]["reason"]


@pytest.mark.parametrize("lacks", ["LAUNCH_ID", "JOB_COMPLETION_INDEX"])
def test_who_has_no_name_tells_nothing(path: Path, lacks: str) -> None:
    """Nobody could know of which node, or launch, it is."""
    environ = {"JOB_COMPLETION_INDEX": "1", "LAUNCH_ID": LAUNCH, "TERMINATION_LOG": str(path)}
    with pytest.raises(SettingsError):
        run_agent({name: text for name, text in environ.items() if name != lacks})
    assert not path.exists()


@pytest.mark.parametrize("reason", ["x" * 5000, "\N{SNOWMAN}" * 5000, '"\\' * 3000, "\N{GRINNING FACE}" * 1000, ""])
def test_long_reasons_are_cut_before_they_are_signed(path: Path, reason: str) -> None:
    """Both lines fit into 4,096 bytes, whole; they are as long as that allows."""
    cluster_dir = ClusterDir("file:///", LAUNCH, KEY)
    cluster_dir.enter_life("1" * 32)
    outcome = Outcome(7, reason)
    termination_message.write(
        str(path), cluster_dir, {"MAIN_exit.json": exit_fields(outcome, time=1.0), STOP: stop_fields(outcome)}
    )
    found = words(path)
    assert len({fields["reason"] for fields in found.values()}) == 1
    assert bool(found[STOP]["reason"]) == bool(reason)
    assert len(reason) < 1000 or len(found[STOP]["reason"]) == 1000 or len(path.read_bytes()) > 4000


def test_a_file_that_is_mounted_is_written_in_place(make: MakeNode, path: Path) -> None:
    """Longer words of before do not show through, and it is the same file."""
    path.write_text("x" * 4096)
    before = path.stat().st_ino
    main = make(TERMINATION_LOG=str(path))
    main.child_ends(7, at=20)
    assert main.run() == 7
    assert path.stat().st_ino == before
    assert words(path)


def test_a_file_that_cannot_be_written_changes_nothing(
    make: MakeNode, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the code nor the teardown; nor does a pipe that nobody reads hold it up."""
    for place in (path.parent / "absent" / "log", path):
        if place == path:
            os.mkfifo(path)
        main = make(TERMINATION_LOG=str(place))
        main.child_ends(7, at=20)
        assert main.run() == 7
        assert messages(caplog, f"TERMINATION_LOG {place} cannot be written: ")


# --- Lines in main's log --------------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "told"]


def test_main_tells_that_the_cluster_is_ready(make: MakeNode, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With its facts, as they may be seen; and at last of the end, before the others leave."""
    caplog.set_level(logging.INFO)
    main = make(TERMINATION_LOG=str(path))
    main.children.on_start = lambda _: (main.node_dir / "ready").write_text("dashboard=http://me:secret@10.0.0.1/\n")
    main.child_ends(0, at=20)
    assert main.run() == 0
    line, end = lines(caplog)
    assert told([end[5:]], path.parent / "lines")[STOP]["exit_code"] == 0
    assert line.startswith(f"told {READY} {{")
    assert told([line[5:]], path.parent / "lines")[READY]["facts"] == {"dashboard": "http://***@10.0.0.1/"}


def test_main_tells_of_each_life(launch: Launch, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without its answers: nobody who reads it proves anything by them."""
    caplog.set_level(logging.INFO)
    main = launch.main(TERMINATION_LOG=str(path))
    term(main, at=20)
    assert main.run() == 143
    life = told([lines(caplog)[0][5:]], path.parent / "lines")[LIFE]
    assert (life["number"], life["life"]) == (1, main.read(LIFE)["life"])
    assert "answers" not in life


def test_nothing_is_told_where_nobody_asks(main: Node, caplog: pytest.LogCaptureFixture) -> None:
    """The cluster dir has it all."""
    caplog.set_level(logging.INFO)
    main.ready_at_once()
    main.child_ends(0, at=20)
    assert main.run() == 0
    assert lines(caplog) == []


def test_facts_that_are_too_long_for_a_line_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """A pipe takes 4,096 bytes in one piece: what the script prints must not come in between."""
    caplog.set_level(logging.INFO)
    termination_message.tell(ClusterDir("file:///", LAUNCH, KEY), READY, facts={"a": "x" * 5000})
    (line,) = lines(caplog)
    assert "facts" not in json.loads(line.partition(" {")[2].join(["{", ""]))


def test_a_told_line_goes_through_the_relay_as_it_is(tmp_path: Path) -> None:
    """No time stands before it, and nothing in it is taken for a password: a changed one is not signed."""
    code = (
        "import logging, sys\n"
        "from oci_cluster.node.logs.pump import LogPump\n"
        "from oci_cluster.system.redaction import RedactingFormatter\n"
        "handler = logging.StreamHandler()\n"
        "handler.setFormatter(RedactingFormatter('%(asctime)s %(name)s: %(message)s'))\n"
        "logging.basicConfig(level=logging.INFO, handlers=[handler])\n"
        "relay = LogPump('MAIN')\n"
        "print('half a line', end='', flush=True)\n"
        "logging.getLogger('told').info('told x {\"a\": \"http://me:word@host\"}')\n"
        "relay.finish()\n"
    )
    environ = {"PYTHONPATH": str(Path(termination_message.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == 'half a line\ntold x {"a": "http://me:word@host"}\n'
