"""Object Storage: opens ``oci://`` URLs, and makes the requests there.

ocifs knows who asks, and where. Its own calls are not used: a read of a file that is not there is a HEAD and a LIST, a
read of one that is there a HEAD and a GET. ``exists()`` takes an outage for "not there", and ``rm()`` and ``find()``
with it. An upload whose part fails is committed without its end. Here each call is one request, which is answered,
repeated or named.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import math
import mimetypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from oci_cluster.contract.storage.retry import Repeats, RequestFailedError, Waiting
from oci_cluster.system.text import first_line

T = TypeVar("T")

# Seconds to connect, and between two bytes of an answer. An agent that waits sees nothing else meanwhile.
_TIMEOUTS_S = (5, 15)
# Busy, being changed by somebody else, or broken: the same request may be done later.
_PASSING_STATUS = {409, 429, 500, 502, 503, 504}
# Refusals of this identity, and of what it cannot see.
_REFUSED_STATUS = {401, 403}
_NO_BUCKET = {"BucketNotFound", "NamespaceNotFound", "NotAuthorizedOrNotFound"}
_BUCKET_ADVICE = (
    "make the bucket (oci os bucket create), or allow it: allow dynamic-group <the runs'> to manage objects"
    " in compartment <its name> where target.bucket.name = '<its name>'; a user's group likewise"
)
_PASSING_ADVICE = "the service is busy or broken: try again later, and see the region's status page if that goes on"
# Uploads beyond this go in parts: what fails is one of them. Object Storage takes 10,000 (its documentation).
_PART_BYTES, _MOST_PARTS = 16 << 20, 10_000


class _Process:
    """Choices for all URLs that this process opens."""

    waiting = Waiting()
    # Where nobody says how patient to be: one for all, so that an outage costs a list of many clusters its time once.
    repeats = Repeats(0.0, waiting)


def configure(*, waiting: Waiting | None = None, patience_s: float | None = None, **identity: Any) -> None:
    """Have ``oci://`` URLs opened so that every request is answered, or fails, soon.

    The SDK's own retries go on for ten minutes, know no retry-after, and its circuit breaker refuses requests that
    nobody has tried. So requests are repeated for *patience_s*, see :class:`Repeats`; nodes have loops of their own: 0.
    Without an *identity* (ocifs' ``config``, ``signer``, ``region``) it is the one that ocifs finds.
    """
    import fsspec.config  # noqa: PLC0415 - with the file systems that follow
    from oci.circuit_breaker import NoCircuitBreakerStrategy  # noqa: PLC0415 - a quarter of a second, where it is needed
    from oci.retry import NoneRetryStrategy  # noqa: PLC0415

    _Process.waiting = waiting or _Process.waiting
    if patience_s is not None:
        _Process.repeats = Repeats(patience_s, _Process.waiting)
    options = fsspec.config.conf.setdefault("oci", {})
    options.update(identity)
    # Those of the first call stay: with the same options it is the same file system, with the same connections.
    usual = {"retry_strategy": NoneRetryStrategy(), "circuit_breaker_strategy": NoCircuitBreakerStrategy()}
    options["config_kwargs"] = {**usual, "timeout": _TIMEOUTS_S, **options.get("config_kwargs", {})}


def open_files(url: str, patience_s: float | None = None) -> tuple[OciFiles, str]:
    """Return the objects of the bucket of *url*, and the path there."""
    import fsspec  # noqa: PLC0415 - where such URLs are used

    configure()
    # A copy: ocifs adds to it.
    file_system, path = fsspec.url_to_fs(url, config_kwargs=dict(fsspec.config.conf["oci"]["config_kwargs"]))
    repeats = _Process.repeats if patience_s is None else Repeats(patience_s, _Process.waiting)
    return OciFiles(file_system, repeats), path


class OciFiles:
    """Objects by the calls of an fsspec file system; paths are ``<bucket>@<namespace>/...``.

    All methods raise FileNotFoundError where the bucket can be seen and has no such object, PermissionError where who
    asks is not known or not allowed, else RequestFailedError.
    """

    protocol = "oci"

    def __init__(self, file_system: Any, repeats: Repeats) -> None:
        self._file_system = file_system
        self._repeats = repeats

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of the object *path* from *start* to *end* at most."""
        try:
            body = self._ask("get_object", path, _content, range=_range(start, end))
        except _NothingThereError:
            return b""
        return body if end is None else body[: end - start]

    def info(self, path: str) -> dict[str, Any]:
        """Describe the object *path*, by GET: HEAD does not tell a missing bucket."""

        def size(response: Any) -> int:
            _content(response)
            return int(response.headers["content-range"].rpartition("/")[2])

        try:
            found = self._ask("get_object", path, size, range=_range(0, 1))
        except _NothingThereError:
            found = 0
        return {"name": path, "size": found, "type": "file"}

    def pipe_file(self, path: str, value: bytes, *, mode: str = "overwrite", **options: Any) -> None:
        """Replace the object *path* by *value*; with *mode* ``create``, only make it.

        Then a refusal does not tell who has made it: where an answer is lost, the repeated request is refused, too.
        """
        if mode == "create":
            options["if_none_match"] = "*"
        self._ask("put_object", path, _done, put_object_body=value, content_md5=_md5(value), **options)

    def get_file(self, path: str, target: str, most: float = math.inf) -> bool:
        """Copy the object *path* to the file *target*; return whether *most* bytes were enough."""
        with Path(target).open("wb") as file:

            def save(response: Any) -> bool:
                file.seek(0)
                file.truncate()
                for piece in response.data.raw.stream(1 << 20, decode_content=False):
                    try:
                        file.write(piece)
                    except OSError as error:
                        raise _LocalFileError(error) from error
                    if file.tell() > most:
                        response.data.close()
                        return False
                return True

            try:
                return bool(self._ask("get_object", path, save))
            except _LocalFileError as error:
                raise error.error from error

    def put_file(self, source: str, path: str) -> None:
        """Copy the file *source* to the object *path*, which appears when it is whole."""
        content_type = mimetypes.guess_type(path)[0]
        with Path(source).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size <= _PART_BYTES:
                options = {"content_type": content_type} if content_type else {}
                self.pipe_file(path, file.read(), **options)
                return
            try:
                self._put_parts(file, size, path, content_type)
            except FileNotFoundError:
                # The upload is gone: it was committed, and that answer was lost, or somebody has ended it.
                file.seek(0)
                self._put_parts(file, size, path, content_type)

    def _put_parts(self, file: Any, size: int, path: str, content_type: str | None) -> None:
        from oci.object_storage import models  # noqa: PLC0415 - where something large is uploaded

        _, _, name = self._file_system.split_path(path)
        details = models.CreateMultipartUploadDetails(object=name, content_type=content_type)
        # Where the answer is lost, an upload stays that nobody knows of; a rule of the bucket can end those.
        upload = self._ask(
            "create_multipart_upload",
            path,
            lambda response: str(response.data.upload_id),
            create_multipart_upload_details=details,
            is_in_bucket=True,
        )
        part_bytes = max(_PART_BYTES, -(-size // _MOST_PARTS))
        try:
            parts: list[Any] = []
            while part := file.read(part_bytes):
                number = len(parts) + 1
                options: dict[str, Any] = {"upload_id": upload, "upload_part_num": number, "content_md5": _md5(part)}
                etag = self._ask(
                    "upload_part",
                    path,
                    lambda response: str(response.headers["etag"]),
                    upload_part_body=part,
                    **options,
                )
                parts.append(models.CommitMultipartUploadPartDetails(part_num=number, etag=etag))
            commit = models.CommitMultipartUploadDetails(parts_to_commit=parts)
            options = {"upload_id": upload, "commit_multipart_upload_details": commit}
            self._ask("commit_multipart_upload", path, _done, **options)
        except OSError:
            with contextlib.suppress(OSError):  # what has failed before it is what is told
                self._ask("abort_multipart_upload", path, _done, upload_id=upload)
            raise

    def rm_file(self, path: str) -> None:
        """Delete the object *path*."""
        self._ask("delete_object", path, _done)

    def ls(self, path: str, *, detail: bool) -> list[dict[str, Any]]:
        """Describe all that is in the folder *path*; a changed object changes its description."""
        assert detail  # noqa: S101 - nobody asks for less
        bucket = path.partition("/")[0]
        found = []
        for page in self._pages(path, fields="name,size,etag,timeModified", delimiter="/"):
            for item in page.objects:
                if not item.name.endswith("/"):  # some programs leave an object for a folder
                    about = {"etag": item.etag, "modified": str(item.time_modified)}
                    found.append({"name": f"{bucket}/{item.name}", "size": item.size, "type": "file", **about})
            folders = [prefix.rstrip("/") for prefix in page.prefixes or []]
            found += [{"name": f"{bucket}/{folder}", "size": 0, "type": "directory"} for folder in folders]
        return found

    def rm(self, path: str, *, recursive: bool) -> None:
        """Delete all objects in the folder *path*."""
        assert recursive  # noqa: S101 - a single object is rm_file's
        bucket = path.partition("/")[0]
        for page in list(self._pages(path, fields="name")):
            for item in page.objects:
                try:
                    self.rm_file(f"{bucket}/{item.name}")
                except FileNotFoundError:  # somebody else has deleted it
                    continue

    def _pages(self, path: str, **options: Any) -> Iterator[Any]:
        _, _, name = self._file_system.split_path(path)
        start: dict[str, str] = {}
        while True:
            page = self._ask(
                "list_objects",
                path,
                lambda response: response.data,
                prefix=f"{name}/" if name else "",
                is_in_bucket=True,
                **options,
                **start,
            )
            yield page
            if not page.next_start_with:
                return
            start = {"start": page.next_start_with}

    def makedirs(self, path: str, *, exist_ok: bool) -> None:
        """Do nothing: folders are parts of names."""

    def invalidate_cache(self) -> None:
        """Do nothing: no list is kept."""

    def _ask(
        self, operation: str, path: str, read: Callable[[Any], T], *, is_in_bucket: bool = False, **options: Any
    ) -> T:
        """Return what *read* makes of the answer to *operation*; both may be repeated."""
        import oci  # noqa: PLC0415 - it is there when there is a file system

        def request() -> T:
            try:
                bucket, namespace, name = self._file_system.split_path(path)
                where = {"namespace_name": namespace, "bucket_name": bucket}
                named = {} if is_in_bucket else {"object_name": name}
                return read(getattr(self._file_system.oci_client, operation)(**where, **named, **options))
            except oci.exceptions.ServiceError as error:
                raise _refusal(operation, error) from error
            except oci.exceptions.ClientError:  # of the identity on this machine: another try changes nothing
                raise
            # Errors of connections have many bases: those of the SDK, requests, urllib3, ssl and the system.
            except Exception as error:
                if isinstance(error, OSError) or type(error).__module__.startswith(("oci.", "urllib3", "requests")):
                    raise RequestFailedError(
                        f"no answer from Object Storage to {operation}: {first_line(error)}; {_PASSING_ADVICE}",
                        is_passing=True,
                    ) from error
                raise

        return self._repeats.call(request)


class _LocalFileError(Exception):
    """A file of this machine cannot be written: no failure of storage."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _NothingThereError(Exception):
    """The object has no bytes in the range that was asked for."""


def _refusal(operation: str, error: Any) -> Exception:
    status, code = int(error.status), str(error.code or "")
    if status == 416:
        return _NothingThereError()
    words = f": {error.message}" if error.message and code else ""
    told = f"Object Storage answered {operation} with HTTP {' '.join(filter(None, (str(status), code)))}{words}"
    is_hidden = status == 404 and code in _NO_BUCKET
    if status == 404 and not is_hidden:
        return FileNotFoundError(told)
    is_passing = status in _PASSING_STATUS
    advice = f"; {_PASSING_ADVICE}" if is_passing else f"; {_BUCKET_ADVICE}" if is_hidden else ""
    told = f"{told}{advice}" + (f" (opc-request-id {error.request_id})" if error.request_id else "")
    if status in _REFUSED_STATUS:
        return PermissionError(told)
    return RequestFailedError(told, is_passing=is_passing, retry_after_s=retry_after(error.headers))


def retry_after(headers: Any) -> float:
    """Return how many seconds the service asks clients to wait; 0 without a number."""
    try:
        return float((headers or {}).get("retry-after", 0))
    except (TypeError, ValueError):
        return 0.0


def _content(response: Any) -> bytes:
    body = bytes(response.data.content)
    told = response.headers.get("content-length")
    if told is not None and len(body) != int(told):
        raise ConnectionError(f"the answer has {len(body)} bytes of {told}")
    return body


def _done(_: Any) -> None:
    """Read nothing of an answer."""


def _range(start: int, end: int | None) -> str:
    return f"bytes={start}-{'' if end is None else end - 1}"


def _md5(body: bytes) -> str:
    """Return the checksum that the service compares: half of a request is no object."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
