"""What smoke.sh runs on a PyTorch cluster: all processes add up their ranks."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = torch.tensor([dist.get_rank()])
dist.all_reduce(ranks)
size = dist.get_world_size()
assert size > 1, size
assert ranks.item() == sum(range(size)), ranks
print(f"smoke: all nodes take part: {size} of PyTorch's processes", flush=True)
dist.destroy_process_group()
