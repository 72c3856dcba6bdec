"""What OCI Logging has of some Job Runs: its search, asked so that nothing is left out and nothing is held."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from oci_cluster.backends.oci.refusals import ServiceError

if TYPE_CHECKING:
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


class Line(NamedTuple):
    """One line that a run has printed."""

    run: str
    ms: int
    """When it was printed, Unix milliseconds."""
    key: int
    """What tells it from others: two that have the same one are one line, which was delivered twice."""
    text: bytes


class LogSearch:
    """Searches the lines of runs in one log group."""

    def __init__(
        self, service: Service, compartment: str, group: str, wall_clock: Callable[[], float] = time.time
    ) -> None:
        """Search in the log *group*, an OCID; in *compartment*, where it cannot be asked for that itself."""
        self._service = service
        self._compartment = compartment
        self._group = group
        self._wall_clock = wall_clock
        self._place = ""
        self._ahead_s: float | None = None

    def now(self) -> float:
        """Return Unix seconds by the service's clock; until it answers, this machine's less what that may be ahead."""
        return self._wall_clock() - (MAX_SKEW_S if self._ahead_s is None else self._ahead_s)

    def lines(self, runs: Sequence[str], start: float) -> Iterator[Line]:
        """Yield what *runs*, OCIDs, have printed since *start* (Unix seconds), as far as the service has it by now.

        They come in the order of time, each as often as it was delivered. No more than one answer of them is held.

        Raises:
            ServiceError: the service refused, or did not answer.
        """
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
        """Return the group as a search names it: after its compartment, which need not be the Job's."""
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
    """Return what a search has *found* as a line of one of *runs*; None where it is nobody's."""
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
