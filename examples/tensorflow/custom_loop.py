"""A training loop of one's own under MultiWorkerMirroredStrategy, with a checkpoint that the chief keeps."""

import os
import tempfile

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
task_type, task_id = resolver.task_type, resolver.task_id


def is_chief(task_type, task_id):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id == 0)


def make_dataset(context):
    batch = context.get_per_replica_batch_size(64)
    x = tf.random.stateless_normal([512, 4], seed=[1, 2])
    data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1, keepdims=True)))
    return data.shard(context.num_input_pipelines, context.input_pipeline_id).repeat().batch(batch)


with strategy.scope():
    weights = tf.Variable(tf.zeros([4, 1]))
    step = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
checkpoint = tf.train.Checkpoint(weights=weights, step=step)
data = iter(strategy.distribute_datasets_from_function(make_dataset))


@tf.function
def train_step(iterator):
    def replica_step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y) ** 2)
        gradient = tape.gradient(loss, weights)
        context = tf.distribute.get_replica_context()
        weights.assign_sub(0.2 * context.all_reduce("MEAN", gradient))
        step.assign_add(1)
        return loss

    losses = strategy.run(replica_step, args=(next(iterator),))
    return strategy.reduce("MEAN", losses, axis=None)


for _ in range(40):
    loss = train_step(data)
folder = os.environ.get("OUTPUT_DIR", ".") if is_chief(task_type, task_id) else tempfile.mkdtemp()
manager = tf.train.CheckpointManager(checkpoint, os.path.join(folder, "checkpoints"), max_to_keep=1)
path = manager.save()
if is_chief(task_type, task_id):
    print(f"replicas {strategy.num_replicas_in_sync} step {int(step.numpy())} loss below 0.01: {float(loss) < 0.01}")
    print("saved", os.path.basename(path))
