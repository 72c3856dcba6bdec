"""A repository behind a password: a real git, a real server, and everybody who looks on."""

from __future__ import annotations

import base64
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from oci_cluster.node.begin.code import NoCodeError, fetch_code

PASSWORD = "pa%ss w/ord"  # noqa: S105 - of no account
IN_URL = "pa%25ss%20w%2Ford"


class Repositories(http.server.BaseHTTPRequestHandler):
    """Serves what git's own CGI program serves, to one account."""

    root: Path
    login = f"Basic {base64.b64encode(f'me:{PASSWORD}'.encode()).decode()}"

    def do_GET(self) -> None:
        """Answer a request, whatever its method."""
        if self.headers.get("Authorization") != self.login:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="code"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        environ = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        done = subprocess.run(["git", "http-backend"], env=environ, input=body, capture_output=True, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        self.send_response(200)
        for line in head.decode().splitlines():
            self.send_header(*line.split(": ", 1))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Serve the repository `r`, whose branch is `main`."""
    repository = tmp_path / "served" / "r"
    repository.mkdir(parents=True)
    (repository / "train.py").write_text("print(1)")
    me = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (["init", "--quiet", "-b", "main"], ["add", "."], [*me, "commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", "-C", repository, *words], check=True)
    Repositories.root = repository.parent
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Repositories)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose git notes its command lines, and its helpers' ones, in `seen`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    git = shutil.which("git")
    programs = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
    for name, real in (("git", git), ("git-remote-http", f"{programs}/git-remote-http")):
        (folder / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "$0 $*" >>"{tmp_path}/seen"\nexec "{real}" "$@"\n')
        (folder / name).chmod(0o755)
    for path in Path(programs).iterdir():
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    keep = {name: os.environ[name] for name in ("HOME", "NO_PROXY", "no_proxy") if name in os.environ}
    return {**keep, "PATH": f"{folder}:{os.environ['PATH']}", "GIT_EXEC_PATH": str(folder)}


def test_code_behind_a_password_is_fetched_and_no_command_line_holds_it(
    address: str, environ: dict[str, str], tmp_path: Path
) -> None:
    """Anybody on the machine reads command lines; what stays of the repository is read by who gets the outputs."""
    target = tmp_path / "code"
    fetch_code(f"git+http://me:{IN_URL}@{address}/r@main", target, environ=environ)
    assert (target / "train.py").read_text() == "print(1)"
    seen = (tmp_path / "seen").read_text()
    assert f"http://{address}/r" in seen
    assert "git-remote-http" in seen
    kept = b"".join(path.read_bytes() for path in (target / ".git").rglob("*") if path.is_file())
    for secret in (PASSWORD, IN_URL, "me:"):
        assert secret not in seen
        assert secret.encode() not in kept


def test_a_wrong_password_is_refused_without_being_told(address: str, environ: dict[str, str], tmp_path: Path) -> None:
    """git's own words, and no question that waits for an answer."""
    with pytest.raises(NoCodeError, match="Authentication failed") as caught:
        fetch_code(f"git+http://me:hunter2@{address}/r@main", tmp_path / "code", environ=environ)
    assert str(caught.value).startswith(f"CODE_URI git+http://***@{address}/r@main: ")
    assert "hunter2" not in str(caught.value)
