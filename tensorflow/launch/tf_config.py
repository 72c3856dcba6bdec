"""Prints this node's task of TensorFlow's cluster, from what the agent gives start scripts.

stdout: TF_CONFIG on the first line; on the others what READY_FILE tells of the cluster. With exit code 78 it is one
line instead: why the cluster cannot be.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

BAD_SETTINGS = 78
JOBS = {"MAIN": "chief", "WORKER": "worker", "PS": "ps"}


def main() -> int:
    try:
        print_task(os.environ)
    except ValueError as error:
        sys.stdout.write(f"{error}\n")
        return BAD_SETTINGS
    return 0


def print_task(environ: Mapping[str, str]) -> None:
    """Print the task that *environ* makes of this node; ValueError where it makes none."""
    addresses = addresses_of(environ)
    ports = ports_of(addresses, environ["TASK_PORT"])
    job, index = task_of(environ, addresses)
    check_port(ports[job][index], environ)
    cluster = {name: targets(hosts, ports[name]) for name, hosts in addresses.items() if hosts}
    lines = [
        json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}),
        f"chief={environ['MAIN_ADDRESS']}:{environ['TASK_PORT']}",
        "tasks=" + ", ".join(f"{len(hosts)} {name}" for name, hosts in addresses.items()),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def addresses_of(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the addresses of all tasks by job; main's is the first."""
    main, workers = [environ["MAIN_ADDRESS"]], split(environ["WORKER_ADDRESSES"])
    servers = split(environ.get("PS_ADDRESSES", ""))
    # Without parameter servers all tasks train alike, and are workers, as in TensorFlow's tutorials: scripts count the
    # replicas as len(cluster["worker"]). Worker 0, which is main, does what a chief does.
    return {"chief": main, "worker": workers, "ps": servers} if servers else {"worker": main + workers}


def split(text: str) -> list[str]:
    return text.split(",") if text else []


def ports_of(addresses: Mapping[str, Sequence[str]], first: str) -> dict[str, list[int]]:
    """Return each task's port, by job in the order of *addresses*; main's is *first*.

    TensorFlow binds a task's port on all addresses of its machine, so tasks that share one need a port each. Tasks on
    loopback addresses do: a port is as far from main's as the address is, so that it stays the node's own when the gang
    starts again with others. Tasks that share an address have one port after the other.
    """
    main = loopback_number(next(iter(addresses.values()))[0])
    at_address: Counter[str] = Counter()
    ports: dict[str, list[int]] = {}
    for job, hosts in addresses.items():
        ports[job] = []
        for host in hosts:
            number = loopback_number(host)
            distance = number - main if number is not None and main is not None else 0
            ports[job].append(int(first) + distance + at_address[host])
            at_address[host] += 1
    return ports


def targets(hosts: Sequence[str], ports: Sequence[int]) -> list[str]:
    """Return the tasks' places as gRPC takes them: an IPv6 address stands in brackets."""
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]


def loopback_number(address: str) -> int | None:
    """Return 1 for 127.0.0.1, 257 for 127.0.1.1; None for other addresses."""
    match = re.fullmatch(r"127\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})", address)
    return int(match[1]) * 65536 + int(match[2]) * 256 + int(match[3]) if match else None


def task_of(environ: Mapping[str, str], addresses: Mapping[str, Sequence[str]]) -> tuple[str, int]:
    """Return this node's job and index; ValueError where that is another node's."""
    job, index = JOBS[environ["MODE"]], int(environ["ROLE_INDEX"])
    if "ps" not in addresses:
        job, index = "worker", index + (job == "worker")  # behind main
    address = addresses[job][index] if index < len(addresses[job]) else ""
    if address != environ["NODE_ADDRESS"]:
        # The others would wait for it for ever.
        raise ValueError(f"{job} {index} (ROLE_INDEX) has address '{address}', this node has {environ['NODE_ADDRESS']}")
    return job, index


def check_port(port: int, environ: Mapping[str, str]) -> None:
    """Raise ValueError where *port* is taken: TensorFlow says so late, without its number."""
    first, node = int(environ["TASK_PORT"]), environ["NODE_NAME"]
    if not 1 <= port <= 65535:
        raise ValueError(
            f"TASK_PORT {first} leaves no port for {node}: {port} is none; choose another: --env TASK_PORT=12345"
        )
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise ValueError(
            f"port {port} of {node}: {why}; end what has it, or choose another: --env TASK_PORT={first + 100}"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
