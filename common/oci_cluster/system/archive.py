"""Folders as tar files: same files, same bytes; unpacked only into their folder.

Whoever unpacks here catches `ArchiveError` for what is wrong with an archive, `OSError` for what is wrong with a disk,
and never asks which of Python's modules has found it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from oci_cluster.errors import SettingsError

if sys.version_info >= (3, 12):
    import tarfile
else:  # extraction filters came with 3.11.4 only: Debian 12 has 3.11.2
    from backports import tarfile

# Code, not data: above that a launch would be slower than an image.
MAX_CODE_BYTES = 100 * 2**20
# A name that is long, and attributes, stand before their file; all of them is kept in memory.
_MAX_HEADER_BYTES = 2**16
_HEADERS = frozenset(
    {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
)


class ArchiveError(Exception):
    """An archive that is broken, is none, or holds what must not be unpacked."""


class ArchiveTooLargeError(ArchiveError):
    """An archive that holds more than its reader has room for."""


# --- Packing ----------------------------------------------------------------------------------------------------------


def pack_code(source: Path, paths: Sequence[Path], target: Path) -> str:
    """Write files and links of *source* as a compressed tar; return its sha256.

    The same files make the same bytes, whoever packs them and when. *paths* are in an order that lasts; see
    ``system/code_files.py`` for which they are.
    """
    total = 0
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in paths:
            name = path.relative_to(source).as_posix()
            entry = tar.gettarinfo(path, name)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            total += entry.size
            if total > MAX_CODE_BYTES:
                raise SettingsError(
                    f"the code in {source} is more than {MAX_CODE_BYTES >> 20} MiB ({name} made it so); "
                    "name a smaller folder with --code, and keep data in a bucket"
                )
            try:
                tarfile.data_filter(entry, str(source))
                if entry.isreg():
                    with path.open("rb") as content:
                        tar.addfile(entry, content)
                else:
                    tar.addfile(entry)
            except (tarfile.TarError, OSError) as error:
                raise SettingsError(
                    f"{path} cannot be sent to the nodes: {error}; move it out of {source}, or name another --code"
                ) from error
    return hashlib.sha256(target.read_bytes()).hexdigest()


def pack_file(name: str, content: bytes, *, mode: int, modified_s: int) -> bytes:
    """Return a tar with one file of root's, of *mode*, written *modified_s* after 1970."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mtime, entry.mode = len(content), modified_s, mode
        tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


# --- Unpacking --------------------------------------------------------------------------------------------------------


class _Entry(tarfile.TarInfo):  # type: ignore[misc]  # untyped
    """An entry of somebody's archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Entry:
        """Return the entry whose block is *buf*; refuse one that would fill the memory."""
        entry: _Entry = super().frombuf(buf, encoding, errors)
        if entry.type in _HEADERS and entry.size > _MAX_HEADER_BYTES:
            raise ArchiveTooLargeError(f"a name or attributes of {entry.size} bytes")
        return entry

    def _refuse(self, *_: object) -> NoReturn:
        raise ArchiveError("a sparse file, whose list of holes may fill the memory; pack it without --sparse")

    # Names of tarfile's own, one for each form of GNU tar's sparse files; a test has them all.
    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse


def _checked(entry: tarfile.TarInfo, directory: str) -> tarfile.TarInfo | None:
    """Return what is unpacked of *entry*.

    A link's way is made plain first, as the filters of newer Pythons do: a link on it may be replaced afterwards.
    """
    if entry.issym():
        entry = entry.replace(linkname=os.path.normpath(entry.linkname), deep=False)
    return tarfile.data_filter(entry, directory)


def unpack(archive: Path, directory: Path) -> None:
    """Unpack the file *archive*, compressed or not, into *directory*.

    Paths and links that leave *directory*, devices and pipes are refused; set-id bits are dropped.
    """
    with _archive_errors(), tarfile.open(archive, tarinfo=_Entry) as tar:
        tar.extractall(directory, filter=_checked)  # noqa: S202 - by the filter


def unpack_beneath(stream: IO[bytes], directory: Path, *, prefix: str) -> None:
    """Unpack folders and plain files beneath *prefix* into *directory*.

    Links, which may lead anywhere, and all else are left out. Of folders neither times nor permissions are taken over:
    one that may not be written would keep its own files out.
    """
    with _archive_errors(), tarfile.open(fileobj=stream, mode="r|", tarinfo=_Entry) as tar:
        for entry in tar:
            if entry.name.startswith(f"{prefix}/") and (entry.isreg() or entry.isdir()):
                tar.extract(entry, directory, filter="data", set_attrs=entry.isreg())


def read_files(
    stream: IO[bytes], *, names: re.Pattern[str], max_file_bytes: int, max_bytes: int, max_files: int
) -> dict[str, bytes]:
    """Return the plain files right below the one folder of an archive.

    A file longer than *max_file_bytes* is cut off after one byte more, so that its reader sees that it is too long.
    *max_bytes* bounds all files together, wanted or not, *max_files* those whose *names* are wanted.
    """
    files: dict[str, bytes] = {}
    total = 0
    with _archive_errors(), tarfile.open(fileobj=stream, mode="r|", tarinfo=_Entry) as tar:
        for entry in tar:
            _folder, slash, name = entry.name.removeprefix("./").partition("/")
            total += entry.size
            if total > max_bytes:
                raise ArchiveTooLargeError(f"more than {max_bytes} bytes ('{entry.name}' made it so)")
            if slash and entry.isreg() and names.fullmatch(name):
                if len(files) == max_files:
                    raise ArchiveTooLargeError(f"more than {max_files} files ('{entry.name}' made it so)")
                content = tar.extractfile(entry)
                files[name] = content.read(max_file_bytes + 1) if content else b""
    return files


@contextmanager
def _archive_errors() -> Iterator[None]:
    """Turns errors of all modules for archives into `ArchiveError`."""
    # Not imported for this: where no archive is compressed so, it is not needed.
    of_lzma = getattr(sys.modules.get("lzma"), "LZMAError", EOFError)
    try:
        yield
    except (tarfile.TarError, EOFError, RecursionError, zlib.error, gzip.BadGzipFile, of_lzma) as error:
        raise ArchiveError(str(error)) from error
