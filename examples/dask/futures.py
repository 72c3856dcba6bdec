"""Futures as they complete: estimate pi with many small tasks, and follow up on the first results."""

import random

from dask.distributed import Client, as_completed, get_worker


def throw(seed, darts):
    rng = random.Random(seed)
    hits = sum(rng.random() ** 2 + rng.random() ** 2 <= 1 for _ in range(darts))
    return hits, get_worker().name


if __name__ == "__main__":
    client = Client(n_workers=4, threads_per_worker=1)
    darts = client.scatter(20_000, broadcast=True)
    futures = client.map(throw, range(30), darts=darts, pure=False)
    pool = as_completed(futures, with_results=True)
    hits, throws, workers, extra = 0, 0, set(), 0
    for future, (found, worker) in pool:
        hits, throws = hits + found, throws + 20_000
        workers.add(worker)
        if extra < 10:
            extra += 1
            pool.add(client.submit(throw, 1000 + extra, 20_000, pure=False))
    print(f"pi is about {4 * hits / throws:.2f} after {throws} darts on {len(workers)} workers")
    client.close()
