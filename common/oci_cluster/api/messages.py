"""Where the API's lines of progress go: to a callable, the logger ``oci_cluster``, else stderr as those of verbs."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable

from oci_cluster.system.console import Say
from oci_cluster.system.redaction import redact

LOGGER = logging.getLogger("oci_cluster")
# How a line begins that somebody must read who reads nothing else: something failed, or may still cost money.
_URGENT = ("NOT ENDED", "error:")


class Messages:
    """Says lines of progress, and keeps the last; passwords of URLs are hidden."""

    def __init__(self, say: Say | None, on_line: Callable[[str], object] = lambda _: None) -> None:
        """Say them to *say*, without it to the logger, where one is set up, else to stderr; then call *on_line*."""
        self._say, self._on_line = say, on_line
        self.last = ""

    def __call__(self, text: str) -> None:
        """Say one line; where *say* fails, it and all that follow go where they go without it."""
        line = self.last = redact(text)
        if self._say is not None:
            try:
                self._say(line)
            except Exception as error:  # noqa: BLE001 - somebody's function: no cluster must end for it, or stay
                self._say = None
                self(f"error: the function that was given with say= has failed ({error!r}); it is told nothing more")
                self(line)
        elif LOGGER.hasHandlers():
            LOGGER.log(logging.WARNING if line.startswith(_URGENT) else logging.INFO, "%s", line)
        else:
            with contextlib.suppress(OSError, ValueError):  # nobody is left who could be told
                sys.stderr.write(f"oci_cluster: {line}\n")
        self._on_line(line)
