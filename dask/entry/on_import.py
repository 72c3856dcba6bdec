"""`Client(n_workers=4)` connects to the cluster that runs the script; see common/entry/sitecustomize.py.

Most notebooks begin with that line, which starts workers on one machine. Where an address is configured, Dask itself
refuses it: "Unexpected keyword arguments: ['n_workers']". Dask has no place for a change before that; what it loads for
a client (`distributed.client.preload`) comes after.
"""

from __future__ import annotations

import functools
import os
import sys

MODULE = "distributed.client"


def change(module):
    """Have the class Client of *module* take this cluster where it would start workers."""
    client = module.Client
    connect = client.__init__

    @functools.wraps(connect)
    def connect_here(self, address=None, *args, **kwargs):
        import dask  # noqa: PLC0415 - the script has just imported it
        from distributed import LocalCluster  # noqa: PLC0415 - likewise

        if isinstance(address, LocalCluster):
            say("LocalCluster has started its workers on main alone; write Client() to use this cluster's workers")
        elif address is None and dask.config.get("scheduler-address", None):
            asked = {name: kwargs.pop(name) for name in sorted(kwargs.keys() & local_options(connect))}
            if asked:
                shown = ", ".join(f"{name}={value!r}" for name, value in asked.items())
                number = f"{os.environ.get('WORKER_COUNT', 'its')} worker nodes; launch.sh sets their number and size"
                if adapt := os.environ.get("ADAPT"):
                    number = f"worker nodes: as many as ADAPT={adapt} allows"
                say(f"Client({shown}) uses this cluster's {number}")
        connect(self, address, *args, **kwargs)

    client.__init__ = connect_here


def local_options(connect):
    """Return options of LocalCluster and its workers that *connect* does not take."""
    import inspect  # noqa: PLC0415 - few scripts need it

    from distributed import LocalCluster, Nanny, Worker  # noqa: PLC0415 - as above

    names = set()
    for kind in (LocalCluster, Nanny, Worker):
        names |= inspect.signature(kind.__init__).parameters.keys()
    return names - inspect.signature(connect).parameters.keys()


def say(text):
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
