"""Fully sharded data parallel: each rank keeps a part of every parameter."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

if __name__ == "__main__":
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group()
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(kind)
    whole = sum(p.numel() for p in model.parameters())
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    mine = sum(p.to_local().numel() for p in model.parameters())
    torch.manual_seed(dist.get_rank())
    for _ in range(60):
        x = torch.randn(64, 16, device=kind)
        loss = nn.functional.mse_loss(model(x), x.mean(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"world {dist.get_world_size()} sharded: {mine < whole} loss below 0.05: {loss.item() < 0.05}")
    dist.barrier()
    dist.destroy_process_group()
