"""The user's code, fetched by the node: a change needs no new image."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from oci_cluster.contract.storage.retry import RequestFailedError
from oci_cluster.errors import ClusterError, ExitCode, NotPermittedError, SettingsError, StorageError
from oci_cluster.system.archive import ArchiveError, unpack
from oci_cluster.system.files import NoRegularFileError, open_regular
from oci_cluster.system.redaction import redact

_TAR_URI = re.compile(r"(?P<url>[^#]+)#sha256=(?P<digest>[0-9a-f]{64})")
# A ref begins with a letter or digit: one that begins with a dash would be an option to git.
_GIT_URI = re.compile(r"git\+(?P<url>.+)@(?P<ref>[A-Za-z0-9][A-Za-z0-9._/-]*)")
_FOLDER_URI = re.compile(r"folder\+(?P<url>[a-z][a-z0-9+.-]*://.+)")
_WITH_LOGIN = re.compile(r"(?P<scheme>https?://)(?P<user>[^/@:\s]*)(:(?P<password>[^/@\s]*))?@(?P<rest>.*)", re.DOTALL)
# A hundred times what a launch sends itself (MAX_CODE_BYTES): room for weights beside code. The smallest disk of a Job
# on OCI has 50 GB, and the archive is on it twice when it is unpacked.
_MOST_BYTES = 10 << 30
# Errors that say that there is no such archive, or no package for such a URL.
_FINAL = (FileNotFoundError, IsADirectoryError, NotADirectoryError, NoRegularFileError, ImportError, ValueError)
# Run by git where the server asks who it is; sh has printf itself, so that no command line holds a password.
_HELPER = """!printf 'username=%s\\npassword=%s\\n' "$CODE_URI_USER" "$CODE_URI_PASSWORD"; :"""


class NoCodeError(ClusterError):
    """The code cannot be had, and another try would not change that."""

    exit_code = ExitCode.UNAVAILABLE


def fetch_code(uri: str, target: Path, *, environ: Mapping[str, str], git_timeout_s: float = 600.0) -> None:
    """Put the code of *uri* into the directory *target*, empty or absent.

    It is ``<fsspec URL of a tar>#sha256=<hex>``, ``git+<URL>@<branch, tag or commit>``, or ``folder+<fsspec URL>``,
    which is taken as it is. Nothing is put there before all of it has been fetched and checked.

    Raises:
        SettingsError: *uri* has another form, its content has another hash, or an archive reaches outside *target*.
        NoCodeError, NotPermittedError: there is none, or git cannot fetch it; storage refuses.
        StorageError: storage did not answer, which another try may change.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        is_empty = not any(target.iterdir())
    except OSError as error:
        raise SettingsError(f"CODE_DIR {target} cannot hold the code: {error}") from error
    if not is_empty:
        raise SettingsError(f"CODE_DIR {target} is not empty; fetched code needs a directory of its own")
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetched-") as scratch:
        fetched = Path(scratch) / "code"
        if tar := _TAR_URI.fullmatch(uri):
            _fetch_tar(tar["url"], tar["digest"], fetched)
        elif git := _GIT_URI.fullmatch(uri):
            _fetch_git(git["url"], git["ref"], fetched, environ, git_timeout_s)
        elif folder := _FOLDER_URI.fullmatch(uri):
            _fetch_folder(folder["url"], fetched)
        else:
            raise SettingsError(
                f"CODE_URI '{uri}' is neither <URL of a tar>#sha256=<64 hex digits> nor git+<URL>@<ref>"
                " nor folder+<URL of a folder>"
            )
        for path in fetched.iterdir():
            path.rename(target / path.name)


@contextlib.contextmanager
def _asking(url: str) -> Iterator[None]:
    try:
        yield
    except ClusterError:
        raise
    except Exception as error:  # whatever the file system raises: see ClusterDir._ask
        what = "" if isinstance(error, RequestFailedError) else f"{type(error).__name__}: "
        msg = f"CODE_URI {url}: {what}{error}"
        if isinstance(error, _FINAL):
            raise NoCodeError(msg) from error
        if isinstance(error, PermissionError):
            raise NotPermittedError(msg) from error
        raise StorageError(msg) from error


def _fetch_folder(url: str, target: Path) -> None:
    """Copy the folder or single file at *url* into *target*, without a hash."""
    target.mkdir()
    with _asking(url):
        fs, path = _open(url)
        path = path.rstrip("/")
        if _copy_folder(fs, path, target):
            return
        if fs.info(path)["type"] != "file":
            raise FileNotFoundError(f"{path} has no files")
        _copy(fs, path, target / _base_name(path))


def _copy_folder(fs: Any, path: str, target: Path) -> int:
    count = 0
    for item in fs.ls(path, detail=True):
        name = item["name"].rstrip("/")
        if name == path.rstrip("/"):  # some file systems list the folder, or the file, itself
            continue
        place = target / _base_name(name)
        if item["type"] == "directory":
            place.mkdir(exist_ok=True)
            count += _copy_folder(fs, name, place)
        else:
            _copy(fs, name, place)
            count += 1
    return count


def _copy(fs: Any, path: str, target: Path, most: float = math.inf) -> None:
    """Copy the file *path* of *fs*, of *most* bytes at most, to *target*."""
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415 - see _open

    if fs.protocol == "oci":
        is_whole = fs.get_file(path, str(target), most=most)
    else:
        # On this machine others may have put a pipe there.
        is_local = isinstance(fs, LocalFileSystem)
        with target.open("wb") as file, open_regular(path) if is_local else fs.open(path, "rb") as source:
            while file.tell() <= most and (piece := source.read(1 << 20)):
                file.write(piece)
            is_whole = file.tell() <= most
    if not is_whole:
        raise SettingsError(
            f"CODE_URI {path} is larger than {_MOST_BYTES >> 20} MiB; put data elsewhere, and read it from the script"
        )


def _base_name(path: str) -> str:
    name = path.rpartition("/")[2]
    if name in {"", ".", ".."} or "\0" in name:
        raise SettingsError(f"CODE_URI: {path!r} cannot be the name of a file; give it another name there")
    return name


def _fetch_tar(url: str, digest: str, target: Path) -> None:
    archive = target.with_suffix(".tar")
    with _asking(url):
        fs, path = _open(url)
        _copy(fs, path, archive, _MOST_BYTES)
    found = hashlib.sha256()
    with archive.open("rb") as content:
        while piece := content.read(1 << 20):
            found.update(piece)
    if found.hexdigest() != digest:
        raise SettingsError(
            f"CODE_URI {url} has sha256 {found.hexdigest()}, expected {digest}; upload it again or correct the URI"
        )
    target.mkdir()
    try:
        unpack(archive, target)
    except (ArchiveError, OSError) as error:
        raise SettingsError(f"CODE_URI {url} cannot be unpacked: {error}") from error


def _open(url: str) -> tuple[Any, str]:
    """Return the file system of *url* and its path; the agent repeats requests."""
    if url.startswith("oci://"):
        from oci_cluster.contract.storage import oci  # noqa: PLC0415 - its packages are where such URLs are used

        return oci.open_files(url, patience_s=0.0)
    import fsspec  # noqa: PLC0415 - see cluster_dir.py

    file_system, path = fsspec.url_to_fs(url)
    return file_system, str(path)


def _fetch_git(url: str, ref: str, target: Path, environ: Mapping[str, str], timeout_s: float) -> None:
    bare, environ = _without_login(url, environ)
    # init + fetch takes branches, tags and commits alike; clone --branch knows no commits.
    commands = (
        ["git", "init", "--quiet", str(target)],
        ["git", "-C", str(target), "fetch", "--quiet", "--depth=1", "--", bare, ref],
        ["git", "-C", str(target), "checkout", "--quiet", "FETCH_HEAD"],
    )
    for command in commands:
        try:
            # No terminal: a prompt for a password would wait for ever.
            subprocess.run(  # noqa: S603 - an argument list, no shell
                command,
                check=True,
                env=environ,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError) as error:
            detail = (getattr(error, "stderr", "") or str(error)).strip()
            # It goes to logs and to the stop file. The error itself, whose text has the command, is not told with it.
            raise NoCodeError(redact(f"CODE_URI git+{url}@{ref}: {detail}")) from None


def _without_login(url: str, environ: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Return *url* without its password, for a command line, and an environment with it."""
    found = _WITH_LOGIN.fullmatch(url)
    if not found:
        return url, environ
    number = int(environ.get("GIT_CONFIG_COUNT") or 0)
    login = {
        "CODE_URI_USER": unquote(found["user"]),
        "CODE_URI_PASSWORD": unquote(found["password"] or ""),
        "GIT_CONFIG_COUNT": str(number + 2),
        f"GIT_CONFIG_KEY_{number}": "credential.helper",
        f"GIT_CONFIG_VALUE_{number}": "",  # no other helper is asked, and none keeps it
        f"GIT_CONFIG_KEY_{number + 1}": "credential.helper",
        f"GIT_CONFIG_VALUE_{number + 1}": _HELPER,
    }
    return found["scheme"] + found["rest"], {**environ, **login}
