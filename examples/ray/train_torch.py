"""Ray Train: DistributedDataParallel on two workers, with data sharded by Ray Data."""

import tempfile

import numpy as np
import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func(config):
    model = ray.train.torch.prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    shard = ray.train.get_dataset_shard("train")
    for epoch in range(config["epochs"]):
        rows, total = 0, 0.0
        for batch in shard.iter_torch_batches(batch_size=32, dtypes=torch.float32):
            loss = torch.nn.functional.mse_loss(model(batch["x"]).squeeze(-1), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows, total = rows + len(batch["y"]), total + loss.item() * len(batch["y"])
        metrics, checkpoint = {"epoch": epoch, "loss": total / rows, "rows": rows}, None
        with tempfile.TemporaryDirectory() as folder:
            if ray.train.get_context().get_world_rank() == 0:
                torch.save(model.state_dict(), f"{folder}/model.pt")
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=checkpoint)


x = np.random.default_rng(0).normal(size=(512, 4)).astype("float32")
data = ray.data.from_numpy([x]).map_batches(
    lambda batch: {"x": batch["data"], "y": batch["data"] @ np.array([1, -2, 3, 0.5], dtype="float32")}
)
trainer = TorchTrainer(
    train_func,
    train_loop_config={"lr": 0.1, "epochs": 6},
    scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}, placement_strategy="SPREAD"),
    run_config=RunConfig(storage_path=tempfile.mkdtemp(), name="linear"),
    datasets={"train": data},
)
result = trainer.fit()
print(
    f"epochs {result.metrics['epoch'] + 1} rows {result.metrics['rows']} loss below 0.05: {result.metrics['loss'] < 0.05}"
)
