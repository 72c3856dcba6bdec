"""How tests reach a session: what a person opens, and a tab of JupyterLab."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
from harness import Launch, processes_of, wait_until

CLIENT = Path(__file__).parent / "notebook_client.py"


def url_of(session: Launch) -> str:
    """Return what a person opens: stderr is no terminal here, so it is in a private file."""
    path = session.directory / "session-url"
    wait_until(lambda: path.exists() or session.process.poll() is not None, lambda: f"{path}; {session.err}")
    assert path.exists(), session.err
    assert path.stat().st_mode & 0o077 == 0
    return path.read_text().strip()


def token_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["token"][0]


def assert_kept_secret(session: Launch, token: str) -> None:
    """The token stands in no log, on no command line, and in the environment of no process."""
    logs = "".join(path.read_text() for path in (session.directory / "logs").iterdir())
    assert token not in logs + session.out + session.err
    for process in processes_of(session.launch_id):
        with contextlib.suppress(psutil.NoSuchProcess):
            assert token not in f"{process.cmdline()}{process.environ()}"


@contextlib.contextmanager
def tab(session: Launch, url: str, code: str, scratch: Path) -> Iterator[Path]:
    """Run *code* in a cell, and keep the tab open for the block; yield the file with what has been printed."""
    python = json.loads((session.directory / "cluster.json").read_text())["python"]
    printed = scratch / "tab"
    with printed.open("wb") as output:
        command = [python, "-E", str(CLIENT), url, code]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield printed
    finally:
        process.kill()
        process.communicate()
