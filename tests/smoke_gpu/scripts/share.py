"""All ranks of a node on its first GPU: `share.py gloo`, or `share.py nccl`, which NCCL refuses."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from seen import tell
from torch.nn.parallel import DistributedDataParallel

device = torch.device("cuda", 0)
torch.cuda.set_device(device)
dist.init_process_group(sys.argv[1], timeout=timedelta(seconds=40))
world = dist.get_world_size()
total = torch.full((8,), dist.get_rank() + 1.0, device=device)
dist.all_reduce(total)
is_right = bool((total == world * (world + 1) / 2).all())
model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device), device_ids=[0])
model(torch.randn(16, 8, device=device)).pow(2).mean().backward()
gradient = model.module.weight.grad
first = gradient.clone()
dist.broadcast(first, src=0)
is_right = is_right and torch.equal(first, gradient)
tell("share", world=world, backend=sys.argv[1], device=torch.cuda.get_device_name(device), right=is_right)
dist.barrier()
dist.destroy_process_group()
