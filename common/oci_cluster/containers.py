"""The ``docker`` backend: a container for each node, a network and a volume for each cluster.

What there is, is what the engine says: all of a cluster has its labels, and is found again from any checkout, whatever
became of the launcher. When a cluster has ended, what is worth keeping is copied to the checkout, and nothing is left
in the engine. It has the functions that :mod:`oci_cluster.local` has.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oci_cluster import container_commands as commands
from oci_cluster import local
from oci_cluster import plan as planning
from oci_cluster.clusters import Cluster, find_clusters
from oci_cluster.engine import PROTOCOL, Engine, EngineError
from oci_cluster.engine_files import register
from oci_cluster.errors import BackendError, ClusterError, ExitCode, StoppedError, UsageError
from oci_cluster.exchange import Exchange, poll_delays, printable
from oci_cluster.follow import cluster_code, request_stop
from oci_cluster.settings import parse_duration, parse_name

if sys.version_info >= (3, 12):
    import tarfile
else:  # see code.py
    from backports import tarfile

# Containers that are started at once: each keeps a core of the engine's busy for most of a second.
_AT_ONCE = 4
# How often the engine is asked which containers a cluster has: another terminal may add some.
_LIST_S = 5.0
_GRACE_PERIOD_S = 10.0
# What nodes say of themselves, in the words of the contract. Not the certificate, whose key is nobody's any more.
_KEPT_FILE = re.compile(r"(MAIN|(WORKER|PS)_[1-9][0-9]{0,5})_(config|heartbeat|exit|ready)\.json|stop")
_NODE = re.compile(r"MAIN|(WORKER|PS)_[1-9][0-9]{0,5}")
_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_RECORDS = "nodes.json"
# States of a container that will not run any more by itself: docker's and nerdctl's words, podman's `stopped`.
_ENDED = {"exited", "dead", "stopped", "removing"}
_STATES = {int(ExitCode.OK): "SUCCEEDED", int(ExitCode.STOPPED): "CANCELED"}


class Containers:
    """The clusters of one container engine."""

    look_s = 1.0

    def __init__(
        self,
        engine: Engine,
        root: Path,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare to ask *engine*.

        Args:
            engine: Which runs the nodes.
            root: The checkout, which keeps what ended clusters leave.
            is_stopped: Whether the launcher has been told to stop.
            clock: Monotonic seconds.
            sleep: Waits seconds; only tests give another.
        """
        self._engine = engine
        self._root = root
        self._directory = local.state_dir(root)
        self._is_stopped = is_stopped
        self._clock = clock
        self._sleep = sleep
        self._known: dict[str, list[str]] = {}
        self._seen: dict[str, list[dict[str, Any]]] = {}
        self._listed_at = -_LIST_S
        self._closing: list[Callable[[], object]] = []
        register(engine)

    def close(self) -> None:
        """End what runs of this launcher's own: what follows logs, and what waits for the end of containers."""
        for close in self._closing:
            close()

    # --- Submit --------------------------------------------------------------------------------------------

    def submit(self, plan: Mapping[str, Any], root: Path, say: Callable[[str], None]) -> Cluster:
        """Start the cluster of *plan* and return it; on any failure nothing of it is left, or what is left is named.

        Raises:
            UsageError: a cluster of that name runs.
            SettingsError: something in *plan* cannot be run.
            EngineError: the engine refused, or did not answer.
            StoppedError: the launcher was told to stop.
        """
        placed = commands.place(plan, root, self._engine)
        with local.one_at_a_time(root):
            self._check_name(placed["name"])
            cluster = self._keep(placed)
            try:
                self._start_all(cluster)
            except BaseException as error:
                self._roll_back(cluster, error, say)
                raise
        return cluster

    def _check_name(self, name: str) -> None:
        if any(cluster.name == name and self.is_running(cluster) for cluster in self.find()):
            msg = (
                f"a cluster named '{name}' is running; choose another --name, "
                f"or end it: scripts/stop.sh {name} --backend docker"
            )
            raise UsageError(msg)

    def _keep(self, placed: Mapping[str, Any]) -> Cluster:
        directory = self._directory / placed["cluster_id"]
        try:
            directory.mkdir(mode=0o700)
            (directory / "logs").mkdir()
            (directory / "outputs").mkdir()
            _write_private(directory / "cluster.json", json.dumps(placed, indent=2))
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            msg = f"{directory} cannot be written: {error.strerror}; make room there or allow it"
            raise BackendError(msg) from error
        return Cluster(directory, placed)

    def _start_all(self, cluster: Cluster) -> None:
        for words in commands.shared_commands(cluster.plan):
            self._stop_if_told()
            self._engine.call(*words)
        self._start(cluster.plan, [node["node"] for node in cluster.plan["nodes"]], [])

    def _start(self, plan: Mapping[str, Any], nodes: Sequence[str], started: list[str]) -> None:
        """Start *nodes*, the first before the others, and note their ids; the first failure ends the starting."""
        path = Path(commands.environment_file(self._root, plan))
        failed: list[BaseException] = []

        def start(node: str) -> None:
            if failed or self._is_stopped():
                return
            try:
                said = self._engine.call(*commands.node_command(self._engine, plan, node, str(path)))
                started.append(said.strip())
            except BaseException as error:
                failed.append(error)
                raise

        try:
            _write_private(path, commands.environment_text(plan["environment"]))
            start(nodes[0])
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for _ in pool.map(start, nodes[1:]):
                    pass
        except OSError as error:
            msg = f"{path} cannot be written: {error.strerror}; make room there or allow it"
            raise BackendError(msg) from error
        finally:
            path.unlink(missing_ok=True)
            self._listed_at = -_LIST_S
        self._stop_if_told()

    def _stop_if_told(self) -> None:
        if self._is_stopped():
            msg = "stopped before all nodes were started"
            raise StoppedError(msg)

    def _roll_back(self, cluster: Cluster, error: BaseException, say: Callable[[str], None]) -> None:
        """Remove what has been started of *cluster*, whether the engine answered or not."""
        say(f"{error}" if isinstance(error, StoppedError) else "the launch failed; ending what was started")
        try:
            self._remove(cluster)
        except ClusterError as problem:
            say(
                f"NOT ENDED: {cluster.name} may still be running ({problem}); "
                f"end it: scripts/stop.sh {cluster.name} --delete --backend docker"
            )
            return
        shutil.rmtree(cluster.directory, ignore_errors=True)

    def _remove(self, cluster: Cluster) -> None:
        """Remove containers, network and volume of *cluster*; what is not there is as good as removed."""
        if ids := self._engine.containers(f"{commands.LAUNCH}={cluster.launch_id}"):
            with _none_is_fine():
                self._engine.call("rm", "--force", "--volumes", *ids)
        for what in ("network", "volume"):
            with _none_is_fine():
                self._engine.call(what, "rm", cluster.plan["cluster_id"])

    # --- State ---------------------------------------------------------------------------------------------

    def started(self, cluster: Cluster) -> str:
        """Return where what the nodes of *cluster* leave can be seen."""
        return f"containers {cluster.plan['cluster_id']}-...; files will be in {cluster.directory}"

    def find(self) -> list[Cluster]:
        """Return the clusters that the engine has, and those that ended and are kept in the checkout; oldest first."""
        found: dict[str, Cluster] = {}
        self._known = {}
        for container in self._engine.inspect(self._engine.containers(commands.LAUNCH)):
            if plan := _plan_of(container):
                self._known.setdefault(plan["launch_id"], []).append(str(container["Id"]))
                found.setdefault(plan["cluster_id"], Cluster(self._directory / plan["cluster_id"], plan))
        for kept in find_clusters(self._directory, "docker"):
            found.setdefault(kept.directory.name, _kept(kept))
            self._known.setdefault(kept.launch_id, [])
        self._listed_at = self._clock()
        return sorted(found.values(), key=lambda cluster: (cluster.plan["created"], cluster.launch_id))

    def load(self, cluster: Cluster) -> Cluster:
        """Return *cluster* with its nodes' environment."""
        if cluster.plan["environment"]:
            return cluster
        main = self._engine.inspect([commands.container_name(cluster.plan["cluster_id"], "MAIN")])
        return Cluster(cluster.directory, {**cluster.plan, "environment": _environment_of(main[0]) if main else {}})

    def is_running(self, cluster: Cluster) -> bool:
        """Return whether any node of *cluster* has not ended."""
        return bool(self.state(cluster)["running"])

    def state(self, cluster: Cluster) -> dict[str, Any]:
        """Return what the engine says of each node, in the words of :func:`oci_cluster.local.state`.

        After the cluster has been removed: what was kept of that.
        """
        nodes = [_node(container) for container in self._containers(cluster)]
        if not nodes:
            nodes = _records(cluster)
        nodes.sort(key=lambda node: planning.rank_of(node["node"]))
        return {"nodes": nodes, "running": any(node["exit_code"] is None for node in nodes)}

    def _containers(self, cluster: Cluster) -> list[dict[str, Any]]:
        launch_id = cluster.launch_id
        if self._clock() - self._listed_at >= _LIST_S or launch_id not in self._known:
            self._known[launch_id] = self._engine.containers(f"{commands.LAUNCH}={launch_id}")
            self._listed_at = self._clock()
        found = self._engine.inspect(self._known[launch_id])
        if len(found) != len(self._known[launch_id]):
            self._listed_at = -_LIST_S
        nodes = [container for container in found if _NODE.fullmatch(_labels(container).get(commands.NODE, ""))]
        self._seen[launch_id] = nodes
        return nodes

    def overview(self) -> list[dict[str, Any]]:
        """Return all clusters with the states of their nodes, as a list shows them."""
        found = []
        for cluster in self.find():
            state = self.state(cluster)
            found.append(
                {
                    "name": cluster.name,
                    "framework": cluster.plan["framework"],
                    "backend": "docker",
                    "state": "IN_PROGRESS" if state["running"] else "ENDED",
                    "exit_code": None if state["running"] else int(cluster_code(state["nodes"], None)),
                    "created": cluster.plan["created"],
                    "nodes": state["nodes"],
                }
            )
        return found

    # --- Logs and what is left -----------------------------------------------------------------------------

    def logs(self, cluster: Cluster, directory: Path, *, follow: bool) -> Callable[[], object]:
        """Return what brings the nodes' logs to *directory*; with *follow* what they print later, too."""

        def containers() -> list[dict[str, Any]]:
            # As the last look saw them: it costs a call.
            return self._seen.get(cluster.launch_id) or self._containers(cluster)

        logs = ContainerLogs(self._engine, containers, cluster, directory, follow=follow)
        self._closing.append(logs.close)
        return logs.fetch

    def finish(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        """Copy what *cluster*, which has ended, leaves to the checkout, and remove it from the engine.

        Raises:
            ClusterError: not all could be copied; nothing has been removed.
        """
        with _alone(cluster):
            self._listed_at = -_LIST_S
            containers = self._containers(cluster)
            try:
                if containers:
                    self._copy_all(cluster, containers)
            except (OSError, tarfile.TarError, EngineError) as error:
                msg = (
                    f"what {cluster.name} leaves could not be copied to {cluster.directory}: {error}; it stays in the "
                    f"engine; try again: scripts/stop.sh {cluster.name} --backend docker"
                )
                raise BackendError(msg) from error
            self._remove(cluster)
            self._seen.pop(cluster.launch_id, None)
        say(f"logs and outputs are in {cluster.directory}")

    def _copy_all(self, cluster: Cluster, containers: Sequence[Mapping[str, Any]]) -> None:
        directory = cluster.directory
        if not (directory / "cluster.json").exists():  # launched from another checkout
            kept = {name: value for name, value in self.load(cluster).plan.items() if name != "work_dir"}
            _write_private(directory / "cluster.json", json.dumps({**kept, "work_dir": ""}, indent=2))
        for container in containers:
            node = _labels(container)[commands.NODE]
            path = directory / "logs" / f"{node}.log"
            client = self._engine.start("logs", str(container["Id"]), output=path.with_suffix(".new"))
            if client.wait() != 0:
                msg = f"{self._engine.program} logs: {printable(path.with_suffix('.new').read_text(errors='replace'))}"
                raise EngineError(msg)
            path.with_suffix(".new").replace(path)
        exchange = Exchange(cluster.url, cluster.launch_id)
        for name in exchange.listing():
            if _KEPT_FILE.fullmatch(name):
                (directory / name).write_bytes(exchange.read_bytes(name, 0))
        main = commands.container_name(cluster.plan["cluster_id"], "MAIN")
        try:
            with self._engine.stream("cp", f"{main}:{commands.OUTPUTS}", "-") as stream:
                _unpack(stream, directory)
        except EngineError as error:
            if not error.is_absent:  # no node has come so far as to make the folder
                raise
        _write_private(directory / _RECORDS, json.dumps({"nodes": [_node(container) for container in containers]}))

    # --- Scale and stop ------------------------------------------------------------------------------------

    def scale(self, cluster: Cluster, text: str, root: Path, say: Callable[[str], None], *, most: int) -> int:
        """Add workers to *cluster*, or end some, as :func:`oci_cluster.local.scale` does; return how many there are."""
        containers = {_labels(container)[commands.NODE]: container for container in self._containers(cluster)}
        states = self.state(cluster)
        if not states["running"] or "MAIN" not in containers:
            msg = f"{cluster.name} has ended; launch it again: scripts/launch.sh"
            raise UsageError(msg)
        names = [node["node"] for node in states["nodes"]]
        running = [node["node"] for node in states["nodes"] if node["exit_code"] is None]
        workers = sorted(planning.rank_of(node) for node in running if node.startswith("WORKER"))
        least = planning.least_workers(cluster.plan, root)
        wanted = planning.scaled_workers(text, len(workers), least=least, most=most)
        started = [f"WORKER_{rank}" for rank in planning.free_ranks(names, running, wanted - len(workers))]
        ended = {f"WORKER_{rank}" for rank in workers[wanted:]}
        if started:
            self._add(cluster, containers, started)
            for node in started:
                say(f"{node} started")
        if ended:
            say(f"ending {', '.join(sorted(ended))}")
            self._end([str(containers[node]["Id"]) for node in sorted(ended)], cluster)
            if left := self._wait_for_end(cluster, ended):
                msg = f"{', '.join(sorted(left))} did not end; end the whole cluster: scripts/stop.sh {cluster.name}"
                raise BackendError(msg)
        return wanted

    def _add(self, cluster: Cluster, containers: Mapping[str, Mapping[str, Any]], nodes: Sequence[str]) -> None:
        main = containers["MAIN"]
        kept = commands.kept_settings(_labels(main))
        plan = {
            **cluster.plan,
            "image": str(main["Image"]),
            "code": kept["code"],
            "settings": {**kept["settings"], "PUBLISH": ""},
            "environment": {name: text for name, text in _environment_of(main).items() if name not in commands.OWN},
        }
        for node in nodes:
            if node in containers:  # its predecessor has its name; how that ended is in the work dir
                self._engine.call("rm", str(containers[node]["Id"]))
        local.state_dir(self._root).mkdir(exist_ok=True)
        cluster.directory.mkdir(mode=0o700, exist_ok=True)
        started: list[str] = []
        try:
            self._start(plan, nodes, started)
        except BaseException:
            # Those of that name that run and were not started here are another scale.sh's.
            names = [commands.container_name(plan["cluster_id"], node) for node in nodes]
            made = [container for container in self._engine.inspect(names) if _status(container) == "created"]
            if ids := {*started, *(str(container["Id"]) for container in made)}:
                self._engine.call("rm", "--force", *sorted(ids))
            raise

    def terminate(self, cluster: Cluster) -> None:
        """Have the engine end every node: TERM, its grace, KILL."""
        self._listed_at = -_LIST_S
        self._end([str(c["Id"]) for c in self._containers(cluster) if _node(c)["exit_code"] is None], cluster)

    def _end(self, ids: Sequence[str], cluster: Cluster) -> None:
        """Have the engine end containers, and do not wait for it."""
        if ids:
            # The agent has its own grace for what it runs; then it needs a moment itself.
            grace = f"{self._grace_period_s(cluster) + _GRACE_PERIOD_S:.0f}"
            client = self._engine.start("stop", "-t", grace, *ids, output=Path(os.devnull))
            self._closing.append(lambda: _end_client(client))

    def _wait_for_end(self, cluster: Cluster, nodes: set[str] | None = None) -> set[str]:
        """Wait until *nodes*, or all, of *cluster* have ended; return those that have not in time."""
        deadline = self._clock() + self._grace_period_s(cluster) + 2 * _GRACE_PERIOD_S
        for delay in poll_delays(1.0):
            running = {node["node"] for node in self.state(cluster)["nodes"] if node["exit_code"] is None}
            left = running if nodes is None else running & nodes
            if not left or self._clock() > deadline:
                return left
            self._sleep(delay)
        raise AssertionError

    def _grace_period_s(self, cluster: Cluster) -> float:
        return parse_duration(self.load(cluster).plan["environment"].get("GRACE_PERIOD", f"{_GRACE_PERIOD_S:g}"))

    def kill(self, cluster: Cluster) -> None:
        """End every node at once."""
        self._listed_at = -_LIST_S
        for container in self._containers(cluster):
            if _node(container)["exit_code"] is None:
                with contextlib.suppress(EngineError):  # ended meanwhile; the next look tells
                    self._engine.call("kill", str(container["Id"]))

    def stop(self, cluster: Cluster, say: Callable[[str], None], *, delete: bool = False) -> None:
        """Stop *cluster*, and return when nothing of it is in the engine. First by the ``stop`` file.

        Args:
            cluster: What was launched.
            say: Shows a line of progress.
            delete: Keep none of its logs and outputs.
        """
        if self.is_running(cluster):
            say(f"stopping {cluster.name}")
            request_stop(Exchange(cluster.url, cluster.launch_id), self.terminate, cluster, "stopped by stop.sh")
            if self._wait_for_end(cluster):
                say(f"{cluster.name} has not ended by itself; ending its containers")
                self.terminate(cluster)
                if self._wait_for_end(cluster):
                    self.kill(cluster)
                    self._wait_for_end(cluster)
        if delete:
            self._remove(cluster)
            shutil.rmtree(cluster.directory, ignore_errors=True)
        else:
            self.finish(cluster, say)


class ContainerLogs:
    """The logs of a cluster's nodes, copied from the engine to a directory of this machine as they are printed."""

    def __init__(
        self,
        engine: Engine,
        containers: Callable[[], Sequence[Mapping[str, Any]]],
        cluster: Cluster,
        directory: Path,
        *,
        follow: bool,
    ) -> None:
        """Copy to *directory* what *containers* print; where there are none any more, what *cluster* has kept."""
        self._follow = follow
        self._engine = engine
        self._containers = containers
        self._kept = cluster.directory / "logs"
        self._directory = directory
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self._done: set[str] = set()

    def fetch(self) -> None:
        """Have what is new copied: all of it, once a node has ended.

        Raises:
            EngineError: the engine did not answer; the next call copies from the beginning.
        """
        containers = self._containers()
        if not containers and self._kept != self._directory and not self._clients:
            for path in self._kept.glob("*.log"):
                shutil.copyfile(path, self._directory / path.name)
        for container in containers:
            node, id_ = _labels(container)[commands.NODE], str(container["Id"])
            client = self._clients.get(id_)
            if client is None or (client.poll() is not None and id_ not in self._done):
                words = ["logs", *(["--follow"] if self._follow else []), id_]
                client = self._engine.start(*words, output=self._directory / f"{node}.log")
                self._clients[id_] = client
            is_whole = not self._follow or _node(container)["exit_code"] is not None
            if is_whole and id_ not in self._done:
                # It ends by itself at the end of the log.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    if client.wait(_GRACE_PERIOD_S) == 0:
                        self._done.add(id_)

    def close(self) -> None:
        """End the copying."""
        for client in self._clients.values():
            client.kill()
            client.wait()


def _end_client(client: subprocess.Popen[bytes]) -> None:
    try:
        client.wait(_GRACE_PERIOD_S)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()


@contextmanager
def _none_is_fine() -> Iterator[None]:
    """Take it for done what the engine refuses because there is nothing of that name any more."""
    try:
        yield
    except EngineError as error:
        if not error.is_absent:
            raise


@contextmanager
def _alone(cluster: Cluster) -> Iterator[None]:
    """Hold a lock: a launcher and a stop.sh may come to the same end."""
    try:
        cluster.directory.parent.mkdir(exist_ok=True)
        cluster.directory.mkdir(mode=0o700, exist_ok=True)
        (cluster.directory / "logs").mkdir(exist_ok=True)
        lock = (cluster.directory / ".lock").open("w")
    except OSError as error:
        msg = f"{cluster.directory} cannot be written: {error.strerror}; make room there or allow it"
        raise BackendError(msg) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _labels(container: Mapping[str, Any]) -> dict[str, str]:
    labels = (container.get("Config") or {}).get("Labels") or {}
    return {str(name): str(text) for name, text in labels.items()}


def _plan_of(container: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the cluster that *container* says to be a node of; None where its labels are nobody's of ours.

    They become names of files, and anybody may have written them.
    """
    labels = _labels(container)
    name, launch_id = labels.get(commands.NAME, ""), labels.get(commands.LAUNCH, "")
    created = labels.get(f"{commands.LABEL}created", "")
    try:
        cluster_id = parse_name(f"{parse_name(name)}-{launch_id}")
    except ValueError:
        return None
    if not re.fullmatch(r"[0-9a-f]{8}", launch_id) or not _CREATED.fullmatch(created):
        return None
    return {
        "name": name,
        "launch_id": launch_id,
        "framework": printable(labels.get(f"{commands.LABEL}framework", "")),
        "cluster_id": cluster_id,
        "backend": "docker",
        "created": created,
        "project": printable(labels.get(f"{commands.LABEL}project", "")),
        "work_dir": f"{PROTOCOL}://{commands.container_name(cluster_id, 'MAIN')}{commands.WORK}",
        "environment": {},
        "nodes": [],
    }


def _kept(cluster: Cluster) -> Cluster:
    """Return *cluster* as it is when nothing of it is in the engine: its files are those that were copied."""
    plan = {**cluster.plan, "work_dir": f"file://{cluster.directory.parent}", "cluster_id": cluster.directory.name}
    return Cluster(cluster.directory, plan)


def _records(cluster: Cluster) -> list[dict[str, Any]]:
    try:
        return list(json.loads((cluster.directory / _RECORDS).read_bytes())["nodes"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _environment_of(container: Mapping[str, Any]) -> dict[str, str]:
    """Return what a node was given; what its image and the engine add to that, they add to others too."""
    pairs = [text.partition("=") for text in (container.get("Config") or {}).get("Env") or []]
    engines = {"PATH", "HOSTNAME", "HOME", "TERM", "container"}
    return {name: text for name, _, text in pairs if name not in engines and "\n" not in text}


def _status(container: Mapping[str, Any]) -> str:
    return str((container.get("State") or {}).get("Status", "")).lower()


def _node(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a container tells of the node that it is."""
    state = container.get("State") or {}
    status = _status(container)
    error = printable(state.get("Error") or "")
    networks = (container.get("NetworkSettings") or {}).get("Networks") or {}
    addresses = [str(network.get("IPAddress") or "") for network in networks.values()]
    node: dict[str, Any] = {
        "node": _labels(container)[commands.NODE],
        "state": "IN_PROGRESS",
        "exit_code": None,
        "address": printable(next(iter(filter(None, addresses)), "")),
        "ocid": str(container.get("Id", "")),
        "details": error,
        "never_started": False,
    }
    if status == "created" and error:
        return {**node, "state": "FAILED", "exit_code": int(ExitCode.UNAVAILABLE), "never_started": True}
    if status in _ENDED:
        code = int(state.get("ExitCode", ExitCode.LOST))
        node |= {"exit_code": code, "state": _STATES.get(code, "FAILED")}
        if state.get("OOMKilled"):
            node["cause"] = node["details"] = "its memory ran out; set MEMORY higher, or leave it out"
    return node


def _unpack(stream: Any, directory: Path) -> None:
    """Unpack the folders and plain files of the archive *stream* into *directory*, owned by whoever runs this."""
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for entry in tar:
            # A link may lead anywhere.
            if entry.name.startswith("outputs/") and (entry.isreg() or entry.isdir()):
                tar.extract(entry, directory, filter="data", set_attrs=entry.isreg())


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(os.fsencode(text))
