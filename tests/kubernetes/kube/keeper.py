"""The process that has a Kubernetes of tests, and ends it when nobody holds it any more, however they ended.

Whoever uses the cluster has the FIFO ``held`` of its directory open for writing. The kernel closes that with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from hosts import Hosts

from kube import cgroups
from kube.control_plane import API_ADDRESS, ControlPlane
from kube.images import pause_archive
from kube.machines import Machine
from kube.node import Node
from kube.relay import Relay

CGROUPS = "kubernetes-of-tests"


class Keeper:
    """What a cluster is made of, and what can be done to it: every public method, by its name, from any holder.

    Args:
        place: A new directory for all of it.
        tools: What ``build-tools.sh`` has made.
        node_count: Of real nodes: ``n1``, ``n2`` ...
        with_kueue: Whether Kueue is installed.
    """

    def __init__(self, place: Path, tools: Path, *, node_count: int, with_kueue: bool) -> None:
        self.place = place
        self._tools = tools
        self._names = [f"n{number}" for number in range(1, node_count + 1)]
        self._with_kueue = with_kueue
        self._cgroup = f"{CGROUPS}-{os.getpid()}"
        self.nodes: dict[str, Node] = {}
        self._imported: set[str] = set()

    @contextlib.contextmanager
    def running(self) -> Iterator[Keeper]:
        """Have it all run."""
        remove_what_was_left()
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.place, ignore_errors=True)
            stack.callback(self._remove_cgroups)
            hosts = Hosts("control", *self._names, shared=self.place, readable=[self._tools])
            self._hosts = stack.enter_context(hosts)
            self._start()
            yield self

    def _start(self) -> None:
        bin_, logs = self._tools / "bin", self.place / "logs"
        logs.mkdir()
        control = Machine(self._hosts["control"], bin_, logs)
        relay = Relay(control.host.pid, (control.host.address, 443))
        server = f"https://127.0.0.1:{relay.port}"
        self.control = ControlPlane(control, self.place, self._tools, server)
        for number, name in enumerate(self._names, start=1):
            machine = Machine(self._hosts[name], bin_, logs, cgroup=f"{self._cgroup}/{name}")
            directory = self.place / "nodes" / name
            self.nodes[name] = Node(machine, number, directory, control.host.address, self._tools)
        machines = [control, *(node.machine for node in self.nodes.values())]
        for node in self.nodes.values():
            for other in machines:
                for command in node.routes([other]):
                    other.run(*command.split()[1:])
            node.machine.run("ip", "route", "replace", API_ADDRESS, "via", control.host.address)
        runtimes = [_Task(self._start_runtime, node) for node in self.nodes.values()]
        self.control.start()
        for runtime in runtimes:
            runtime.join()
        for node in self.nodes.values():
            node.start_kubelet(self.control.inside, self.control.authority)
        if self._with_kueue:
            self.control.start_kueue()
        for node in self.nodes.values():
            node.wait(self.control.api)
        # Pods of a namespace need it.
        self.control.api.until("api/v1/namespaces/default/serviceaccounts/default", bool, "the default service account")

    def _start_runtime(self, node: Node) -> None:
        node.start_runtime()
        node.import_image(pause_archive(self._tools, self.place / f"pause-{node.name}.tar"))

    def _remove_cgroups(self) -> None:
        deadline = time.monotonic() + 10
        while cgroups.left(self._cgroup) and time.monotonic() < deadline:
            cgroups.remove(self._cgroup)
            time.sleep(0.05)

    # --- What holders may do to it: answers are what JSON can say

    def about(self) -> dict[str, Any]:
        """Return what a holder needs to know."""
        return {"place": str(self.place), "tools": str(self._tools), "nodes": self._names, **self.control.about()}

    def cut(self, node: str) -> None:
        """Take a node's link away; its pods go on."""
        self._hosts.cut(node)

    def heal(self, node: str) -> None:
        """Give it back."""
        self._hosts.heal(node)

    def kill_kubelet(self, node: str) -> None:
        """Kill a node's kubelet; its containers go on, and nobody hears of them."""
        self.nodes[node].machine.kill("kubelet")

    def start_kubelet(self, node: str) -> None:
        """Start it again."""
        self.nodes[node].machine.start_again("kubelet")

    def restart_api(self, orderly: bool = False) -> None:  # noqa: FBT001, FBT002 - by name, from JSON
        """Kill the API server, or end it in order, and start it again."""
        self.control.restart_api(orderly=orderly)

    def stop_api(self) -> None:
        """Kill the API server."""
        self.control.stop_api()

    def start_api(self) -> None:
        """Start it again."""
        self.control.start_api_again()

    def set_kueue(self, settings: dict[str, Any]) -> None:
        """Start Kueue again with *settings* of its Configuration beside ours."""
        self.control.start_kueue(settings)

    def kill_kueue(self) -> None:
        """Kill Kueue: its webhooks refuse every new Job until it is started again."""
        self.control.machine.kill("kueue")

    def add_fake_nodes(self, count: int, resources: dict[str, str]) -> list[str]:
        """Make Nodes that are none, of *resources* each; return their names."""
        return self.control.add_fake_nodes(count, resources)

    def import_image(self, archive: str) -> None:
        """Load an archive of ``docker save`` on every node, once."""
        if archive in self._imported:
            return
        tasks = [_Task(node.import_image, Path(archive)) for node in self.nodes.values()]
        for task in tasks:
            task.join()
        self._imported.add(archive)

    def inside(self, machine: str) -> int:
        """Return the process whose namespaces are a machine's: a node's, or ``control``."""
        return self._hosts[machine].pid


class _Task:
    """A call beside others, whose failure is told by ``join``."""

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call, *arguments), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised by join
            self._error = error

    def join(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error


def remove_what_was_left() -> None:
    """Remove the cgroups of keepers that were killed."""
    for path in cgroups.left(CGROUPS):
        pid = path.name.rpartition("-")[2]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            cgroups.remove(path.name)


def keep(directory_name: str, tools: str, node_count: str, kind: str) -> None:
    """Have a cluster until nobody holds the directory any more; close stdout when it is ready."""
    directory = Path(directory_name)
    # Of a terminal that its holder sits at: a holder's end is what counts.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    held = os.open(directory / "held", os.O_RDONLY)
    (directory / "about.json").unlink(missing_ok=True)  # of one that was killed
    place = directory / secrets.token_hex(3)
    place.mkdir()
    keeper = Keeper(place, Path(tools), node_count=int(node_count), with_kueue=kind == "kueue")
    with keeper.running(), _served(keeper, place / "do") as path:
        new = directory / "about.new"
        new.write_text(json.dumps({**keeper.about(), "do": str(path), "pid": os.getpid()}))
        new.replace(directory / "about.json")
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - no path
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        while not _is_over(directory, held):
            os.read(held, 1)  # nobody writes: it returns when the last one has closed it


def _is_over(directory: Path, held: int) -> bool:
    """Return whether nobody holds it; then nobody can begin to."""
    with (directory / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_blocking(held, False)
        try:
            is_over = os.read(held, 1) == b""
        except BlockingIOError:
            is_over = False
        os.set_blocking(held, True)
        if is_over:
            (directory / "about.json").unlink(missing_ok=True)
        return is_over


@contextlib.contextmanager
def _served(keeper: Keeper, path: Path) -> Iterator[Path]:
    """Do what holders ask for on a Unix socket, one thing at a time."""
    lock = threading.Lock()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            if not (line := self.rfile.readline()):
                return  # somebody who looks whether this process is there
            asked = json.loads(line)
            try:
                with lock:
                    answer = {"result": getattr(keeper, asked["do"])(**asked["with"])}
            except Exception:  # noqa: BLE001 - whoever asked is told
                answer = {"error": traceback.format_exc()}
            self.wfile.write(json.dumps(answer).encode())

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield path
        server.shutdown()
