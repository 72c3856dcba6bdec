"""A cluster's nodes as a small table for notebooks: HTML, escaped."""

from __future__ import annotations

import contextlib
import html
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from oci_cluster.backends.base import Backend
from oci_cluster.contract.cluster import Cluster
from oci_cluster.errors import ClusterError
from oci_cluster.launcher.show.report import overview
from oci_cluster.system.text import printable

# Between two looks for a live table: while it comes up, and where a look costs nothing; else.
_SOON_S, _LATER_S = 1.0, 10.0
# As many rows as a screen has; of a thousand nodes the rest is counted.
_MOST_ROWS = 50
# The longest word of a cell: a reason may be long, and a table must stay one.
_LONGEST = 300


def _row(tag: str, cells: Sequence[object]) -> str:
    texts = [html.escape(printable(str(cell), _LONGEST)) for cell in cells]
    return "<tr>" + "".join(f'<{tag} style="text-align: left">{text}</{tag}>' for text in texts) + "</tr>"


def table_html(found: Mapping[str, Any], line: str = "") -> str:
    """Return a table of what `status --json` tells, and of the last *line*."""
    nodes = found["nodes"]
    head = f"{found['name']}: {found['framework'] or '?'} on {found['backend']}, {found['state']}"
    if found.get("exit_code"):
        head += f" with {found['exit_code']}"
    running = sum(node["state"] == "IN_PROGRESS" for node in nodes)
    parts = [f"<div><b>{html.escape(printable(head, _LONGEST))}</b></div>"]
    if found.get("exit_code") is None and nodes:
        parts.append(f'<progress value="{running}" max="{len(nodes)}"></progress> {running} of {len(nodes)} nodes run')
    notes = [found.get("reason"), found.get("queue"), line]
    parts += [f"<div>{html.escape(printable(str(note), _LONGEST))}</div>" for note in notes if note]
    rows = [_row("td", _cells(node)) for node in nodes[:_MOST_ROWS]]
    more = f"<div>and {len(nodes) - _MOST_ROWS} more nodes</div>" if len(nodes) > _MOST_ROWS else ""
    table = "<table>" + _row("th", ["node", "address", "state", "exit", "phase"]) + "".join(rows) + "</table>"
    return "".join([*parts, table, more])


def _cells(node: Mapping[str, Any]) -> list[object]:
    code, last = node.get("exit_code"), node.get("phase") or node.get("cause") or node.get("details") or ""
    return [node["node"], node.get("address", ""), node["state"], "" if code is None else code, last]


class LiveTable:
    """A table in a notebook's cell that changes as the cluster does."""

    def __init__(self, name: str, framework: str, backend: str) -> None:
        """Show nothing yet of the cluster *name*."""
        self._lock, self._shown, self._look_at = threading.Lock(), "", 0.0
        self._found = {"name": name, "framework": framework, "backend": backend, "state": "ACCEPTED", "nodes": []}
        self._handle: Any = None

    def begin(self) -> None:
        """Show it in the cell that runs now, where this is a notebook."""
        if is_notebook():
            from IPython.display import HTML, display  # noqa: PLC0415 - only there

            self._html, self._handle = HTML, display(HTML("preparing"), display_id=True)

    def show(self, line: str) -> None:
        """Show it, from any thread, with the last *line*, where it has changed."""
        with self._lock:
            if self._handle is not None and (content := table_html(self._found, line)) != self._shown:
                self._shown = content
                self._handle.update(self._html(content))

    def look(self, backend: Backend, cluster: Cluster, line: str, *, is_soon: bool, is_last: bool) -> None:
        """Show *cluster* as it is, from time to time, from the follower's thread."""
        if self._handle is None or (time.monotonic() < self._look_at and not is_last):
            return
        self._look_at = time.monotonic() + (_SOON_S if is_soon or backend.is_free_to_ask else _LATER_S)
        with contextlib.suppress(ClusterError):  # a table shows what it can
            self._found = overview(backend, cluster, backend.states([cluster])[cluster.launch_id])
            self.show(line)


def is_notebook() -> bool:
    """Return whether a kernel runs this program, as it does notebooks."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    return shell is not None and hasattr(shell, "kernel")
