"""Another user of this machine: runs the system's Python as a uid that owns nothing here."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil

# Debian's `nobody`; no test writes a file as that user.
UID = 65534
PYTHON = Path("/usr/bin/python3")

# Reads what there is: files under the first argument, and of the processes that the others name what /proc tells. What
# open files hold is not read: pipes would be emptied.
LOOK = """
import json, os, sys
seen = {}
def read(path):
    try:
        with open(path, "rb") as file:
            seen[path] = file.read(1 << 20).decode("latin1")
    except OSError:
        pass
for folder, _, files in os.walk(sys.argv[1]):
    for name in files:
        if os.path.isfile(os.path.join(folder, name)): read(os.path.join(folder, name))
for pid in sys.argv[2:]:
    for name in ("environ", "cmdline", "status", "maps"):
        read(f"/proc/{pid}/{name}")
    for name in ("fd", "cwd", "root"):
        try:
            seen[f"/proc/{pid}/{name}"] = repr(os.listdir(f"/proc/{pid}/{name}/"))
        except OSError:
            pass
print(json.dumps(seen))
"""


def why_not() -> str:
    """Return why there is no other user here; empty where there is one."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux, to become another user"
    if not PYTHON.exists():
        return f"needs {PYTHON}, which every user can run"
    return ""


def ask(code: str, *arguments: str, timeout_s: float = 240.0) -> str:
    """Return what *code* prints, run by the other user; its errors are the test's."""
    done = subprocess.run(
        [str(PYTHON), "-I", "-c", code, *arguments],
        user=UID,
        group=UID,
        extra_groups=[],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def sockets_of(processes: list[psutil.Process]) -> list[tuple[str, int]]:
    """Return addresses and ports on which *processes* listen."""
    found = set()
    for process in processes:
        # A script's `sleep` may have ended.
        with contextlib.suppress(psutil.NoSuchProcess):
            for connection in process.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    found.add((connection.laddr.ip.removeprefix("::ffff:"), connection.laddr.port))
    return sorted(found)
