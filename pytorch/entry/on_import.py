"""A rank ends when torch's threads are at rest; see common/entry/sitecustomize.py.

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
# An exit may cost so much. A thread that was late by more has not been seen.
LONGEST_S = 0.1
# As torch calls each of them, and since when: pytorch#169979.
THREAD, NAMED_SINCE = "pt_gloo_runloop", (2, 11)
TASKS = "/proc/self/task"
# Of futex(2): a wait of a condition variable. A thread that waits for a mutex has another number.
_WAIT_BITSET, _COMMAND = 9, 0x7F


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
    torch = sys.modules.get("torch")
    if torch is None:
        pass
    elif names_threads(torch):
        wait_for_rest()
    else:
        time.sleep(LONGEST_S)
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


def names_threads(torch: object) -> bool:
    """Return whether this *torch* is known to give threads their names."""
    try:
        return tuple(map(int, getattr(torch, "__version__", "").split(".")[:2])) >= NAMED_SINCE
    except ValueError:
        return False


def wait_for_rest() -> None:
    """Return when all threads of gloo wait for work, after LONGEST_S at the latest."""
    deadline = time.monotonic() + LONGEST_S
    looks = 0
    # Twice: while one is looked at, another may hand something over to it.
    while looks < 2 and time.monotonic() < deadline:
        try:
            rested = [is_at_rest(thread) for thread in os.listdir(TASKS) if said(thread, "comm").rstrip() == THREAD]  # noqa: PTH208
        except OSError:  # not Linux
            rested = [False]
        if not rested:
            return
        looks = looks + 1 if all(rested) else 0
        time.sleep(0.001)  # here others take Python's lock


def is_at_rest(thread: str) -> bool:
    """Return whether *thread* waits without limit; for Python's lock it waits 5 ms."""
    # The number of the system call and its arguments; "running" where it is in none.
    call = said(thread, "syscall").split()
    return len(call) > 4 and int(call[2], 16) & _COMMAND == _WAIT_BITSET and int(call[4], 16) == 0


def said(thread: str, name: str) -> str:
    """Return the kernel's text on *thread* under *name*, if any."""
    try:
        with open(f"{TASKS}/{thread}/{name}", encoding="utf-8") as file:  # noqa: PTH123 - as above
            return file.read()
    except OSError:
        return ""


if _is_first:
    sys.exit = noted(sys.exit)
# The first that is registered is the last that runs, after all that the script registers.
atexit.register(end)
