"""A LightningModule with the ddp strategy; the number of nodes is an argument, as Lightning wants it."""

import argparse
import os
import tempfile

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss, prog_bar=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-nodes", type=int, default=int(os.environ.get("GROUP_WORLD_SIZE", 1)))
    args = parser.parse_args()
    L.seed_everything(1)
    x = torch.randn(512, 8)
    loader = DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=16, shuffle=True)
    trainer = L.Trainer(
        accelerator="auto",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        num_nodes=args.num_nodes,
        strategy="ddp",
        max_epochs=8,
        default_root_dir=tempfile.mkdtemp(),
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
    )
    model = Regression()
    trainer.fit(model, loader)
    if trainer.is_global_zero:
        loss = float(trainer.callback_metrics["loss"])
        print(f"world {trainer.world_size} steps {trainer.global_step} loss below 0.5: {loss < 0.5}")
