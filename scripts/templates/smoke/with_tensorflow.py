"""What smoke.sh runs on a TensorFlow cluster: all tasks add up a one each."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def add_up():
    def one():
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))

    return strategy.run(one)


total = float(strategy.experimental_local_results(add_up())[0])
assert total == strategy.num_replicas_in_sync > 1, total
print(f"smoke: all nodes take part: {total:.0f} of TensorFlow's tasks", flush=True)
