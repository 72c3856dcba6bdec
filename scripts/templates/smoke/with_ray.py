"""What smoke.sh runs on a Ray cluster: each node computes."""

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init()


@ray.remote(num_cpus=0)
def node():
    return ray.get_runtime_context().get_node_id()


nodes = [entry["NodeID"] for entry in ray.nodes() if entry["Alive"]]
assert len(nodes) > 1, nodes
asked = [node.options(scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False)).remote() for name in nodes]
assert ray.get(asked) == nodes
print(f"smoke: all nodes take part: {len(nodes)} of Ray's", flush=True)
