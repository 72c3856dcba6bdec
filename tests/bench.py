"""Measure how a local Dask cluster starts and ends, beside bare Dask, LocalCluster and SSHCluster: `make bench`.

Every round measures all of them once, in an order that rotates, with the same environment .venv/envs/dask and the
same shape: a scheduler and three workers with nannies. The table shows medians of the rounds.

All moments are CLOCK_BOOTTIME, which every process of a machine shares: what a process writes down itself compares to
what the kernel says of another one's start (/proc/<pid>/stat, in steps of 10 ms). Linux only, therefore.

    launch.sh   from before it is started, and from the start of the first of the cluster's agents; its end until it has
                returned and no process is left that inherited its environment. The entry point writes down its own
                first and last moment.
    bare        `dask scheduler` and three `dask worker`, started at once, until a client in a process that has
                imported Dask before sees three workers; then TERM to the workers, then to the scheduler, until all
                have ended. Limits compare with workers that have --no-dashboard, as ours: those are faster.
    LocalCluster, SSHCluster
                from the call until a client sees three workers; then until close() has returned. SSHCluster goes
                through an sshd of this benchmark's own, on loopback, with keys that are thrown away.
    agent       main and worker of a cluster whose start scripts only sleep, each for its whole life of 3 s. CPU and
                memory are the kernel's (wait4), the start script's included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Dask is imported by the functions that run inside its environment; the rest is the standard library alone.
# ruff: noqa: PLC0415

ROOT = Path(__file__).resolve().parent.parent
DASK = ROOT / ".venv" / "envs" / "dask" / "bin"
WORKERS = 3
ADDRESSES = [f"127.0.0.{number}" for number in range(1, WORKERS + 2)]
# As the local backend shares a machine among its nodes.
THREADS = max(1, (os.cpu_count() or 1) // (WORKERS + 1))
# In the environment of all that is started here, so that nothing of it stays.
MARK = "OCI_CLUSTER_BENCH"
# Far above what was ever seen (15 s); what takes longer hangs.
LIMIT_S = 60.0
# What others may take of the machine for seconds to mean something.
QUIET = 0.1
ASYNCSSH = ("asyncssh==2.24.1", "typing_extensions==4.15.0")

# The design's numbers.
MOST_TYPED_S = 3.0
MOST_TIMES_BARE = 1.5
MOST_END_S = 1.0
MOST_AGENT_CPU_S = 0.25
MOST_AGENT_MB = 45.0

ENTRY = """\
import time
first = time.clock_gettime(time.CLOCK_BOOTTIME)
import json, os, sys
from pathlib import Path
launch_id = os.environ["LAUNCH_ID"]
starts = []
for process in Path("/proc").glob("[0-9]*"):
    try:
        if b"oci_cluster\\0agent\\0" in (process / "cmdline").read_bytes():
            if f"LAUNCH_ID={launch_id}".encode() in (process / "environ").read_bytes().split(b"\\0"):
                ticks = int((process / "stat").read_text().rpartition(")")[2].split()[19])
                starts.append(ticks / os.sysconf("SC_CLK_TCK"))
    except OSError:
        pass
time.sleep(1)  # longer than nodes are young: they look for the end as seldom as they ever will
last = time.clock_gettime(time.CLOCK_BOOTTIME)
Path(sys.argv[1]).write_text(json.dumps({"first": first, "last": last, "agents": starts, "launch_id": launch_id}))
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


class MeasureError(Exception):
    """Something could not be measured."""


def now() -> float:
    """Return seconds since boot, the clock that the kernel notes a process's start by."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# --- Processes, none of which may stay ------------------------------------------------------------------


@dataclass
class Scratch:
    """Where a run of the benchmark keeps its files, and the mark that its processes bear."""

    directory: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    def environ(self, **more: str) -> dict[str, str]:
        """Return the environment for a process: the user's, less what would make one side slower than it is."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # a checkout that was just edited would be compiled at every start
        return {**kept, MARK: self.mark, **more}

    def processes(self) -> list[int]:
        """Return the processes that bear the mark; one that has ended and waits to be reaped does not count."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    def end_all(self) -> int:
        """Kill what still bears the mark; return how many processes that were."""
        killed: set[int] = set()
        while left := self.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(left)
            time.sleep(0.02)
        return len(killed)


@contextlib.contextmanager
def started(command: Sequence[str | Path], environ: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start *command* out of reach of this terminal's Ctrl-C; if it runs at the end, TERM, and KILL after 20 s."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            env=dict(environ),
            cwd=log.parent,  # never the checkout: its folder dask/ would pass for the package
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def finish(process: subprocess.Popen[bytes], what: str, log: Path) -> None:
    """Wait until *process* has ended well; else raise with its last words."""
    try:
        code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        code = None
    if code != 0:
        how = f"did not end within {LIMIT_S:g} s" if code is None else f"ended with {code}"
        msg = f"{what} {how}:\n{tail(log)}"
        raise MeasureError(msg)


def tail(log: Path) -> str:
    """Return the last lines of *log*."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def wait_for(look: Callable[[], bool], what: str, step_s: float = 0.005) -> float:
    """Return the moment at which *look* succeeded."""
    deadline = now() + LIMIT_S
    while not look():
        if now() > deadline:
            msg = f"no {what} within {LIMIT_S:g} s"
            raise MeasureError(msg)
        time.sleep(step_s)
    return now()


def free_port(address: str) -> int:
    """Return a port that nobody has on *address*, now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def listens(address: str, port: int) -> bool:
    """Return whether somebody takes connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


# --- What is measured -----------------------------------------------------------------------------------


def measure_launch(scratch: Scratch) -> dict[str, float]:
    """Launch a cluster for an entry point that sleeps for a second."""
    name = f"bench-{secrets.token_hex(3)}"
    folder = Path(tempfile.mkdtemp(dir=scratch.directory))
    entry, result, log = folder / "entry.py", folder / "result.json", folder / "log"
    entry.write_text(ENTRY)
    ports = [f"{setting}={free_port(ADDRESSES[0])}" for setting in ("SCHEDULER_PORT", "DASHBOARD_PORT")]
    options = ["--name", name, "--entry", entry, "--env", ports[0], "--env", ports[1], "--", result]
    environ = scratch.environ(BACKEND="local")
    typed = now()
    try:
        with started([ROOT / "scripts" / "launch.sh", "dask", str(WORKERS), *options], environ, log) as process:
            finish(process, "launch.sh", log)
            returned = now()
            gone = wait_for(lambda: not scratch.processes(), "end of the cluster's processes")
            seen = json.loads(result.read_text())
    finally:
        # In order while it runs, as after a Ctrl-C; a cluster that has ended only loses its files here.
        with started([ROOT / "scripts" / "stop.sh", "--delete", name], environ, log) as process:
            process.wait(LIMIT_S)
    if len(seen["agents"]) != WORKERS + 1:
        msg = f"expected {WORKERS + 1} agents of launch {seen['launch_id']}, found {len(seen['agents'])}"
        raise MeasureError(msg)
    return {
        "typed": seen["first"] - typed,
        "agents": seen["first"] - min(seen["agents"]),
        "end": max(returned, gone) - seen["last"],
    }


def measure_inside(what: str, scratch: Scratch, *arguments: str, **more: str) -> dict[str, float]:
    """Measure in a fresh process of Dask's environment: one of the functions ``inside_*``."""
    folder = Path(tempfile.mkdtemp(dir=scratch.directory))
    result, log = folder / "result.json", folder / "log"
    command = [DASK / "python", Path(__file__).resolve(), "--inside", what, str(result), *arguments]
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
        POLL_CEILING="0.25",  # this and the interval as the local backend has them
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


# --- In a process of Dask's environment -----------------------------------------------------------------


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


# --- SSH ------------------------------------------------------------------------------------------------


@dataclass
class SshServer:
    """An sshd of the benchmark's own; what runs in its sessions bears the mark of *sessions*."""

    process: subprocess.Popen[bytes]
    sessions: Scratch
    port: int
    key: Path
    packages: Path

    def measure(self, scratch: Scratch) -> dict[str, float]:
        """Measure SSHCluster, and end what it leaves behind."""
        try:
            found = measure_inside("ssh", scratch, str(self.port), str(self.key), PYTHONPATH=str(self.packages))
            time.sleep(1)  # what is on its way out is not left behind
        finally:
            left = self.sessions.end_all()
            wait_for(lambda: not children(self.process.pid), "end of the ssh sessions", step_s=0.02)
        return {**found, "left": left}


@contextlib.contextmanager
def ssh_server(directory: Path) -> Iterator[SshServer]:
    """Run an sshd on loopback that takes one new key.

    Raises:
        MeasureError: there is no sshd, no asyncssh, or they do not work together here.
    """
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    keygen = shutil.which("ssh-keygen")
    if not sshd or not keygen:
        msg = "there is no sshd on this machine; on Debian: apt-get install openssh-server"
        raise MeasureError(msg)
    packages = install_asyncssh(directory / "packages")
    for name in ("host", "key"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", directory / name], check=True)
    privileges = Path("/run/sshd")  # sshd run by root wants this folder; a service manager would make it
    made = os.geteuid() == 0 and not privileges.exists()
    if made:
        privileges.mkdir(mode=0o755)
    sessions, port, log = Scratch(directory), free_port(ADDRESSES[0]), directory / "log"
    config = directory / "sshd_config"
    config.write_text(
        "".join(f"ListenAddress {address}:{port}\n" for address in ADDRESSES)
        + f"HostKey {directory}/host\nAuthorizedKeysFile {directory}/key.pub\nSetEnv {MARK}={sessions.mark}\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != MARK}
    try:
        with started([sshd, "-D", "-e", "-f", config], environ, log) as process:
            wait_for(lambda: listens(ADDRESSES[0], port) or process.poll() is not None, "sshd")
            if process.poll() is not None:
                msg = f"{sshd} does not run here: {tail(log)}"
                raise MeasureError(msg)
            try:
                yield SshServer(process, sessions, port, directory / "key", packages)
            finally:
                sessions.end_all()
    finally:
        if made:
            privileges.rmdir()


def install_asyncssh(directory: Path) -> Path:
    """Install what SSHCluster needs beside Dask's environment, never into it; return the folder."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    uv = ["uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", str(DASK / "python")]
    errors = []
    for install in (pip, uv):
        try:
            done = subprocess.run(
                [*install, "--no-deps", "--target", str(directory), *ASYNCSSH],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=2 * LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            errors.append(str(error))
            continue
        if done.returncode == 0:
            return directory
        errors.append(done.stderr.strip().rpartition("\n")[2])
    msg = f"{ASYNCSSH[0]} could not be installed: {'; '.join(errors)}"
    raise MeasureError(msg)


def children(pid: int) -> list[int]:
    """Return the children of process *pid*."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


# --- Report ---------------------------------------------------------------------------------------------


@dataclass
class Samples:
    """All that was measured, round by round, by figure; and what was not, with the reason."""

    values: dict[str, list[float]] = field(default_factory=dict)
    not_measured: dict[str, str] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)
    """What others took of this machine, looked at between measurements; 0 to 1."""

    def add(self, what: str, found: Mapping[str, float]) -> None:
        """Add one round of *what*."""
        for key, value in found.items():
            self.values.setdefault(f"{what}.{key}", []).append(value)

    def median(self, figure: str) -> float | None:
        """Return the median of *figure*, None where it was not measured."""
        return statistics.median(self.values[figure]) if figure in self.values else None


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    label: str
    figure: str
    unit: str = "s"
    to_bare: str = ""
    """The figure of bare Dask that this one is compared with."""
    limit: float | None = None
    limit_text: str = ""


def rows(samples: Samples) -> list[Row]:
    """Return the table's lines, with the limits that follow from this very run."""
    bare, ssh = samples.median("bare.ready"), samples.median("ssh.ready")
    first = "first agent started -> entry point's first line"
    table = [
        Row("launch.sh typed -> entry point's first line", "launch.typed", "s", "bare.ready", MOST_TYPED_S, "design"),
        Row(first, "launch.agents", "s", "bare.ready", bare and MOST_TIMES_BARE * bare, f"{MOST_TIMES_BARE:g} x bare"),
        Row("  the same, against SSHCluster", "launch.agents", "s", "bare.ready", ssh, "SSHCluster"),
        Row("entry point's end -> all gone, launch.sh back", "launch.end", "s", "bare.end", MOST_END_S, "design"),
        Row(f"bare scheduler + {WORKERS} workers -> all there", "bare.ready", "s", "bare.ready"),
        Row("  TERM -> all gone", "bare.end", "s", "bare.end"),
        Row("bare, each worker with a dashboard -> all there", "default.ready", "s", "bare.ready"),
        Row("  TERM -> all gone", "default.end", "s", "bare.end"),
        Row(f"LocalCluster({WORKERS}) -> all there", "local.ready", "s", "bare.ready"),
        Row("  close() -> back", "local.end", "s", "bare.end"),
        Row(f"SSHCluster, {WORKERS} workers -> all there", "ssh.ready", "s", "bare.ready"),
        Row("  close() -> back", "ssh.end", "s", "bare.end"),
        Row("  processes that it leaves running", "ssh.left", ""),
    ]
    for role in ("main", "worker"):
        table.append(Row(f"agent of a {role}: CPU", f"agent.{role}_cpu", "s", "", MOST_AGENT_CPU_S, "design"))
        table.append(Row(f"agent of a {role}: memory", f"agent.{role}_mb", "MB", "", MOST_AGENT_MB, "design"))
    return table


def describe(row: Row, samples: Samples) -> dict[str, Any]:
    """Return *row* with its numbers."""
    values, median = samples.values.get(row.figure, []), samples.median(row.figure)
    bare = samples.median(row.to_bare)
    return {
        "label": row.label,
        "figure": row.figure,
        "unit": row.unit,
        "median": median,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "to_bare": median / bare if median is not None and bare else None,
        "limit": row.limit,
        "limit_from": row.limit_text,
        "holds": None if median is None or row.limit is None else median < row.limit,
        "rounds": values,
    }


def show(report: Mapping[str, Any]) -> None:
    """Print the table."""
    width = max(len(row["label"]) for row in report["rows"])
    print(f"{'':<{width}}  {'median':>8}  {'min - max':<15} {'x bare':>6}  {'limit':<22} holds")
    for row in report["rows"]:
        digits = {"s": 3, "MB": 1, "": 0}[row["unit"]]
        if row["median"] is None:
            print(f"{row['label']:<{width}}  NOT MEASURED")
            continue
        median = f"{row['median']:.{digits}f} {row['unit']:<2}"
        spread = f"{row['min']:.{digits}f} - {row['max']:.{digits}f}"
        ratio = "" if row["to_bare"] is None else f"{row['to_bare']:.2f}"
        limit = "" if row["limit"] is None else f"< {row['limit']:.{digits}f} {row['unit']} ({row['limit_from']})"
        holds = {None: "", True: "yes", False: "NO"}[row["holds"]]
        print(f"{row['label']:<{width}}  {median:>8}  {spread:<15} {ratio:>6}  {limit:<22} {holds}".rstrip())
    for what, reason in report["not_measured"].items():
        print(f"\nNOT MEASURED: {what}: {reason}")


def say(text: str) -> None:
    """Show a line of progress, on stderr."""
    sys.stderr.write(f"bench.py: {text}\n")
    sys.stderr.flush()


# --- Run ------------------------------------------------------------------------------------------------


def busy_share(seconds: float = 0.3) -> float:
    """Return the part of this machine's CPU time that is used while nothing of the benchmark runs, 0 to 1."""

    def look() -> tuple[int, int]:
        times = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(times), times[3] + times[4]  # idle, and waiting for a disk

    total, idle = look()
    time.sleep(seconds)
    total_after, idle_after = look()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def measure(rounds: int, scratch: Scratch, stack: contextlib.ExitStack) -> Samples:
    """Measure everything once without counting it, then *rounds* times."""
    samples = Samples()
    project = make_sleeping_project(scratch.directory)
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "launch": lambda: measure_launch(scratch),
        "bare": lambda: measure_inside("bare", scratch, "--no-dashboard"),
        "default": lambda: measure_inside("bare", scratch),
        "local": lambda: measure_inside("local", scratch),
        "agent": lambda: measure_agents(scratch, project),
    }
    try:
        folder = scratch.directory / "ssh"
        folder.mkdir()
        server = stack.enter_context(ssh_server(folder))
        server.measure(scratch)
    except MeasureError as error:
        samples.not_measured["SSHCluster"] = str(error)
        say(f"NOT MEASURED: SSHCluster: {error}")
    else:
        parts["ssh"] = lambda: server.measure(scratch)
    names = list(parts)
    for number in range(rounds + 1):
        order = names[number % len(names) :] + names[: number % len(names)]
        for name in order:
            samples.busy.append(busy_share())
            found = parts[name]()
            if number:
                samples.add(name, found)
            shown = ", ".join(f"{key} {value:.2f}" for key, value in found.items())
            say(f"{f'round {number} of {rounds}' if number else 'not counted'}: {name}: {shown}")
    return samples


def prepare() -> None:
    """Make the environments unless they are there."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "common"), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "oci_cluster", "prepare", "dask"], env=environ, stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        msg = "the environment of dask could not be made; see above"
        raise MeasureError(msg)


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    version = subprocess.run(
        [DASK / "python", "-c", "import importlib.metadata as m; print(m.version('distributed'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "distributed": version.stdout.strip(),
    }


def main() -> int:
    """Measure, print the table; 0 when everything but SSHCluster could be measured, whatever came out."""
    parser = argparse.ArgumentParser(description="Measure start and end of a local Dask cluster beside bare Dask.")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default: 7)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there, too")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds must be 1 or more, got {args.rounds}")
    if sys.platform != "linux":
        parser.exit(1, "bench.py: this reads /proc; it needs Linux\n")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        prepare()
        report: dict[str, Any] = machine()
        with tempfile.TemporaryDirectory(prefix="bench-") as directory, contextlib.ExitStack() as stack:
            scratch = Scratch(Path(directory))
            stack.callback(scratch.end_all)
            samples = measure(args.rounds, scratch, stack)
    except MeasureError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; nothing of it is left running")
        return 130
    report["busy"] = statistics.mean(samples.busy)
    report["not_measured"] = samples.not_measured
    report["rows"] = [describe(row, samples) for row in rows(samples)]
    print(
        f"distributed {report['distributed']}, Python {report['python']}, {report['cpus']} CPUs, of which others took"
        f" {report['busy']:.0%}; {args.rounds} rounds"
    )
    if report["busy"] > QUIET:
        print("NOT QUIET: seconds say little on a busy machine; ratios still do")
    print()
    show(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        Path(sys.argv[3]).write_text(json.dumps(INSIDE[sys.argv[2]](*sys.argv[4:])))
    else:
        sys.exit(main())
