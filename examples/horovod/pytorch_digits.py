"""Horovod with PyTorch: one process for each rank, a DistributedOptimizer and averaged metrics."""

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)
images, digits = load_digits(return_X_y=True)
dataset = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(digits))
sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(dataset, batch_size=32, sampler=sampler)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size(), momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
for epoch in range(5):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
right = sum(int((model(x).argmax(dim=1) == y).sum()) for x, y in loader) / len(sampler)
accuracy = hvd.allreduce(torch.tensor(right), name="accuracy")
if hvd.rank() == 0:
    print(f"size {hvd.size()} accuracy above 0.9: {float(accuracy) > 0.9}")
