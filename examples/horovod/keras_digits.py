"""Horovod with Keras: callbacks broadcast the first weights and average metrics; rank 0 saves."""

import os

import horovod.tensorflow.keras as hvd
import tensorflow as tf
from sklearn.datasets import load_digits

hvd.init()
tf.keras.utils.set_random_seed(hvd.rank())
images, digits = load_digits(return_X_y=True)
x = (images / 16).astype("float32")[hvd.rank() :: hvd.size()]
y = digits[hvd.rank() :: hvd.size()]
model = tf.keras.Sequential(
    [tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)), tf.keras.layers.Dense(10, activation="softmax")]
)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.003 * hvd.size()))
model.compile(
    optimizer=optimizer,
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
    experimental_run_tf_function=False,
)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.003 * hvd.size(), warmup_epochs=2, verbose=0),
]
if hvd.rank() == 0:
    path = os.path.join(os.environ.get("OUTPUT_DIR", "."), "checkpoint-{epoch}.h5")
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(path))
history = model.fit(x, y, batch_size=32, epochs=5, steps_per_epoch=20, verbose=0, callbacks=callbacks)
if hvd.rank() == 0:
    print("size", hvd.size(), "accuracy above 0.8:", history.history["accuracy"][-1] > 0.8)
