"""A signal that ends what is done, raised as ``KeyboardInterrupt``: where it comes, and again where that was lost.

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

# Until it is looked whether it was lost: by then what has lost it has returned, and nobody has noticed yet.
_LOOK_S = 0.02


class _Interrupt:
    """The one that was raised in this process, if there was one."""

    def __init__(self) -> None:
        self.was_raised = False

    def raise_it(self, number: int, _frame: FrameType | None) -> None:
        """Raise it; further signals of that *number* are ignored, which would cut short what ends the first."""
        signal.signal(number, signal.SIG_IGN)
        self.look_later()
        raise KeyboardInterrupt

    def look_later(self) -> None:
        self.was_raised = True
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S)

    def _look(self, _number: int, frame: FrameType | None) -> None:
        self.look_later()
        is_in_hook = frame is not None and frame.f_code is _hook_code
        if not (is_in_hook or _is_on_its_way()):
            raise KeyboardInterrupt


_interrupt = _Interrupt()


def _is_on_its_way() -> bool:
    """Return whether what ends for it is just being done: ``except`` and ``finally`` on its way out."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _hook(lost: UnraisableHookArgs, /) -> None:
    if lost.exc_type is KeyboardInterrupt:
        _interrupt.look_later()
    else:
        sys.__unraisablehook__(lost)


_hook_code = _hook.__code__


def keep_interrupts() -> None:
    """Have a ``KeyboardInterrupt`` that Python would print, and forget, raised again where it can be caught."""
    sys.unraisablehook = _hook


def raise_at(*numbers: int) -> None:
    """Have signals of these *numbers* raise ``KeyboardInterrupt``, unless they are ignored, as under ``nohup``."""
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt.raise_it)


def raise_lost() -> None:
    """Raise the one that was raised before, and was lost: to be called before what it could not end any more.

    Raises:
        KeyboardInterrupt: there was one.
    """
    if _interrupt.was_raised and not _is_on_its_way():
        is_heard()
        raise KeyboardInterrupt


def is_heard() -> None:
    """Look no more: what was to end has ended."""
    _interrupt.was_raised = False
    signal.setitimer(signal.ITIMER_REAL, 0)
