"""Steps of training, each by its name, in one process group: `steps.py collectives ddp fsdp precision compile`."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from seen import tell
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if HAS_GPU else torch.device("cpu")


def collectives():
    world = dist.get_world_size()
    mine = torch.full((1024,), dist.get_rank() + 1.0, device=DEVICE)
    dist.all_reduce(mine)
    is_right = bool((mine == world * (world + 1) / 2).all())
    return {"backend": dist.get_backend(), "world": world, "device": str(DEVICE), "right": is_right}


def make(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(DEVICE)


def train(model, dtype=None):
    """Learn a batch of this rank's own; return the first loss, the last, and the type that the model computes in."""
    torch.manual_seed(dist.get_rank())
    x = torch.randn(64, 16, device=DEVICE)
    y = x.mean(dim=1, keepdim=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=dtype is torch.float16)
    losses = []
    for _ in range(30):
        with torch.autocast(DEVICE.type, dtype=dtype, enabled=dtype is not None):
            out = model(x)
        loss = nn.functional.mse_loss(out.float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return {"first": round(losses[0], 4), "last": round(losses[-1], 4), "dtype": str(out.dtype)}


def ddp():
    # Each rank begins with other parameters, and learns from other data: only DDP makes them equal.
    model = DistributedDataParallel(make(dist.get_rank()), device_ids=[DEVICE.index] if HAS_GPU else None)
    losses = train(model)
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, mine)
    return {"right": all(torch.equal(mine, other) for other in all_of_them), **losses}


def fsdp():
    model = make(0)
    whole = sum(parameter.numel() for parameter in model.parameters())
    mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    mine = sum(parameter.to_local().numel() for parameter in model.parameters())
    losses = train(model)
    is_right = mine < whole or dist.get_world_size() == 1
    return {"right": is_right, "parameters": whole, "on this rank": mine, **losses}


def precision():
    # On CPUs fp16 is slow, and not every CPU has it.
    types = [torch.bfloat16, torch.float16] if HAS_GPU else [torch.bfloat16]
    seen = {str(dtype): train(make(0), dtype) for dtype in types}
    is_right = all(one["dtype"] == name and one["last"] < one["first"] / 2 for name, one in seen.items())
    return {"right": is_right, "types": seen}


def compiled():
    model = make(0)
    x = torch.randn(64, 16, device=DEVICE)
    before = model(x).detach()
    fast = torch.compile(model, fullgraph=True)
    is_same = torch.allclose(fast(x), before, atol=1e-4)
    return {"right": is_same, **train(fast)}


STEPS = {"collectives": collectives, "ddp": ddp, "fsdp": fsdp, "precision": precision, "compile": compiled}

if __name__ == "__main__":
    if HAS_GPU:
        torch.cuda.set_device(DEVICE)
    # Longer than one rank may compile while another waits for it.
    dist.init_process_group("nccl" if HAS_GPU else "gloo", timeout=timedelta(seconds=100))
    for name in sys.argv[1:]:
        began = time.monotonic()
        try:
            seen = STEPS[name]()
        except Exception as error:  # noqa: BLE001 - one step's failure must not keep the others from being seen
            seen = {"error": f"{type(error).__name__}: {error}"[:400]}
        tell(name, seconds=round(time.monotonic() - began, 1), **seen)
    dist.barrier()
    dist.destroy_process_group()
