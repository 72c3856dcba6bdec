"""Python imports this as the entry point begins: a module of the framework's is changed when the script imports it.

The framework's own folder `entry` stands behind this one on the path. Its `on_import.py` names the MODULE, or none
where nothing is to be changed, and has the function that does it, `change(module)`. Nothing of the framework is
imported before the script does that, and neither folder stays on the path.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys

import on_import

# Modules of the script's own may have these names. Python imports one `sitecustomize`: where there is another, it has
# been hidden by this one.
del sys.modules["on_import"]
_ours = {os.path.dirname(path) for path in (__file__, on_import.__file__)}  # noqa: PTH120 - pathlib is slow to import
_kept = sys.modules.pop("sitecustomize", None)
sys.path[:] = [entry for entry in sys.path if entry not in _ours]
importlib.invalidate_caches()
try:
    import sitecustomize  # noqa: F401 - it does what it does by being imported
except ModuleNotFoundError as error:
    if error.name != "sitecustomize":
        raise
    if _kept is not None:
        sys.modules["sitecustomize"] = _kept


class _ChangeModule(importlib.abc.MetaPathFinder):
    """Changes the module when it has been loaded."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - Python's signature
        if name != on_import.MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            on_import.change(module)

        spec.loader.exec_module = load_and_change
        return spec


if on_import.MODULE:
    sys.meta_path.insert(0, _ChangeModule())
