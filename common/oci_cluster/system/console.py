"""What a program says to the person who started it."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

from oci_cluster.errors import ClusterError, ExitCode
from oci_cluster.system.redaction import redact

# Shows a line of progress to whoever started the program.
Say = Callable[[str], None]


def is_terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether colour is wanted on *stream*: a terminal that knows it, and no ``NO_COLOR`` (no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def program() -> str:
    """Return the name that messages begin with: the script's that called, set by ``common/lib.sh``."""
    return os.environ.get("CLUSTER_PROGRAM") or "oci_cluster"


def say_to_stderr(program: str) -> Say:
    """Return a function that shows a line of talk under *program*'s name, without the passwords of URLs."""

    def say(text: str) -> None:
        try:
            sys.stderr.write(f"{program}: {redact(text)}\n")
            sys.stderr.flush()
        except OSError:  # nobody is left who could be told
            discard(sys.stderr)

    return say


def discard(stream: TextIO) -> None:
    """Have what is written to *stream* go nowhere, at Python's end too: its reader has gone, or its disk is full."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


class OutputError(ClusterError):
    """What was printed could not be written, for another reason than a reader that has gone."""

    exit_code = ExitCode.UNAVAILABLE


class CheckedStdout(io.TextIOWrapper):
    """Stdout whose failures can be told from others: any code below `print` may meet a full disk of its own.

    A reader that has gone is still a BrokenPipeError.
    """

    def write(self, text: str, /) -> int:
        """Write *text*.

        Raises:
            OutputError, BrokenPipeError: it cannot be written. What is still held back is given up.
        """
        with self._checked():
            return super().write(text)

    def flush(self) -> None:
        """Write what has been held back; raises what `write` does."""
        with self._checked():
            super().flush()

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            discard(sys.stdout)
            raise OutputError(f"the output cannot be written: {error.strerror}") from error


def check_stdout() -> None:
    """Have what is printed from here on checked."""
    if isinstance(old := sys.stdout, io.TextIOWrapper):
        encoding, errors, by_line = old.encoding, old.errors, old.line_buffering
        sys.stdout = CheckedStdout(old.detach(), encoding=encoding, errors=errors, line_buffering=by_line)


class LastingOutput:
    """Stdout for one that must go on when nobody reads it any more: `| head -1`, a full disk."""

    def __init__(self, on_lost: Callable[[Exception], None]) -> None:
        """Call *on_lost* once, as soon as something could not be written."""
        self._on_lost = on_lost

    def write(self, text: str) -> None:
        """Write *text*, or nothing."""
        try:
            sys.stdout.write(text)
        except (OSError, OutputError) as error:
            self._lose(error)

    def flush(self) -> None:
        """Write what has been held back."""
        try:
            sys.stdout.flush()
        except (OSError, OutputError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        discard(sys.stdout)
        self._on_lost(error)
