"""ParameterServerStrategy with Keras' model.fit: servers join, the coordinator trains."""

import os

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()

strategy = tf.distribute.ParameterServerStrategy(
    resolver, variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(max_shards=2)
)


def dataset_fn(context):
    x = tf.random.stateless_uniform([256, 6], seed=[5, 6])
    y = tf.cast(tf.reduce_sum(x, axis=1) > 3, tf.int32)
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(256).repeat().batch(32)


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(2)])
    model.compile(
        tf.keras.optimizers.legacy.SGD(0.2),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=10,
    )
history = model.fit(tf.keras.utils.experimental.DatasetCreator(dataset_fn), epochs=5, steps_per_epoch=30, verbose=0)
losses = history.history["loss"]
print(
    f"{resolver.task_type} workers {resolver.cluster_spec().num_tasks('worker')}"
    f" servers {resolver.cluster_spec().num_tasks('ps')} learned: {losses[-1] < losses[0]}"
)
