"""How ranks of real PyTorch clusters end: torch's threads are late, or a rank aborts when its script has ended."""

from __future__ import annotations

import pytest
from harness import Project

# Rank 0 ends while a thread of gloo, which has a tensor to give back, wants Python's lock; Python then shuts down for a
# while. Its own code does not let go of the lock, and what lets rank 1 take part takes no call of the system.
LATE_THREAD = """
import mmap, os, sys, time
import torch
import torch.distributed as dist

class Late:
    def __del__(self, sleep=time.sleep):
        sleep(0.3)

dist.init_process_group("gloo")
late, kept, rank = Late(), dist.group.WORLD, dist.get_rank()
with open("said", "r+b") as file:
    said = mmap.mmap(file.fileno(), 2)
if rank == 0:
    dist.all_reduce(torch.ones(1), async_op=True)
    dist.destroy_process_group()
    sys.setswitchinterval(1000)
    said[0] = 1
    while not said[1]:
        pass
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
else:
    while not said[0]:
        time.sleep(0.01)
    dist.all_reduce(torch.ones(1))
    said[1] = 1
    dist.destroy_process_group()
    time.sleep(0.3)
"""


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_a_thread_of_torch_that_is_late_at_the_end_aborts_no_rank(project: Project, launcher: str) -> None:
    project.write("said", "\0\0")
    entry = project.write("train.py", LATE_THREAD)
    launch = project.launch("pytorch", "1", "--entry", entry, "--env", f"LAUNCHER={launcher}")
    assert launch.wait() == 0, launch.err
    launch.assert_nothing_left()


def test_a_rank_that_aborts_by_itself_after_the_last_line_is_a_failure_and_told_so(project: Project) -> None:
    script = """
import os
class Broken:
    def __del__(self, abort=os.abort):
        abort()
kept = Broken() if os.environ["RANK"] == "1" else None
print("the last line")
"""
    launch = project.launch("pytorch", "1", "--entry", project.write("train.py", script))
    assert launch.wait() == 134
    assert "the last line" in launch.log("WORKER_1")
    assert "rank 1 ended with 134 (SIGABRT) after the script's last line" in launch.err
    launch.assert_nothing_left()
