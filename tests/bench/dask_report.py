"""The table of what was measured of Dask's clusters, and the limits that the numbers have to hold."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_inside import WORKERS

# The design's numbers.
MAX_TYPED_S = 3.0
MAX_TIMES_BARE = 1.5
MAX_END_S = 1.0
MAX_AGENT_CPU_S = 0.25
MAX_AGENT_MB = 45.0


@dataclass
class Samples:
    """All that was measured, round by round, by figure; and what was not, with the reason."""

    values: dict[str, list[float]] = field(default_factory=dict)
    not_measured: dict[str, str] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)
    """What others took of this machine, looked at between measurements; 0 to 1."""

    def add(self, what: str, found: Mapping[str, float]) -> None:
        """Add one round of *what*."""
        for key, value in found.items():
            self.values.setdefault(f"{what}.{key}", []).append(value)

    def median(self, figure: str) -> float | None:
        """Return the median of *figure*, None where it was not measured."""
        return statistics.median(self.values[figure]) if figure in self.values else None


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    label: str
    figure: str
    unit: str = "s"
    to_bare: str = ""
    """The figure of bare Dask that this one is compared with."""
    limit: float | None = None
    limit_text: str = ""


def rows(samples: Samples) -> list[Row]:
    """Return the table's lines, with the limits that follow from this very run."""
    bare, ssh = samples.median("bare.ready"), samples.median("ssh.ready")
    first = "first agent started -> entry point's first line"
    table = [
        Row("launch.sh typed -> entry point's first line", "launch.typed", "s", "bare.ready", MAX_TYPED_S, "design"),
        Row(first, "launch.agents", "s", "bare.ready", bare and MAX_TIMES_BARE * bare, f"{MAX_TIMES_BARE:g} x bare"),
        Row("  the same, against SSHCluster", "launch.agents", "s", "bare.ready", ssh, "SSHCluster"),
        Row("entry point's end -> all gone, launch.sh back", "launch.end", "s", "bare.end", MAX_END_S, "design"),
        Row(f"bare scheduler + {WORKERS} workers -> all there", "bare.ready", "s", "bare.ready"),
        Row("  TERM -> all gone", "bare.end", "s", "bare.end"),
        Row("bare, each worker with a dashboard -> all there", "default.ready", "s", "bare.ready"),
        Row("  TERM -> all gone", "default.end", "s", "bare.end"),
        Row(f"LocalCluster({WORKERS}) -> all there", "local.ready", "s", "bare.ready"),
        Row("  close() -> back", "local.end", "s", "bare.end"),
        Row(f"SSHCluster, {WORKERS} workers -> all there", "ssh.ready", "s", "bare.ready"),
        Row("  close() -> back", "ssh.end", "s", "bare.end"),
        Row("  processes that it leaves running", "ssh.left", ""),
    ]
    for role in ("main", "worker"):
        table.append(Row(f"agent of a {role}: CPU", f"agent.{role}_cpu", "s", "", MAX_AGENT_CPU_S, "design"))
        table.append(Row(f"agent of a {role}: memory", f"agent.{role}_mb", "MB", "", MAX_AGENT_MB, "design"))
    return table


def describe(row: Row, samples: Samples) -> dict[str, Any]:
    """Return *row* with its numbers."""
    values, median = samples.values.get(row.figure, []), samples.median(row.figure)
    bare = samples.median(row.to_bare)
    return {
        "label": row.label,
        "figure": row.figure,
        "unit": row.unit,
        "median": median,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "to_bare": median / bare if median is not None and bare else None,
        "limit": row.limit,
        "limit_from": row.limit_text,
        "holds": None if median is None or row.limit is None else median < row.limit,
        "rounds": values,
    }


def show(report: Mapping[str, Any]) -> None:
    """Print the table."""
    width = max(len(row["label"]) for row in report["rows"])
    print(f"{'':<{width}}  {'median':>8}  {'min - max':<15} {'x bare':>6}  {'limit':<22} holds")
    for row in report["rows"]:
        digits = {"s": 3, "MB": 1, "": 0}[row["unit"]]
        if row["median"] is None:
            print(f"{row['label']:<{width}}  NOT MEASURED")
            continue
        median = f"{row['median']:.{digits}f} {row['unit']:<2}"
        spread = f"{row['min']:.{digits}f} - {row['max']:.{digits}f}"
        ratio = "" if row["to_bare"] is None else f"{row['to_bare']:.2f}"
        limit = "" if row["limit"] is None else f"< {row['limit']:.{digits}f} {row['unit']} ({row['limit_from']})"
        holds = {None: "", True: "yes", False: "NO"}[row["holds"]]
        print(f"{row['label']:<{width}}  {median:>8}  {spread:<15} {ratio:>6}  {limit:<22} {holds}".rstrip())
    for what, reason in report["not_measured"].items():
        print(f"\nNOT MEASURED: {what}: {reason}")
