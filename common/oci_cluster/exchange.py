"""Files that the nodes of a cluster leave for each other in the cluster dir, on any fsspec file system."""

from __future__ import annotations

import errno
import json
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from oci_cluster.errors import NotPermittedError, SettingsError, StorageError

T = TypeVar("T")

SCHEMA = 1
# Far above what any node writes; keeps a hostile file from filling a node's memory.
MAX_BYTES = 1 << 20

STOP = "stop"
READY = "MAIN_ready.json"
CERTIFICATE = "MAIN_certificate.json"


def config_file(node: str) -> str:
    """Return the name of *node*'s configuration."""
    return f"{node}_config.json"


def heartbeat_file(node: str) -> str:
    """Return the name of *node*'s heartbeat."""
    return f"{node}_heartbeat.json"


def exit_file(node: str) -> str:
    """Return the name of *node*'s last word."""
    return f"{node}_exit.json"


def poll_delays(
    ceiling_s: float, *, first_s: float = 0.2, uniform: Callable[[float, float], float] = random.uniform
) -> Iterator[float]:
    """Yield seconds to wait between looks: *first_s*, growing by half each time up to *ceiling_s*.

    Each is spread by a tenth either way, so that a thousand nodes that started together do not ask together.
    *first_s* is the design's: young clusters look often.
    """
    delay = min(first_s, ceiling_s)
    while True:
        yield delay * uniform(0.9, 1.1)
        delay = min(delay * 1.5, ceiling_s)


class Exchange:
    """One cluster dir, seen by one launch.

    Every method makes one or two storage requests, none waits or retries: that is the caller's loop. One file-system
    instance serves for life, and its listing cache is invalidated before each listing.

    Raises (all methods):
        StorageError: storage did not answer the question; nothing is known. Try again later.
        NotPermittedError: storage refused for good.
    """

    def __init__(self, url: str, launch_id: str) -> None:
        """Open the cluster dir at *url* for the launch *launch_id*.

        Raises:
            SettingsError: fsspec has no file system for *url*, or its package is not installed.
        """
        import fsspec  # noqa: PLC0415 - 60 ms that verbs without a work dir do not spend

        try:
            if url.startswith("oci://"):
                from oci_cluster import oci_storage  # noqa: PLC0415 - its packages are where such URLs are used

                oci_storage.configure()
            self._fs, self._path = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            msg = f"WORK_DIR {url}: {error}"
            raise SettingsError(msg) from error
        except OSError as error:  # some file systems (ftp) connect here
            msg = f"{url}: {type(error).__name__}: {error}"
            raise StorageError(msg) from error
        self._is_local = "file" in (self._fs.protocol if isinstance(self._fs.protocol, tuple) else (self._fs.protocol,))
        self.url = url
        self.launch_id = launch_id
        #: Why the last look at a file that is there found nothing to use, by file name.
        self.unusable: dict[str, str] = {}

    @property
    def local_path(self) -> Path | None:
        """The cluster dir as a directory of this machine, or None where it is not one."""
        return Path(self._path) if self._is_local else None

    def create(self) -> None:
        """Make the cluster dir, where directories are a thing that is made; an existing one is left as it is."""
        self._write("", lambda path: self._fs.makedirs(path, exist_ok=True))

    def publish(self, name: str, **fields: Any) -> None:
        """Write *fields* to the file *name*, whole: a reader sees all of them or none."""
        body = json.dumps({"schema": SCHEMA, "launch_id": self.launch_id, **fields}).encode()
        if self._is_local:
            self._write(name, lambda path: _replace(Path(path), body))
        else:
            self._write(name, lambda path: self._fs.pipe_file(path, body))

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the fields of the file *name*, or None: absent, of another launch, or (still) half-written.

        Why a file that is there was not used is kept in :attr:`unusable`.

        Raises:
            SettingsError: this launch wrote the file in a schema that is not ours.
        """
        self.unusable.pop(name, None)
        try:
            body = self._ask(name, lambda path: self._fs.cat_file(path, 0, MAX_BYTES + 1))
        except FileNotFoundError:
            return None
        try:
            if len(body) > MAX_BYTES:
                msg = f"larger than {MAX_BYTES} bytes"
                raise ValueError(msg)
            fields = json.loads(body)
            if not isinstance(fields, dict):
                msg = "not a JSON object"
                raise ValueError(msg)
        except (ValueError, RecursionError) as error:
            self.unusable[name] = f"not usable ({error})"
            return None
        if fields.get("launch_id") != self.launch_id:
            self.unusable[name] = f"of another launch ({str(fields.get('launch_id'))[:64]!r})"
            return None
        if fields.get("schema") != SCHEMA:
            msg = (
                f"{self.url}/{name} has schema {str(fields.get('schema'))[:64]!r}, this node knows {SCHEMA};"
                " run the same version on every node and launcher"
            )
            raise SettingsError(msg)
        return fields

    def is_there(self, name: str) -> bool:
        """Return whether the file *name* exists, at the price of one small request.

        Not fsspec's ``exists()``: in ocifs that answers False on *any* error, an outage included.
        """
        self._fs.invalidate_cache()  # some file systems answer from their last listing
        try:
            self._ask(name, self._fs.info)
        except FileNotFoundError:
            return False
        return True

    def listing(self) -> dict[str, str]:
        """Return a fingerprint of every file in the cluster dir, by name: it changes whenever the file does."""
        self._fs.invalidate_cache()
        try:
            entries = self._ask("", lambda path: self._fs.ls(path, detail=True))
        except FileNotFoundError:
            return {}
        return {
            str(entry["name"]).rstrip("/").rpartition("/")[2]: repr(sorted(entry.items(), key=str)) for entry in entries
        }

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

    def remove_all(self) -> None:
        """Delete the cluster dir with all that is in it; one that is not there is as good as deleted."""
        self._fs.invalidate_cache()
        try:
            self._ask("", lambda path: self._fs.rm(path, recursive=True))
        except FileNotFoundError:
            return

    def write_bytes(self, name: str, body: bytes) -> None:
        """Write *body* to the file *name*, whole, in a folder of the cluster dir."""

        def write(path: str) -> None:
            if self._is_local:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                _replace(Path(path), body)
            else:
                self._fs.pipe_file(path, body)

        self._write(name, write)

    def read_bytes(self, name: str, start: int) -> bytes:
        """Return what the file *name* holds from byte *start* on, ``MAX_BYTES`` at most; nothing if it is gone."""
        try:
            return bytes(self._ask(name, lambda path: self._fs.cat_file(path, start, start + MAX_BYTES)))
        except FileNotFoundError:
            return b""

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size in bytes of every file in a *folder* of the cluster dir, by name; {} if there is none."""
        self._fs.invalidate_cache()
        try:
            entries = self._ask(folder, lambda path: self._fs.ls(path, detail=True))
        except FileNotFoundError:
            return {}
        return {
            str(entry["name"]).rpartition("/")[2]: int(entry["size"] or 0)
            for entry in entries
            if entry.get("type") != "directory"
        }

    def upload(self, source: Path, name: str) -> None:
        """Copy the file *source* of this machine to *name* in the cluster dir."""

        def put(path: str) -> None:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(source), path)

        self._write(name, put)

    def _write(self, name: str, request: Callable[[str], T]) -> T:
        try:
            return self._ask(name, request)
        except FileNotFoundError as error:  # no bucket, or a cluster dir whose storage has gone away
            msg = f"{self.url}: {error}"
            raise StorageError(msg) from error

    def _ask(self, name: str, request: Callable[[str], T]) -> T:
        path = f"{self._path}/{name}" if name else self._path
        try:
            return request(path)
        except FileNotFoundError as error:
            if self.url.startswith("oci://"):
                from oci_cluster import oci_storage  # noqa: PLC0415 - see __init__

                if advice := oci_storage.refusal(error):
                    msg = f"{self.url}/{name}: {error}; {advice}"
                    raise StorageError(msg) from error
            raise
        # fsspec passes on whatever its file systems raise (OSError, SDK and HTTP errors of many packages): this is the
        # one door to them. All mean that storage did not answer, which callers may retry but never read as "absent".
        except Exception as error:
            if isinstance(error, PermissionError) or getattr(error, "errno", None) == errno.EROFS:
                msg = f"{self.url}/{name}: {error}; allow this node to write there, or set another WORK_DIR"
                raise NotPermittedError(msg) from error
            msg = f"{self.url}/{name}: {type(error).__name__}: {error}"
            raise StorageError(msg) from error


def _replace(path: Path, body: bytes) -> None:
    # 0600: certificates and arguments are nobody else's business. The random part keeps two writers apart.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def printable(text: object, most: int = 500) -> str:
    """Return *text* as a line for a terminal: what a file of the cluster dir holds must not control one."""
    return "".join(character for character in str(text)[:most] if character.isprintable())


def now() -> str:
    """Return the time, UTC, ISO 8601, for people: nothing is computed from it, as clocks of machines differ."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
