import argparse
import os

from dask.distributed import Client

parser = argparse.ArgumentParser()
parser.add_argument("--cv", type=int)
args = parser.parse_args()

client = Client()
samples = int(os.environ["DEFAULT_N_SAMPLES"])
squares = client.gather(client.map(lambda number: number * number, range(samples // 100)))
print("dask", "workers", len(client.scheduler_info()["workers"]), "cv", args.cv, "sum", sum(squares))
