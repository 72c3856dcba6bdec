"""Elastic Horovod with PyTorch: state that is committed, and goes on with other ranks."""

import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(6, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters()
)


@hvd.elastic.run
def train(state):
    while state.epoch < 6:
        for _ in range(state.batch, 15):
            x = torch.randn(32, 6)
            optimizer.zero_grad()
            loss = ((model(x) - x.sum(dim=1, keepdim=True)) ** 2).mean()
            loss.backward()
            optimizer.step()
            state.batch += 1
        state.loss = float(hvd.allreduce(loss.detach(), name="loss"))
        state.batch = 0
        state.epoch += 1
        state.commit()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0, loss=0.0)
state.register_reset_callbacks([lambda: print("ranks changed to", hvd.size(), flush=True)])
train(state)
if hvd.rank() == 0:
    print(f"size {hvd.size()} epochs {state.epoch} loss below 0.1: {state.loss < 0.1}")
