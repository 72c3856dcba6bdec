"""What somebody may do: the policies of the tenancy, asked for every request and for what runs do without one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oci_service.buckets import Bucket
from oci_service.identity import ADMINISTRATORS, Identity
from oci_service.permissions import OPERATIONS, OTHER
from oci_service.policies import Subject
from oci_service.resources import JSON, REGION, Principal, Refusal, Request, Shelf, merged, not_found

if TYPE_CHECKING:
    from oci_service.nodes import Plan

_STREAM = re.compile(r'"([^"]*)"')
# What the service does in a subnet for a run, and what whoever makes a Job needs there.
_IN_SUBNET = ("SUBNET_READ", "SUBNET_ATTACH", "VNIC_ATTACH", "VNIC_CREATE")
_IN_BUCKET = {"bucket", "object"}
SERVICE = Principal("service", "datascience", "")
# Who deletes what a lifecycle policy says, and what that takes.
STORAGE = Principal("service", f"objectstorage-{REGION}", "")
_OF_LIFECYCLE = ("BUCKET_INSPECT", "BUCKET_READ", "OBJECT_INSPECT", "OBJECT_DELETE")
# Whom nothing can be denied.
_EXEMPT = Subject("group", name=ADMINISTRATORS)


@dataclass(frozen=True)
class Need:
    """A permission that a request needs, or one of several; where; and what a condition can ask about it."""

    permissions: tuple[str, ...]
    compartment: str
    attributes: Mapping[str, str] = field(default_factory=dict)


class Rights:
    """The rights of runs where no policies count: a run gets its image, a place in the subnet, and its logs."""

    def why_not(self, run: JSON, job: JSON, plan: Plan) -> str:
        """Return why a run cannot start; empty if it can."""
        return ""

    def may_log(self, run: JSON, job: JSON, log_group: str) -> bool:
        """Return whether what a run prints goes to its log, which the service may have to make first."""
        return True


class Access(Rights):
    """Asks the policies.

    Args:
        identity: Has them.
        shelves: All resources that have an OCID.
        buckets: Those of Object Storage, by name.
        flipped: The control of that name.
    """

    def __init__(
        self,
        identity: Identity,
        shelves: Iterable[Shelf],
        buckets: Mapping[str, Bucket],
        flipped: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._flipped = flipped
        self._identity = identity
        self._shelves = {shelf.kind: shelf for shelf in shelves}
        self._buckets = buckets
        self._special: Mapping[str, Callable[[Request], Iterator[Need]]] = {
            "object_storage.put_object": self._for_put,
            "object_storage.create_multipart_upload": self._for_upload,
            "object_storage.rename_object": self._for_rename,
            "object_storage.copy_object": self._for_copy,
            "logging.search_logs": self._for_search,
            "data_science.create_job": self._for_job,
            "data_science.create_job_run": self._for_run,
            "registry.get_manifest": self._for_image,
            "registry.get_blob": self._for_image,
        }
        #: What was refused: who, what, and the permission that was missing.
        self.denials: list[JSON] = []

    @property
    def operations(self) -> set[str]:
        """The operations of which it is known what they need."""
        return {*OPERATIONS, *self._special}

    # --- Requests

    def check(self, principal: Principal, operation: str, request: Request) -> None:
        """Refuse a request that *principal* may not make, as the service does: as if there were nothing."""
        for need in self._needs(operation, request):
            if not self._has(principal, operation, need):
                self._deny(principal, operation, need)
                raise self._refusal(principal, operation, request)
        self.check_storage(operation, request)

    def check_storage(self, operation: str, request: Request) -> None:
        """Refuse a lifecycle policy of a bucket in which Object Storage itself may not do what it says."""
        is_lifecycle = operation == "object_storage.put_object_lifecycle_policy"
        named = self._in_bucket(request.names["bucket"]) if is_lifecycle else None
        for permission in _OF_LIFECYCLE if named else ():
            if not self._has(STORAGE, "lifecycle", need := Need((permission,), *named)):
                self._deny(STORAGE, operation, need)
                text = f"Permissions granted to the object storage service principal '{STORAGE.id}' to this bucket"
                raise Refusal(400, "InsufficientServicePermissions", f"{text} are insufficient.")

    def _deny(self, principal: Principal, operation: str, need: Need) -> None:
        who = f"{principal.kind}:{principal.id}"
        self.denials.append({"who": who, "operation": operation, "permission": "|".join(need.permissions)})

    def _refusal(self, principal: Principal, operation: str, request: Request) -> Refusal:
        if not operation.startswith("object_storage.") or "bucket" not in request.names:
            return not_found()
        bucket, namespace = request.names["bucket"], request.names["namespace"]
        named = self._in_bucket(bucket)
        may_list = named and self._has(principal, "list_objects", Need(("OBJECT_INSPECT",), *named))
        if may_list and operation.partition(".")[2] in {"get_object", "head_object", "delete_object"}:
            text = f"The object '{request.names['object']}' does not exist in bucket '{bucket}' "
            return Refusal(404, "ObjectNotFound", f"{text}with namespace '{namespace}'")
        text = f"Either the bucket named '{bucket}' does not exist in the namespace '{namespace}' "
        return Refusal(404, "BucketNotFound", f"{text}or you are not authorized to access it")

    def _has(self, principal: Principal, operation: str, need: Need) -> bool:
        asked = operation.rpartition(".")[2].title().replace("_", "")
        compartments = self._identity.with_parents(need.compartment)
        attributes = {**need.attributes, "request.operation": asked, "target.compartment.id": need.compartment}
        if need.compartment != self._identity.id:
            attributes["target.compartment.name"] = self._identity.compartments.get(need.compartment)["name"]
        if principal.kind in {"api-key", "session"}:
            attributes["request.user.id"] = principal.id
        subjects = self._identity.subjects(principal)
        allowed, denied = set[str](), set[str]()
        for statement, about in self._identity.statements():
            if about not in compartments or not any(own.matches(is_) for own in statement.subjects for is_ in subjects):
                continue
            for permission in statement.permissions & set(need.permissions):
                if statement.condition({**attributes, "request.permission": permission}):
                    (denied if statement.is_denial else allowed).add(permission)
        is_exempt = any(_EXEMPT.matches(is_) for is_ in subjects)
        return bool(allowed if is_exempt else allowed - denied)

    def _needs(self, operation: str, request: Request) -> Iterator[Need]:
        if operation not in self.operations:
            yield Need((OTHER,), self._identity.id)
            return
        for permissions, of in OPERATIONS.get(operation, ()):
            for compartment, attributes in self._targets(of, request):
                yield Need(tuple(permissions.split("|")), compartment, attributes)
        if operation in self._special:
            yield from self._special[operation](request)

    def _targets(self, of: str, request: Request) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield the compartments that a need is about, with what a condition can ask.

        None for what is not there: the operation itself says so.
        """
        if of == "tenancy":
            yield self._identity.id, {}
        elif of == "compartment":
            body = request.json() if request.body else {}
            named = str(request.query.get("compartmentId") or body.get("compartmentId") or "")
            if named == self._identity.id or self._found(named):
                yield named, _about("containerrepo", body)
        elif of in _IN_BUCKET:
            if found := self._in_bucket(request.names["bucket"]):
                more = {"target.object.name": request.names["object"]} if of == "object" else {}
                yield found[0], {**found[1], **more}
        else:
            inside = of.removeprefix("body.")
            value = request.json().get(inside) if inside != of else request.names.get(of, request.query.get(of))
            for resource_id in value if isinstance(value, list) else [value]:
                if found_resource := self._found(str(resource_id)):
                    kind = str(resource_id).split(".")[1]
                    yield self._home(found_resource), _about(kind, found_resource)

    def _found(self, resource_id: str) -> JSON | None:
        kind = [*resource_id.split("."), ""][1]
        try:
            return self._shelves[kind].get(resource_id) if kind in self._shelves else None
        except Refusal:
            return None

    def _home(self, resource: JSON) -> str:
        return str(resource["id"] if resource["id"].split(".")[1] == "compartment" else resource["compartmentId"])

    def _in_bucket(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        found = self._buckets.get(name)
        return (found.fields["compartmentId"], {"target.bucket.name": name}) if found else None

    def _object(self, bucket: str, name: str, *permissions: str) -> Iterator[Need]:
        if found := self._in_bucket(bucket):
            for permission in permissions:
                yield Need((permission,), found[0], {**found[1], "target.object.name": name})

    # --- Operations whose needs depend on what they are about

    def _for_put(self, request: Request) -> Iterator[Need]:
        bucket, name = request.names["bucket"], request.names["object"]
        is_there = bucket in self._buckets and name in self._buckets[bucket].objects
        yield from self._object(bucket, name, "OBJECT_OVERWRITE" if is_there else "OBJECT_CREATE")

    def _for_upload(self, request: Request) -> Iterator[Need]:
        name = str(request.json().get("object"))
        yield from self._object(request.names["bucket"], name, "OBJECT_CREATE", "OBJECT_OVERWRITE")

    def _for_rename(self, request: Request) -> Iterator[Need]:
        name = str(request.json().get("newName"))
        yield from self._object(request.names["bucket"], name, "OBJECT_CREATE", "OBJECT_OVERWRITE")

    def _for_copy(self, request: Request) -> Iterator[Need]:
        body = request.json()
        yield from self._object(request.names["bucket"], str(body.get("sourceObjectName")), "OBJECT_READ")
        target = str(body.get("destinationBucket")), str(body.get("destinationObjectName"))
        yield from self._object(*target, "OBJECT_CREATE", "OBJECT_OVERWRITE", "OBJECT_INSPECT")

    def _for_search(self, request: Request) -> Iterator[Need]:
        for stream in _STREAM.findall(str(request.json().get("searchQuery", "")).partition("|")[0]):
            compartment, group, *_ = [*stream.split("/"), ""]
            if found := self._found(group or compartment):
                yield Need(("LOG_CONTENT_READ",), self._home(found), _about("loggroup" if group else "", found))

    def _for_image(self, request: Request) -> Iterator[Need]:
        name = request.names["repository"].partition("/")[2]
        for found in self._shelves["containerrepo"].all():
            if found["displayName"] == name:
                yield Need(("REPOSITORY_READ",), found["compartmentId"], _about("containerrepo", found))

    def _for_job(self, request: Request) -> Iterator[Need]:
        yield from self._for_places(request.json())

    def _for_run(self, request: Request) -> Iterator[Need]:
        body = request.json()
        job = self._found(str(body.get("jobId"))) or {}
        yield from self._for_places(body)
        yield from self._for_places(job)
        log = logging_of(job, body)
        if log.get("enableAutoLogCreation") and "log-maker" in self._flipped():
            group = self._shelves["loggroup"].get(log["logGroupId"])
            yield Need(("LOG_GROUP_CREATE",), self._home(group), _about("loggroup", group))

    def _for_places(self, body: JSON) -> Iterator[Need]:
        for subnet in self._named(body, "subnetId"):
            for permission in _IN_SUBNET:
                yield Need((permission,), self._home(subnet))
        for group in self._named(body, "logGroupId"):
            yield Need(("LOG_GROUP_READ",), self._home(group), _about("loggroup", group))

    def _named(self, body: Any, name: str) -> Iterator[JSON]:
        """Yield the resources that a field called *name* names, wherever it is in a body."""
        parts = body.values() if isinstance(body, dict) else body if isinstance(body, list) else []
        for part in parts:
            yield from self._named(part, name)
        if isinstance(body, dict) and (found := self._found(str(body.get(name)))):
            yield found

    # --- What runs do, and the service for them

    def why_not(self, run: JSON, job: JSON, plan: Plan) -> str:
        """Return why a run cannot start: the service may not use the subnet, or the run may not read its image."""
        for subnet in [*self._named(job, "subnetId"), *self._named(run, "subnetId")]:
            for permission in _IN_SUBNET:
                need = Need((permission,), self._home(subnet))
                if not self._has(SERVICE, "start_run", need):
                    self._deny(SERVICE, "start_run", need)
                    refused = "Authorization failed or requested resource not found."
                    return f"Failed to attach a VNIC to subnet {subnet['id']}: {refused}"
        for image in sorted({str(group.container.get("image", "")) for group in plan.groups}):
            name = repository_of(image)
            found = next((r for r in self._shelves["containerrepo"].all() if r["displayName"] == name), None)
            if found is None:
                return f"Error pulling image {image}: there is no repository {name}."
            if not self._may(run, "pull_image", "REPOSITORY_READ", found, "containerrepo"):
                return f"Error pulling image {image}: not found or not authorized."
        return ""

    def may_log(self, run: JSON, job: JSON, log_group: str) -> bool:
        """Return whether a run may write to a log of *log_group*, and have it made where the service makes it."""
        group = self._shelves["loggroup"].get(log_group)
        is_maker = logging_of(job, run).get("enableAutoLogCreation") and "log-maker" not in self._flipped()
        permissions = ["LOG_GROUP_CREATE", "LOG_CONTENT_PUSH"][0 if is_maker else 1 :]
        return all(self._may(run, "write_log", permission, group, "loggroup") for permission in permissions)

    def _may(self, run: JSON, operation: str, permission: str, resource: JSON, kind: str) -> bool:
        principal = run_principal(run)
        need = Need((permission,), resource["compartmentId"], _about(kind, resource))
        if self._has(principal, operation, need):
            return True
        self._deny(principal, operation, need)
        return False

    def push(self, user: str, image: str) -> None:
        """Refuse a push by *user* that is not allowed. A repository that is not there would be made, in the root."""
        principal, name = Principal("api-key", user, ""), repository_of(image)
        found = next((r for r in self._shelves["containerrepo"].all() if r["displayName"] == name), None)
        home = found["compartmentId"] if found else self._identity.id
        permissions = ["REPOSITORY_READ", "REPOSITORY_UPDATE", *([] if found else ["REPOSITORY_CREATE"])]
        for permission in permissions:
            need = Need((permission,), home, {"target.repo.name": name})
            if not self._has(principal, "push", need):
                self._deny(principal, "push", need)
                raise not_found()
        if found is None:
            fields = {"displayName": name, "lifecycleState": "AVAILABLE", "imageCount": 0, "isPublic": False}
            self._shelves["containerrepo"].add(compartmentId=home, **fields)


def logging_of(job: JSON, run: JSON) -> JSON:
    """Return what a run of *job* is to log, and where."""
    return merged(job.get("jobLogConfigurationDetails"), run.get("jobLogConfigurationOverrideDetails"))


def run_principal(run: JSON) -> Principal:
    """Return the resource principal of a run."""
    about = {"resource.type": "datasciencejobrun", "resource.id": run["id"]}
    return Principal("resource", run["id"], "", {**about, "resource.compartment.id": run["compartmentId"]})


def repository_of(image: str) -> str:
    """Return the name of the repository of ``<registry>/<namespace>/<repository>:<tag>@<digest>``."""
    path = image.partition("@")[0].split("/", 2)[-1]
    return path.rpartition(":")[0] or path


def _about(kind: str, resource: JSON) -> Mapping[str, str]:
    """Return what a condition can ask about a resource besides its compartment."""
    if kind == "loggroup":
        return {"target.loggroup.id": resource["id"]}
    if kind == "log":
        return {"target.loggroup.id": resource["logGroupId"]}
    if kind == "vaultsecret":
        return {"target.secret.id": resource["id"]}
    return (
        {"target.repo.name": resource["displayName"]} if kind == "containerrepo" and "displayName" in resource else {}
    )
