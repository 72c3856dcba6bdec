"""Files of versions and projects: content and mode."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.errors import SettingsError
from oci_cluster.system.files import not_writable, write_whole

# git's own words for the kinds of files that there are.
PLAIN, EXECUTABLE, LINK = "100644", "100755", "120000"

# What tools and builds make again, in folders that are copied. ``extra-env-*``, too, are lent to builds.
_RUBBISH_NAMES = frozenset({"__pycache__", "node_modules", "Dockerfile.dockerignore"})
_RUBBISH_ENDS = (".pyc", "~", ".orig", ".rej", ".swp")


@dataclass(frozen=True)
class File:
    """One file: its bytes, of a link where it leads; `PLAIN`, `EXECUTABLE` or `LINK`."""

    content: bytes
    mode: str = PLAIN

    @property
    def is_text(self) -> bool:
        """Whether it has lines, as git sees it: no zero byte, no link."""
        return self.mode != LINK and b"\0" not in self.content

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, in hex digits."""
        return hashlib.sha256(self.content).hexdigest()


Files = Mapping[str, File]
"""Files by their path from the root, with / between the parts."""


def is_inside(name: str) -> bool:
    """Return whether *name*, a path from elsewhere, stays inside its folder."""
    parts = name.split("/")
    is_clean = bool(name) and "\0" not in name and "\\" not in name and not {"", ".", ".."} & set(parts)
    return is_clean and ".git" not in (part.lower() for part in parts)


def is_rubbish(name: str) -> bool:
    """Return whether tools make files of this *name*, which no version has."""
    return name.startswith((".", "extra-env-")) or name in _RUBBISH_NAMES or name.endswith(_RUBBISH_ENDS)


def read_file(path: Path) -> File | None:
    """Return the file *path*, a link as itself; None where there is none."""
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return File(os.fsencode(path.readlink()), LINK)
        if stat.S_ISREG(found.st_mode):
            return File(path.read_bytes(), EXECUTABLE if found.st_mode & stat.S_IXUSR else PLAIN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}; allow reading it") from error
    kind = "a folder" if stat.S_ISDIR(found.st_mode) else "neither a file nor a link"
    raise SettingsError(f"{path} is {kind}, where a file of the templates belongs; rename it")


def read_folder(root: Path, places: Iterable[str]) -> dict[str, File]:
    """Return the files of *root* at *places*, without what tools make."""
    files: dict[str, File] = {}
    for place in places:
        paths = [root / place]
        for folder, folders, names in os.walk(root / place) if not paths[0].is_symlink() else ():
            folders[:] = [name for name in folders if not is_rubbish(name)]
            here, links = Path(folder), [name for name in folders if Path(folder, name).is_symlink()]
            paths += [here / name for name in [*names, *links] if not is_rubbish(name)]
        for path in paths[1:] if paths[0].is_dir() and not paths[0].is_symlink() else paths:
            file = read_file(path)
            if file and file.mode == LINK:
                raise SettingsError(f"{path} is a link, which no project gets; put a file in its place")
            if file:
                files[path.relative_to(root).as_posix()] = file
    return files


# --- Changes of a project ---------------------------------------------------------------------------------------------


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only one that changes *folder*; wait for who does."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise SettingsError(f"{folder} cannot be opened: {error.strerror}; allow reading it") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_way(root: Path, name: str) -> None:
    """Check that *name* can be written below *root*, through no link."""
    for path in reversed((root / name).parents):
        if path != root and path.is_relative_to(root):
            if path.is_symlink():
                raise SettingsError(
                    f"{path} is a link, and a folder of the templates belongs there; put a folder in its place"
                )
            if path.exists() and not path.is_dir():
                raise SettingsError(f"{path} is a file, and a folder of the templates belongs there; rename it")
    there = next(path for path in (root / name).parents if path.is_dir())
    if not os.access(there, os.W_OK | os.X_OK):
        raise not_writable(there, PermissionError(13, "Permission denied"))


def put(root: Path, name: str, file: File | None) -> None:
    """Make the file *name* of *root* be *file*; None removes it."""
    path = root / name
    try:
        if file is None:
            path.unlink(missing_ok=True)
            for parent in path.parents[: name.count("/")]:
                if not any(parent.iterdir()):
                    parent.rmdir()
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) & 0o666 if path.exists() else 0o666
        # Whoever may read it may execute it, as git has it.
        write_whole(path, file.content, mode=mode | (mode & 0o444) >> 2 if file.mode == EXECUTABLE else mode)
    except OSError as error:
        raise not_writable(path, error) from error
