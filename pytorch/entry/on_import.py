"""A rank ends a moment after its script, when torch's threads are at rest; see common/entry/sitecustomize.py.

A thread of gloo runs a collective, says that it is done, and gives back only then what it has kept for it: tensors, and
the state of the thread that asked. Giving back what is Python's takes Python's lock. By that time the script may have
ended, and before 3.14 Python ends each thread that asks for its lock while it shuts down. torch's C++ cannot be ended
so: `terminate called without an active exception`, 134 (pytorch#190489). A barrier at the end does not help: it keeps
the collectives before it until its own end. Nor does `destroy_process_group()` where something still knows the group,
as DistributedDataParallel does: then it does not end these threads.

And it says where no rank has met another one: a script that knows nothing of ranks runs on each node as a whole.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time

# As the node has them: a script may change its own environment.
_node_dir, _rank_pid = os.environ.get("NODE_DIR"), os.environ.get("RANK_PID")
MODULE = "torch.distributed.distributed_c10d"
_is_first, _ranks = os.environ.get("RANK") == "0", os.environ.get("WORLD_SIZE", "1")
_joined, _gave_up = [], []
# For what these threads still give back. One that took longer has not been seen.
REST_S = 0.1


def change(module) -> None:
    """Have *module* note that this rank joins a process group."""
    join = module.init_process_group

    @functools.wraps(join)
    def join_here(*args, **options):
        _joined.append(True)
        return join(*args, **options)

    module.init_process_group = join_here


def noted(leave):
    """Return sys.exit that notes a failure: a refused argument has nothing to do with ranks."""

    @functools.wraps(leave)
    def leave_here(status=None, /):
        if status:
            _gave_up.append(True)
        leave(status)

    return leave_here


def end() -> None:
    """Let torch's threads finish; note for the launcher that the script ended by itself."""
    if "torch" in sys.modules:
        time.sleep(REST_S)
    if _node_dir and _rank_pid == str(os.getpid()) and not hasattr(sys, "last_type"):
        try:
            with open(f"{_node_dir}/script-ended-{_rank_pid}", "w", encoding="utf-8"):  # noqa: PTH123 - pathlib is slow to import
                pass
        except OSError:
            pass  # a full disk: the reason has fewer words
        # torch may be without what has ranks meet, and other libraries may have them meet.
        is_excused = _joined or _gave_up or "horovod" in sys.modules
        if _is_first and _ranks != "1" and MODULE in sys.modules and not is_excused:
            script = os.path.basename(sys.argv[0])  # noqa: PTH119 - as above
            sys.stderr.write(f"no rank has joined a process group: {script} has run {_ranks} times, each for itself\n")
            sys.stderr.flush()


if _is_first:
    sys.exit = noted(sys.exit)
# The first that is registered is the last that runs, after all that the script registers.
atexit.register(end)
