"""A cluster's nodes as a small table for notebooks: HTML, escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from oci_cluster.system.text import printable

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
