"""How much of what a node prints is kept: a script that prints without end must not fill a disk."""

from __future__ import annotations


class LogBound:
    """Passes on what a node prints, up to a number of bytes; of the rest only the agent's own lines.

    What is dropped is counted, and that is said in the log: when it begins, and at the end.
    """

    def __init__(self, max_bytes: int) -> None:
        """Pass on *max_bytes*; 0 is no bound."""
        self._max_bytes = max_bytes
        self._passed = 0
        self._dropped = 0
        self._is_open = False

    def take(self, printed: bytes, of_agent: bytes) -> bytes:
        """Return what is kept of *printed*; *of_agent* are the lines in it that are the agent's."""
        if not self._dropped:
            if not self._max_bytes or self._passed + len(printed) <= self._max_bytes:
                self._passed += len(printed)
                self._is_open = not printed.endswith(b"\n") if printed else self._is_open
                return printed
            self._dropped = len(printed) - len(of_agent)
            notice = b"more than %d bytes have been printed (MAX_LOG_BYTES); further output is not kept\n"
            return self._line(notice % self._max_bytes) + of_agent
        self._dropped += len(printed) - len(of_agent)
        return of_agent

    def end(self) -> bytes:
        """Return what is said at the end; nothing where all was kept."""
        return (
            self._line(b"%d bytes of output were not kept (MAX_LOG_BYTES)\n" % self._dropped) if self._dropped else b""
        )

    def _line(self, text: bytes) -> bytes:
        was_open, self._is_open = self._is_open, False
        return b"\n" + text if was_open else text
