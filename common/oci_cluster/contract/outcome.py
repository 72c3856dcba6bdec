"""How a node, or a cluster, ended: what files and backends tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oci_cluster.errors import ExitCode
from oci_cluster.system.redaction import redact
from oci_cluster.system.text import now, printable


@dataclass(frozen=True)
class Outcome:
    """How a node, or the cluster, ended."""

    exit_code: int
    reason: str
    is_interruption: bool = False
    """Whether this life was interrupted: the node may be started again, and has not failed."""


def outcome_of(fields: Mapping[str, Any]) -> Outcome:
    """Return the outcome that a file's *fields* tell; an ``exit_code`` that is none never is a success."""
    code = fields.get("exit_code")
    if type(code) is not int or not 0 <= code <= 255:  # True is an int too
        code = ExitCode.BUG
    return Outcome(code, printable(fields.get("reason"), 1000), fields.get("interrupted") is True)


def exit_fields(outcome: Outcome, *, time: float, attempt: int = 0, has_left: bool = True) -> dict[str, Any]:
    """Return what a node's exit file says of its *outcome*."""
    fields = {
        "exit_code": int(outcome.exit_code),
        "reason": redact(outcome.reason),
        "attempt": attempt,
        "time": time,
        "has_left": has_left,
    }
    return {**fields, "interrupted": True} if outcome.is_interruption else fields


def stop_fields(outcome: Outcome) -> dict[str, Any]:
    """Return what main's ``stop`` file says of the cluster's *outcome*."""
    return {"reason": redact(outcome.reason), "exit_code": int(outcome.exit_code), "time": now()}
