"""Notes which files of the package a Python enters, in their order: one text for each process, in ``TRACE_DIR``.

Only functions count, and not what a module does when it is imported; and only what runs as ``-m oci_cluster``. Agents
are forked: each has a text of its own.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import FrameType

_PACKAGE = os.sep + "oci_cluster" + os.sep
_seen: dict[int, set[str]] = {}


def _note(frame: FrameType, event: str, _argument: object) -> None:
    code = frame.f_code
    # CO_OPTIMIZED: neither a module nor the body of a class; nor a comprehension in one of these.
    if (
        event != "call"
        or _PACKAGE not in code.co_filename
        or not code.co_flags & 1
        or code.co_name.endswith(("comp>", "expr>"))
    ):
        return
    seen = _seen.setdefault(os.getpid(), set())
    if code.co_filename not in seen:
        seen.add(code.co_filename)
        with Path(os.environ["TRACE_DIR"], str(os.getpid())).open("a", encoding="utf-8") as file:
            file.write(f"{code.co_filename.rpartition(_PACKAGE)[2]} {code.co_name}\n")


if "TRACE_DIR" in os.environ and "oci_cluster" in sys.orig_argv:
    threading.setprofile(_note)
    sys.setprofile(_note)
