"""Measurements that run in a process of Dask's environment: `dask_inside.py WHAT RESULT ARGUMENT...`."""

# Dask is imported by the functions that measure it; the rest is the standard library alone.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import ADDRESSES, LIMIT_S, ROOT, free_port, listens, now, wait_for

DASK = ROOT / ".venv" / "envs" / "dask" / "bin"
WORKERS = 3
# As the local backend shares a machine among its nodes.
THREADS = max(1, (os.cpu_count() or 1) // (WORKERS + 1))


def inside_bare(*options: str) -> dict[str, float]:
    """Start scheduler and workers as one would by hand, the workers with *options*."""
    from distributed import Client

    port, dashboard = free_port(ADDRESSES[0]), free_port(ADDRESSES[0])
    address = f"tcp://{ADDRESSES[0]}:{port}"
    serve = ["scheduler", "--host", ADDRESSES[0], "--port", port, "--dashboard-address", f"{ADDRESSES[0]}:{dashboard}"]
    share = ["--nthreads", THREADS, "--memory-limit", memory_share(), "--local-directory", Path.cwd(), *options]
    commands = [
        serve,
        *(["worker", address, "--host", host, "--name", host, *share] for host in ADDRESSES[1:]),
    ]
    began = now()
    scheduler, *workers = (subprocess.Popen([str(part) for part in (DASK / "dask", *command)]) for command in commands)
    # The client is told to connect when it can: its own attempts are up to half a second apart.
    wait_for(lambda: listens(ADDRESSES[0], port), "scheduler")
    with Client(address, set_as_default=False) as client:
        ready = wait_for(lambda: len(client.nthreads()) == WORKERS, "workers")
    ending = now()
    for group in (workers, [scheduler]):
        for process in group:
            process.terminate()
        for process in group:
            process.wait(LIMIT_S)
    return {"ready": ready - began, "end": now() - ending}


def inside_local() -> dict[str, float]:
    """Start a LocalCluster of processes."""
    from distributed import Client, LocalCluster

    began = now()
    cluster = LocalCluster(n_workers=WORKERS, processes=True, threads_per_worker=THREADS, memory_limit=memory_share())
    return until_closed(Client, cluster, began)


def inside_ssh(port: str, key: str) -> dict[str, float]:
    """Start an SSHCluster. On loopback only: its scheduler and workers would listen on all networks, to anyone."""
    import asyncssh  # noqa: F401 - imported already when the clock starts, as Dask is
    from distributed import Client, SSHCluster

    # Nothing of the user's own ssh; the host key is that of an sshd which this benchmark has just started.
    connect = {"port": int(port), "client_keys": [key], "known_hosts": None, "config": [], "agent_path": None}
    began = now()
    cluster = SSHCluster(
        ADDRESSES,
        connect_options=connect,
        scheduler_options={"host": ADDRESSES[0], "port": 0, "dashboard_address": f"{ADDRESSES[0]}:0"},
        worker_options={"nthreads": THREADS, "memory_limit": memory_share(), "host": ADDRESSES[0]},
        remote_python=str(DASK / "python"),
    )
    return until_closed(Client, cluster, began)


def until_closed(client_class: Any, cluster: Any, began: float) -> dict[str, float]:
    """Return what a cluster took, from *began*, until it had its workers, and then to close."""
    with client_class(cluster, set_as_default=False) as client:
        ready = wait_for(lambda: len(client.nthreads()) == WORKERS, "workers")
    ending = now()
    cluster.close()
    return {"ready": ready - began, "end": now() - ending}


def memory_share() -> int:
    """Return the bytes that the local backend gives to one node of so many."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (WORKERS + 1)


INSIDE: dict[str, Callable[..., dict[str, float]]] = {"bare": inside_bare, "local": inside_local, "ssh": inside_ssh}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(INSIDE[sys.argv[1]](*sys.argv[3:])))
