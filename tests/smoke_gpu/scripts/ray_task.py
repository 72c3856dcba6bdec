"""A task that has a GPU of its own, where the cluster has any; and what it sees of it."""

import os

import ray
from seen import tell


def look():
    try:
        import torch

        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        total = float(torch.ones(1000, device="cuda" if names else "cpu").sum())
    except ImportError:
        names, total = ["torch is not installed"], 1000.0
    return {"devices": names, "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""), "right": total == 1000.0}


if __name__ == "__main__":
    ray.init()
    gpus = int(ray.cluster_resources().get("GPU", 0))
    task = ray.remote(num_gpus=1)(look) if gpus else ray.remote(look)
    tell("ray", gpus=gpus, **ray.get(task.remote()))
