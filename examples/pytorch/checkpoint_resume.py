"""Saves a checkpoint after each epoch and starts from the last one; fails once, as a spot machine would."""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--folder", default=os.environ.get("OUTPUT_DIR", "."))
parser.add_argument("--epochs", type=int, default=6)
args = parser.parse_args()
checkpoint = os.path.join(args.folder, "last.pt")
failed_once = os.path.join(args.folder, "failed-once")

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
first = 0
if os.path.exists(checkpoint):
    state = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"] + 1
for epoch in range(first, args.epochs):
    for _ in range(20):
        x = torch.randn(16, 4)
        loss = ((model(x) - x @ torch.ones(4, 1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, checkpoint + ".new")
        os.replace(checkpoint + ".new", checkpoint)
        print(f"epoch {epoch} saved", flush=True)
    dist.barrier()
    if epoch == 2 and dist.get_rank() == dist.get_world_size() - 1 and not os.path.exists(failed_once):
        open(failed_once, "w").close()
        sys.exit(3)
if dist.get_rank() == 0:
    print(f"began at epoch {first}, loss below 0.1: {loss.item() < 0.1}")
dist.barrier()
dist.destroy_process_group()
