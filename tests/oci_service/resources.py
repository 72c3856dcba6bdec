"""What requests, answers and the resources that they are about have in common, whatever the service."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import secrets
import string
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REGION = "us-ashburn-1"
JSON = dict[str, Any]


@dataclass(frozen=True)
class Principal:
    """Who has signed a request: a user, or a job run (``kind`` is ``api-key``, ``session`` or ``resource``)."""

    kind: str
    id: str
    key: str
    claims: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Of a resource: what the matching rule of a dynamic group can ask about it."""


@dataclass
class Request:
    """A request whose signature has been checked; *names* are the parts of its path that vary."""

    principal: Principal
    headers: Mapping[str, str]
    query: Mapping[str, str]
    names: Mapping[str, str]
    body: bytes

    def json(self) -> JSON:
        """Return the body, which is to be a JSON object."""
        try:
            value = json.loads(self.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Refusal(400, "CannotParseRequest", "The request body is not a JSON object")
        return value

    def wanted(self, name: str) -> str:
        """Return a query parameter that must be there."""
        if not self.query.get(name):
            raise Refusal(400, "MissingParameter", f"Missing query parameter {name}")
        return self.query[name]


@dataclass
class Answer:
    """What goes back; *content* that is not bytes is sent as JSON, and *length* stands in for a body on HEAD.

    With *torn_s* the body stops in its middle, and the connection is closed after so many seconds.
    """

    content: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    torn_s: float | None = None

    def encoded(self) -> bytes:
        """Return the body's bytes."""
        if isinstance(self.content, bytes):
            return self.content
        self.headers.setdefault("content-type", "application/json")
        return json.dumps(self.content).encode()


class Refusal(Exception):  # noqa: N818 - an answer, not a failure of this program
    """An answer that is an error, by its status, code and message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.answer = Answer({"code": code, "message": message}, status)


Operation = Callable[[Request], Answer]
# Method, path with {names}, the operation's name in the SDK, and what does it.
Route = tuple[str, str, str, Operation]


def not_found() -> Refusal:
    """Return the answer for what is not there and for what is not permitted: the caller cannot tell which."""
    return Refusal(404, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")


def invalid(message: str) -> Refusal:
    """Return the answer for a parameter that cannot be."""
    return Refusal(400, "InvalidParameter", message)


def now() -> str:
    """Return the time as OCI writes it."""
    return moment(datetime.datetime.now(datetime.timezone.utc))


def moment(time: datetime.datetime) -> str:
    """Return a time as OCI writes it."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ocid(kind: str, region: str = "iad") -> str:
    """Return a new OCID."""
    unique = "".join(secrets.choice(string.ascii_lowercase + "234567") for _ in range(56))
    return f"ocid1.{kind}.oc1.{region}.aaaa{unique}"


def merged(*parts: Mapping[str, Any] | None) -> JSON:
    """Return the parts as one, later ones winning; what is null does not count."""
    return {key: value for part in parts for key, value in (part or {}).items() if value is not None}


def page_of(items: Sequence[JSON], query: Mapping[str, str], maximum: int, key: str = "id") -> tuple[list[JSON], JSON]:
    """Return the asked page of *items*, of *maximum* at most, and the headers that lead to the next one.

    A page begins after the last item of the one before, so that what is added meanwhile makes nothing come twice.
    """
    try:
        limit = min(int(query.get("limit", maximum)), maximum)
        after = base64.urlsafe_b64decode(query["page"]).decode() if "page" in query else None
        start = 0 if after is None else [item[key] for item in items].index(after) + 1
    except (ValueError, binascii.Error):
        raise invalid("limit or page is not valid") from None
    if limit < 1:
        raise invalid("limit must be at least 1")
    found = list(items[start : start + limit])
    is_more = len(items) > start + limit
    return found, {"opc-next-page": base64.urlsafe_b64encode(found[-1][key].encode()).decode()} if is_more else {}


class Shelf:
    """Resources of one kind by OCID, with their etags. Who changes one holds *lock*."""

    def __init__(self, kind: str, lock: threading.RLock) -> None:
        self.kind = kind
        self.lock = lock
        self._resources: dict[str, JSON] = {}
        self._etags: dict[str, str] = {}

    def add(self, **fields: Any) -> JSON:
        """Add a resource; null fields are left out."""
        with self.lock:
            resource = {"id": ocid(self.kind), "timeCreated": now(), **merged(fields)}
            self._resources[resource["id"]] = resource
            self.touch(resource)
            return resource

    def touch(self, resource: JSON, **changes: Any) -> None:
        """Change a resource, which gives it another etag."""
        with self.lock:
            resource.update(changes)
            self._etags[resource["id"]] = secrets.token_hex(16)

    def get(self, resource_id: str) -> JSON:
        """Return the resource of that OCID."""
        if resource_id not in self._resources:
            raise not_found()
        return self._resources[resource_id]

    def matching(self, resource_id: str, request: Request) -> JSON:
        """Return the resource of that OCID, whose etag must be the one that the request wants, if it wants one."""
        resource = self.get(resource_id)
        if request.headers.get("if-match", "*") not in {"*", self._etags[resource_id]}:
            raise Refusal(412, "NoEtagMatch", "The resource has been changed: if-match is not its etag")
        return resource

    def answer(self, resource: JSON, status: int = 200, **headers: str) -> Answer:
        """Return a resource as an answer."""
        with self.lock:
            return Answer(dict(resource), status, {"etag": self._etags[resource["id"]], **headers})

    def all(self) -> list[JSON]:
        """Return every resource."""
        with self.lock:
            return list(self._resources.values())

    def remove(self, resource_id: str) -> None:
        """Forget a resource."""
        with self.lock:
            del self._resources[resource_id]

    def list(
        self,
        request: Request,
        filters: Iterable[str],
        maximum: int,
        only: Iterable[str] = (),
        told: Callable[[JSON], JSON | None] = lambda item: item,
    ) -> Answer:
        """Return the page that a list operation asks for.

        *only* names the fields that a summary has; *told* returns what is told of a resource, if it is told of.
        """
        query = request.query
        by = query.get("sortBy", "timeCreated")
        order = query.get("sortOrder", "ASC" if by == "displayName" else "DESC")
        if order not in {"ASC", "DESC"}:
            raise invalid(f"sortOrder must be ASC or DESC, not '{order}'")
        wanted = {name: query[name] for name in filters if name in query}
        with self.lock:
            every = [told(dict(item)) for item in self._resources.values()]
        found = [item for item in every if item is not None]
        found = [item for item in found if all(item.get(name) == value for name, value in wanted.items())]
        found.sort(key=lambda item: (str(item.get(by, "")), item["id"]), reverse=order == "DESC")
        page, headers = page_of(found, query, maximum)
        fields = set(only)
        return Answer([{k: v for k, v in item.items() if not fields or k in fields} for item in page], 200, headers)


def getter(shelf: Shelf) -> Operation:
    """Return the operation that answers with a resource of *shelf*."""
    return lambda request: shelf.answer(shelf.get(request.names["id"]))


def remover(shelf: Shelf) -> Operation:
    """Return the operation that takes a resource from *shelf*."""

    def answer(request: Request) -> Answer:
        shelf.remove(shelf.matching(request.names["id"], request)["id"])
        return Answer(status=204)

    return answer
