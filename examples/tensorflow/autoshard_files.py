"""tf.data shards files by itself: every worker reads other TFRecord files of one folder."""

import os

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
number, count = resolver.task_id or 0, len(resolver.cluster_spec().as_dict().get("worker", [0]))
folder = os.path.join(os.environ.get("OUTPUT_DIR", "."), "records")

# Each worker writes files of its own; all see the folder.
os.makedirs(folder, exist_ok=True)
for part in range(2):
    with tf.io.TFRecordWriter(os.path.join(folder, f"{number}-{part}.tfrecord")) as writer:
        for i in range(64):
            value = float((number * 2 + part) * 64 + i) / 500
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
            example = tf.train.Example(features=tf.train.Features(feature={"x": feature}))
            writer.write(example.SerializeToString())

# Nobody reads before all have written.
with strategy.scope():
    written = strategy.reduce("SUM", strategy.run(lambda: tf.constant(1)), axis=None)


def parse(record):
    x = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([1], tf.float32)})["x"]
    return x, 2 * x + 1


files = tf.data.Dataset.list_files(os.path.join(folder, "*.tfrecord"), shuffle=False)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
data = tf.data.TFRecordDataset(files).map(parse).repeat().batch(16 * count).with_options(options)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.3), loss="mse")
history = model.fit(data, epochs=5, steps_per_epoch=16, verbose=0)
if number == 0:
    seen = len(tf.io.gfile.glob(os.path.join(folder, "*.tfrecord")))
    print(
        f"workers {count} all wrote: {int(written) == count} files {seen} loss below 0.1: {history.history['loss'][-1] < 0.1}"
    )
