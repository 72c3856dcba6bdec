import argparse
import json
import os

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--data-dir")
args = parser.parse_args()

strategy = tf.distribute.MultiWorkerMirroredStrategy()
total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1)))
task = json.loads(os.environ["TF_CONFIG"])["task"]
print("tensorflow", task["type"], task["index"], "replicas", int(total), "data", args.data_dir)
