"""Random arrays that are larger than a chunk: statistics and a singular value decomposition."""

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, wait


def main():
    client = Client()
    print(client)
    rng = da.random.default_rng(7)
    x = rng.normal(loc=10, scale=2, size=(20_000, 200), chunks=(2_000, 200)).persist()
    wait(x)
    mean, deviation = dask.compute(x.mean(), x.std())
    u, s, _ = da.linalg.svd(x - x.mean(axis=0))
    largest = s[0].compute()
    error = abs(np.linalg.norm(u[:, 0].compute()) - 1)
    print(
        f"mean {mean:.1f} deviation {deviation:.1f} largest singular value above 250: {largest > 250} error {error:.0e}"
    )
    client.close()


if __name__ == "__main__":
    main()
