"""The example with TensorFlow: a Keras model and a training loop of its own."""

import os
from pathlib import Path

import horovod.tensorflow as hvd
import tensorflow as tf
from train import RATE, load, report, save_result, shares


def train(epochs, seed):
    hvd.init()
    if gpus := tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    tf.keras.utils.set_random_seed(seed)
    images, test_images, labels, test_labels = load(seed)
    layers = [tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential([tf.keras.Input(64), *layers])
    optimizer = tf.keras.optimizers.SGD(RATE, momentum=0.9)
    cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.float32)])
    def step(mine, batch_size):
        with tf.GradientTape() as tape:
            # Each rank's part of the mean over the batch; Horovod adds the parts' gradients (op=hvd.Sum).
            loss = cross_entropy(tf.gather(labels, mine), model(tf.gather(images, mine))) / batch_size
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss * batch_size

    hvd.broadcast_variables(model.variables, root_rank=0)
    mine = slice(hvd.rank(), None, hvd.size())
    loss = accuracy = 0.0
    for epoch in range(epochs):
        steps = shares(len(images), epoch, seed, hvd.rank(), hvd.size())
        total = sum(step(tf.constant(share), tf.constant(size, tf.float32)) for share, size in steps)
        correct = tf.reduce_sum(tf.cast(tf.argmax(model(test_images[mine]), 1) == test_labels[mine], tf.float32))
        loss = float(hvd.allreduce(total, op=hvd.Sum, name="loss")) / len(images)
        accuracy = float(hvd.allreduce(correct, op=hvd.Sum, name="correct")) / len(test_images)
        if hvd.rank() == 0:
            report(epoch + 1, loss, accuracy, hvd.size())
            if output_dir := os.environ.get("OUTPUT_DIR"):
                model.save_weights(Path(output_dir, "model.h5"))
    if hvd.rank() == 0:
        save_result(loss, accuracy, hvd.size())
