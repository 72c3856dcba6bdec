import os, sys, time

print("first line", time.time(), flush=True)
from distributed import Client

c = Client()
print(c, sys.argv)


def f(i):
    from distributed import get_worker

    return get_worker().name


print(sorted(set(c.gather(c.map(f, range(20))))))
