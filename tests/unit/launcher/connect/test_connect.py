# The verb connect: what it refuses, what it prints, and how long it stays.

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from unit.fake_backend import KEY, LAUNCH, LIMITS
from unit.launcher.door import Door

from oci_cluster.backends.base import DirectConnection
from oci_cluster.contract.cluster import State
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import READY
from oci_cluster.contract.session import TOKEN_FILE, session_token, verifier_of
from oci_cluster.errors import BackendError, StoppedError, UsageError
from oci_cluster.launcher import verbs
from oci_cluster.launcher.connect import connect
from oci_cluster.system import process


class PortForward(DirectConnection):
    """A way that has to be dialled, and whose end is noted."""

    def __init__(self, port: int, ended: list[int]) -> None:
        super().__init__("127.0.0.1", port)
        self.address = ""
        self._ended = ended

    def close(self) -> None:
        self._ended.append(self._place[1])


@pytest.fixture
def server() -> Iterator[int]:
    """Have somebody listen; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def desk(door: Door, server: int, monkeypatch: pytest.MonkeyPatch) -> Door:
    """Return the door with a cluster whose dashboard listens, which this machine reaches by itself."""
    door.run()
    plan = door.backend.plans[LAUNCH]
    door.backend.plans[LAUNCH] = replace(plan, limits=replace(LIMITS, ports={"DASHBOARD_PORT": server}))
    facts = {"dashboard": f"http://10.0.0.1:{server}/status"}
    ClusterDir(plan.url, LAUNCH, KEY).publish(READY, facts=facts)
    monkeypatch.setattr(connect, "PROJECT_ROOT", door.root)
    monkeypatch.setattr(
        door.backend, "port_forward", lambda *words: DirectConnection("127.0.0.1", words[3]), raising=False
    )
    return door


@pytest.fixture
def stay(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Return what has something happen while the verb stays; a signal ends it after that."""

    class Signals:
        received: int | None = None
        during: Callable[[], Any] = lambda: None

        def __init__(self, **_: Any) -> None: ...

        def wait(self, seconds: float) -> None:
            type(self).during()
            self.received = 15

    monkeypatch.setattr(connect, "Signals", Signals)
    assert process.Signals is not Signals
    return lambda during: setattr(Signals, "during", staticmethod(during))


def test_what_this_machine_reaches_itself_is_just_named(
    desk: Door, server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verbs.run("connect", ["mine"]) == 0
    assert capsys.readouterr().out == f"http://127.0.0.1:{server}/status\n"


def test_ports_have_the_names_of_their_settings(desk: Door) -> None:
    plan = desk.backend.plans[LAUNCH]
    plan = replace(plan, limits=replace(LIMITS, ports={"DASHBOARD_PORT": 8787, "TASK_QUEUE_PORT": 1234}))
    connected = connect.Connected(desk.backend, desk.backend.clusters[0], plan, lambda _: None, desk.root)
    assert connected.known_ports() == {"dashboard": 8787, "task-queue": 1234}


def test_a_framework_that_is_in_another_checkout_is_no_matter(
    desk: Door, server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder says which port is for programs outside, which is all that is asked of it."""
    plan = desk.backend.plans[LAUNCH]
    desk.backend.plans[LAUNCH] = replace(plan, framework="theirs")
    assert verbs.run("connect", []) == 0
    assert capsys.readouterr().out == f"http://127.0.0.1:{server}/status\n"


def test_what_it_does_not_is_forwarded_until_a_signal(
    desk: Door,
    server: int,
    stay: Callable[[Callable[[], Any]], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(desk.backend, "port_forward", lambda *words: PortForward(words[3], ended))
    seen = []

    def look() -> None:
        url = capsys.readouterr().out.strip()
        assert not ended
        seen.append(url)
        host, _, port = url.removeprefix("http://").removesuffix("/status").partition(":")
        socket.create_connection((host, int(port)), timeout=10).close()

    stay(look)
    assert verbs.run("connect", ["mine"]) == 0
    assert len(seen) == 1
    assert ended == [server]


def test_several_ports_are_told_with_their_names(
    desk: Door, server: int, stay: Callable[[Callable[[], Any]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert verbs.run("connect", ["mine", "--port", "dashboard", "--port", f"{server + 1}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"dashboard http://127.0.0.1:{server}/status",
        f"{server + 1} http://127.0.0.1:{server + 1}/",
    ]


def test_a_session_is_what_is_meant_and_its_token_is_in_the_url(
    desk: Door, server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = desk.root / "scripts" / "sessions" / "book"
    folder.mkdir(parents=True)
    (folder / "session.env").write_text(
        f"SESSION_PORT={server}\nSESSION_URL='http://127.0.0.1:{{port}}/?t={{token}}'\n"
    )
    plan = desk.backend.plans[LAUNCH]
    desk.backend.plans[LAUNCH] = replace(plan, environment={**plan.environment, "SESSION": "book"})
    assert verbs.run("connect", ["mine"]) == 0
    told = capsys.readouterr()
    assert told.out == f"http://127.0.0.1:{server}/?t={session_token(KEY, LAUNCH)}\n"
    assert session_token(KEY, LAUNCH) not in told.err


def test_a_port_of_a_session_that_is_none_is_its_kinds(
    desk: Door, server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """An image may set it: its nodes refuse it, and who looks at them meets no bug of ours."""
    folder = desk.root / "scripts" / "sessions" / "book"
    folder.mkdir(parents=True)
    (folder / "session.env").write_text(f"SESSION_PORT={server}\nSESSION_URL='http://127.0.0.1:{{port}}/'\n")
    plan = desk.backend.plans[LAUNCH]
    told = {**plan.environment, "SESSION": "book", "SESSION_PORT": "many\x1b[2J"}
    desk.backend.plans[LAUNCH] = replace(plan, environment=told)
    assert verbs.run("connect", ["mine"]) == 0
    assert capsys.readouterr().out == f"http://127.0.0.1:{server}/\n"


def test_a_token_that_is_kept_where_it_was_launched_is_there_alone(
    desk: Door, server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who reads the key of the launch does not get in; another checkout is told where the token is."""
    folder = desk.root / "scripts" / "sessions" / "book"
    folder.mkdir(parents=True)
    url = "'http://127.0.0.1:{port}/?t={token}'"
    (folder / "session.env").write_text(f"SESSION_PORT={server}\nSESSION_URL={url}\n")
    plan = desk.backend.plans[LAUNCH]
    verifier = verifier_of("by-chance")
    told = {**plan.environment, "SESSION": "book", "SESSION_VERIFIER": verifier}
    desk.backend.plans[LAUNCH] = replace(plan, environment=told)
    with pytest.raises(UsageError, match="the token of mine is on the machine that launched it"):
        verbs.run("connect", ["mine"])
    (desk.backend.find("mine")[0].directory / TOKEN_FILE).write_text("by-chance")
    assert verbs.run("connect", ["mine"]) == 0
    assert capsys.readouterr().out == f"http://127.0.0.1:{server}/?t=by-chance\n"


class Noted:
    """A wait in which things happen, one after the other, and at last a signal comes."""

    happens: ClassVar[list[Callable[[], Any]]] = []

    def __init__(self, **_: Any) -> None:
        self.received: int | None = None

    def wait(self, seconds: float) -> None:
        if self.happens:
            self.happens.pop(0)()
        else:
            self.received = 15


@pytest.fixture
def session(desk: Door, server: int, monkeypatch: pytest.MonkeyPatch) -> Door:
    """Return the door with a session whose main waits for a machine; its server listens."""
    folder = desk.root / "scripts" / "sessions" / "book"
    folder.mkdir(parents=True)
    (folder / "session.env").write_text(f"SESSION_PORT={server}\nSESSION_URL='http://127.0.0.1:{{port}}/'\n")
    plan = desk.backend.plans[LAUNCH]
    desk.backend.plans[LAUNCH] = replace(plan, environment={**plan.environment, "SESSION": "book"})
    waits = desk.backend.nodes[LAUNCH]
    waits["MAIN"] = replace(waits["MAIN"], state=State.QUEUED, is_waiting=True, details="2nd of 3 in team-a")
    monkeypatch.setattr(connect, "Signals", Noted)
    Noted.happens = []
    return desk


def test_a_session_that_has_not_started_is_waited_for(
    session: Door, server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """With why, said once; and no longer than a signal lets it."""
    (cluster,) = session.backend.clusters
    Noted.happens = [lambda: None, lambda: session.backend.set_node(cluster, "MAIN", None, is_waiting=False)]
    assert verbs.run("connect", ["mine"]) == 0
    told = capsys.readouterr()
    assert told.out == f"http://127.0.0.1:{server}/\n"
    assert told.err.count("waiting for MAIN of mine to start: 2nd of 3 in team-a") == 1


def test_a_session_that_does_not_start_is_waited_for_until_a_signal(session: Door) -> None:
    with pytest.raises(StoppedError):
        verbs.run("connect", ["mine"])


@pytest.mark.parametrize("words", [["--check"], ["--node", "MAIN", "--check"]])
def test_who_checks_a_session_that_has_not_started_is_told_at_once(session: Door, words: list[str]) -> None:
    Noted.happens = [lambda: pytest.fail("it waited")]
    with pytest.raises(UsageError, match="has not started yet: 2nd of 3 in team-a"):
        verbs.run("connect", ["mine", *words])


def test_a_sessions_server_that_does_not_listen_yet_is_waited_for(
    session: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What starts it may install packages first."""
    session.backend.set_node(session.backend.clusters[0], "MAIN", None, is_waiting=False)
    tries: list[int] = []

    def look(*_: object) -> int:
        tries.append(1)
        if len(tries) < 3:
            msg = "nobody listens"
            raise BackendError(msg)
        return 200

    monkeypatch.setattr(connect, "check_reachable", look)
    Noted.happens = [lambda: None] * 5
    assert verbs.run("connect", ["mine"]) == 0
    told = capsys.readouterr()
    assert (len(tries), told.out.startswith("http://")) == (3, True)
    assert told.err.count("waiting for the session of mine to answer") == 1


@pytest.mark.parametrize(("happens", "error"), [("a signal", StoppedError), ("its end", UsageError)])
def test_a_sessions_server_is_waited_for_no_longer_than_somebody_may_answer(
    session: Door, monkeypatch: pytest.MonkeyPatch, happens: str, error: type[Exception]
) -> None:
    (cluster,) = session.backend.clusters
    session.backend.set_node(cluster, "MAIN", None, is_waiting=False)

    def look(*_: object) -> int:
        msg = "nobody listens"
        raise BackendError(msg)

    monkeypatch.setattr(connect, "check_reachable", look)
    Noted.happens = [] if happens == "a signal" else [lambda: session.backend.set_node(cluster, "MAIN", 0)]
    with pytest.raises(error):
        verbs.run("connect", ["mine"])


def test_a_check_of_what_nobody_answers_fails(desk: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    monkeypatch.setattr(desk.backend, "port_forward", lambda *words: PortForward(words[3], ended))
    with pytest.raises(BackendError, match=f"nobody listens on 127.0.0.1:{port}"):
        verbs.run("connect", ["mine", "--port", str(port), "--check"])
    assert ended == [port]


def test_a_check_of_the_way_for_programs_asks_too_and_names_no_files(
    desk: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those are away when it returns."""
    with (desk.root / "dask" / "settings.env").open("a") as settings:
        settings.write("CLIENT_PORT=DASHBOARD_PORT\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(desk.backend, "port_forward", lambda *_: PortForward(port, []))
        assert verbs.run("connect", ["mine", "--python", "--check"]) == 0
        told = capsys.readouterr()
        assert (told.out, "mine is reachable" in told.err) == ("", True)
    with pytest.raises(BackendError, match=f"nobody listens on 127.0.0.1:{port}"):
        verbs.run("connect", ["mine", "--python", "--check"])


def test_it_ends_with_the_cluster(
    desk: Door, stay: Callable[[Callable[[], Any]], None], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(desk.backend, "port_forward", lambda *words: PortForward(words[3], []))
    monkeypatch.setattr(connect, "_LOOK_HERE_S", 0.0)
    monkeypatch.setattr(
        connect.Signals, "wait", lambda *_: desk.backend.end_nodes(desk.backend.clusters[0]), raising=False
    )
    assert verbs.run("connect", ["mine"]) == 0
    assert "mine has ended" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["mine", "--node", "WORKER_9"], "mine has no node 'WORKER_9'; it has MAIN, WORKER_1"),
        (["mine", "--node", "WORKER_1"], "WORKER_1 of mine has ended: nothing of it can be reached"),
        (["mine", "--port", "jupyter"], "--port jupyter: .* \\(dashboard\\)"),
        (["mine", "--python"], "no program outside connects to dask"),
    ],
)
def test_what_cannot_be_reached_is_refused(desk: Door, words: list[str], why: str) -> None:
    desk.backend.set_node(desk.backend.clusters[0], "WORKER_1", 3)
    with pytest.raises(UsageError, match=why):
        verbs.run("connect", words)


def test_a_cluster_that_has_ended_is_refused(desk: Door) -> None:
    desk.backend.end_nodes(desk.backend.clusters[0])
    with pytest.raises(UsageError, match="mine has ended: nothing of it can be reached"):
        verbs.run("connect", ["mine"])


def test_a_browser_opens_a_private_page(desk: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL in the browser's command line would be seen by everybody on this machine."""
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append((url, read(url))))
    assert verbs.run("connect", ["mine", "--open"]) == 0
    ((url, page),) = opened
    assert url.startswith("file:///")
    assert 'content="0; url=http://127.0.0.1:' in page


def read(url: str) -> str:
    from pathlib import Path  # noqa: PLC0415

    return Path(url.removeprefix("file://")).read_text()
