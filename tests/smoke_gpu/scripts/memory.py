"""Its last rank asks for more memory than its GPU has."""

import os

import torch
import torch.distributed as dist
from seen import tell

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")
dist.all_reduce(torch.ones(1, device=device))
_, size = torch.cuda.mem_get_info(device)
if dist.get_rank() == dist.get_world_size() - 1:
    tell("memory", gigabytes=round(size / 1e9, 1))
    # At once, and twice of what there is: a GPU that is filled little by little would fail others that use it.
    torch.empty(2 * size, dtype=torch.uint8, device=device)
dist.barrier()
