"""Learn to read handwritten digits on all ranks of a Horovod cluster; HOROVOD_FRAMEWORK says, by PyTorch or TensorFlow.

Plain Horovod: the same file run as `python train.py` is a job of one rank. Every step learns from BATCH images, shared
among the ranks there are, so that the result is that of one rank but for the order in which numbers are added.
"""

import argparse
import importlib
import os


def main():
    parser = argparse.ArgumentParser(description="Train a digit classifier on the ranks of a Horovod cluster.")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the images (default: 12)")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (default: 0)")
    args = parser.parse_args()
    framework = os.environ.get("HOROVOD_FRAMEWORK", "pytorch")
    importlib.import_module(f"digits_{framework}").train(args.epochs, args.seed)


if __name__ == "__main__":
    main()
