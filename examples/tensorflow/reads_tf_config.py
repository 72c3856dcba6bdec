"""Reads TF_CONFIG itself to find out who it is: shards its data, logs for TensorBoard and saves on the chief alone."""

import json
import os
import tempfile

import tensorflow as tf

config = json.loads(os.environ.get("TF_CONFIG", "{}"))
workers = config.get("cluster", {}).get("worker", ["localhost"])
task = config.get("task", {"type": "worker", "index": 0})
rank, size = task["index"], len(workers)
chief = task["type"] == "chief" or rank == 0
print(f"I am {task['type']} {rank} of {size}", flush=True)

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = tf.random.stateless_normal([600, 3], seed=[8, 9])
y = x[:, :1] - x[:, 1:2]
mine = tf.data.Dataset.from_tensor_slices((x, y)).shard(size, rank).repeat().batch(20)
data = strategy.distribute_datasets_from_function(lambda _: mine)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
logs = tempfile.mkdtemp()
history = model.fit(data, epochs=3, steps_per_epoch=20, verbose=0, callbacks=[tf.keras.callbacks.TensorBoard(logs)])
folder = os.environ.get("OUTPUT_DIR", ".") if chief else tempfile.mkdtemp()
model.save(os.path.join(folder, "model.keras"))
if chief:
    again = tf.keras.models.load_model(os.path.join(folder, "model.keras"))
    events = len(tf.io.gfile.glob(os.path.join(logs, "*", "events*")))
    print(f"loss below 0.01: {history.history['loss'][-1] < 0.01} weights {len(again.weights)} logs {events > 0}")
