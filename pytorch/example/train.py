"""Train a small network to read handwritten digits, on as many processes as there are, with DistributedDataParallel.

Plain PyTorch: torchrun's variables say who this process is. `python train.py` alone is one process. Every batch is the
same whatever their number: each takes its part of it, and the results agree but for rounding.
"""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def join():
    """Become one of the processes that train; return the device to compute on."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        group = {"backend": "nccl", "device_id": device}
    else:
        device, group = torch.device("cpu"), {"backend": "gloo"}
    if "RANK" not in os.environ:
        group |= {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(**group)
    return device


def load_data(device, seed):
    """Return images and digits to learn from, and images and digits to test with."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32, device=device).unsqueeze(1) / 16
    digits = torch.tensor(data.target, device=device)
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed)).to(device)
    learn, test = order[450:], order[:450]
    return images[learn], digits[learn], images[test], digits[test]


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def mine(batch):
    """Return this process's part of a batch."""
    return batch[dist.get_rank() :: dist.get_world_size()]


def train_epoch(model, optimizer, images, digits, *, epoch, args):
    """Learn from every image once; return the mean loss."""
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(args.seed + epoch))
    total = torch.zeros((), device=images.device)
    batches = order.split(args.batch)[: len(order) // args.batch]
    for batch in batches:
        part = mine(batch)
        loss = nn.functional.cross_entropy(model(images[part]), digits[part], reduction="sum") / args.batch
        optimizer.zero_grad()
        # DDP takes the mean over processes of what are parts of a sum.
        (loss * dist.get_world_size()).backward()
        optimizer.step()
        total += loss.detach()
    dist.all_reduce(total)
    return total.item() / len(batches)


@torch.no_grad()
def accuracy(model, images, digits):
    right = (model(mine(images)).argmax(1) == mine(digits)).sum()
    dist.all_reduce(right)
    return right.item() / len(digits)


def load_checkpoint(path, device):
    """Return what rank 0 has kept, None where there is nothing. The others may not see its disk."""
    kept = [None]
    if dist.get_rank() == 0 and path and path.exists():
        kept = [torch.load(path, map_location="cpu", weights_only=True)]
    dist.broadcast_object_list(kept, device=device)
    return kept[0]


def save_checkpoint(path, **state):
    """Keep *state*, whole: whenever this is killed, the file is the new one or the old one."""
    if dist.get_rank() == 0 and path:
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


def main():
    parser = argparse.ArgumentParser(description="Train a digit classifier with DistributedDataParallel.")
    parser.add_argument("--epochs", type=int, default=10, help="times that every image is learned from (default: 10)")
    parser.add_argument("--batch", type=int, default=48, help="images in a batch, over all processes (default: 48)")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (default: 0)")
    args = parser.parse_args()

    device = join()
    output_dir = Path(os.environ["OUTPUT_DIR"]) if "OUTPUT_DIR" in os.environ else None
    path = output_dir and output_dir / "checkpoint.pt"
    images, digits, test_images, test_digits = load_data(device, args.seed)
    model = make_model(args.seed).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = 1
    if checkpoint := load_checkpoint(path, device):
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        first = checkpoint["epoch"] + 1
    ddp = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)

    def say(text):
        if dist.get_rank() == 0:
            print(text, flush=True)

    world = dist.get_world_size()
    where = f"world size {world}, {dist.get_backend()}"
    say(f"{len(digits)} images to learn from, {len(test_digits)} to test with; {where}; first epoch: {first}")
    for epoch in range(first, args.epochs + 1):
        loss = train_epoch(ddp, optimizer, images, digits, epoch=epoch, args=args)
        score = accuracy(model, test_images, test_digits)
        say(f"epoch {epoch:2} of {args.epochs}  loss {loss:.4f}  accuracy {score:.4f}  world size {world}")
        save_checkpoint(path, model=model.state_dict(), optimizer=optimizer.state_dict(), epoch=epoch)
        if dist.get_rank() == 0 and output_dir:
            result = {"epoch": epoch, "loss": loss, "accuracy": score, "world_size": world}
            (output_dir / "result.json").write_text(json.dumps(result) + "\n")
    # Nobody leaves before all are done.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
