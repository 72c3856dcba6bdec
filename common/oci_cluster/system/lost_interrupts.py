"""Signals as ``KeyboardInterrupt``, raised again where the exception was lost.

It is lost where no exception gets out: in a destructor, in a callback, such as Python's imports have, or in a file that
the garbage collector closes. The first two tell ``sys.unraisablehook``; the last tells nobody (``iobase_finalize`` of
CPython drops whatever ``closed`` raises), and a launch went on that somebody had ended.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# Until it is looked whether it was lost: by then what has lost it has returned, and a verb has not ended. And until the
# next look, where something just ends for it.
_FIRST_LOOK_S, _NEXT_LOOK_S = 0.001, 0.02


class _Interrupt:
    """The one that was raised in this process, if there was one."""

    def __init__(self) -> None:
        self.was_raised = False

    def raise_it(self, number: int, _frame: FrameType | None) -> None:
        """Raise it; further signals of that *number* do nothing."""
        signal.signal(number, lambda *_: None)  # and not ignored: what is started meanwhile would ignore it, too
        self.look_later(_FIRST_LOOK_S)
        raise KeyboardInterrupt

    def look_later(self, seconds: float) -> None:
        self.was_raised = True
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _look(self, _number: int, frame: FrameType | None) -> None:
        if not self.was_raised:
            return  # it came as the looking ended: a timer that is set now would kill this process at its end
        is_lost = not (_is_in_hook(frame) or _is_on_its_way())
        self.look_later(_FIRST_LOOK_S if is_lost else _NEXT_LOOK_S)
        if is_lost:
            raise KeyboardInterrupt


_interrupt = _Interrupt()


def _is_on_its_way() -> bool:
    """Return whether the interrupt is being handled: ``except`` and ``finally``."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _is_in_hook(frame: FrameType | None) -> bool:
    """Return whether the loss is just being noted: another one would be lost there."""
    while frame is not None and frame.f_code is not _hook_code:
        frame = frame.f_back
    return frame is not None


def _hook(lost: UnraisableHookArgs, /) -> None:
    if lost.exc_type is KeyboardInterrupt:
        _interrupt.look_later(_FIRST_LOOK_S)
    else:
        sys.__unraisablehook__(lost)


_hook_code = _hook.__code__


def keep_interrupts() -> None:
    """Raise a ``KeyboardInterrupt`` that Python would print and forget once more."""
    sys.unraisablehook = _hook


def raise_at(*numbers: int) -> None:
    """Have signals of these *numbers* raise ``KeyboardInterrupt``, unless they are ignored, as under ``nohup``."""
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt.raise_it)


def raise_lost() -> None:
    """Raise the interrupt that was lost, before what it could not end any more."""
    if _interrupt.was_raised and not _is_on_its_way():
        stop_looking()
        raise KeyboardInterrupt


def stop_looking() -> None:
    """Look no more: what was to end has ended."""
    _interrupt.was_raised = False
    signal.setitimer(signal.ITIMER_REAL, 0)
