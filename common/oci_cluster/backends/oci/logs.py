"""Logs of nodes from OCI Logging, whose lines come late and twice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oci_cluster.backends.base import LogsInPlace
from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.jobs import states
from oci_cluster.contract.files.log_times import StampedLog, stamp
from oci_cluster.errors import ClusterError
from oci_cluster.system.console import Say

if TYPE_CHECKING:
    from oci_cluster.backends.oci.jobs.client import Jobs
    from oci_cluster.backends.oci.service import Service

# The longest time between the first and the last moment of one search, as ADS has it (ads/common/oci_logging.py).
_LONGEST_MS = 14 * 24 * 3600 * 1000
# The most lines of one answer; the same source.
_LINES = 1000
# What the service says of a search that finds too much; the same source. Half the time is searched then, in ADS too.
_TOO_LARGE = "too large"
# Runs of one search. Chosen: 40 OCIDs are 5 KB of query; how long one may be is not documented.
RUNS_AT_ONCE = 40
# How far two clocks are apart at most: a request whose date is further from the service's own is refused.
MAX_SKEW_S = 300.0
# How much older than the newest line of its run a line may be and still be found: each look reads these once more. ADS
# looks back three minutes each time (ads/common/oci_logging.py). A later line is found by the next `logs.sh`.
_LATE_S = 180.0
# After the end of the last node, and after the last new line, more is waited for so long: ADS waits 90 s.
QUIET_S = 90.0
# The least time between two looks: ADS's (LOG_INTERVAL in ads/jobs). Each search of so many more runs takes as long.
_LOOK_EVERY_S = 3.0


class ServiceLogs(LogsInPlace):
    """Copies logs of a Job's runs from OCI Logging to an empty *directory*, each line as soon as it is found.

    With *follow*, :meth:`fetch` is called again and again.
    """

    def __init__(
        self,
        jobs: Jobs,
        job: str,
        group: str,
        directory: Path,
        *,
        follow: bool = False,
        quiet_s: float = QUIET_S,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(directory)
        self._jobs = jobs
        self._job = job
        self._group = group
        self._follow = follow
        self._quiet_s = quiet_s
        self._clock = clock
        self._wall_clock = wall_clock
        self._searching: LogSearch | None = None
        self._has_run = self._has_lines = False
        self._logs: dict[str, StampedLog] = {}
        # By run, Unix seconds: nothing from before is looked for. By line of a run: when it was printed.
        self._from: dict[str, float] = {}
        self._seen: dict[tuple[str, int], int] = {}
        self._look_at = clock()
        # By the monotonic clock: when a line came that was not there at first, and when the nodes had ended.
        self._new_at = -math.inf
        self._drained_at = -math.inf
        # Unix seconds, where all runs had ended before the first look.
        self._ended_at: float | None = None

    def fetch(self) -> None:
        """Copy what is new; after an error, the next call goes on from there."""
        if self._clock() < self._look_at:
            return
        runs = [run for run in self._jobs.runs(self._job) if run.time_accepted]
        is_first = not self._logs
        for run in runs:
            if run.id not in self._logs:
                # With node groups, one run is all nodes.
                self._logs[run.id] = StampedLog(self.directory, states.node_of(run) or "MAIN")
                self._from[run.id] = _unix(run.time_accepted) - MAX_SKEW_S
        if is_first:
            ended = [getattr(run, "time_finished", None) for run in runs if not states.is_going(run)]
            self._ended_at = max(map(_unix, ended)) if len(ended) == len(runs) and all(ended) and ended else None
        self._has_run = any(getattr(run, "time_started", None) for run in runs)
        parts = [runs[first : first + RUNS_AT_ONCE] for first in range(0, len(runs), RUNS_AT_ONCE)]
        for part in parts:
            if self._look([run.id for run in part]):
                self._has_lines = True
                self._new_at = -math.inf if is_first else self._clock()
        oldest_ms = min(self._from.values(), default=0.0) * 1000
        # A line whose time is not known may come again at any time.
        self._seen = {key: ms for key, ms in self._seen.items() if ms >= oldest_ms or not ms}
        if self._follow:
            self._look_at = self._clock() + _LOOK_EVERY_S * max(1, len(parts))

    @property
    def _search(self) -> LogSearch:
        if self._searching is None:
            self._searching = LogSearch(self._jobs.service, self._jobs.compartment, self._group, self._wall_clock)
        return self._searching

    def _look(self, runs: Sequence[str]) -> bool:
        """Copy what *runs* have printed; return whether anything was new."""
        newest, has_new = dict.fromkeys(runs, 0.0), False
        for line in self._search.lines(runs, min(self._from[run] for run in runs)):
            # What one run is looked for from its beginning is old for the others, and forgotten.
            key = (line.run, line.key)
            if key in self._seen or 0 < line.ms < self._from[line.run] * 1000:
                continue
            self._seen[key] = line.ms
            self._logs[line.run].add(stamp(line.ms) + line.text)
            newest[line.run], has_new = max(newest[line.run], line.ms / 1000), True
        # Not before: where a look has failed, the next one finds the rest.
        for run in runs:
            self._from[run] = max(self._from[run], newest[run] - _LATE_S)
        return has_new

    def drain(self, pause: Callable[[], bool], say: Say) -> None:
        """Copy what comes after the end, until nothing new has come for a while."""
        self._drained_at = self._clock()
        if self._follow and (left_s := self._left_s()):
            say(f"waiting for late lines of OCI Logging, {left_s:.0f} s if none comes; Ctrl-C ends the waiting")
            while self._left_s() and pause():
                try:
                    self.fetch()
                except ClusterError as error:
                    say(f"{error}; trying again")
        if self._has_run and not self._has_lines and (self._follow or self._ended_at) and not self._left_s():
            # Every node that ran has printed some.
            say(
                "OCI Logging has no line of any node: ask for the policy: allow dynamic-group <the runs'> to use"
                " log-content in compartment <the log group's>; or launch without NODE_LOGS=0"
            )

    def _left_s(self) -> float:
        """Return how long lines are waited for if none comes, in seconds."""
        now = self._clock()
        since_end_s = now - self._drained_at if self._ended_at is None else self._wall_clock() - self._ended_at
        return max(0.0, self._quiet_s - min(since_end_s, now - self._new_at))


def _unix(moment: Any) -> float:
    return float(moment.timestamp())


# --- The search ------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """One line of a run."""

    run: str
    ms: int
    """When it was printed, Unix milliseconds."""
    key: int
    """What tells it from others: two that have the same one are one line, which was delivered twice."""
    text: bytes


class LogSearch:
    """Searches lines of runs in a log *group*; *compartment* is a fallback."""

    def __init__(
        self, service: Service, compartment: str, group: str, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._service = service
        self._compartment = compartment
        self._group = group
        self._wall_clock = wall_clock
        self._place = ""

    def lines(self, runs: Sequence[str], start: float) -> Iterator[Line]:
        """Yield what *runs* have printed since *start*, in the order of time."""
        sources = " or ".join(f"source = '*{run}'" for run in runs)  # an OCID itself is refused; the same source
        query = f'search "{self._place_of_group()}" | where {sources} | sort by datetime asc'
        # The clocks of this machine and of nodes may be behind the service's.
        end_ms = int((self._wall_clock() + 2 * MAX_SKEW_S) * 1000)
        windows = [*reversed([*_windows(int(start * 1000), end_ms)])]
        while windows:
            begin, end = windows.pop()
            try:
                yield from self._lines(query, runs, begin, end)
            except ServiceError as error:
                if error.status != 400 or _TOO_LARGE not in str(error) or end - begin < 2:
                    raise
                middle = (begin + end) // 2
                windows += [(middle, end), (begin, middle)]

    def _lines(self, query: str, runs: Sequence[str], begin: int, end: int) -> Iterator[Line]:
        details = {"searchQuery": query, "timeStart": _written(begin), "timeEnd": _written(end)}
        page: dict[str, Any] = {}
        while True:
            search = self._service.log_search.search_logs
            response = self._service.call("search the logs", search, details, limit=_LINES, **page)
            for result in response.data.results or []:
                if (line := _line(result.data, runs)) is not None:
                    yield line
            if not response.has_next_page:
                return
            page = {"page": response.next_page}

    def _place_of_group(self) -> str:
        if not self._place:
            compartment = self._compartment
            try:
                get = self._service.log_groups.get_log_group
                compartment = self._service.call("look at the log group", get, self._group).data.compartment_id
            except ServiceError as error:
                if error.status != 404:  # who may search need not be allowed to look at the group
                    raise
            self._place = f"{compartment}/{self._group}"
        return self._place


def _windows(start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        yield start, min(start + _LONGEST_MS, end)
        start += _LONGEST_MS


def _written(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms // 1000, timezone.utc):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


def _line(found: Mapping[str, Any], runs: Sequence[str]) -> Line | None:
    """Return a result of a search as a line of *runs*, or None."""
    content = found.get("logContent") or {}
    source = str(content.get("source") or "")
    run = runs[0] if len(runs) == 1 else next((run for run in runs if source.endswith(run)), None)
    if run is None:
        return None
    ms = found.get("datetime")
    ms = ms if isinstance(ms, int) else _ms_of(content.get("time"))
    data = content.get("data")
    message = data.get("message") if isinstance(data, dict) else data
    text = f"{'' if message is None else message}\n".encode(errors="replace")
    # Without an id, which the service's model of a log entry requires, the same text at the same moment is one line.
    return Line(run, ms, hash(content.get("id") or (ms, str(content.get("subject")), text)), text)


def _ms_of(text: object) -> int:
    try:
        return int(datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() * 1000)
    except ValueError:
        return 0
