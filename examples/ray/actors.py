"""Actors: a counter with a name, a pool of workers that keep state, an asynchronous one."""

import asyncio

import ray
from ray.util import ActorPool

ray.init()


@ray.remote
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, amount):
        self.value += amount
        return self.value

    def read(self):
        return self.value


@ray.remote
class Squares:
    def __init__(self):
        self.done = 0

    def square(self, number):
        self.done += 1
        return number * number

    def how_many(self):
        return self.done


@ray.remote
class Greeter:
    async def greet(self, name):
        await asyncio.sleep(0.05)
        return f"hello {name}"


@ray.remote
def count_up(times):
    counter = ray.get_actor("counter")
    ray.get([counter.add.remote(1) for _ in range(times)])


counter = Counter.options(name="counter", num_cpus=0).remote()
ray.get([count_up.remote(20) for _ in range(5)])

squares = [Squares.options(num_cpus=0.1, scheduling_strategy="SPREAD").remote() for _ in range(3)]
pool = ActorPool(squares)
total = sum(pool.map_unordered(lambda actor, number: actor.square.remote(number), range(30)))
done = sum(ray.get([actor.how_many.remote() for actor in squares]))

greeter = Greeter.options(max_concurrency=10, num_cpus=0).remote()
greetings = ray.get([greeter.greet.remote(name) for name in ("Ada", "Grace")])
print(f"counter {ray.get(counter.read.remote())} squares {total} done {done} {greetings}")
