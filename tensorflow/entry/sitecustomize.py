"""Python imports this as the entry point begins: TensorFlow's server listens on the node's address alone.

TensorFlow binds a task's port on all addresses of the machine, and has no setting for that. Who reaches the port can
read and write files as this user. The call that does it is in TensorFlow's library, so it is changed there: a library
reaches functions of others through a table, and the entry for `bind` gets another function, which is this file's.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys

# Python imports one `sitecustomize`: where there is another, it has been hidden by this one.
_here = os.path.dirname(__file__)  # noqa: PTH120 - pathlib takes longer to import than all else here
_kept = sys.modules.pop("sitecustomize", None)
sys.path[:] = [entry for entry in sys.path if entry != _here]
importlib.invalidate_caches()
try:
    import sitecustomize  # noqa: F401 - it does what it does by being imported
except ModuleNotFoundError as error:
    if error.name != "sitecustomize":
        raise
    if _kept is not None:
        sys.modules["sitecustomize"] = _kept


class _ChangeTensorFlow(importlib.abc.MetaPathFinder):
    """Changes TensorFlow's library when that has been loaded."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - Python's signature
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            change()

        spec.loader.exec_module = load_and_change
        return spec


def change():
    """Have the library bind this node's port on its address; say so where that cannot be done."""
    sys.path.insert(0, _here)
    try:
        import json  # noqa: PLC0415 - as below

        import one_address  # noqa: PLC0415 - few scripts of a node import TensorFlow
    finally:
        sys.path.remove(_here)
    task = json.loads(_config)
    own = task["cluster"][task["task"]["type"]][task["task"]["index"]]
    port = int(own.rpartition(":")[2])
    try:
        one_address.narrow(_address, port)
    except (OSError, ValueError) as problem:
        sys.stderr.write(f"TensorFlow listens on port {port} of all addresses of this machine: {problem}\n")
        sys.stderr.flush()


# As the node has them: a script may change its own environment before it imports TensorFlow.
_config, _address = os.environ.get("TF_CONFIG"), os.environ.get("NODE_ADDRESS")
if _config and _address:
    sys.meta_path.insert(0, _ChangeTensorFlow())
