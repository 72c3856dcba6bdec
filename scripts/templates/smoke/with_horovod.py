"""What smoke.sh runs on a Horovod cluster: all ranks add up their numbers."""

import importlib
import os

name = os.environ.get("HOROVOD_FRAMEWORK", "pytorch")
hvd = importlib.import_module({"pytorch": "horovod.torch"}.get(name, f"horovod.{name}"))
hvd.init()
ranks = hvd.allgather_object(hvd.rank())
assert hvd.size() > 1, hvd.size()
assert sorted(ranks) == list(range(hvd.size())), ranks
print(f"smoke: all nodes take part: {hvd.size()} of Horovod's ranks", flush=True)
