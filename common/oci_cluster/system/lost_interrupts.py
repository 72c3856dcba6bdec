"""Signals as ``KeyboardInterrupt``, raised again where the exception was lost.

It is lost where no exception gets out: in a destructor, in a callback, such as Python's imports have, or in a file that
the garbage collector closes. So a launch asks for it before it starts anything, and the next signal raises it anew.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

# Signals that have come, and that nobody has ended for yet.
_received: list[int] = []


def _is_on_its_way() -> bool:
    """Return whether the interrupt is being handled: ``except`` and ``finally``."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _raise_it(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
    raise_lost()


def raise_at(*numbers: int) -> None:
    """Have signals of these *numbers* raise ``KeyboardInterrupt``, unless they are ignored, as under ``nohup``.

    One that comes while another one is being handled does nothing: what ends for it is not cut short.
    """
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _raise_it)


def raise_lost() -> None:
    """Raise the interrupt that has come, unless it is on its way."""
    if _received and not _is_on_its_way():
        raise KeyboardInterrupt


def forget() -> None:
    """Forget what has come: what was to end has ended."""
    _received.clear()
