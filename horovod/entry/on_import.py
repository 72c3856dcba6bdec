"""Horovod's Python listens on the node's address alone; see common/entry/sitecustomize.py.

The ranks of an elastic job listen for messages of Horovod's driver, on all addresses of the machine; there is no
setting for that. What comes there is signed with a key that the rank makes, and is not unpickled else.
"""

from __future__ import annotations

import os

# As the node has them: a script may change its own environment.
_address, _interface = os.environ.get("NODE_ADDRESS"), os.environ.get("NODE_INTERFACE")
MODULE = "horovod.runner.common.util.network" if _address and _interface else ""


def change(module):
    """Have Horovod's services listen on the node's address, and tell others that one."""
    find_port = module.find_port

    def find_port_here(server_factory):
        return find_port(lambda where: server_factory((_address, where[1])))

    module.find_port = find_port_here
    module.BasicService._get_local_addresses = lambda self: {_interface: [(_address, self._port)]}  # noqa: SLF001
