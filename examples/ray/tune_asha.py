"""Ray Tune: random search with a scheduler that stops bad trials early, and checkpoints of the good ones."""

import json
import os
import tempfile

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

ray.init(ignore_reinit_error=True)


def objective(config):
    x, start = 5.0, 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "state.json")) as file:
            x, start = json.load(file)
    for step in range(start, 12):
        x -= config["lr"] * 2 * x
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "state.json"), "w") as file:
                json.dump([x, step + 1], file)
            tune.report({"loss": x * x}, checkpoint=tune.Checkpoint.from_directory(folder))


tuner = tune.Tuner(
    tune.with_resources(objective, {"cpu": 0.5}),
    param_space={"lr": tune.loguniform(1e-3, 0.5)},
    tune_config=tune.TuneConfig(
        metric="loss",
        mode="min",
        num_samples=8,
        scheduler=ASHAScheduler(max_t=12, grace_period=2, reduction_factor=3),
    ),
    run_config=tune.RunConfig(name="search", storage_path=tempfile.mkdtemp(), verbose=1),
)
results = tuner.fit()
best = results.get_best_result()
stopped = sum(result.metrics["training_iteration"] < 12 for result in results)
print(f"trials {len(results)} stopped early: {stopped > 0} best below 0.1: {best.metrics['loss'] < 0.1}")
print(f"checkpoint {best.checkpoint is not None}")
