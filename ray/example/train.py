"""Tune and train a small network that reads handwritten digits: Ray Tune finds its parameters, Ray Train trains it.

Plain Ray: ray.init() finds the cluster that runs this script. `python train.py` alone starts a Ray of its own. Every
batch is the same whatever the number of nodes: each takes its part of it, and the results agree but for rounding.

What is learned so far is kept in $OUTPUT_DIR, where a second run goes on. Ray Train can keep checkpoints by itself only
where all nodes see one storage (RunConfig's storage_path). This script needs none: the worker of rank 0 hands each
checkpoint to an actor on the node of this script, which writes it to its own disk.
"""

import argparse
import asyncio
import io
import json
import logging
import os
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ray
import torch
import torch.distributed as dist
from ray import train, tune
from ray.train.torch import TorchTrainer, get_device, prepare_model
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from sklearn.datasets import load_digits
from torch import nn

GRID = {"width": [8, 16], "lr": [0.02, 0.05, 0.1]}
# How often lost workers of a search or a training are replaced.
MAX_FAILURES = 3
# Else Tune prints a table of the search, whatever verbose says.
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
# Else Ray Train's controller logs an error of its watcher in each run. A node that leaves is noticed without it.
os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")


def load_data(seed, device="cpu"):
    """Return images and digits to learn from, and images and digits to test with."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32, device=device).unsqueeze(1) / 16
    digits = torch.tensor(data.target, device=device)
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed)).to(device)
    learn, test = order[450:], order[:450]
    return images[learn], digits[learn], images[test], digits[test]


def make_model(width, seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8 * width, 10),
    )  # fmt: skip


def train_epoch(model, optimizer, images, digits, *, epoch, args, rank=0, world=1):
    """Learn from this process's part of every batch; return the sum of its losses and how many images that were."""
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(args.seed + epoch)).to(digits.device)
    total, learned = torch.zeros((), device=digits.device), 0
    for batch in order.split(args.batch)[: len(order) // args.batch]:
        part = batch[rank::world]
        loss = nn.functional.cross_entropy(model(images[part]), digits[part], reduction="sum")
        optimizer.zero_grad()
        # DDP takes the mean over processes of what are parts of a sum.
        (loss * world / args.batch).backward()
        optimizer.step()
        total += loss.detach()
        learned += len(part)
    return total, learned


@torch.no_grad()
def count_right(model, images, digits):
    return (model(images).argmax(1) == digits).sum()


def here():
    """Return the id of the node that this runs on."""
    return ray.get_runtime_context().get_node_id()


def try_parameters(config, args):
    """A trial of the search: learn from four fifths of the images, and report how many of the others are read."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, digits, _, _ = load_data(args.seed, device)
    held_back = len(digits) // 5
    model = make_model(config["width"], args.seed).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    for epoch in range(1, args.trial_epochs + 1):
        train_epoch(model, optimizer, images[held_back:], digits[held_back:], epoch=epoch, args=args)
    right = count_right(model, images[:held_back], digits[:held_back]).item()
    tune.report({"accuracy": right / held_back, "node": here()})


class Progress(tune.Callback):
    """Print a line for each trial that has ended. Tune calls this in the process of this script."""

    def __init__(self, names):
        self.names, self.ended = names, 0

    def on_trial_complete(self, trials, trial, **_):
        self.ended += 1
        found, shown = trial.last_result, "  ".join(f"{name} {value:<4}" for name, value in trial.config.items())
        node = self.names.get(found["node"], "a new node")
        print(f"trial {self.ended} of {len(trials)}  {shown}  accuracy {found['accuracy']:.4f}  on {node}", flush=True)


def search(args, names, share, storage):
    """Try every combination of GRID; return the best, its accuracy, and how many trials each node has made."""
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(try_parameters, args=args), share),
        param_space={name: tune.grid_search(values) for name, values in GRID.items()},
        tune_config=tune.TuneConfig(metric="accuracy", mode="max", reuse_actors=True),
        run_config=tune.RunConfig(
            name="search",
            storage_path=storage,
            failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
            callbacks=[Progress(names)],
            verbose=0,
        ),
    )
    results = tuner.fit()
    for error in results.errors:
        raise error
    best = max(results, key=lambda result: result.metrics["accuracy"])  # of equals the first
    trials = Counter(names.get(result.metrics["node"], "new nodes") for result in results)
    return {"params": best.config, "accuracy": best.metrics["accuracy"]}, trials


@ray.remote(num_cpus=0)
class Keeper:
    """What the workers have learned so far: the driver writes it down, and workers that begin anew go on with it."""

    def __init__(self, checkpoint):
        self.checkpoint, self.reports = checkpoint, asyncio.Queue()

    async def put(self, report):
        self.checkpoint = report["checkpoint"]
        await self.reports.put(report)

    async def end(self):
        await self.reports.put(None)

    async def next_report(self):
        return await self.reports.get()

    async def latest(self):
        return self.checkpoint


def pack(**state):
    packed = io.BytesIO()
    torch.save(state, packed)
    return packed.getvalue()


def unpack(checkpoint):
    return torch.load(io.BytesIO(checkpoint), map_location="cpu", weights_only=True)


def train_worker(config):
    """Train on one of the workers, from the last checkpoint on; rank 0 hands over what all have learned."""
    args, params, keeper = config["args"], config["params"], config["keeper"]
    rank, world, device = train.get_context().get_world_rank(), train.get_context().get_world_size(), get_device()
    images, digits, test_images, test_digits = load_data(args.seed, device)
    model = make_model(params["width"], args.seed).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=params["lr"], momentum=0.9)
    first = 1
    if checkpoint := ray.get(keeper.latest.remote()):
        state = unpack(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    parallel = prepare_model(model)

    for epoch in range(first, args.epochs + 1):
        loss, learned = train_epoch(parallel, optimizer, images, digits, epoch=epoch, args=args, rank=rank, world=world)
        right = count_right(model, test_images[rank::world], test_digits[rank::world])
        dist.all_reduce(loss)
        dist.all_reduce(right)
        shares = [None] * world
        dist.all_gather_object(shares, (here(), learned))
        if rank == 0:
            result = {
                "epoch": epoch,
                "loss": loss.item() / sum(images for _, images in shares),
                "accuracy": right.item() / len(test_digits),
            }
            checkpoint = pack(model=model.state_dict(), optimizer=optimizer.state_dict(), **result)
            ray.get(keeper.put.remote({"result": result, "shares": shares, "checkpoint": checkpoint}))


def follow(trainer, keeper):
    """Train; yield what rank 0 reports, until all have ended."""
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(trainer.fit)
        training.add_done_callback(lambda _: keeper.end.remote())
        while report := ray.get(keeper.next_report.remote()):
            yield report
        training.result()


def make_trainer(config, share, workers, storage):
    return TorchTrainer(
        train_worker,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(
            # Fewer where nodes are lost: the others begin again at the last checkpoint.
            num_workers=(1, workers),
            use_gpu="GPU" in share,
            resources_per_worker=share,
            placement_strategy="SPREAD",
        ),
        run_config=train.RunConfig(
            name="training",
            storage_path=storage,
            failure_config=train.FailureConfig(max_failures=MAX_FAILURES),
            logging_config=train.LoggingConfig(log_level="ERROR"),
        ),
    )


def train_on_all(args, params, names, share, *, storage, path):
    """Train on every node; keep checkpoints at *path*; return the last one, and the images that each node has read."""
    images = Counter()
    checkpoint = path.read_bytes() if path and path.exists() else None
    if checkpoint:
        before = unpack(checkpoint)
        print(f"going on after epoch {before['epoch']} of {args.epochs}, which {path.name} has", flush=True)
        if before["epoch"] >= args.epochs:
            return before, images
    on_this_node = NodeAffinitySchedulingStrategy(here(), soft=False)
    keeper = Keeper.options(scheduling_strategy=on_this_node).remote(checkpoint)
    config = {"args": args, "params": params, "keeper": keeper}
    for report in follow(make_trainer(config, share, len(names), storage), keeper):
        result, shares, checkpoint = report["result"], report["shares"], report["checkpoint"]
        images.update({names.get(node, "new nodes"): learned for node, learned in shares})
        print(
            f"epoch {result['epoch']:2} of {args.epochs}  loss {result['loss']:.4f}  "
            f"accuracy {result['accuracy']:.4f}  workers {len(shares)}",
            flush=True,
        )
        if path:
            write_whole(path, checkpoint)
    return unpack(checkpoint), images


def write_whole(path, content):
    """Whenever this is killed, the file is the new one or the old one."""
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)


def main():
    parser = argparse.ArgumentParser(description="Tune a digit classifier with Ray Tune, and train it with Ray Train.")
    parser.add_argument("--epochs", type=int, default=10, help="times that every image is learned from (default: 10)")
    parser.add_argument("--trial-epochs", type=int, default=3, help="the same in each trial (default: 3)")
    parser.add_argument("--batch", type=int, default=48, help="images in a batch, over all nodes (default: 48)")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (default: 0)")
    args = parser.parse_args()

    ray.init(logging_level=logging.WARNING)
    # Main of a cluster may be told to compute nothing.
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    names = {node["NodeID"]: node["NodeName"] for node in nodes}
    # All that the smallest node has: so a node runs one trial at a time, and one worker.
    share = {"CPU": min(node["Resources"]["CPU"] for node in nodes)}
    if all(node["Resources"].get("GPU") for node in nodes):
        share["GPU"] = 1
    _, digits, _, test_digits = load_data(args.seed)
    print(f"{len(digits)} images to learn from, {len(test_digits)} to test with; nodes: {len(names)}", flush=True)

    output_dir = Path(os.environ["OUTPUT_DIR"]) if "OUTPUT_DIR" in os.environ else None
    found = output_dir and output_dir / "best.json"
    path = output_dir and output_dir / "checkpoint.pt"
    trials = Counter()
    # What Tune and Train themselves write down is needed by nobody afterwards.
    with tempfile.TemporaryDirectory() as storage:
        if found and found.exists():
            best = json.loads(found.read_text())
            print(f"parameters that {found.name} has: {best['params']}", flush=True)
        else:
            best, trials = search(args, names, share, storage)
            print(f"best parameters: {best['params']}", flush=True)
            if found:
                write_whole(found, json.dumps(best).encode() + b"\n")
        state, images = train_on_all(args, best["params"], names, share, storage=storage, path=path)

    if images:
        print("\nnode         trials  images  share")
    for name in sorted(images):
        print(f"{name:<12} {trials[name]:6}  {images[name]:6}  {images[name] / images.total():5.0%}")
    print(f"\nbest parameters: {best['params']}; on the images held back: {best['accuracy']:.4f}")
    print(f"accuracy on the test images after {state['epoch']} epochs: {state['accuracy']:.4f}", flush=True)


if __name__ == "__main__":
    main()
