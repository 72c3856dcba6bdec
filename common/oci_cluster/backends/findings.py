"""Findings of ``check.sh``, before anything costs: verdicts, and what fixes each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import ClusterError


class Verdict(str, Enum):
    """Verdict on an item. A missing answer is never taken for a good one."""

    FINE = "fine"
    FAILS = "fails"
    UNKNOWN = "unknown"
    ADVICE = "advice"

    def __str__(self) -> str:
        """Return the word itself, in every version of Python."""
        return self.value


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    item: str
    """A word or two, as in the table of docs/check.md: ``bucket``, ``security rules``."""
    verdict: Verdict
    text: str
    """The thing that was seen, with its value; where the verdict is unknown, why it could not be seen."""
    fix: str = ""
    """The statement, command or place in the console that fixes a failure, ready to be copied."""


@dataclass(frozen=True)
class Checked:
    """The launch that a check is about; it has not been made."""

    framework: str
    workers: int
    root: Path
    """The checkout, or the user's project."""
    given: Mapping[str, str]
    """Settings: the environment, then ``config.env``, then the backend's own defaults."""
    plan: Plan | None
    """The launch itself, not placed; None where settings are so wrong that there is none."""


def fine(item: str, text: str) -> Finding:
    """Return that *item* is as it must be."""
    return Finding(item, Verdict.FINE, text)


def fails(item: str, text: str, fix: str) -> Finding:
    """Return that a launch will fail for *item*, and what fixes it."""
    return Finding(item, Verdict.FAILS, text, fix)


def advice(item: str, text: str, fix: str) -> Finding:
    """Return what a launch does without, or what only a person can look up."""
    return Finding(item, Verdict.ADVICE, text, fix)


def unknown(item: str, text: str, fix: str = "") -> Finding:
    """Return that nothing is known of *item*, and why."""
    return Finding(item, Verdict.UNKNOWN, text, fix)


def refused(item: str, error: ClusterError) -> Finding:
    """Return that a launch will fail for *item*, in the words of its *error*."""
    return Finding(item, Verdict.FAILS, error.reason, error.next_step)
