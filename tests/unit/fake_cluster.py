"""One agent under test in a world that the test plays: time, other nodes, storage and processes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import config_file, exit_file, heartbeat_file
from oci_cluster.contract.settings.node import read_settings
from oci_cluster.errors import StorageError
from oci_cluster.node.agent import Agent
from oci_cluster.node.coordinator import MainMemory
from oci_cluster.node.loop import NodeLoop

MakeNode = Callable[..., "Node"]

LAUNCH = "launch1"
KEY = "5eed" * 16
FOR_EVER_S = 100_000.0
# What wall clocks show when a world begins.
BEGINNING = 1_700_000_000.0


def make_project(place: Path) -> Path:
    """Make a project with one framework and the user's code in *place*."""
    (place / "plain").mkdir()
    for script in ("start-master.sh", "start-worker.sh"):
        (place / "plain" / script).touch()
    (place / "plain" / "settings.env").write_text("SOME_PORT=1234\n")
    (place / "code").mkdir()
    (place / "code" / "train.py").touch()
    return place


class World:
    """Time that passes only while the agent waits, and what happens in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.received: int | None = None
        self._events: list[tuple[float, Callable[[], object]]] = []

    def at(self, moment: float, event: Callable[[], object]) -> None:
        """Have *event* happen at *moment*."""
        self._events.append((moment, event))
        self._events.sort(key=lambda entry: entry[0])

    def every(self, seconds: float, event: Callable[[], object], *, until: float = FOR_EVER_S) -> None:
        """Have *event* happen every so many *seconds*."""

        def again(moment: float) -> Callable[[], None]:
            def happen() -> None:
                event()
                if moment + seconds <= until:
                    self.at(moment + seconds, again(moment + seconds))

            return happen

        self.at(self.now, again(self.now))

    def clock(self) -> float:
        """Return the time."""
        return self.now

    def wall_clock(self) -> float:
        """Return the time as Unix seconds."""
        return BEGINNING + self.now

    def wait(self, seconds: float) -> None:
        """Let time pass until the next event, *seconds* at most: a signal or SIGCHLD would end a wait too."""
        end = self.now + max(seconds, 0.001)
        assert end < FOR_EVER_S, "the agent waits for ever"
        if self._events and self._events[0][0] <= end:
            moment, event = self._events.pop(0)
            self.now = max(self.now, moment)
            event()
        else:
            self.now = end


class FakeChildren:
    """Processes that end when the test says so."""

    def __init__(self) -> None:
        self.started: list[tuple[list[str], Mapping[str, str], Path]] = []
        # Pids of the start scripts: one for each attempt.
        self.scripts: list[int] = []
        self.codes: dict[int, int] = {}
        self.ended: list[int] = []
        # How many copies of the agent there were; their pids count down from -1.
        self.forked = 0
        self.on_start: Callable[[list[str]], object] = lambda _: None
        # What uploads of outputs end with; None while they run.
        self.upload_code: int | None = 0
        # What it ends with that brings outputs of an earlier life back.
        self.fetch_code = 0
        # What node-facts.sh prints, and its exit code; None while it runs.
        self.facts = b""
        self.facts_code: int | None = 0
        # What the kernel counts of what uploads read and write.
        self.io: Callable[[], str] = lambda: ""
        # How long children take to end when they are told to.
        self.end_takes_s = 0.0

    def start(
        self, command: list[str], *, environ: Mapping[str, str], cwd: Path, output: int | None = None, **_: object
    ) -> int:
        """Note *command*; pids count from 1."""
        self.started.append((command, environ, cwd))
        pid = len(self.started)
        if "upload-outputs" in command:
            if self.upload_code is not None:
                self.codes[pid] = self.upload_code
            return pid
        if "fetch-outputs" in command:
            self.codes[pid] = self.fetch_code
            return pid
        self.on_start(command)
        if command[0].endswith("/node-facts.sh"):
            assert output is not None
            os.write(output, self.facts)
            if self.facts_code is not None:
                self.codes[pid] = self.facts_code
        else:
            self.scripts.append(pid)
        return pid

    def fork(self, call: Callable[[], int], **_: object) -> int:
        """Do what a copy of the agent would, at once."""
        self.forked += 1
        try:
            self.codes[-self.forked] = call()
        except ValueError:
            self.codes[-self.forked] = 70
        return -self.forked

    def code(self, pid: int) -> int | None:
        """Return what the test set."""
        return self.codes.get(pid)

    def moved(self, pid: int) -> str:
        """Return what the test says."""
        assert pid in self.uploads
        return self.io()

    def end(self, pid: int, grace_s: float, *, wait: Callable[[float], None], clock: Callable[[], float]) -> int:
        """Note that the agent ended *pid*."""
        self.ended.append(pid)
        done = clock() + (0.0 if pid in self.codes else self.end_takes_s)
        while clock() < done:
            wait(done - clock())
        return self.codes.setdefault(pid, 143)

    @property
    def uploads(self) -> list[int]:
        """Return the pids of uploads of outputs."""
        return [pid for pid, (command, _, _) in enumerate(self.started, start=1) if "upload-outputs" in command]

    def environ(self, attempt: int = 0) -> Mapping[str, str]:
        """Return what the start script of *attempt* was given."""
        return self.started[self.scripts[attempt] - 1][1]


class FaultyClusterDir(ClusterDir):
    """A cluster dir whose storage can be switched off."""

    fault: Exception | None = None

    def _ask(self, name: str, request: Callable[[str], Any]) -> Any:
        if self.fault is not None:
            raise self.fault
        return super()._ask(name, request)


class Node:
    """One agent under test and everything around it."""

    def __init__(self, root: Path, **environ: str) -> None:
        self.world = World()
        self.children = FakeChildren()
        self.environ = {
            "MODE": "MAIN",
            "WORKER_COUNT": "2",
            "MIN_WORKERS": "1",
            "FRAMEWORK": "plain",
            "WORK_DIR": f"memory://{uuid.uuid4().hex}",
            "CLUSTER_ID": "c",
            "LAUNCH_ID": LAUNCH,
            "LAUNCH_KEY": KEY,
            "ENTRY_POINT": "train.py",
            "CODE_DIR": str(root / "code"),
            "OUTPUT_DIR": str(root / "out"),
            "NODE_ADDRESS": "10.0.0.1",
            "HEARTBEAT_INTERVAL": "5",
            "POLL_CEILING": "5",
            "PATH": "/bin",
            **environ,
        }
        # What an entry point leaves: without it nothing is uploaded.
        (root / "out").mkdir(parents=True, exist_ok=True)
        (root / "out" / "model").write_text("weights")
        self.settings = read_settings(self.environ, root)
        held = MainMemory().ask if self.settings.work_dir.startswith("main://") else None
        self.cluster_dir = FaultyClusterDir(self.settings.cluster_url, LAUNCH, KEY, held=held)
        # What the test writes and reads does not suffer from the faults.
        self.files = ClusterDir(self.settings.cluster_url, LAUNCH, KEY, held=held)
        self.ended_well: dict[str, dict[str, object]] = {}
        for cluster_dir in (self.cluster_dir, self.files):
            cluster_dir._signer._wall_clock_ns = lambda: int(self.world.wall_clock() * 1e9)
        self.node_dir = root / f"{LAUNCH}-{self.settings.node}"
        loop = NodeLoop(
            self.settings,
            cluster_dir=self.cluster_dir,
            signals=self.world,  # type: ignore[arg-type]
            clock=self.world.clock,
            wall_clock=self.world.wall_clock,
        )
        self.agent = Agent(self.settings, self.environ, loop=loop, children=self.children)  # type: ignore[arg-type]

    def run(self) -> int:
        """Live the agent's life."""
        return self.agent.run()

    def child_ends(self, code: int, at: float, *, attempt: int = 0) -> None:
        """Have the start script of *attempt* end with *code*."""
        self.world.at(at, lambda: self.children.codes.update({self.children.scripts[attempt]: code}))

    def ready_at_once(self) -> None:
        """Have each start script say that it is ready as soon as it runs."""
        self.children.on_start = lambda _: (self.node_dir / "ready").touch()

    def publish(self, name: str, at: float = 0.0, **fields: Any) -> None:
        """Have another node of this launch write a file."""
        self.world.at(at, lambda: self.files.publish(name, **fields))

    def main_lives(self, until: float = FOR_EVER_S) -> None:
        """Have main publish its configuration, and its heartbeat until then."""
        self.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1")
        self.beats("MAIN", until)

    def beats(self, node: str, until: float = FOR_EVER_S) -> None:
        """Have *node* write a heartbeat every 5 s."""
        count = iter(range(1_000_000))
        self.world.every(5.0, lambda: self._beat(node, next(count)), until=until)

    def ends_well(self, node: str, at: float, *, attempt: int = 0) -> None:
        """Have the start script of *node* end with 0 at a moment, which its heartbeats tell from then on."""

        def end() -> None:
            self.ended_well[node] = {"phase": "waiting", "attempt": attempt}
            self._beat(node, 1_000_000)

        self.world.at(at, end)

    def _beat(self, node: str, beat: int) -> None:
        self.files.publish(heartbeat_file(node), beat=beat, **self.ended_well.get(node, {}))

    def outage(self, start: float, end: float) -> None:
        """Have storage not answer for a while."""
        self.world.at(start, lambda: setattr(self.cluster_dir, "fault", StorageError("no route to storage")))
        self.world.at(end, lambda: setattr(self.cluster_dir, "fault", None))

    def leave(self, name: str, **fields: Any) -> None:
        """Have another node of this launch write a file of another schema."""
        body, _ = self.files._signer.sign(name, {"launch_id": LAUNCH, "schema": 99, **fields})
        self.files._fs.pipe_file(f"{self.files._path}/{name}", body)

    def forge(self, name: str, **fields: Any) -> None:
        """Have somebody write a file who knows all of the launch but its key."""
        ClusterDir(self.settings.cluster_url, LAUNCH, "another key").publish(name, **fields)

    def read(self, name: str) -> dict[str, Any]:
        """Return what is in the cluster dir."""
        return self.files.read(name) or {}

    def requests(self) -> list[str]:
        """Return a list that will hold the name of the file of each of the agent's requests to storage."""
        made: list[str] = []
        ask = self.cluster_dir._ask

        def note(name: str, request: Callable[[str], Any]) -> Any:
            made.append(name)
            return ask(name, request)

        self.cluster_dir._ask = note  # type: ignore[method-assign]
        return made

    def seen_at(self, moment: float, observe: Callable[[], Any]) -> list[Any]:
        """Return a list that will hold what *observe* returns at *moment*."""
        seen: list[Any] = []
        self.world.at(moment, lambda: seen.append(observe()))
        return seen

    def nodes_dir(self) -> dict[str, list[str]]:
        """Return the lines of each file in NODES_DIR, hidden ones included."""
        folder = self.node_dir / "nodes"
        return {path.name: path.read_text().splitlines() for path in folder.iterdir()} if folder.exists() else {}


class Peer:
    """Another worker of *main*'s cluster, which follows the attempts that main's heartbeat tells of."""

    def __init__(
        self,
        main: Node,
        node: str,
        address: str,
        *,
        at: float = 0.0,
        until: float = FOR_EVER_S,
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Have *node* come at a moment, and be silent after *until*."""
        self._main = main
        self._node = node
        self._own = {"node": node, "address": address, "facts": dict(facts or {})}
        self._attempt: int | None = None
        self._beat = 0
        self._has_left = False
        main.world.at(at, lambda: main.world.every(1.0, self._live, until=until))

    def fails(self, code: int, at: float, *, has_left: bool = False, failed_at: float | None = None) -> None:
        """Have it tell of a failure at a moment, that of *failed_at* where given."""

        def fail() -> None:
            self._has_left = has_left
            self._main.files.publish(
                exit_file(self._node),
                exit_code=code,
                reason=f"exit code {code}",
                attempt=self._attempt,
                time=BEGINNING + (at if failed_at is None else failed_at),
                has_left=has_left,
            )

        self._main.world.at(at, fail)

    def _live(self) -> None:
        if self._has_left:
            return
        self._beat += 1
        attempt = max(self._attempt or 0, self._main.read(heartbeat_file("MAIN")).get("attempt", 0))
        if attempt != self._attempt:
            self._attempt = attempt
            self._main.files.remove(exit_file(self._node))
            self._main.files.publish(config_file(self._node), **self._own, attempt=attempt)
        self._main.files.publish(heartbeat_file(self._node), beat=self._beat, attempt=attempt)


def messages(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """Return the log lines that hold one of *words*."""
    return [text for record in caplog.records if any(word in (text := record.getMessage()) for word in words)]


def tell_facts(root: Path) -> Path:
    """Have the framework a script that tells facts."""
    path = root / "plain" / "node-facts.sh"
    path.touch()
    return path


def all_train(make: MakeNode, **environ: str) -> Node:
    """Return a main whose cluster of 1 + 2 runs the entry point on all nodes, none of which can be missed."""
    main = make(**{"ENTRY_ON": "all", "MIN_WORKERS": "2", **environ})
    main.ready_at_once()
    for node, address in (("WORKER_1", "10.0.0.2"), ("WORKER_2", "10.0.0.3")):
        main.publish(config_file(node), node=node, address=address)
        main.beats(node)
    return main


def leaves(main: Node, node: str, code: int, at: float, *, failed_at: float, **said: bool) -> None:
    """Have a worker end with *code*, and say so at a moment."""
    told = {"exit_code": code, "reason": "broke", "time": BEGINNING + failed_at, "has_left": True, **said}
    main.publish(exit_file(node), at=at, **told)


class Gang:
    """A main of a gang, and two workers that play along, those in *until* up to a moment."""

    def __init__(self, make: MakeNode, until: dict[int, float] | None = None, **environ: str) -> None:
        self.main = make(**{"GANG": "1", "MIN_WORKERS": "2", "POLL_CEILING": "1", **environ})
        self.main.ready_at_once()
        self.workers = {rank: self.comes(rank, until=(until or {}).get(rank, FOR_EVER_S)) for rank in (1, 2)}

    def comes(self, rank: int, **named: Any) -> Peer:
        """Have a worker come, which may be the second one of its rank."""
        return Peer(self.main, f"WORKER_{rank}", f"10.0.0.{rank + 1}", **named)

    def fails(self, rank: int, code: int, at: float, **named: Any) -> None:
        """Have a worker tell of a failure."""
        self.workers[rank].fails(code, at, **named)

    def succeeds(self, at: float, *, attempt: int) -> None:
        """Run the cluster, whose *attempt* ends with success at a moment and is the last one."""
        self.main.child_ends(0, at=at, attempt=attempt)
        assert self.main.run() == 0
        assert self.attempts == attempt + 1

    @property
    def attempts(self) -> int:
        """How many attempts there have been."""
        return len(self.main.children.scripts)

    def given(self, name: str) -> list[str]:
        """Return what the start script of each attempt was given."""
        return [self.main.children.environ(attempt)[name] for attempt in range(self.attempts)]
