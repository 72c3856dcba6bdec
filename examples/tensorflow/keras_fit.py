"""model.fit under MultiWorkerMirroredStrategy; the batch grows with the workers, as in TensorFlow's tutorial."""

import json
import os

import numpy as np
import tensorflow as tf

per_worker_batch_size = 32
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])

strategy = tf.distribute.MultiWorkerMirroredStrategy()
assert strategy.num_replicas_in_sync == num_workers, (strategy.num_replicas_in_sync, num_workers)

rng = np.random.default_rng(0)
x = rng.normal(size=(960, 8)).astype("float32")
y = (x.sum(axis=1) > 0).astype("int64")
dataset = (
    tf.data.Dataset.from_tensor_slices((x, y)).shuffle(960, seed=1).repeat().batch(per_worker_batch_size * num_workers)
)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA

with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(16, activation="relu", input_shape=(8,)), tf.keras.layers.Dense(2)]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.02),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
history = model.fit(dataset.with_options(options), epochs=4, steps_per_epoch=10, verbose=2)
if tf_config["task"]["index"] == 0:
    print("workers", num_workers, "accuracy above 0.85:", history.history["accuracy"][-1] > 0.85)
