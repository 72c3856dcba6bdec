"""A sum over all ranks with Horovod, of tensors in main memory, and of tensors on the ranks' GPUs."""

import horovod.torch as hvd
import torch
from seen import tell

hvd.init()
wanted = hvd.size() * (hvd.size() + 1) / 2
total = hvd.allreduce(torch.full((8,), hvd.rank() + 1.0), op=hvd.Sum, name="cpu")
on_gpu = "no GPU"
if torch.cuda.is_available():
    device = torch.device("cuda", hvd.local_rank())
    try:
        # Large: a copy to main memory that nobody waits for would not have ended.
        there = hvd.allreduce(torch.full((2**24,), hvd.rank() + 1.0, device=device), op=hvd.Sum, name="gpu")
        on_gpu = "right" if bool((there == wanted).all()) else "wrong"
    except (ValueError, RuntimeError) as error:
        on_gpu = f"refused: {error}"
is_right = bool((total == wanted).all()) and on_gpu != "wrong"
tell("horovod", world=hvd.size(), nccl=bool(hvd.nccl_built()), on_gpu=on_gpu, right=is_right)
hvd.shutdown()
