"""What the nodes of the ladder may cost at most: so many minutes of them, at the list price of their shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# US dollars for an hour of one OCPU, and of one GB of memory. Source: https://www.oracle.com/cloud/price-list/, written
# down in November 2026 from memory, without a look at the page: `--price-per-hour` takes your own price instead.
LIST_PRICES = {
    "VM.Standard2.": (0.0638, 0.0),
    "VM.Standard3.Flex": (0.04, 0.0015),
    "VM.Standard.E4.Flex": (0.025, 0.0015),
    "VM.Standard.E5.Flex": (0.03, 0.002),
}
# For one GB of block storage; likewise, $0.0425 a month at the balanced performance.
STORAGE_PER_HOUR = 0.0425 / 730
# The service itself ends a run then; see NODES.
MINUTES = 10
# How many nodes each rung starts.
NODES: Mapping[str, int] = {"reads": 0, "one": 5, "two": 2, "groups": 6}
# How long the service may take to start nodes, chosen as the launcher's own limit on OCI. That time costs nothing here,
# which is a guess; so the bound on money counts it too.
PROVISIONING_MINUTES = 30


def price_of(shape: str, ocpus: float, memory_gbs: float) -> float | None:
    """Return the list price of one node for an hour, in US dollars; None where it is not known."""
    for name, (per_ocpu, per_gb) in LIST_PRICES.items():
        if shape == name or (name.endswith(".") and shape.startswith(name)):
            count = ocpus or (float(shape.rpartition(".")[2]) if shape.rpartition(".")[2].isdigit() else 0.0)
            return count * per_ocpu + memory_gbs * per_gb
    return None


def bound(rungs: Sequence[str], settings: Mapping[str, Any], price_per_hour: float) -> str:
    """Return what the *rungs* may take and cost at most, in words."""
    nodes = sum(NODES[rung] for rung in rungs)
    hours = nodes * (MINUTES + PROVISIONING_MINUTES) / 60
    storage = hours * settings["storage_gbs"] * STORAGE_PER_HOUR
    minutes = sum((MINUTES + PROVISIONING_MINUTES) * (2 if rung == "one" else 1) for rung in rungs if NODES[rung])
    shape = settings["shape"] + (f" ({settings['ocpus']} OCPUs, {settings['memory_gbs']} GB)" * bool(settings["ocpus"]))
    return (
        f"at most {nodes} nodes of {shape}, {MINUTES} minutes each, {max(1, minutes)} minutes in all;"
        f" at most ${hours * price_per_hour + storage:.2f}, with ${price_per_hour:.4f} for a node and hour and the time"
        " to start it"
    )
