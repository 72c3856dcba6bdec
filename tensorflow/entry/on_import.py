"""TensorFlow's server listens on the node's address alone; see common/entry/sitecustomize.py.

TensorFlow binds a task's port on all addresses of the machine, and has no setting for that. Who reaches the port can
read and write files as this user. The call that does it is in TensorFlow's library, so it is changed there: a library
reaches functions of others through a table, and the entry for `bind` gets another function, which is this file's.

And main says at its end where no task has met another: a script that knows nothing of others runs on each as a whole.
"""

from __future__ import annotations

import atexit
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


def end():
    """Say that this script has computed alone: a strategy for several tasks gives TensorFlow's context a server."""
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    servers = [getattr(context, name, True) for name in ("_server_def", "_collective_ops_server_def")]
    if not (_config and os.environ.get("MODE") == "MAIN") or hasattr(sys, "last_type") or any(servers):
        return
    import json  # noqa: PLC0415 - as above

    tasks = sum(len(addresses) for addresses in json.loads(_config).get("cluster", {}).values())
    if tasks > 1:
        script = os.path.basename(sys.argv[0])  # noqa: PTH119 - as above
        sys.stderr.write(f"no task has met another one: {script} has run {tasks} times, each for itself\n")
        sys.stderr.flush()


if MODULE:
    atexit.register(end)
