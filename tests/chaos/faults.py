"""Faults, carried out on a cluster, wherever it runs."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import psutil
from harness import PATIENCE_S, Launch

from chaos.places import Place
from chaos.schedules import FILE_FAULTS, SIGNALS, VERBS, Fault

# How long a paused process is waited for by the others.
_PAUSE_S = 2.0


class Faults:
    """Carries out faults on one launch, and remembers what it began."""

    def __init__(self, place: Place, launch: Launch) -> None:
        """Prepare faults of the cluster that *launch* starts or has started in *place*."""
        self._place = place
        self._launch = launch
        self._plays_back = any(fault.kind == "play-back" for fault in place.schedule.faults)
        self._looked_at = 0.0
        self._older: dict[str, bytes] = {}
        self._threads: list[threading.Thread] = []
        #: Verbs of others that have ended, with their code and what they said.
        self.verbs: list[tuple[list[str], int | None, str]] = []
        #: Faults that met nobody: the process or the file was not there.
        self.missed: list[Fault] = []

    def remember(self) -> None:
        """Keep the files that are there now, for who plays them back."""
        if not self._plays_back or time.monotonic() < self._looked_at + self._place.remember_s:
            return
        with contextlib.suppress(OSError):
            for name in self._place.names():
                if name not in self._older:
                    with contextlib.suppress(OSError):
                        self._older[name] = self._place.read(name)
        self._looked_at = time.monotonic()

    def carry_out(self, fault: Fault) -> bool:
        """Do *fault*, now, and return whether it has met what it is for.

        What takes longer goes on in the background, until :meth:`finish`.
        """
        if fault.kind in SIGNALS:
            return self._signal(fault)
        if fault.kind in FILE_FAULTS:
            return self._damage(fault)
        if fault.kind not in VERBS:
            return self._strike(fault)
        for words in self._place.verbs(fault.kind):
            self._in_background(lambda words=words: self._run(words))
        return True

    def finish(self) -> None:
        """Wait for what is going on in the background."""
        for thread in self._threads:
            thread.join()

    def _strike(self, fault: Fault) -> bool:
        struck = self._place.strike(fault)
        if struck is None:
            return False
        seconds, heal = struck

        def heal_later() -> None:
            time.sleep(seconds)
            heal()

        if seconds:
            self._in_background(heal_later)
        return True

    # --- Signals

    def _signal(self, fault: Fault) -> bool:
        processes = self._targets(fault.target)
        if fault.kind == "FREEZE" and fault.target.startswith("agent"):
            for process in list(processes):
                with contextlib.suppress(psutil.NoSuchProcess):
                    processes += process.children(recursive=True)
        pause = fault.kind in {"PAUSE", "FREEZE"}
        number = signal.SIGSTOP if pause else getattr(signal, f"SIG{fault.kind}")
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        # Nobody but init watches who launches: frozen for good it would just be a launch that was left.
        if fault.kind == "PAUSE" or (pause and not fault.target.startswith("agent")):
            self._in_background(lambda: self._continue(processes))
        return bool(processes)

    def _continue(self, processes: list[psutil.Process]) -> None:
        time.sleep(_PAUSE_S)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def _targets(self, target: str) -> list[psutil.Process]:
        """Return the processes that are meant: none where they are not there."""
        who, _, node = target.partition(" ")
        with contextlib.suppress(psutil.NoSuchProcess, OSError, ValueError, KeyError):
            if who in {"launcher", "follower", "guard"}:
                return self._of_the_launch(who)
            if not self._place.launch_id():
                return []
            if who == "runner":
                return self._place.runner()
            return self._place.agent(node) if who == "agent" else self._place.part(who, node)
        return []

    def _of_the_launch(self, who: str) -> list[psutil.Process]:
        """Return launch.sh itself, its Python, or what that has watch over it."""
        launcher = psutil.Process(self._launch.process.pid)
        if who == "launcher":
            return [launcher]
        followers = launcher.children()[:1]
        if who == "follower":
            return followers
        # What has watch is a copy of it; its other children are the runner, and clients of an engine.
        return [child for one in followers for child in one.children() if child.cmdline() == one.cmdline()]

    # --- Files

    def _damage(self, fault: Fault) -> bool:
        place, name = self._place, fault.target
        try:
            if fault.kind == "delete":
                place.delete(name)
            elif fault.kind == "cut":
                data = place.read(name)
                place.write(name, data[: len(data) // 2])
            elif fault.kind == "garble":
                place.write(name, b"\xff{[" * 7)
            elif fault.kind == "replace":
                place.write(name, place.read("MAIN_config.json"))
            elif fault.kind == "swap":
                other = self._same_file_of_the_next(name)
                texts = place.read(name), place.read(other)
                place.write(name, texts[1])
                place.write(other, texts[0])
            else:
                place.write(name, self._older[name])
        except (OSError, KeyError):
            return False
        return True

    def _same_file_of_the_next(self, name: str) -> str:
        node, _, part = name.rpartition("_")
        nodes = ["MAIN", *(f"WORKER_{rank}" for rank in range(1, self._place.schedule.workers + 1))]
        return f"{nodes[(nodes.index(node) + 1) % len(nodes)]}_{part}"

    # --- Verbs

    def _run(self, words: list[str]) -> None:
        try:
            done = self._place.project.run(words[0], *words[1:])
        except subprocess.TimeoutExpired:
            self.verbs.append((words, None, f"took longer than {PATIENCE_S:g} s"))
        else:
            self.verbs.append((words, done.returncode, done.stderr))

    def _in_background(self, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        self._threads.append(thread)
