"""Tasks: count primes in parallel, look at results as they come, pass results on without fetching them."""

import ray

ray.init(num_cpus=4)


@ray.remote
def primes_below(first, last):
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(max(first, 2), last))


@ray.remote
def add(*counts):
    return sum(counts)


@ray.remote(num_returns=2)
def split(text):
    words = text.split()
    return words[::2], words[1::2]


@ray.remote
def checked(number):
    if number == 3:
        raise ValueError(f"bad number {number}")
    return number


if __name__ == "__main__":
    step = 2_500
    parts = [primes_below.remote(first, first + step) for first in range(0, 40_000, step)]
    total = ray.get(add.remote(*parts))

    waiting, seen = parts, 0
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1, timeout=30)
        seen += len(done)

    odd, even = split.remote("a b c d e")
    numbers = ray.put(list(range(1000)))
    nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    print(f"primes {total} parts {seen} split {ray.get(odd)} {ray.get(even)} last {ray.get(numbers)[-1]}")
    try:
        ray.get([checked.options(num_cpus=0.5).remote(number) for number in range(5)])
    except ValueError as error:
        print(f"nodes {len(nodes)} error {error.cause if hasattr(error, 'cause') else error}")
