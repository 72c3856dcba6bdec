"""Dask's HTTP servers, asked as browsers, tunnels and strangers' pages ask them."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import subprocess
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from harness import Launch, Project, listening_of, wait_until

CONNECTED = """
from distributed import Client
client = Client()
client.wait_for_workers(1)  # a nanny may just be starting its worker again, where the machine is busy
print("metrics", client.run(lambda dask_worker: dask_worker.http_server.port), flush=True)
"""
UNTIL_GO = CONNECTED + "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
# A WebSocket's beginning; the key is that of RFC 6455.
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


def ask(server: tuple[str, int], path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """Return status and text of what *server* answers to a request with exactly these *headers*."""
    connection = http.client.HTTPConnection(*server, timeout=120)
    connection.putrequest(method, path, skip_host=True)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    # After 101 the connection belongs to the WebSocket, and has no end.
    text = "" if answer.status == 101 else answer.read().decode(errors="replace")
    connection.close()
    return answer.status, text


@pytest.fixture
def servers(project: Project) -> tuple[Launch, tuple[str, int], tuple[str, int]]:
    """Return a cluster with its scheduler's and its worker's HTTP server."""
    script = project.write("until_go.py", UNTIL_GO)
    launch = project.launch("dask", "1", "--entry", script, "--env", "DASHBOARD_HOSTS=dask.example.org")
    launch.wait_for("metrics")
    found = wait_until(lambda: re.search(r"dashboard (\S+)/status;", launch.err), "the dashboard's address")
    dashboard = urlsplit(found[1])
    pattern = r"metrics \{'tls://(.*):\d+': (\d+)\}"
    metrics = wait_until(lambda: re.search(pattern, launch.log("MAIN")), "the rest of the line")
    return launch, (str(dashboard.hostname), int(dashboard.port or 0)), (metrics[1], int(metrics[2]))


def test_only_own_names_and_own_pages_are_answered(
    project: Project, servers: tuple[Launch, tuple[str, int], tuple[str, int]]
) -> None:
    """By scheduler and worker, whatever the path and the method; who is refused hears nothing of the cluster."""
    launch, dashboard, metrics = servers
    address, port = dashboard

    for own in (f"{address}:{port}", "localhost:9999", f"{socket.gethostname()}:{port}", "dask.example.org"):
        assert ask(dashboard, "/health", Host=own) == (200, "ok"), own
        assert ask(metrics, "/health", Host=own) == (200, "ok"), own
    assert "WORKER_1" in ask(dashboard, "/json/identity.json", Host="localhost")[1]

    def assert_refused(server: tuple[str, int], path: str, **words: str) -> None:
        status, text = ask(server, path, **words)
        assert status == 403, (path, words, text)
        assert "DASHBOARD_HOSTS" in text
        assert "WORKER" not in text
        assert "evil" not in text

    for host in ("evil.example", f"evil.example:{port}", f"{address}.evil.example"):
        for path in ("/", "/status", "/json/identity.json", "/info/main/workers.html", "/metrics", "/statics/x", "/no"):
            assert_refused(dashboard, path, Host=host)
        assert_refused(dashboard, "/status", method="POST", Host=host)
        for path in ("/metrics", "/health", "/no"):
            assert_refused(metrics, path, Host=host)
        assert_refused(dashboard, "/eventstream", Host=host, Origin=f"http://{host}", **UPGRADE)

    assert_refused(dashboard, "/json/identity.json", Host=f"{address}:{port}", Origin="http://evil.example")
    assert_own_websockets_alone(dashboard)
    assert {address for _, address, port in listening_of(launch.launch_id) if port == dashboard[1]} == {dashboard[0]}
    project.go()
    assert launch.wait() == 0


def assert_own_websockets_alone(dashboard: tuple[str, int]) -> None:
    """Those of Dask, and Bokeh's, which Dask has take every page, are opened to the dashboard's own pages."""
    host = f"localhost:{dashboard[1]}"
    page = ask(dashboard, "/status", Host=host)[1]
    token = re.search(r'"token":\s*"([^"]+)"', page)
    assert token, page[:2000]
    bokeh = {**UPGRADE, "Sec-WebSocket-Protocol": f"bokeh, {token[1]}"}
    opened: list[tuple[str, Callable[[str], int]]] = [
        ("Dask's", lambda origin: ask(dashboard, "/eventstream", Host=host, Origin=origin, **UPGRADE)[0]),
        ("Bokeh's", lambda origin: ask(dashboard, "/status/ws", Host=host, Origin=origin, **bokeh)[0]),
    ]
    for whose, status in opened:
        for foreign in ("http://evil.example", "null", "http://localhost:1", "http://localhost"):
            assert status(foreign) == 403, (whose, foreign)
        assert status(f"http://{host}") == 101, whose


def test_in_a_network_of_its_own_a_scheduler_listens_on_loopback_too(project: Project) -> None:
    """As OWN_NETWORK=1 has it: what is forwarded to a pod arrives there; it is known by the node's address."""
    folder, python = project.path / "dask" / "preload", project.path / ".venv" / "envs" / "dask" / "bin" / "python"
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        port, dashboard = one.getsockname()[1], other.getsockname()[1]
    words = [python, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.77", "--port", f"{port}"]
    words += ["--dashboard-address", f"127.0.0.77:{dashboard}", "--preload", folder / "own_names.py"]
    scheduler = subprocess.Popen([*words, "--preload", folder / "loopback.py"], cwd=project.code, env=project.environ)

    def is_up() -> bool:
        with contextlib.suppress(OSError):
            return ask(("127.0.0.1", dashboard), "/health", Host=f"127.0.0.1:{dashboard}") == (200, "ok")
        assert scheduler.poll() is None
        return False

    try:
        wait_until(is_up, "the dashboard on loopback")
        assert ask(("127.0.0.77", dashboard), "/health", Host="127.0.0.77") == (200, "ok")
        assert ask(("127.0.0.1", dashboard), "/health", Host="evil.example")[0] == 403
        code = f"from distributed import Client; print(Client('tcp://127.0.0.1:{port}').scheduler_info()['address'])"
        done = subprocess.run([python, "-c", code], cwd=project.code, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == f"tcp://127.0.0.77:{port}"
    finally:
        scheduler.terminate()
        scheduler.wait(60)
