"""What faults and checks need to know of where nodes run; a module `place_<name>` for each, and this for all."""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
from harness import Launch, Project, processes_of, wait_until

from chaos.schedules import TOYS, Fault, Schedule

CHECKOUT = Path(__file__).resolve().parents[2]
FRAMEWORKS_OF_TESTS = CHECKOUT / "tests" / "clusters"


class Place:
    """Where the nodes of one launch run, and what is seen of them from outside.

    Args:
        checkout: A copy of the checkout, of :func:`copy_checkout`.
        scratch: A directory of this schedule alone.
        schedule: What is to be run.
    """

    #: How often the files of the cluster dir are looked at, for who plays them back.
    remember_s = 0.01
    #: How long a fault at the start waits for whom it is to meet.
    start_s = 0.0

    def __init__(self, checkout: Path, scratch: Path, schedule: Schedule) -> None:
        self.project = Project(checkout, scratch)
        self.schedule = schedule
        self.name = f"chaos-{schedule.place}-{schedule.seed}"
        folder = self.truth_folder()
        folder.mkdir(exist_ok=True)
        os.mkfifo(folder / "truth")
        (folder / "truth").chmod(0o666)
        self._truth_file = os.open(folder / "truth", os.O_RDWR | os.O_NONBLOCK)
        self._truth = ""
        self._launch: Launch | None = None

    # --- What really happened: a pipe reaches this process from where nothing else can be written

    def truth_folder(self) -> Path:
        """Return the folder of the pipe, on this machine."""
        return self.project.scratch.parent / "truth"

    def truth_path(self) -> str:
        """Return the pipe's path on nodes."""
        return str(self.truth_folder() / "truth")

    def truth(self) -> str:
        """Return what entry points have noted so far: lines of node, attempt, what."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._truth += os.read(self._truth_file, 65536).decode()
        return self._truth

    # --- The launch, and other verbs

    def launch(self) -> Launch:
        """Launch the schedule's cluster."""
        words = self.words(self.schedule.framework, self.schedule.workers, "entry.py")
        self._launch = self.project.launch(*words, **dict(self.schedule.settings))
        return self._launch

    def another(self) -> list[str]:
        """Return the command line of another launch of the same name, a small one."""
        return self.words("plain", 1, "other.py")

    def words(self, framework: str, workers: int, entry: str) -> list[str]:
        """Return the command line of a launch of the schedule's name."""
        return [framework, str(workers), "--entry", entry, "--name", self.name]

    def verbs(self, kind: str) -> list[list[str]]:
        """Return the command lines of a verb of others."""
        stop = ["stop", self.name]
        return {
            "stop": [stop],
            "stop twice": [stop, stop],
            "scale +1": [["scale", self.name, "+1"]],
            "scale -1": [["scale", self.name, "-1"]],
            "scale and stop": [["scale", self.name, "+1"], stop],
            "same name": [["launch", *self.another()]],
            "list and status": [["list", "--json"], ["status", self.name, "--json"]],
        }[kind]

    def shown(self) -> dict[str, Any] | None:
        """Return what list.sh shows of the cluster; of several of that name, the launch's own, or else the first."""
        done = self.project.run("list", "--all", "--json")
        found = [cluster for cluster in json.loads(done.stdout or "[]") if cluster["name"] == self.name]
        own = self.launch_id()
        # Those of one second have no order; OCI's tell no directory.
        return min(found, key=lambda of: (not of.get("directory", "").endswith(own), of["created"]), default=None)

    def said(self) -> str:
        """Return what was said beside what launch.sh has said."""
        return ""

    # --- Processes

    def launch_id(self) -> str:
        """Return the launch's id; empty before it has one."""
        told = re.search(rf"{self.name}-([0-9a-f]{{8}})\b", self._launch.err) if self._launch else None
        return told[1] if told else self.found_id()

    def found_id(self) -> str:
        """Return the id of what is there of that name, where the launch itself has not told its own; else nothing."""
        raise NotImplementedError

    def agent(self, node: str) -> list[psutil.Process]:
        """Return the agent of *node*."""
        raise NotImplementedError

    def runner(self) -> list[psutil.Process]:
        """Return what stands in the service's place; none where there is a service."""
        return []

    def part(self, part: str, node: str) -> list[psutil.Process]:
        """Return the start script (`script`) or the entry point (`entry`) on *node*."""
        wanted = "start-" if part == "script" else "entry.py"
        return processes_of(self.launch_id(), node, lambda words: any(wanted in word for word in words[:3]))[:1]

    # --- Files of the cluster dir

    def names(self) -> list[str]:
        """Return the names of the files that are there."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """Return a file's bytes; OSError where it cannot be read."""
        raise NotImplementedError

    def write(self, name: str, data: bytes) -> None:
        """Write over a file; OSError where it cannot be written."""
        raise NotImplementedError

    def delete(self, name: str) -> None:
        """Remove a file; OSError where it cannot be removed."""
        raise NotImplementedError

    # --- The place's own faults, and the end

    def prepare(self) -> None:
        """Make ready what faults of this schedule need before Enter."""

    def strike(self, fault: Fault) -> Struck | None:
        """Begin one of the place's own faults; return after how many seconds what ends it; None: it met nobody."""
        raise NotImplementedError(fault.kind)

    def heal(self) -> None:
        """End what a fault has begun for good, and is of the place."""

    def left(self, *, launcher_is_gone: bool) -> list[str]:
        """Return what is there of the cluster, and should not be; less is asked of a launcher that was killed."""
        left = [str(process) for process in processes_of(self.launch_id())] if self.launch_id() else []
        return left + [str(path) for path in self.project.temporary.glob(f"{self.launch_id() or 'none'}-*")]

    def tidy(self) -> list[str]:
        """Remove what a launcher that was killed leaves by contract; return what could not be removed."""
        return []

    def close(self) -> None:
        """End and remove all that is left of the schedule, also after a failure."""
        self.project.end_all()
        os.close(self._truth_file)


Struck = tuple[float, Callable[[], object]]
ONCE: Struck = (0.0, lambda: None)
"""What is done, and over."""

Opened = Callable[[Path, Schedule], contextlib.AbstractContextManager[Place]]


@contextlib.contextmanager
def opened(name: str, checkout: Path, scratch: Path) -> Iterator[Opened]:
    """Have a place, with what all its schedules share; yield what opens it for one schedule."""
    with import_module(f"chaos.place_{name}").shared(scratch) as shared:
        yield opened_in(name, checkout, shared)


def opened_in(name: str, checkout: Path, shared: Any) -> Opened:
    """Return what opens a place for one schedule, in what all schedules there *shared*."""
    module = import_module(f"chaos.place_{name}")

    @contextlib.contextmanager
    def open_one(directory: Path, schedule: Schedule) -> Iterator[Place]:
        directory.mkdir()
        place: Place = module.open_place(checkout, directory, schedule, shared)
        try:
            yield place
        finally:
            place.close()
            clusters = checkout / ".clusters"
            if clusters.is_symlink():
                clusters.unlink()
            with contextlib.suppress(FileNotFoundError):  # nothing was started
                clusters.rename(directory / "clusters")

    return open_one


def copy_checkout(scratch: Path) -> Path:
    """Return a copy of the checkout, with the frameworks of tests, that shares its environments."""
    path = scratch / "checkout"
    frameworks = [script.parent.name for script in CHECKOUT.glob("*/start-master.sh")]
    for folder in ("common", "scripts", *frameworks):
        shutil.copytree(CHECKOUT / folder, path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for toy in set(TOYS):
        shutil.copytree(FRAMEWORKS_OF_TESTS / toy, path / toy)
    # Processes there write none themselves: each would compile what it imports.
    compileall.compile_dir(path, quiet=2)
    (path / ".venv").symlink_to(CHECKOUT / ".venv")
    return path


def agents_of(launch_id: str, node: str) -> list[psutil.Process]:
    """Return the agent of *node* where it is a program of its own: its relay is a copy of it, and younger."""
    rank = "0" if node == "MAIN" else node.rpartition("_")[2]
    # What the launcher has given it; or, in a pod, Kubernetes.
    marks = {"MODE": "MAIN"} if node == "MAIN" else {"NODE_RANK": rank}, {"JOB_COMPLETION_INDEX": rank}
    found = []
    for process in processes_of(launch_id, command=lambda words: words[-2:] == ["oci_cluster", "agent"]):
        with contextlib.suppress(psutil.NoSuchProcess):
            environ = process.environ().items()
            if any(mark.items() <= environ for mark in marks):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)[:1]


def wait_for_nothing(left: Callable[[], list[str]], patience_s: float = 120.0) -> list[str]:
    """Return what is left after some time in which it may go."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not left(), "nothing to be left", patience_s)
        return []
    return left()
