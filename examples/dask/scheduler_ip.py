"""As scripts for `opctl distributed-training` are written: they find the scheduler, and a folder, in the environment."""

import argparse
import os

from dask.distributed import Client

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=1000)
args = parser.parse_args()


def square_sum(start, stop):
    return sum(i * i for i in range(start, stop))


scheduler = os.environ["SCHEDULER_IP"] + ":" + os.environ.get("SCHEDULER_PORT", "8786")
client = Client(scheduler)
client.wait_for_workers(int(os.environ["OCI__WORKER_COUNT"]))
parts = [client.submit(square_sum, i, min(i + 100, args.rows)) for i in range(0, args.rows, 100)]
total = client.submit(sum, parts).result()
with open(os.path.join(os.environ["OCI__SYNC_DIR"], "total.txt"), "w") as f:
    f.write(str(total))
print(os.environ["OCI__MODE"], "of", os.environ["OCI__WORKER_COUNT"], "workers, total", total)
client.close()
