"""Main says at its end where no task has met another; see common/entry/sitecustomize.py.

A script that knows nothing of others runs on each node as a whole.
"""

from __future__ import annotations

import atexit
import os
import sys

MODULE = ""
# As the node has it: a script may change its own environment.
_config = os.environ.get("TF_CONFIG")


def end():
    # A strategy for several tasks gives TensorFlow's context a server.
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    servers = [getattr(context, name, True) for name in ("_server_def", "_collective_ops_server_def")]
    if hasattr(sys, "last_type") or any(servers):
        return
    import json  # noqa: PLC0415 - no script has it sooner than it asks for it

    tasks = sum(len(addresses) for addresses in json.loads(_config).get("cluster", {}).values())
    if tasks > 1:
        script = os.path.basename(sys.argv[0])  # noqa: PTH119 - pathlib takes longer to import than all else here
        sys.stderr.write(f"no task has met another one: {script} has run {tasks} times, each for itself\n")
        sys.stderr.flush()


if _config and os.environ.get("MODE") == "MAIN":
    atexit.register(end)
