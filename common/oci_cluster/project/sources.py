"""Where a version of the templates comes from: a folder, an archive, or a commit that git brings.

What is read is hostile until it is checked. No archive is ever unpacked: its files are read into memory, and only what
a project needs of them is written, one by one, under paths that were checked.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from oci_cluster.errors import BackendError, SettingsError, UsageError
from oci_cluster.project.contents import LIST, read_contents
from oci_cluster.project.files import EXECUTABLE, LINK, PLAIN, File, Files, check_files, read_folder
from oci_cluster.project.record import RECORD, read_record
from oci_cluster.system.redaction import redact
from oci_cluster.system.text import printable

# This checkout has 6 MB in 800 files, tests included.
_MAX_BYTES = 200 * 2**20
_MAX_FILES = 20_000
# Of a tar as a whole: these, each with its head, and the heads' own names.
_MAX_TAR_BYTES = 256 * 2**20
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+|[\w.-]+@[\w.-]+:\S+", re.IGNORECASE)
# How a file begins that is compressed, and the module that reads it.
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "lzma"}
# No helper that an URL names is run: ext::, and whatever else people have installed.
_PROTOCOLS = "file:git:http:https:ssh"


@dataclass(frozen=True)
class Version:
    """A version of the templates.

    Attributes:
        files: All of it that may go into projects, by the paths of a checkout.
        name: For people: a tag, git's description, or ``unknown``.
        commit: The full commit id; empty where nobody knows one, or files differ from it.
        origin: The folder, archive or URL that it came from, without a password.
    """

    files: Files
    name: str
    commit: str
    origin: str


def open_source(text: str, ref: str, cwd: Path) -> Version:
    """Return the version that *text* names.

    Args:
        text: A folder, an archive, or an URL of git; a ref may stand behind a ``#``.
        ref: A branch, tag or commit; empty: of a folder the files as they are, of an URL its default branch.
        cwd: Where relative paths start.

    Raises:
        UsageError: it is none of these.
        SettingsError: there is something else, or something that must not be taken.
        BackendError: git failed, or did not reach the URL.
    """
    path = cwd / Path(text).expanduser()
    if not path.exists() and "#" in text:
        if ref:
            msg = f"the ref is given twice: '{text.rpartition('#')[2]}' and '{ref}'"
            raise UsageError(msg)
        text, _, ref = text.rpartition("#")
        path = cwd / Path(text).expanduser()
    if ref.startswith("-"):
        msg = f"'{ref}' is no branch, tag or commit"
        raise UsageError(msg)
    if path.is_dir():
        return _of_git(str(path.resolve()), ref) if ref else open_folder(path.resolve())
    if path.is_file():
        if ref:
            msg = f"an archive has no refs, got '{ref}' for {path}"
            raise UsageError(msg)
        return open_archive(path.resolve())
    if not _URL.fullmatch(text):
        msg = f"'{text}' is neither a folder, nor an archive, nor an URL of git; give one of these"
        raise UsageError(msg)
    return _of_git(text, ref or "HEAD")


def open_folder(root: Path) -> Version:
    """Return the version that the checkout *root* has now, changed files included; asks git only for its name.

    What the checkout's own git is configured to run is not run.

    Raises:
        SettingsError: it is no checkout of the templates, or has what must not be taken.
    """
    contents = read_contents(read_folder(root, [LIST]), str(root))
    frameworks = sorted(path.parent.name for path in root.glob("*/start-master.sh"))
    places = contents.roots(frameworks)
    name = commit = ""
    if (root / RECORD).is_file():  # a project that was made of a version is no other version for that
        record = read_record(root)
        name, commit = (record.version, record.commit) if record else ("", "")
        return Version(read_folder(root, places), name or "unknown", commit, str(root))
    files = read_folder(root, places)
    if (root / ".git").exists():
        name, commit = _git(root, "describe", "--tags", "--always"), _git(root, "rev-parse", "HEAD")
        if name and _differs(root, files):
            name, commit = f"{name}-dirty", ""
    return Version(files, name or "unknown", commit, str(root))


def _differs(root: Path, files: Files) -> bool:
    """Return whether *files* of the checkout *root* are not those of its commit.

    `git describe --dirty` knows that too, and runs what the checkout's own configuration names, as `core.fsmonitor`.
    """
    listed = _git(root, "ls-tree", "-r", "-z", "--full-tree", "HEAD")
    known = {name: about.split()[2] for about, _, name in (line.partition("\t") for line in listed.split("\0")) if name}
    return any(known.get(name) != _blob_id(file.content, len(known.get(name, ""))) for name, file in files.items())


def _blob_id(content: bytes, digits: int) -> str:
    make = hashlib.sha256 if digits == 64 else hashlib.sha1
    return make(b"blob %d\0%b" % (len(content), content)).hexdigest()


def open_archive(path: Path, name: str = "", origin: str = "") -> Version:
    """Return the version in the tar file *path*, compressed or not, whose files may all be in one folder.

    Raises:
        SettingsError: it is no archive, is too large, or holds what must not be taken: a path or a link that leads out,
            a device, one name twice.
    """
    try:
        files, commit = _read_archive(path)
    except _what_breaks() as error:
        msg = f"{path} cannot be used as an archive: {error}; make it anew, or give a folder"
        raise SettingsError(msg) from error
    read_contents(files, str(path))  # before a project is looked at
    known = re.sub(r"\.(tar(\.\w+)?|tgz|txz)$", "", path.name)
    return Version(files, name or known, commit, origin or str(path))


def _what_breaks() -> tuple[type[Exception], ...]:
    """Return all that tarfile, and the modules for each compression, raise for what is no archive."""
    of_lzma = getattr(sys.modules.get("lzma"), "LZMAError", EOFError)
    return ValueError, EOFError, OSError, tarfile.TarError, zlib.error, of_lzma


def _read_archive(path: Path) -> tuple[dict[str, File], str]:
    files: dict[str, File] = {}
    total = 0
    with _unpacked(path) as stream, tarfile.open(fileobj=_Bounded(stream), mode="r:") as tar:  # type: ignore[call-overload]
        for entry in tar:
            total += entry.size
            if total > _MAX_BYTES or len(files) >= _MAX_FILES:
                msg = f"more than {_MAX_BYTES >> 20} MiB or {_MAX_FILES} files"
                raise ValueError(msg)
            name = entry.name.removeprefix("./").rstrip("/")
            if entry.isdir():
                continue
            if name in files:
                msg = f"'{printable(name)}' is there twice"
                raise ValueError(msg)
            if entry.issym():
                files[name] = File(os.fsencode(entry.linkname), LINK)
            elif entry.isreg() and not entry.issparse() and (content := tar.extractfile(entry)):
                files[name] = File(content.read(), EXECUTABLE if entry.mode & 0o100 else PLAIN)
            else:
                msg = f"'{printable(name)}' is neither a file, a folder nor a symbolic link"
                raise ValueError(msg)
        comment = tar.pax_headers.get("comment", "")  # git archive leaves the commit there
    check_files(files)
    top = _top_folder(files)
    found = {name.removeprefix(top): file for name, file in files.items() if name.startswith(top)}
    check_files(found)  # a link must not lead out of the folder either
    return found, comment if _COMMIT.fullmatch(comment) else ""


def _unpacked(path: Path) -> IO[bytes]:
    """Return what reads the tar in the file *path*, whatever it is compressed with."""
    with path.open("rb") as file:
        magic = file.read(6)
    for begin, module in _COMPRESSED.items():
        if magic.startswith(begin):
            found: IO[bytes] = importlib.import_module(module).open(path, "rb")
            return found
    return path.open("rb")


class _Bounded:
    """A stream that is read so far, and no further: a name in a tar may be as long as memory is."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int = -1) -> bytes:
        if size < 0 or self._stream.tell() + size > _MAX_TAR_BYTES:
            msg = f"it goes on after {_MAX_TAR_BYTES >> 20} MiB"
            raise ValueError(msg)
        return self._stream.read(size)


def _top_folder(files: Files) -> str:
    """Return the folder, with its /, that all of a checkout is in, as GitHub's archives have one; else nothing."""
    tops = {f"{name.partition('/')[0]}/" for name in files if name.partition("/")[2] == LIST}
    return tops.pop() if len(tops) == 1 and LIST not in files else ""


def _of_git(place: str, ref: str) -> Version:
    """Return the version *ref* of the repository *place*, a folder or an URL."""
    if not shutil.which("git"):
        msg = (
            f"git is not installed, and {redact(place)} at {ref} needs it; install git, or give a folder or an archive"
        )
        raise SettingsError(msg)
    with tempfile.TemporaryDirectory() as scratch:
        bare, archive = Path(scratch, "bare"), Path(scratch, "version.tar")
        _must(["init", "--quiet", "--bare", str(bare)], place)
        _must(["-C", str(bare), "fetch", "--quiet", "--no-tags", "--depth", "1", "--", _as_url(place), ref], place)
        commit = _must(["-C", str(bare), "rev-parse", "--verify", "FETCH_HEAD^{commit}"], place)
        _must(["-C", str(bare), "archive", "--format", "tar", "--output", str(archive), commit], place)
        name = ref if ref != "HEAD" and not _COMMIT.fullmatch(ref) else commit[:12]
        version = open_archive(archive, name, re.sub(r"(?<=://)[^/@]*@", "", place))
    return Version(version.files, version.name, commit, version.origin)


def _as_url(place: str) -> str:
    # A folder by its path would be cloned with hard links, and without --depth.
    return Path(place).as_uri() if place.startswith("/") else place


def _must(words: Sequence[str], place: str) -> str:
    """Return what git prints.

    Raises:
        BackendError: it failed; holds its last words.
    """
    done = subprocess.run(["git", *words], env=_git_environment(), capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode:
        said = printable(redact(done.stderr.strip().rpartition("\n")[2])) or f"git ended with {done.returncode}"
        msg = f"{redact(place)}: {said}; name an URL and a ref that git can fetch, or give a folder or an archive"
        raise BackendError(msg)
    return done.stdout.strip()


def _git(root: Path, *words: str) -> str:
    try:
        command = ["git", "-C", str(root), *words]
        # No objects are fetched that lack: with what is a matter of the checkout's configuration.
        environ = {**_git_environment(), "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _git_environment() -> dict[str, str]:
    """Return the environment for a git that is told its repository by words: a hook's variables name another."""
    names = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, "GIT_ALLOW_PROTOCOL": _PROTOCOLS}
