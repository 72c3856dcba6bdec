"""BackupAndRestore: one task fails once, all start again, and training goes on after the last epoch."""

import json
import os
import sys

import tensorflow as tf

task = json.loads(os.environ["TF_CONFIG"])["task"]
folder = os.environ.get("OUTPUT_DIR", ".")
marker = os.path.join(folder, "failed-once")

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = tf.random.stateless_uniform([480, 4], seed=[3, 4])
data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1))).repeat().batch(48)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(optimizer="adam", loss="mse")


class FailOnce(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if task["index"] == 0:
            print("begins epoch", epoch, flush=True)
        if epoch == 3 and task["index"] == 1 and not os.path.exists(marker):
            open(marker, "w").close()
            sys.exit(5)


backup = tf.keras.callbacks.BackupAndRestore(os.path.join(folder, "backup"))
history = model.fit(data, epochs=6, steps_per_epoch=10, verbose=0, callbacks=[backup, FailOnce()])
if task["index"] == 0:
    print("resumed:", os.path.exists(marker) and len(history.epoch) < 6, "last epoch", history.epoch[-1])
