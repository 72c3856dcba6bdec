"""A Dask cluster as `distributed` knows them; that is played here, and real in tests/clusters."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from oci_cluster.errors import BackendError, SettingsError, UsageError

CLIENT = "scheduler-address: tls://127.0.0.1:8786\n"
TLS = "distributed: {{comm: {{tls: {{ca-file: {0}, client: {{cert: {0}, key: {1}}}}}}}}}\n"


class Base:
    """What a cluster of distributed has."""

    workers = frozenset({"WORKER_1", "WORKER_2", "WORKER_3"})

    def __init__(self, **options: Any) -> None:
        self.name = options["name"]
        self.asynchronous = False
        self.observed = self.workers
        self._loop_runner = SimpleNamespace(start=lambda: None, stop=lambda: None)

    def sync(self, call: Any, *words: Any) -> Any:
        return asyncio.run(call(*words))

    async def _start(self) -> None:
        pass

    async def _close(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True

    def adapt(self, kind: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
        return kind, options


class Adaptive:
    """What decides; *spare* are workers that Dask can do without."""

    spare: tuple[str, ...] = ()

    def __init__(self, cluster: Any = None) -> None:
        self.cluster = cluster

    @property
    def observed(self) -> set[str]:
        return set(self.cluster.observed)

    async def workers_to_close(self, target: int) -> list[str]:
        return list(self.spare)


class Scheduler:
    """Notes which workers are retired."""

    def __init__(self) -> None:
        self.retired: list[str] = []

    async def retire_workers(self, names: list[str], **_: object) -> None:
        self.retired += sorted(names)


class Ours:
    """A cluster of ours with three worker nodes."""

    framework, name = "dask", "mine"

    def __init__(self) -> None:
        self.workers = 3
        self.notes: list[object] = []

    def wait_ready(self) -> None:
        self.notes.append("ready")

    def details(self) -> dict[str, Any]:
        running = [{"node": f"WORKER_{rank}", "exit_code": None} for rank in range(1, self.workers + 1)]
        return {"nodes": [{"node": "MAIN", "exit_code": None}, {"node": "WORKER_9", "exit_code": 0}, *running]}

    def scale(self, workers: int) -> int:
        self.notes.append(workers)
        self.workers = workers
        return workers

    def client_files(self, target: Path) -> dict[str, str]:
        (target / "address.yaml").write_text(CLIENT)
        if self.name == "mine":
            (target / "c.pem").write_text("-----BEGIN CERTIFICATE-----")
            (target / "k.pem").write_text("-----BEGIN KEY-----")
            (target / "tls.yaml").write_text(TLS.format(target / "c.pem", target / "k.pem"))
        return {"DASK_CONFIG": str(target)}

    def url(self, port: str) -> str:
        return f"http://here/{port}"

    def down(self) -> None:
        self.notes.append("down")


def merge(*parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the module, with a distributed that is played."""
    scheduler = Scheduler()

    def security(**options: Any) -> SimpleNamespace:
        return SimpleNamespace(options=options, get_connection_args=lambda role: {"for": role})

    modules: dict[str, dict[str, Any]] = {
        "dask": {},
        "dask.config": {"merge": merge},
        "distributed": {},
        "distributed.core": {"rpc": lambda address, connection_args: scheduler},
        "distributed.deploy": {"Adaptive": Adaptive, "Cluster": Base},
        "distributed.security": {"Security": security},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "oci_cluster.api.dask", raising=False)
    yield importlib.import_module("oci_cluster.api.dask")
    sys.modules.pop("oci_cluster.api.dask", None)


def test_a_connection_has_the_address_and_the_certificate_itself(door: Any) -> None:
    """No file has to stay; the ready one alone is connected to."""
    ours = Ours()
    made = door.connected(ours)
    assert ours.notes == ["ready"]
    assert (made.plan, made.requested) == ({"WORKER_1", "WORKER_2", "WORKER_3"},) * 2
    own = "-----BEGIN CERTIFICATE-----"
    assert made.security.options == {
        "require_encryption": True,
        "tls_ca_file": own,
        "tls_client_cert": own,
        "tls_client_key": "-----BEGIN KEY-----",
    }
    assert (made.dashboard_link, made.dashboard_link) == ("http://here/dashboard",) * 2


def test_without_tls_there_is_no_certificate(door: Any) -> None:
    ours = Ours()
    ours.name = "plain"
    assert door.connected(ours).security.options == {}


def test_a_dashboard_that_cannot_be_reached_has_no_link(door: Any) -> None:
    ours = Ours()
    ours.url = lambda port: (_ for _ in ()).throw(BackendError("no way"))  # type: ignore[method-assign]
    assert door.connected(ours).dashboard_link == ""


@pytest.mark.parametrize(
    ("spare", "closed"),
    [
        (["WORKER_3"], ["WORKER_3"]),
        (["WORKER_1", "WORKER_3"], ["WORKER_3"]),
        (["WORKER_2", "WORKER_3"], ["WORKER_2", "WORKER_3"]),
        (["WORKER_1"], []),
    ],
)
def test_the_last_nodes_go_first_and_none_that_works(door: Any, spare: list[str], closed: list[str]) -> None:
    """Backends end the highest ranks."""
    made = door.connected(Ours())
    adaptive = door.NodesAdaptive(made)
    adaptive.spare = tuple(spare)
    assert sorted(asyncio.run(adaptive.workers_to_close(1))) == closed


def test_what_ended_nodes_hold_goes_to_others_first(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several processes, all of a node."""
    ours = Ours()
    monkeypatch.setattr(Base, "workers", {"WORKER_1-0", "WORKER_1-1", "WORKER_2-0"})
    made = door.connected(ours)
    assert len(made.plan) == 6
    made.scale(3)
    assert made.scheduler_comm.retired == ["WORKER_3-0", "WORKER_3-1"]
    assert (ours.notes, made.nodes) == (["ready", 2], {"WORKER_1", "WORKER_2"})
    asyncio.run(made.scale_down(["WORKER_2-0", "WORKER_2-1"]))
    assert ours.notes[-1] == 1
    made.scale(4)
    assert (ours.notes[-1], made.scheduler_comm.retired[2:]) == (2, ["WORKER_2-0", "WORKER_2-1"])


def test_one_worker_stays(door: Any) -> None:
    made = door.connected(Ours())
    assert made.adapt(maximum=3) == (door.NodesAdaptive, {"minimum": 1, "maximum": 3})
    with pytest.raises(UsageError, match="minimum=0: a cluster ends without workers; keep 1 at least"):
        made.adapt(minimum=0)


def test_closing_it_ends_the_cluster_and_saying_goodbye_does_not(door: Any) -> None:
    ours = Ours()
    made = door.connected(ours)
    made.disconnect()
    assert (made.closed, ours.notes) == (True, ["ready"])
    made.close()
    assert ours.notes == ["ready", "down"]
    made.asynchronous = True
    asyncio.run(made.close())
    assert ours.notes == ["ready", "down", "down"]


def test_what_is_none_of_dasks_or_does_not_answer_is_said(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Ours()
    ours.framework = "pytorch"
    with pytest.raises(UsageError, match="only clusters of dask have clients"):
        door.connected(ours)

    def fail(*_: object, **__: object) -> None:
        msg = "refused"
        raise OSError(msg)

    monkeypatch.setattr(door, "rpc", fail)
    with pytest.raises(
        BackendError, match=r"the scheduler of mine, tls://127\.0\.0\.1:8786, does not answer \(refused\)"
    ):
        door.connected(Ours())


def test_without_distributed_the_next_step_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "oci_cluster.api.dask", raising=False)
    for name in ("dask", "dask.config", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SettingsError, match=r"python -m pip install './common\[dask\]'"):
        importlib.import_module("oci_cluster.api.dask")
