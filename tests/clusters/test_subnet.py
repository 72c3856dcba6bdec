"""A neighbour: a host of the subnet that is no node, and sends to every port that it reaches what it can think of.

What it gets is said by the table of ports in docs/network.md. None of its pickles runs anywhere.
"""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path

import pytest
from host_cluster import RANKS, Cluster, Launch
from hosts import why_not

from oci_cluster.contract.session import client_token

WHY_NOT = why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"hosts of their own: {WHY_NOT}")

NODES = ("main", "worker1")

# In the words of torch's TCPStore, of Horovod's rendezvous and its services, of Ray, of Dask after a handshake with
# nobody's certificate; as HTTP, and as nothing at all. Whoever unpickles one of these makes the folder.
KIT = """
import base64, json, os, pickle, socket, ssl, struct, sys
from concurrent.futures import ThreadPoolExecutor

class Evil:
    def __reduce__(self):
        return os.mkdir, ("/tmp/witness",)

def text(value):
    return struct.pack("<Q", len(value)) + value

def http(method, path, body=b""):
    head = f"{method} /{path} HTTP/1.1\\r\\nHost: {sys.argv[2]}\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
    return head.encode() + body

def call(path):
    fields = (":method", "POST", ":scheme", "http", ":path", path, ":authority", "x")
    fields += ("content-type", "application/grpc", "te", "trailers")
    words = [bytes([len(word)]) + word.encode() for word in fields]
    head = b"".join(b"\\0" + name + value for name, value in zip(words[::2], words[1::2]))
    frames = b"".join((bytes(3), b"\\4\\0", bytes(4), struct.pack(">I", len(head))[1:], b"\\1\\4\\0\\0\\0\\1", head))
    return b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + frames

evil = pickle.dumps(Evil())
state = base64.b64encode(evil)
rendezvous = "/torch.rendezvous." + sys.argv[1]
nobodys = ssl._create_unverified_context()
messages = {
    "torch": b"\\x00" + struct.pack("<I", 0x3C85F7CE) + b"\\x01" + text(rendezvous.encode()) + text(state),
    "a rank's address": http("PUT", "worker_addresses/MAIN:0", evil),
    "a key": http("PUT", "global/0", evil),
    "the ranks": http("GET", "rank_and_size/MAIN:0"),
    "a service": bytes(32) + struct.pack("i", len(evil)) + evil,
    "a pickle": evil,
    "a call of Ray's": call("/ray.rpc.syncer.RaySyncer/StartSync"),
    "nonsense": os.urandom(4096),
    "tls": struct.pack("<QQ", 1, len(evil)) + evil,
}

def ask(end):
    answers = {}
    for name, message in messages.items():
        answer = b""
        try:
            with socket.create_connection(end, 30) as connection:
                answers[name] = ""  # it is reached
                if name == "tls":
                    connection = nobodys.wrap_socket(connection)
                connection.sendall(message)
                connection.settimeout(0.5)
                while data := connection.recv(65536):
                    answer += data
        except OSError:  # refused, hung up on, or left without an answer
            pass
        if name not in answers:
            break
        answers[name] = answer.decode("latin1")
    return answers

ends = [tuple(end) for end in json.loads(sys.argv[3])]
with ThreadPoolExecutor(len(ends)) as pool:
    said = dict(zip(("%s:%d" % end for end in ends), pool.map(ask, ends)))
print(json.dumps(said))
"""

# A script of each framework that computes, waits for `go`, and computes again.
WAITS = "import os, time\nwhile not os.path.exists('/code/go'): time.sleep(0.05)\n"
DASK = (
    "from distributed import Client\nclient = Client()\n"
    "def add_up():\n    return float(sum(client.gather(client.map(lambda x: x, range(5)))))\n"
)
RAY = (
    "import ray\nray.init()\n@ray.remote\ndef same(x):\n    return x\n"
    "def add_up():\n    return float(sum(ray.get([same.remote(x) for x in range(5)])))\n"
)
SCRIPTS = {"dask": DASK, "ray": RAY, **RANKS}
TWICE = f'print("sum", add_up(), flush=True)\n{WAITS}print("again", add_up(), flush=True)\n'
# By framework: the sum, and how its nodes end.
ENDS = {"dask": ("10.0", 0), "ray": ("10.0", 0), "tensorflow": ("2.0", 0), "horovod": ("2.0", 0), "pytorch": ("2.0", 1)}


def attack(cluster: Cluster, launch_id: str, log: Path) -> dict[str, dict[str, str]]:
    """Return what each port of the nodes, on each of their addresses, has said to the neighbour; nothing of others."""
    ends = [
        (address, port)
        for name in NODES
        for port in sorted({port for _, port in cluster.hosts[name].listening()})
        for address in (cluster.hosts[name].address, cluster.hosts[name].decoy)
    ]
    words = [sys.executable, "-I", "-c", KIT, launch_id, cluster.hosts["main"].address, json.dumps(ends)]
    assert cluster.hosts["neighbour"].start(words, {}, log).wait(240) == 0, log.read_text()
    found: dict[str, dict[str, str]] = json.loads(log.read_text())
    return found


@pytest.mark.timeout(1800)  # the first to need Horovod's environment compiles it
@pytest.mark.parametrize("framework", ENDS)
def test_a_neighbour_runs_nothing_and_makes_no_success(launch_on_hosts: Launch, tmp_path: Path, framework: str) -> None:
    """It reaches the nodes' own addresses alone; what it can do there is to end PyTorch's training."""
    script = SCRIPTS[framework] + TWICE
    total, code = ENDS[framework]
    key = secrets.token_hex(32)
    cluster = launch_on_hosts(framework, (*NODES, "neighbour"), script, LAUNCH_KEY=key)
    for name in NODES if framework in RANKS else ["main"]:
        cluster.wait_for(f"sum {total}\n", name)
    said = attack(cluster, cluster.launch_id, tmp_path / "kit.log")
    for name in NODES:
        (cluster.hosts[name].root / "code" / "go").touch()
    assert cluster.end() == dict.fromkeys(NODES, code), cluster.logs()
    assert [name for name in NODES if (cluster.hosts[name].root / "tmp" / "witness").exists()] == []
    # PyTorch's training may have ended before its workers were reached.
    reached = {end.rpartition(":")[0] for end, answers in said.items() if answers}
    main, worker = (cluster.hosts[name].address for name in NODES)
    # Ray listens on all addresses.
    others = {cluster.hosts[name].decoy for name in NODES if framework == "ray"}
    assert {main} <= reached <= {main, worker} | others
    assert key not in json.dumps(said)
    assert client_token(key, cluster.launch_id) not in json.dumps(said)
    if code:
        assert "the rendezvous holds a state that this launch has not signed" in cluster.logs()
    else:
        assert f"again {total}\n" in cluster.log("main")
    if framework == "horovod":
        assert set(said[f"{main}:12340"].values()) == {""}, "the rendezvous answers who is no node"
    if framework == "ray":
        calls = [answers.get("a call of Ray's", "") for answers in said.values()]
        assert not [answer for answer in calls if "\x04\x00" in answer[:6]], "a port takes calls without TLS"
    if framework == "tensorflow":
        assert {end for end, answers in said.items() if answers} == {f"{main}:12345", f"{worker}:12345"}
