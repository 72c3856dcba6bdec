"""Who is near a cluster of Ray, and has not its token: what such a neighbour gets on each of its ports. Nothing runs.

test_subnet.py has the same on hosts of a subnet.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Launch, Project, parts_of, wait_until
from port_table import read_table, wrong_sockets
from stranger import LOOK, ask, sockets_of, why_not

from oci_cluster.contract.session import client_token

PRIVATE = "what only its owner reads"
SCRIPT = f"""
import os, time
import ray

ray.init()

@ray.remote(num_cpus=0, scheduling_strategy="SPREAD")
class Part:
    def works(self, text):
        self.text = text
        return os.getpid()

parts = [Part.remote() for _ in range(3)]
kept = ray.put("{PRIVATE}")
print("up", len(ray.get([part.works.remote(kept) for part in parts])), flush=True)
while not os.path.exists("go"): time.sleep(0.05)
print("still up", len(ray.get([part.works.remote(kept) for part in parts])), flush=True)
while "STAYS" in os.environ: time.sleep(0.05)
"""
# The standard library alone: asks each port in plain HTTP, in the words of gRPC, and both again in TLS, with nobody's
# certificate and without one. Prints what each has answered.
KNOCK = """
import json, socket, ssl, struct, sys
from concurrent.futures import ThreadPoolExecutor

def http(method, path, *lines):
    body = json.dumps({"entrypoint": "touch " + sys.argv[1]}) if method == "POST" else ""
    lines = ["Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}", *lines]
    return "\\r\\n".join([f"{method} {path} HTTP/1.1", *lines, "", body]).encode()

def text(value):
    return bytes([len(value)]) + value.encode()

def call(path, message):
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x",
              "content-type": "application/grpc", "te": "trailers", "authorization": "Bearer wrong"}
    head = b"".join(b"\\0" + text(name) + text(value) for name, value in fields.items())
    frames = [(4, 0, 0, b""), (1, 4, 1, head), *([(0, 1, 1, b"\\0" + bytes(4))] if message else [])]
    return b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + b"".join(
        struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data
        for kind, flags, stream, data in frames
    )

wrong = "Authorization: Bearer wrong"
requests = {
    "nothing": b"",
    "page": http("GET", "/"),
    "jobs": http("GET", "/api/jobs/"),
    "jobs, wrong token": http("GET", "/api/jobs/", wrong),
    "jobs, wrong cookie": http("GET", "/api/jobs/", "Cookie: ray-authentication-token=wrong"),
    "job": http("POST", "/api/jobs/"),
    "job, wrong token": http("POST", "/api/jobs/", wrong),
    "a job of the agent's": http("POST", "/api/job_agent/jobs/"),
    "logs": http("GET", "/api/v0/logs/file?node_ip=127.0.0.1&filename=raylet.out"),
    "tasks": http("GET", "/api/v0/tasks"),
    "environment": http("POST", "/get_or_create_runtime_env", wrong),
    "a file": http("GET", "/static/../../../../../../../../etc/passwd"),
    "keys": call("/ray.rpc.InternalKVGcsService/InternalKVKeys", True),
    "a task": call("/ray.rpc.CoreWorkerService/PushTask", True),
    "an object": call("/ray.rpc.ObjectManagerService/Pull", True),
    # Without its metadata: where anybody may call, this ends what is called.
    "states": call("/ray.rpc.syncer.RaySyncer/StartSync", False),
}
nobodys = ssl._create_unverified_context()
nobodys.set_alpn_protocols(["h2"])

def knock(end):
    address, _, port = end.rpartition(":")
    said = {}
    for name, request in requests.items():
        for way in ("plain", "tls"):
            answer = b""
            try:
                with socket.create_connection((address, int(port)), 30) as connection:
                    if way == "tls":
                        connection.settimeout(5)
                        connection = nobodys.wrap_socket(connection)
                    # A process that computes may be slow to begin its answer; what follows it is there at once.
                    connection.settimeout(10 if request else 0.7)
                    connection.sendall(request)
                    while data := connection.recv(65536):
                        answer += data
                        connection.settimeout(0.7)
            except OSError as error:
                said[f"{name}, {way}, error"] = str(error)
            said[f"{name}, {way}"] = answer.decode("latin1")
    return said

with ThreadPoolExecutor(32) as pool:
    print(json.dumps(dict(zip(sys.argv[2:], pool.map(knock, sys.argv[2:])))))
"""
# What a public request of each kind of port is answered with: the page that asks for the token, and metrics.
PAGE, METRICS, HEALTH = "<!doctype html>", "# HELP ", "raylet: success"
needs_another_user = pytest.mark.skipif(bool(why_not()), reason=f"another user: {why_not()}")


def launch_ray(project: Project, *words: str) -> Launch:
    """Return a cluster of one worker that computes."""
    launch = project.launch("ray", "1", "--entry", project.write("entry.py", SCRIPT), *words)
    launch.wait_for("up 3")
    return launch


def ends_of(launch: Launch) -> list[str]:
    """Return all that the cluster listens on, where it can be reached from this machine."""
    found = sockets_of([process for _, process, _ in parts_of(launch.launch_id)])
    return [f"{'127.0.0.1' if address in {'::', '0.0.0.0'} else address}:{port}" for address, port in found]  # noqa: S104


def assert_goes_on(launch: Launch, project: Project) -> None:
    """Whatever was tried, its actors are there as before, and its script succeeds."""
    project.go()
    assert launch.wait() == 0, launch.err
    assert "MAIN     | still up 3\n" in launch.out
    launch.assert_nothing_left()


def status_of(answer: str) -> int:
    """Return the status of an answer in HTTP/1.1; 0 where it is none."""
    found = re.match(r"HTTP/1\.[01] (\d+)", answer)
    return int(found[1]) if found else 0


@pytest.fixture
def room(project: Project) -> Iterator[Path]:
    """Return a folder that everybody may enter, in which *project* has its clusters."""
    room = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    room.chmod(0o755)
    (room / "clusters").mkdir()
    (room / "tmp").mkdir(mode=0o755)
    (project.path / ".clusters").symlink_to(room / "clusters")
    project.temporary = room / "tmp"
    project.environ["TMPDIR"] = str(project.temporary)
    yield room
    project.end_all()
    shutil.rmtree(room)


@needs_another_user
def test_another_user_gets_metrics_and_a_page(project: Project, room: Path) -> None:
    """No file, no socket, no environment; on each port, in each of its words, nothing but what docs/network.md says."""
    launch = launch_ray(project)
    key = json.loads((launch.directory / "cluster.json").read_bytes())["environment"]["LAUNCH_KEY"]
    token = client_token(key, launch.launch_id)
    secrets = {token, key, PRIVATE, "BEGIN PRIVATE KEY"}
    assert (room / "tmp" / f"{launch.launch_id}-MAIN" / "client-token").read_text() == token
    pids = [str(process.pid) for _, process, _ in parts_of(launch.launch_id)]
    assert len(pids) > 25, "with those that write a title over their environment"
    seen = json.loads(ask(LOOK, str(room), *pids))
    assert not [path for path in seen if path.startswith(str(room))], sorted(seen)
    for path, text in seen.items():
        assert not any(secret in text for secret in secrets), path

    ends = ends_of(launch)
    assert len(ends) >= 20, ends
    witness = room / "witness"
    said = json.loads(ask(KNOCK, str(witness), *ends))
    kinds = {"page": 0, "metrics": 0, "token": 0, "tls": 0}
    for end, answers in said.items():
        assert not any(secret in text for text in answers.values() for secret in secrets), end
        if METRICS in answers["page, plain"]:
            kinds["metrics"] += 1
            continue
        allowed = {"page, plain"} if PAGE in answers["page, plain"] else set()
        got = {name for name, text in answers.items() if status_of(text) not in {0, 400, 401, 403, 404, 405}}
        assert got == allowed, (end, got)
        answered = "page" if allowed else "token" if status_of(answers["jobs, plain"]) == 401 else "tls"
        kinds[answered] += 1
        # A call in the words of gRPC gets as far as an alert of TLS, and no settings of HTTP/2.
        for name, text in answers.items():
            if answered == "tls" and not name.endswith("error"):
                assert text == "" or text.startswith("\x15\x03"), (end, name, text[:99])
    # The agents' HTTP of two nodes, on two addresses each, and the runtime environments' agents.
    assert kinds["page"] == 1, kinds
    assert kinds["metrics"] == 4, kinds
    assert kinds["token"] >= 5, kinds
    assert kinds["tls"] >= 12, kinds
    assert not witness.exists()
    assert_goes_on(launch, project)


# Calls every method of every service that Ray's own stubs know, and those of the object manager, which they do not.
CALLS = """
import collections, importlib, json, pkgutil, sys
from concurrent.futures import ThreadPoolExecutor
import grpc, ray.core.generated
from google.protobuf import message_factory

calls = [("/ray.rpc.ObjectManagerService/" + name, "unary_unary", b"") for name in ("Push", "Pull")]
for module in pkgutil.iter_modules(ray.core.generated.__path__):
    if not module.name.endswith("_pb2"):
        continue
    found = importlib.import_module("ray.core.generated." + module.name)
    for service in found.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            kind = "%s_%s" % tuple("stream" if is_stream else "unary" for is_stream in
                                   (method.client_streaming, method.server_streaming))
            empty = message_factory.GetMessageClass(method.input_type)().SerializeToString()
            calls.append((f"/{service.full_name}/{method.name}", kind, empty))
headers = ([], [("authorization", "Bearer wrong")], [("authorization", sys.argv[1])])

def ask(end):
    channel, seen = grpc.insecure_channel(end), collections.defaultdict(list)
    try:
        grpc.channel_ready_future(channel).result(10)
    except grpc.FutureTimeoutError:
        return None
    for path, kind, message in calls:
        for header in headers:
            try:
                call = getattr(channel, kind)(path)
                answer = call(iter([message]) if kind.startswith("stream") else message, timeout=30, metadata=header)
                if kind.endswith("_stream"):
                    next(iter(answer))
                seen["OK"].append(path)
            except grpc.RpcError as error:
                seen[error.code().name].append(path)
    return seen

with ThreadPoolExecutor(32) as pool:
    answers = {end: seen for end, seen in zip(sys.argv[2:], pool.map(ask, sys.argv[2:])) if seen}
print(json.dumps(answers))
"""
WITHOUT = "import ray, sys\nray.init(sys.argv[1])\nprint('connected')\n"
# One call, without the metadata that it needs.
ENDS = """
import grpc, sys
call = grpc.insecure_channel(sys.argv[1]).stream_stream("/ray.rpc.syncer.RaySyncer/StartSync")
try:
    next(call(iter([]), timeout=60))
except grpc.RpcError as error:
    print(error.code().name)
"""


def test_no_call_is_answered_without_the_token(project: Project) -> None:
    """Where nothing is encrypted, too: none of all methods, on each port of the table; nor a plain ray.init().

    What docs/security.md leaves open is so: the dashboard's cookie is the token, and there one call ends the GCS.
    """
    launch = launch_ray(project, "--env", "CLUSTER_TLS=0", "--env", "STAYS=1")
    rows = [row for row in read_table() if row.framework == "ray" and not row.when]
    look: Callable[[], list[str]] = lambda: list(wrong_sockets(launch, rows, launch.ports()))  # noqa: E731
    wait_until(lambda: not look(), lambda: f"the sockets to be those of the table: {look()}")
    interpreter = project.path / ".venv" / "envs" / "ray" / "bin" / "python"
    ends = ends_of(launch)

    def run(code: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [interpreter, "-P", "-c", code, *words]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(project.temporary), **environ}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)

    done = run(CALLS, "Bearer " + "0" * 64, *ends)
    answers = json.loads(done.stdout)
    # GCS, Ray Client on two addresses; on both nodes two of the raylet and one of its agent; the driver and 3 actors.
    # Where an actor's process came late, the raylet has started one more, which is idle.
    assert len(answers) >= 3 + 2 * 3 + 1 + 3, (sorted(answers), done.stderr)
    for end, seen in answers.items():
        assert set(seen) == {"UNAUTHENTICATED", "UNIMPLEMENTED"}, (end, seen)
    main = launch.nodes()["MAIN"]["address"].replace("127.0.0.1", "127.1.0.1")
    done = run(WITHOUT, f"{main}:{launch.ports()['GCS_PORT']}", RAY_AUTH_MODE="disabled")
    assert done.returncode != 0, done.stdout
    assert "connected" not in done.stdout
    assert "uthentication" in done.stderr, done.stderr
    project.go()
    launch.wait_for("still up 3")
    key = json.loads((launch.directory / "cluster.json").read_bytes())["environment"]["LAUNCH_KEY"]

    def asked_with(cookie: str) -> int:
        place = launch.nodes()["MAIN"]["address"], int(launch.ports()["DASHBOARD_PORT"])
        with contextlib.closing(http.client.HTTPConnection(*place, timeout=60)) as board:
            board.request("GET", "/api/jobs/", headers={"Cookie": f"ray-authentication-token={cookie}"})
            return board.getresponse().status

    assert asked_with("0" * 64) in {401, 403}
    assert asked_with(client_token(key, launch.launch_id)) == 200
    run(ENDS, f"{main}:{launch.ports()['GCS_PORT']}")
    assert launch.wait() == 76, launch.err
    assert "gcs_server [exit code=1]" in launch.err
    launch.assert_nothing_left()
