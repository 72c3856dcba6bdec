"""State on a worker (an actor), a lock, a queue, and a bag of records."""

import dask.bag as db
from dask.distributed import Client, Lock, Queue, get_worker


class Counter:
    def __init__(self):
        self.n = 0

    def add(self, amount):
        self.n += amount
        return self.n


def produce(i, queue):
    with Lock("one at a time"):
        queue.put((i, get_worker().name))
    return i


if __name__ == "__main__":
    with Client() as client:
        counter = client.submit(Counter, actor=True).result()
        totals = [counter.add(i) for i in range(10)]
        last = max(t.result() for t in totals)
        queue = Queue("results")
        client.gather(client.map(produce, range(12), queue=queue, pure=False))
        seen = sorted(i for i, _ in queue.get(batch=True))
        records = db.from_sequence(({"id": i, "even": i % 2 == 0} for i in range(1000)), npartitions=8)
        even = records.filter(lambda r: r["even"]).pluck("id").sum().compute()
        info = client.run(lambda dask_worker: len(dask_worker.data))
        print(f"counter {last} queue {len(seen)} even sum {even} workers {len(info)}")
