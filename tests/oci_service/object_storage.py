"""Object Storage: buckets, objects as files, multipart uploads."""

from __future__ import annotations

import base64
import bisect
import email.utils
import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from oci_service.knobs import Knobs
from oci_service.resources import JSON, REGION, Answer, Refusal, Request, Route, invalid, not_found, now, page_of

MOST_OBJECTS = 1000


@dataclass(frozen=True)
class Stored:
    """One version of an object; its bytes are in a file that is never changed."""

    file: Path
    size: int
    etag: str
    md5: str
    content_type: str
    metadata: tuple[tuple[str, str], ...]
    created: str
    modified: str
    modified_at: float

    def headers(self) -> dict[str, str]:
        """Return what GET and HEAD say of it."""
        return {
            "content-type": self.content_type,
            "content-md5": self.md5,
            "etag": self.etag,
            "last-modified": email.utils.formatdate(self.modified_at, usegmt=True),
            "accept-ranges": "bytes",
            "version-id": self.file.name,
            "storage-tier": "Standard",
            **dict(self.metadata),
        }


@dataclass
class Upload:
    """A multipart upload that is under way."""

    bucket: str
    name: str
    content_type: str
    metadata: tuple[tuple[str, str], ...]
    created: str
    parts: dict[int, tuple[bytes, str, str]] = field(default_factory=dict)  # data, etag, md5


class Bucket:
    """A bucket: its objects by name, and their names in order."""

    def __init__(self, fields: JSON) -> None:
        self.fields = fields
        self.etag = secrets.token_hex(16)
        self.objects: dict[str, Stored] = {}
        self.names: list[str] = []

    def put(self, name: str, stored: Stored) -> Stored | None:
        """Set an object; return the version that it replaces."""
        old = self.objects.get(name)
        if old is None:
            bisect.insort(self.names, name)
        self.objects[name] = stored
        return old

    def remove(self, name: str) -> Stored:
        """Remove an object and return it."""
        del self.names[bisect.bisect_left(self.names, name)]
        return self.objects.pop(name)


class ObjectStorage:
    """All buckets of the one namespace."""

    def __init__(self, directory: Path, knobs: Knobs, namespace: str, check_compartment: Callable[[str], None]) -> None:
        self._directory = directory
        directory.mkdir()
        self._knobs = knobs
        self.namespace = namespace
        self._check_compartment = check_compartment
        self._lock = threading.RLock()
        self.buckets: dict[str, Bucket] = {}
        self._uploads: dict[str, Upload] = {}

    def routes(self) -> list[Route]:
        """Return the operations."""
        base = "/n/{namespace}/b"
        bucket = f"{base}/{{bucket}}"
        item, upload = f"{bucket}/o/{{object*}}", f"{bucket}/u/{{object*}}"
        return [
            ("GET", "/n", "get_namespace", lambda _: Answer(self.namespace)),
            ("GET", "/n/{namespace}", "get_namespace_metadata", self._get_namespace_metadata),
            ("GET", base, "list_buckets", self._list_buckets),
            ("POST", base, "create_bucket", self._create_bucket),
            ("GET", bucket, "get_bucket", self._get_bucket),
            ("HEAD", bucket, "head_bucket", self._get_bucket),
            ("DELETE", bucket, "delete_bucket", self._delete_bucket),
            ("GET", f"{bucket}/o", "list_objects", self._list_objects),
            ("PUT", item, "put_object", self._put_object),
            ("GET", item, "get_object", self._get_object),
            ("HEAD", item, "head_object", self._head_object),
            ("DELETE", item, "delete_object", self._delete_object),
            ("POST", f"{bucket}/actions/renameObject", "rename_object", self._rename_object),
            ("POST", f"{bucket}/actions/copyObject", "copy_object", self._copy_object),
            ("POST", f"{bucket}/u", "create_multipart_upload", self._create_upload),
            ("GET", f"{bucket}/u", "list_multipart_uploads", self._list_uploads),
            ("PUT", upload, "upload_part", self._upload_part),
            ("GET", upload, "list_multipart_upload_parts", self._list_parts),
            ("POST", upload, "commit_multipart_upload", self._commit_upload),
            ("DELETE", upload, "abort_multipart_upload", self._abort_upload),
            ("GET", "/workRequests/{id}", "get_work_request", self._get_work_request),
        ]

    # --- Buckets

    def add_bucket(self, name: str, compartment: str, creator: str, **fields: object) -> Bucket:
        """Make a bucket."""
        about = {"namespace": self.namespace, "name": name, "compartmentId": compartment, "createdBy": creator}
        defaults = {"storageTier": "Standard", "publicAccessType": "NoPublicAccess", "versioning": "Disabled"}
        (self._directory / name).mkdir()
        self.buckets[name] = Bucket({**defaults, **fields, **about, "timeCreated": now()})
        return self.buckets[name]

    def _bucket(self, request: Request, name: str = "") -> Bucket:
        name = name or request.names["bucket"]
        is_revoked = request.principal.kind == "resource" and name in self._knobs.revoke_bucket
        if request.names["namespace"] != self.namespace or name not in self.buckets or is_revoked:
            text = f"Either the bucket named '{name}' does not exist in the namespace "
            text += f"'{request.names['namespace']}' or you are not authorized to access it"
            raise Refusal(404, "BucketNotFound", text)
        return self.buckets[name]

    def _get_namespace_metadata(self, request: Request) -> Answer:
        if request.names["namespace"] != self.namespace:
            raise Refusal(404, "NamespaceNotFound", f"You do not have authorization, or there is no {request.names}")
        return Answer({"namespace": self.namespace})

    def _list_buckets(self, request: Request) -> Answer:
        compartment = request.wanted("compartmentId")
        self._check_compartment(compartment)
        found = [self.buckets[name].fields for name in sorted(self.buckets)]
        found = [fields for fields in found if fields["compartmentId"] == compartment]
        page, headers = page_of(found, request.query, self._knobs.page_size, "name")
        return Answer(page, 200, headers)

    def _create_bucket(self, request: Request) -> Answer:
        body = request.json()
        self._check_compartment(body.get("compartmentId", ""))
        name = str(body.get("name", ""))
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,256}", name) or name in {".", ".."}:
            raise Refusal(400, "InvalidBucketName", f"The bucket name '{name}' is not valid")
        with self._lock:
            if name in self.buckets:
                text = f"Either the bucket '{name}' in namespace '{self.namespace}' already exists"
                raise Refusal(409, "BucketAlreadyExists", f"{text} or you are not authorized to create it")
            bucket = self.add_bucket(name, body["compartmentId"], request.principal.id)
        return Answer(bucket.fields, 200, {"etag": bucket.etag})

    def _get_bucket(self, request: Request) -> Answer:
        bucket = self._bucket(request)
        return Answer(bucket.fields, 200, {"etag": bucket.etag})

    def _delete_bucket(self, request: Request) -> Answer:
        with self._lock:
            bucket = self._bucket(request)
            if bucket.objects:
                name = request.names["bucket"]
                raise Refusal(409, "BucketNotEmpty", f"Bucket named '{name}' is not empty. Delete all objects first.")
            del self.buckets[request.names["bucket"]]
        (self._directory / request.names["bucket"]).rmdir()
        return Answer(status=204)

    # --- Objects

    def _store(self, bucket: str, data: bytes, content_type: str, metadata: tuple[tuple[str, str], ...]) -> Stored:
        version = secrets.token_hex(16)
        file = self._directory / bucket / version
        file.write_bytes(data)
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        time_ = now()
        return Stored(file, len(data), secrets.token_hex(16), digest, content_type, metadata, time_, time_, time.time())

    def _set(self, bucket: Bucket, name: str, stored: Stored) -> None:
        old = bucket.put(name, stored)
        if old is not None:
            old.file.unlink()

    def _check_preconditions(self, request: Request, old: Stored | None, name: str) -> None:
        if_match, if_none = (request.headers.get(header) for header in ("if-match", "if-none-match"))
        if if_match is not None and (old is None or if_match not in {"*", old.etag}):
            raise Refusal(412, "IfMatchFailed", f"The object '{name}' does not have the entity tag of If-Match")
        if old is not None and if_none is not None and if_none in {"*", old.etag}:
            raise Refusal(412, "IfNoneMatchFailed", f"The object '{name}' exists, which If-None-Match does not want")

    def _check_md5(self, request: Request) -> str:
        digest = base64.b64encode(hashlib.md5(request.body, usedforsecurity=False).digest()).decode()
        given = request.headers.get("content-md5", digest)
        if given != digest:
            text = f"The computed MD5 of the request body ({digest}) does not match the Content-MD5 header ({given})"
            raise Refusal(400, "UnmatchedContentMD5", text)
        return digest

    def _object(self, bucket: Bucket, name: str) -> Stored:
        if name not in bucket.objects:
            text = f"The object '{name}' does not exist in bucket '{bucket.fields['name']}' "
            raise Refusal(404, "ObjectNotFound", f"{text}with namespace '{self.namespace}'")
        return bucket.objects[name]

    def _put_object(self, request: Request) -> Answer:
        bucket, name = self._bucket(request), request.names["object"]
        if len(name.encode()) > 1024:
            raise Refusal(400, "InvalidObjectName", "An object's name has 1024 bytes at most")
        md5 = self._check_md5(request)
        content_type = request.headers.get("content-type", "application/octet-stream")
        with self._lock:
            self._check_preconditions(request, bucket.objects.get(name), name)
            stored = self._store(bucket.fields["name"], request.body, content_type, _metadata(request))
            self._set(bucket, name, stored)
        last = stored.headers()["last-modified"]
        return Answer(b"", 200, {"etag": stored.etag, "opc-content-md5": md5, "last-modified": last})

    def _head_object(self, request: Request) -> Answer:
        with self._lock:
            stored = self._object(self._bucket(request), request.names["object"])
            self._check_unchanged(request, stored)
        return Answer(b"", 200, stored.headers(), stored.size)

    def _check_unchanged(self, request: Request, stored: Stored) -> None:
        if request.headers.get("if-match", "*") not in {"*", stored.etag}:
            text = f"The object '{request.names['object']}' does not have the entity tag of If-Match"
            raise Refusal(412, "IfMatchFailed", text)

    def _get_object(self, request: Request) -> Answer:
        with self._lock:
            stored = self._object(self._bucket(request), request.names["object"])
            if request.headers.get("if-none-match") in {"*", stored.etag}:
                return Answer(b"", 304, {"etag": stored.etag})
            self._check_unchanged(request, stored)
            data = stored.file.read_bytes()
        headers = stored.headers()
        span = _span(request.headers.get("range", ""), len(data))
        if span is None:
            return Answer(data, 200, headers)
        if not span:
            raise Refusal(416, "InvalidRange", f"The range is not satisfiable; the object has {len(data)} bytes")
        headers["content-range"] = f"bytes {span.start}-{span.stop - 1}/{len(data)}"
        del headers["content-md5"]  # it is that of the whole
        return Answer(data[span.start : span.stop], 206, headers)

    def _delete_object(self, request: Request) -> Answer:
        with self._lock:
            bucket = self._bucket(request)
            self._check_unchanged(request, self._object(bucket, request.names["object"]))
            bucket.remove(request.names["object"]).file.unlink()
        return Answer(status=204, headers={"last-modified": email.utils.formatdate(usegmt=True)})

    def _list_objects(self, request: Request) -> Answer:
        query = request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        fields = query.get("fields", "name").split(",")
        limit = min(int(query.get("limit", MOST_OBJECTS)), MOST_OBJECTS)
        if delimiter not in {"", "/"}:
            raise invalid("delimiter can only be '/'")
        first = max(prefix, query.get("start", ""), query.get("startAfter", ""))
        found: list[JSON] = []
        prefixes: list[str] = []
        next_start = None
        with self._lock:
            bucket = self._bucket(request)
            for name in bucket.names[bisect.bisect_left(bucket.names, first) :]:
                if not name.startswith(prefix) or name >= query.get("end", "\U0010ffff"):
                    break
                if name == query.get("startAfter"):
                    continue
                inside, is_below, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
                folder = f"{prefix}{inside}/"
                if is_below and prefixes[-1:] == [folder]:
                    continue
                if len(found) + len(prefixes) == limit:
                    next_start = name
                    break
                if is_below:
                    prefixes.append(folder)
                else:
                    found.append(_listed(name, bucket.objects[name], fields))
        answer: JSON = {"objects": found, "prefixes": prefixes}
        return Answer({**answer, "nextStartWith": next_start} if next_start else answer)

    def _rename_object(self, request: Request) -> Answer:
        body = request.json()
        source, target = str(body.get("sourceName")), str(body.get("newName"))
        with self._lock:
            bucket = self._bucket(request)
            stored = self._object(bucket, source)
            if body.get("srcObjIfMatchETag", "*") not in {"*", stored.etag}:
                raise Refusal(412, "IfMatchFailed", f"The object '{source}' does not have that entity tag")
            if body.get("newObjIfNoneMatchETag") == "*" and target in bucket.objects:
                raise Refusal(412, "IfNoneMatchFailed", f"The object '{target}' exists")
            if source != target:
                self._set(bucket, target, bucket.remove(source))
        return Answer(b"", 200, {"etag": stored.etag, "last-modified": stored.headers()["last-modified"]})

    def _copy_object(self, request: Request) -> Answer:
        body = request.json()
        if body.get("destinationRegion") != REGION:
            raise invalid(f"destinationRegion must be {REGION}, the only one there is")
        with self._lock:
            source = self._object(self._bucket(request), str(body.get("sourceObjectName")))
            names = {"namespace": str(body.get("destinationNamespace"))}
            inside = Request(request.principal, {}, {}, names, b"")
            bucket = self._bucket(inside, str(body.get("destinationBucket")))
            data = source.file.read_bytes()
            copy = self._store(bucket.fields["name"], data, source.content_type, source.metadata)
            self._set(bucket, str(body.get("destinationObjectName")), copy)
        return Answer(b"", 202, {"opc-work-request-id": f"copy-{secrets.token_hex(8)}"})

    def _get_work_request(self, request: Request) -> Answer:
        if not request.names["id"].startswith("copy-"):
            raise not_found()
        about = {"id": request.names["id"], "operationType": "COPY_OBJECT", "status": "COMPLETED"}
        return Answer({**about, "percentComplete": 100.0, "resources": [], "timeAccepted": now()})

    # --- Multipart uploads

    def _create_upload(self, request: Request) -> Answer:
        body = request.json()
        name = str(body.get("object", ""))
        with self._lock:
            bucket = self._bucket(request)
            self._check_preconditions(request, bucket.objects.get(name), name)
            upload_id = secrets.token_hex(16)
            metadata = tuple((f"opc-meta-{k.lower()}", str(v)) for k, v in (body.get("metadata") or {}).items())
            content_type = body.get("contentType") or "application/octet-stream"
            upload = Upload(bucket.fields["name"], name, content_type, metadata, now())
            self._uploads[upload_id] = upload
        return Answer(self._about(upload_id, upload))

    def _about(self, upload_id: str, upload: Upload) -> JSON:
        where = {"namespace": self.namespace, "bucket": upload.bucket, "object": upload.name}
        return {**where, "uploadId": upload_id, "timeCreated": upload.created, "storageTier": "Standard"}

    def _upload(self, request: Request) -> tuple[Bucket, str, Upload]:
        bucket, upload_id = self._bucket(request), request.wanted("uploadId")
        upload = self._uploads.get(upload_id)
        if upload is None or (upload.bucket, upload.name) != (bucket.fields["name"], request.names["object"]):
            raise Refusal(404, "NoSuchUpload", f"The multipart upload with ID '{upload_id}' does not exist")
        return bucket, upload_id, upload

    def _upload_part(self, request: Request) -> Answer:
        md5 = self._check_md5(request)
        number = int(request.wanted("uploadPartNum"))
        if not 1 <= number <= 10000:
            raise Refusal(400, "InvalidUploadPart", "uploadPartNum must be between 1 and 10000")
        with self._lock:
            _, _, upload = self._upload(request)
            etag = secrets.token_hex(16)
            upload.parts[number] = request.body, etag, md5
        return Answer(b"", 200, {"etag": etag, "opc-content-md5": md5})

    def _commit_upload(self, request: Request) -> Answer:
        wanted = request.json().get("partsToCommit") or []
        with self._lock:
            bucket, upload_id, upload = self._upload(request)
            self._check_preconditions(request, bucket.objects.get(upload.name), upload.name)
            for part in wanted:
                if upload.parts.get(part["partNum"], (b"", "", ""))[1] != part["etag"]:
                    raise Refusal(400, "InvalidUploadPart", f"There is no part {part['partNum']} with that entity tag")
            if not wanted:
                raise Refusal(400, "InvalidUploadPart", "There are no parts to commit")
            parts = sorted(part["partNum"] for part in wanted)
            data = b"".join(upload.parts[number][0] for number in parts)
            stored = self._store(upload.bucket, data, upload.content_type, upload.metadata)
            self._set(bucket, upload.name, stored)
            del self._uploads[upload_id]
        digests = b"".join(base64.b64decode(upload.parts[number][2]) for number in parts)
        whole = base64.b64encode(hashlib.md5(digests, usedforsecurity=False).digest()).decode()
        headers = {"etag": stored.etag, "opc-multipart-md5": f"{whole}-{len(parts)}"}
        return Answer(b"", 200, {**headers, "last-modified": stored.headers()["last-modified"]})

    def _abort_upload(self, request: Request) -> Answer:
        with self._lock:
            del self._uploads[self._upload(request)[1]]
        return Answer(status=204)

    def _list_uploads(self, request: Request) -> Answer:
        with self._lock:
            name = self._bucket(request).fields["name"]
            found = [self._about(key, upload) for key, upload in self._uploads.items() if upload.bucket == name]
        page, headers = page_of(found, request.query, MOST_OBJECTS, "uploadId")
        return Answer(page, 200, headers)

    def _list_parts(self, request: Request) -> Answer:
        with self._lock:
            parts = sorted(self._upload(request)[2].parts.items())
        found = [
            {"partNumber": number, "etag": etag, "md5": md5, "size": len(data), "key": str(number)}
            for number, (data, etag, md5) in parts
        ]
        page, headers = page_of(found, request.query, MOST_OBJECTS, "key")
        return Answer([{k: v for k, v in part.items() if k != "key"} for part in page], 200, headers)


def _metadata(request: Request) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in request.headers.items() if name.startswith("opc-meta-"))


def _listed(name: str, stored: Stored, fields: list[str]) -> JSON:
    about = {
        "size": stored.size,
        "etag": stored.etag,
        "md5": stored.md5,
        "timeCreated": stored.created,
        "timeModified": stored.modified,
        "storageTier": "Standard",
        "archivalState": None,
    }
    return {"name": name, **{key: value for key, value in about.items() if key in fields and value is not None}}


def _span(text: str, size: int) -> range | None:
    """Return the bytes that a range header asks for, empty where there are none; None where it asks for all."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", text)
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        return range(max(0, size - int(last)), size)
    return range(int(first), min(size, int(last) + 1) if last else size)
