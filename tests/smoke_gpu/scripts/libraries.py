"""A small training with a library that has its own loop: `libraries.py lightning`, `transformers` or `accelerate`."""

import os
import sys
import tempfile

import torch
from seen import tell
from torch.utils.data import DataLoader, TensorDataset


def numbers():
    torch.manual_seed(0)
    x = torch.randn(1024, 8)
    return DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=16)


def fit_lightning():
    try:
        import lightning.pytorch as pl
    except ImportError:
        import pytorch_lightning as pl

    class Regression(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)
            self.losses = []

        def training_step(self, batch, _):
            loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.05)

    trainer = pl.Trainer(
        accelerator="auto",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=4,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        logger=False,
        default_root_dir=tempfile.mkdtemp(),
    )
    model = Regression()
    trainer.fit(model, numbers())
    return trainer.world_size, trainer.strategy.root_device, model.losses


def fit_transformers():
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    ids = [torch.tensor([(i + j) % 16 for j in range(12)]) for i in range(256)]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=16,
        max_steps=40,
        learning_rate=1e-2,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=12, n_embd=32, n_layer=1, n_head=2))
    trainer = Trainer(model=model, args=arguments, train_dataset=[{"input_ids": i, "labels": i} for i in ids])
    trainer.train()
    # A loss is a text in some releases.
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    return arguments.world_size, trainer.args.device, losses


def fit_accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator()
    model = torch.nn.Linear(8, 1)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.05), numbers())
    losses = []
    for _ in range(4):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    world, device = accelerator.num_processes, accelerator.device
    accelerator.end_training()
    return world, device, losses


FITS = {"lightning": fit_lightning, "transformers": fit_transformers, "accelerate": fit_accelerate}

if __name__ == "__main__":
    world, device, losses = FITS[sys.argv[1]]()
    # Trainer logs on rank 0 alone.
    is_right = not losses or losses[-1] < losses[0] / 2
    tell(sys.argv[1], world=world, device=str(device), right=is_right, steps=len(losses))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
