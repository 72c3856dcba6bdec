"""TensorFlow's server listens on the node's address alone; see common/entry/sitecustomize.py.

TensorFlow binds a task's port on all addresses of the machine, and has no setting for that. Who reaches the port can
read and write files as this user. The call that does it is in TensorFlow's library, so it is changed there: a library
reaches functions of others through a table, and the entry for `bind` gets another function, which is this file's.
"""

from __future__ import annotations

import os
import sys

# As the node has them: a script may change its own environment before it imports TensorFlow.
_config, _address = os.environ.get("TF_CONFIG"), os.environ.get("NODE_ADDRESS")
MODULE = "tensorflow" if _config and _address else ""
_here = os.path.dirname(__file__)  # noqa: PTH120 - pathlib takes longer to import than all else here


def change(module):  # noqa: ARG001 - it is its library that is changed
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
