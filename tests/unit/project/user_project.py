"""A checkout of templates that is small, and a user's project beside it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from oci_cluster.project import create, files, update
from oci_cluster.project.files import read_file
from oci_cluster.project.unpack import unpack
from oci_cluster.project.wheel import vendored

files_write_whole = files.write_whole
ROOT = Path(__file__).resolve().parents[3]
LINES = [f"line {number}" for number in range(1, 31)]
TRAIN = "\n".join([*LINES, ""])
TEMPLATE = "scripts/templates/kubernetes.yaml.j2"


class UserProject:
    """Runs new and update as the scripts do, and keeps what they print."""

    def __init__(self, place: Path) -> None:
        self.checkout = place / "templates v1"
        self.root = place / "my project"
        self.place = place
        self.shown: list[str] = []
        self.said: list[str] = []
        real = [f"scripts/templates/project/{name}" for name in ("gitattributes", "gitignore", "Makefile", "README.md")]
        for name in ("common/pyproject.toml", "common/oci_cluster/__init__.py", *real):
            self.ours(name, (ROOT / name).read_text())
        for name in ("new.sh", "update.sh", "launch.sh", "dev-setup.sh"):
            self.ours(f"scripts/{name}", f"{name}\n", mode=0o755)
        self.ours("common/lib.sh", "".join(f"lib {number}\n" for number in range(20)))
        self.ours("common/__pycache__/lib.pyc", "never")
        self.ours("dask/extra-env-1-my.yaml", "never")
        for framework in ("dask", "ray"):
            for script in ("start-master.sh", "start-worker.sh"):
                self.ours(f"{framework}/{script}", f"start {framework}\n" + TRAIN, mode=0o755)
            self.ours(f"{framework}/example/train.py", TRAIN)
            self.ours(f"{framework}/env-lock.txt", f"lock of {framework}\n")
        for name in ("LICENSE", "config.env.example", ".dockerignore", "scripts/clusters.mk", TEMPLATE):
            self.ours(name, f"{name}\n")

    def ours(self, name: str, text: str | bytes, mode: int = 0o644) -> Path:
        """Write a file of the checkout."""
        return write(self.checkout / name, text, mode)

    def yours(self, name: str, text: str | bytes, mode: int = 0o644) -> Path:
        """Write a file of the project."""
        return write(self.root / name, text, mode)

    def new(self, *frameworks: str, **options: str) -> int:
        """Run new.sh; an option without a value is given as an empty text."""
        self.shown, self.said = [], []
        given = {f"--{name.replace('_', '-')}": [value] if value else [] for name, value in options.items()}
        words = [*(frameworks or ["dask"]), self.root.name]
        more = {"show": self.shown.append, "say": self.said.append}
        return create.run(words, given, checkout=self.checkout, cwd=self.place, **more)

    def next_version(self) -> Path:
        """Go on with a copy of the checkout, as a newer version that is edited next; return where it is."""
        number = int(self.checkout.name.rpartition("v")[2]) + 1
        newer = self.place / f"templates v{number}"
        shutil.copytree(self.checkout, newer, symlinks=True)
        self.checkout = newer
        return newer

    def update(self, *words: str, dry_run: bool = False) -> int:
        """Run update.sh, to the newest checkout where nothing else is named."""
        self.shown, self.said = [], []
        given: dict[str, list[str]] = {"--dry-run": []} if dry_run else {}
        more = {"show": self.shown.append, "say": self.said.append}
        return update.run(list(words) or [str(self.checkout)], given, root=self.root, cwd=self.place, **more)

    def unpack(self) -> None:
        """Unpack the wheel, as the first script does."""
        self.said = []
        unpack(self.root, self.said.append)

    @property
    def wheel(self) -> Path:
        """The wheel of the project."""
        found = vendored(self.root)
        assert found
        return found

    def text(self, name: str) -> str:
        """Return a file of the project."""
        return (self.root / name).read_bytes().decode()

    def everything(self) -> dict[str, tuple[bytes, str]]:
        """Return all of the project's files, with their modes."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            if (path.is_symlink() or path.is_file()) and ".git" not in path.parts and (file := read_file(path)):
                found[path.relative_to(self.root).as_posix()] = (file.content, file.mode)
        return found


def write(path: Path, text: str | bytes, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def git(root: Path, *words: str) -> str:
    """Return what git prints in *root*; with an identity of the test's own, and without anybody's configuration."""
    environ = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
    command = ["git", "-C", str(root), *identity, *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


class KilledError(Exception):
    """What a test has instead of SIGKILL."""


def killed_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the write of the file with this number, from 0, end the process."""
    left = [count]

    def write_whole(path: Path, content: bytes, *, mode: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        files_write_whole(path, content, mode=mode)

    monkeypatch.setattr(files, "write_whole", write_whole)


def edited(text: str, number: int, line: str) -> str:
    """Return *text* with its line *number*, from 1, replaced."""
    lines = text.split("\n")
    lines[number - 1] = line
    return "\n".join(lines)
