"""Another user of this machine: what of a cluster such a user reads, reaches and brings about."""

from __future__ import annotations

import base64
import http.client
import json
import os
import pickle
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import UNTIL_GO, Launch, Project, processes_of, wait_until
from session_client import url_of
from ssh_client import make_keys, ssh
from stranger import LOOK, PYTHON, UID, ask, sockets_of, why_not

WHY_NOT = why_not()
pytestmark = [
    pytest.mark.timeout(1800),  # the first to need Horovod's environment compiles it
    pytest.mark.skipif(bool(WHY_NOT), reason=f"another user: {WHY_NOT}"),
]
TOKEN = "what-nobody-else-may-see"  # noqa: S105 - it is none
PRIVATE = "what only its owner reads"
GRACE_S = 60  # of a cluster that is ended: much longer than that takes on a busy machine
# Says nothing, and then asks as a browser; prints what each port has answered.
KNOCK = """
import json, socket, sys
said = {}
for end in sys.argv[1:]:
    address, _, port = end.rpartition(":")
    said[end] = ""
    for request in (b"", b"GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"):
        try:
            with socket.create_connection((address, int(port)), 60) as connection:
                connection.settimeout(60 if request else 0.5)
                connection.sendall(request)
                while data := connection.recv(65536):
                    said[end] += data.decode("latin1")
                    connection.settimeout(0.5)
        except OSError:
            pass
print(json.dumps(said))
"""


@pytest.fixture
def room(project: Project) -> Iterator[Path]:
    """Return a folder that everybody may enter, as a home may be, in which *project* has its clusters."""
    # Not pytest's own: they let nobody pass.
    room = Path(tempfile.mkdtemp(prefix="cluster-", dir="/tmp"))
    room.chmod(0o755)
    (room / "clusters").mkdir()
    (room / "tmp").mkdir()
    (room / "tmp").chmod(0o1777)
    (project.path / ".clusters").symlink_to(room / "clusters")
    project.temporary = room / "tmp"
    project.environ["TMPDIR"] = str(project.temporary)
    yield room
    project.end_all()
    shutil.rmtree(room)


def secrets_of(launch: Launch, room: Path) -> set[str]:
    """Return what must stay secret: what is given by --env, the launch's key, and the certificate's, both as it is used
    and as it travels.
    """
    found = {TOKEN, PRIVATE}
    for process in processes_of(launch.launch_id, "MAIN"):
        found |= {process.environ().get("LAUNCH_KEY", "")}
    for path in [*room.glob("clusters/*/MAIN_certificate.json"), *room.glob("tmp/*/*.pem")]:
        found |= set(re.findall(r"BEGIN (?:ENCRYPTED )?PRIVATE KEY-----(?:\n|\\n)(.{60})", path.read_text()))
    return found - {""}


SCRIPT = f"""
import os, pathlib, time
from distributed import Client
client = Client()
pathlib.Path(os.environ["OUTPUT_DIR"], "result").write_text("{PRIVATE}")
pathlib.Path(os.environ["NODE_DIR"], "scratch").write_text("{PRIVATE}")
print("{PRIVATE}", len(client.run(os.getpid)), flush=True)
while not os.path.exists("go"): time.sleep(0.05)
"""


def test_another_user_reads_and_reaches_what_the_readme_says(project: Project, room: Path) -> None:
    """The dashboard and metrics, and command lines; no file, no environment, nothing of what is encrypted."""
    launch = project.launch("dask", "1", "--entry", project.write("mine.py", SCRIPT), "--env", "TOKEN", TOKEN=TOKEN)
    launch.wait_for(PRIVATE)
    secrets = secrets_of(launch, room)
    assert len(secrets) == 5, secrets
    processes = processes_of(launch.launch_id)
    pids = [str(process.pid) for process in processes]

    command = [sys.executable, "-I", "-c", LOOK, str(room), *pids]
    own = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout)
    assert all(any(secret in text for text in own.values()) for secret in secrets), "its owner sees all of them"
    seen = json.loads(ask(LOOK, str(room), *pids))
    for path, text in seen.items():
        assert not any(secret in text for secret in secrets), path
    assert not [path for path in seen if path.startswith(str(room))], sorted(seen)
    assert {path.rpartition("/")[2] for path in seen} <= {"cmdline", "status"}, sorted(seen)

    said = json.loads(ask(KNOCK, *(f"{address}:{port}" for address, port in sockets_of(processes))))
    assert len(said) == 5
    readable = {end for end, text in said.items() if text.startswith("HTTP/1.1 ")}
    assert len(readable) == 2
    for end, text in said.items():
        assert end in readable or not text or text.startswith("\x15\x03"), f"{end}: no alert of TLS: {text[:99]!r}"
        assert not any(secret in text for secret in secrets), end
    project.go()
    assert launch.wait() == 0


# Ranks that wait for each other, as long as nobody ends them.
FOR_EVER = """
import time
import torch.distributed as dist

dist.init_process_group("gloo")
print("start: rank", dist.get_rank(), flush=True)
time.sleep(1000)
"""
# All that it takes is in `ps`: main's address and the launch's id. The words are those of torch's TCPStore.
FORGED = """
import base64, os, pickle, re, socket, struct, sys

class Evil:
    def __reduce__(self):
        return open, (sys.argv[1], "w")

def text(value):
    return struct.pack("<Q", len(value)) + value

lines = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        lines.append(open(f"/proc/{pid}/cmdline").read())
    except OSError:  # it has ended
        pass
line = next(line for line in lines if sys.argv[2] in line and "--rdzv-endpoint=" in line)
address, port = re.search(r"--rdzv-endpoint=([\\d.]+):(\\d+)", line).groups()
key = "/torch.rendezvous." + re.search(r"--rdzv-id=(\\w+)", line)[1]
with socket.create_connection((address, int(port)), 60) as store:
    store.sendall(b"\\x00" + struct.pack("<I", 0x3C85F7CE))
    store.sendall(b"\\x01" + text(key.encode()) + text(base64.b64encode(pickle.dumps(Evil()))))
    # An answer to a second request: the first has been done.
    store.sendall(b"\\x03" + text(key.encode()))
    print(len(store.recv(8)))
"""


def test_another_users_state_of_torchs_rendezvous_is_not_unpickled(project: Project, room: Path) -> None:
    """What that user can do is to end the training, as the table of ports says."""
    launch = project.launch("pytorch", "1", "--entry", project.write("train.py", FOR_EVER))
    launch.wait_for("start: rank 0")
    witness = room / "tmp" / "witness"
    assert ask(FORGED, str(witness), launch.launch_id) == "8\n"
    assert launch.wait() == 1
    assert not witness.exists()
    assert "the rendezvous holds a state that this launch has not signed" in launch.err


ELASTIC = """
import os, time
import torch
import horovod.torch as hvd
hvd.init()

@hvd.elastic.run
def train(state):
    print("training rank", hvd.rank(), flush=True)
    while not hvd.broadcast(torch.tensor(int(os.path.exists("go"))), 0, name="go"):
        time.sleep(0.05)
        state.commit()

train(hvd.elastic.TorchState(step=0))
"""
# What Horovod unpickles: at main's rendezvous, and where a rank hears of new nodes.
HOROVOD = """
import http.client, json, pickle, socket, struct, sys

class Evil:
    def __reduce__(self):
        return open, (sys.argv[1], "w")

evil = pickle.dumps(Evil())
address, port = sys.argv[2].split(":")
said = {}
for method, path in (
    ("PUT", "worker_addresses/MAIN:0"), ("PUT", "global/0"), ("DELETE", "global/0"), ("GET", "rank_and_size/MAIN:0"),
    ("GET", "worker_addresses/MAIN:0"), ("HEAD", "etc/passwd"),
):
    connection = http.client.HTTPConnection(address, int(port), timeout=120)
    connection.request(method, "/" + path, body=evil if method == "PUT" else None)
    said[method + " " + path] = connection.getresponse().status
for end in sys.argv[3:]:
    address, port = end.split(":")
    with socket.create_connection((address, int(port)), 60) as rank:
        rank.sendall(bytes(32) + struct.pack("i", len(evil)) + evil)
        said["a rank says"] = rank.recv(99).decode("latin1")
print(json.dumps(said))
"""


def test_another_user_changes_nothing_of_an_elastic_horovod_job(project: Project, room: Path) -> None:
    """Nor do pickles of this user's own processes run in it: they may come from a node that is not what it was."""
    launch = project.launch("horovod", "1", "--entry", project.write("elastic.py", ELASTIC), "--env", "MIN_NP=2")
    launch.wait_for("training rank", "WORKER_1")
    launch.wait_for("training rank")
    witness = room / "tmp" / "witness"
    main, port = launch.nodes()["MAIN"]["address"], launch.ports()["RENDEZVOUS_PORT"]
    ranks = processes_of(launch.launch_id, command=lambda words: "elastic.py" in words)
    ends = [f"{address}:{number}" for address, number in sockets_of(ranks)]
    assert len(ends) == 2
    assert json.loads(ask(HOROVOD, str(witness), f"{main}:{port}", *ends)) == {
        **{f"PUT {path}": 403 for path in ("worker_addresses/MAIN:0", "global/0")},
        "DELETE global/0": 403,
        "GET rank_and_size/MAIN:0": 403,
        "GET worker_addresses/MAIN:0": 403,
        "HEAD etc/passwd": 405,
        "a rank says": "",
    }
    launch.wait_for("refused a process of another user of this machine")

    class Evil:
        def __reduce__(self) -> object:
            return os.mkdir, (str(witness),)

    connection = http.client.HTTPConnection(main, port, timeout=120)
    connection.request("PUT", "/worker_addresses/MAIN:0", body=base64.b64encode(pickle.dumps(Evil())))
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse()
    launch.wait_for("posix.mkdir is not what ranks send")
    assert not witness.exists()
    project.go()
    assert launch.wait() == 0, launch.err


def test_directories_of_a_cluster_are_its_owners(project: Project, room: Path) -> None:
    """Whatever the user's umask is; the lock too, which others could hold for ever."""
    entry = project.write("mine.py", "import os, time\nprint('up', flush=True)\ntime.sleep(1000)")
    launch = project.launch("plain", "1", "--entry", entry, "--python", sys.executable)
    launch.wait_for("up")
    for path in [*room.glob("clusters/*"), *room.glob("clusters/.*"), *room.glob("tmp/*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    # The launch's id is in `ps`: a folder in the next node's place is not used, and its log says so.
    place = room / "tmp" / f"{launch.launch_id}-WORKER_2"
    ask("import os, sys; os.umask(0); os.mkdir(sys.argv[1])", str(place))
    project.run("scale", launch.directory.name.rpartition("-")[0], "+1")
    launch.wait_for(f"{place} exists already and is not this node's", "WORKER_2")
    launch.interrupt()
    assert launch.wait() == 143


# Listens where it is told, and prints who has connected and what they have said; ends with its input.
SQUAT = """
import socket, sys, threading
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen()
print("up", flush=True)
def serve():
    while True:
        connection, _ = listener.accept()
        connection.settimeout(3)
        try:
            print(connection.recv(65536), flush=True)
        except OSError as error:
            print(error, flush=True)
        connection.close()
threading.Thread(target=serve, daemon=True).start()
sys.stdin.read()
"""


def test_who_listens_before_a_session_gets_no_token(project: Project, room: Path, tmp_path: Path) -> None:
    """Its server begins some seconds after the cluster; whoever was first on its port is asked nothing."""
    kind = project.path / "scripts" / "sessions" / "hello"
    shutil.copytree(Path(__file__).parent / "hello", kind, dirs_exist_ok=True)
    start = kind / "start.sh"
    waits = f"while [[ ! -e {tmp_path}/go ]]; do sleep 0.05; done\nexec python"
    start.write_text(start.read_text().replace("exec python", waits))
    try:
        session = project.session("hello", "mine", "--framework", "plain", "--python", sys.executable)
        wait_until(lambda: "ready after" in session.err, lambda: session.err)
        (address,) = re.findall(r"node=MAIN address=(\S+)", session.log("MAIN"))
        own = str(session.ports()["SESSION_PORT"])  # another than its usual one where a test beside this one has that
        command = [str(PYTHON), "-I", "-c", SQUAT, address, own]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, user=UID, group=UID, extra_groups=[], cwd="/", text=True, **pipes) as squatter:
            assert squatter.stdout is not None
            assert squatter.stdout.readline() == "up\n"
            for port in ("hello", "18590:hello"):  # also by a port of one's own, which leads there
                refused = project.run("connect", "mine", "--port", port, "--check")
                assert refused.returncode == 69
                assert f"it is not this user's process that listens on port {own}" in refused.stderr
            said = squatter.stdout.readline()  # who has connected
            said += squatter.communicate("")[0]
        assert said
        assert "GET" not in said
        (tmp_path / "go").touch()
        with urllib.request.urlopen(url_of(session), timeout=60) as page:  # noqa: S310 - http, of this test's session
            assert page.read() == b"hello"
        session.interrupt()
        assert session.wait() == 143
    finally:
        shutil.rmtree(kind)


# Puts something in the place of files: takes pairs of a kind and a path.
PLANT = """
import contextlib, os, socket, sys
for kind, path in zip(sys.argv[1::2], sys.argv[2::2]):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(path)
    elif kind == "folder":
        os.makedirs(path + "/in it")
    elif kind == "endless":
        os.symlink("/dev/zero", path)
    else:
        with open(path, "wb") as file:
            file.truncate(10 << 30 if kind == "giant" else 9)
        os.chmod(path, 0 if kind == "unreadable" else 0o644)
"""
KINDS = ("pipe", "folder", "unreadable", "giant", "socket", "endless")
# What nodes and launchers read and write.
FILES = (
    *("stop", "launched.json", "MAIN_config.json", "WORKER_1_config.json", "MAIN_heartbeat.json"),
    *("WORKER_1_heartbeat.json", "MAIN_exit.json", "WORKER_1_exit.json", "MAIN_ready.json", "MAIN_life.json"),
    *("MAIN_scale_request.json", "MAIN_outputs.list"),
)


@pytest.fixture
def bounded(project: Project) -> Iterator[str]:
    """Return a script that runs another as for those who are not root: they do not read what they may not."""
    path = project.path / "scripts" / "bounded.sh"
    drop = "setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-all"
    path.write_text(f'#!/usr/bin/env bash\nname="$1"\nshift\nexec {drop} "${{0%/*}}/${{name}}.sh" "$@"\n')
    path.chmod(0o755)
    yield path.stem
    path.unlink()


def test_another_users_files_of_every_kind_hold_nobody_up(project: Project, room: Path, bounded: str) -> None:
    """All look, and each way to end a cluster ends it at once: TERM, its TTL, and `stop.sh`."""
    work, entry, launches = room / "work", project.write("mine.py", UNTIL_GO), {}
    work.mkdir()

    def begin(name: str, ttl: str, number: int) -> None:
        words = ["plain", "1", "--entry", entry, "--python", sys.executable, "--name", name, "--ttl", ttl]
        environ = {"WORK_DIR": f"file://{work}", "GRACE_PERIOD": str(GRACE_S)}
        launch = Launch(project, ["launch", *words], environ, bounded)
        launches[name] = launch
        project.launches.append(launch)
        launch.wait_for("entry up")
        launch.wait_for("worker works", "WORKER_1")
        folder = work / launch.directory.name
        folder.chmod(0o777)
        if name == "told":
            (folder / "MAIN_certificate.json").unlink(missing_ok=True)
            os.mknod(folder / "MAIN_certificate.json", stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
        turned = [*KINDS[number:], *KINDS[:number]] * 2
        ask(PLANT, *(word for kind, file in zip(turned, FILES, strict=True) for word in (kind, str(folder / file))))
        ignored = "not readable" if turned[0] == "unreadable" else "not a regular file"
        launch.wait_for(f"stop file ignored: {ignored}: somebody else has put it there", "WORKER_1")

    begin("told", "1h", 0)
    begin("stopped", "1h", 1)
    for words, count in ((("status", "told"), 3), (("status", "stopped"), 3), (("list",), 2)):
        project.assert_quick(lambda words=words, count=count: looked_s(project, bounded, count, *words), 5)
    begin("aged", "30s", 2)  # nothing is asked of it but its end

    def ended_s(name: str) -> float:
        began_at = time.monotonic()
        if name == "told":
            launches[name].interrupt(signal.SIGTERM)
        else:
            assert project.run(bounded, "stop", name).stdout == f"{name}\n"
        assert launches[name].wait() == 143, launches[name].err
        return time.monotonic() - began_at

    assert ended_s("told") < GRACE_S
    assert ended_s("stopped") < GRACE_S
    assert "ended with 143 (stopped by stop.sh)" in launches["stopped"].err
    assert launches["aged"].wait() == 75
    assert "ended with 75 (TTL of 30 s reached" in launches["aged"].err
    for launch in launches.values():
        launch.assert_nothing_left()


def looked_s(project: Project, bounded: str, count: int, *words: str) -> float:
    """Return how long it takes to look, and to see *count* running: clusters, or one and its two nodes."""
    began_at = time.monotonic()
    shown = project.run(bounded, *words)
    assert shown.stdout.count("IN_PROGRESS") == count, shown
    return time.monotonic() - began_at


# Writes the client's configuration of Dask before main does.
CLIENT = """
import os, sys
with open(sys.argv[1] + "/client.yaml", "w") as file:
    file.write("scheduler-address: tcp://127.6.6.6:6666\\n")
"""
ASKS = "import distributed; c = distributed.Client(timeout=60); print(c.scheduler.address)"


def test_another_users_configuration_of_a_client_is_nobodys(project: Project, room: Path) -> None:
    """What is printed as `connect` is in the launcher's own folder, and leads to the cluster."""
    work = room / "work"
    work.mkdir()
    launch = project.launch("dask", "1", "--keep", "--name", "mine", WORK_DIR=f"file://{work}")
    folder = work / launch.directory.name
    wait_until(folder.exists, "the cluster dir")
    folder.chmod(0o777)
    ask(CLIENT, str(folder))
    wait_until(lambda: "ready after" in launch.err, lambda: launch.err)
    shown = project.run("status", "mine")
    (said,) = re.findall(r"connect:? (\S.*)", shown.stdout)
    variable, _, path = shlex.split(said)[0].partition("=")
    assert (variable, Path(path).parent) == ("DASK_CONFIG", launch.directory)
    assert str(work) not in launch.err + shown.stdout
    python = project.path / ".venv" / "envs" / "dask" / "bin" / "python"
    words, environ = [python, "-E", "-c", ASKS], {"DASK_CONFIG": path, "HOME": str(room)}
    asked = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert asked.stdout.partition(":")[2].startswith(f"//{launch.nodes()['MAIN']['address']}:"), asked
    assert "127.6.6.6" in (folder / "client.yaml").read_text()
    launch.interrupt(signal.SIGTERM)
    assert launch.wait() == 143


# Connects 400 times, and again wherever it is cut off; of each four it lets one go after a second. Ends with its input.
FLOOD = """
import selectors, socket, sys, time
address, selector = (sys.argv[1], int(sys.argv[2])), selectors.DefaultSelector()
def come(number):
    stranger = socket.socket()
    stranger.setblocking(False)
    stranger.connect_ex(address)
    selector.register(stranger, selectors.EVENT_READ, (number, time.monotonic()))
for number in range(400):
    come(number)
selector.register(sys.stdin, selectors.EVENT_READ)
print("up", flush=True)
while True:
    time.sleep(0.05)
    ready = {key.fd for key, _ in selector.select(0)}
    if sys.stdin.fileno() in ready:
        break
    for key in [key for key in selector.get_map().values() if key.data]:
        number, since = key.data
        if number % 4 == 0 and time.monotonic() - since > 1:
            ready.add(key.fd)
        try:
            if key.fd in ready and key.fileobj.recv(65536) and number % 4:
                continue
        except OSError:
            pass
        if key.fd in ready:
            selector.unregister(key.fileobj)
            key.fileobj.close()
            come(number)
"""


@pytest.mark.alone
def test_another_users_flood_keeps_no_owner_out_of_a_shell(project: Project, tmp_path: Path) -> None:
    """It fills the queue of the port, and all places; nor is it use: the session ends while it goes on."""
    mine, _ = make_keys(tmp_path)
    words = ("--framework", "plain", "--python", sys.executable, "--key", f"{mine}.pub", "--idle", "15s")
    session = project.session("ssh", "box", *words)
    wait_until(lambda: "ssh answers: " in session.err, lambda: session.err)
    config = session.directory / "ssh" / "config"
    (host,), (port,) = (re.findall(rf"{name} (\S+)", config.read_text()) for name in ("HostName", "Port"))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [str(PYTHON), "-I", "-c", FLOOD, host, port]

    def log_in_s() -> float:
        began_at = time.monotonic()
        done = ssh("ssh", config, mine, "box", "echo in")
        assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr
        return time.monotonic() - began_at

    with subprocess.Popen(command, user=UID, group=UID, extra_groups=[], cwd="/", text=True, **pipes) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "up\n"
        wait_until(lambda: len(established(port)) > 100, "a flood")
        project.assert_quick(log_in_s, 10)
        assert session.wait() == 0, session.err
        stranger.communicate("")
    assert "idle for 15s: the session ends" in session.log("MAIN")
    session.assert_nothing_left()


def established(port: str) -> list[str]:
    """Return the other ends of the connections to *port* of this machine."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return [words[2] for words in lines if words[1].endswith(f":{int(port):04X}") and words[3] == "01"]
