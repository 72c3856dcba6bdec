"""A cluster's nodes as a small table for notebooks: plain HTML, in which all that comes from outside is escaped."""

from __future__ import annotations

import html
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from oci_cluster.system.text import printable

# As many rows as a screen has; of a thousand nodes the rest is counted.
_MOST_ROWS = 50
# The longest word of a cell: a reason may be long, and a table must stay one.
_LONGEST = 300


def _cell(tag: str, text: object) -> str:
    return f'<{tag} style="text-align: left">{html.escape(printable(str(text), _LONGEST))}</{tag}>'


def _row(tag: str, cells: Sequence[object]) -> str:
    return "<tr>" + "".join(_cell(tag, cell) for cell in cells) + "</tr>"


def table_html(found: Mapping[str, Any], line: str = "") -> str:
    """Return a table of what `status --json` tells of a cluster, or of a part of that.

    Args:
        found: At least its ``name``, ``framework``, ``backend``, ``state`` and ``nodes``.
        line: What was said of it last.
    """
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
    rows = [
        _row("td", [node["node"], node.get("address", ""), node["state"], _text(node.get("exit_code")), _last(node)])
        for node in nodes[:_MOST_ROWS]
    ]
    more = f"<div>and {len(nodes) - _MOST_ROWS} more nodes</div>" if len(nodes) > _MOST_ROWS else ""
    table = "<table>" + _row("th", ["node", "address", "state", "exit", "phase"]) + "".join(rows) + "</table>"
    return "".join([*parts, table, more])


def _last(node: Mapping[str, Any]) -> str:
    return str(node.get("phase") or node.get("cause") or node.get("details") or "")


def _text(code: object) -> str:
    return "" if code is None else str(code)


class LiveTable:
    """A table in the cell of a notebook that changes as the cluster does; elsewhere nothing."""

    def __init__(self) -> None:
        """Show it in the cell that runs now, where this is a notebook."""
        self._lock = threading.Lock()
        self._handle: Any = None
        self._shown = ""
        if is_notebook():
            from IPython.display import HTML, display  # noqa: PLC0415 - only there

            self._html = HTML
            self._handle = display(HTML("preparing"), display_id=True)

    @property
    def is_there(self) -> bool:
        """Whether anybody sees it."""
        return self._handle is not None

    def show(self, content: str) -> None:
        """Show *content*, HTML, from any thread; what is shown already is not sent again."""
        with self._lock:
            if self._handle is None or content == self._shown:
                return
            self._shown = content
            self._handle.update(self._html(content))


def is_notebook() -> bool:
    """Return whether a kernel runs this program, as it does notebooks: a console of IPython is none."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    return shell is not None and hasattr(shell, "kernel")
