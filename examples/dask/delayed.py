"""A tree of delayed calls: count words in parts of a text, then merge the counts."""

from collections import Counter

from dask import delayed
from distributed import Client

WORDS = "the quick brown fox jumps over the lazy dog while the slow fox sleeps".split()


@delayed
def load(part):
    return [WORDS[(part * 31 + i * 7) % len(WORDS)] for i in range(20_000)]


@delayed
def count(words):
    return Counter(words)


@delayed
def merge(counts):
    total = Counter()
    for one in counts:
        total.update(one)
    return total


if __name__ == "__main__":
    with Client() as client:
        counts = [count(load(part)) for part in range(16)]
        while len(counts) > 1:
            counts = [merge(counts[i : i + 4]) for i in range(0, len(counts), 4)]
        result = counts[0].compute()
        print("words", sum(result.values()), "most common", result.most_common(1)[0][0])
