"""Object Storage: uploads in parts."""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass, field

from oci_service.buckets import Bucket, Buckets
from oci_service.resources import JSON, Answer, Refusal, Request, Route, now, page_of

# The longest page of a list.
MAX_LISTED = 1000


@dataclass
class Upload:
    """A multipart upload that is under way."""

    bucket: str
    name: str
    content_type: str
    metadata: tuple[tuple[str, str], ...]
    created: str
    parts: dict[int, tuple[bytes, str, str]] = field(default_factory=dict)  # data, etag, md5


class Uploads:
    """All uploads that are under way."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._uploads: dict[str, Upload] = {}

    def routes(self, bucket: str) -> list[Route]:
        """Return the operations; *bucket* is the path of one."""
        upload = f"{bucket}/u/{{object*}}"
        return [
            ("POST", f"{bucket}/u", "create_multipart_upload", self._create),
            ("GET", f"{bucket}/u", "list_multipart_uploads", self._list),
            ("PUT", upload, "upload_part", self._upload_part),
            ("GET", upload, "list_multipart_upload_parts", self._list_parts),
            ("POST", upload, "commit_multipart_upload", self._commit),
            ("DELETE", upload, "abort_multipart_upload", self._abort),
        ]

    def _create(self, request: Request) -> Answer:
        body = request.json()
        name = str(body.get("object", ""))
        with self._buckets.lock:
            bucket = self._buckets.find(request)
            self._buckets.check_preconditions(request, bucket.objects.get(name), name)
            upload_id = secrets.token_hex(16)
            metadata = tuple((f"opc-meta-{k.lower()}", str(v)) for k, v in (body.get("metadata") or {}).items())
            content_type = body.get("contentType") or "application/octet-stream"
            upload = Upload(bucket.fields["name"], name, content_type, metadata, now())
            self._uploads[upload_id] = upload
        return Answer(self._about(upload_id, upload))

    def _about(self, upload_id: str, upload: Upload) -> JSON:
        where = {"namespace": self._buckets.namespace, "bucket": upload.bucket, "object": upload.name}
        return {**where, "uploadId": upload_id, "timeCreated": upload.created, "storageTier": "Standard"}

    def _find(self, request: Request) -> tuple[Bucket, str, Upload]:
        bucket, upload_id = self._buckets.find(request), request.wanted("uploadId")
        upload = self._uploads.get(upload_id)
        if upload is None or (upload.bucket, upload.name) != (bucket.fields["name"], request.names["object"]):
            raise Refusal(404, "NoSuchUpload", f"The multipart upload with ID '{upload_id}' does not exist")
        return bucket, upload_id, upload

    def _upload_part(self, request: Request) -> Answer:
        md5 = self._buckets.check_md5(request)
        number = int(request.wanted("uploadPartNum"))
        if not 1 <= number <= 10000:
            raise Refusal(400, "InvalidUploadPart", "uploadPartNum must be between 1 and 10000")
        with self._buckets.lock:
            _, _, upload = self._find(request)
            etag = secrets.token_hex(16)
            upload.parts[number] = request.body, etag, md5
        return Answer(b"", 200, {"etag": etag, "opc-content-md5": md5})

    def _commit(self, request: Request) -> Answer:
        wanted = request.json().get("partsToCommit") or []
        with self._buckets.lock:
            bucket, upload_id, upload = self._find(request)
            self._buckets.check_preconditions(request, bucket.objects.get(upload.name), upload.name)
            self._buckets.check_change(bucket, bucket.objects.get(upload.name))
            for part in wanted:
                if upload.parts.get(part["partNum"], (b"", "", ""))[1] != part["etag"]:
                    raise Refusal(400, "InvalidUploadPart", f"There is no part {part['partNum']} with that entity tag")
            if not wanted:
                raise Refusal(400, "InvalidUploadPart", "There are no parts to commit")
            parts = sorted(part["partNum"] for part in wanted)
            data = b"".join(upload.parts[number][0] for number in parts)
            stored = self._buckets.store(upload.bucket, data, upload.content_type, upload.metadata)
            self._buckets.set(bucket, upload.name, stored)
            del self._uploads[upload_id]
        digests = b"".join(base64.b64decode(upload.parts[number][2]) for number in parts)
        whole = base64.b64encode(hashlib.md5(digests, usedforsecurity=False).digest()).decode()
        headers = {"etag": stored.etag, "opc-multipart-md5": f"{whole}-{len(parts)}"}
        return Answer(b"", 200, {**headers, "last-modified": stored.headers()["last-modified"]})

    def _abort(self, request: Request) -> Answer:
        with self._buckets.lock:
            del self._uploads[self._find(request)[1]]
        return Answer(status=204)

    def _list(self, request: Request) -> Answer:
        with self._buckets.lock:
            name = self._buckets.find(request).fields["name"]
            found = [self._about(key, upload) for key, upload in self._uploads.items() if upload.bucket == name]
        page, headers = page_of(found, request.query, MAX_LISTED, "uploadId")
        return Answer(page, 200, headers)

    def _list_parts(self, request: Request) -> Answer:
        with self._buckets.lock:
            parts = sorted(self._find(request)[2].parts.items())
        found = [
            {"partNumber": number, "etag": etag, "md5": md5, "size": len(data), "key": str(number)}
            for number, (data, etag, md5) in parts
        ]
        page, headers = page_of(found, request.query, MAX_LISTED, "key")
        return Answer([{k: v for k, v in part.items() if k != "key"} for part in page], 200, headers)
