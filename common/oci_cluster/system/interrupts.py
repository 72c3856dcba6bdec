"""A Ctrl-C that comes where no exception gets out: in a destructor, or in a callback, such as Python's imports have."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# Until it is raised again: by then what has lost it has returned; where not, it is lost, and raised, once more.
_AGAIN_S = 0.001


def keep_interrupts() -> None:
    """Have a ``KeyboardInterrupt`` that Python would print, and forget, raised again where it can be caught."""
    usual = sys.unraisablehook

    def note(lost: UnraisableHookArgs, /) -> None:
        if lost.exc_type is KeyboardInterrupt:
            signal.signal(signal.SIGALRM, again)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            usual(lost)

    def again(_number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code is note.__code__:  # it has not returned yet
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            raise KeyboardInterrupt

    sys.unraisablehook = note
