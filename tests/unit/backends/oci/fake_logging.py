"""OCI Logging as one launcher sees it: lines that come late, in any order, and twice; clocks that a test moves."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Callable
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import oci
from unit.fake_data_science import COMPARTMENT, Response, refusal
from unit.fake_oci import Launcher

from oci_cluster.backends.oci.logs import ServiceLogs
from oci_cluster.contract.cluster import Cluster

GROUP = "ocid1.loggroup.oc1.iad.x"
# Unix seconds of this machine when its monotonic clock tells 0.
EPOCH = 1_700_000_000.0
DAY_S = 86_400.0


def logged_cluster(launcher: Launcher, workers: int = 2) -> Cluster:
    """Return a cluster whose logs are in OCI Logging alone."""
    cluster = launcher.launch(workers=workers, NODE_LOGS="0", LOG_GROUP_OCID=GROUP)
    launcher.science.jobs[cluster.handle].job_log_configuration_details = SimpleNamespace(log_group_id=GROUP)
    return cluster


class Logging:
    """OCI Logging, of which a launcher's service asks the search and the groups."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._ids = itertools.count()
        # When each is found (Unix seconds by the service), when it was printed, its run, its id, its text.
        self._lines: list[tuple[float, float, str, Any, str]] = []
        # What the last search found, of which it asks page after page.
        self._found: list[tuple[float, float, str, Any, str]] = []
        self.searches: list[dict[str, Any]] = []
        self.asked_groups: list[str] = []
        self.compartment = COMPARTMENT
        self.may_look_at_groups = True
        self.most = 0
        self.fails: dict[int, Exception] = {}
        # Called before each search.
        self.on_search: Callable[[], object] = lambda: None
        # How far the service's clock is ahead of this machine's.
        self.ahead_s = 0.0
        self.tells_time = True
        launcher.service.clients[oci.loggingsearch.LogSearchClient] = self
        launcher.service.clients[oci.logging.LoggingManagementClient] = self

    def now(self) -> float:
        """Return Unix seconds by the service's clock."""
        return EPOCH + self._launcher.clock() + self.ahead_s

    def begin(self, ago_s: float = 0.0) -> None:
        """Have the service have accepted all runs so long ago."""
        for run in self._launcher.science.runs.values():
            run.time_accepted = _moment(self.now() - ago_s)
            run.time_started, run.time_finished = run.time_accepted, None

    def end(self, ago_s: float = 0.0) -> None:
        """Have all runs have ended so long ago."""
        for run in self._launcher.science.runs.values():
            run.lifecycle_state, run.time_finished = "SUCCEEDED", _moment(self.now() - ago_s)

    def run_of(self, node: str) -> str:
        runs = self._launcher.science.runs.values()
        return next(str(run.id) for run in runs if run.freeform_tags.get("oci-cluster-node") == node)

    def print(self, run: str, text: str, *, ago_s: float = 0.0, late_s: float = 0.0, entry: Any = None) -> Any:
        """Have *run* have printed a line so long ago, which is found so long after it was printed; return its id."""
        entry = f"id{next(self._ids)}" if entry is None else entry
        at = self.now() - ago_s
        self._lines.append((at + late_s, at, run, entry, text))
        return entry

    def copy(self, cluster: Cluster, directory: Path, **options: Any) -> ServiceLogs:
        """Return what copies the logs of *cluster*, as a launcher that follows them."""
        clock = self._launcher.clock
        where = (self._launcher.backend._jobs, cluster.handle, GROUP, directory)
        return ServiceLogs(*where, **{"follow": True, "clock": clock, "wall_clock": lambda: EPOCH + clock(), **options})

    # --- The clients' methods ------------------------------------------------------------------------------

    def get_log_group(self, group: str) -> Response:
        self.asked_groups.append(group)
        if not self.may_look_at_groups:
            raise refusal(404, "NotAuthorizedOrNotFound")
        return Response(SimpleNamespace(compartment_id=self.compartment))

    def search_logs(self, details: dict[str, Any], *, limit: int, page: str = "0") -> Response:
        assert limit == 1000
        self.on_search()
        self.searches.append({**details, "page": page})
        if failure := self.fails.pop(len(self.searches), None):
            raise failure
        place, sources = re.fullmatch(
            r'search "([^"]+)" \| where (.*) \| sort by datetime asc', details["searchQuery"]
        ).groups()  # type: ignore[union-attr]
        runs = re.findall(r"source = '\*([^']+)'", sources)
        assert sources == " or ".join(f"source = '*{run}'" for run in runs)
        start, end = (_seconds(details[name]) for name in ("timeStart", "timeEnd"))
        assert 0 < end - start <= 14 * DAY_S
        is_there = place == f"{self.compartment}/{GROUP}"
        if page == "0":
            now = self.now()
            lines = (line for line in self._lines if line[0] <= now and start <= line[1] < end and line[2] in runs)
            self._found = sorted(lines, key=lambda line: line[1])
        found = self._found
        if self.most and len(found) > self.most:
            raise refusal(400, "InvalidParameter", "search result is too large")
        at = int(page)
        rows = [_row(*line[1:]) for line in found[at : at + limit]] if is_there else []
        more = str(at + limit) if at + limit < len(found) else None
        response = Response(SimpleNamespace(results=rows), more)
        if self.tells_time:
            response.headers["date"] = format_datetime(_moment(self.now()), usegmt=True)
        return response


def _row(at: float, run: str, entry: Any, text: str) -> SimpleNamespace:
    content: dict[str, Any] = {"source": run, "data": {"message": text}, "subject": "s"}
    if entry:
        content["id"] = entry
    return SimpleNamespace(data={"datetime": int(at * 1000), "logContent": content})


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def follow(copy: ServiceLogs, clock: Any, seconds: float, then: Callable[[], object] = lambda: None) -> None:
    """Have *copy* be asked every 2 s for so long."""
    until = clock() + seconds
    while clock() < until:
        copy.fetch()
        then()
        clock.sleep(2.0)


def drained(copy: Any, clock: Any, most_s: float = 10_000.0) -> tuple[list[str], float]:
    """Return what is said while *copy* waits for the rest, and how long that takes."""
    said: list[str] = []
    started = clock()

    def pause() -> bool:
        clock.sleep(2.0)
        return bool(clock() - started < most_s)

    copy.drain(pause, said.append)
    return said, clock() - started


def lines(place: Path, node: str = "MAIN") -> list[str]:
    path = place / f"{node}.log"
    return path.read_text().splitlines() if path.exists() else []
