"""Keras under the strategy for several workers, on the GPUs that TensorFlow sees."""

import tensorflow as tf
from seen import tell

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.Adam(0.05), loss="mse")
x = tf.random.stateless_normal((256, 8), seed=(0, 0))
data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1, keepdims=True))).batch(32)
losses = model.fit(data, epochs=5, verbose=0).history["loss"]
tell(
    "tensorflow",
    gpus=len(tf.config.list_physical_devices("GPU")),
    replicas=strategy.num_replicas_in_sync,
    with_cuda=tf.test.is_built_with_cuda(),
    version=tf.__version__,
    right=losses[-1] < losses[0] / 2,
)
