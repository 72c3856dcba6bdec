"""The backend ``local``: nodes as process trees of this machine, under a runner.

The runner is one process for each cluster. It starts the agents, keeps what they print, records their exit codes and
sweeps up after a node whose agent was killed. It decides nothing: the same agents run the same protocol everywhere.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from oci_cluster.backends.archive import write_plan
from oci_cluster.backends.base import Backend, DirectConnection, IsStopped, LogsInPlace
from oci_cluster.backends.local import records
from oci_cluster.backends.local.addresses import Addresses, Ports
from oci_cluster.backends.local.gpus import SETTING, check_left, share_out
from oci_cluster.contract.cluster import (
    FILE,
    Cluster,
    Node,
    NodeState,
    Plan,
    State,
    clusters_dir,
    kept_clusters,
    limits_of,
)
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import node_dirs, rank_of, remove_node_dir
from oci_cluster.contract.parsers import no_profiler, parse_args, parse_files
from oci_cluster.contract.session import session_packages
from oci_cluster.contract.settings.schema import ONE_MACHINE_DEFAULTS
from oci_cluster.contract.settings.settings_files import SettingsReader, framework_words, own_environment
from oci_cluster.contract.storage.hanging_disk import asked
from oci_cluster.errors import BackendError, LostPlanError, SettingsError, StoppedError
from oci_cluster.system.console import Say
from oci_cluster.system.envs.python_env import ensure_framework, ensure_tools, missing_packages, with_packages
from oci_cluster.system.files import locked, not_writable, write_whole
from oci_cluster.system.process import describe, sweep_marked

# The runner may take so long to start every agent; far above the 0.1 s seen with 4 nodes.
_START_TIMEOUT_S = 60.0
# The rest of a cluster may take so long to be gone when its last node has ended.
_END_TIMEOUT_S = 10.0
# A cluster's directory may be away so long, as on a drive that is mounted again.
_AWAY_S = 30.0


def open_backend(root: Path, _given: Mapping[str, str], is_stopped: IsStopped, **_: bool) -> LocalBackend:
    """Return the backend of this machine, for the checkout *root*."""
    return LocalBackend(root, is_stopped=is_stopped)


class LocalBackend(Backend):
    """The clusters of this machine that were launched from one checkout."""

    name = "local"
    # Addresses 127.0.0.1 to 127.0.0.254, less main and some for a second cluster.
    max_workers = 250
    # Short enough to feel live, long enough to cost 1 % of a core.
    poll_s = 0.05
    why_gone = "its files are gone"
    end_margin_s = _END_TIMEOUT_S
    is_this_machine = is_free_to_ask = True
    node_fields: Mapping[str, str] = {  # by the names of --json
        "node": "node",
        "state": "state",
        "exit_code": "exit_code",
        "pid": "id",
        "address": "address",
    }

    def __init__(
        self,
        root: Path,
        *,
        is_stopped: IsStopped = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._root = root
        self._directory = clusters_dir(root)
        self._is_stopped = is_stopped
        self._clock, self._sleep = clock, sleep
        self._addresses: Addresses | None = None
        #: Since when the directory of a launch, by its id, is not there.
        self._away_since: dict[str, float] = {}

    # --- Launch --------------------------------------------------------------------------------------------

    def check(self, plan: Plan | None = None) -> None:
        """Raise SettingsError where a setting of *plan* is wrong, or WORK_DIR cannot be shared."""
        if plan is not None:
            _read_own(plan, self._root)

    def place(self, plan: Plan, say: Say = lambda _: None) -> Plan:
        """Return *plan* with what nodes get; addresses and ports are claimed until :meth:`close`."""
        self.check(plan)
        folder = self._root / plan.framework
        plan = share_out(plan, folder, os.environ, say)
        work_dir = plan.work_dir or f"file://{self._directory}"
        count = len(plan.nodes)
        self.close()
        self._addresses = Addresses(count)
        ports = Ports(plan, folder, self._addresses)
        if ports.problems:
            raise ports.problems[0]
        for text in ports.said():
            say(text)
        directory = self._directory if self._directory.exists() else self._root
        if not os.access(directory, os.W_OK | os.X_OK):
            raise not_writable(directory, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        shares = {"NODE_CPUS": str(max(1, (os.cpu_count() or 1) // count)), "NODE_MEMORY": str(memory // count)}
        nodes = tuple(replace(node, address=text) for node, text in zip(plan.nodes, self._addresses.texts, strict=True))
        moved = {name: str(port) for name, port in ports.moved.items()}
        environment = {**ONE_MACHINE_DEFAULTS, **shares, **plan.environment, **moved, "WORK_DIR": work_dir}
        limits = limits_of(environment, folder)
        return replace(plan, work_dir=work_dir, nodes=nodes, environment=environment, limits=limits)

    def preview(self, plan: Plan, *, as_json: bool) -> str:  # noqa: ARG002 - there is no other form
        """Return *plan* as it would be run on this machine now."""
        from oci_cluster.system.secret_values import without_secrets  # noqa: PLC0415 - where it is shown

        return json.dumps({**plan.to_json(), "environment": without_secrets(plan.environment)}, indent=2)

    def prepare(self, plan: Plan, say: Say) -> Plan:
        """Return *plan* with its nodes' interpreter: the user's own, or the framework's."""
        ClusterDir(
            plan.url, plan.launch_id, plan.launch_key
        )  # one that nodes could not open is told before there are any
        folder = self._root / plan.framework
        torch, files = _read_own(plan, self._root)
        needed = framework_words(folder, "REQUIRED_PACKAGES")
        if plan.environment.get("ENTRY_POINT", "").endswith(".ipynb"):
            files = [*files, self._root / "common" / "env-notebook.yaml"]
            needed = [*needed, "nbconvert", "ipykernel"]
        if not plan.python:
            python = ensure_framework(self._root, folder / "env.yaml", say, torch)
            if plan.packages or files:
                python = with_packages(self._root, python, plan.packages, files, say, torch=torch)
            _check_profiler(plan, python)
            return replace(plan, python=str(python))
        if missing := missing_packages(Path(plan.python), needed):
            command = f"{plan.python} -m pip install {' '.join(missing)}"
            raise SettingsError(
                f"--python {plan.python} lacks {', '.join(missing)}; install what is missing: {command}"
            )
        _check_profiler(plan, Path(plan.python))
        if plan.settings.get("EXTRA_ENV"):
            say(f"EXTRA_ENV adds nothing to --python {plan.python}, which has the packages that you installed")
        ensure_tools(self._root, say)
        return plan

    def start(self, plan: Plan, nodes: Sequence[Node], say: Say) -> Cluster:  # noqa: ARG002 - it takes no time
        """Start *nodes*: the first by a runner of their own, later ones by that."""
        cluster = Cluster.of(plan, self._directory)
        if nodes[0].role != "MAIN":  # also where the runner has just ended: another would run all nodes once more
            check_left(plan, self._root / plan.framework, nodes)
            self._ask_runner(cluster, start=[node.rank for node in nodes])
            return cluster
        if plan.url.startswith("file://"):
            asked(cluster, plan, partial(_make_private, Path(plan.url.removeprefix("file://"))))
        # Before anybody can find the cluster, and handed on to the runner: at no moment it looks as if it had ended.
        with locked(cluster.directory / records.LOCK) as lock:
            write_plan(cluster, plan)
            self._start_runner(cluster, lock)
        return cluster

    def _start_runner(self, cluster: Cluster, lock: int) -> None:
        log = cluster.directory / records.LOG
        with log.open("ab") as output:
            runner = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "oci_cluster", "runner", str(cluster.directory), str(lock)],
                env={**own_environment(self._root, os.environ), records.RUNNER_MARK: cluster.launch_id},
                cwd=cluster.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[lock, *(self._addresses.descriptors() if self._addresses else ())],
                start_new_session=True,  # a Ctrl-C in the terminal is for the launcher, which ends the cluster in order
            )
        deadline = self._clock() + _START_TIMEOUT_S
        while not records.read_records(cluster.directory)["nodes"]:
            if runner.poll() == 0:
                return  # all nodes have ended already; what it has recorded is away, and waited for by who looks
            if self._is_stopped():  # a Ctrl-C that came while the runner was being forked may have ended that
                runner.kill()
                runner.wait()
                raise StoppedError("stopped before any node had started")
            if runner.returncode is not None or self._clock() > deadline:
                raise BackendError(
                    f"the nodes of {cluster.name} could not be started: {_why_ended(runner.returncode, log)}"
                )
            self._sleep(0.005)

    def _ask_runner(self, cluster: Cluster, *, start: Sequence[int] = (), end: Sequence[str] = ()) -> None:
        """Leave a request for the runner, wake it, and wait for its answer."""
        request: dict[str, Any] = {"start": [*start], "end": [*end], "id": secrets.token_hex(8)}
        path = cluster.directory / records.REQUEST
        try:
            write_whole(path, json.dumps(request))
        except OSError as error:
            raise not_writable(path, error) from error
        # One that does not live says so by its silence.
        _tell_runner(cluster, signal.SIGUSR1)
        deadline = self._clock() + _START_TIMEOUT_S
        while (answer := records.read_records(cluster.directory).get("answer") or {}).get("id") != request["id"]:
            if self._clock() > deadline or not records.is_running(cluster.directory):
                raise BackendError(
                    f"the runner of {cluster.name} does not answer; see {cluster.directory}/logs/runner.log"
                )
            self._sleep(0.02)
        if answer.get("error"):
            raise BackendError(str(answer["error"]))

    def started(self, cluster: Cluster, plan: Plan) -> str:
        """Return where its files are."""
        return f"files in {self.files(cluster, plan)}"

    def connect(self, cluster: Cluster, plan: Plan, words: str) -> str:  # noqa: ARG002 - main is on this machine
        """Return *words*."""
        return words

    # --- State ---------------------------------------------------------------------------------------------

    def find(self, name: str = "") -> list[Cluster]:
        """Return the clusters that this checkout keeps, or those called *name*, the oldest first."""
        found = kept_clusters(self._root, self.name, records.LOG)
        return [cluster for cluster in found if name in {"", cluster.name}]

    def load(self, cluster: Cluster) -> Plan:
        """Return the plan in the cluster's directory."""
        return Plan.load(cluster.directory, self._root)

    def states(self, clusters: Sequence[Cluster]) -> dict[str, list[NodeState]]:
        """Return what the runners have recorded."""
        return {cluster.launch_id: self._states(cluster) for cluster in clusters}

    def _states(self, cluster: Cluster) -> list[NodeState]:
        self._check_directory(cluster)
        is_running = records.is_running(cluster.directory)  # before the records: what ends in between is recorded then
        recorded = records.read_records(cluster.directory)
        if is_orphaned := is_running and records.is_orphaned(recorded):  # again: the last that it has recorded
            recorded = records.read_records(cluster.directory)

        def is_gone(pid: int) -> bool:
            return not is_running or (is_orphaned and not records.send_signal(cluster.launch_id, pid, 0))

        found = [
            NodeState(
                node=str(node["node"]),
                state=State(node["state"]),
                exit_code=node["exit_code"],
                id=int(node["pid"]),
                address=str(node.get("address", "")),
                is_lost=node["exit_code"] is None and is_gone(int(node["pid"])),  # killed together with its runner
            )
            for node in recorded["nodes"]
        ]
        if not found and is_running:  # the runner is just beginning
            with contextlib.suppress(LostPlanError):
                found = [NodeState(node=name, state=State.ACCEPTED) for name in self.load(cluster).node_names]
        self._check_directory(cluster)  # again: what was taken away meanwhile looks like a cluster that was killed
        return sorted(found, key=lambda state: rank_of(state.node))

    def _check_directory(self, cluster: Cluster) -> None:
        """Wait for a directory that is away: it alone has how the nodes ended."""
        # Not the directory itself: a node that makes its OUTPUT_DIR makes an empty one anew.
        if any((cluster.directory / name).exists() for name in (FILE, records.LOCK, records.FILE)):
            self._away_since.pop(cluster.launch_id, None)
        elif self._clock() - self._away_since.setdefault(cluster.launch_id, self._clock()) < _AWAY_S:
            raise BackendError(f"{cluster.directory} is not there; bring it back")

    def logs(self, cluster: Cluster, directory: Path, *, follow: bool) -> LogsInPlace:  # noqa: ARG002 - it grows
        """Return the logs in the cluster's directory, where the runner writes them."""
        return LogsInPlace(cluster.directory / "logs")

    def port_forward(self, cluster: Cluster, plan: Plan, node: str, port: int, say: Say) -> DirectConnection:  # noqa: ARG002 - at once
        """Return the way to *node*'s own address."""
        return DirectConnection(next(state.address for state in self._states(cluster) if state.node == node), port)

    # --- End -----------------------------------------------------------------------------------------------

    def end(self, cluster: Cluster, nodes: Collection[str], *, at_once: bool = False) -> None:
        """Have the runner end *nodes*: TERM, their grace, KILL; *at_once* KILL all that runs."""
        running = [state for state in self._states(cluster) if state.is_running]
        wanted = [state for state in running if state.node in nodes]
        if not wanted:
            return
        if at_once and wanted == running:
            self._sweep_all(cluster)
        elif at_once:
            for state in wanted:
                records.send_signal(cluster.launch_id, state.id, signal.SIGKILL)
        elif wanted == running:  # it has a deadline for them, after which it kills
            _tell_runner(cluster, signal.SIGTERM)
        else:
            self._ask_runner(cluster, end=[state.node for state in wanted])

    def finish(self, cluster: Cluster, say: Say) -> None:  # noqa: ARG002 - it takes no time
        """Return when neither runner nor anything that its nodes left is there."""
        deadline = self._clock() + _END_TIMEOUT_S
        while records.is_running(cluster.directory) and self._clock() < deadline:
            self._sleep(0.02)
        self._sweep_all(cluster)

    def remove(self, cluster: Cluster, say: Say) -> None:  # noqa: ARG002 - likewise
        """End what runs of *cluster* at once, and remove its directory."""
        self._sweep_all(cluster)
        shutil.rmtree(cluster.directory, ignore_errors=True)

    def _sweep_all(self, cluster: Cluster) -> None:
        """Kill the rest of *cluster*, found by its environment; its runner last: it records ends.

        Raise BackendError where something waits for a disk that hangs: no signal ends that before the disk answers.
        """
        directory, runner = cluster.directory, records.read_records(cluster.directory)["runner_pid"]
        marks = {records.RUNNER_MARK: cluster.launch_id}, {"LAUNCH_ID": cluster.launch_id}
        deadline = self._clock() + _END_TIMEOUT_S
        while (left := sum(sweep_marked(mark, spared=runner) for mark in marks)) or records.is_running(directory):
            if self._clock() > deadline:
                break
            self._sleep(0.02)
        if left:
            raise BackendError(
                f"{cluster.name} cannot be killed: it waits for a disk that does not answer, and ends when that does"
            )
        sweep_marked(marks[0])
        for path in node_dirs(cluster.launch_id):
            remove_node_dir(path)

    def close(self) -> None:
        """Give up the claims of this process; the runner holds its own."""
        if self._addresses is not None:
            self._addresses.close()


def _read_own(plan: Plan, root: Path) -> tuple[str, list[Path]]:
    """Return ``TORCH``, and the files of ``EXTRA_ENV`` and of a session."""
    if plan.work_dir.startswith("memory:"):
        raise SettingsError(
            f"nodes cannot share WORK_DIR {plan.work_dir}: only one process sees it; use file:// or leave it unset"
        )
    read = SettingsReader(plan.settings)
    torch, _ = map(read.setting, ("TORCH", SETTING))
    files = read.value("EXTRA_ENV", parse_files, list[Path]())
    if read.problems:
        raise SettingsError.of(read.problems)
    return torch, [*files, *session_packages(plan.environment, root)]


def _make_private(directory: Path) -> None:
    with contextlib.suppress(OSError):  # nodes try it, too, and say what is wrong
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _tell_runner(cluster: Cluster, number: int) -> None:
    records.send_signal(cluster.launch_id, records.read_records(cluster.directory)["runner_pid"], number)


def _check_profiler(plan: Plan, python: Path) -> None:
    """Raise where nodes with the interpreter *python* would not have the program of ``PROFILE_CMD``."""
    words = parse_args(plan.environment.get("PROFILE_CMD", ""))
    places = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    if words and shutil.which(words[0], path=places) is None:
        raise SettingsError(no_profiler(words[0]))


def _why_ended(returncode: int | None, log: Path) -> str:
    """Return why a runner has ended: the signal, else its last words."""
    if returncode is not None and returncode < 0:
        return f"the runner was {describe(128 - returncode)}, as stop.sh does it"
    try:
        last = log.read_text(errors="replace").strip().rpartition("\n")[2]
    except OSError as error:
        return str(error)
    return last or "the runner did not answer"
