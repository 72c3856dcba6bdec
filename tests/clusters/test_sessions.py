"""``session.sh`` on this machine: each kind in real use, who gets in, and when it ends."""

from __future__ import annotations

# URLs here are those of servers that the tests have started.
# ruff: noqa: S310
import contextlib
import http.client
import http.cookiejar
import json
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from harness import Launch, Project, is_listening, listening_of, wait_until
from session_client import assert_kept_secret, tab, token_of, url_of
from ssh_client import make_keys, ssh

HELLO = Path(__file__).parent / "hello"
WRONG = "0" * 64


def status(url: str, **headers: str) -> int:
    """Return how a server answers; 0 where none does. Who is sent to Jupyter's page of login is not let in: 403."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return 403 if urlsplit(answer.geturl()).path == "/login" else int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (urllib.error.URLError, ConnectionError):  # that: one that ends has taken the connection
        return 0


def assert_not_seen_by_other_machines(session: Launch) -> None:
    """What listens does so on loopback."""
    assert not [end for end in listening_of(session.launch_id) if not end[1].startswith("127.")]


def assert_idle(session: Launch, project: Project, limit: str) -> None:
    """It has ended by itself, and says why."""
    assert session.wait() == 0, session.err
    assert f"idle for {limit}: the session ends" in session.log("MAIN")
    shown = json.loads(project.run("status", "--json", session.directory.name.rpartition("-")[0]).stdout)
    assert (shown["state"], shown["reason"]) == ("SUCCEEDED", f"idle for {limit}")
    session.assert_nothing_left()
    assert not (session.directory / "session-url").exists()


# --- JupyterLab -----------------------------------------------------------------------------------------------------

COMPUTES = """
import json, os, time
from dask.distributed import Client
client = Client()
where = client.submit(lambda: os.environ["NODE_NAME"]).result()
print(json.dumps([where, client.dashboard_link, os.getcwd(), "LAUNCH_KEY" in os.environ]))
time.sleep(25)
while not os.path.exists("go"): time.sleep(0.05)
open("ended", "w").close()
"""


def test_a_notebook_computes_on_the_cluster_until_nobody_uses_it(project: Project, tmp_path: Path) -> None:
    """The cell takes longer than the limit. After it the session ends, though an open tab still asks for things."""
    (project.code / "mine.txt").write_text("mine")
    session = project.session("jupyter", "book", "--workers", "1", "--idle", "15s")
    url = url_of(session)
    token, server = token_of(url), url.partition("/lab")[0]
    assert "ends after 8h, or after 15s without use" in session.err

    assert [status(f"{server}/api/contents"), status(f"{server}/api/contents?token={WRONG}")] == [403, 403]
    assert status(f"{server}/api/status?token={token}", Host="evil.example") == 403
    assert_not_seen_by_other_machines(session)
    with urllib.request.urlopen(url, timeout=60) as page:
        assert token not in str(page.headers.get_all("Set-Cookie")), "cookies go to every port of this address"
    with tab(session, url, COMPUTES, tmp_path) as printed:
        lines = wait_until(lambda: "[" in printed.read_text() and printed.read_text().splitlines(), printed.read_text)
        node, link, folder, has_key = json.loads(lines[1])
        assert (node, folder, has_key) == ("WORKER_1", str(project.code), False)
        assert link.startswith("/proxy/127.0.0.")
        assert status(f"{server}{link}?token={token}") == 200
        assert status(f"{server}{link}") == 403
        # What is saved is in the user's own folder.
        saved = urllib.request.Request(
            f"{server}/api/contents/new.txt?token={token}",
            json.dumps({"type": "file", "format": "text", "content": "saved"}).encode(),
            method="PUT",
        )
        urllib.request.urlopen(saved, timeout=60).close()
        assert (project.code / "new.txt").read_text() == "saved"
        assert_kept_secret(session, token)
        project.go()
        wait_until(lambda: "reply ok" in printed.read_text(), lambda: f"the cell's end: {session.err}")
        # As an open tab does.
        wait_until(lambda: not status(f"{server}/api/kernels?token={token}"), "an open tab to keep no session", 60.0)
        assert time.time() - (project.code / "ended").stat().st_mtime > 14
    assert_idle(session, project, "15s")


# --- ssh ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Return a folder with the user's key, and a stranger's."""
    make_keys(tmp_path)
    return tmp_path


def test_a_shell_is_the_users_own_and_nobody_elses(project: Project, keys: Path) -> None:
    """Commands, scp, sftp, forwarded ports; another key is refused, and another host is none."""
    mine = keys / "mine"
    (keys / "sent").write_text("sent")
    words = ("--framework", "plain", "--python", sys.executable, "--key", f"{mine}.pub", "--env", "MINE=a b 'c'")
    session = project.session("ssh", "box", "--idle", "10s", *words)
    said = wait_until(lambda: "ssh answers: " in session.err and session.err, lambda: session.err)
    config = session.directory / "ssh" / "config"
    # Quoted, as the path has a blank.
    assert f"ssh answers: ssh -F '{config}' box\n" in said
    with logged_in(config, mine):
        assert_a_shell_is_whole(project, session, keys)
    assert_idle(session, project, "10s")


@contextlib.contextmanager
def logged_in(config: Path, key: Path) -> Iterator[None]:
    """Be logged in for the block: the session is used, however slow this machine is."""
    options = ["-F", str(config), "-i", str(key), "-o", "BatchMode=yes"]
    with subprocess.Popen(
        ["ssh", *options, "box", "echo in; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"in\n"
        yield
        shell.communicate()


def assert_a_shell_is_whole(project: Project, session: Launch, keys: Path) -> None:
    mine, other, sent, config = keys / "mine", keys / "other", keys / "sent", session.directory / "ssh" / "config"
    assert_not_seen_by_other_machines(session)
    shown = ssh("ssh", config, mine, "box", 'pwd; echo "$MINE"; echo "key: $LAUNCH_KEY"; echo "$NODE_NAME"; exit 3')
    assert (shown.returncode, shown.stdout) == (3, f"{project.code}\na b 'c'\nkey: \nMAIN\n"), shown.stderr
    # One that is launched from there has a name of its own, and waits for its workers.
    inner = f"'{project.path}/scripts/launch.sh' plain 1 --entry moved.py --python '{sys.executable}' --dry-run --json"
    shown = ssh("ssh", config, mine, "box", f"echo >moved.py; {inner}")
    assert shown.returncode == 0, shown.stderr
    plan = json.loads(shown.stdout)
    assert (plan["name"].startswith("plain-"), plan["environment"]["MIN_WORKERS"]) == (True, "1")
    assert "TTL" not in plan["environment"]
    assert ssh("scp", config, mine, str(sent), "box:copied").returncode == 0
    assert (project.code / "copied").read_text() == "sent"
    assert ssh("sftp", config, mine, "-b", "-", "box", typed="rename copied moved\n").returncode == 0
    assert (project.code / "moved").exists()
    refused = ssh("ssh", config, other, "box", "id")
    assert (refused.returncode, "Permission denied (publickey)" in refused.stderr) == (255, True)

    # An editor's server listens on main's loopback, and is reached through the connection.
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_server(("127.0.0.1", 0)) as free:
        here, port = free.getsockname()[1], there.getsockname()[1]
        free.close()
        options = ["-F", str(config), "-i", str(mine), "-o", "ExitOnForwardFailure=yes"]
        with subprocess.Popen(["ssh", *options, "-N", "-L", f"{here}:127.0.0.1:{port}", "box"]) as forward:
            there.settimeout(60)
            wait_until(lambda: is_listening("127.0.0.1", here), "the forwarded port")
            there.accept()[0].close()
            forward.terminate()

    known = session.directory / "ssh" / "known_hosts"
    known.write_text(f"box {' '.join((keys / 'other.pub').read_text().split()[:2])}\n")
    wrong = ssh("ssh", config, mine, "box", "id")
    assert (wrong.returncode, "Host key verification failed" in wrong.stderr) == (255, True)


def test_a_shell_ends_with_its_session(project: Project, keys: Path) -> None:
    """Ctrl-C: what runs in the shell is gone, too."""
    words = ("--framework", "plain", "--python", sys.executable, "--key", f"{keys / 'mine'}.pub")
    session = project.session("ssh", "box", *words)
    wait_until(lambda: "ssh answers: " in session.err, lambda: session.err)
    options = ["-F", str(session.directory / "ssh" / "config"), "-i", str(keys / "mine"), "-tt"]
    with subprocess.Popen(
        ["ssh", *options, "box", "echo up; exec sleep 1000"], stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline().strip() == "up"
        session.interrupt()
        assert session.wait() == 143
        session.assert_nothing_left()


def test_strangers_neither_keep_a_shell_nor_its_owner_out(project: Project, keys: Path) -> None:
    """More who only connect than there are places, before the owner and after: it gets in; nobody's silence is use."""
    words = ("--framework", "plain", "--python", sys.executable, "--key", f"{keys / 'mine'}.pub", "--idle", "30s")
    session = project.session("ssh", "box", *words)
    wait_until(lambda: "ssh answers: " in session.err, lambda: session.err)
    config = session.directory / "ssh" / "config"
    (host,) = re.findall(r"HostName (\S+)", config.read_text())
    (port,) = re.findall(r"Port (\d+)", config.read_text())

    def come(count: int) -> None:
        for _ in range(count):
            strangers.enter_context(socket.create_connection((host, int(port)), 60))

    def is_connected(process: psutil.Process) -> bool:
        return any(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections())

    # Of 20 places each stranger has one for 5 s: the owner has its turn in 10 s, before nobody's use ends the session.
    with contextlib.ExitStack() as strangers:
        come(25)
        options = ["-F", str(config), "-i", str(keys / "mine"), "-o", "BatchMode=yes"]
        with subprocess.Popen(["ssh", *options, "box", "echo in"], stdout=subprocess.PIPE, text=True) as owner:
            wait_until(lambda: is_connected(psutil.Process(owner.pid)), "the owner's connection")
            come(25)
            assert (owner.communicate(timeout=60)[0], owner.returncode) == ("in\n", 0)
        assert session.wait() == 0, session.err
    assert "idle for 30s: the session ends" in session.log("MAIN")
    session.assert_nothing_left()


# --- TensorBoard ----------------------------------------------------------------------------------------------------


def crc(data: bytes) -> int:
    """Return the masked CRC-32C of TFRecord."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """Return one record of TensorBoard's files."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", crc(length)) + data + struct.pack("<I", crc(data))


def scalar(tag: bytes, value: float) -> bytes:
    """Return an event of step 1 with one scalar, in protobuf's own bytes."""
    inside = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(inside)]) + inside
    return b"\x09" + struct.pack("<d", 1.0) + b"\x10\x01" + b"\x2a" + bytes([len(summary)]) + summary


def test_a_board_shows_what_a_cluster_has_left(project: Project, tmp_path: Path) -> None:
    """Of one that has ended. Without the token nothing is shown."""
    events = record(b"\x09" + struct.pack("<d", 1.0) + b"\x1a\x0dbrain.Event:2") + record(scalar(b"loss", 0.25))
    entry = (
        f"import os; open(os.path.join(os.environ['OUTPUT_DIR'], 'events.out.tfevents.1.me'), 'wb').write({events!r})"
    )
    assert project.launch_plain(1, entry, "--name", "trained").wait() == 0
    session = project.session("tensorboard", "board", "--in", "trained", "--idle", "10s")
    url = url_of(session)
    token, base = token_of(url), url.partition("?")[0]
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with browser.open(url, timeout=60) as page:
        assert page.geturl() == base, "the token is not in the address that is shown"
        assert b"TensorBoard" in page.read()

    # After the first use, which a slow machine must not be late for.
    assert [status(f"{base}data/runs"), status(f"{base}data/runs?token={WRONG}")] == [403, 403]
    assert status(f"{base}data/runs", Cookie=f"session-{session.launch_id}={WRONG}") == 403
    assert_not_seen_by_other_machines(session)
    assert token not in [cookie.value for cookie in jar], "cookies go to every port of this address"
    place = urlsplit(base)
    sender = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    sender.request("GET", f"/%5cevil.example/%0d%0aX:1?token={token}")
    answer = sender.getresponse()
    assert (answer.status, answer.getheader("Location")) == (302, "/%5Cevil.example/%0D%0AX%3A1")
    sender.close()

    def scalars() -> object:
        with browser.open(f"{base}data/plugin/scalars/tags", timeout=60) as answer:
            return json.loads(answer.read())

    wait_until(lambda: scalars() == {".": {"loss": {"displayName": "loss", "description": ""}}}, lambda: f"{scalars()}")
    assert_kept_secret(session, token)
    assert_idle(session, project, "10s")


# --- Kinds of users, and sessions beside a cluster ------------------------------------------------------------------


@pytest.fixture
def kind(project: Project) -> Iterator[Path]:
    """Return the folder of a kind of session that a user has added, with nothing in it."""
    folder = project.path / "scripts" / "sessions" / "hello"
    folder.mkdir(exist_ok=True)
    yield folder
    shutil.rmtree(folder)


def test_a_kind_is_added_by_a_folder(project: Project, kind: Path) -> None:
    """It has a URL, its own settings, and all verbs; Ctrl-C ends it, and a detached one is reached by connect.sh."""
    shutil.copytree(HELLO, kind, dirs_exist_ok=True)
    words = ("hello", "--framework", "plain", "--python", sys.executable, "--env", "GREETING=hi")
    session = project.session(*words)
    url = url_of(session)
    with urllib.request.urlopen(url, timeout=60) as page:
        assert page.read() == b"hi"
    assert [port for _, _, port in listening_of(session.launch_id)] == [session.ports()["SESSION_PORT"]]
    assert_not_seen_by_other_machines(session)
    assert (project.code / "greeted").read_text() == "hi"
    session.interrupt()
    assert session.wait() == 143

    detached = project.session(*words, "--name", "away", "--detach", "--env", "SESSION_PORT=18519")
    assert (detached.wait(), detached.out) == (0, "away\n")
    assert "connect.sh away " in detached.err
    wait_until(lambda: project.run("connect", "away", "--check").returncode == 0, "an answer")
    reached = project.run("connect", "away").stdout.strip()
    assert (urlsplit(reached).port, status(reached)) == (18519, 200)
    assert project.run("stop", "away").returncode == 0


def test_where_all_nodes_train_main_alone_serves(project: Project, kind: Path) -> None:
    """No launcher of ranks has a part in it."""
    shutil.copytree(HELLO, kind, dirs_exist_ok=True)
    session = project.session("hello", "--framework", "gang", "--python", sys.executable)
    assert status(url_of(session)) == 200
    session.interrupt()
    assert session.wait() == 143
    session.assert_nothing_left()


def test_a_session_beside_a_cluster_computes_there(project: Project, kind: Path) -> None:
    """Client() is one of that cluster, with its certificate. By itself, a session computes on main."""
    (kind / "session.env").write_text("SESSION_PORT=18502\nSESSION_URL=http://{host}:{port}\nSESSION_IN=dask\n")
    code = "from dask.distributed import Client\nimport os\nc = Client(timeout=60)\nn = os.environ['NODE_NAME']\n"
    asks = "print(n, c.submit(lambda: os.environ['CLUSTER_NAME'] + os.environ['NODE_NAME']).result(), flush=True)"
    (kind / "start.sh").write_text(f'#!/usr/bin/env bash\nexec python -c "{code}{asks}"\n')
    (kind / "start.sh").chmod(0o755)
    cluster = project.launch("dask", "1", "--keep", "--name", "mine")
    wait_until(lambda: "ready after" in cluster.err, lambda: cluster.err)
    session = project.session("hello", "--in", "mine")
    assert session.wait() == 0, session.err
    assert "MAIN | MAIN mineWORKER_1\n" in session.out
    alone = project.session("hello", "own")
    assert alone.wait() == 0, alone.err
    assert "MAIN | MAIN ownMAIN\n" in alone.out
    alone.assert_nothing_left()
    ended = project.session("hello", "--in", "gone")
    assert (ended.process.wait(60), "no cluster 'gone'" in ended.err) == (2, True)
    cluster.interrupt(signal.SIGTERM)
    assert cluster.wait() == 143
