"""Text for people: what others have written is made fit for a terminal."""

from __future__ import annotations

import re
import shlex
import time
from datetime import datetime

# What a terminal obeys (ECMA-48): colours and their like; other sequences; strings, which set titles and clipboards;
# the other control characters, but tab; those of Unicode that turn a text round. A string without an end is shown.
_CONTROL = re.compile(
    r"\x1b\[(?P<style>[0-9;:]{0,40})m"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x00-\x08\x0a-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
_PLAIN = "\x1b[0m"
_TIMESTAMP = "%Y-%m-%dT%H:%M:%SZ"
# Text that is there and cannot be read.
_CONCEALED = re.compile(r"(^|[;:])0*8(?=[;:]|$)")


def printable(text: object, maximum: int = 500) -> str:
    """Return *text* as a line that cannot control a terminal."""
    return "".join(character for character in str(text)[:maximum] if character.isprintable())


def harmless(line: str, *, colour: bool) -> str:
    """Return a *line* of a log that moves, clears, hides or copies nothing."""
    if line.isprintable():
        return line
    is_coloured = False

    def kept(found: re.Match[str]) -> str:
        nonlocal is_coloured
        if not colour or found["style"] is None or _CONCEALED.search(found["style"]):
            return ""
        is_coloured = True
        return found[0]

    shown = _CONTROL.sub(kept, line)
    return shown + _PLAIN if is_coloured else shown


def first_line(error: BaseException) -> str:
    """Return the first line of what *error* says, or its type's name."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def as_words(text: str) -> str:
    """Return the words of *text*, quoted for a shell."""
    try:
        return shlex.join(shlex.split(text))
    except ValueError:  # a quotation that does not end
        return shlex.quote(text)


def now() -> str:
    """Return the time, UTC, ISO 8601, for people; machines' clocks differ."""
    return timestamp(time.time())


def timestamp(seconds: float) -> str:
    """Return the time so many *seconds* after 1970 began, as :func:`now` tells it."""
    return time.strftime(_TIMESTAMP, time.gmtime(seconds))


def moment(stamp: str) -> int:
    """Return the seconds after 1970 began of a time as :func:`now` tells it."""
    # Not by strptime, whose modules every launcher would hold.
    return int(datetime.fromisoformat(f"{stamp[:-1]}+00:00").timestamp())


def seconds_since(stamp: str) -> int:
    """Return the seconds since *stamp*, which :func:`now` has told, at least 0."""
    return max(0, int(time.time() - moment(stamp)))


def span(seconds: float) -> str:
    """Return *seconds* in their largest whole unit: ``45s``, ``3m``, ``2h``, ``1d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
