"""The ``local`` backend: nodes as process trees of this machine, with a runner in the place of the cloud service.

The runner is one process for each cluster. It starts the agents, keeps what they print, records their exit codes and
sweeps up after a node whose agent was killed. It decides nothing: the same agents run the same protocol everywhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oci_cluster import plan as planning
from oci_cluster.clusters import Cluster, find_clusters
from oci_cluster.errors import BackendError, ClusterError, ExitCode, NotPermittedError, SettingsError, UsageError
from oci_cluster.process import Children, Signals, sweep_marked
from oci_cluster.settings import node_dir, parse_duration

_RECORDS = "nodes.json"
_REQUEST = "scale.json"
_LOCK = "runner.lock"
# In the runner's environment, so that it can be found when nothing else is left of it.
_RUNNER_MARK = "CLUSTER_RUNNER"
# Node defaults that suit one machine: a look at a local file costs microseconds, and nobody pays for it.
LOCAL_DEFAULTS = {"POLL_CEILING": "0.2", "HEARTBEAT_INTERVAL": "2", "HEARTBEAT_TIMEOUT": "30"}
# How long the runner may take to have every agent started; far above the 0.1 s seen with 4 nodes.
_START_TIMEOUT_S = 60.0
_GRACE_PERIOD_S = 10.0


def state_dir(root: Path) -> Path:
    """Return where local clusters of the checkout *root* keep their files."""
    return root / ".clusters"


# --- Addresses and ports --------------------------------------------------------------------------------


def has_loopback_range() -> bool:
    """Return whether every 127.0.0.x is an address of this machine (Linux), not 127.0.0.1 alone (macOS)."""
    return sys.platform == "linux"


def port_is_free(address: str, port: int) -> bool:
    """Return whether *port* can be bound on *address*; a listener on all addresses takes it everywhere."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError:
            return False
    return True


class Addresses:
    """Loopback addresses that no other cluster of this machine has, whosever it is and from whichever checkout.

    Each is claimed by a socket in Linux's abstract namespace: the kernel knows of it as long as a process holds it, and
    no longer. Where 127.0.0.1 is the only address, nodes share it and nothing is claimed.
    """

    def __init__(self, count: int) -> None:
        """Claim *count* addresses, the lowest that are free.

        Raises:
            BackendError: the addresses do not suffice.
        """
        self._claims: list[socket.socket] = []
        self.texts: list[str] = []
        if not has_loopback_range():
            self.texts = ["127.0.0.1"] * count
            return
        for number in range(1, 255):
            if len(self.texts) == count:
                return
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0oci-cluster/127.0.0.{number}")
            except OSError:
                claim.close()
            else:
                self._claims.append(claim)
                self.texts.append(f"127.0.0.{number}")
        if len(self.texts) < count:
            free = len(self.texts)
            self.close()
            msg = f"{count} nodes do not fit: running clusters leave {free} addresses; end one: scripts/stop.sh"
            raise BackendError(msg)

    def __enter__(self) -> Addresses:
        """Hold the claims."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give them up, unless a child holds them too."""
        self.close()

    def close(self) -> None:
        """Give up the claims of this process."""
        for claim in self._claims:
            claim.close()

    def descriptors(self) -> list[int]:
        """Return what a child must inherit to hold the claims."""
        return [claim.fileno() for claim in self._claims]


def check_ports(address: str, ports: Mapping[str, int]) -> None:
    """Check that main's *ports*, by setting, are free on its *address*.

    Raises:
        SettingsError: somebody has one of them; names the setting that chooses another.
    """
    for name, port in ports.items():
        if not port_is_free(address, port):
            other = f"--env {name}={port + 100}"
            msg = f"port {port} of {address} is taken by another program; end it, or choose another port: {other}"
            raise SettingsError(msg)


# --- Submit ---------------------------------------------------------------------------------------------


def check(plan: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return *plan* as it would be run on this machine now, changing nothing.

    Raises:
        ClusterError: see :func:`place`.
    """
    with Addresses(len(plan["nodes"])) as addresses:
        return place(plan, root, addresses.texts)


def place(plan: Mapping[str, Any], root: Path, addresses: Sequence[str]) -> dict[str, Any]:
    """Return *plan* with what its nodes get on this machine: *addresses*, work dir, a share of CPUs and memory.

    Raises:
        UsageError: a cluster of that name runs.
        SettingsError: a port is taken, or the work dir is one that processes cannot share.
    """
    name = plan["name"]
    if any(cluster.name == name and is_running(cluster) for cluster in find_clusters(state_dir(root))):
        msg = f"a cluster named '{name}' is running; choose another --name, or end it: scripts/stop.sh {name}"
        raise UsageError(msg)
    work_dir = plan["work_dir"] or f"file://{state_dir(root)}"
    if work_dir.startswith("memory:"):
        msg = f"WORK_DIR {work_dir} is seen by one process only; use file:// or leave it unset"
        raise SettingsError(msg)
    check_ports(addresses[0], planning.ports(plan, root))
    directory = state_dir(root) if state_dir(root).exists() else root
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _not_writable(directory, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    cpus = max(1, (os.cpu_count() or 1) // len(plan["nodes"]))
    shares = {"NODE_CPUS": str(cpus), "NODE_MEMORY": str(_memory() // len(plan["nodes"]))}
    nodes = [
        {
            "node": node["node"],
            "environment": {**node["environment"], "NODE_NAME": node["node"], "NODE_ADDRESS": address},
        }
        for node, address in zip(plan["nodes"], addresses, strict=True)
    ]
    environment = {**LOCAL_DEFAULTS, **shares, **plan["environment"], "WORK_DIR": work_dir}
    return {**plan, "work_dir": work_dir, "nodes": nodes, "environment": environment}


def submit(plan: Mapping[str, Any], root: Path, python: Path) -> Cluster:
    """Start the cluster of *plan* and return it; on any failure nothing of it is left.

    Args:
        plan: As :func:`oci_cluster.plan.make_plan` returns it.
        root: The checkout.
        python: Interpreter of the framework's environment: its folder comes first on the nodes' PATH.

    Raises:
        ClusterError: what :func:`place` raises, or BackendError: no addresses, or the runner did not start.
    """
    with one_at_a_time(root), Addresses(len(plan["nodes"])) as addresses:
        placed = place(plan, root, addresses.texts)
        directory = state_dir(root) / placed["cluster_id"]
        try:
            directory.mkdir(mode=0o700)
            (directory / "logs").mkdir()
            (directory / "outputs").mkdir()
            body = json.dumps({**placed, "python": str(python)}, indent=2)
            descriptor = os.open(directory / "cluster.json", os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(body)
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise _not_writable(directory, error) from error
        cluster = Cluster(directory, placed)
        try:
            _start_runner(cluster, addresses.descriptors())
        except BaseException:  # Ctrl-C too: a cluster is started whole, or not at all
            kill(cluster)
            shutil.rmtree(directory, ignore_errors=True)
            raise
    return cluster


def _start_runner(cluster: Cluster, claims: Sequence[int]) -> None:
    with (cluster.directory / "logs" / "runner.log").open("ab") as output:
        runner = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "oci_cluster", "local-runner", str(cluster.directory)],
            env={**os.environ, _RUNNER_MARK: cluster.launch_id},
            cwd=cluster.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=claims,
            start_new_session=True,  # a Ctrl-C in this terminal is for the launcher, which ends the cluster in order
        )
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not _records(cluster)["nodes"]:
        if runner.poll() is not None or time.monotonic() > deadline:
            last = (cluster.directory / "logs" / "runner.log").read_text(errors="replace").strip().rpartition("\n")[2]
            msg = f"the nodes of {cluster.name} could not be started: {last or 'the runner did not answer'}"
            raise BackendError(msg)
        time.sleep(0.01)


# --- State ----------------------------------------------------------------------------------------------


def is_running(cluster: Cluster) -> bool:
    """Return whether runner or agents of *cluster* live: they share a lock for as long as they do, and no longer."""
    try:
        with (cluster.directory / _LOCK).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def state(cluster: Cluster) -> dict[str, Any]:
    """Return what became of each node: ``{"nodes": [{"node", "state", "exit_code", "pid"}]}``.

    States have the names that OCI Data Science uses: IN_PROGRESS, SUCCEEDED, FAILED, CANCELED. A node that is
    IN_PROGRESS in a cluster that does not run any more was killed together with its runner: no exit code, no success.
    """
    running = is_running(cluster)  # before the records: what ends in between has been recorded by then
    return {"nodes": _records(cluster)["nodes"], "running": running}


def node_names(cluster: Cluster) -> list[str]:
    """Return the nodes that *cluster* was launched with, then those that were added."""
    nodes = [*cluster.plan["nodes"], *_records(cluster)["nodes"]]
    return list(dict.fromkeys(str(node["node"]) for node in nodes))


def _records(cluster: Cluster) -> dict[str, Any]:
    for _ in range(100):
        try:
            return dict(json.loads((cluster.directory / _RECORDS).read_bytes()))
        except FileNotFoundError:
            break
        except ValueError:  # in the middle of being written
            time.sleep(0.01)
    return {"runner_pid": None, "nodes": []}


# --- Scale ----------------------------------------------------------------------------------------------


def scale(cluster: Cluster, text: str, root: Path, say: Callable[[str], None], *, most: int) -> int:
    """Add workers to *cluster*, or end some; return how many there are then.

    A lost worker's rank is given to its replacement. Those with the highest ranks are ended.

    Args:
        cluster: What was launched.
        text: ``+1``, ``-1`` or the number of workers.
        root: The checkout.
        say: Shows a line of progress.
        most: What this backend takes.

    Raises:
        UsageError: *cluster* has ended, or *text* cannot be.
        BackendError: no addresses are left, or the runner does not answer.
    """
    with one_at_a_time(root):
        records = _records(cluster)
        if not is_running(cluster):
            msg = f"{cluster.name} has ended; launch it again: scripts/launch.sh"
            raise UsageError(msg)
        running = [node["node"] for node in records["nodes"] if node["state"] == "IN_PROGRESS"]
        workers = sorted(planning.rank_of(node) for node in running if node.startswith("WORKER"))
        least = planning.least_workers(cluster.plan, root)
        wanted = planning.scaled_workers(text, len(workers), least=least, most=most)
        started = planning.free_ranks(node_names(cluster), running, wanted - len(workers))
        ended = workers[wanted:]
        answer = _ask_runner(cluster, {"start": started, "end": ended, "id": secrets.token_hex(8)})
        if answer.get("error"):
            raise BackendError(str(answer["error"]))
    for rank in started:
        say(f"WORKER_{rank} started")
    names = {f"WORKER_{rank}" for rank in ended}
    if names:
        say(f"ending {', '.join(sorted(names))}")
        deadline = time.monotonic() + _grace_period_s(cluster) + _GRACE_PERIOD_S
        while names & {n["node"] for n in _records(cluster)["nodes"] if n["state"] == "IN_PROGRESS"}:
            if time.monotonic() > deadline:
                msg = f"{', '.join(sorted(names))} did not end; end the whole cluster: scripts/stop.sh {cluster.name}"
                raise BackendError(msg)
            time.sleep(0.05)
    return wanted


def _ask_runner(cluster: Cluster, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave *request* for the runner, wake it, and return its answer."""
    import psutil  # noqa: PLC0415 - 20 ms that most verbs do not spend

    path = cluster.directory / _REQUEST
    try:
        path.with_suffix(".new").write_text(json.dumps(request))
        path.with_suffix(".new").replace(path)
    except OSError as error:
        raise _not_writable(path, error) from error
    try:
        runner = psutil.Process(_records(cluster)["runner_pid"])
        if runner.environ().get(_RUNNER_MARK) == cluster.launch_id:
            runner.send_signal(signal.SIGUSR1)
    except psutil.Error:
        pass  # it does not live, which its silence will say below
    deadline = time.monotonic() + _START_TIMEOUT_S
    while (answer := _records(cluster).get("answer") or {}).get("id") != request["id"]:
        if time.monotonic() > deadline or not is_running(cluster):
            msg = f"the runner of {cluster.name} does not answer; see {cluster.directory}/logs/runner.log"
            raise BackendError(msg)
        time.sleep(0.02)
    return answer


# --- Stop -----------------------------------------------------------------------------------------------


def stop(cluster: Cluster, say: Callable[[str], None], *, delete: bool = False) -> None:
    """Stop *cluster* and return when nothing of it runs; one that has ended is as good as stopped.

    First by the ``stop`` file, so that its nodes end in order; then by TERM to the runner, in the end by KILL.

    Args:
        cluster: What was launched.
        say: Shows a line of progress.
        delete: Remove its logs and outputs as well.
    """
    from oci_cluster.exchange import Exchange  # noqa: PLC0415 - the runner has no use for it
    from oci_cluster.follow import request_stop  # noqa: PLC0415

    patience_s = _grace_period_s(cluster) + _GRACE_PERIOD_S
    if is_running(cluster):
        say(f"stopping {cluster.name}")
        request_stop(Exchange(cluster.url, cluster.launch_id), terminate, cluster, "stopped by stop.sh")
        _wait_for_end(cluster, patience_s)
    if is_running(cluster):
        say(f"{cluster.name} has not ended by itself; ending its nodes")
        terminate(cluster)
        _wait_for_end(cluster, 2 * patience_s)
    kill(cluster)
    if delete:
        shutil.rmtree(cluster.directory)


def _wait_for_end(cluster: Cluster, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while is_running(cluster) and time.monotonic() < deadline:
        time.sleep(0.05)


def _grace_period_s(cluster: Cluster) -> float:
    return parse_duration(cluster.plan["environment"].get("GRACE_PERIOD", f"{_GRACE_PERIOD_S:g}"))


def kill(cluster: Cluster) -> None:
    """End what runs of *cluster* at once, the runner first: found by its environment, whatever ties it has lost."""
    sweep_marked({_RUNNER_MARK: cluster.launch_id})
    while sweep_marked({"LAUNCH_ID": cluster.launch_id}):
        time.sleep(0.05)
    for node in node_names(cluster):
        shutil.rmtree(node_dir(cluster.launch_id, node), ignore_errors=True)


def terminate(cluster: Cluster) -> None:
    """Tell the runner, if it lives, to end its nodes: TERM, their grace period, KILL."""
    if is_running(cluster) and (pid := _records(cluster)["runner_pid"]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


# --- The runner -----------------------------------------------------------------------------------------


def run_nodes(directory: Path) -> int:
    """Be the runner of the cluster in *directory*: start its nodes, wait for all, record how each ended."""
    cluster = Cluster.load(directory)
    with (directory / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return Runner(cluster, os.environ, lock.fileno()).run()


class Runner:
    """The nodes of one cluster, as their parent sees them."""

    def __init__(self, cluster: Cluster, environ: Mapping[str, str], lock: int) -> None:
        """Prepare to run the nodes of *cluster* in *environ* and what the plan adds to it, holding *lock*."""
        self._cluster = cluster
        self._lock = lock
        self._environ = environ
        self._children = Children()
        self._signals = Signals()
        self._nodes: list[dict[str, Any]] = []
        self._claims: list[Addresses] = []
        self._answer: dict[str, Any] = {}
        # Written in place, in blocks taken now: a full disk later cannot lose an exit code.
        self._size = 1024 + 256 * len(cluster.plan["nodes"])
        self._file = os.open(cluster.directory / _RECORDS, os.O_RDWR | os.O_CREAT, 0o600)

    def run(self) -> int:
        """Start the nodes, and return when the last has ended."""
        os.pwrite(self._file, b" " * self._size, 0)
        for node in self._cluster.plan["nodes"]:
            self._start(node["node"], node["environment"])
        self._record()
        told = False
        while any(node["state"] == "IN_PROGRESS" for node in self._nodes):
            if self._signals.received and not told:
                told = True
                self._end_all()
            self._signals.wait(3600)
            self._collect()
            if not told:
                self._scale()
        self._sweep({})
        return 0

    def _scale(self) -> None:
        """Do what a request that is new asks for, and answer it."""
        try:
            request = json.loads((self._cluster.directory / _REQUEST).read_bytes())
        except FileNotFoundError:
            return
        if request["id"] == self._answer.get("id"):
            return
        error = ""
        try:
            self._add([int(rank) for rank in request["start"]])
        except (ClusterError, OSError) as problem:
            error = str(problem)
        for node in self._nodes:
            if node["node"] in {f"WORKER_{rank}" for rank in request["end"]} and node["state"] == "IN_PROGRESS":
                os.kill(node["pid"], signal.SIGTERM)
        self._answer = {"id": request["id"], "error": error}
        self._record()

    def _add(self, ranks: Sequence[int]) -> None:
        # Room for their exit codes first.
        os.pwrite(self._file, b" " * 256 * len(ranks), self._size)
        self._size += 256 * len(ranks)
        claims = Addresses(len(ranks))
        self._claims.append(claims)  # held as long as this process lives
        for rank, address in zip(ranks, claims.texts, strict=True):
            name = f"WORKER_{rank}"
            self._nodes = [node for node in self._nodes if node["node"] != name]  # its predecessor
            self._start(name, {"MODE": "WORKER", "NODE_RANK": str(rank), "NODE_NAME": name, "NODE_ADDRESS": address})

    def _start(self, name: str, environment: Mapping[str, str]) -> None:
        directory = self._cluster.directory
        path = os.pathsep.join([str(Path(self._cluster.plan["python"]).parent), self._environ.get("PATH", os.defpath)])
        environ = {**self._environ, "PATH": path, **self._cluster.plan["environment"], **environment}
        environ.pop(_RUNNER_MARK, None)
        log_path = directory / "logs" / f"{name}.log"
        output = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            pid = self._children.start(
                [sys.executable, "-m", "oci_cluster", "agent"],
                environ=environ,
                cwd=directory,
                output=output,
                new_session=True,
                # Without its runner an agent ends its node in order, and the cluster counts as running until it has.
                parent_death_signal=signal.SIGTERM,
                pass_fds=[self._lock],
            )
        finally:
            os.close(output)
        address = environment["NODE_ADDRESS"]
        self._nodes.append({"node": name, "state": "IN_PROGRESS", "exit_code": None, "pid": pid, "address": address})

    def _collect(self) -> None:
        for node in self._nodes:
            if node["state"] != "IN_PROGRESS" or (code := self._children.code(node["pid"])) is None:
                continue
            # The agent is gone; so is, from now on, whatever it left.
            self._sweep({"NODE_NAME": node["node"]})
            shutil.rmtree(node_dir(self._cluster.launch_id, node["node"]), ignore_errors=True)
            states = {int(ExitCode.OK): "SUCCEEDED", int(ExitCode.STOPPED): "CANCELED"}
            node.update(exit_code=code, state=states.get(code, "FAILED"))
            self._record()

    def _end_all(self) -> None:
        # The agents' own grace, and time to tidy up.
        deadline = time.monotonic() + _grace_period_s(self._cluster) + _GRACE_PERIOD_S
        running = [node["pid"] for node in self._nodes if self._children.code(node["pid"]) is None]
        for pid in running:
            os.kill(pid, signal.SIGTERM)
        while any(self._children.code(pid) is None for pid in running) and time.monotonic() < deadline:
            self._signals.wait(1.0)
        for pid in running:
            if self._children.code(pid) is None:
                os.kill(pid, signal.SIGKILL)

    def _sweep(self, marks: Mapping[str, str]) -> None:
        while sweep_marked({"LAUNCH_ID": self._cluster.launch_id, **marks}):
            self._signals.wait(0.05)
            self._children.reap()

    def _record(self) -> None:
        record = {"runner_pid": os.getpid(), "nodes": self._nodes, "answer": self._answer}
        os.pwrite(self._file, json.dumps(record).encode().ljust(self._size), 0)


def _not_writable(path: Path, error: OSError) -> BackendError | NotPermittedError:
    refused = error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}
    advice = "allow writing there" if refused else "make room there"
    kind = NotPermittedError if refused else BackendError
    return kind(f"{path} cannot be written: {error.strerror}; {advice}")


def _memory() -> int:
    """Return this machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def one_at_a_time(root: Path) -> Iterator[None]:
    """Hold a lock: of two launches at once, the second must see the name of the first."""
    try:
        state_dir(root).mkdir(exist_ok=True)
        lock = (state_dir(root) / ".lock").open("w")
    except OSError as error:
        raise _not_writable(state_dir(root), error) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
