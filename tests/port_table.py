"""The table of ports in docs/network.md, for tests that compare it with sockets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "network.md"
PORT = re.compile(r"(?:(\d+)(?:-(\d+))? `(\w+)`|any)(?:, (.*))?")


@dataclass(frozen=True)
class Row:
    """A line of the table: a process of *program*, on nodes of *roles*, has one socket that listens so."""

    framework: str
    roles: tuple[str, ...]
    program: str
    first: int
    last: int
    setting: str
    when: str
    address: str

    def has(self, port: int, given: dict[str, int]) -> bool:
        """Return whether the line is about *port*, where settings are *given*."""
        # Where nodes share a machine, these of Ray are any.
        if self.framework == "ray" and self.setting in {"RAYLET_PORTS", "WORKER_PORTS"}:
            return True
        first = given.get(self.setting, self.first)
        # Where nodes share a machine, TensorFlow's have the ports that follow main's.
        last = first + 255 if self.setting == "TASK_PORT" else max(first, self.last)
        return first <= port <= last


def read_table() -> list[Row]:
    """Return the lines of the table of ports."""
    section = PAGE.read_text().partition("\n## Ports\n")[2].partition("\n## ")[0]
    rows = []
    for line in re.findall(r"^\| (.*) \|$", section, re.MULTILINE)[2:]:
        framework, nodes, program, port, address, *_ = line.split(" | ")
        found = PORT.fullmatch(port)
        assert found, f"'{port}' is no port that can be compared"
        first, last, setting, when = found.groups()
        roles = {"main": ("MAIN",), "workers": ("WORKER",), "all": ("MAIN", "WORKER", "PS")}[nodes]
        span = (int(first), int(last or first)) if first else (1024, 65535)
        rows.append(Row(framework.lower(), roles, program, *span, setting or "", when or "", address))
    return rows
