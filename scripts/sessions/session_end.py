"""How a session's server ends that nobody uses, in the words that status.sh shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def say_idle(limit_s: float) -> None:
    """Say that nobody has used the session for *limit_s* seconds, in the log and to the agent."""
    reason = f"idle for {_span(limit_s)}"
    (Path(os.environ["NODE_DIR"]) / "reason").write_text(f"{reason}\n")
    sys.stdout.write(f"{reason}: the session ends\n")
    sys.stdout.flush()


def _span(seconds: float) -> str:
    """Return a duration as people write it: 1h, 90m, 20s."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"
