"""The backend ``docker``: a container for each node, network and volume for all.

What there is, is what the engine says: all of a cluster has its labels, and is found again from any checkout, whatever
became of the launcher. When a cluster has ended, what is worth keeping is copied to the checkout, and nothing is left
in the engine.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from oci_cluster.backends import archive
from oci_cluster.backends.agentless_image import ReportedMains
from oci_cluster.backends.base import Backend, IsStopped
from oci_cluster.backends.docker import commands
from oci_cluster.backends.docker.logs import ContainerLogs
from oci_cluster.backends.docker.port_forward import ContainerPortForward
from oci_cluster.backends.docker.states import (
    Container,
    CreatedContainers,
    cluster_of,
    has_begun,
    launch_of,
    nodes_of,
    plan_of,
)
from oci_cluster.contract.cluster import Cluster, Node, NodeState, Plan, clusters_dir
from oci_cluster.contract.settings.settings_files import SettingsReader, read_settings_file
from oci_cluster.errors import StoppedError, UsageError
from oci_cluster.system.console import Say
from oci_cluster.system.engine import Engine, EngineError
from oci_cluster.system.files import not_writable, write_whole
from oci_cluster.system.text import as_words

# Containers that are started at once: each keeps a core of the engine's busy for most of a second.
_AT_ONCE = 4
# The engine is asked so often for a cluster's containers: another terminal may add some.
_LIST_S = 5.0
# An agent needs so much itself when what it runs has had its grace.
_MARGIN_S = 10.0
_HAS_ENDED = "has ended; launch it again: scripts/launch.sh"


def open_backend(root: Path, given: Mapping[str, str], is_stopped: IsStopped, **_: bool) -> DockerBackend:
    """Return the backend of the engine that *given* names, for the checkout *root*."""
    defaults = read_settings_file(root / "scripts" / "backends" / "docker.env")
    return DockerBackend(Engine(SettingsReader(given, defaults).text("DOCKER")), root, is_stopped=is_stopped)


class DockerBackend(Backend):
    """The clusters of one container engine."""

    name = "docker"
    # Each has a client of the engine that follows its log, which takes 38 MB (docker 20.10).
    max_workers = 100
    # A look is a call, which takes 40 ms of CPU (docker 20.10).
    poll_s = 1.0
    why_gone = "its containers are gone, and nobody has kept how they ended"
    # The agent's own, and as much for the engine.
    end_margin_s = 2 * _MARGIN_S
    is_this_machine, is_free_to_ask = True, False
    node_fields = archive.NODE_FIELDS

    def __init__(
        self,
        engine: Engine,
        root: Path,
        *,
        is_stopped: IsStopped = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._root, self._directory = root, clusters_dir(root)
        self._is_stopped, self._clock = is_stopped, clock
        # Ids of containers and, as they were last seen, the containers of nodes by name: each by launch id.
        self._known: dict[str, list[str]] = {}
        self._seen: dict[str, dict[str, Container]] = {}
        self._listed_at = 0.0
        # The client that was last started to end a container, by its id.
        self._ending: dict[str, subprocess.Popen[bytes]] = {}
        self._told = ReportedMains(self.load)
        self._created = CreatedContainers(clock)

    # --- Launch --------------------------------------------------------------------------------------------

    def check(self, plan: Plan | None = None) -> None:
        """Raise UsageError or SettingsError where *plan* asks for what containers cannot be given."""
        if plan is not None:
            commands.check(plan)

    def place(self, plan: Plan, say: Say = lambda _: None) -> Plan:  # noqa: ARG002 - nothing leaves this machine
        """Return *plan* with what its nodes get as containers; the engine is asked."""
        if named := plan.settings.get("DOCKER"):  # by `--env`, too
            self._engine = replace(self._engine, program=named)
        return commands.place(plan, self._root, self._engine)

    def preview(self, plan: Plan, *, as_json: bool) -> str:
        """Return the commands of a launch, and the nodes' environment without secrets."""
        return commands.preview(plan, self._root, self._engine, as_json=as_json)

    def start(self, plan: Plan, nodes: Sequence[Node], say: Say) -> Cluster:  # noqa: ARG002 - seconds
        """Start *nodes*, with main what they share; failed later ones leave none."""
        cluster = Cluster.of(plan, self._directory)
        if any(node.role == "MAIN" for node in nodes):
            archive.write_plan(cluster, plan)
            for words in commands.shared_commands(plan):
                self._stop_if_told()
                self._engine.call(*words)
            started: list[str] = []
            with _unless_removed(self._engine, plan, started):
                self._run(plan, nodes, started)
            self._open_volumes()
        else:
            self._add(cluster, commands.checked(plan), nodes)
        return cluster

    def _open_volumes(self) -> None:
        """Have the cluster dirs in volumes opened, as :attr:`Plan.url` names them, from here on."""
        # Imported here: a dry run has no .venv, which the packages of this are in.
        from oci_cluster.backends.docker.volume_files import register  # noqa: PLC0415

        register(self._engine)

    def _add(self, cluster: Cluster, plan: Plan, nodes: Sequence[Node]) -> None:
        present = self._containers(cluster)
        if "MAIN" not in present:
            raise UsageError(f"{cluster.name} {_HAS_ENDED}")
        for node in nodes:
            if node.name in present:  # its predecessor has its name; how that ended is in the work dir
                self._engine.call("rm", "--volumes", str(present[node.name]["Id"]))
        archive.make_directory(cluster)
        started: list[str] = []
        try:
            self._run(plan, nodes, started)
        except BaseException:
            # Those of that name that run and were not started here are another scale.sh's.
            names = [commands.container_name(plan.cluster_id, node.name) for node in nodes]
            made = [container for container in self._engine.inspect(names) if not has_begun(container)]
            if ids := {*started, *(str(container["Id"]) for container in made)}:
                self._engine.call("rm", "--force", "--volumes", *sorted(ids))
            raise

    def _run(self, plan: Plan, nodes: Sequence[Node], started: list[str]) -> None:
        """Start *nodes*, the first before the others, and note their ids in *started*."""
        path = commands.environment_file(plan, self._root)
        failed: list[BaseException] = []

        def start(node: Node) -> None:
            if failed or self._is_stopped():
                return
            try:
                said = self._engine.call(*commands.node_command(self._engine, plan, node, path))
                started.append(said.strip())
            except BaseException as error:
                failed.append(error)
                raise

        try:
            write_whole(path, commands.environment_text(plan.environment))
            start(nodes[0])
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for _ in pool.map(start, nodes[1:]):
                    pass
        except OSError as error:
            raise not_writable(path, error) from error
        finally:
            path.unlink(missing_ok=True)
            self._known.clear()
        self._stop_if_told()

    def _stop_if_told(self) -> None:
        if self._is_stopped():
            raise StoppedError("stopped before all nodes were started")

    def started(self, cluster: Cluster, plan: Plan) -> str:
        """Return the containers' names, and where the files will be."""
        return f"containers {cluster.cluster_id}-...; files will be in {self.files(cluster, plan)}"

    def connect(self, cluster: Cluster, plan: Plan, words: str) -> str:  # noqa: ARG002 - it says nothing of that
        """Return the command of a program beside main, with main's files and network."""
        main = commands.container_name(cluster.cluster_id, "MAIN")
        return f"{shlex.quote(self._engine.program)} exec -it {main} env {as_words(words)} python"

    # --- State ---------------------------------------------------------------------------------------------

    def find(self, name: str = "") -> list[Cluster]:
        """Return clusters of the engine, and ended ones that are kept here."""
        containers = self._engine.inspect(self._engine.containers(commands.LAUNCH))
        self._listed_at = self._clock()
        known = [cluster for container in containers if (cluster := cluster_of(container, self._directory))]
        found = archive.with_kept(known, self._root, self.name, name)
        self._note([cluster.launch_id for cluster in found], containers)
        return found

    def load(self, cluster: Cluster) -> Plan:
        """Return the plan as main's container tells it, or as it was kept."""
        if nodes := self._containers(cluster):
            self._open_volumes()
            return plan_of(cluster, nodes, self._root)
        # Its cluster dir is what was copied.
        return replace(Plan.load(cluster.directory, self._root), work_dir=f"file://{cluster.directory.parent}")

    def states(self, clusters: Sequence[Cluster]) -> dict[str, list[NodeState]]:
        """Return the nodes as the engine tells, or as they were kept."""
        self._inspect(clusters)
        return {cluster.launch_id: self._states(cluster) for cluster in clusters}

    def _states(self, cluster: Cluster) -> list[NodeState]:
        nodes = self._seen[cluster.launch_id]
        found = [self._created.state(name, container) for name, container in nodes.items()]
        return self._told.with_reports(cluster, found) or archive.read_states(cluster)

    def _containers(self, cluster: Cluster) -> dict[str, Container]:
        """Return the containers of *cluster* by node, main first; none where they are gone."""
        self._inspect([cluster])
        return self._seen[cluster.launch_id]

    def _inspect(self, clusters: Sequence[Cluster]) -> None:
        """Look at containers: one call, and now and then another for new ones."""
        wanted = [cluster.launch_id for cluster in clusters]
        if self._clock() - self._listed_at >= _LIST_S:
            self._known.clear()
        if self._known.keys() >= set(wanted):
            ids = [id_ for launch_id in wanted for id_ in self._known[launch_id]]
        else:
            ids = self._engine.containers(f"{commands.LAUNCH}={wanted[0]}" if len(wanted) == 1 else commands.LAUNCH)
            self._listed_at = self._clock()
        found = self._engine.inspect(ids)
        self._note(wanted, found)
        if len(found) != len(ids):  # some have gone just now
            self._known.clear()

    def _note(self, launch_ids: Sequence[str], found: Sequence[Container]) -> None:
        """Keep which of the containers *found* are of which of *launch_ids*."""
        for launch_id in launch_ids:
            containers = [container for container in found if launch_of(container) == launch_id]
            self._known[launch_id] = [str(container["Id"]) for container in containers]
            self._created.note(containers)
            self._seen[launch_id] = nodes_of(containers)

    def logs(self, cluster: Cluster, directory: Path, *, follow: bool) -> ContainerLogs:
        """Return the copier of the nodes' logs."""
        # As the last look saw them: it costs a call.
        nodes = lambda: self._seen.get(cluster.launch_id) or self._containers(cluster)  # noqa: E731 - one expression
        return ContainerLogs(self._engine, nodes, cluster, directory, follow=follow)

    def port_forward(self, cluster: Cluster, plan: Plan, node: str, port: int, say: Say) -> ContainerPortForward:  # noqa: ARG002 - at once
        """Return the way to *port* of *node*, which need not be published."""
        return ContainerPortForward(self._engine, commands.container_name(cluster.cluster_id, node), node, port)

    # --- End -----------------------------------------------------------------------------------------------

    def why_fixed(self, cluster: Cluster) -> str:
        """Return why there can be no more workers: main has been removed."""
        return "" if "MAIN" in self._containers(cluster) else _HAS_ENDED

    def end(self, cluster: Cluster, nodes: Collection[str], *, at_once: bool = False) -> None:
        """Have the engine end *nodes*, each once, unless the engine's client failed."""
        self._known.clear()
        found = self._containers(cluster)
        running = [
            state for name in found if name in nodes and (state := self._created.state(name, found[name])).is_running
        ]
        self._created.give_up(str(state.id) for state in running if state.is_waiting)
        ids = [str(state.id) for state in running if not state.is_waiting]
        if at_once:
            for id_ in ids:
                with contextlib.suppress(EngineError):  # ended meanwhile; the next look tells
                    self._engine.call("kill", id_)
            self._known.clear()
            return
        ids = [id_ for id_ in ids if id_ not in self._ending or self._ending[id_].poll() not in {None, 0}]
        if ids:
            grace_s = plan_of(cluster, found, self._root).limits.grace_period_s + _MARGIN_S
            client = self._engine.start("stop", "-t", f"{grace_s:.0f}", *ids, output=Path(os.devnull))
            self._ending.update(dict.fromkeys(ids, client))

    def finish(self, cluster: Cluster, say: Say) -> None:
        """Copy what *cluster* leaves to the checkout, and remove it from the engine."""
        with archive.alone(cluster):
            self._end_the_late(cluster)
            if nodes := self._containers(cluster):
                from oci_cluster.backends.docker.volume_files import copy_all  # noqa: PLC0415 - as _open_volumes

                copy_all(self._engine, cluster, plan_of(cluster, nodes, self._root), nodes, self._states(cluster))
            self.remove(cluster, say)
        say(f"logs and outputs are in {cluster.directory}")

    def _end_the_late(self, cluster: Cluster) -> None:
        """End nodes that a launch has begun after somebody saw the end of *cluster*."""
        for at_once in (False, True):
            self._known.clear()
            nodes = self._containers(cluster)
            late = [name for name, container in nodes.items() if self._created.state(name, container).is_running]
            if not late:
                return
            self.end(cluster, late, at_once=at_once)
            self.close()  # until its clients have ended them

    def remove(self, cluster: Cluster, say: Say) -> None:  # noqa: ARG002 - seconds
        """Remove containers, network and volume of *cluster*; missing ones count as removed."""
        if ids := self._engine.containers(f"{commands.LAUNCH}={cluster.launch_id}"):
            with _none_is_fine():
                self._engine.call("rm", "--force", "--volumes", *ids)
        for what in ("network", "volume"):
            with _none_is_fine():
                self._engine.call(what, "rm", cluster.cluster_id)
        self._known.clear()
        self._seen.pop(cluster.launch_id, None)

    def close(self) -> None:
        """Return when the clients that end containers have done so."""
        for client in self._ending.values():
            try:
                client.wait(_MARGIN_S)
            except subprocess.TimeoutExpired:
                client.kill()
                client.wait()


@contextmanager
def _unless_removed(engine: Engine, plan: Plan, started: Collection[str]) -> Iterator[None]:
    """Say so where somebody removes the cluster while its first nodes are *started*.

    Its workers would wait for a main, and that its network is gone tells nobody why.
    """
    failed: EngineError | None = None
    try:
        yield
    except EngineError as error:
        failed = error
    if started and not engine.inspect([commands.container_name(plan.cluster_id, "MAIN")]):
        raise StoppedError(f"{plan.name} was stopped before all nodes were started") from failed
    if failed:
        raise failed


@contextmanager
def _none_is_fine() -> Iterator[None]:
    """Ignore an engine's refusal that says: nothing of that name exists any more."""
    try:
        yield
    except EngineError as error:
        if not error.is_absent:
            raise
