"""The user's code, fetched by the node itself: a change of it needs no new image."""

from __future__ import annotations

import hashlib
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
