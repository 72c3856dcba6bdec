"""`local`: nodes are processes of this machine, below a runner; the cluster dir is a directory."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
from harness import processes_of
from hosts import why_no_mount

from chaos.places import Place, Struck
from chaos.schedules import TOYS, Fault, Schedule

_AWAY_S, _FULL_S = 1.0, 2.0
_DISKS = {"disk full": "disk", "temporary full": "temporary"}


class LocalPlace(Place):
    """Processes below a runner."""

    def __init__(self, checkout: Path, scratch: Path, schedule: Schedule) -> None:
        super().__init__(checkout, scratch, schedule)
        self._scratch = scratch
        self._mounted: list[Path] = []

    def prepare(self) -> None:
        """Mount small disks where they are to fill up."""
        if why_no_mount():
            return  # these faults meet nobody
        for kind in {fault.kind for fault in self.schedule.faults} & _DISKS.keys():
            disk = self._disk(kind)
            disk.mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
            self._mounted.append(disk)
            if kind == "disk full":
                (self.project.path / ".clusters").symlink_to(disk)

    def words(self, framework: str, workers: int, entry: str) -> list[str]:
        # Frameworks of tests have no environment.
        python = ["--python", sys.executable] if framework in TOYS else []
        return [*super().words(framework, workers, entry), *python]

    @property
    def directory(self) -> Path:
        """The cluster's directory; before there is one, where none will be."""
        return self.project.path / ".clusters" / f"{self.name}-{self.launch_id() or 'none'}"

    def said(self) -> str:
        log = self.directory / "logs" / "runner.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def found_id(self) -> str:
        found = list((self.project.path / ".clusters").glob(f"{self.name}-*"))
        return found[0].name.rpartition("-")[2] if found else ""

    def _records(self) -> dict[str, object]:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, object] = json.loads((self.directory / "nodes.json").read_bytes())
            return found
        return {"nodes": []}

    def agent(self, node: str) -> list[psutil.Process]:
        return [psutil.Process(record["pid"]) for record in self._records()["nodes"] if record["node"] == node]

    def runner(self) -> list[psutil.Process]:
        return [psutil.Process(self._records()["runner_pid"])]

    def names(self) -> list[str]:
        return [path.name for path in self.directory.glob("*") if path.is_file()]

    def read(self, name: str) -> bytes:
        return (self.directory / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        (self.directory / name).write_bytes(data)

    def delete(self, name: str) -> None:
        (self.directory / name).unlink()

    def strike(self, fault: Fault) -> Struck | None:
        """Take the cluster dir away, or fill a disk, for some time."""
        return self._take_away() if fault.kind == "away" else self._fill(fault)

    def _take_away(self) -> Struck | None:
        directory = self.directory
        away = directory.with_name("away")
        try:
            directory.rename(away)
        except OSError:
            return None

        def bring_back() -> None:
            if directory.exists():  # somebody has made it anew: what he wrote counts
                shutil.copytree(directory, away, dirs_exist_ok=True)
                shutil.rmtree(directory)
            away.rename(directory)

        return _AWAY_S, bring_back

    def _fill(self, fault: Fault) -> Struck | None:
        disk = self._disk(fault.kind)
        if disk not in self._mounted:
            return None
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        return _FULL_S, lambda: filler.unlink(missing_ok=True)

    def _disk(self, kind: str) -> Path:
        return self.project.temporary if kind == "temporary full" else self._scratch / _DISKS[kind]

    def left(self, *, launcher_is_gone: bool) -> list[str]:
        """Return it as elsewhere; a launch of the same name can have been the first, so all of that name count."""
        ids = {path.name.rpartition("-")[2] for path in (self.project.path / ".clusters").glob(f"{self.name}-*")}
        left = [str(process) for launch_id in ids for process in processes_of(launch_id)]
        return left + [str(path) for launch_id in ids for path in self.project.temporary.glob(f"{launch_id}-*")]

    def close(self) -> None:
        super().close()
        for disk in self._mounted:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


@contextlib.contextmanager
def shared(_scratch: Path) -> Iterator[None]:
    """Share nothing."""
    yield None


def open_place(checkout: Path, scratch: Path, schedule: Schedule, _shared: None) -> Place:
    """Return the place for one schedule."""
    return LocalPlace(checkout, scratch, schedule)
