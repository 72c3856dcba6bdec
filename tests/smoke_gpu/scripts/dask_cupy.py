"""A task that computes on a GPU of its worker's node, with CuPy."""

from dask.distributed import Client
from seen import tell


def square(size):
    import cupy

    numbers = cupy.arange(size, dtype=cupy.float64)
    name = cupy.cuda.runtime.getDeviceProperties(numbers.device.id)["name"].decode()
    return name, cupy.cuda.runtime.getDeviceCount(), float((numbers * numbers).sum())


if __name__ == "__main__":
    name, count, total = Client().submit(square, 1000).result()
    tell("dask", device=name, devices=count, right=total == sum(i * i for i in range(1000)))
