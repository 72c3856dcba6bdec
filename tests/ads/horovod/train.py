import argparse

import horovod.torch as hvd
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
args = parser.parse_args()

hvd.init()
for _ in range(args.epochs):
    total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum)
if hvd.rank() == 0:
    print("horovod", "ranks", hvd.size(), "total", int(total))
