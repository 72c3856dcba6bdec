"""The example with PyTorch. It is elastic: where MIN_NP or MAX_NP is set, it goes on as nodes go and come."""

import os
from pathlib import Path

import horovod.torch as hvd
import torch
from torch.nn.functional import cross_entropy
from train import RATE, load, report, save_result, shares


def evaluate(model, images, labels):
    """Return how many of this rank's share of the images *model* reads correctly."""
    mine = slice(hvd.rank(), None, hvd.size())
    with torch.no_grad():
        return (model(images[mine]).argmax(dim=1) == labels[mine]).sum()


def save_checkpoint(state):
    """Write the model to OUTPUT_DIR, whole: a reader never sees half of it."""
    if output_dir := os.environ.get("OUTPUT_DIR"):
        path = Path(output_dir, "model.pt")
        torch.save({"epoch": state.epoch, "model": state.model.state_dict()}, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)


@hvd.elastic.run
def run(state, data, epochs, seed):
    """Train from where *state* is to the last epoch. Horovod calls this again when ranks have gone or come."""
    images, test_images, labels, test_labels = (torch.from_numpy(part) for part in data)
    while state.epoch < epochs:
        total = torch.zeros(())
        for mine, batch_size in shares(len(images), state.epoch, seed, hvd.rank(), hvd.size()):
            state.optimizer.zero_grad()
            # Each rank's part of the mean over the batch; Horovod adds the parts' gradients (op=hvd.Sum).
            loss = cross_entropy(state.model(images[mine]), labels[mine], reduction="sum") / batch_size
            loss.backward()
            state.optimizer.step()
            total += loss.detach() * batch_size
        correct = evaluate(state.model, test_images, test_labels)
        state.loss = hvd.allreduce(total, op=hvd.Sum, name="loss").item() / len(images)
        state.accuracy = hvd.allreduce(correct, op=hvd.Sum, name="correct").item() / len(test_images)
        state.epoch += 1
        if hvd.rank() == 0:
            report(state.epoch, state.loss, state.accuracy, hvd.size())
            save_checkpoint(state)
        # What is lost when a node goes is the work since the last commit.
        state.commit()


def train(epochs, seed):
    hvd.init()
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Sum)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, loss=0.0, accuracy=0.0)
    run(state, load(seed), epochs, seed)
    if hvd.rank() == 0:
        save_result(state.loss, state.accuracy, hvd.size())
