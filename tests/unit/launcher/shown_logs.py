"""Logs in a directory, what MergedLogs shows of them, and what brings them there."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from oci_cluster.launcher.show.logs import MergedLogs


class Logs:
    """A directory of logs, and what MergedLogs shows of them."""

    def __init__(self, place: Path, *nodes: str, colour: bool = False) -> None:
        self._place = place
        self._out = io.StringIO()
        self.merged = MergedLogs(place, nodes or ("MAIN", "WORKER_1"), self._out, colour=colour)

    def add(self, node: str, text: str | bytes) -> None:
        with (self._place / f"{node}.log").open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def shown(self) -> str:
        """Return what is new since the last call."""
        self.merged.copy_new()
        text = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return text

    def rest(self) -> str:
        self.merged.finish()
        return self.shown()


class Whole:
    """A copy of all that there is, and of what each look brings."""

    def __init__(self, directory: Path, *looks: Callable[[], object]) -> None:
        self.directory = directory
        self.calls: list[str] = []
        self._looks = iter(looks)

    def fetch(self) -> None:
        self.calls.append("fetch")
        next(self._looks, lambda: None)()

    def drain(self, pause: Callable[[], bool], say: Callable[[str], object]) -> None:
        self.calls.append("drain")
        for look in self._looks:
            say("waiting for more")
            if not pause():
                return
            look()

    def close(self) -> None:
        self.calls.append("close")
