"""The environment of this process, while it takes part in a cluster."""

from __future__ import annotations

import contextlib
import os
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path

# Of a framework's client/: tells the framework's modules, where they are imported already, that variables have changed.
_IMPORTED = "imported.py"


@contextlib.contextmanager
def in_environment(variables: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Have *variables* in the environment; *folder* is the framework's ``client/``."""
    before = {name: os.environ.get(name) for name in variables}
    _change(variables, folder)
    try:
        yield
    finally:
        _change(before, folder)


def _change(variables: Mapping[str, str | None], folder: Path) -> None:
    for name, text in variables.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text
    if (folder / _IMPORTED).is_file():
        runpy.run_path(str(folder / _IMPORTED))
