"""What nodes have printed, copied from the cluster dir by the launcher."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.log_times import stamp
from oci_cluster.contract.files.node_logs import PART_BYTES, NodeLogs, sealed
from oci_cluster.errors import StorageError
from oci_cluster.launcher.show.logs import MergedLogs

pytestmark = pytest.mark.usefixtures("empty_memory")


class Copy:
    """Logs in a cluster dir, and what is copied of them."""

    def __init__(self, url: str, place: Path) -> None:
        self.cluster_dir = ClusterDir(url, "1f2e", "5eed")
        self.cluster_dir.create()
        self.place = place
        self.said: list[str] = []
        self.logs = NodeLogs(self.cluster_dir, place, self.said.append)

    def leave(self, name: str, text: str) -> None:
        """Have a node write a part."""
        self.forge(name, sealed(self.cluster_dir, f"logs/{name}", text.encode()))

    def forge(self, name: str, content: bytes) -> None:
        """Have somebody write what they like."""
        self.cluster_dir.write_bytes(f"logs/{name}", content)

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
    read = copy.cluster_dir.read_bytes
    monkeypatch.setattr(
        copy.cluster_dir, "read_bytes", lambda name, start: (asked.append((name, start)), read(name, start))[1]
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


def test_what_no_node_has_signed_is_left_out_and_said_once(copy: Copy) -> None:
    """Whoever can write to the bucket makes no node say anything: by a part of their own, or another one's."""
    one, two = (f"{node}.{FIRST}.000000.log" for node in ("MAIN", "WORKER_1"))
    copy.leave(one, "one\n")
    theirs = copy.cluster_dir.read_bytes(f"logs/{one}", 0)
    for name, content in {
        two: theirs,
        f"MAIN.{FIRST}.000001.log": theirs,
        "MAIN.1600000000000.000000.log": theirs,
        "PS_3.1600000000000.000000.log": b"hello\n",
        "PS_4.1600000000000.000000.log": theirs[:-1],
        "PS_5.1600000000000.000000.log": b"x" + theirs,
        "PS_6.1600000000000.000000.log": theirs.replace(b"one", b"two"),
        "PS_7.1600000000000.000000.log": b"",
    }.items():
        copy.forge(name, content)
    assert [copy.fetch(), copy.fetch()] == [(["MAIN"], {"MAIN.log": "one\n"})] * 2
    first = "MAIN.1600000000000.000000.log"
    assert copy.said == [f"left out of the logs: {first} and others like it, which no node of this launch has signed"]


def test_another_launchs_log_is_left_out(copy: Copy) -> None:
    """Its folder may be the same one: that of a Job whose runs have ended. Its key may be, where people choose it."""
    name = f"logs/MAIN.{FIRST}.000000.log"
    for launch_id, key in (("0000", "5eed"), ("1f2e", "another"), ("1f2e", "")):
        other = ClusterDir(copy.cluster_dir.url, launch_id, key)
        other.write_bytes(name, sealed(other, name, b"x" * len(key)))
        assert copy.fetch() == ([], {})


def test_a_node_goes_on_where_somebody_has_written_into_its_log(copy: Copy) -> None:
    """What it has said before is not said twice, and what it says then is shown."""
    name = f"MAIN.{FIRST}.000000.log"
    copy.leave(name, "one\n")
    copy.fetch()
    copy.forge(name, b"evil\n" * 100)
    assert copy.fetch()[1] == {"MAIN.log": "one\n"}
    copy.leave(name, "one\ntwo\n")
    assert copy.fetch()[1] == {"MAIN.log": "one\ntwo\n"}
    copy.leave(name, "one\ntwo\nthree\n")
    copy.forge(name, copy.cluster_dir.read_bytes(f"logs/{name}", 0).replace(b"one", b"ONE"))
    assert copy.fetch()[1] == {"MAIN.log": "one\ntwo\nthree\n"}  # what is new is what the node has said


def test_what_is_left_out_is_not_read_again(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's file costs one request, not one with each look."""
    asked: list[str] = []
    read = copy.cluster_dir.read_bytes
    monkeypatch.setattr(copy.cluster_dir, "read_bytes", lambda name, start: (asked.append(name), read(name, start))[1])
    copy.forge(f"MAIN.{FIRST}.000000.log", b"evil\n")
    for _ in range(3):
        copy.fetch()
    assert len(asked) == 1


def test_a_full_part_is_read_by_one_request(copy: Copy) -> None:
    """With its seal it has as many bytes as one request brings."""
    text = "x" * (PART_BYTES - 1) + "\n"
    copy.leave(f"MAIN.{FIRST}.000000.log", text)
    assert copy.fetch() == (["MAIN"], {"MAIN.log": text})


def test_a_folder_among_the_logs_is_none(copy: Copy) -> None:
    """Only files are logs."""
    copy.cluster_dir.write_bytes(f"logs/MAIN.{FIRST}.000000.log/x", b"1")
    assert copy.fetch() == ([], {})


def test_a_look_that_storage_did_not_answer_is_made_up_for(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was copied before stays, what was not comes with the next look; nothing comes twice."""
    for node in ("MAIN", "WORKER_1", "WORKER_2"):
        copy.leave(f"{node}.{FIRST}.000000.log", f"{node} one\n")
    read = copy.cluster_dir.read_bytes

    def fail(name: str, start: int) -> bytes:
        if "WORKER_1" in name:
            raise StorageError("no route to storage")
        return read(name, start)

    monkeypatch.setattr(copy.cluster_dir, "read_bytes", fail)
    with pytest.raises(StorageError):
        copy.fetch()
    monkeypatch.setattr(copy.cluster_dir, "read_bytes", read)
    assert copy.fetch()[1] == {f"{node}.log": f"{node} one\n" for node in ("MAIN", "WORKER_1", "WORKER_2")}


def test_a_part_that_goes_while_it_is_looked_at_is_no_failure(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deletes the cluster meanwhile."""
    copy.leave(f"MAIN.{FIRST}.000000.log", "one\n")
    monkeypatch.setattr(
        copy.cluster_dir, "sizes", lambda _: {f"MAIN.{FIRST}.000000.log": 99, f"PS_9.{FIRST}.000000.log": 99}
    )
    nodes, files = copy.fetch()
    assert (nodes, files["MAIN.log"], files.get("PS_9.log", ""), copy.said) == (["MAIN"], "one\n", "", [])


def test_lines_come_with_their_times(copy: Copy) -> None:
    """Over parts, looks and replacements; a part may end within a line, or within its time."""
    begin, end = stamp(1_000), stamp(9_000)
    copy.leave(f"MAIN.{FIRST}.000000.log", (begin + b"one\n" + end[:11]).decode())
    first = copy.fetch()[1]
    copy.leave(f"MAIN.{FIRST}.000001.log", (end[11:] + b"two\n").decode())
    copy.leave("MAIN.1700000099999.000000.log", (stamp(99_000) + b"again").decode())
    last = copy.fetch()[1]
    assert (first["MAIN.log"], last["MAIN.log"]) == ("one\n", "one\ntwo\nagain")
    assert last["MAIN.times"] == "1000 4\n9000 8\n99000 13\n"


def test_a_node_that_lies_about_times_costs_the_others_nothing(copy: Copy) -> None:
    """Not one of its own lines either; those of the others keep their order."""
    lies = [
        "9999-12-31T23:59:59Z huge\n",
        "2026-99-99T00:00:00Z none\n",
        "plain\n",
        stamp(1).decode() + "back\n",
        "end",
    ]
    copy.leave(f"MAIN.{FIRST}.000000.log", (stamp(1_000) + b"one\n" + stamp(9_000) + b"three\n").decode())
    copy.leave(f"WORKER_1.{FIRST}.000000.log", (stamp(5_000) + b"two\n").decode())
    copy.leave(f"WORKER_2.{FIRST}.000000.log", "".join(lies))
    nodes, _ = copy.fetch()
    out = io.StringIO()
    merged = MergedLogs(copy.place, nodes, out)
    merged.copy_old()
    merged.finish()
    shown = [line.partition("| ")[::2] for line in out.getvalue().splitlines()]
    assert [text for node, text in shown if not node.startswith("WORKER_2")] == ["one", "two", "three"]
    assert [text for node, text in shown if node.startswith("WORKER_2")] == [
        "huge", "2026-99-99T00:00:00Z none", "plain", "back", "end",
    ]  # fmt: skip
