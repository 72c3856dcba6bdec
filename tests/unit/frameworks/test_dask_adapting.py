"""dask/preload/adapting.py: which nodes are let go, and what is asked for. tests/clusters has what needs Dask."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[3] / "dask" / "preload" / "adapting.py"


class Core:
    """What the logic of Dask is told; a test plays what that decides."""

    def __init__(self, minimum: int, maximum: int, wait_count: int) -> None:
        self.limits = minimum, maximum, wait_count
        self.decisions: list[Any] = []

    async def adapt(self) -> None:
        for decide in self.decisions[:1]:
            self.decisions.remove(decide)
            await decide()


class Worker(SimpleNamespace):
    """A worker as the scheduler knows it."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class Scattered(SimpleNamespace):
    """What a client has scattered: a task in memory."""

    def __init__(self, who_has: set[Worker]) -> None:
        super().__init__(who_has=who_has)


class FakeScheduler:
    """A scheduler whose workers are busy, or are not, as a test says."""

    def __init__(self) -> None:
        self.workers: dict[str, Any] = {}
        self.clients = {"fire-and-forget": None, "Client-1": None}
        self.periodic_callbacks: dict[str, Any] = {}
        self.forgotten: list[str] = []
        self.plugins = {"worker-nodes": SimpleNamespace(forget=self.forgotten.extend)}
        self.stream_comms: dict[str, Any] = {}
        self.sent: list[tuple[str, str]] = []
        # Workers that have what nobody else can take.
        self.keeps: set[str] = set()
        self.work_meanwhile = False
        self.leave_meanwhile: list[str] = []
        self.retired: list[str] = []
        self.arrives = asyncio.Event()
        self.handlers: dict[str, Any] = {"scatter": self.scatter}
        self.target = 0

    @property
    def running(self) -> set[Worker]:
        return {state for address, state in self.workers.items() if address not in self.retired}

    def comes(self, *names: str) -> None:
        for name in names:
            address = f"tls://{name}"
            self.workers[address] = Worker(
                name=name, address=address, nanny=f"nanny of {name}", processing={}, has_what=[]
            )

            def send(word: dict[str, Any], address: str = address) -> None:
                self.sent.append((address.removeprefix("tls://"), word["status"]))

            self.stream_comms[address] = SimpleNamespace(send=send)

    def leaves(self, name: str) -> None:
        del self.workers[f"tls://{name}"]

    def works(self, *names: str) -> None:
        for name in names:
            self.workers[f"tls://{name}"].processing = {"a task": 1.0}

    async def scatter(self, data: str) -> str:
        await self.arrives.wait()
        return f"{data} arrived"

    def adaptive_target(self) -> int:
        return self.target

    def workers_to_close(self, *, key: Any, attribute: str) -> list[str]:
        assert attribute == "name"
        busy = {key(state) for state in self.workers.values() if state.processing}
        return [state.name for state in self.workers.values() if key(state) not in busy]

    async def retire_workers(self, *, workers: list[str], close_workers: bool, remove: bool) -> dict[str, Any]:
        assert (close_workers, remove) == (False, False), "who follows the cluster ends them"
        if self.work_meanwhile:
            self.works(*(address.removeprefix("tls://") for address in workers))
        for name in self.leave_meanwhile:
            self.leaves(name)
        self.retired += workers
        there = [address for address in workers if address in self.workers]
        return {address: {} for address in there if address.removeprefix("tls://") not in self.keeps}


class Adapted:
    """A scheduler that has loaded the file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
        self.now = 0.0
        self.place = place
        self._monkeypatch = monkeypatch
        self.config = {"distributed.adaptive.wait-count": 3, "distributed.adaptive.interval": "2s"}
        self.callbacks: list[tuple[Any, float]] = []
        modules = {
            "dask": {},
            "dask.config": {"get": self.config.__getitem__},
            "dask.utils": {"parse_timedelta": lambda text: float(text.rstrip("s"))},
            "distributed": {"Scheduler": object},
            "distributed.deploy": {},
            "distributed.deploy.adaptive_core": {"AdaptiveCore": Core},
            "distributed.metrics": {"time": lambda: self.now},
            "tornado": {},
            "tornado.ioloop": {"PeriodicCallback": lambda call, ms: self.callbacks.append((call, ms))},
        }
        for name, members in modules.items():
            module = ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)
        sys.modules["dask"].config = sys.modules["dask.config"]  # type: ignore[attr-defined]
        spec = importlib.util.spec_from_file_location("dask_preload_adapting", FILE)
        assert spec
        assert spec.loader
        self.preload = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.preload)
        self.scheduler = FakeScheduler()

    def start(self, **environ: str) -> Any:
        usual = {"ADAPT": "1:10", "NPROCS": "1", "EPHEMERAL": "1", "FOLLOWED": "any"}
        places = {"NODE_DIR": str(self.place), "READY_FILE": str(self.place / "ready")}
        for name, text in {**usual, **places, **environ}.items():
            self._monkeypatch.setenv(name, text)
        (self.place / "ready").touch()
        self.preload.dask_setup(self.scheduler)
        ((look, self.interval_ms),) = self.callbacks
        self.adapting = look.__self__
        return self.adapting

    def look(self, *decisions: Any) -> str:
        """Look once, and have Dask decide so; return the request."""
        self.adapting.decisions += decisions
        asyncio.run(self.adapting.look())
        path = self.place / "scale-request"
        return " ".join(path.read_text().split()) if path.exists() else ""

    def up(self, count: int) -> Any:
        return lambda: self.adapting.scale_up(n=count)

    def down(self, *workers: str) -> Any:
        return lambda: self.adapting.scale_down(workers=workers)

    def close(self, target: int) -> list[str]:
        found: list[str] = asyncio.run(self.adapting.workers_to_close(target=target))
        return found


@pytest.fixture
def adapted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Adapted:
    return Adapted(monkeypatch, tmp_path)


def test_dask_decides_within_the_bounds_and_as_it_is_configured(adapted: Adapted) -> None:
    """`DASK_DISTRIBUTED__ADAPTIVE__INTERVAL` and `__WAIT_COUNT` work."""
    assert adapted.start(ADAPT="2:7").limits == (2, 7, 3)
    assert adapted.interval_ms == 2000


def test_a_request_counts_nodes_and_not_processes(adapted: Adapted) -> None:
    """Five processes need three nodes of two; a node is there with its first process."""
    adapted.start(NPROCS="2")
    adapted.scheduler.comes("WORKER_1-0", "WORKER_1-1", "WORKER_2-0")
    adapted.scheduler.target = 5
    assert asyncio.run(adapted.adapting.target()) == 3
    assert adapted.look() == "workers=2"
    assert adapted.adapting.observed == {"WORKER_1", "WORKER_2"}


def test_nodes_are_asked_for_until_they_are_there(adapted: Adapted) -> None:
    """Those to come are part of the plan, so that Dask asks once; one that is lost is asked for again."""
    adapted.start()
    adapted.scheduler.comes("WORKER_1")
    assert adapted.look(adapted.up(3)) == "workers=3"
    assert len(adapted.adapting.plan) == 3
    adapted.scheduler.comes("WORKER_2", "WORKER_3")
    assert adapted.look() == "workers=3"
    adapted.scheduler.leaves("WORKER_2")
    assert (adapted.look(), len(adapted.adapting.plan)) == ("workers=3", 3)
    adapted.scheduler.comes("WORKER_2", "WORKER_4")  # one more, by scale.sh
    assert adapted.look() == "workers=4"


def test_who_is_let_go_is_retired_first_and_then_named(adapted: Adapted) -> None:
    """Until it has left; what its nanny was is not waited for at the end."""
    adapted.start()
    adapted.scheduler.comes("WORKER_1", "WORKER_2")
    assert adapted.look(adapted.down("WORKER_2")) == "workers=1"
    assert adapted.adapting.observed == {"WORKER_1"}
    assert adapted.look() == "workers=1 idle=WORKER_2"
    adapted.scheduler.leaves("WORKER_2")
    assert adapted.look() == "workers=1"
    assert adapted.scheduler.forgotten == ["nanny of WORKER_2"]
    adapted.scheduler.comes("WORKER_2")  # its replacement
    assert adapted.look(adapted.up(2)) == "workers=2"


def test_what_was_on_its_way_as_a_node_was_retired_is_moved_before_it_is_named(adapted: Adapted) -> None:
    """A client had chosen that node for what it scatters; what arrives later still is moved, too."""
    adapted.start()
    adapted.scheduler.comes("WORKER_1", "WORKER_2")
    one, two = (adapted.scheduler.workers[f"tls://{name}"] for name in ("WORKER_1", "WORKER_2"))
    adapted.look(adapted.down("WORKER_2"))
    scattered = Scattered({two})
    two.has_what.append(scattered)
    assert adapted.look() == "workers=1", "it has what no other has"
    assert adapted.scheduler.retired == ["tls://WORKER_2"] * 2
    scattered.who_has.add(one)
    assert adapted.look() == "workers=1 idle=WORKER_2"
    two.has_what.append(Scattered({two}))
    adapted.scheduler.keeps = {"WORKER_2"}  # nobody takes it
    assert adapted.look() == "workers=2"
    assert adapted.scheduler.sent == [("WORKER_2", "running")]


def test_who_leaves_while_what_came_late_is_moved_is_not_asked_for_again(adapted: Adapted) -> None:
    adapted.start()
    adapted.scheduler.comes("WORKER_1", "WORKER_2")
    two = adapted.scheduler.workers["tls://WORKER_2"]
    adapted.look(adapted.down("WORKER_2"))
    two.has_what.append(Scattered({two}))
    adapted.scheduler.leave_meanwhile = ["WORKER_2"]
    assert adapted.look() == "workers=1"
    assert adapted.look() == "workers=1"
    assert adapted.scheduler.forgotten == ["nanny of WORKER_2"]


def test_nobody_is_named_before_what_was_scattered_has_arrived(adapted: Adapted) -> None:
    """Its node may be one that was retired meanwhile. What is scattered later goes to others."""

    async def looks() -> list[str]:
        request = adapted.place / "scale-request"
        adapted.start()
        adapted.scheduler.comes("WORKER_1", "WORKER_2")
        arriving = asyncio.ensure_future(adapted.scheduler.handlers["scatter"](data="it"))
        await asyncio.sleep(0)
        adapted.now = 1
        adapted.adapting.decisions.append(adapted.down("WORKER_2"))
        seen = []
        for _ in range(3):
            await adapted.adapting.look()
            seen.append(" ".join(request.read_text().split()))
        adapted.now = 2
        adapted.scheduler.arrives.set()
        assert await arriving == "it arrived"
        adapted.scheduler.arrives.clear()
        later = asyncio.ensure_future(adapted.scheduler.handlers["scatter"](data="more"))
        await asyncio.sleep(0)
        await adapted.adapting.look()
        later.cancel()
        return [*seen, " ".join(request.read_text().split())]

    assert asyncio.run(looks()) == ["workers=1"] * 3 + ["workers=1 idle=WORKER_2"]


def test_what_has_not_come_is_no_longer_asked_for(adapted: Adapted) -> None:
    """It has nothing that could be lost."""
    adapted.start()
    adapted.scheduler.comes("WORKER_1")
    adapted.look(adapted.up(4))
    dropped = sorted(adapted.adapting.plan - {"WORKER_1"})[:2]
    assert adapted.look(adapted.down(*dropped)) == "workers=2"


@pytest.mark.parametrize("why", ["keeps", "works"])
def test_who_has_what_nobody_else_has_stays_and_works_again(adapted: Adapted, why: str) -> None:
    """Data that no other worker can take; or a task that came at the last moment."""
    adapted.start()
    adapted.scheduler.comes("WORKER_1", "WORKER_2")
    adapted.scheduler.keeps = {"WORKER_2"} if why == "keeps" else set()
    adapted.scheduler.work_meanwhile = why == "works"
    assert adapted.look(adapted.down("WORKER_2")) == "workers=2"
    assert adapted.scheduler.sent == [("WORKER_2", "running")]


def test_who_was_let_go_and_is_not_ended_works_again(adapted: Adapted) -> None:
    """Nobody may be there who could end it."""
    adapted.start()
    adapted.scheduler.comes("WORKER_1", "WORKER_2")
    adapted.look(adapted.down("WORKER_2"))
    adapted.now = 180
    assert (adapted.look(), adapted.scheduler.sent) == ("workers=1 idle=WORKER_2", [])
    adapted.now = 181
    assert (adapted.look(), adapted.scheduler.sent) == ("workers=2", [("WORKER_2", "running")])
    adapted.scheduler.leaves("WORKER_1")
    assert adapted.look() == "workers=2", "it counts as it did before"


@pytest.mark.parametrize(
    ("followed", "busy", "target", "closed"),
    [
        ("any", "2", 1, ["WORKER_10", "WORKER_9", "WORKER_1"]),
        ("any", "10", 3, ["WORKER_9"]),
        ("any", "1 2 9 10", 1, []),
        ("any", "", 4, []),
        ("any", "", 9, []),
        ("last", "2", 1, ["WORKER_10", "WORKER_9"]),
        ("last", "10", 1, []),
        ("last", "", 2, ["WORKER_10", "WORKER_9"]),
        ("", "", 1, []),
    ],
)
def test_idle_nodes_are_let_go_the_last_ones_first(
    adapted: Adapted, followed: str, busy: str, target: int, closed: list[str]
) -> None:
    """On a backend that ends the last ones alone, no others; none where nobody would end them."""
    adapted.start(FOLLOWED=followed)
    adapted.scheduler.comes(*(f"WORKER_{rank}" for rank in (9, 2, 10, 1)))
    adapted.scheduler.works(*(f"WORKER_{rank}" for rank in busy.split()))
    assert adapted.close(target) == closed


def test_no_more_are_let_go_while_some_leave(adapted: Adapted) -> None:
    """What was copied from WORKER_3 to WORKER_2 would count as safe, on WORKER_3, where WORKER_2 went, too."""
    adapted.start()
    adapted.scheduler.comes("WORKER_1", "WORKER_2", "WORKER_3")
    adapted.look(adapted.down("WORKER_3"))
    assert adapted.close(1) == []
    adapted.scheduler.leaves("WORKER_3")
    adapted.look()
    assert adapted.close(1) == ["WORKER_2"]


def test_workers_of_other_names_are_left_alone(adapted: Adapted) -> None:
    """Somebody has started them, and knows how to end them."""
    adapted.start()
    adapted.scheduler.comes("WORKER_1", "0", "tcp://10.0.0.9:1234", "WORKER_x", "mine-1")
    assert adapted.look() == "workers=1"
    assert adapted.close(0) == ["WORKER_1"]


@pytest.mark.parametrize(("ephemeral", "wanted"), [("1", ""), ("0", "workers=1")])
def test_nothing_is_let_go_before_there_is_a_client(adapted: Adapted, ephemeral: str, wanted: str) -> None:
    """The entry point may import for a minute. A cluster that stays waits for nobody."""
    adapted.start(EPHEMERAL=ephemeral)
    adapted.scheduler.comes("WORKER_1")
    adapted.scheduler.clients = {"fire-and-forget": None}
    assert adapted.look() == wanted
    adapted.scheduler.clients["Client-1"] = None
    assert adapted.look() == "workers=1"
    del adapted.scheduler.clients["Client-1"]
    assert adapted.look(adapted.up(2)) == "workers=2"


def test_nothing_is_asked_for_before_the_cluster_is_ready(adapted: Adapted) -> None:
    """The workers of the launch are still to come."""
    adapted.start(EPHEMERAL="0")
    (adapted.place / "ready").unlink()
    assert adapted.look(adapted.up(3)) == ""
