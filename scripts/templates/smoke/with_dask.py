"""What smoke.sh runs on a Dask cluster: each worker computes."""

from distributed import Client

with Client() as client:
    client.wait_for_workers(1)
    found = client.run(sum, [1, 2, 3])
    assert found, "no worker"
    assert set(found.values()) == {6}, found
    print(f"smoke: all nodes take part: {len(found)} of Dask's workers", flush=True)
