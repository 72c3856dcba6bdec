"""`docker`: containers of an engine of their own; the cluster dir is in a volume of it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import engine as engines
import psutil
from engine import Engine
from toy_image import build_toy_image

from chaos.places import ONCE, Place, Struck, agents_of
from chaos.schedules import TOYS, Fault, Schedule

_IMAGE = "toys:1"
_PAUSE_S, _AWAY_S, _DOWN_S = 2.0, 3.0, 1.0
_OURS = "label=oci-cluster.launch"


class DockerPlace(Place):
    """Containers; the engine is that of all schedules."""

    start_s = 10.0

    def __init__(self, checkout: Path, scratch: Path, schedule: Schedule, engine: Engine) -> None:
        super().__init__(checkout, scratch, schedule)
        self._engine = engine
        self._engine_lock = threading.Lock()
        # Not all that the engine's own environment has: nothing of it may be needed.
        docker_host = engine.environ["DOCKER_HOST"]
        self.project.environ |= {
            "BACKEND": "docker",
            "DOCKER": engine.docker,
            "DOCKER_HOST": docker_host,
            "IMAGE": _IMAGE,
        }

    def truth_folder(self) -> Path:
        """Return a folder of the code: that is read-only in containers, but a pipe in it can be written to."""
        return self.project.code / "truth"

    def truth_path(self) -> str:
        return "/code/truth/truth"

    def _volume(self) -> Path:
        """Return the directory of the cluster's volume; where there is none yet, one that is not there."""
        return self._engine.directory / "data" / "volumes" / f"{self.name}-{self.launch_id()}"

    def found_id(self) -> str:
        volumes = list((self._engine.directory / "data" / "volumes").glob(f"{self.name}-*"))
        return volumes[0].name.rpartition("-")[2] if volumes else ""

    def agent(self, node: str) -> list[psutil.Process]:
        return agents_of(self.launch_id(), node)

    # --- Files: the engine keeps volumes where this machine sees them

    def _cluster_dir(self) -> Path:
        volume = self._volume()
        return volume / "_data" / volume.name

    def names(self) -> list[str]:
        return [path.name for path in self._cluster_dir().glob("*") if path.is_file()]

    def read(self, name: str) -> bytes:
        return (self._cluster_dir() / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = self._cluster_dir() / name
        path.write_bytes(data)
        os.chown(path, 1000, 1000)  # as what nodes write

    def delete(self, name: str) -> None:
        (self._cluster_dir() / name).unlink()

    # --- Faults of the engine

    def strike(self, fault: Fault) -> Struck | None:
        if fault.kind in {"engine killed", "machine lost"}:
            return self._kill_engine(everything=fault.kind == "machine lost")
        container = self._container(fault.target)
        return self._strike_container(fault.kind, container) if container else None

    def _kill_engine(self, *, everything: bool) -> Struck | None:
        # One that another fault has killed cannot be killed again, nor one that is just being started.
        with self._engine_lock:
            if not self._engine.is_up:
                return None
            self._engine.kill(everything=everything)
        return _DOWN_S, self._start_engine

    def _start_engine(self) -> None:
        with self._engine_lock:
            self._engine.start()

    def _container(self, node: str) -> str:
        filters = (f"--filter=label=oci-cluster.node={node}", f"--filter=label=oci-cluster.launch={self.launch_id()}")
        return (self._ask("ps", "--quiet", *filters).split() or [""])[0]

    def _strike_container(self, kind: str, container: str) -> Struck | None:
        done = self._engine.run(*_words(kind, container, self._volume().name), check=False)
        if done.returncode:
            return None
        if kind == "container PAUSE":
            return _PAUSE_S, lambda: self._ask("unpause", container)
        if kind == "disconnected":
            return _AWAY_S, lambda: self._ask("network", "connect", self._volume().name, container)
        return ONCE

    def _ask(self, *words: str) -> str:
        """Return what the engine says; nothing where it refuses, or does not run."""
        return self._engine.run(*words, check=False).stdout

    # --- What is left

    def left(self, *, launcher_is_gone: bool) -> list[str]:
        left = super().left(launcher_is_gone=launcher_is_gone)
        # Who has killed a launcher finds its ended containers until stop.sh copies what they leave.
        return left + ([] if launcher_is_gone else self._in_engine())

    def _in_engine(self) -> list[str]:
        lists = (["ps", "--all"], ["network", "ls"], ["volume", "ls"])
        return [f"{words[0]} {id_}" for words in lists for id_ in self._ask(*words, "-q", f"--filter={_OURS}").split()]

    def tidy(self) -> list[str]:
        """Stop the cluster: what is left of it in the engine is copied and removed."""
        if not self._in_engine():
            return []
        done = self.project.run("stop", self.name)
        found = [] if done.returncode == 0 else [f"stop ended with {done.returncode}: {done.stderr[-600:]}"]
        return [*found, *(f"stop left {thing}" for thing in self._in_engine())]

    def close(self) -> None:
        super().close()
        for what in ("container", "network", "volume"):
            every = ["--all"] if what == "container" else []
            if ids := self._ask(what, "ls", "--quiet", f"--filter={_OURS}", *every).split():
                self._ask(what, "rm", *([] if what == "network" else ["--force"]), *ids)


def _words(kind: str, container: str, network: str) -> list[str]:
    return {
        "container PAUSE": ["pause", container],
        "container KILL": ["kill", container],
        "container TERM": ["kill", "--signal=TERM", container],
        "container removed": ["rm", "--force", container],
        "disconnected": ["network", "disconnect", network, container],
    }[kind]


@contextlib.contextmanager
def shared(scratch: Path) -> Iterator[Engine]:
    """Have an engine with an image of the toys."""
    if reason := engines.why_not():
        raise SystemExit(f"BACKEND=docker needs an engine of its own: {reason}")
    with Engine(scratch / "e") as engine:
        context = scratch / "image"
        context.mkdir()
        build_toy_image(engine, context, _IMAGE, *sorted(set(TOYS)))
        yield engine


def open_place(checkout: Path, scratch: Path, schedule: Schedule, shared: Engine) -> Place:
    """Return the place for one schedule."""
    return DockerPlace(checkout, scratch, schedule, shared)
