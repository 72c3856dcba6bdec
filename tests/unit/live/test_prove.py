"""The proof of check.sh --live: real sockets on this machine, and nodes that are threads."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROVE = Path(__file__).resolve().parents[3] / "common" / "live" / "prove.py"


@pytest.fixture
def prove(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the script as a module, on a node that is main; what it listens on is closed."""
    spec = importlib.util.spec_from_file_location("prove", PROVE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in {
        "NODE_NAME": "MAIN",
        "NODE_ADDRESS": "127.0.0.1",
        "MAIN_ADDRESS": "127.0.0.1",
        "LAUNCH_KEY": "5eed",
    }.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(module, "CONNECT_S", 0.5)
    monkeypatch.setattr(module, "MEET_S", 5.0)
    yield module
    for server in vars(sys).pop("live_servers", []):
        server.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_each_setting_has_a_port_on_which_somebody_listens(prove: Any) -> None:
    """One that is taken is the framework's own; of a range it is the first that is free."""
    with socket.create_server(("127.0.0.1", 0)) as own:
        taken = own.getsockname()[1]
        found = prove.open_ports(f"OWN_PORT={taken} RANGE_PORTS={taken}:{min(taken + 50, 65535)}")
        assert found["OWN_PORT"] == taken
        assert taken < found["RANGE_PORTS"] <= taken + 50
        assert prove.reach("127.0.0.1", found) == {"OWN_PORT": "", "RANGE_PORTS": ""}
    assert list(prove.open_ports("")) == ["ANY_PORT"]


def test_a_port_that_cannot_be_had_is_no_proof(prove: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another reason than that it is taken ends the script."""
    monkeypatch.setenv("NODE_ADDRESS", "192.0.2.1")
    with pytest.raises(OSError, match="assign"):
        prove.open_ports("A_PORT=0")


def test_a_port_that_is_not_reached_is_told_with_why(prove: Any, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    results = prove.reach("127.0.0.1", {"A_PORT": port})
    assert prove.tell("MAIN", "WORKER_1", {"A_PORT": port}, results) is False
    shown = capsys.readouterr().out
    assert shown.startswith(f"live: fails from MAIN to WORKER_1: A_PORT {port}: ")
    assert "refused" in shown


_THREADS: list[threading.Thread] = []


def _at_once(make: Any, then: Any) -> Any:
    """Return *make*, after which *then* is done in a thread."""

    def made(*words: Any) -> Any:
        server = make(*words)
        _THREADS.append(threading.Thread(target=then))
        _THREADS[-1].start()
        return server

    return made


def run_both(prove: Any, workers: int, ports: str) -> tuple[bool, list[bool]]:
    """Have main and *workers* meet; return what each says."""
    meeting, said = free_port(), []
    threads = [threading.Thread(target=lambda: said.append(prove.as_worker(meeting))) for _ in range(workers)]
    for thread in threads:
        thread.start()
    found = prove.as_main(ports, meeting, workers)
    for thread in threads:
        thread.join()
    return found, said


def test_main_and_workers_prove_it_both_ways(prove: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """They meet on a port of main's; a worker does what main asks."""
    assert run_both(prove, 2, "") == (True, [True, True])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("live: fine from MAIN to MAIN: ANY_PORT ") for line in lines)


def test_who_has_not_the_launchs_key_is_no_worker(prove: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it says nothing, anything, or what main itself has said: it is told nothing, and a worker still comes."""
    monkeypatch.setattr(prove, "PROOF_S", 0.2)
    heard: list[bytes] = []
    meeting = free_port()

    def stranger(says: str) -> None:
        with socket.create_connection(("127.0.0.1", meeting), 5) as line, line.makefile("rb") as file:
            question = file.readline()
            if says == "echo":
                line.sendall(question)
                line.sendall(file.readline())
            elif says:
                line.sendall(says.encode("latin1"))
            line.settimeout(5)
            with contextlib.suppress(OSError):  # it hangs up
                heard.append(file.read())

    def come() -> None:
        for says in ("", "\n\n", "echo", "x" * 1000, "\xff\n\xff\n", '["open", ""]\n["open", ""]\n'):
            stranger(says)
        said.append(prove.as_worker(meeting))

    said: list[bool] = []
    monkeypatch.setattr(prove.socket, "create_server", _at_once(prove.socket.create_server, come))
    assert prove.as_main("", meeting, 1)
    _THREADS.pop().join()
    assert said == [True]
    assert not [text for text in heard if b"[" in text], heard


def test_a_worker_obeys_nobody_else(prove: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that listens on main's address before main does, or in its place."""
    monkeypatch.setattr(prove, "MEET_S", 0.0)
    monkeypatch.setattr(prove, "PROOF_S", 0.5)
    obeyed: list[object] = []
    monkeypatch.setattr(prove.Peer, "open", lambda *words: obeyed.append(words))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def be_main() -> None:
            connection = server.accept()[0]
            with connection:
                connection.sendall(b"00\n" + b"11\n" + b'["open", ""]\n')
                with contextlib.suppress(OSError):
                    connection.recv(1000)

        thread = threading.Thread(target=be_main)
        thread.start()
        assert not prove.as_worker(server.getsockname()[1])
        thread.join()
    assert obeyed == []


def test_one_way_that_fails_is_enough(prove: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what comes after it is looked at all the same."""
    ways = [{"ANY_PORT": "timed out"}, {"ANY_PORT": ""}]
    monkeypatch.setattr(prove, "reach", lambda *_: ways.pop(0))
    assert run_both(prove, 1, "") == (False, [True])
    assert ways == []


def test_a_worker_that_does_not_find_main_says_so(
    prove: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prove, "MEET_S", -1.0)
    monkeypatch.setenv("NODE_NAME", "WORKER_1")
    assert prove.as_worker(free_port()) is False
    assert capsys.readouterr().out.startswith("live: fails from WORKER_1 to MAIN: the meeting ")


@pytest.mark.parametrize(
    ("environ", "called", "code"),
    [
        ({"MODE": "MAIN"}, "with_peers", 0),
        ({"MODE": "MAIN"}, "as_main", 0),
        ({"MODE": "WORKER"}, "as_worker", 0),
        ({"MODE": "WORKER"}, "", 1),
        ({"MODE": "MAIN", "LOCAL_RANK": "1"}, "none", 0),
    ],
)
def test_each_node_does_its_part(
    prove: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, environ: dict[str, str], called: str, code: int
) -> None:
    """One process of it; and each leaves a file in the work dir."""
    given = {
        "LIVE_PORTS": "A_PORT=1",
        "LIVE_MEETING": "2",
        "WORKER_COUNT": "1",
        "OUTPUT_DIR": str(tmp_path / "outputs"),
    }
    (tmp_path / "outputs").mkdir()
    for name, text in {**given, **environ}.items():
        monkeypatch.setenv(name, text)
    if called == "with_peers":
        (tmp_path / "beside").mkdir()
        (tmp_path / "beside" / "peers.py").touch()
        monkeypatch.setattr(prove, "__file__", str(tmp_path / "beside" / "prove.py"))
    made: list[str] = []
    for name in ("with_peers", "as_main", "as_worker"):
        monkeypatch.setattr(prove, name, lambda *_, name=name: made.append(name) or bool(called))
    assert prove.main() == code
    if called == "none":
        assert (made, list((tmp_path / "outputs").iterdir())) == ([], [])
    else:
        assert made == [called or "as_worker"]
        assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["proved-by-MAIN"]


def test_a_framework_takes_the_proof_to_its_workers(prove: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, also behind one that is not reached."""
    made = ModuleType("peers")
    made.callers = lambda peer: [getattr(peer(), "no such", None), lambda m, *a: getattr(peer(), m)(*a)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "peers", made)
    seen: list[Any] = []
    monkeypatch.setattr(prove, "with_peer", lambda call, _wanted: seen.append(call) or call is not None)
    assert prove.with_peers("") is False
    assert len(seen) == 2
