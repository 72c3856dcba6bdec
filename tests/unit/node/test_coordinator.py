"""Main as the server of its cluster dir: what nodes get there, and when main may leave. Real connections."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from unit.fake_cluster import KEY, LAUNCH
from unit.node.served_main import Served

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.storage.coordinator import MAX_FILE
from oci_cluster.contract.storage.retry import RequestFailedError
from oci_cluster.errors import StorageError
from oci_cluster.node import coordinator as exchange_module
from oci_cluster.node.coordinator import Coordinator

pytestmark = pytest.mark.usefixtures("connections")

# --- What nodes do --------------------------------------------------------------------------------------------------


def test_nodes_share_the_files_of_main(served: Served) -> None:
    """All that a cluster dir can do, from both sides."""
    worker = served.node()
    worker.create()
    counter = served.main.publish("MAIN_config.json", address="10.0.0.1")
    assert (worker.read("MAIN_config.json") or {})["counter"] == counter
    before = worker.listing()
    worker.publish("WORKER_1_heartbeat.json", beat=1)
    assert set(served.main.listing()) == {"MAIN_config.json", "WORKER_1_heartbeat.json"}
    served.main.publish("MAIN_config.json", address="10.0.0.1")
    assert worker.listing()["MAIN_config.json"] != before["MAIN_config.json"]
    assert (worker.is_there("stop"), worker.is_there("MAIN_config.json"), worker.read("stop")) == (False, True, None)
    worker.remove("MAIN_config.json")
    worker.remove("MAIN_config.json")
    assert list(served.main.listing()) == ["WORKER_1_heartbeat.json"]
    worker.remove_all()
    assert served.main.listing() == worker.listing() == {}


def test_a_file_that_is_written_again_has_another_fingerprint_each_time(served: Served) -> None:
    """The same content, removed and written: the list tells."""
    seen = set()
    for _ in range(3):
        served.main.write_bytes("x", b"same")
        seen.add(served.node().listing()["x"])
    served.main.remove_all()
    served.main.write_bytes("x", b"same")
    assert len(seen | {served.node().listing()["x"]}) == 4


def test_of_several_who_make_a_file_one_does(served: Served) -> None:
    """Claims of ranks rely on it; main may be one of them."""
    nodes = [served.node() for _ in range(8)] + [served.main]
    made: list[int] = []

    def make(number: int) -> None:
        try:
            nodes[number].publish_once("WORKER_1_claim.json", holder=number)
        except StorageError:
            return
        made.append(number)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(len(nodes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert (served.main.read("WORKER_1_claim.json") or {})["holder"] == made[0]


@pytest.mark.parametrize("name", ["../x", "logs/x", ".x", "", "a b", "x" * 256, "a\n"])
def test_there_are_plain_names_alone(served: Served, name: str) -> None:
    """Whoever asks, and however."""
    with pytest.raises(RequestFailedError, match="cannot be the name"):
        served.files().ask({"do": "write", "name": name, "is_new": False}, b"")
    with pytest.raises(ValueError, match="cannot be the name"):
        served.coordinator.memory.ask({"do": "write", "name": name, "is_new": False}, b"")


def test_memory_is_bounded() -> None:
    """By the number of files, by their sizes, and by all of them together; what is replaced makes room."""
    memory = exchange_module.MainMemory(most_files=2, most_bytes=10)
    memory.ask({"do": "write", "name": "a", "is_new": False}, b"12345")
    memory.ask({"do": "write", "name": "b", "is_new": False}, b"12345")
    for name, body in (("c", b""), ("a", b"123456")):
        with pytest.raises(RequestFailedError, match="no room for"):
            memory.ask({"do": "write", "name": name, "is_new": False}, body)
    memory.ask({"do": "write", "name": "a", "is_new": False}, b"")
    memory.ask({"do": "write", "name": "b", "is_new": False}, b"1234567890")
    memory.ask({"do": "remove", "name": "a"})
    memory.ask({"do": "write", "name": "c", "is_new": True}, b"")
    assert [name for name, *_ in json.loads(memory.ask({"do": "list"})[1])] == ["b", "c"]


def test_a_file_has_one_mebibyte_at_most(served: Served) -> None:
    """And that comes through whole."""
    body = os.urandom(MAX_FILE)
    files = served.files()
    files.ask({"do": "write", "name": "big", "is_new": False}, body)
    assert files.ask({"do": "read", "name": "big", "start": 0, "end": None})[1] == body
    assert files.ask({"do": "read", "name": "big", "start": 5, "end": 9})[1] == body[5:9]
    for store in (files, served.coordinator.memory):
        with pytest.raises(RequestFailedError, match="1048577 bytes"):
            store.ask({"do": "write", "name": "big", "is_new": False}, body + b"x")


def test_a_node_connects_again(served: Served) -> None:
    """The failure is one request's; it is no "absent", and what comes after is answered."""
    worker = served.node()
    worker.create()
    for connection in tuple(served.coordinator._proved):
        connection.socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(StorageError, match="it has closed the connection"):
        worker.read("stop")
    assert worker.read("stop") is None


# --- The end --------------------------------------------------------------------------------------------------------


def leave(served: Served, *, lost: tuple[str, ...] = (), is_interruption: bool = False, grace_s: float = 30.0) -> float:
    began_at = time.monotonic()
    served.coordinator.leave(wait=time.sleep, lost=lost, is_interruption=is_interruption, grace_period_s=grace_s)
    return time.monotonic() - began_at


def test_main_leaves_when_the_others_have(ending: Served) -> None:
    """Its last word can be read until then."""
    worker = ending.node()
    worker.publish("WORKER_1_heartbeat.json", beat=1)
    ending.main.publish("stop", exit_code=7)
    assert ending.coordinator.remaining() == ["WORKER_1"]
    read: list[object] = []

    def end() -> None:
        read.append(worker.read("stop"))
        worker._fs._ask.__self__._connection.close()

    threading.Timer(0.3, end).start()
    assert 0.3 <= leave(ending) < 10
    assert read[0]


def test_main_does_not_wait_for_who_is_lost_or_never_leaves(
    ending: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One has said nothing for too long, one is told of in the log."""
    monkeypatch.setattr(exchange_module, "LEAVE_S", 0.2)
    nodes = [ending.node(), ending.node()]
    for rank, node in enumerate(nodes, start=1):
        node.publish(f"WORKER_{rank}_heartbeat.json", beat=1)
    assert ending.coordinator.remaining(("WORKER_2",)) == ["WORKER_1"]
    assert 0.2 <= leave(ending, lost=("WORKER_2",), grace_s=0.1) < 10
    assert [record.getMessage() for record in caplog.records] == ["WORKER_1 had not left 0.3 s after main's last word"]


def test_an_interrupted_main_leaves_when_the_others_have_heard(ending: Served) -> None:
    """They stay connected, and wait for its next life."""
    worker = ending.node()
    ending.main.publish("MAIN_heartbeat.json", phase="ready")
    worker.read("MAIN_heartbeat.json")
    ending.main.publish("MAIN_heartbeat.json", phase="interrupted")
    assert ending.coordinator.remaining(is_interruption=True)
    worker.read("MAIN_heartbeat.json")
    assert ending.coordinator.remaining()
    assert leave(ending, is_interruption=True) < 5


def test_a_node_that_asks_is_connected_all_the_time(served: Served) -> None:
    """Main, in its own thread, must not take it for one that has left: it is not taken out for a moment, either."""
    removed: list[object] = []

    class Watched(dict[Any, Any]):
        def pop(self, *key: Any) -> Any:
            removed.append(key)
            return super().pop(*key)

    worker = served.node()
    worker.create()
    served.coordinator._proved = Watched(served.coordinator._proved)
    assert worker.read("stop") is None
    assert worker.read("stop") is None
    assert removed == []
    assert served.coordinator.remaining() == ["a node without a name"]


def test_a_connection_that_a_node_has_given_up_is_ended(served: Served) -> None:
    """Its machine's network was cut, and the node has come back."""
    old, new = served.node(), served.node()
    for node in (old, new):
        node.publish("WORKER_1_heartbeat.json", beat=1)
    assert served.coordinator.remaining() == ["WORKER_1"]


def test_main_listens_on_several_addresses(served: Served) -> None:
    """What one has written there, another reads here."""
    coordinator = Coordinator(LAUNCH, KEY)
    coordinator.listen(["127.0.0.2", "127.0.0.3"], served.place, nodes=1)
    first, second = (ClusterDir(f"main://127.0.0.{last}:{served.port}/c", LAUNCH, KEY) for last in (2, 3))
    first.publish("WORKER_1_heartbeat.json", beat=1)
    assert (second.read("WORKER_1_heartbeat.json") or {})["beat"] == 1
    coordinator.close()


def test_a_port_that_is_taken_is_named(served: Served) -> None:
    """With the next step."""
    coordinator = Coordinator(LAUNCH, KEY)
    with pytest.raises(StorageError, match=r"127\.0\.0\.1 port \d+ .*in use; .*set another one in WORK_DIR") as caught:
        coordinator.listen(["127.0.0.1"], served.place, nodes=1)
    coordinator.close()
    assert caught.value.exit_code == 69


def test_nodes_on_storage_load_nothing_of_it() -> None:
    """It costs nobody else anything."""
    code = (
        "import sys, oci_cluster.node.start, oci_cluster.node.main, oci_cluster.node.worker\n"
        "from oci_cluster.contract.files.cluster_dir import ClusterDir\n"
        "ClusterDir('file:///tmp', 'x', 'k')\n"
        "print(sorted(name for name in sys.modules if name.rpartition('.')[2] in"
        " {'asyncio', 'exchange', 'main_files', 'last_words', 'socketserver'}))"
    )
    path = str(Path(exchange_module.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.replace("'", '"')) == []


@pytest.mark.parametrize(("soft", "hard", "allowed"), [(64, 128, 128), (64, 512, 256), (300, 512, 300)])
def test_main_opens_as_many_files_as_the_system_lets_it(soft: int, hard: int, allowed: int) -> None:
    """A limit that somebody has set higher stays."""
    code = (
        "import resource\nfrom oci_cluster.node.coordinator import _allow_files\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "_allow_files(256)\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    path = str(Path(exchange_module.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"({allowed}, {hard})\n"
