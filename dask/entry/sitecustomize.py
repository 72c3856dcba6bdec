"""Python imports this as the entry point begins: `Client(n_workers=4)` connects to the cluster that runs the script.

Most notebooks begin with that line, which starts workers on one machine. Where an address is configured, Dask itself
refuses it: "Unexpected keyword arguments: ['n_workers']". Dask has no place for a change before that; what it loads for
a client (`distributed.client.preload`) comes after. Nothing of Dask is imported before the script does that.
"""

from __future__ import annotations

import functools
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


class _ChangeClient(importlib.abc.MetaPathFinder):
    """Changes the module ``distributed.client`` when that is imported."""

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - Python's signature
        if name != "distributed.client":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            change(module.Client)

        spec.loader.exec_module = load_and_change
        return spec


def change(client):
    """Have the class *client* take this cluster where it is asked for workers of its own."""
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
                nodes = os.environ.get("WORKER_COUNT", "its")
                say(f"Client({shown}) uses this cluster's {nodes} worker nodes; launch.sh sets their number and size")
        connect(self, address, *args, **kwargs)

    client.__init__ = connect_here


def local_options(connect):
    """Return the names of what LocalCluster and its workers can be told, but for what *connect* itself takes."""
    import inspect  # noqa: PLC0415 - few scripts need it

    from distributed import LocalCluster, Nanny, Worker  # noqa: PLC0415 - as above

    names = set()
    for kind in (LocalCluster, Nanny, Worker):
        names |= inspect.signature(kind.__init__).parameters.keys()
    return names - inspect.signature(connect).parameters.keys()


def say(text):
    """Print a line for the log."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


sys.meta_path.insert(0, _ChangeClient())
