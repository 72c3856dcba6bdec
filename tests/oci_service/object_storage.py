"""Object Storage: the operations on buckets and on whole objects."""

from __future__ import annotations

import bisect
import email.utils
import re
import secrets
from collections.abc import Callable
from pathlib import Path

import oci.object_storage.models as sdk  # type: ignore[import-untyped]

from oci_service import models
from oci_service.buckets import Bucket, Buckets, Stored
from oci_service.faults import Controls
from oci_service.resources import JSON, REGION, Answer, Refusal, Request, Route, invalid, not_found, now, page_of
from oci_service.uploads import MAX_LISTED, Uploads


class ObjectStorage:
    """All buckets of the one namespace."""

    def __init__(
        self, directory: Path, controls: Controls, namespace: str, check_compartment: Callable[[str], None]
    ) -> None:
        self._controls = controls
        self._buckets = Buckets(directory, controls, namespace)
        self.buckets = self._buckets.by_name
        self.add_bucket = self._buckets.add
        self._uploads = Uploads(self._buckets)
        self._check_compartment = check_compartment

    def routes(self) -> list[Route]:
        """Return the operations."""
        base = "/n/{namespace}/b"
        bucket = f"{base}/{{bucket}}"
        item = f"{bucket}/o/{{object*}}"
        return [
            ("GET", "/n", "get_namespace", lambda _: Answer(self._buckets.namespace)),
            ("GET", "/n/{namespace}", "get_namespace_metadata", self._get_namespace_metadata),
            ("GET", base, "list_buckets", self._list_buckets),
            ("POST", base, "create_bucket", self._create_bucket),
            ("GET", bucket, "get_bucket", self._get_bucket),
            ("HEAD", bucket, "head_bucket", self._get_bucket),
            ("DELETE", bucket, "delete_bucket", self._delete_bucket),
            ("GET", f"{bucket}/retentionRules", "list_retention_rules", self._list_retention_rules),
            ("GET", f"{bucket}/l", "get_object_lifecycle_policy", self._get_lifecycle),
            ("PUT", f"{bucket}/l", "put_object_lifecycle_policy", self._put_lifecycle),
            ("DELETE", f"{bucket}/l", "delete_object_lifecycle_policy", self._delete_lifecycle),
            ("GET", f"{bucket}/o", "list_objects", self._list_objects),
            ("PUT", item, "put_object", self._put_object),
            ("GET", item, "get_object", self._get_object),
            ("HEAD", item, "head_object", self._head_object),
            ("DELETE", item, "delete_object", self._delete_object),
            ("POST", f"{bucket}/actions/renameObject", "rename_object", self._rename_object),
            ("POST", f"{bucket}/actions/copyObject", "copy_object", self._copy_object),
            *self._uploads.routes(bucket),
            ("GET", "/workRequests/{id}", "get_work_request", self._get_work_request),
        ]

    # --- Buckets

    def _get_namespace_metadata(self, request: Request) -> Answer:
        if request.names["namespace"] != self._buckets.namespace:
            raise Refusal(404, "NamespaceNotFound", f"You do not have authorization, or there is no {request.names}")
        return Answer({"namespace": self._buckets.namespace})

    def _list_buckets(self, request: Request) -> Answer:
        compartment = request.wanted("compartmentId")
        self._check_compartment(compartment)
        found = [self.buckets[name].fields for name in sorted(self.buckets)]
        found = [fields for fields in found if fields["compartmentId"] == compartment]
        page, headers = page_of(found, request.query, self._controls.page_size, "name")
        return Answer(page, 200, headers)

    def _create_bucket(self, request: Request) -> Answer:
        body = request.json()
        self._check_compartment(body.get("compartmentId", ""))
        name = str(body.get("name", ""))
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,256}", name) or name in {".", ".."}:
            raise Refusal(400, "InvalidBucketName", f"The bucket name '{name}' is not valid")
        with self._buckets.lock:
            if name in self.buckets:
                text = f"Either the bucket '{name}' in namespace '{self._buckets.namespace}' already exists"
                raise Refusal(409, "BucketAlreadyExists", f"{text} or you are not authorized to create it")
            more = {name: body[name] for name in ("storageTier", "kmsKeyId") if body.get(name)}
            bucket = self._buckets.add(name, body["compartmentId"], request.principal.id, **more)
        return Answer(bucket.fields, 200, {"etag": bucket.etag})

    def _get_bucket(self, request: Request) -> Answer:
        bucket = self._buckets.find(request)
        return Answer(bucket.fields, 200, {"etag": bucket.etag})

    def _delete_bucket(self, request: Request) -> Answer:
        with self._buckets.lock:
            bucket = self._buckets.find(request)
            if bucket.objects:
                name = request.names["bucket"]
                raise Refusal(409, "BucketNotEmpty", f"Bucket named '{name}' is not empty. Delete all objects first.")
            self._buckets.remove(request.names["bucket"])
        return Answer(status=204)

    def _list_retention_rules(self, request: Request) -> Answer:
        return Answer({"items": self._buckets.find(request).retention})

    # --- Lifecycle policies, which are kept and do nothing

    def _get_lifecycle(self, request: Request) -> Answer:
        bucket = self._buckets.find(request)
        if bucket.lifecycle is None:
            name = request.names["bucket"]
            raise Refusal(404, "LifecyclePolicyNotFound", f"The bucket '{name}' does not have a lifecycle policy")
        return Answer(bucket.lifecycle, 200, {"etag": bucket.lifecycle_etag})

    def _put_lifecycle(self, request: Request) -> Answer:
        body = models.check("PutObjectLifecyclePolicyDetails", request.json(), package=sdk)
        with self._buckets.lock:
            bucket = self._buckets.find(request)
            if request.headers.get("if-none-match") == "*" and bucket.lifecycle is not None:
                raise Refusal(412, "IfNoneMatchFailed", "The bucket has a lifecycle policy")
            if request.headers.get("if-match", bucket.lifecycle_etag) != bucket.lifecycle_etag:
                raise Refusal(412, "IfMatchFailed", "The lifecycle policy does not have the entity tag of If-Match")
            names = [rule["name"] for rule in body.get("items") or []]
            if len(set(names)) < len(names):
                raise invalid("The names of a lifecycle policy's rules must differ")
            bucket.lifecycle, bucket.lifecycle_etag = {"timeCreated": now(), **body}, secrets.token_hex(16)
        return Answer(bucket.lifecycle, 200, {"etag": bucket.lifecycle_etag})

    def _delete_lifecycle(self, request: Request) -> Answer:
        bucket = self._buckets.find(request)
        bucket.lifecycle, bucket.lifecycle_etag = None, ""
        return Answer(status=204)

    # --- Objects

    def _object(self, bucket: Bucket, name: str) -> Stored:
        if name not in bucket.objects:
            text = f"The object '{name}' does not exist in bucket '{bucket.fields['name']}' "
            raise Refusal(404, "ObjectNotFound", f"{text}with namespace '{self._buckets.namespace}'")
        return bucket.objects[name]

    def _put_object(self, request: Request) -> Answer:
        bucket, name = self._buckets.find(request), request.names["object"]
        if len(name.encode()) > 1024:
            raise Refusal(400, "InvalidObjectName", "An object's name has 1024 bytes at most")
        md5 = self._buckets.check_md5(request)
        content_type = request.headers.get("content-type", "application/octet-stream")
        with self._buckets.lock:
            self._buckets.check_preconditions(request, bucket.objects.get(name), name)
            self._buckets.check_change(bucket, bucket.objects.get(name))
            stored = self._buckets.store(bucket.fields["name"], request.body, content_type, _metadata(request))
            self._buckets.set(bucket, name, stored)
        last = stored.headers()["last-modified"]
        return Answer(b"", 200, {"etag": stored.etag, "opc-content-md5": md5, "last-modified": last})

    def _head_object(self, request: Request) -> Answer:
        with self._buckets.lock:
            stored = self._object(self._buckets.find(request), request.names["object"])
            self._check_unchanged(request, stored)
        return Answer(b"", 200, stored.headers(), stored.size)

    def _check_unchanged(self, request: Request, stored: Stored) -> None:
        if request.headers.get("if-match", "*") not in {"*", stored.etag}:
            text = f"The object '{request.names['object']}' does not have the entity tag of If-Match"
            raise Refusal(412, "IfMatchFailed", text)

    def _get_object(self, request: Request) -> Answer:
        with self._buckets.lock:
            stored = self._object(self._buckets.find(request), request.names["object"])
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
        with self._buckets.lock:
            bucket = self._buckets.find(request)
            self._check_unchanged(request, old := self._object(bucket, request.names["object"]))
            self._buckets.check_change(bucket, old)
            bucket.remove(request.names["object"]).file.unlink()
        return Answer(status=204, headers={"last-modified": email.utils.formatdate(usegmt=True)})

    def _list_objects(self, request: Request) -> Answer:
        query = request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        fields = query.get("fields", "name").split(",")
        limit = min(int(query.get("limit", MAX_LISTED)), MAX_LISTED)
        if delimiter not in {"", "/"}:
            raise invalid("delimiter can only be '/'")
        first = max(prefix, query.get("start", ""), query.get("startAfter", ""))
        found: list[JSON] = []
        prefixes: list[str] = []
        next_start = None
        with self._buckets.lock:
            bucket = self._buckets.find(request)
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
        with self._buckets.lock:
            bucket = self._buckets.find(request)
            stored = self._object(bucket, source)
            if body.get("srcObjIfMatchETag", "*") not in {"*", stored.etag}:
                raise Refusal(412, "IfMatchFailed", f"The object '{source}' does not have that entity tag")
            if body.get("newObjIfNoneMatchETag") == "*" and target in bucket.objects:
                raise Refusal(412, "IfNoneMatchFailed", f"The object '{target}' exists")
            if source != target:
                self._buckets.set(bucket, target, bucket.remove(source))
        return Answer(b"", 200, {"etag": stored.etag, "last-modified": stored.headers()["last-modified"]})

    def _copy_object(self, request: Request) -> Answer:
        body = request.json()
        if body.get("destinationRegion") != REGION:
            raise invalid(f"destinationRegion must be {REGION}, the only one there is")
        with self._buckets.lock:
            source = self._object(self._buckets.find(request), str(body.get("sourceObjectName")))
            names = {"namespace": str(body.get("destinationNamespace"))}
            inside = Request(request.principal, {}, {}, names, b"")
            bucket = self._buckets.find(inside, str(body.get("destinationBucket")))
            data = source.file.read_bytes()
            copy = self._buckets.store(bucket.fields["name"], data, source.content_type, source.metadata)
            self._buckets.set(bucket, str(body.get("destinationObjectName")), copy)
        return Answer(b"", 202, {"opc-work-request-id": f"copy-{secrets.token_hex(8)}"})

    def _get_work_request(self, request: Request) -> Answer:
        if not request.names["id"].startswith("copy-"):
            raise not_found()
        about = {"id": request.names["id"], "operationType": "COPY_OBJECT", "status": "COMPLETED"}
        return Answer({**about, "percentComplete": 100.0, "resources": [], "timeAccepted": now()})


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
