"""Learn to read handwritten digits on all ranks of a Horovod cluster; HOROVOD_FRAMEWORK says, by PyTorch or TensorFlow.

Plain Horovod: the same file run as `python train.py` is a job of one rank. Every step learns from BATCH images, shared
among the ranks there are, so that the result is that of one rank but for the order in which numbers are added. Both
versions import from here what they share: the images, who learns from which, and the report.
"""

import argparse
import importlib
import json
import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

BATCH = 60  # images in a step, of all ranks together
RATE = 0.1


def load(seed):
    """Return images and digits to learn from, and those to test with: the same on every rank."""
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    return train_test_split(images, digits, test_size=0.25, stratify=digits, random_state=seed)


def shares(count, epoch, seed, rank, size):
    """Yield, for each step of *epoch*, which of *count* images this rank learns from, and how many all ranks do."""
    order = np.random.default_rng([seed, epoch]).permutation(count)
    for start in range(0, count, BATCH):
        batch = order[start : start + BATCH]
        yield batch[rank::size], len(batch)


def report(epoch, loss, accuracy, size):
    """Print an epoch's result, on rank 0; ranks is how many took part in it."""
    print(f"epoch {epoch:3}  loss {loss:.4f}  test accuracy {accuracy:.4f}  ranks {size}", flush=True)


def save_result(loss, accuracy, size):
    """Write the result to OUTPUT_DIR, where there is one."""
    if output_dir := os.environ.get("OUTPUT_DIR"):
        result = {"loss": loss, "accuracy": accuracy, "ranks": size}
        Path(output_dir, "result.json").write_text(json.dumps(result) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Train a digit classifier on the ranks of a Horovod cluster.")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the images (default: 12)")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (default: 0)")
    args = parser.parse_args()
    framework = os.environ.get("HOROVOD_FRAMEWORK", "pytorch")
    importlib.import_module(f"digits_{framework}").train(args.epochs, args.seed)


if __name__ == "__main__":
    main()
