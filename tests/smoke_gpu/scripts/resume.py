"""Trains from its last checkpoint on: `resume.py FOLDER STEPS [STEP]`; its last rank is killed once, before STEP."""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from seen import tell
from torch.nn.parallel import DistributedDataParallel

HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if HAS_GPU else torch.device("cpu")


def make():
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1).to(DEVICE), device_ids=[DEVICE.index] if HAS_GPU else None)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(model, optimizer, step):
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    x = torch.randn(32, 8, generator=generator).to(DEVICE)
    loss = (model(x) - x.sum(dim=1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    folder, steps = Path(sys.argv[1]), int(sys.argv[2])
    killed_at = int(sys.argv[3]) if len(sys.argv) > 3 else None
    kept, mark = folder / "kept.pt", folder / "killed"
    model, optimizer = make()
    begun_at = 0
    if kept.exists():
        state = torch.load(kept, map_location=DEVICE, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begun_at = state["step"]
    for step in range(begun_at, steps):
        if step == killed_at and dist.get_rank() == dist.get_world_size() - 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        train(model, optimizer, step)
        if dist.get_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, folder / "new.pt")
            (folder / "new.pt").replace(kept)
        dist.barrier()
    # The same steps without a checkpoint.
    whole, its_optimizer = make()
    for step in range(steps):
        train(whole, its_optimizer, step)
    pairs = zip(model.parameters(), whole.parameters(), strict=True)
    is_same = all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)
    tell("resume", begun_at=begun_at, ended_at=steps, right=is_same)


if __name__ == "__main__":
    if HAS_GPU:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl" if HAS_GPU else "gloo", timeout=timedelta(seconds=60))
    main()
    dist.barrier()
    dist.destroy_process_group()
