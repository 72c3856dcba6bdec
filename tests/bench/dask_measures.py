"""What is measured of Dask's clusters, one round at a time."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from dask_inside import DASK, WORKERS
from launching import AGENT_STARTS, launch
from processes import LIMIT_S, ROOT, MeasureError, Scratch, finish, started, tail, wait_for

ENTRY = f"""\
import time
first = time.clock_gettime(time.CLOCK_BOOTTIME)
{AGENT_STARTS}
import json, sys
from pathlib import Path
agents = agent_starts()
time.sleep(1)  # longer than nodes are young: they look for the end as seldom as they ever will
last = time.clock_gettime(time.CLOCK_BOOTTIME)
Path(sys.argv[1]).write_text(json.dumps(dict(first=first, last=last, agents=agents)))
"""
SLEEPING_MAIN = """\
#!/usr/bin/env bash
: >"${READY_FILE}"
sleep 3
"""
SLEEPING_WORKER = """\
#!/usr/bin/env bash
exec sleep 60
"""


def measure_launch(scratch: Scratch) -> dict[str, float]:
    """Launch a cluster for an entry point that sleeps for a second."""
    done = launch(scratch, "dask", WORKERS, ENTRY, ports=("SCHEDULER_PORT", "DASHBOARD_PORT"))
    first, last = done.seen["first"], done.seen["last"]
    return {"typed": first - done.typed, "agents": first - done.agents, "end": done.gone - last}


def measure_inside(what: str, scratch: Scratch, *arguments: str, **more: str) -> dict[str, float]:
    """Measure in a fresh process of Dask's environment: one of ``dask_inside.INSIDE``."""
    folder = Path(tempfile.mkdtemp(dir=scratch.directory))
    result, log = folder / "result.json", folder / "log"
    command = [DASK / "python", Path(__file__).resolve().with_name("dask_inside.py"), what, str(result), *arguments]
    with started(command, scratch.environ(**more), log) as process:
        finish(process, what, log)
    return {key: float(value) for key, value in json.loads(result.read_text()).items()}


def measure_agents(scratch: Scratch, project: Path) -> dict[str, float]:
    """Run the agents of a main and one worker, both for the 3 s that main's start script sleeps."""
    work_dir = Path(tempfile.mkdtemp(dir=scratch.directory))
    common = scratch.environ(
        PYTHONPATH=str(project / "common"),
        FRAMEWORK="sleeping",
        WORK_DIR=f"file://{work_dir}",
        CLUSTER_ID="agents",
        LAUNCH_ID=secrets.token_hex(4),
        WORKER_COUNT="1",
        CLUSTER_TLS="1",
        ENTRY_POINT="entry.py",
        CODE_DIR=str(project),
        NODE_ADDRESS="127.0.0.1",
        POLL_CEILING="0.1",  # this and the interval as the local backend has them
        HEARTBEAT_INTERVAL="2",
        TIMEOUT=f"{LIMIT_S:g}",
    )
    log = work_dir / "log"
    command = [ROOT / ".venv" / "bin" / "python", "-m", "oci_cluster", "agent"]
    found = {}
    with (
        started(command, {**common, "MODE": "MAIN", "NODE_RANK": "0"}, log) as main,
        started(command, {**common, "MODE": "WORKER", "NODE_RANK": "1"}, log) as worker,
    ):
        for role, process in (("main", main), ("worker", worker)):
            usage = wait4(process, log)
            found[f"{role}_cpu"] = usage.ru_utime + usage.ru_stime
            found[f"{role}_mb"] = usage.ru_maxrss * 1024 / 1e6  # the kernel counts in KiB
    return found


def wait4(process: subprocess.Popen[bytes], log: Path) -> Any:
    """Return the resource usage of *process*, and of what it waited for, over its whole life."""
    status, usage = 0, None

    def has_ended() -> bool:
        nonlocal status, usage
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        return pid != 0

    wait_for(has_ended, "end of the agent", step_s=0.05)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        msg = f"the agent ended with {process.returncode}:\n{tail(log)}"
        raise MeasureError(msg)
    return usage


def make_sleeping_project(directory: Path) -> Path:
    """Return a copy of the project that has one framework, whose nodes do nothing."""
    project = directory / "project"
    shutil.copytree(ROOT / "common", project / "common")
    (project / "sleeping").mkdir()
    for name, text in (("start-master.sh", SLEEPING_MAIN), ("start-worker.sh", SLEEPING_WORKER)):
        script = project / "sleeping" / name
        script.write_text(text)
        script.chmod(0o755)
    (project / "entry.py").touch()
    return project
