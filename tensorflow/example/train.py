"""Train a classifier of handwritten digits: on a TensorFlow cluster, or alone.

Plain TensorFlow: TF_CONFIG says what cluster there is. With parameter servers in it this takes ParameterServerStrategy,
else MultiWorkerMirroredStrategy; `python train.py` alone, where it is not set, takes none.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import tensorflow as tf
import tf_keras as keras  # Keras 2: model.fit of Keras 3 knows neither strategy
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

# Of 1797; any number of workers up to 8 but 5 and 7 gets equal parts of a batch of 96.
TRAIN_IMAGES = 1440


class Report(keras.callbacks.Callback):
    """Prints a line for each epoch, and where it begins when it is not the first."""

    def __init__(self, world):
        super().__init__()
        self.world = world
        self.epochs_done = 0

    def on_epoch_begin(self, epoch, _logs=None):
        if epoch > self.epochs_done:
            print(f"going on after epoch {epoch}, from the backup", flush=True)

    def on_epoch_end(self, epoch, logs):
        self.epochs_done = epoch + 1
        progress = f"epoch {epoch + 1:2} of {self.params['epochs']}"
        print(f"{progress}  loss {logs['loss']:.4f}  accuracy {logs['accuracy']:.4f}  {self.world}", flush=True)


def choose_strategy(cluster):
    """Return the strategy that the cluster asks for. The servers of a coordinator stay in here until they are ended."""
    jobs = cluster.cluster_spec().jobs
    if "ps" not in jobs:
        return tf.distribute.MultiWorkerMirroredStrategy(cluster) if jobs else tf.distribute.get_strategy()
    if cluster.task_type in ("ps", "worker"):
        tf.distribute.Server(cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id).join()
    return tf.distribute.ParameterServerStrategy(cluster)


def make_model():
    model = keras.Sequential([keras.layers.Dense(128, activation="relu", input_shape=(64,)), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.005), loss, metrics=["accuracy"])
    return model


def main():
    parser = argparse.ArgumentParser(description="Train a digit classifier on a TensorFlow cluster, or alone.")
    parser.add_argument("--epochs", type=int, default=10, help="(default: 10)")
    parser.add_argument("--batch", type=int, default=96, help="images of a step, on all workers (default: 96)")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (default: 0)")
    args = parser.parse_args()

    tf.get_logger().setLevel("ERROR")  # it warns of every backup from parameter servers
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    jobs = cluster.cluster_spec()
    # Without parameter servers the first worker does what a chief does.
    is_chief = cluster.task_type in (None, "chief") or ("chief" not in jobs.jobs and cluster.task_id == 0)
    strategy = choose_strategy(cluster)
    is_ps = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    world = f"world size {jobs.num_tasks('worker') if is_ps else strategy.num_replicas_in_sync}"
    if is_ps:
        world += f" and {jobs.num_tasks('ps')} ps"

    images, digits = load_digits(return_X_y=True)
    images, test_images, digits, test_digits = train_test_split(
        (images / 16).astype("float32"), digits, train_size=TRAIN_IMAGES, stratify=digits, random_state=args.seed
    )

    def make_dataset(_context=None):
        data = tf.data.Dataset.from_tensor_slices((images, digits))
        data = data.shuffle(len(images), seed=None if is_ps else args.seed).repeat().batch(args.batch)
        # Every worker has all images, and takes its part of each batch.
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        return data.with_options(options)

    keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = make_model()
    callbacks = [Report(world)] if is_chief else []
    if backup_dir := os.environ.get("BACKUP_DIR"):
        callbacks.append(keras.callbacks.BackupAndRestore(backup_dir))
    history = model.fit(
        keras.utils.experimental.DatasetCreator(make_dataset) if is_ps else make_dataset(),
        epochs=args.epochs,
        steps_per_epoch=len(images) // args.batch,
        callbacks=callbacks,
        verbose=0,
    )

    guesses = tf.argmax(model(test_images), axis=1).numpy()
    test_accuracy = float((guesses == test_digits).mean())
    # Every worker takes part in saving, the chief's is the one to keep.
    with tempfile.TemporaryDirectory() as scratch:
        output_dir = Path(os.environ.get("OUTPUT_DIR", scratch)) if is_chief else Path(scratch)
        model.save(output_dir / "model.keras")
        if is_chief:
            print(f"accuracy on {len(test_digits)} other images: {test_accuracy:.4f}")
            last = {name: values[-1] for name, values in history.history.items()}
            (output_dir / "result.json").write_text(json.dumps({**last, "test_accuracy": test_accuracy}) + "\n")


if __name__ == "__main__":
    main()
