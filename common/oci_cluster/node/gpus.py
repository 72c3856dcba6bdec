"""Which GPUs this node sees, for people: ``nvidia-smi`` is asked beside the node's work, which does not wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from oci_cluster.system.gpus import PATIENCE_S, VISIBLE, gpus_in, visible
from oci_cluster.system.process import Children, kill_group

# A line has 80 bytes, and a machine of eight GPUs with seven instances each has 64 lines.
_MOST_BYTES = 65536


class OwnGpus:
    """What a node tells of its GPUs."""

    def __init__(
        self,
        program: str,
        environ: Mapping[str, str],
        output: Path,
        *,
        children: Children,
        clock: Callable[[], float],
    ) -> None:
        """Begin to ask.

        Args:
            program: ``nvidia-smi``.
            environ: The node's.
            output: The file to which it prints.
            children: Starts it.
            clock: Monotonic seconds.
        """
        self._visible = environ.get(VISIBLE)
        self._output, self._children, self._clock = output, children, clock
        self._give_up_at = clock() + PATIENCE_S
        self._pid, self._names = 0, list[str]()
        with output.open("wb") as file, contextlib.suppress(OSError):  # what cannot be started knows none
            self._pid = children.start([program, "-L"], environ=environ, cwd=output.parent, output=file.fileno())

    def told(self) -> dict[str, list[str]]:
        """Return what heartbeats are to tell: nothing until it has answered."""
        if self._pid and ((code := self._children.code(self._pid)) is not None or self._clock() > self._give_up_at):
            if code is None:
                kill_group(self._pid)
            self._pid = 0
            if code == 0:
                with self._output.open("rb") as file:
                    listing = file.read(_MOST_BYTES).decode(errors="replace")
                self._names = [gpu.name for gpu in visible(gpus_in(listing), self._visible)]
        return {"gpus": self._names} if self._names else {}
