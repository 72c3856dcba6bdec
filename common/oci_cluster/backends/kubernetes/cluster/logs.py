"""Copies of the nodes' logs, from their pods to files of this machine."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2 as httpx

from oci_cluster.backends.archive import copy_logs
from oci_cluster.backends.kubernetes.api.service import KubernetesError, Service
from oci_cluster.backends.kubernetes.cluster import states
from oci_cluster.backends.kubernetes.cluster.cache import told_of
from oci_cluster.contract.cluster import Cluster
from oci_cluster.contract.files.log_times import StampedLog, times_file
from oci_cluster.contract.parsers import parse_time
from oci_cluster.system.console import Say
from oci_cluster.system.text import span

Object = dict[str, Any]
OnReport = Callable[[str, bytes], None]

# How many logs are followed at once, main's first: each is a connection. What others print comes when they have ended.
_AT_ONCE = 64
# How long a reader may take for what is left of the log of a node that has ended.
_REST_S = 10.0
# How long one that is closed may take for its last line; what it waits for is closed, too.
_CLOSE_S = 2.0
# Before a log is asked for again whose line was cut.
_AGAIN_S = 1.0
# How long a refusal counts as one that passes: an API server that has just started does not know anybody's rights yet.
_REFUSED_S = 30.0
# A connection that has brought nothing for so long may be a dead one: it is made anew, from the last line on.
_SILENCE_S = 60.0
# The agent prints its first line within this; a kubelet looks less often than that whether a log is too long.
_FIRST_S = 5.0
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) ")
_LONGEST = 1 << 20


class _Reader:
    """Copies the log of one pod with its times: each line once."""

    def __init__(self, service: Service, pod: Object, log: StampedLog, on_report: OnReport, *, follow: bool) -> None:
        self._service = service
        self._path = service.path("pods", states.name_of(pod), sub="log")
        self._log = log
        self._on_report = on_report
        self._follow = follow
        self._began = states.started_of(pod)
        self._last = b""
        self._at_last: list[bytes] = []
        self._is_closed = False
        self._answer: httpx.Response | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: Why nothing comes any more, where that is no end.
        self.error: KubernetesError | None = None

    def start(self) -> _Reader:
        self._thread.start()
        return self

    def wait(self, seconds: float) -> bool:
        """Returns whether all has come within *seconds*."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def close(self) -> None:
        self._is_closed = True
        if self._answer is not None:
            self._answer.close()

    def _run(self) -> None:
        refused_at = 0.0
        while not self._is_closed:
            try:
                self._copy()
                break
            except KubernetesError as error:  # a 400: it has not started, and whoever follows looks again
                if error.code == 404:  # its pod is gone
                    break
                is_refused = error.code in {401, 403}
                refused_at = (refused_at or time.monotonic()) if is_refused else 0.0
                if is_refused and time.monotonic() - refused_at > _REFUSED_S:
                    self.error = error
                    break
            time.sleep(_AGAIN_S)
        self._log.flush()

    def _copy(self) -> None:
        since = {"sinceTime": self._last.decode()} if self._last else {}
        rest, has_begun = b"", False
        with self._service.stream(
            self._path, container="node", follow=self._follow, timestamps=True, read_s=_SILENCE_S, **since
        ) as answer:
            self._answer = answer
            for data in answer.iter_bytes():
                *lines, rest = (rest + data).split(b"\n")
                pieces = [line + b"\n" for line in lines]
                if len(rest) > _LONGEST:
                    pieces, rest = [*pieces, rest], b""
                for piece in pieces:
                    if not (has_begun or _STAMP.match(piece)):
                        return  # a kubelet's own words: the container's files have just been removed
                    has_begun = True
                    self._add(piece)
                if self._is_closed:
                    return
        if rest and (has_begun or _STAMP.match(rest)):
            self._add(rest)

    def _add(self, line: bytes) -> None:
        if stamp := _STAMP.match(line):
            moment = stamp[1]
            if not self._last and (gone := _beginning_gone(self._began, moment.decode(), line)):
                self._log.add(stamp[0] + gone.encode())
            if moment < self._last or (moment == self._last and line in self._at_last):
                return  # it came before the line was cut
            if moment != self._last:
                self._last, self._at_last = moment, []
            self._at_last.append(line)
        if found := told_of(line):
            self._on_report(*found)
            return
        self._log.add(line)


def _beginning_gone(began: str, moment: str, line: bytes) -> str:
    """Returns a note where lines before *line*, the first of a log, are gone.

    An agent's first words tell its node; where they come seconds after its container *began*, they are not gone.
    """
    try:
        late_s = parse_time(f"{moment[:19]}Z") - parse_time(began)  # without the nanoseconds
    except ValueError:  # nobody has told when it began
        return ""
    if late_s < _FIRST_S or b" agent: " in line:
        return ""
    return (
        f"... the beginning of this log, {span(late_s)}, is gone: Kubernetes keeps the last lines, by default 10 MiB; "
        "with WORK_DIR=oci://... all are kept (docs/kubernetes.md)\n"
    )


class PodLogs:
    """The nodes' logs, copied from their pods to a directory of this machine."""

    def __init__(
        self,
        service: Service,
        pods: Callable[[], Mapping[str, Object]],
        cluster: Cluster,
        directory: Path,
        *,
        follow: bool,
        on_report: OnReport = lambda _name, _body: None,
    ) -> None:
        self.directory = directory
        self._service = service
        self._pods = pods
        self._cluster = cluster
        self._follow = follow
        self._on_report = on_report
        self._readers: dict[str, _Reader] = {}
        self._logs: dict[str, StampedLog] = {}
        self._done: set[str] = set()

    def fetch(self) -> None:
        """Has what is new copied: all of it, once a node has ended."""
        pods = self._pods()
        if not pods and not self._readers:
            copy_logs(self._cluster, self.directory)
        for node, pod in pods.items():
            has_ended = bool(states.termination_of(pod))
            if not (has_ended or states.is_running(pod)):
                continue
            uid = states.uid_of(pod)
            is_room = not self._follow or len(self._readers) - len(self._done) < _AT_ONCE
            if uid not in self._readers and (has_ended or is_room):
                log = self._log_of(node)
                on_report = self._on_report if node == "MAIN" else (lambda _name, _body: None)
                reader = _Reader(self._service, pod, log, on_report, follow=self._follow and not has_ended)
                self._readers[uid] = reader.start()
            if uid in self._readers and uid not in self._done and (has_ended or not self._follow):
                reader = self._readers[uid]
                if reader.wait(_REST_S):
                    self._done.add(uid)
                if reader.error is not None:
                    raise reader.error

    def _log_of(self, node: str) -> StampedLog:
        """Returns the file of *node*; without following it begins anew."""
        if node not in self._logs:
            if not self._follow:
                for path in (self.directory / f"{node}.log", times_file(self.directory, node)):
                    path.unlink(missing_ok=True)
            self._logs[node] = StampedLog(self.directory, node)
        return self._logs[node]

    def drain(self, pause: Callable[[], bool], say: Say) -> None:  # noqa: ARG002 - seconds, and nothing to say
        """Waits for what readers still bring of pods that Kubernetes has taken away."""
        for uid, reader in self._readers.items():
            if uid not in self._done and reader.wait(_REST_S if self._follow else 0):
                self._done.add(uid)

    def close(self) -> None:
        """Ends the copying.

        Without following, nothing is written afterwards: the directory may be removed.
        """
        for reader in self._readers.values():
            reader.close()
        if not self._follow:  # who follows may wait for a silent pod
            deadline = time.monotonic() + _CLOSE_S
            for reader in self._readers.values():
                reader.wait(max(0.0, deadline - time.monotonic()))
