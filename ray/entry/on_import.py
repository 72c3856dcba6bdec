"""`ray.init(num_cpus=4)` connects to the cluster that runs the script; see common/entry/sitecustomize.py.

Most tutorials begin with that line, which starts a Ray on one machine. Where an address is configured, Ray itself
refuses it: "When connecting to an existing cluster, num_cpus and num_gpus must not be provided". Others name the
address that a Ray on one machine has; nodes have addresses of their own.
"""

from __future__ import annotations

import functools
import os
import re
import sys

MODULE = "ray"
# What ray.init of 2.60 refuses where it connects to a cluster: the size of a Ray of its own.
_SIZES = ("num_cpus", "num_gpus", "resources", "labels", "object_store_memory")
# Of a Ray on one machine: here nobody listens there.
_HERE = re.compile(r"local|(ray://)?(localhost|127\.0\.0\.1)(:[0-9]+)?")


def change(module):
    """Have ``init`` of *module* take this cluster where it is asked for a Ray of its own."""
    init = module.init

    @functools.wraps(init)
    def init_here(address=None, **options):
        has_cluster = bool(os.environ.get("RAY_ADDRESS"))
        if has_cluster and isinstance(address, str) and _HERE.fullmatch(address):
            say(f"ray.init({address!r}) uses this cluster, whose address is another: leave it out")
            address = None
        if has_cluster and address in (None, "auto"):
            asked = {name: options.pop(name) for name in _SIZES if options.get(name) is not None}
            if asked:
                shown = ", ".join(f"{name}={value!r}" for name, value in asked.items())
                workers = os.environ.get("WORKER_COUNT", "its")
                say(f"ray.init({shown}) uses this cluster, of {workers} workers; launch.sh sets their number and size")
        return init(address, **options)

    module.init = init_here


def say(text):
    """Print a line for the log."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
