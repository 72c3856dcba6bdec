"""Holds a Python up where a test wants to send it a signal: `GATE=<module>` when it imports that module.

`GATE=<module>/dropped` holds it up in a destructor meanwhile: no exception gets out of one. `GATE=site` holds it up
before there is any handler. `GATE_FILE` is made when it is held up. It goes on when a handler of its own was called.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_module, _, _where = os.environ.get("GATE", "").partition("/")


def _wait() -> None:
    """Wait until a handler for TERM has been called; it ends this by its exception, or ends the process."""
    came: list[int] = []
    usual: Any = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: object) -> None:
        came.append(number)
        signal.signal(signal.SIGTERM, usual)
        usual(number, frame)

    if callable(usual):
        signal.signal(signal.SIGTERM, handle)
    with Path(os.environ["GATE_FILE"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    deadline = time.monotonic() + 240
    while not came and time.monotonic() < deadline:
        time.sleep(0.01)


class _Dropped:
    def __del__(self) -> None:
        _wait()


class _Gate:
    """Is asked for each module that is imported, finds none, and holds up at one of them, once."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == _module:
            sys.meta_path.remove(self)  # type: ignore[arg-type]
            if _where:
                _Dropped()
            else:
                _wait()


if _module == "site":
    _wait()
elif _module:
    sys.meta_path.insert(0, _Gate())  # type: ignore[arg-type]
