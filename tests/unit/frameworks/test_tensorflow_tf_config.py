"""tensorflow/launch/tf_config.py: the task of each node, its port, and what is refused."""

from __future__ import annotations

import errno
import importlib.util
import json
import socket
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[3] / "tensorflow" / "launch" / "tf_config.py"
MAIN = {
    "MODE": "MAIN",
    "NODE_NAME": "MAIN",
    "NODE_ADDRESS": "10.0.0.1",
    "MAIN_ADDRESS": "10.0.0.1",
    "WORKER_ADDRESSES": "10.0.0.2,10.0.0.3",
    "PS_ADDRESSES": "10.0.0.4",
    "ROLE_INDEX": "0",
    "TASK_PORT": "12345",
}
SECOND_WORKER = {"MODE": "WORKER", "NODE_NAME": "WORKER_2", "NODE_ADDRESS": "10.0.0.3", "ROLE_INDEX": "1"}


class Port:
    """Stands for binding ports: notes them, and refuses those of *taken*."""

    def __init__(self, *taken: int) -> None:
        self.asked: list[tuple[str, int]] = []
        self._taken = taken

    def __call__(self, address: tuple[str, int]) -> socket.socket:
        self.asked.append(address)
        if address[1] in self._taken:
            raise OSError(errno.EADDRINUSE, "taken")
        return socket.socket()


CREATE_SERVER = socket.create_server


@pytest.fixture
def tf_config(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module; nothing of it binds a port of this machine."""
    spec = importlib.util.spec_from_file_location("tensorflow_tf_config", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.socket, "create_server", Port())
    return module


def printed(tf_config: ModuleType, capsys: pytest.CaptureFixture[str], **environ: str) -> list[str]:
    tf_config.print_task({**MAIN, **environ})
    return capsys.readouterr().out.splitlines()


def test_without_parameter_servers_all_tasks_are_workers(
    tf_config: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in TensorFlow's tutorials: a worker for each replica, main the first; nobody is a chief besides."""
    config, *facts = printed(tf_config, capsys, PS_ADDRESSES="")
    workers = ["10.0.0.1:12345", "10.0.0.2:12345", "10.0.0.3:12345"]
    assert json.loads(config) == {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}}
    assert facts == ["chief=10.0.0.1:12345", "tasks=3 worker"]
    config = printed(tf_config, capsys, **SECOND_WORKER, PS_ADDRESSES="")[0]
    assert json.loads(config) == {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 2}}
    v6 = {"MAIN_ADDRESS": "fd00::1", "NODE_ADDRESS": "fd00::1", "WORKER_ADDRESSES": "fd00::2", "PS_ADDRESSES": ""}
    config = printed(tf_config, capsys, **v6)[0]
    assert json.loads(config)["cluster"] == {"worker": ["[fd00::1]:12345", "[fd00::2]:12345"]}


def test_with_parameter_servers_main_is_the_chief_and_knows_all_tasks(
    tf_config: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first line is what TensorFlow reads; the others are facts for people."""
    config, *facts = printed(tf_config, capsys)
    assert config == (
        '{"cluster": {"chief": ["10.0.0.1:12345"], "worker": ["10.0.0.2:12345", "10.0.0.3:12345"],'
        ' "ps": ["10.0.0.4:12345"]}, "task": {"type": "chief", "index": 0}}'
    )
    assert facts == ["chief=10.0.0.1:12345", "tasks=1 chief, 2 worker, 1 ps"]
    assert tf_config.socket.create_server.asked == [("", 12345)]


@pytest.mark.parametrize(
    ("node", "task"),
    [
        (SECOND_WORKER, {"type": "worker", "index": 1}),
        ({"MODE": "PS", "NODE_ADDRESS": "10.0.0.4"}, {"type": "ps", "index": 0}),
    ],
)
def test_another_node_is_the_task_of_its_role(
    tf_config: ModuleType, capsys: pytest.CaptureFixture[str], node: dict[str, str], task: dict[str, object]
) -> None:
    """In the same cluster."""
    config = json.loads(printed(tf_config, capsys, **node)[0])
    assert config["task"] == task
    assert config["cluster"] == json.loads(printed(tf_config, capsys)[0])["cluster"]


def test_main_trains_alone_when_its_last_worker_is_gone(
    tf_config: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a cluster of one; a job without tasks is left out."""
    config, _, tasks = printed(tf_config, capsys, WORKER_ADDRESSES="", PS_ADDRESSES="")
    assert json.loads(config)["cluster"] == {"worker": ["10.0.0.1:12345"]}
    assert tasks == "tasks=1 worker"
    config, _, tasks = printed(tf_config, capsys, WORKER_ADDRESSES="")
    assert json.loads(config)["cluster"] == {"chief": ["10.0.0.1:12345"], "ps": ["10.0.0.4:12345"]}
    assert tasks == "tasks=1 chief, 0 worker, 1 ps"


@pytest.mark.parametrize(
    ("main", "workers", "servers", "ports"),
    [
        ("127.0.0.5", "127.0.0.6,127.0.0.3,127.0.1.1", "", [[100, 101, 98, 352]]),
        ("127.0.0.5", "127.0.0.6,127.0.0.3", "127.0.0.7", [[100], [101, 98], [102]]),
        ("127.0.0.1", "127.0.0.1,127.0.0.1", "127.0.0.1", [[100], [101, 102], [103]]),
        ("10.0.0.1", "10.0.0.2,10.0.0.1", "127.0.0.9", [[100], [100, 101], [100]]),
        ("127.0.0.1", "10.0.0.2", "127.0.0.2,127.0.0.2", [[100], [100], [101, 102]]),
        ("fd00::1", "fd00::2,fd00::2", "", [[100, 100, 101]]),
        ("127.0.0.5", "127.0.0.7", "", [[100, 102]]),  # a node's own, whoever else is there
    ],
)
def test_tasks_that_share_a_machine_have_a_port_each(
    tf_config: ModuleType, main: str, workers: str, servers: str, ports: list[list[int]]
) -> None:
    """By the distance of loopback addresses, else one after the other."""
    environ = {"MAIN_ADDRESS": main, "WORKER_ADDRESSES": workers, "PS_ADDRESSES": servers}
    addresses = tf_config.addresses_of(environ)
    assert list(tf_config.ports_of(addresses, "100").values()) == ports


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"TASK_PORT": "65536"},
            "TASK_PORT 65536 leaves no port for MAIN: 65536 is none; choose another: --env TASK_PORT=12345",
        ),
        (
            {"MAIN_ADDRESS": "127.0.0.5", "WORKER_ADDRESSES": "127.0.0.6", "NODE_ADDRESS": "127.0.0.6"}
            | {"MODE": "WORKER", "NODE_NAME": "WORKER_7", "TASK_PORT": "65535"},
            "TASK_PORT 65535 leaves no port for WORKER_7: 65536 is none; choose another: --env TASK_PORT=12345",
        ),
        ({"NODE_ADDRESS": "10.0.0.9"}, "chief 0 (ROLE_INDEX) has address '10.0.0.1', this node has 10.0.0.9"),
        ({**SECOND_WORKER, "ROLE_INDEX": "2"}, "worker 2 (ROLE_INDEX) has address '', this node has 10.0.0.3"),
        (
            {**SECOND_WORKER, "PS_ADDRESSES": "", "NODE_ADDRESS": "10.0.0.2"},
            "worker 2 (ROLE_INDEX) has address '10.0.0.3', this node has 10.0.0.2",
        ),
        (
            {"TASK_PORT": "4242"},
            "port 4242 of MAIN: Address already in use; end what has it, or choose another: --env TASK_PORT=4342",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    tf_config: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, str],
    why: str,
) -> None:
    """78, and one line of why on stdout, where the start script takes it from."""
    monkeypatch.setattr(tf_config.socket, "create_server", Port(4242))
    monkeypatch.setattr(tf_config.os, "environ", {**MAIN, **change})
    assert tf_config.main() == 78
    assert capsys.readouterr().out == f"{why}\n"


def test_a_port_is_left_free_again(tf_config: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is TensorFlow's a moment later."""
    monkeypatch.setattr(tf_config.socket, "create_server", CREATE_SERVER)
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
    for _ in range(2):
        tf_config.check_port(port, MAIN)
