"""What tests of real clusters share: a project with its scripts, launches of it, and what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

# Longest wait for anything here; a cluster that hangs must fail its test, not the suite.
PATIENCE_S = 240.0  # nothing is slow on purpose; a machine of two busy cores is five times as slow as a quiet one

# Entry points that run until the test says go(), and until they are ended.
UNTIL_GO = "import os, time\nprint('entry up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
SLEEP = "import time; print('entry up', flush=True); time.sleep(1000)"


def wait_until(condition: Callable[[], Any], what: str | Callable[[], str], patience_s: float = PATIENCE_S) -> Any:
    """Return what *condition* returns as soon as that is true; fail after *patience_s*, and tell *what* it was."""
    began_at = time.monotonic()
    while not (found := condition()):
        waited_s = time.monotonic() - began_at
        if waited_s > patience_s:
            msg = f"waited {patience_s:g} s for {what() if callable(what) else what}"
            raise AssertionError(msg)
        # Who looks at all processes, or asks a service, computes on the CPUs that it waits for.
        time.sleep(min(0.1, max(0.02, waited_s / 20)))
    return found


def processes_of(
    launch_id: str, node: str | None = None, command: Callable[[list[str]], bool] = lambda _: True
) -> list[psutil.Process]:
    """Return every living process that belongs to a launch, or to one *node* of it, with a *command* line as wanted."""
    found = []
    for process in psutil.process_iter():
        # One that ends while it is looked at is not there; what is asked of it later can still find that.
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            environ = process.environ()
            is_marked = launch_id in {environ.get("LAUNCH_ID"), environ.get("CLUSTER_RUNNER")}
            # An agent is a copy of the runner, with the runner's environment and the node's name.
            is_agent = environ.get("CLUSTER_RUNNER") == launch_id and process.name() == node
            is_of_node = node is None or environ.get("NODE_NAME") == node or is_agent
            if is_marked and is_of_node and process.status() != psutil.STATUS_ZOMBIE and command(process.cmdline()):
                found.append(process)
    return found


def parts_of(launch_id: str) -> Iterator[tuple[str, psutil.Process, Path | None]]:
    """Yield all processes of a launch, each with its node and that node's private directory.

    Some write a title over their environment: those belong where the process does that has started them.
    """
    seen = set()
    for process in processes_of(launch_id):
        with contextlib.suppress(psutil.NoSuchProcess):
            environ = process.environ()
            node = environ.get("NODE_NAME", "")
            started = process.children(recursive=True) if node else []
            started = [part for part in started if "LAUNCH_ID" not in part.environ()]
            for found in [process, *started]:
                if found.pid not in seen:
                    seen.add(found.pid)
                    yield node, found, Path(environ["NODE_DIR"]) if "NODE_DIR" in environ else None


def is_listening(address: str, port: int) -> bool:
    """Return whether somebody takes connections there."""
    with socket.socket() as tried:
        return tried.connect_ex((address, port)) == 0


def listening_of(launch_id: str, command: Callable[[list[str]], bool] = lambda _: True) -> set[tuple[str, str, int]]:
    """Return node, address and port of all that a launch's processes with such a *command* line listen on."""
    found = set()
    for process in processes_of(launch_id, command=command):
        with contextlib.suppress(psutil.NoSuchProcess):
            node = process.environ().get("NODE_NAME", "")
            found |= {
                (node, connection.laddr.ip, connection.laddr.port)
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            }
    return found


class Launch:
    """One ``launch.sh``, or ``session.sh``, in a session of its own, as a terminal would have it."""

    def __init__(self, project: Project, arguments: list[str], environ: dict[str, str], script: str = "launch") -> None:
        self._project = project
        before = set(project.cluster_dirs())
        self.started_at = time.monotonic()
        self._out = project.scratch / f"out-{len(list(project.scratch.iterdir()))}"
        self._err = self._out.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [str(project.path / "scripts" / f"{script}.sh"), *arguments],
                cwd=project.code,
                env={**project.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._before = before
        self._directory: Path | None = None

    @property
    def out(self) -> str:
        """What it has printed so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """What it has said so far."""
        return self._err.read_text()

    @property
    def directory(self) -> Path:
        """The cluster's directory on this machine."""

        def look() -> list[Path]:
            assert self.process.poll() in {None, 0} or set(self._project.cluster_dirs()) - self._before, self.err
            return [d for d in set(self._project.cluster_dirs()) - self._before if (d / "nodes.json").exists()]

        self._directory = self._directory or wait_until(look, "the cluster's directory")[0]
        return self._directory

    @property
    def launch_id(self) -> str:
        """The launch id."""
        return self.directory.name.rpartition("-")[2]

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return what the runner has recorded, by node."""
        records = json.loads((self.directory / "nodes.json").read_bytes())
        return {node["node"]: node for node in records["nodes"]}

    def ports(self) -> dict[str, int]:
        """Return main's ports by setting: others than the usual ones where a cluster beside this one has those."""
        from oci_cluster.contract.cluster import Plan  # noqa: PLC0415 - other tools have no package to import

        return dict(Plan.load(self.directory, self._project.path).limits.ports)

    def runner_pid(self) -> int:
        """Return the runner's pid."""
        return int(json.loads((self.directory / "nodes.json").read_bytes())["runner_pid"])

    def log(self, node: str) -> str:
        """Return what a node has printed so far."""
        path = self.directory / "logs" / f"{node}.log"
        return path.read_text() if path.exists() else ""

    def wait_for(self, text: str, node: str = "MAIN") -> None:
        """Return when *node* has printed *text*; fail when launch.sh has failed before."""

        def is_there() -> bool:
            has_failed = self.process.poll() not in {None, 0}  # before the log: it may have come in between
            if text in self.log(node):
                return True
            if has_failed:
                pytest.fail(f"launch.sh ended before {text!r} of {node}, which printed:\n{self.log(node)}\n{self.err}")
            return False

        wait_until(is_there, lambda: f"{text!r} of {node}, which printed:\n{self.log(node)}\n{self.err}")

    def kill_agent(self, node: str) -> None:
        """Kill a node's agent, as the kernel would when memory runs out."""
        os.kill(self.nodes()[node]["pid"], signal.SIGKILL)

    def kill(self) -> None:
        """Kill the script and its Python at once: neither has time to end anything."""
        os.killpg(self.process.pid, signal.SIGKILL)

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Press Ctrl-C: the whole foreground process group gets the signal."""
        os.killpg(self.process.pid, number)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """Return its exit code; whatever it was, nothing of it may be left."""
        try:
            code = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"launch.sh did not end in {patience_s:g} s:\n{self.out}\n{self.err}\n{self._processes()}")
        return code

    def _processes(self) -> str:
        """Return what each process of the script waits for, and its signals: one that hangs tells no more."""
        lines = []
        with contextlib.suppress(psutil.NoSuchProcess):  # just now
            own = psutil.Process(self.process.pid)
            lines = [self._process(one) for one in (own, *own.children(recursive=True))]
        return "\n".join(lines)

    def _process(self, process: psutil.Process) -> str:
        try:
            about = Path(f"/proc/{process.pid}")
            signals = re.findall(r"(?:SigPnd|ShdPnd|SigIgn|SigCgt):\t\w+", (about / "status").read_text())
            connections = [f"{one.raddr} {one.status}" for one in process.net_connections("tcp")]
            waits = (about / "wchan").read_text(), (about / "syscall").read_text().strip()
            return f"{process.pid} {process.status()} {process.cmdline()[:6]} {waits} {signals} {connections}"
        except (psutil.Error, OSError) as error:  # it has ended, or is somebody else's, or there is no /proc
            return f"{process.pid}: {error}"

    def assert_nothing_left(self) -> None:
        """No process, no private directory of a node, and none of Dask's for all clusters."""
        launch_id = self.launch_id
        wait_until(lambda: not processes_of(launch_id), lambda: f"the end of {processes_of(launch_id)}", 120.0)
        assert not list(self._project.temporary.glob(f"{launch_id}-*"))
        assert not (self._project.temporary / "dask-scratch-space").exists()


class Project:
    """A copy of the checkout, with a framework that needs nothing and a place for user scripts."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self.path = path
        self.scratch = scratch / "launches"
        self.code = scratch / "my code"
        self.temporary = scratch / "tmp"
        for directory in (self.scratch, self.code, self.temporary):
            directory.mkdir()
        kept = {key: os.environ[key] for key in os.environ if re.match(r"PATH$|HOME$|LANG|PIP_|SSL_|COV|CI$", key)}
        # A user's CDPATH makes `cd` print; children of a measured test are measured too. Dask's workers give up after a
        # minute, which their imports take where ten programs compute on two cores.
        own = {"CDPATH": f"{path}:/", "PYTHONDONTWRITEBYTECODE": "1", "DEATH_TIMEOUT": str(round(PATIENCE_S))}
        self.environ = {**kept, "TMPDIR": str(self.temporary), **own}
        self.launches: list[Launch] = []

    def cluster_dirs(self) -> list[Path]:
        """Return the directories of all clusters launched here."""
        return [path.parent for path in (self.path / ".clusters").glob("*/cluster.json")]

    def write(self, name: str, text: str) -> str:
        """Write a user's script and return its name."""
        (self.code / name).write_text(text)
        return name

    def launch(self, *arguments: str, **environ: str) -> Launch:
        """Start ``launch.sh``."""
        launch = Launch(self, list(arguments), environ)
        self.launches.append(launch)
        return launch

    def session(self, *arguments: str, **environ: str) -> Launch:
        """Start ``session.sh``."""
        launch = Launch(self, list(arguments), environ, "session")
        self.launches.append(launch)
        return launch

    def launch_plain(self, workers: int, script: str, *arguments: str, **environ: str) -> Launch:
        """Start ``launch.sh plain`` with the Python text *script* as entry point."""
        entry = self.write("entry.py", script)
        return self.launch("plain", str(workers), "--entry", entry, "--python", sys.executable, *arguments, **environ)

    def assert_quick(self, measure: Callable[[], float], limit_s: float) -> None:
        """Measure up to six times until it takes less than *limit_s*, or as much more as this machine is slow.

        Slow is a machine that starts an interpreter in more than 0.04 s, just before or after; a quiet one of 2 cores
        takes 0.015 s. A fault takes its time on every try; a neighbour on the machine does not. What is launched
        meanwhile runs without coverage, which more than doubles the time that a cluster takes to end.
        """

        def interpreter_s() -> float:
            began_at = time.monotonic()
            for _ in range(10):
                subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
            return (time.monotonic() - began_at) / 10

        usual = self.environ
        self.environ = {name: value for name, value in usual.items() if not name.startswith("COV")}
        took = []
        before_s = interpreter_s()
        for _ in range(6):
            took_s, after_s = measure(), interpreter_s()
            allowed_s = limit_s * max(1.0, before_s / 0.04, after_s / 0.04)
            if took_s < allowed_s:
                break
            took.append(f"{took_s:.2f} of {allowed_s:.2f} s")
            before_s = after_s
        else:
            msg = f"not once quick enough: {', '.join(took)}"
            raise AssertionError(msg)
        self.environ = usual

    def go(self) -> None:
        """Let the entry points go on that wait for it."""
        (self.code / "go").touch()

    def run(self, script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run another script of the project to its end."""
        return subprocess.run(
            [str(self.path / "scripts" / f"{script}.sh"), *arguments],
            cwd=self.code,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    @contextlib.contextmanager
    def connected(self, *words: str) -> Iterator[str]:
        """Run ``connect.sh`` until the block has ended; yield its first line. It ends in order then, with 0."""
        out = self.scratch / f"connect-{len(list(self.scratch.iterdir()))}"
        with out.open("wb") as output:
            process = subprocess.Popen(
                [str(self.path / "scripts" / "connect.sh"), *words],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                start_new_session=True,
            )
        try:
            yield wait_until(lambda: "\n" in out.read_text() and out.read_text(), "a line of connect.sh").strip()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def end_all(self) -> None:
        """End what a failed test left."""
        for launch in self.launches:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(launch.process.pid, signal.SIGKILL)
            launch.process.wait()
        for directory in self.cluster_dirs():
            while left := processes_of(directory.name.rpartition("-")[2]):
                for process in left:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()


def with_own_environments(project: Project, place: Path) -> Project:
    """Return a copy of *project*, in the new directory *place*, that makes its frameworks' environments itself."""
    copy, scratch = place / "copy", place / "scratch"
    shutil.copytree(project.path, copy, ignore=shutil.ignore_patterns(".venv"))
    (copy / ".venv").mkdir()
    for part in (project.path / ".venv").iterdir():
        if part.name not in {"envs", "cache"}:
            (copy / ".venv" / part.name).symlink_to(part.resolve())
    scratch.mkdir()
    return Project(copy, scratch)


def path_with_uv(place: Path, uv: Path | None) -> str:
    """Return a ``PATH`` with *uv* first, which stands in the new directory *place*, or without any."""
    place.mkdir()
    if uv is not None:
        (place / "uv").symlink_to(uv)
    others = [folder for folder in os.environ["PATH"].split(os.pathsep) if not (Path(folder) / "uv").exists()]
    return os.pathsep.join([str(place), *others])
