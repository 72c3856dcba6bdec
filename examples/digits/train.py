"""Train a small network on data/digits.pt, with DistributedDataParallel: checkpoints, resume, TensorBoard.

Plain PyTorch: `torchrun train.py` runs it anywhere. docs/tutorial.md takes it from one machine to Kubernetes and OCI.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, default=Path("data", "digits.pt"))
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--resume", type=Path, help="a checkpoint of an earlier launch")
args = parser.parse_args()

gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")
device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
is_first = dist.get_rank() == 0

data = torch.load(args.data, weights_only=True)
dataset = TensorDataset(data["images"].unsqueeze(1), data["labels"])
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=32, sampler=sampler)

torch.manual_seed(0)
layers = nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10)
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

# The newest checkpoint of this launch, after a restart; else that of an earlier launch.
newest = Path("checkpoints", "last.pt")
first = 0
for path in (newest, args.resume):
    if path and path.exists():
        state = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
        break
ddp = DistributedDataParallel(model)
writer = SummaryWriter("runs") if is_first else None

for epoch in range(first, args.epochs):
    sampler.set_epoch(epoch)
    total = torch.zeros(2, device=device)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(ddp(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item(), 1.0], device=device)
    dist.all_reduce(total)
    mean = (total[0] / total[1]).item()
    if writer:
        print(f"epoch {epoch} world {dist.get_world_size()} loss {mean:.4f}", flush=True)
        writer.add_scalar("loss", mean, epoch)
        newest.parent.mkdir(exist_ok=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, f"{newest}.new")
        Path(f"{newest}.new").replace(newest)
if writer:
    writer.close()
dist.barrier()
dist.destroy_process_group()
