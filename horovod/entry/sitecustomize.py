"""Python imports this as a rank's entry point begins: Horovod's Python listens on the node's address alone.

The ranks of an elastic job listen for messages of Horovod's driver, on all addresses of the machine; there is no
setting for that. What comes there is signed with a key that the rank makes, and is not unpickled else.
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

_MODULE = "horovod.runner.common.util.network"


class _ChangeServices(importlib.abc.MetaPathFinder):
    """Changes the module that has Horovod's services when that is imported."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - Python's signature
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            change(module, _address, _interface)

        spec.loader.exec_module = load_and_change
        return spec


def change(module, address, interface):
    """Have the services of Horovod's *module* listen on *address*, which *interface* has, and tell others that one."""
    find_port = module.find_port

    def find_port_here(server_factory):
        return find_port(lambda where: server_factory((address, where[1])))

    module.find_port = find_port_here
    module.BasicService._get_local_addresses = lambda self: {interface: [(address, self._port)]}  # noqa: SLF001


# As the node has them: a script may change its own environment.
_address, _interface = os.environ.get("NODE_ADDRESS"), os.environ.get("NODE_INTERFACE")
if _address and _interface:
    sys.meta_path.insert(0, _ChangeServices())
