"""Signed files that nodes exchange in the cluster dir, on any fsspec file system."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from oci_cluster.contract.files.signing import OLDER, OTHER_LIFE, UNSIGNED, Signer, derived_key
from oci_cluster.contract.names import LAUNCHED, LIFE, config_file, exit_file, heartbeat_file
from oci_cluster.contract.parsers import is_at_main
from oci_cluster.contract.storage.retry import RequestFailedError
from oci_cluster.errors import ClusterError, ExitCode, NotPermittedError, SettingsError, StorageError
from oci_cluster.system.files import LocalFiles, NoRegularFileError

if TYPE_CHECKING:
    from oci_cluster.contract.storage.coordinator import Ask

T = TypeVar("T")

SCHEMA = 1
# Far above what any node writes; keeps a hostile file from filling a node's memory.
MAX_BYTES = 1 << 20
OPENERS: dict[str, Callable[[], SmallFiles]] = {}
"""The files of backends whose nodes share none with the launcher, by the protocol of their URLs."""
# Why what is there was not read.
_PUT = ": somebody else has put it there"


class SmallFiles:
    """Files that are told whole, folder by folder, by the calls that :class:`ClusterDir` makes."""

    def files_of(self, folder: str) -> Mapping[str, bytes]:
        """Return the files of *folder* by name; FileNotFoundError where there is none."""
        raise NotImplementedError

    def invalidate_cache(self) -> None:
        """Do nothing: each look decides how old its answer may be."""

    def ls(self, path: str, *, detail: bool) -> list[dict[str, Any]]:  # noqa: ARG002 - nobody asks for less
        """Describe all files, with their content: whoever compares listings sees a change of it."""
        files = self.files_of(path)
        return [{"name": f"{path}/{name}", "size": len(body), "body": body} for name, body in files.items()]

    def info(self, path: str) -> dict[str, Any]:
        """Describe the file *path*."""
        return {"name": path, "size": len(self._body(path))}

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of the file *path* from *start* to *end*."""
        return self._body(path)[start:end]

    def _body(self, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        files = self.files_of(folder)
        if name not in files:
            raise FileNotFoundError(path)
        return files[name]


class ClusterDir:
    """One cluster dir, seen by one launch.

    Every method makes one or two storage requests, and neither waits nor retries: that is the caller's loop. One
    file-system instance serves for life; one that holds a connection is opened anew after a request that failed. All
    raise StorageError where storage did not answer, and nothing is known, and NotPermittedError where it refused for
    good.
    """

    def __init__(
        self,
        url: str,
        launch_id: str,
        launch_key: str,
        *,
        patience_s: float | None = None,
        held: Ask | None = None,
        files: LocalFiles | None = None,
    ) -> None:
        """Open the cluster dir at *url* for the launch *launch_id*.

        All that is published is signed with *launch_key*; without one, with the id. On ``oci://``, a request that fails
        in passing is repeated for *patience_s*, see :class:`Repeats`; without, as :func:`oci_storage.configure` was
        told. On ``main://``, main itself asks *held*. *files* reads and writes a directory of this machine in another
        way than at once.
        """
        self._launch_key = launch_key
        self.url = url
        self.launch_id = launch_id
        #: True if the files are in the memory of main: a node that cannot reach them cannot reach main.
        self.is_at_main = is_at_main(url)
        if self.is_at_main:
            from oci_cluster.contract.storage.coordinator import PURPOSE, MainFiles, RemoteFiles  # noqa: PLC0415 - where there is such a one

            place, _, self._path = url.removeprefix("main://").partition("/")
            try:
                self._fs: Any = MainFiles(held or RemoteFiles(f"main://{place}", self.key_for(PURPOSE)).ask)
            except ValueError as error:  # anybody's Job may name it
                raise SettingsError(f"WORK_DIR {error}") from error
        else:
            self._fs, self._path = _open(url, patience_s)
        self._fs = files or self._fs
        self._is_connection_lost = False
        #: True if storage tells of a file its size and a time in whole seconds, and no more.
        self.has_coarse_times = url.partition("://")[0] in _CONNECTED
        self._signer = Signer(self.key_for("exchange"))
        self._life = ""
        #: Why a file that is there could not be used when it was last read, by file name.
        self.unusable: dict[str, str] = {}

    @property
    def refused(self) -> dict[str, str]:
        """Those of :attr:`unusable` that somebody else has written, or put back."""
        return {name: why for name, why in self.unusable.items() if why in {UNSIGNED, OLDER} or why.endswith(_PUT)}

    @property
    def life(self) -> str:
        """The life whose files count; empty where that is not known: all count."""
        return self._life

    def enter_life(self, life: str) -> None:
        """Count only files of *life* from now on, whatever the counters of others were."""
        if life != self._life:
            self._life = life
            self._signer.forget({LIFE})

    def key_for(self, purpose: str) -> bytes:
        """Return this launch's key for *purpose*; see :func:`derived_key`."""
        return derived_key(self._launch_key, self.launch_id, purpose)

    @property
    def local_path(self) -> Path | None:
        """The cluster dir as a directory of this machine, if it is one."""
        return Path(self._path) if isinstance(self._fs, LocalFiles) else None

    def create(self) -> None:
        """Make the cluster dir where storage has directories; keep one that is there."""
        self._write("", lambda path: self._fs.makedirs(path, exist_ok=True))

    def publish(self, name: str, **fields: Any) -> int:
        """Write *fields* to the file *name*, atomically and signed; return its counter."""
        body, counter = self.signed(name, **fields)
        self._write(name, lambda path: self._fs.pipe_file(path, body))
        return counter

    def signed(self, name: str, **fields: Any) -> tuple[bytes, int]:
        """Return the line that :meth:`publish` writes, and its counter."""
        common = {"schema": SCHEMA, "launch_id": self.launch_id, **({"life": self._life} if self._life else {})}
        return self._signer.sign(name, {**common, **fields})

    def publish_once(self, name: str, **fields: Any) -> None:
        """Publish a file that is not there yet; of several writers, one succeeds.

        A StorageError says that it is there, or that storage did not answer; :meth:`read` then tells which.
        """
        body, _ = self.signed(name, **fields)
        self._write(name, lambda path: self._fs.pipe_file(path, body, mode="create"))

    def read(self, name: str, *, any_life: bool = False) -> dict[str, Any] | None:
        """Return the fields of the file *name*; None where there is no usable one.

        Why one was not used is kept in :attr:`unusable`. The ``counter`` is greater in each file that a writer has
        published. A file of another :attr:`life` counts only where *any_life* does.
        """
        self.unusable.pop(name, None)
        try:
            body = self._ask(name, lambda path: self._fs.cat_file(path, 0, MAX_BYTES + 1))
        except FileNotFoundError:
            return None
        except NoRegularFileError as error:
            self.unusable[name] = f"{error.strerror}{_PUT}"
            return None
        try:
            fields = _object(body)
            # In the "try": what was nested just deep enough to be read may be too deep to be written once more.
            if fields.get("launch_id") != self.launch_id:
                why = f"of another launch ({str(fields.get('launch_id'))[:64]!r})"
            elif self._life and not any_life and fields.get("life") != self._life:
                # Before its counter counts: a node of another life may have a clock that is ahead.
                why = OTHER_LIFE
            else:
                why = self._signer.refusal(name, fields)
        except (ValueError, RecursionError) as error:
            fields, why = {}, f"not usable ({error})"
        if why:
            self.unusable[name] = why
            return None
        if fields.get("schema") != SCHEMA:
            raise SettingsError(
                f"{self.url}/{name} has schema {str(fields.get('schema'))[:64]!r}, this node knows {SCHEMA};"
                " run the same version on every node and launcher"
            )
        return fields

    def is_there(self, name: str) -> bool:
        """Return whether the file *name* exists, at the price of one small request.

        Not fsspec's ``exists()``: in ocifs that answers False on *any* error, an outage included.
        """
        self._fs.invalidate_cache()  # some file systems answer from their last listing
        try:
            self._ask(name, lambda path: self._fs.info(path))  # noqa: PLW0108 - the file system of then, which may be another
        except FileNotFoundError:
            return False
        return True

    def listing(self) -> dict[str, str]:
        """Return a fingerprint of every file, by name: it changes when the file does.

        With :attr:`has_coarse_times` it may not, for a file that is written twice in a second.
        """
        return {_base_name(entry): repr(sorted(entry.items(), key=str)) for entry in self._entries("")}

    def _entries(self, folder: str) -> list[dict[str, Any]]:
        self._fs.invalidate_cache()
        try:
            return list(self._ask(folder, lambda path: self._fs.ls(path, detail=True)))
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Delete the file *name*; one that is not there is as good as deleted."""

        def remove(path: str) -> None:
            try:
                self._fs.rm_file(path)
            except NotImplementedError:  # ocifs has rm alone
                self._fs.rm(path)

        try:
            self._ask(name, remove)
        except FileNotFoundError:
            return
        except StorageError:  # what some file systems (ftp) say of a file that is not there
            if self.is_there(name):
                raise

    def is_of_launch(self) -> bool:
        """Return whether the launcher or main of this launch has left a file here."""
        for name in (LAUNCHED, config_file("MAIN"), heartbeat_file("MAIN"), exit_file("MAIN")):
            try:
                if self.read(name, any_life=True) is not None:
                    return True
            except SettingsError:  # of another version, and signed
                return True
        return False

    def remove_all(self) -> None:
        """Delete the cluster dir with all that is in it, if it is there."""
        self._fs.invalidate_cache()
        try:
            self._ask("", lambda path: self._fs.rm(path, recursive=True))
        except FileNotFoundError:
            return

    def write_bytes(self, name: str, body: bytes) -> None:
        """Write *body* to the file *name*, whole, in a folder of the cluster dir."""

        def write(path: str) -> None:
            if isinstance(self._fs, LocalFiles):  # elsewhere folders are no thing that is made
                self._fs.make_folders(self._path, path)
            self._fs.pipe_file(path, body)

        self._write(name, write)

    def read_bytes(self, name: str, start: int, count: int = MAX_BYTES) -> bytes:
        """Return *count* bytes at most of the file *name* from *start*, if any."""
        try:
            return bytes(self._ask(name, lambda path: self._fs.cat_file(path, start, start + count)))
        except (FileNotFoundError, NoRegularFileError):
            return b""

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of every file in a *folder*, by name."""
        entries = self._entries(folder)
        return {_base_name(entry): int(entry["size"] or 0) for entry in entries if entry.get("type") != "directory"}

    def is_used(self, folder: str) -> bool:
        """Return whether anything is in a *folder* of the cluster dir, in one request."""
        return any(_base_name(entry) != folder for entry in self._entries(folder))  # some stores list it in itself

    def upload(self, source: Path, name: str) -> None:
        """Copy the file *source* of this machine to *name* in the cluster dir."""

        def put(path: str) -> None:
            if isinstance(self._fs, LocalFiles):
                self._fs.make_folders(self._path, path)
            else:
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(source), path)

        self._write(name, put)

    def _write(self, name: str, request: Callable[[str], T]) -> T:
        try:
            return self._ask(name, request)
        except FileNotFoundError as error:  # no bucket, or a cluster dir whose storage has gone away
            raise StorageError(f"{self.url}: {error}") from error

    def _ask(self, name: str, request: Callable[[str], T]) -> T:
        path = f"{self._path}/{name}" if name else self._path
        if self._is_connection_lost:
            self._fs, _ = _open(self.url, None, skip_instance_cache=True)
            self._is_connection_lost = False
        try:
            return request(path)
        except (FileNotFoundError, NoRegularFileError):
            raise
        except RequestFailedError as error:
            failure = StorageError(f"{self.url}/{name}: {error}")
            failure.retry_after_s = error.retry_after_s
            raise failure from error
        # fsspec passes on whatever its file systems raise (OSError, SDK and HTTP errors of many packages): this is the
        # one door to them. All mean that storage did not answer, which callers may retry but never read as "absent".
        except Exception as error:
            if isinstance(error, ClusterError) and error.exit_code == ExitCode.NOT_PERMITTED:
                raise NotPermittedError(str(error)) from error  # a backend that tells files: it has named the right
            if isinstance(error, PermissionError) or getattr(error, "errno", None) == errno.EROFS:
                raise NotPermittedError(
                    f"{self.url}/{name}: {error}; allow this node to write there, or set another WORK_DIR"
                ) from error
            self._is_connection_lost = self.has_coarse_times  # it is of _CONNECTED
            raise StorageError(f"{self.url}/{name}: {type(error).__name__}: {error}") from error


def _base_name(entry: Mapping[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def _object(body: bytes) -> dict[str, Any]:
    if len(body) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields


# File systems that hold one connection. Where an answer did not come in time it stays broken, or gives every later
# request the answer to the one before. Others have HTTP clients, which connect again by themselves. These are also the
# ones that tell of a file its size and a time in whole seconds (RFC 3659, SFTP 3), and neither tag nor inode.
_CONNECTED = {"ftp", "sftp", "ssh"}


def _open(url: str, patience_s: float | None, **options: bool) -> tuple[Any, str]:
    """Return the file system of *url*, opened with fsspec's *options*, and the path there."""
    protocol, _, path = url.partition("://")
    if protocol == "file" and "::" not in url:
        return LocalFiles(), str(Path(path).absolute())
    if protocol in OPENERS:
        return OPENERS[protocol](), path
    import fsspec  # noqa: PLC0415 - 0.1 s of CPU, which clusters of one machine do not spend

    try:
        if protocol == "oci":
            from oci_cluster.contract.storage import oci  # noqa: PLC0415 - its packages are where such URLs are used

            return oci.open_files(url, patience_s)
        file_system, path = fsspec.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise SettingsError(f"WORK_DIR {url}: {error}") from error
    except OSError as error:  # some file systems (ftp) connect here
        raise StorageError(f"{url}: {type(error).__name__}: {error}") from error
    if "file" in (file_system.protocol if isinstance(file_system.protocol, tuple) else (file_system.protocol,)):
        return LocalFiles(), path
    if protocol == "ftp":
        _fail_where_the_server_cannot_answer(file_system.ftp)
    return file_system, path


def _fail_where_the_server_cannot_answer(ftp: Any) -> None:
    """Have *ftp* raise for a busy server, whose refusals fsspec takes for "no file"."""
    from ftplib import error_temp  # noqa: PLC0415 - where it is used

    receive = ftp.getresp

    def getresp() -> str:
        try:
            return str(receive())
        except error_temp as error:  # 4xx: busy, going down, no connection for the data
            raise ConnectionError(str(error)) from error

    ftp.getresp = getresp
