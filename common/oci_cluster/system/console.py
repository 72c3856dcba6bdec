"""Messages and results for the person who started a program."""

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
    """Return whether *stream* gets colour: a terminal, and no ``NO_COLOR`` (no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def program() -> str:
    """Return the name that messages begin with: the script's that called, set by ``common/lib.sh``."""
    return os.environ.get("CLUSTER_PROGRAM") or "oci_cluster"


def say_to_stderr(program: str) -> Say:
    """Return a function that shows a line under *program*'s name, redacted."""

    def say(text: str) -> None:
        try:
            sys.stderr.write(f"{program}: {redact(text)}\n")
            sys.stderr.flush()
        except OSError:  # nobody is left who could be told
            discard(sys.stderr)

    return say


def discard(stream: TextIO) -> None:
    """Send what is written to *stream* nowhere, also at Python's end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


class OutputError(ClusterError):
    """An output that cannot be written, and not because its reader has gone."""

    exit_code = ExitCode.UNAVAILABLE


class CheckedStdout(io.TextIOWrapper):
    """Stdout with errors of its own: code below `print` may meet another full disk."""

    def write(self, text: str, /) -> int:
        """Write *text*."""
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
    """Stdout that goes on when nobody reads it: `| head -1`, a full disk."""

    def __init__(self, on_lost: Callable[[Exception], None]) -> None:
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
