"""A training loop with accelerate: prepare, accumulate, gather."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2)
    set_seed(3)
    x = torch.randn(480, 6)
    y = (x[:, 0] + x[:, 1] > 0).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(6):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
    right = seen = 0
    with torch.no_grad():
        for inputs, targets in loader:
            guesses, targets = accelerator.gather_for_metrics((model(inputs).argmax(dim=1), targets))
            right, seen = right + int((guesses == targets).sum()), seen + len(targets)
    accelerator.print(f"processes {accelerator.num_processes} seen {seen} accuracy above 0.9: {right / seen > 0.9}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
