"""The end of a node or a cluster, as files and backends tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oci_cluster.errors import ExitCode
from oci_cluster.system.redaction import redact
from oci_cluster.system.text import now, printable


@dataclass(frozen=True)
class Outcome:
    """The end of a node, or of the cluster."""

    exit_code: int
    reason: str
    is_interruption: bool = False
    """Whether this life was interrupted: the node may be started again, and has not failed."""
    is_unasked: bool = False
    """Whether the entry point ended by itself with the code of a stop: nobody has stopped the cluster."""
    is_own_error: bool = False
    """Whether the user's own code has raised the error that is the reason: no other node has brought it on."""


# The names of these fields in files, where they are true.
_UNASKED = "unasked"
_FLAGS = {"interrupted": "is_interruption", _UNASKED: "is_unasked", "own_error": "is_own_error"}


def outcome_of(fields: Mapping[str, Any]) -> Outcome:
    """Return the outcome in a file's *fields*; a wrong ``exit_code`` is no success."""
    code = fields.get("exit_code")
    if type(code) is not int or not 0 <= code <= 255:  # True is an int too
        code = ExitCode.BUG
    told = (fields.get(name) is True for name in _FLAGS)
    return Outcome(code, printable(fields.get("reason"), 1000), *told)


def was_stopped(code: int | None, stop: Mapping[str, Any] | None) -> bool:
    """Return whether somebody stopped a cluster with this exit *code* and file *stop*."""
    return code == ExitCode.STOPPED and not (stop and stop.get(_UNASKED) is True)


def exit_fields(outcome: Outcome, *, time: float, attempt: int = 0, has_left: bool = True) -> dict[str, Any]:
    """Return what a node's exit file says of its *outcome*."""
    return {
        "exit_code": int(outcome.exit_code),
        "reason": redact(outcome.reason),
        "attempt": attempt,
        "time": time,
        "has_left": has_left,
        **{name: True for name, flag in _FLAGS.items() if getattr(outcome, flag)},
    }


def stop_fields(outcome: Outcome) -> dict[str, Any]:
    """Return what main's ``stop`` file says of the cluster's *outcome*."""
    fields = {"reason": redact(outcome.reason), "exit_code": int(outcome.exit_code), "time": now()}
    return {**fields, _UNASKED: True} if outcome.is_unasked else fields
