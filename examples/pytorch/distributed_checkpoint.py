"""torch.distributed.checkpoint: every rank writes its part of one checkpoint, and reads it again."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def train(model, optimizer, steps):
    for _ in range(steps):
        loss = model(torch.ones(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def build():
    torch.manual_seed(1)
    model = fully_shard(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp(dir=os.environ.get("OUTPUT_DIR", "."))]
    dist.broadcast_object_list(folder, src=0)
    model, optimizer = build()
    before = train(model, optimizer, 10)
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder[0])
    reference = train(model, optimizer, 5)

    model, optimizer = build()
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder[0])
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    again = train(model, optimizer, 5)
    if dist.get_rank() == 0:
        parts = len([name for name in os.listdir(folder[0]) if name.endswith(".distcp")])
        print(f"parts {parts} went on the same: {abs(reference - again) < 1e-6} learned: {again < before}")
    dist.barrier()
    dist.destroy_process_group()
