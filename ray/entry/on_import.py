"""`ray.init(num_cpus=4)` connects to the cluster that runs the script; see common/entry/sitecustomize.py.

And `runtime_env={"pip": [...]}` is refused where no pip is: Ray copies the environment on each node, which takes
minutes, and finds that out then.

Most tutorials begin with that line, which starts a Ray on one machine. Where an address is configured, Ray itself
refuses it: "When connecting to an existing cluster, num_cpus and num_gpus must not be provided". Others name the
address that a Ray on one machine has; nodes have addresses of their own.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import shlex
import sys

MODULE = "ray"
# ray.init of 2.60 refuses these where it connects to a cluster: the size of a Ray of its own.
_SIZES = ("num_cpus", "num_gpus", "resources", "labels", "object_store_memory")
# Of a Ray on one machine: here nobody listens there.
_HERE = re.compile(r"local|(ray://)?(localhost|127\.0\.0\.1)(:[0-9]+)?")


def change(module):
    """Have ``init`` of *module* take this cluster where it would start a Ray."""
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
    environment = importlib.import_module("ray.runtime_env").RuntimeEnv
    make = environment.__init__

    @functools.wraps(make)
    def make_here(self, *args, **options):
        for installer in ("pip", "uv"):
            if options.get(installer) and not has_pip():
                raise ValueError(why_refused(installer, options[installer]))
        make(self, *args, **options)

    environment.__init__ = make_here


def has_pip():
    """Return whether the environment has a pip, and not what stands in for it."""
    try:
        return hasattr(importlib.import_module("pip"), "__version__")
    except ImportError:
        return False


def why_refused(installer, asked):
    packages = asked.get("packages", []) if isinstance(asked, dict) else asked
    words = [packages] if isinstance(packages, str) else [str(package) for package in packages]
    advice = " ".join(f"--with {shlex.quote(word)}" for word in words)
    return f"runtime_env={{{installer!r}: ...}}: nodes have no pip; packages are added at the launch: {advice}"


def say(text):
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
