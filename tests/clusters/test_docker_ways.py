"""Ways to ports of containers of a real engine, and what is exposed of them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator

import engine as engines
import pytest
from engine import Engine
from harness import Project, wait_until
from port_servers import many_at_once, read_all, send_and_read

from oci_cluster.backends.base import PortForward
from oci_cluster.backends.docker.backend import DockerBackend
from oci_cluster.errors import BackendError
from oci_cluster.system.engine import Engine as Client

pytestmark = pytest.mark.skipif(bool(engines.why_not()), reason=engines.why_not() or "runs")

# Three servers: on loopback, on the container's own address, and where a script is told to listen. The first sends back
# what comes, the others say its hash when no more does.
SERVERS = """
import hashlib, os, socketserver, threading, time

class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)

class Hash(socketserver.StreamRequestHandler):
    def handle(self):
        found = hashlib.sha256()
        while data := self.request.recv(1 << 16):
            found.update(data)
        self.request.sendall(found.hexdigest().encode())

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 64

exposed = int(os.environ["EXPOSED_PORTS"])
own, all_ = os.environ["NODE_ADDRESS"], os.environ["LISTEN_ADDRESS"]
places = ("127.0.0.1", 7001, Echo), (own, 7002, Hash), (all_, exposed, Hash)
for host, port, handler in places:
    threading.Thread(target=Server((host, port), handler).serve_forever, daemon=True).start()
print("entry up", flush=True)
time.sleep(1000)
"""
# Holds a connection until it is killed.
HOLDER = """
import sys, time
from pathlib import Path
from oci_cluster.backends import open_backend
backend = open_backend("docker", Path(sys.argv[1]), {"DOCKER": sys.argv[2]})
(cluster,) = backend.find("mine")
connection = backend.port_forward(cluster, backend.load(cluster), "MAIN", 7001, print).dial()
print("connected", flush=True)
time.sleep(1000)
"""

# Kills the programs in a container that pass bytes on.
KILL_RELAYS = """
import os, pathlib, signal
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    if b"-I\\0-S\\0-c" in path.read_bytes() and path.parent.name != str(os.getpid()):
        os.kill(int(path.parent.name), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def engine(toy_engine: Engine) -> Engine:
    return toy_engine


@pytest.fixture
def contained(project: Project, engine: Engine) -> Project:
    """Return a project whose nodes are containers."""
    project.environ |= {
        "BACKEND": "docker",
        "DOCKER": engine.docker,
        "DOCKER_HOST": engine.environ["DOCKER_HOST"],
        "IMAGE": "plain:1",
    }
    return project


@pytest.fixture
def served(contained: Project) -> Iterator[Project]:
    """Return a project whose cluster ``mine`` has servers on main."""
    project = contained
    entry = project.write("entry.py", SERVERS)
    launch = project.launch("plain", "1", "--name", "mine", "--entry", entry, EXPOSE="7100")
    wait_until(lambda: "entry up" in launch.out, lambda: f"the servers: {launch.out}{launch.err}")
    yield project
    launch.interrupt()
    assert launch.wait() == 143, launch.err


def tunnel_to(served: Project, engine: Engine, port: int, node: str = "MAIN") -> PortForward:
    backend = DockerBackend(Client(engine.docker, engine.environ), served.path)
    (cluster,) = backend.find("mine")
    return backend.port_forward(cluster, backend.load(cluster), node, port, lambda _: None)


def relays(engine: Engine) -> int:
    """Return how many programs run in main's container that pass bytes on."""
    (main,) = engine.run("ps", "--quiet", "--filter=label=oci-cluster.node=MAIN").stdout.split()
    return engine.run("top", main, "-o", "pid,args").stdout.count("python -I -S -c")


def test_every_port_of_a_container_is_reached(served: Project, engine: Engine) -> None:
    """On loopback there, on its own address, on all; published is what is exposed alone, and on loopback here."""
    data = os.urandom(16 << 20)
    assert send_and_read(tunnel_to(served, engine, 7001).dial, data) == data
    for port in (7002, 7100):
        assert send_and_read(tunnel_to(served, engine, port).dial, data).decode() == hashlib.sha256(data).hexdigest()
    assert many_at_once(tunnel_to(served, engine, 7001).dial, 12) == 12
    (main,) = engine.run("ps", "--quiet", "--filter=label=oci-cluster.node=MAIN").stdout.split()
    assert engine.run("port", main).stdout.split() == ["7100/tcp", "->", "127.0.0.1:7100"]
    connected = served.run("connect", "mine", "--port", "7001", "--check")
    assert connected.returncode == 0, connected.stderr
    assert "exposed: 7100" in served.run("status", "mine").stdout.splitlines()
    with pytest.raises(BackendError, match=r"nobody listens on port 7001 of WORKER_1 \(Connection refused\)"):
        tunnel_to(served, engine, 7001, "WORKER_1").dial()
    wait_until(lambda: relays(engine) == 0, lambda: f"no program to be left: {relays(engine)}")


def test_whoever_is_killed_leaves_no_program_in_the_container(served: Project, engine: Engine) -> None:
    """The launcher, the engine's client, or the connection's other end."""
    code = [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = [{str(served.path / 'common')!r}]\n" + HOLDER]
    holder = subprocess.Popen(
        [*code, str(served.path), engine.docker], env=engine.environ, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "connected\n"
    assert relays(engine) == 1
    holder.kill()
    holder.communicate()
    wait_until(lambda: relays(engine) == 0, "the end of what was left without its launcher")

    with tunnel_to(served, engine, 7001).dial() as connection:
        (main,) = engine.run("ps", "--quiet", "--filter=label=oci-cluster.node=MAIN").stdout.split()
        engine.run("exec", main, "python", "-c", KILL_RELAYS)
        assert read_all(connection) == b""
    tunnel = tunnel_to(served, engine, 7001, "WORKER_1")
    (worker,) = engine.run("ps", "--quiet", "--filter=label=oci-cluster.node=WORKER_1").stdout.split()
    engine.run("kill", worker)
    with pytest.raises(BackendError, match=r"port 7001 of WORKER_1 cannot be reached: .*is not running"):
        tunnel.dial()


# --- What is published, as somebody on the engine's machine finds it

# Where Dask's dashboard listens: on the container's own address.
DASHBOARD = (
    "import http.server, os\n"
    "open('/tmp/status', 'w').write('all is well')\n"
    "os.chdir('/tmp')\n"
    "server = http.server.HTTPServer((os.environ['NODE_ADDRESS'], 8787), http.server.SimpleHTTPRequestHandler)\n"
    "print('entry up', flush=True)\n"
    "server.serve_forever()\n"
)
BROWSER = (
    "import sys, urllib.request as r\n"
    "try: print(r.build_opener(r.ProxyHandler({})).open(sys.argv[1], timeout=60).read().decode())\n"
    "except OSError as error: print(error)"
)


def on_its_machine(engine: Engine, *command: str) -> str:
    """Return what *command* prints on the engine's machine, which is a network of its own."""
    return subprocess.run(engine.inside(*command), capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(("publish", "port"), [("8787", 8787), ("18787:8787 9001", 18787)])
def test_a_published_port_is_opened_on_this_machine(
    contained: Project, engine: Engine, publish: str, port: int
) -> None:
    """By a browser here, on 127.0.0.1; on no other address, and no longer when it has ended."""
    launch = contained.launch("plain", "1", "--entry", contained.write("entry.py", DASHBOARD), PUBLISH=publish)
    wait_until(lambda: "entry up" in launch.out, lambda: f"the server: {launch.out}{launch.err}")
    browse = (sys.executable, "-I", "-c", BROWSER, f"http://127.0.0.1:{port}/status")
    assert on_its_machine(engine, *browse) == "all is well"
    sockets = on_its_machine(engine, "ss", "--no-header", "--listening", "--tcp", "--numeric").splitlines()
    listening = {line.split()[3] for line in sockets}
    assert f"127.0.0.1:{port}" in listening
    assert not {address for address in listening if not address.startswith("127.")}
    launch.interrupt()
    assert launch.wait() == 143, launch.err
    assert "Connection refused" in on_its_machine(engine, *browse)
