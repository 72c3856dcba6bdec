"""A data frame in partitions: group, join, write as Parquet and read again."""

import os
import tempfile

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client


def make_partition(day):
    rng = np.random.default_rng(day)
    return pd.DataFrame(
        {
            "day": day,
            "city": rng.choice(["Bern", "Lagos", "Osaka"], 5_000),
            "trips": rng.poisson(20, 5_000),
            "fare": rng.normal(15, 3, 5_000).round(2),
        }
    )


if __name__ == "__main__":
    client = Client(n_workers=2, threads_per_worker=2, memory_limit="2GB")
    frame = dd.from_map(make_partition, list(range(8)))
    folder = os.path.join(tempfile.mkdtemp(dir=os.getcwd()), "trips.parquet")
    frame.to_parquet(folder)
    frame = dd.read_parquet(folder)
    countries = pd.DataFrame({"city": ["Bern", "Lagos", "Osaka"], "country": ["CH", "NG", "JP"]})
    joined = frame.merge(countries, on="city")
    table = joined.groupby("country").agg({"trips": "sum", "fare": "mean"}).compute().sort_index()
    print(table)
    print(f"rows {len(frame)} countries {','.join(table.index)} mean fare {table.fare.mean():.0f}")
    client.close()
