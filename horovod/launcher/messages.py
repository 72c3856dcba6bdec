"""What the launcher says: lines for the node's log, and why it ends."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


class NodeError(Exception):
    """Why this node ends, with the exit code that says so (common/README.md has the table)."""

    file = "reason"

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class RankError(NodeError):
    """A rank has failed: the agent tells the error that it has *printed*, with its *node*, and then this."""

    file = "entry-point-ended"

    def __init__(self, exit_code: int, text: str, node: str, printed: bytes) -> None:
        super().__init__(exit_code, text)
        self.node = node
        self.printed = printed


def log(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} horovod: {text}\n")
    sys.stderr.flush()


def report(error: NodeError) -> None:
    """Say why the node ends, to the log and to its agent: what `die` of start-lib.sh does."""
    log(f"error: {error}")
    if node_dir := os.environ.get("NODE_DIR"):
        Path(node_dir, error.file).write_text(f"{error}\n")
        if isinstance(error, RankError):
            Path(node_dir, "entry-point-printed").write_bytes(error.node.encode() + b"\n" + error.printed)


def describe(code: int) -> str:
    """Return *code* in words: `exit code 7`, or `killed by SIGKILL` for 137."""
    try:
        return f"killed by {signal.Signals(code - 128).name}" if code > 128 else f"exit code {code}"
    except ValueError:
        return f"exit code {code}"
