"""An empty Debian 12 on this machine, with an ordinary user: what a reader has who follows the pages.

Its file system is a directory, its mounts and processes are namespaces, which end with whoever holds it. Its network is
this machine's: apt and pip ask the registries that they ask here, by the settings that they have here.

Needs root on Linux; mmdebstrap, mount, util-linux.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import engine
import hosts
import psutil
from doc_pages import ROOT, files
from harness import PATIENCE_S

# What these programs are told here, of indexes, proxies and certificates; not of folders, which are not there.
_LENT = re.compile(r"PIP_(?!FIND_LINKS)\w+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|(?i:https?_proxy|no_proxy)")
_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
_MOUNTS = "mount -t proc proc proc; mount --rbind /dev dev; mount -t tmpfs -o mode=1777 tmpfs tmp"
_USER, _UID = "ada", 1000
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def why_not() -> str:
    """Return what is missing to make one here; empty where nothing is."""
    if reason := hosts.why_not():
        return reason
    return "" if shutil.which("mmdebstrap") else "needs mmdebstrap (Debian's mmdebstrap)"


class CleanRoot:
    """A Debian of its own. A context manager: at its end nothing of it runs or is mounted.

    Args:
        directory: A new directory for its files.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory
        #: Where the user has the project, as in the Debian.
        self.checkout = f"/home/{_USER}/launch templates"
        self._lent = {name: text for name, text in os.environ.items() if _LENT.fullmatch(name)}
        subprocess.run(["tar", "--extract", f"--file={engine.debian_tar()}", f"--directory={directory}"], check=True)
        for name in _FILES:
            if Path(name).is_file():
                shutil.copyfile(name, f"{directory}{name}")
        program = f'cd "$0"; {_MOUNTS}; exec cat'
        self._holder = hosts._first_process(
            "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", program, str(directory)
        )
        self._first = psutil.Process(self._holder.pid).children()[0].pid
        self.root(f"useradd --create-home --uid {_UID} --shell /bin/bash {_USER}")
        self._clone()

    def __enter__(self) -> CleanRoot:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate(timeout=60)

    def _clone(self) -> None:
        """Give the user what git knows of this checkout, as a clone has it."""
        top = Path(f"{self.path}{self.checkout}")
        for file in files():
            place = top / file.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place, follow_symlinks=False)
        self.root(f"chown --recursive {_USER}: '{self.checkout}'")

    def command(self, line: str, *, user: str = _USER) -> list[str]:
        """Return what runs a *line* of bash in the Debian, in the project's folder."""
        home = "/root" if user == "root" else f"/home/{user}"
        words = {"PATH": _PATH, "HOME": home, "USER": user, "DEBIAN_FRONTEND": "noninteractive", **self._lent}
        number = 0 if user == "root" else _UID
        return [
            *("nsenter", f"--target={self._first}", "--mount", "--pid"),
            *("chroot", f"--userspec={number}:{number}", str(self.path)),
            *("env", "--ignore-environment", *(f"{name}={text}" for name, text in words.items())),
            *("bash", "-c", f'cd "$0" 2>/dev/null || cd /; {line}', self.checkout),
        ]

    def start(self, line: str) -> subprocess.Popen[str]:
        """Start a *line* of bash as the user; its stdout can be read."""
        return subprocess.Popen(self.command(line), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def run(self, line: str, *, user: str = _USER) -> str:
        """Run a *line* of bash to its end, which is a success; return all that it prints."""
        done = subprocess.run(
            self.command(line, user=user),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}: ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def root(self, line: str) -> str:
        """Run a *line* of bash as root."""
        return self.run(line, user="root")

    def write(self, name: str, text: str) -> None:
        """Write a file of the user's into the project's folder."""
        path = Path(f"{self.path}{self.checkout}") / name
        path.write_text(text)
        os.chown(path, _UID, _UID)
