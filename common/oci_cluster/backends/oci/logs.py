"""Logs of nodes from OCI Logging, whose lines come late, out of order and twice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
# How late a line may come and still be found. ADS looks back three minutes each time (ads/common/oci_logging.py).
_LATE_S = 180.0
# The same, with a node's clock that is behind. A later line is found by the next `logs.sh`.
_DEEP_S = _LATE_S + MAX_SKEW_S
# Between two looks so far back: each reads again all lines of that time. Chosen.
_DEEP_EVERY_S = 30.0
# How far the looks between them go back. Chosen: what is usually late is seconds.
_NEAR_S = 30.0
# After the end of the last node, and after the last new line, more is waited for so long: ADS waits 90 s.
QUIET_S = 90.0
# The least time between two looks: ADS's (LOG_INTERVAL in ads/jobs). Each search of so many more runs takes as long.
_LOOK_EVERY_S = 3.0
# How long a line waits for earlier ones that come later. Chosen: a person who follows a log waits as long as that.
_HOLD_S = 10.0
# The most lines that wait so: a line is at most some kilobytes, and a log may be larger than memory.
_MAX_HELD = 20_000


class ServiceLogs:
    """Copies logs of a Job's runs from OCI Logging to an empty *directory*.

    With *follow*, :meth:`fetch` is called again and again, so a line may wait for earlier ones.
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
        self.directory = directory
        self._jobs = jobs
        self._job = job
        self._group = group
        self._follow = follow
        self._quiet_s = quiet_s
        self._clock = clock
        self._wall_clock = wall_clock
        self._searching: LogSearch | None = None
        self._has_run = False
        self._nodes: dict[str, _NodeLog] = {}
        # Unix seconds by the service's clock, by run: nothing from before is looked for any more; when the last look
        # began that came to its end.
        self._from: dict[str, float] = {}
        self._looked: dict[str, float] = {}
        self._held = 0
        self._look_at = self._deep_at = clock()
        # By the clock of this machine: when a line came that was not there at first, and when the nodes had ended.
        self._new_at: float | None = None
        self._drained_at: float | None = None
        # By the service's.
        self._ended_at: float | None = None

    def fetch(self) -> None:
        """Copy what is new; after an error, the next call goes on from there."""
        if self._clock() < self._look_at:
            return
        runs = [run for run in self._jobs.runs(self._job) if run.time_accepted]
        for run in runs:
            if run.id not in self._nodes:
                # With node groups, one run is all nodes.
                self._nodes[run.id] = _NodeLog(self.directory, states.node_of(run) or "MAIN")
        ended = [getattr(run, "time_finished", None) for run in runs if not states.is_going(run)]
        self._ended_at = max(map(_unix, ended)) if len(ended) == len(runs) and all(ended) and ended else None
        self._has_run = any(getattr(run, "time_started", None) for run in runs)
        is_deep = self._clock() >= self._deep_at
        # A run is looked at from its beginning on once, and those that were looked at before not from there again.
        known, new = [run for run in runs if run.id in self._from], [run for run in runs if run.id not in self._from]
        for some in _parts(new):
            self._look(some, min(_unix(run.time_accepted) for run in some) - MAX_SKEW_S, is_first=True)
        for some in _parts(known):
            start = min(self._from[run.id] for run in some)
            near = min(self._looked.get(run.id, 0.0) for run in some) - _NEAR_S
            self._look(some, start if is_deep else max(start, near), is_first=False)
        if is_deep:
            self._deep_at = self._clock() + _DEEP_EVERY_S
        self._release(is_all=not self._follow)
        if self._follow:
            self._look_at = self._clock() + _LOOK_EVERY_S * max(1, len([*_parts(runs)]))

    @property
    def _search(self) -> LogSearch:
        if self._searching is None:
            self._searching = LogSearch(self._jobs.service, self._jobs.compartment, self._group, self._wall_clock)
        return self._searching

    def _look(self, runs: Sequence[Any], start: float, *, is_first: bool) -> None:
        # Lines come in the order of time. What is so much older than one that has come is not looked for again: neither
        # by the next look, nor by the one that goes on where this one has failed.
        began = self._clock()
        newest = self._search.now() - _DEEP_S
        done = start if is_first else 0.0
        try:
            for line in self._search.lines([run.id for run in runs], start):
                self._take(line, is_first=is_first)
                done = max(done, min(line.ms / 1000 - _DEEP_S, newest))
                self._nodes[line.run].seen.forget(done)
            done = max(done, newest)
            # The service's clock is known now, if it was not before.
            looked = self._search.now() - (self._clock() - began)
            self._looked |= dict.fromkeys((run.id for run in runs), looked)
        finally:
            for run in runs:
                self._from[run.id] = max(self._from.get(run.id, start), done)
                self._nodes[run.id].seen.forget(self._from[run.id])

    def _take(self, line: Line, *, is_first: bool) -> None:
        if 0 < line.ms < self._from.get(line.run, 0.0) * 1000 or not self._nodes[line.run].seen.is_new(line):
            return
        if not is_first:
            self._new_at = self._clock()
        self._nodes[line.run].hold(line, -math.inf if is_first else self._clock())
        self._held += 1
        if self._held > _MAX_HELD:
            self._release(is_all=True)

    def _release(self, *, is_all: bool) -> None:
        """Write the lines that have waited long enough, and all older ones."""
        before = math.inf if is_all else self._clock() - _HOLD_S
        for node in self._nodes.values():
            self._held -= node.release(before)

    def drain(self, pause: Callable[[], bool], say: Say) -> None:
        """Copy what comes after the end, until nothing new has come for a while."""
        self._drained_at = self._clock()
        left_s = self._left_s()
        if not self._follow:
            if left_s:
                say(f"OCI Logging may have more lines within {left_s:.0f} s: run this again then")
            elif self._ended_at is not None:
                self._say_if_empty(say)
            return
        try:
            if left_s:
                say(f"waiting for late lines of OCI Logging, {left_s:.0f} s if none comes; Ctrl-C ends the waiting")
            while self._left_s() and pause():
                try:
                    self.fetch()
                except ClusterError as error:
                    say(f"{error}; trying again")
            if not self._left_s():
                self._say_if_empty(say)
        finally:
            self._release(is_all=True)

    def _say_if_empty(self, say: Say) -> None:
        """Say why there may be no line, as every node that ran printed some."""
        if self._has_run and not any(node.has_lines for node in self._nodes.values()):
            say(
                "OCI Logging has no line of any node: ask for the policy: allow dynamic-group <the runs'> to use"
                " log-content in compartment <the log group's>; or launch without NODE_LOGS=0"
            )

    def _left_s(self) -> float:
        """Return how long lines are waited for if none comes, in seconds."""
        if self._ended_at is not None:
            since_end_s = self._search.now() - self._ended_at
        elif self._follow and self._drained_at is not None:  # a list lags: who follows knows that all nodes have ended
            since_end_s = self._clock() - self._drained_at
        else:
            return 0.0
        since_new_s = math.inf if self._new_at is None else self._clock() - self._new_at
        return max(0.0, self._quiet_s - min(since_end_s, since_new_s))

    def close(self) -> None:
        """Do nothing: each copying is over when its call is."""


class _NodeLog:
    """The log of one run, written in the order of time."""

    def __init__(self, directory: Path, node: str) -> None:
        self.seen = _Seen()
        self._log = StampedLog(directory, node)
        # When each was printed (milliseconds), the how-many-eth it is, when it came (monotonic seconds), its text.
        self._held: list[tuple[int, int, float, bytes]] = []
        self._count = 0

    @property
    def has_lines(self) -> bool:
        return self._count > 0

    def hold(self, line: Line, at: float) -> None:
        self._count += 1
        self._held.append((line.ms, self._count, at, line.text))

    def release(self, before: float) -> int:
        """Write what has come *before* then, and all older lines; return their number."""
        last = max((ms for ms, _, at, _ in self._held if at <= before), default=None)
        if last is None:
            return 0
        ready = sorted(entry for entry in self._held if entry[0] <= last)
        self._held = [entry for entry in self._held if entry[0] > last]
        self._log.add(b"".join(stamp(ms) + text for ms, _, _, text in ready))
        return len(ready)


class _Seen:
    """The lines of a run, as far back as any is looked for again."""

    # A bucket of keys for each minute: as many as a log has lines in that time.
    _BUCKET_S = 60

    def __init__(self) -> None:
        self._keys: dict[int, set[int]] = {}
        self._first = 0

    def is_new(self, line: Line) -> bool:
        keys = self._keys.setdefault(line.ms // 1000 // self._BUCKET_S, set())
        size = len(keys)
        keys.add(line.key)
        return len(keys) > size

    def forget(self, before: float) -> None:
        first = int(before) // self._BUCKET_S
        if first > self._first:
            self._first = first
            # One whose time is not known may come again at any time.
            self._keys = {bucket: keys for bucket, keys in self._keys.items() if bucket >= first or not bucket}


def _parts(runs: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(runs), RUNS_AT_ONCE):
        yield runs[start : start + RUNS_AT_ONCE]


def _unix(moment: Any) -> float:
    return float(moment.timestamp())


# --- The search ------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """One line of a run: when it was printed (Unix milliseconds), and its text.

    Lines with the same *key* are one line, which was delivered twice.
    """

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
        self._ahead_s: float | None = None

    def now(self) -> float:
        """Return Unix seconds by the service's clock, or the earliest that it may be."""
        return self._wall_clock() - (MAX_SKEW_S if self._ahead_s is None else self._ahead_s)

    def lines(self, runs: Sequence[str], start: float) -> Iterator[Line]:
        """Yield what *runs* have printed since *start*, in the order of time."""
        query = f'search "{self._place_of_group()}" | where {_sources(runs)} | sort by datetime asc'
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
            self._note_clock(response.headers)
            for result in response.data.results or []:
                if (line := _line(result.data, runs)) is not None:
                    yield line
            if not response.has_next_page:
                return
            page = {"page": response.next_page}

    def _note_clock(self, headers: Mapping[str, str]) -> None:
        try:
            theirs = parsedate_to_datetime(headers.get("date") or "").timestamp()
        except (TypeError, ValueError):
            return
        self._ahead_s = max(-MAX_SKEW_S, min(self._wall_clock() - theirs, MAX_SKEW_S))

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


def _sources(runs: Sequence[str]) -> str:
    # An OCID itself is refused; the same source.
    return " or ".join(f"source = '*{run}'" for run in runs)


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
