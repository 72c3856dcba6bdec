"""Clusters and their nodes as tables for people, and as JSON for programs."""

from __future__ import annotations

import calendar
import time
from collections.abc import Mapping, Sequence
from typing import Any

from oci_cluster.clusters import Cluster
from oci_cluster.errors import ClusterError
from oci_cluster.exchange import READY, STOP, Exchange, heartbeat_file, printable
from oci_cluster.follow import cluster_code, facts_of


def describe_cluster(cluster: Cluster, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that is known of *cluster*: what was launched, what the backend says, what its nodes say.

    Args:
        cluster: What was launched.
        state: The backend's word, ``{"running", "nodes"}``.
    """
    exchange = Exchange(cluster.url, cluster.launch_id)
    addresses = {node["node"]: node["environment"].get("NODE_ADDRESS", "") for node in cluster.plan["nodes"]}
    nodes = [
        {"address": addresses.get(node["node"], ""), **node, "phase": _phase(exchange, node)} for node in state["nodes"]
    ]
    stop = _read(exchange, STOP)
    return {
        "name": cluster.name,
        "framework": cluster.plan["framework"],
        "backend": cluster.plan["backend"],
        "state": "IN_PROGRESS" if state["running"] else "ENDED",
        "exit_code": None if state["running"] else int(cluster_code(state["nodes"], stop or None)),
        "reason": stop.get("reason"),
        "created": cluster.plan["created"],
        "directory": cluster.files,
        "facts": facts_of(_read(exchange, READY)) if state["running"] else {},
        "nodes": nodes,
    }


def status_text(found: Mapping[str, Any]) -> str:
    """Return what ``status.sh`` shows of a cluster that :func:`describe_cluster` has described."""
    what = f"{found['framework']} on {found['backend']}"
    head = f"{found['name']}  {what}, {_ending(found)}, started {_ago(found['created'])} ago"
    lines = [head, *([f"reason: {printable(found['reason'])}"] if found["reason"] else [])]
    lines += [f"{printable(name)}: {printable(value)}" for name, value in found["facts"].items()]
    lines += [f"files: {found['directory']}", ""]
    rows = [[n["node"], n["address"], n["state"], _text(n["exit_code"]), printable(n["phase"])] for n in found["nodes"]]
    return "\n".join([*lines, table(["NODE", "ADDRESS", "STATE", "EXIT", "PHASE"], rows)])


def list_text(clusters: Sequence[Mapping[str, Any]]) -> str:
    """Return what ``list.sh`` shows."""
    rows = [
        [
            c["name"],
            c["framework"],
            c["backend"],
            c["state"],
            _text(c["exit_code"]),
            str(len(c["nodes"])),
            _ago(c["created"]),
        ]
        for c in clusters
    ]
    return table(["NAME", "FRAMEWORK", "BACKEND", "STATE", "EXIT", "NODES", "AGE"], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return *rows* under *head* in columns, two blanks apart."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    )


def _ending(found: Mapping[str, Any]) -> str:
    return str(found["state"]) if found["exit_code"] is None else f"{found['state']} with {found['exit_code']}"


def _phase(exchange: Exchange, node: Mapping[str, Any]) -> str:
    if node["exit_code"] is not None:
        return "ended"
    return str(_read(exchange, heartbeat_file(node["node"])).get("phase", "starting"))


def _read(exchange: Exchange, name: str) -> Mapping[str, Any]:
    """Return the file's fields, none where the work dir cannot tell: a report shows what it can."""
    try:
        return exchange.read(name) or {}
    except ClusterError:
        return {}


def _text(code: int | None) -> str:
    return "" if code is None else str(code)


def _ago(created: str) -> str:
    seconds = max(0, int(time.time() - calendar.timegm(time.strptime(created, "%Y-%m-%dT%H:%M:%SZ"))))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
