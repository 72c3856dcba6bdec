"""DistributedDataParallel on a small regression, with scalars for TensorBoard."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.tensorboard import SummaryWriter


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    writer = SummaryWriter(tempfile.mkdtemp()) if rank == 0 else None
    generator = torch.Generator().manual_seed(rank)
    for step in range(100):
        x = torch.randn(32, 8, generator=generator).to(device)
        loss = ((model(x) - x.sum(dim=1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if writer:
            writer.add_scalar("loss", loss.item(), step)
    weights = [torch.zeros_like(model.module.weight) for _ in range(world)]
    dist.all_gather(weights, model.module.weight.detach())
    if rank == 0:
        writer.close()
        same = all(torch.equal(weights[0], other) for other in weights)
        print(f"world {world} loss below 0.01: {loss.item() < 0.01} same weights: {same}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
