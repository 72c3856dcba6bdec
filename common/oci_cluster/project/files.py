"""Files as a version of the templates has them, and a project: content and mode, wherever they came from."""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.errors import SettingsError
from oci_cluster.system.files import not_writable
from oci_cluster.system.text import printable

# git's own words for the kinds of files that there are.
PLAIN, EXECUTABLE, LINK = "100644", "100755", "120000"

# What tools and builds make again, in folders that are copied. ``extra-env-*``, too, are lent to builds.
_RUBBISH_NAMES = frozenset({"__pycache__", "node_modules", "Dockerfile.dockerignore"})
_RUBBISH_ENDS = (".pyc", "~", ".orig", ".rej", ".swp")
_KEPT_HIDDEN = frozenset({".dockerignore", ".gitattributes"})


@dataclass(frozen=True)
class File:
    """One file.

    Attributes:
        content: Its bytes; of a link, where it leads.
        mode: `PLAIN`, `EXECUTABLE` or `LINK`.
    """

    content: bytes
    mode: str = PLAIN

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, in hex digits."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return self.mode == LINK

    @property
    def is_text(self) -> bool:
        """Whether it has lines, for git's own reason: no zero byte. A link has none."""
        return not self.is_link and b"\0" not in self.content


Files = Mapping[str, File]
"""Files by their path from the root, with / between the parts."""


def check_name(name: str) -> str:
    """Return *name*, a path that came from elsewhere, if it stays in the folder that it is joined to.

    Raises:
        ValueError: it is absolute, leads out, is not in its shortest form, or is in a git's own folder.
    """
    parts = name.split("/")
    is_clean = bool(name) and "\0" not in name and "\\" not in name and not {"", ".", ".."} & set(parts)
    if not is_clean or any(part.lower() == ".git" for part in parts):
        msg = f"'{printable(name)}' is no path inside a project"
        raise ValueError(msg)
    return name


def check_link(name: str, target: str) -> None:
    """Check that the link *name* leads to a place in its own folder's root.

    Raises:
        ValueError: it leads out.
    """
    end = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if not target or target.startswith("/") or end == ".." or end.startswith("../"):
        msg = f"the link '{printable(name)}' leads out of its folder, to '{printable(target)}'"
        raise ValueError(msg)


def check_files(files: Files) -> None:
    """Check what came from elsewhere: each path, each link, and that no file stands where another needs a folder.

    Raises:
        ValueError: names the first that is wrong.
    """
    for name, file in files.items():
        check_name(name)
        if file.is_link:
            check_link(name, os.fsdecode(file.content))
            _check_way(name, os.fsdecode(file.content), files)
        for parent in parents(name):
            if parent in files:
                msg = f"'{printable(parent)}' is a file, and the folder of '{printable(name)}'"
                raise ValueError(msg)


def _check_way(name: str, target: str, files: Files) -> None:
    """Raise ValueError where the link *name* gets to its *target* by way of another link: that leads anywhere."""
    place = name.split("/")[:-1]
    for part in target.split("/")[:-1]:
        if part == "..":
            place.pop()
        elif part not in {"", "."}:
            place.append(part)
        by_way_of = files.get("/".join(place))
        if by_way_of is not None and by_way_of.is_link:
            msg = f"the link '{printable(name)}' leads by way of another one, '{printable('/'.join(place))}'"
            raise ValueError(msg)


def parents(name: str) -> list[str]:
    """Return the folders that *name* is in, the innermost first."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def read_file(path: Path) -> File | None:
    """Return the file *path* of this machine, a link as itself; None where there is none.

    Raises:
        SettingsError: it is a folder or a device, or cannot be read.
    """
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return File(os.fsencode(path.readlink()), LINK)
        if stat.S_ISREG(found.st_mode):
            return File(path.read_bytes(), EXECUTABLE if found.st_mode & stat.S_IXUSR else PLAIN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}; allow reading it"
        raise SettingsError(msg) from error
    kind = "a folder" if stat.S_ISDIR(found.st_mode) else "neither a file nor a link"
    msg = f"{path} is {kind}, where a file of the templates belongs; rename it"
    raise SettingsError(msg)


def read_folder(root: Path, places: Iterable[str]) -> dict[str, File]:
    """Return the files of *root* at *places*: files, and folders with all that is in them but what tools make.

    Raises:
        SettingsError: something is neither file, folder nor link, cannot be read, or leads out of *root*.
    """
    files: dict[str, File] = {}
    for place in places:
        start = root / place
        if not start.is_dir() or start.is_symlink():
            if file := read_file(start):
                files[place] = file
            continue
        for folder, folders, names in os.walk(start):
            here = Path(folder)
            links = [name for name in folders if (here / name).is_symlink()]
            folders[:] = [name for name in folders if name not in links and not is_rubbish(name)]
            for name in [*names, *links]:
                if not is_rubbish(name) and (file := read_file(here / name)):
                    files[(here / name).relative_to(root).as_posix()] = file
    try:
        check_files(files)
    except ValueError as error:
        msg = f"{root}: {error}; correct it there"
        raise SettingsError(msg) from error
    return files


def is_rubbish(name: str) -> bool:
    """Return whether a file or folder of this name is made by tools, and is no part of a version."""
    hidden = name.startswith(".") and name not in _KEPT_HIDDEN
    lent = name.startswith("extra-env-") and name.endswith(".yaml")
    return hidden or lent or name in _RUBBISH_NAMES or name.endswith(_RUBBISH_ENDS)


def check_way(root: Path, name: str) -> None:
    """Check that *name* can be written below *root*: each folder on the way is one, and none is a link.

    Raises:
        SettingsError: a file or a link is in the way: what is written would be somewhere else.
    """
    for parent in parents(name):
        path = root / parent
        if path.is_symlink():
            msg = f"{path} is a link, and a folder of the templates belongs there; put a folder in its place"
            raise SettingsError(msg)
        if path.exists() and not path.is_dir():
            msg = f"{path} is a file, and a folder of the templates belongs there; rename it"
            raise SettingsError(msg)


def put(path: Path, file: File, like: Path | None = None) -> None:
    """Make the file *path*, in a folder that is there, where nothing is; *like* is a file whose permissions it gets.

    Raises:
        BackendError, NotPermittedError: it cannot be written.
    """
    try:
        if file.is_link:
            path.symlink_to(os.fsdecode(file.content))
            return
        path.write_bytes(file.content)
        readable = stat.S_IMODE((like or path).stat().st_mode) & 0o666
        # Whoever may read it may execute it, as git has it.
        path.chmod(readable | (readable & 0o444) >> 2 if file.mode == EXECUTABLE else readable)
    except OSError as error:
        raise not_writable(path, error) from error
