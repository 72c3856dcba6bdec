"""Buckets, and objects as files: what the operations on whole objects and on uploads in parts share."""

from __future__ import annotations

import base64
import bisect
import email.utils
import hashlib
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from oci_service.faults import Controls
from oci_service.resources import JSON, Refusal, Request, now


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


class Bucket:
    """A bucket: its objects by name, and their names in order."""

    def __init__(self, fields: JSON) -> None:
        self.fields = fields
        self.etag = secrets.token_hex(16)
        self.lifecycle: JSON | None = None
        self.lifecycle_etag = ""
        self.retention: list[JSON] = []  # rules that keep objects as they are
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


class Buckets:
    """All buckets of the one namespace. Who changes what is in one holds the lock."""

    def __init__(self, directory: Path, controls: Controls, namespace: str) -> None:
        self._directory = directory
        directory.mkdir()
        self._controls = controls
        self.namespace = namespace
        self.lock = threading.RLock()
        self.by_name: dict[str, Bucket] = {}

    def add(self, name: str, compartment: str, creator: str, **fields: object) -> Bucket:
        """Make a bucket."""
        about = {"namespace": self.namespace, "name": name, "compartmentId": compartment, "createdBy": creator}
        defaults: dict[str, object] = {"storageTier": "Standard", "publicAccessType": "NoPublicAccess"}
        defaults |= {"versioning": "Disabled", "isReadOnly": False}
        (self._directory / name).mkdir()
        self.by_name[name] = Bucket({**defaults, **fields, **about, "timeCreated": now()})
        return self.by_name[name]

    def find(self, request: Request, name: str = "") -> Bucket:
        """Return the bucket that a request, or *name*, names; refuse one that is not there, as OCI words it."""
        name = name or request.names["bucket"]
        is_revoked = request.principal.kind == "resource" and name in self._controls.revoke_bucket
        if request.names["namespace"] != self.namespace or name not in self.by_name or is_revoked:
            text = f"Either the bucket named '{name}' does not exist in the namespace "
            text += f"'{request.names['namespace']}' or you are not authorized to access it"
            raise Refusal(404, "BucketNotFound", text)
        return self.by_name[name]

    def store(self, bucket: str, data: bytes, content_type: str, metadata: tuple[tuple[str, str], ...]) -> Stored:
        """Write the bytes of a new version, which nobody can see yet."""
        version = secrets.token_hex(16)
        file = self._directory / bucket / version
        file.write_bytes(data)
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        time_ = now()
        return Stored(file, len(data), secrets.token_hex(16), digest, content_type, metadata, time_, time_, time.time())

    def set(self, bucket: Bucket, name: str, stored: Stored) -> None:
        """Have an object be this version."""
        old = bucket.put(name, stored)
        if old is not None:
            old.file.unlink()

    def check_change(self, bucket: Bucket, old: Stored | None) -> None:
        """Refuse a new object, or a change of *old*, that the bucket's kind, key or rules do not let happen."""
        name = bucket.fields["name"]
        if bucket.fields["isReadOnly"]:
            raise Refusal(403, "BucketReadOnly", f"Bucket '{name}' is the destination of a replication policy")
        if bucket.fields.get("kmsKeyId") in self._controls.disabled_keys:
            raise Refusal(409, "KmsKeyDisabled", f"The key of bucket '{name}' is disabled")
        if old is not None and bucket.retention:
            raise Refusal(403, "RetentionRuleViolation", f"Bucket '{name}' has retention rules")

    def check_preconditions(self, request: Request, old: Stored | None, name: str) -> None:
        """Refuse what the request's conditions do not want done to *old*."""
        if_match, if_none = (request.headers.get(header) for header in ("if-match", "if-none-match"))
        if if_match is not None and (old is None or if_match not in {"*", old.etag}):
            raise Refusal(412, "IfMatchFailed", f"The object '{name}' does not have the entity tag of If-Match")
        if old is not None and if_none is not None and if_none in {"*", old.etag}:
            raise Refusal(412, "IfNoneMatchFailed", f"The object '{name}' exists, which If-None-Match does not want")

    def check_md5(self, request: Request) -> str:
        """Return the digest of a request's body; refuse a body that is not the one that was sent."""
        digest = base64.b64encode(hashlib.md5(request.body, usedforsecurity=False).digest()).decode()
        given = request.headers.get("content-md5", digest)
        if given != digest:
            text = f"The computed MD5 of the request body ({digest}) does not match the Content-MD5 header ({given})"
            raise Refusal(400, "UnmatchedContentMD5", text)
        return digest

    def remove(self, name: str) -> None:
        """Remove an empty bucket."""
        del self.by_name[name]
        (self._directory / name).rmdir()
