"""A work dir on an FTP server: one connection, which a late answer breaks, and refusals that are no answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import fsspec.config
import pytest
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.lives import read_life
from oci_cluster.errors import StorageError
from oci_cluster.node.begin.life import LedLife

if TYPE_CHECKING:
    from oci_cluster.node.loop import NodeLoop


class Server(FTPHandler):
    """A server that fails to answer, once, where a test says so."""

    #: The command that gets no answer, or the answer there instead of its own.
    swallows = ""
    answers: tuple[str, str] | None = None

    def process_command(self, cmd: str, *arguments: object, **options: object) -> None:
        kind = type(self)
        if kind.swallows == cmd:
            kind.swallows = ""
        elif kind.answers and kind.answers[0] == cmd:
            text, kind.answers = kind.answers[1], None
            self.respond(text)
        else:
            super().process_command(cmd, *arguments, **options)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a cluster dir on a server of its own, whose clients wait half a second for an answer."""
    authorizer = DummyAuthorizer()
    authorizer.add_user("node", "word", str(tmp_path), perm="elradfmwMT")
    monkeypatch.setattr(Server, "authorizer", authorizer)
    monkeypatch.setattr(Server, "swallows", "")
    monkeypatch.setattr(Server, "answers", None)
    monkeypatch.setitem(fsspec.config.conf, "ftp", {"timeout": 0.5})
    server = FTPServer(("127.0.0.1", 0), Server)
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            server.serve_forever(timeout=0.02, blocking=False)
        server.close_all()

    serving = threading.Thread(target=serve)
    serving.start()
    yield f"ftp://node:word@127.0.0.1:{server.address[1]}/cluster"
    is_over.set()
    serving.join(10)


@pytest.fixture
def cluster_dir(url: str) -> ClusterDir:
    """Return a cluster dir with one file."""
    cluster_dir = ClusterDir(url, "0" * 8, "key")
    cluster_dir.create()
    cluster_dir.publish("stop", reason="done")
    return cluster_dir


def test_an_arrival_in_the_second_of_the_one_before_is_answered(
    url: str, cluster_dir: ClusterDir, tmp_path: Path
) -> None:
    """Its node was interrupted, and started again, within a second: else it waits until TIMEOUT, and ends with 75."""
    loop = SimpleNamespace(
        cluster_dir=cluster_dir, wait_for=lambda _what, poll: poll(), enter_life=lambda _life, _number: None
    )
    life = LedLife(cast("NodeLoop", loop))
    life.begin()
    node = ClusterDir(url, "0" * 8, "key")

    def arrive() -> int:
        counter = node.publish("WORKER_1_arrival.json")
        os.utime(tmp_path / "cluster" / "WORKER_1_arrival.json", (1_000, 1_000))
        life.note(cluster_dir.listing())
        return counter

    arrive()
    counter = arrive()
    found = read_life(cluster_dir)
    assert found is not None
    assert found.answers == {"WORKER_1": counter}


@pytest.mark.parametrize("command", ["MLSD", "PASV", "TYPE"])
def test_an_answer_that_does_not_come_breaks_one_request(cluster_dir: ClusterDir, command: str) -> None:
    """The next one has a connection of its own, and reads its own answer."""
    Server.swallows = command
    with pytest.raises(StorageError, match="timed out"):
        cluster_dir.listing()
    assert Server.swallows == ""
    assert set(cluster_dir.listing()) == {"stop"}
    assert cluster_dir.is_there("stop")
    assert not cluster_dir.is_there("ready")
    assert (cluster_dir.read("stop") or {})["reason"] == "done"


@pytest.mark.parametrize(
    "answer", ["421 Too many users.", "425 No data connection.", "450 Busy.", "451 Out of memory."]
)
@pytest.mark.parametrize("command", ["MLSD", "PASV"])
def test_a_server_that_cannot_answer_now_has_said_nothing_of_a_file(
    cluster_dir: ClusterDir, command: str, answer: str
) -> None:
    """fsspec reads "no such file" in every refusal, also in those that mean "later"."""
    for ask in (cluster_dir.listing, lambda: cluster_dir.is_there("stop"), lambda: cluster_dir.read("stop")):
        Server.answers = (command, answer)
        with pytest.raises(StorageError, match=answer[:3]):
            ask()
        assert Server.answers is None
    assert cluster_dir.is_there("stop")
