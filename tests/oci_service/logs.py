"""Logging: groups and logs, what job runs print, its search, and ingestion."""

from __future__ import annotations

import datetime
import os
import random
import re
import selectors
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oci_service.faults import Controls
from oci_service.resources import (
    JSON,
    Answer,
    Refusal,
    Request,
    Route,
    Shelf,
    invalid,
    merged,
    moment,
    not_found,
    now,
    page_of,
)

MAX_ROWS = 1000
_STREAM = re.compile(r'"([^"]*)"')
_CONDITION = re.compile(r"""\s*([\w.]+|"[^"]+")\s*(!?=|like)\s*(?:'([^']*)'|"([^"]*)")\s*""", re.IGNORECASE)


@dataclass(frozen=True)
class Line:
    """One line of a log; one that was delivered twice is two of them, with the same *id*."""

    row: int
    id: str
    time: float
    ingested: float
    group: str
    log: str
    source: str
    kind: str
    subject: str
    data: Any


def _field(line: Line, name: str) -> str:
    name = name.strip('"').removeprefix("logContent.")
    if name.startswith("data."):
        return str(line.data.get(name.removeprefix("data."), "")) if isinstance(line.data, dict) else ""
    fields = {
        "source": line.source,
        "type": line.kind,
        "subject": line.subject,
        "id": line.id,
        "oracle.logid": line.log,
    }
    if name not in fields:
        raise invalid(f"searchQuery: field '{name}' is not one that the stand-in knows")
    return fields[name]


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, re.split(r"[*%]", pattern))), text, re.DOTALL) is not None


class Logs:
    """Log groups, logs and their lines. Compartments are checked by *check_compartment*."""

    def __init__(
        self, controls: Controls, lock: threading.RLock, tenancy: str, check_compartment: Callable[[str], None]
    ) -> None:
        self._controls = controls
        self._tenancy = tenancy
        self._check_compartment = check_compartment
        self.groups = Shelf("loggroup", lock)
        self.logs = Shelf("log", lock)
        self._lock = lock
        self._lines: list[Line] = []
        self._requests: dict[str, JSON] = {}
        self._collector = selectors.DefaultSelector()
        self._random = random.Random(0)  # noqa: S311 - no secret; a test's delays come again
        self._wake, self._waker = os.pipe()
        self._collector.register(self._wake, selectors.EVENT_READ)
        self._new: list[tuple[int, Callable[[str], None], threading.Event]] = []
        threading.Thread(target=self._collect, daemon=True).start()

    # --- What job runs print

    def capture(self, stream: int, take: Callable[[str], None]) -> threading.Event:
        """Have *take* called with each line of a pipe, which this closes; return what is set when all are taken."""
        is_over = threading.Event()
        with self._lock:
            self._new.append((stream, take, is_over))
        os.write(self._waker, b"\n")
        return is_over

    def _collect(self) -> None:
        rests: dict[int, bytes] = {}
        while True:
            for key, _ in self._collector.select():
                data = os.read(key.fd, 65536)
                if key.fd == self._wake:
                    with self._lock:
                        new, self._new = self._new, []
                    for stream, *what in new:
                        self._collector.register(stream, selectors.EVENT_READ, what)
                    continue
                take, is_over = key.data
                *lines, rests[key.fd] = (rests.get(key.fd, b"") + data).split(b"\n")
                if not data:
                    self._collector.unregister(key.fd)
                    os.close(key.fd)
                    rest = rests.pop(key.fd)
                    lines += [rest] if rest else []
                for line in lines:
                    take(line.decode(errors="replace"))
                if not data:
                    is_over.set()

    def add(
        self,
        group: str,
        log: str,
        source: str,
        kind: str,
        data: Any,
        *,
        subject: str = "",
        entry: str = "",
        at: float | None = None,
    ) -> None:
        """Add a line, which a search finds after the delay that ingestion takes; by chance it is delivered twice.

        Args:
            group: Its log group's OCID.
            log: Its log's.
            source: What has printed it.
            kind: Its type.
            data: What it says.
            subject: What the source calls itself.
            entry: Its id; without, a new one.
            at: When it was printed, Unix seconds; without, now.
        """
        with self._lock:
            now_s = time.time()
            printed = now_s if at is None else at
            if "log-id" in self._controls.flipped:
                entry = source
            entry = entry or str(uuid.UUID(int=self._random.getrandbits(128)))
            for _ in range(2 if self._random.random() < self._controls.ingest_duplicates else 1):
                found_at = now_s + self._delay_s()
                fields = (entry, printed, found_at, group, log, source, kind, subject, data)
                self._lines.append(Line(len(self._lines), *fields))

    def _delay_s(self) -> float:
        delay = self._controls.ingest_delay_s
        return self._random.uniform(*delay) if isinstance(delay, list) else delay

    # --- Operations

    def routes(self) -> list[Route]:
        """Return the operations."""
        base, group = "/20200531", "/20200531/logGroups/{group}"
        return [
            ("POST", f"{base}/logGroups", "create_log_group", self._create_group),
            ("GET", f"{base}/logGroups", "list_log_groups", self._list_groups),
            ("GET", group, "get_log_group", lambda r: self.groups.answer(self.groups.get(r.names["group"]))),
            ("DELETE", group, "delete_log_group", self._delete_group),
            ("POST", f"{group}/logs", "create_log", self._create_log),
            ("GET", f"{group}/logs", "list_logs", self._list_logs),
            ("GET", f"{group}/logs/{{log}}", "get_log", lambda r: self.logs.answer(self._log_of(r))),
            ("PUT", f"{group}/logs/{{log}}", "update_log", self._update_log),
            ("DELETE", f"{group}/logs/{{log}}", "delete_log", self._delete_log),
            ("GET", f"{base}/workRequests/{{id}}", "get_work_request", self._get_request),
            ("POST", "/20190909/search", "search_logs", self._search),
        ]

    def ingestion_routes(self) -> list[Route]:
        """Return the operations of the host that takes lines."""
        return [("POST", "/20200831/logs/{log}/actions/push", "put_logs", self._put)]

    def _accepted(self, operation: str, resource: JSON) -> Answer:
        request = {
            "id": f"ocid1.logworkrequest.oc1.iad.{resource['id'][-20:]}{len(self._requests)}",
            "operationType": operation,
            "status": "SUCCEEDED",
            "compartmentId": resource["compartmentId"],
            "percentComplete": 100.0,
            "resources": [{"actionType": "CREATED", "identifier": resource["id"], "entityType": "logging"}],
            "timeAccepted": now(),
            "timeFinished": now(),
        }
        self._requests[request["id"]] = request
        return Answer(b"", 202, {"opc-work-request-id": request["id"]})

    def _get_request(self, request: Request) -> Answer:
        if request.names["id"] not in self._requests:
            raise not_found()
        return Answer(self._requests[request.names["id"]])

    def _create_group(self, request: Request) -> Answer:
        body = request.json()
        self._check_compartment(body.get("compartmentId", ""))
        name = body.get("displayName")
        if not name:
            raise Refusal(400, "MissingParameter", "displayName is required")
        if any(group["displayName"] == name for group in self.groups.all()):
            raise Refusal(409, "Conflict", f"A log group named '{name}' already exists")
        return self._accepted("CREATE_LOG_GROUP", self.groups.add(**body, lifecycleState="ACTIVE"))

    def _list_groups(self, request: Request) -> Answer:
        self._check_compartment(request.wanted("compartmentId"))
        return self.groups.list(request, ("compartmentId", "displayName"), self._controls.page_size)

    def _delete_group(self, request: Request) -> Answer:
        group = self.groups.matching(request.names["group"], request)
        if any(log["logGroupId"] == group["id"] for log in self.logs.all()):
            raise Refusal(409, "Conflict", "The log group still has logs")
        self.groups.remove(group["id"])
        return self._accepted("DELETE_LOG_GROUP", group)

    def _create_log(self, request: Request) -> Answer:
        body = request.json()
        if not body.get("displayName") or body.get("logType") not in {"CUSTOM", "SERVICE"}:
            raise Refusal(400, "MissingParameter", "displayName and logType, CUSTOM or SERVICE, are required")
        return self._accepted("CREATE_LOG", self.new_log(request.names["group"], **body))

    def new_log(self, group: str, **fields: Any) -> JSON:
        """Add a log to a group."""
        compartment = self.groups.get(group)["compartmentId"]
        return self.logs.add(
            **{"logType": "CUSTOM", "isEnabled": True, **fields},
            logGroupId=group,
            compartmentId=compartment,
            tenancyId=self._tenancy,
            lifecycleState="ACTIVE",
        )

    def _log_of(self, request: Request) -> JSON:
        log = self.logs.get(request.names["log"])
        if log["logGroupId"] != request.names["group"]:
            raise not_found()
        return log

    def _list_logs(self, request: Request) -> Answer:
        group = self.groups.get(request.names["group"])["id"]
        inside = Request(request.principal, {}, {**request.query, "logGroupId": group}, {}, b"")
        filters = ("logGroupId", "displayName", "lifecycleState", "logType")
        return self.logs.list(inside, filters, self._controls.page_size)

    def _update_log(self, request: Request) -> Answer:
        log = self._log_of(request)
        self.logs.touch(log, **merged(request.json()))
        return self._accepted("UPDATE_LOG", log)

    def _delete_log(self, request: Request) -> Answer:
        log = self._log_of(request)
        self.logs.remove(log["id"])
        return self._accepted("DELETE_LOG", log)

    def _put(self, request: Request) -> Answer:
        log = self.logs.get(request.names["log"])
        body = request.json()
        for batch in body.get("logEntryBatches") or []:
            for entry in batch.get("entries") or []:
                fields = (batch.get("source", ""), batch.get("type", ""), {"message": entry["data"]})
                at = _seconds({"time": entry.get("time") or batch.get("defaultlogentrytime")}, "time")
                about = {"subject": batch.get("subject") or "", "entry": entry.get("id") or "", "at": at}
                self.add(log["logGroupId"], log["id"], *fields, **about)
        return Answer()

    def _search(self, request: Request) -> Answer:
        body = request.json()
        start, end = (_seconds(body, name) for name in ("timeStart", "timeEnd"))
        if end - start > 14 * 86400:
            raise invalid("The time range must not exceed 14 days")
        limit = int(request.query.get("limit", "500"))
        if not 1 <= limit <= MAX_ROWS:
            raise invalid(f"limit must be between 1 and {MAX_ROWS}")
        search, *stages = re.split(r"\|(?=(?:[^']*'[^']*')*[^']*$)", str(body.get("searchQuery", "")))
        word, _, streams = search.strip().partition(" ")
        if word != "search":
            raise invalid("searchQuery must begin with 'search'")
        with self._lock:
            found = [line for line in self._lines if line.ingested <= time.time() and start <= line.time < end]
        if "log-search-or" in self._controls.flipped and any(" or " in stage for stage in stages):
            raise invalid("searchQuery: or is not known")
        chosen = [self._stream(text) for text in _STREAM.findall(streams)]
        found = [line for line in found if (line.group, line.log) in {p for pairs in chosen for p in pairs}]
        for stage in stages:
            found = _apply(stage.strip(), found)
        if self._controls.search_most and len(found) > self._controls.search_most:
            raise invalid("search result is too large, narrow the time range")
        if self._controls.search_shuffled:
            found = sorted(found, key=lambda line: random.Random(line.row).random())  # noqa: S311 - for all pages the same
        rows = [{"id": str(line.row), "line": line} for line in found]
        page, headers = page_of(rows, {**request.query, "limit": str(limit)}, MAX_ROWS)
        results = [{"data": self._row(row["line"])} for row in page]
        return Answer({"results": results, "fields": [], "summary": {"resultCount": len(page)}}, 200, headers)

    def _stream(self, text: str) -> set[tuple[str, str]]:
        compartment, *rest = text.split("/")
        self._check_compartment(compartment)
        group, log = [*rest, "", ""][:2]
        for shelf, name in ((self.groups, group), (self.logs, log)):
            # In another compartment than the one that is named it is not there.
            if name and shelf.get(name)["compartmentId"] != compartment:
                raise not_found()
        return {
            (found["logGroupId"], found["id"])
            for found in self.logs.all()
            if found["compartmentId"] == compartment and group in {"", found["logGroupId"]} and log in {"", found["id"]}
        }

    def _row(self, line: Line) -> JSON:
        def written(seconds: float) -> str:
            return moment(datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc))

        content = {
            "data": line.data,
            "id": line.id,
            "oracle": {
                "compartmentid": self.groups.get(line.group)["compartmentId"],
                "ingestedtime": written(line.ingested),
                "loggroupid": line.group,
                "logid": line.log,
                "tenantid": self._tenancy,
            },
            "source": line.source,
            "specversion": "1.0",
            "subject": line.subject,
            "time": written(line.time),
            "type": line.kind,
        }
        return {"datetime": int(line.time * 1000), "logContent": content}


def _seconds(body: JSON, name: str) -> float:
    try:
        return datetime.datetime.fromisoformat(str(body[name]).replace("Z", "+00:00")).timestamp()
    except (KeyError, ValueError):
        raise invalid(f"{name} must be a time") from None


def _conditions(text: str) -> list[Callable[[Line], bool]]:
    """Return the conditions that a part of a `where` without `or` joins."""
    return [_condition(part) for part in re.split(r"\s+and\s+", text, flags=re.IGNORECASE)]


def _condition(text: str) -> Callable[[Line], bool]:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise invalid(f"searchQuery: the stand-in does not know the condition {text}")
    name, relation, *values = found.groups()
    pattern = values[0] if values[0] is not None else values[1]
    if name == "source" and pattern.startswith("ocid1."):  # as ADS says of the real service: *ocid1. is allowed
        raise invalid("searchQuery: an OCID is no value of source; begin it with *")
    return lambda line: _matches(pattern, _field(line, name)) is (relation != "!=")


def _apply(stage: str, found: list[Line]) -> list[Line]:
    """Return what one stage of a query leaves."""
    word, _, rest = stage.partition(" ")
    if word == "where":
        either = [_conditions(part) for part in re.split(r"\s+or\s+", rest, flags=re.IGNORECASE)]
        return [line for line in found if any(all(is_so(line) for is_so in all_of) for all_of in either)]
    if order := re.fullmatch(r"sort by datetime(?: (asc|desc))?", stage):
        # Lines of the same millisecond keep their order.
        return sorted(found, key=lambda line: line.time, reverse=order[1] == "desc")
    raise invalid(f"searchQuery: the stand-in does not know the stage {stage}")
