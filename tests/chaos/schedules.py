"""What one schedule of faults is, and how a seed makes it: the same seed makes the same schedule everywhere."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

# How a launch, or any node, may end that is told to: 128 and the signal's number, or the signal itself.
_STOPPED, _LOST, _UNAVAILABLE, _TIMED_OUT = 143, 76, 69, 75
_OF_SIGNAL = {"KILL": {137}, "TERM": {143}, "INT": {130}, "HUP": {129}}

SIGNALS = (*_OF_SIGNAL, "PAUSE", "FREEZE")
"""Sent to a process. PAUSE is STOP, and CONT two seconds later; FREEZE is STOP for good, of a node's whole tree. A
script that is frozen alone is one that hangs, for which there is TTL: that, too, is only a pause."""

_OLD_FILE_FAULTS = ("delete", "cut", "garble", "replace", "play-back")
FILE_FAULTS = (*_OLD_FILE_FAULTS, "swap")
"""Done to a file of the cluster dir. `replace` copies main's configuration there; `play-back` brings an older one back;
`swap` exchanges it with the same file of the next node."""

VERBS = ("stop", "stop twice", "scale +1", "scale -1", "scale and stop", "same name", "list and status")
"""Verbs of others, while the cluster runs."""

PHASES = ("start", "up", "end")
"""When a fault comes: after Enter; when main's entry point has begun; when it is about to end."""

TOYS = ("plain", "plain", "gang")
"""Frameworks of tests, in seconds: the entry point runs on main alone, or on all nodes, which start again together."""

# What a place alone can do to a cluster, and with which codes the cluster may end because of it.
_ALL_OF_A_NODE = {_STOPPED, _LOST, _TIMED_OUT, 1, 137}  # 75: it was needed, and gone before it came
_OF_PLACE: dict[str, dict[str, set[int]]] = {
    "local": {
        "disk full": {_UNAVAILABLE},  # for seconds: who cannot begin meanwhile says so
        "temporary full": {1, _LOST, _UNAVAILABLE, 78},
    },
    "docker": {
        "container PAUSE": set(),
        "container KILL": _ALL_OF_A_NODE,
        "container TERM": _ALL_OF_A_NODE,
        "container removed": _ALL_OF_A_NODE,
        # Nodes of the toys meet in the volume; but a gang that starts again meanwhile misses its network interface.
        "disconnected": {78},
        "engine killed": {*_ALL_OF_A_NODE, _UNAVAILABLE, 75},
        "machine lost": {*_ALL_OF_A_NODE, _UNAVAILABLE, 75},
    },
    "oci": {
        **{kind: set() for kind in ("late", "429", "500", "503", "drop-before", "drop-after")},
        "refusing": {_LOST, _STOPPED, _UNAVAILABLE, 75, 77},
        "cancel": _ALL_OF_A_NODE,
        "node lost": _ALL_OF_A_NODE,
        "clock": set(),
    },
}
_OF_PLACE["hosts"] = {
    **_OF_PLACE["oci"],
    "link cut": set(),
    "packets lost": set(),
    "link gone": {_LOST, _STOPPED, _UNAVAILABLE, 75},
}

_OF_PLACE["kubernetes"] = {
    **{kind: set() for kind in ("late", "429", "500", "503", "drop-before", "drop-after", "logs cut", "API killed")},
    "evicted": set(),  # it comes back, in the cluster's next life
    # No other pod takes its place (docs/kubernetes.md, "How it ends").
    "deleted": {_LOST},
    "deleted by force": {_LOST},
    # For less than half a minute: nobody gives its pods up.
    "kubelet killed": set(),
    "link cut": set(),
    "machine away": {_LOST},  # it showed no sign of life for HEARTBEAT_TIMEOUT
}

PLACES = tuple(_OF_PLACE)
"""Where nodes run: `oci` is the stand-in, `hosts` the same where each node has a host of its own."""

WORK_DIR = "file:///mnt/chaos/work"
"""On a volume that all pods have: without it their files are in main's memory, where nobody can damage them."""

BEFORE_ENTER = ("clock",)
"""These are there when the launch begins."""

# Of the whole place; the others name a node.
_OF_ALL = {
    *("disk full", "temporary full", "engine killed", "machine lost", "late", "429", "500", "503"),
    *("drop-before", "drop-after", "refusing", "logs cut", "API killed"),
}
# What comes more often there than the others: to live again is the most that is asked of pods.
_OFTEN = {"kubernetes": ("evicted",) * 4}
_NEEDS_LAUNCHER = {"launcher", "follower"}
_FIRST_WITH_LATER_FAULTS = 200  # a round number above the seeds that tests name
_PARTS = ("agent", "script", "entry")


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    kind: str
    """Of SIGNALS, FILE_FAULTS or VERBS; or `away`: the work dir is gone for a second; or one of the place's own."""
    target: str
    """Of a signal the process: `launcher`, `follower`, `guard`, `runner`, `agent NODE`, `script NODE`, `entry NODE`.
    Of a file its name. Of a place's own the node, where it concerns one. Else empty."""
    phase: str
    delay_s: float
    """Seconds after the phase has begun."""

    def __str__(self) -> str:
        """Describe it for who reads a failure."""
        return f"{self.kind} {self.target}".strip() + f" {self.delay_s:.2f} s after {self.phase}"

    @property
    def excuses(self) -> set[int]:
        """The codes with which a cluster may end because of this, other than the entry point's own."""
        if self.kind in SIGNALS:
            return self._excuses_of_signal
        if self.kind in FILE_FAULTS:
            # A damaged configuration, or main's word that is gone: told as lost, refused, or not ready in time.
            return {_LOST, _STOPPED, _UNAVAILABLE, 75, 78}
        if "stop" in self.kind:
            return {_STOPPED}
        if self.kind == "scale -1":
            return {_STOPPED, _LOST}  # with a worker less too few may be left
        return next((kinds[self.kind] for kinds in _OF_PLACE.values() if self.kind in kinds), set())

    @property
    def _excuses_of_signal(self) -> set[int]:
        who = self.target.partition(" ")[0]
        if self.kind == "PAUSE":
            return set()
        if who in {"launcher", "follower", "guard"}:
            return {_STOPPED}
        if who == "runner":
            return {_STOPPED, _LOST, 137}
        of_signal = {_LOST} if self.kind == "FREEZE" else _OF_SIGNAL[self.kind]
        # Python tells an INT by a traceback and a code of its own; and 1 is what peers of a dead rank end with.
        return of_signal | {_STOPPED, _LOST, _TIMED_OUT, 1, 137}

    @property
    def may_take_the_launcher(self) -> bool:
        """Whether launch.sh itself may end of it, or hang with who froze it."""
        return self.kind in SIGNALS and self.target in _NEEDS_LAUNCHER


@dataclass(frozen=True)
class Schedule:
    """One cluster, and what goes wrong with it."""

    seed: int
    framework: str
    workers: int
    code: int
    """What main's entry point ends with."""
    runs_s: float
    """How long the entry point runs."""
    settings: tuple[tuple[str, str], ...]
    faults: tuple[Fault, ...]
    place: str = "local"

    @property
    def excuses(self) -> set[int]:
        """The codes with which the cluster may end because of its faults."""
        return set().union(*(fault.excuses for fault in self.faults))

    def __str__(self) -> str:
        """Describe it in one line."""
        settings = " ".join(f"{name}={value}" for name, value in self.settings)
        faults = "; ".join(map(str, self.faults)) or "nothing"
        return f"{self.place} seed {self.seed}: {self.framework} {self.workers}, code {self.code} {settings}: {faults}"


def make_schedule(seed: int, frameworks: Sequence[str] = TOYS, place: str = "local") -> Schedule:
    """Return the schedule of *seed*, a whole number from 0, with one of *frameworks*, in one of PLACES."""
    # A stream for each place: seeds that once found a fault keep their schedule when another place gets new ones.
    chance = random.Random(seed if place == "local" else f"{place} {seed}")  # noqa: S311 - is to be the same again
    framework = chance.choice(frameworks)
    workers = chance.randint(1, 3)
    settings = {"HEARTBEAT_INTERVAL": "0.5", "HEARTBEAT_TIMEOUT": "30", "GRACE_PERIOD": "3"}
    # A node without storage waits for as long as TIMEOUT, which is less than a schedule may take.
    settings["TIMEOUT"] = "300" if place == "local" else "90"
    if framework == "gang":
        settings |= {"MAX_RESTARTS": str(chance.randint(0, 1)), "MIN_WORKERS": str(chance.randint(1, workers))}
    if place == "kubernetes" and chance.choice((True, False)):
        settings["WORK_DIR"] = WORK_DIR
    nodes = ["MAIN", *(f"WORKER_{rank}" for rank in range(1, workers + 1))]
    count = chance.choice((0, 1, 1, 1, 2, 2, 3)) if place == "local" else chance.choice((1, 1, 1, 2, 2, 3))
    faults = [_make_fault_in(place, chance, nodes, has_files="WORK_DIR" in settings) for _ in range(count)]
    return Schedule(
        seed=seed,
        framework=framework,
        workers=workers,
        code=chance.choice((0, 0, 7)),
        runs_s=chance.uniform(0.0, 4.0),
        settings=tuple(settings.items()),
        faults=(*faults, *(_later_faults(seed, nodes) if place == "local" else ())),
        place=place,
    )


def _later_faults(seed: int, nodes: list[str]) -> list[Fault]:
    """Return what `local` got after its first seeds had found faults, which keep theirs: a stream apart."""
    chance = random.Random(f"later faults {seed}")  # noqa: S311 - is to be the same again
    what = chance.choice(("nothing", "nothing", "swap", "twice", "own", "own"))
    if what == "nothing" or seed < _FIRST_WITH_LATER_FAULTS:
        return []
    phase, delay_s = _moment(chance)
    if what == "swap":
        return [Fault("swap", _file_of(chance, chance.choice(nodes)), phase, delay_s)]
    if what == "twice":
        return [Fault("same name", "", "start", 0.0)]
    return [Fault(chance.choice(tuple(_OF_PLACE["local"])), "", phase, delay_s)]


def _make_fault_in(place: str, chance: random.Random, nodes: list[str], *, has_files: bool) -> Fault:
    if place == "local":
        return _make_local_fault(chance, nodes)
    whats = ("signal", "signal", "file", "file", "verb", "own", "own", "own", "own")
    if place == "kubernetes" and not has_files:
        whats = tuple(what for what in whats if what != "file")
    return _make_fault(chance, nodes, place, chance.choice(whats))


def _make_fault(chance: random.Random, nodes: list[str], place: str, what: str) -> Fault:
    phase, delay_s = _moment(chance)
    node = chance.choice(nodes)
    if what == "verb":
        return Fault(chance.choice(VERBS), "", phase, delay_s)
    if what == "file":
        kind, name = chance.choice(FILE_FAULTS), _file_of(chance, node)
        names = (name,) if kind == "swap" else ("stop", "MAIN_ready.json", name, name, name)
        if place == "kubernetes" and kind != "swap":  # lives have files of their own
            names = (*names, "MAIN_life.json", f"{node}_arrival.json")
        return Fault(kind, chance.choice(names), phase, delay_s)
    if what == "signal":
        who = chance.choice(("launcher", "follower", "guard", *(f"{part} {node}" for part in _PARTS * 2)))
        return Fault(chance.choice(SIGNALS), who, phase, delay_s)
    kind = chance.choice((*_OF_PLACE[place], *_OFTEN.get(place, ())))
    if kind in BEFORE_ENTER:
        return Fault(kind, f"{node} {chance.choice((-3600, 3600))}", "start", 0.0)
    return Fault(kind, "" if kind in _OF_ALL else node, phase, delay_s)


def _make_local_fault(chance: random.Random, nodes: list[str]) -> Fault:
    what = chance.choice(("signal", "signal", "signal", "file", "file", "verb", "away"))
    phase, delay_s = _moment(chance)
    node = chance.choice(nodes)
    if what == "verb":
        return Fault(chance.choice(VERBS), "", phase, delay_s)
    if what == "away":
        return Fault("away", "", phase, delay_s)
    if what == "file":
        names = [
            *("cluster.json", "nodes.json", "scale.json", "stop", "MAIN_ready.json", "runner.lock"),
            *(f"{node}_{part}.json" for part in ("config", "heartbeat", "exit")),
        ]
        return Fault(chance.choice(_OLD_FILE_FAULTS), chance.choice(names), phase, delay_s)
    who = chance.choice(("launcher", "follower", "guard", "runner", *(f"{part} {node}" for part in _PARTS)))
    return Fault(chance.choice(SIGNALS), who, phase, delay_s)


def _moment(chance: random.Random) -> tuple[str, float]:
    return chance.choice(PHASES), chance.choice((0.0, chance.uniform(0.0, 2.0)))


def _file_of(chance: random.Random, node: str) -> str:
    return f"{node}_{chance.choice(('config', 'heartbeat', 'exit'))}.json"
