"""The user's code, fetched by the node itself: a change of it needs no new image."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from oci_cluster.errors import SettingsError, StorageError

if sys.version_info >= (3, 12):
    import tarfile
else:  # extraction filters came with 3.11.4 only: Debian 12 has 3.11.2
    from backports import tarfile

_TAR_URI = re.compile(r"(?P<url>[^#]+)#sha256=(?P<digest>[0-9a-f]{64})")
# A ref begins with a letter or digit: one that begins with a dash would be an option to git.
_GIT_URI = re.compile(r"git\+(?P<url>.+)@(?P<ref>[A-Za-z0-9][A-Za-z0-9._/-]*)")
_PASSWORD = re.compile(r"//[^/@\s]+@")


def fetch_code(uri: str, target: Path, *, git_timeout_s: float = 600.0) -> None:
    """Put the code that *uri* names into the directory *target*, which must be empty or absent.

    Args:
        uri: ``<fsspec URL of a tar>#sha256=<hex>`` (compressed or not), or ``git+<URL>@<branch, tag or commit>``.
        target: Where it goes. Nothing is put there before all of it has been fetched and checked.
        git_timeout_s: Longest time for git. Source of the default: design document 5.2, TIMEOUT.

    Raises:
        SettingsError: *uri* has another form, its content has another hash, or an archive reaches outside *target*.
        StorageError: it cannot be read.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        is_empty = not any(target.iterdir())
    except OSError as error:
        msg = f"CODE_DIR {target} cannot hold the code: {error}"
        raise SettingsError(msg) from error
    if not is_empty:
        msg = f"CODE_DIR {target} is not empty; fetched code needs a directory of its own"
        raise SettingsError(msg)
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetched-") as scratch:
        fetched = Path(scratch) / "code"
        if tar := _TAR_URI.fullmatch(uri):
            _fetch_tar(tar["url"], tar["digest"], fetched)
        elif git := _GIT_URI.fullmatch(uri):
            _fetch_git(git["url"], git["ref"], fetched, git_timeout_s)
        else:
            msg = f"CODE_URI '{uri}' is neither <URL of a tar>#sha256=<64 hex digits> nor git+<URL>@<ref>"
            raise SettingsError(msg)
        for path in fetched.iterdir():
            path.rename(target / path.name)


def _fetch_tar(url: str, digest: str, target: Path) -> None:
    import fsspec  # noqa: PLC0415 - see exchange.py

    archive = target.with_suffix(".tar")
    try:
        fs, path = fsspec.url_to_fs(url)
        fs.get_file(path, str(archive))
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
    except Exception as error:  # whatever the file system raises: see Exchange._ask
        msg = f"CODE_URI {url}: {type(error).__name__}: {error}"
        raise StorageError(msg) from error
    if found != digest:
        msg = f"CODE_URI {url} has sha256 {found}, expected {digest}; upload it again or correct the URI"
        raise SettingsError(msg)
    target.mkdir()
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")  # refuses paths and links that leave target, devices, set-id bits
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        msg = f"CODE_URI {url} cannot be unpacked: {error}"
        raise SettingsError(msg) from error


def _fetch_git(url: str, ref: str, target: Path, timeout_s: float) -> None:
    # init + fetch takes branches, tags and commits alike; clone --branch knows no commits.
    commands = (
        ["git", "init", "--quiet", str(target)],
        ["git", "-C", str(target), "fetch", "--quiet", "--depth=1", "--", url, ref],
        ["git", "-C", str(target), "checkout", "--quiet", "FETCH_HEAD"],
    )
    for command in commands:
        try:
            # No terminal: a prompt for a password would wait for ever.
            subprocess.run(  # noqa: S603 - an argument list, no shell
                command,
                check=True,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError) as error:
            detail = (getattr(error, "stderr", "") or str(error)).strip()
            # A password or token in the URL is nobody's business: the message goes to logs and to the stop file.
            raise StorageError(_PASSWORD.sub("//", f"CODE_URI git+{url}@{ref}: {detail}")) from None


# --- The launcher's side ----------------------------------------------------------------------------------

# Code, not data: above that a launch would be slower than an image.
MOST_CODE_BYTES = 100 * 2**20
_LEFT_OUT = {"__pycache__", "node_modules"}


def pack_code(source: Path, target: Path) -> str:
    """Write the folder *source* as a compressed tar to the file *target*; return its sha256.

    The same files make the same bytes, whoever packs them and when. What is hidden (``.git``, ``.env``, ``.venv``) and
    what Python and npm make by themselves is left out.

    Raises:
        SettingsError: it is too large, cannot be read, or holds a link that leads out of it.
    """
    total = 0
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in _code_files(source):
            name = path.relative_to(source).as_posix()
            entry = tar.gettarinfo(path, name)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            total += entry.size
            if total > MOST_CODE_BYTES:
                msg = (
                    f"the code in {source} is more than {MOST_CODE_BYTES >> 20} MiB ({name} made it so); "
                    "name a smaller folder with --code, and keep data in a bucket"
                )
                raise SettingsError(msg)
            try:
                tarfile.data_filter(entry, str(source))
                if entry.isreg():
                    with path.open("rb") as content:
                        tar.addfile(entry, content)
                else:
                    tar.addfile(entry)
            except (tarfile.TarError, OSError) as error:
                msg = f"{path} cannot be sent to the nodes: {error}; move it out of {source}, or name another --code"
                raise SettingsError(msg) from error
    return hashlib.sha256(target.read_bytes()).hexdigest()


def _code_files(folder: Path) -> list[Path]:
    """Return the files and links below *folder* that are code, in an order that lasts."""
    found = []
    for directory, folders, files in os.walk(folder):
        links = [name for name in folders if Path(directory, name).is_symlink()]
        folders[:] = [name for name in folders if not (name.startswith(".") or name in _LEFT_OUT or name in links)]
        found += [Path(directory, name) for name in [*files, *links] if not name.startswith(".")]
    return sorted(path for path in found if path.is_symlink() or path.is_file())
