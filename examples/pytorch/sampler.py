"""DataLoader with DistributedSampler: each sample once in an epoch, another order in the next, workers that load."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Squares(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, i):
        return i, float(i * i)


if __name__ == "__main__":
    dist.init_process_group(backend="gloo")
    sampler = DistributedSampler(Squares(), shuffle=True, seed=5)
    loader = DataLoader(Squares(), batch_size=5, sampler=sampler, num_workers=1)
    orders = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        order = [int(i) for ids, _ in loader for i in ids]
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, order)
        orders.append([i for one in gathered for i in one])
    total = torch.tensor(sum(float(v.sum()) for _, v in loader))
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        whole = sorted(set(orders[0])) == list(range(60))
        print(f"all once: {whole} shuffled anew: {orders[0] != orders[1]} total {int(total)}")
    dist.destroy_process_group()
