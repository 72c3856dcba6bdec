"""Names of this node's GPUs, for people; ``nvidia-smi`` runs beside the node's work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from oci_cluster.system.gpus import PATIENCE_S, VISIBLE, gpus_in, visible
from oci_cluster.system.process import Children, kill_group

# A line has 80 bytes, and a machine of eight GPUs with seven instances each has 64 lines.
_MOST_BYTES = 65536


class OwnGpus:
    """Lists the GPUs of this node for its heartbeats."""

    def __init__(
        self, program: str, environ: Mapping[str, str], output: Path, *, children: Children, clock: Callable[[], float]
    ) -> None:
        self._command, self._environ, self._output = [program, "-L"], environ, output
        self._children, self._clock = children, clock
        self._pid: int | None = None
        self._give_up_at = 0.0
        self._names: list[str] = []

    def told(self) -> dict[str, list[str]]:
        """Return what heartbeats are to tell: nothing until it has answered."""
        if self._pid is None:
            self._pid = self._ask()
            self._give_up_at = self._clock() + PATIENCE_S
        elif self._pid and ((code := self._children.code(self._pid)) is not None or self._clock() > self._give_up_at):
            if code is None:
                kill_group(self._pid)
            self._pid = 0
            self._names = self._listed() if code == 0 else []
        return {"gpus": self._names} if self._names else {}

    def _ask(self) -> int:
        with contextlib.suppress(OSError), self._output.open("wb") as file:  # what cannot be started knows none
            environ, cwd = self._environ, self._output.parent
            return self._children.start(self._command, environ=environ, cwd=cwd, output=file.fileno())
        return 0

    def _listed(self) -> list[str]:
        with self._output.open("rb") as file:
            listing = file.read(_MOST_BYTES).decode(errors="replace")
        return [gpu.name for gpu in visible(gpus_in(listing), self._environ.get(VISIBLE))]
