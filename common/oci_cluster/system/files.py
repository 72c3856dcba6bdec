"""Files of this machine: written whole, locked; and as a cluster dir."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from oci_cluster.errors import BackendError, NotPermittedError, StoppedError

PROTOCOL = "file"
# Of what is kept of a cluster most is its environment. What a program can be given of that and of arguments is 6 MB at
# most (Linux, exec.c: three quarters of _STK_LIM); as JSON it takes some more.
_MOST_KEPT_BYTES = 16 << 20
# Between two looks at a lock that another process has.
_LOOK_S = 0.02


def at_home(path: str | Path) -> Path:
    """Return *path* with its ``~`` replaced; an unknown home stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - pathlib's raises RuntimeError there


class NoRegularFileError(OSError):
    """A pipe, device or folder in a file's place, or another user's secret."""


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file to read it; a pipe would wait."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise NoRegularFileError(errno.EINVAL, "not a regular file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NoRegularFileError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | Path, start: int = 0, end: int | None = None) -> bytes:
    """Return the bytes of a regular file from *start* to *end*."""
    with open_regular(path) as file:
        file.seek(start)
        return file.read(-1 if end is None else end - start)


def read_kept(path: Path) -> bytes:
    """Return a file of a cluster's own directory, which its nodes could have replaced."""
    body = read_regular(path, 0, _MOST_KEPT_BYTES + 1)
    if len(body) > _MOST_KEPT_BYTES:
        raise OSError(errno.EFBIG, f"larger than {_MOST_KEPT_BYTES} bytes", str(path))
    return body


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Replace the private file *path*: readers see the old content or the new."""
    with _replaced(path, mode) as file:
        # What the file system's names could not decode comes back as it was.
        file.write(os.fsencode(content))


@contextmanager
def _replaced(path: Path, mode: int) -> Iterator[BinaryIO]:
    """Yield a file that replaces *path*, or a link there, when it is whole."""
    # The random part keeps two writers apart.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(
    path: Path, waiting: Callable[[], object] = lambda: None, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[int]:
    """Hold the lock of the file *path*, which is made; yield its descriptor.

    A lock and not a file that is there: it goes with the process that holds it, however that ends. Raise StoppedError
    where *is_stopped* before another one has given it up.
    """
    try:
        path.parent.mkdir(exist_ok=True)
        # Who may read the file may lock it: another user of the machine must not hold up every launch.
        lock = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w")
    except OSError as error:
        raise not_writable(path.parent, error) from error
    with lock:
        if not _is_taken(lock):
            waiting()
            # A wait of the kernel's would not end with a signal that is only noted.
            while not _is_taken(lock):
                if is_stopped():
                    raise StoppedError(f"stopped while another process had {path}")
                time.sleep(_LOOK_S)
        yield lock.fileno()


def _is_taken(lock: IO[str]) -> bool:
    """Take *lock*; return whether this process has it now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock of the file *path*."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # to open a pipe would wait for who writes
    except FileNotFoundError:
        return False
    try:
        # Shared: two who ask at the same time must not take each other for a holder.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def not_writable(path: Path, error: OSError) -> BackendError | NotPermittedError:
    """Return what to raise where *path* of this machine cannot be written."""
    is_refused = error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}
    is_gone = error.errno in {errno.ENOENT, errno.ESTALE, errno.ENOTCONN}
    advice = "allow writing there" if is_refused else "bring its folder back" if is_gone else "make room there"
    kind = NotPermittedError if is_refused else BackendError
    return kind(f"{path} cannot be written: {error.strerror}; {advice}")


class LocalFiles:
    """A replacement of fsspec's ``LocalFileSystem``, for paths without a protocol.

    To import fsspec takes 0.1 s of CPU: three quarters of what starting an agent costs, for each of them.
    """

    protocol = PROTOCOL

    def invalidate_cache(self) -> None:
        """Do nothing: nothing is kept."""

    def makedirs(self, path: str, *, exist_ok: bool) -> None:
        """Make the folder *path*, and those above it."""
        Path(path).mkdir(parents=True, exist_ok=exist_ok)

    def make_folders(self, root: str, path: str) -> None:
        """Make the folders of the file *path* below the folder *root*, never *root*.

        One whose disk has gone away would come to life in its place, and the disk could not come back to it.
        """
        made = Path(root)
        for part in Path(path).relative_to(root).parts[:-1]:
            made /= part
            made.mkdir(exist_ok=True)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
        """Replace the file *path*, whole; with the mode ``create`` only make it.

        A folder that somebody has put there is moved aside.
        """
        if mode == "create":
            with Path(path).open("xb") as file:
                file.write(value)
            return
        try:
            write_whole(Path(path), value)
        except IsADirectoryError:
            Path(path).rename(Path(path).with_name(f".{Path(path).name}.{secrets.token_hex(4)}"))
            write_whole(Path(path), value)

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of a regular file from *start* to *end*."""
        try:
            return read_regular(path, start, end)
        except PermissionError as error:
            if Path(path).stat().st_uid == os.geteuid():
                raise
            raise NoRegularFileError(errno.EACCES, "not readable", path) from error

    def info(self, path: str) -> dict[str, Any]:
        """Describe the file or folder *path*; a new description is a changed file."""
        return _describe(path, Path(path).stat())

    def ls(self, path: str, *, detail: bool) -> list[dict[str, Any]]:
        """Describe all that is in the folder *path*, always in *detail*."""
        assert detail  # noqa: S101 - nobody asks for less
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    found.append(_describe(entry.path, entry.stat()))
                except FileNotFoundError:  # it has just gone, or is a link that leads nowhere
                    continue
        return found

    def put_file(self, source: str, path: str) -> None:
        """Replace the file *path* by a copy of *source*, whole."""
        with Path(source).open("rb") as file, _replaced(Path(path), 0o666) as copy:
            shutil.copyfileobj(file, copy)

    def rm_file(self, path: str) -> None:
        """Delete the file *path*; a folder there is none."""
        if not stat.S_ISDIR(Path(path).lstat().st_mode):
            Path(path).unlink()

    def rm(self, path: str, *, recursive: bool) -> None:
        """Delete the folder *path* with all that is in it."""
        assert recursive  # noqa: S101 - a single file is rm_file's
        shutil.rmtree(path)


def _describe(path: str, found: os.stat_result) -> dict[str, Any]:
    kind = "directory" if stat.S_ISDIR(found.st_mode) else "file"
    return {"name": path, "size": found.st_size, "type": kind, "mtime": found.st_mtime_ns, "ino": found.st_ino}
