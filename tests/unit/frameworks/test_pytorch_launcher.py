"""pytorch/launch/launcher.py: what does not take torch. tests/clusters has the rest."""

from __future__ import annotations

import base64
import importlib.util
import json
import signal
import socket
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[3] / "pytorch" / "launch" / "launcher.py"


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Return the module, on main of a cluster of three nodes; what would end this process raises instead."""
    spec = importlib.util.spec_from_file_location("pytorch_launcher", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(module, "leave", leave)
    for name in ("NODE_CPUS", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    settings = {"WORKER_COUNT": "2", "NODE_DIR": str(tmp_path), "ENTRY_POINT": "train.py", "NPROC_PER_NODE": "auto"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return module


def failures(*ends: tuple[int, int, int]) -> Any:
    """Return what torch raises: rank, exit code and second of each failure."""

    def failure(rank: int, code: int, second: int) -> SimpleNamespace:
        name = signal.Signals(-code).name if code < 0 else "<N/A>"
        return SimpleNamespace(pid=1000 + rank, exitcode=code, timestamp=second, signal_name=lambda: name)

    found = {rank: failure(rank, code, second) for rank, code, second in ends}
    return SimpleNamespace(failures=found, format_msg=lambda: "torch's report")


@pytest.mark.parametrize(("wanted", "gpus", "ranks"), [("auto", 0, 1), ("auto", 8, 8), ("2", 0, 2), ("2", 8, 2)])
def test_ranks_are_one_for_each_gpu_unless_their_number_is_set(
    launcher: ModuleType, monkeypatch: pytest.MonkeyPatch, wanted: str, gpus: int, ranks: int
) -> None:
    monkeypatch.setenv("NPROC_PER_NODE", wanted)
    assert launcher.ranks_on_node(gpus) == ranks


@pytest.mark.parametrize(("cpus", "ranks", "threads"), [("8", 2, "4"), ("7", 2, "3"), ("1", 4, "1"), ("", 2, None)])
def test_ranks_share_the_nodes_cpus_where_it_has_a_share(
    launcher: ModuleType, monkeypatch: pytest.MonkeyPatch, cpus: str, ranks: int, threads: str | None
) -> None:
    monkeypatch.setenv("NODE_CPUS", cpus)
    launcher.share_cpus(ranks)
    assert launcher.os.environ.get("OMP_NUM_THREADS") == threads


def test_users_number_of_threads_is_kept(launcher: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_CPUS", "8")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    launcher.share_cpus(2)
    assert launcher.os.environ["OMP_NUM_THREADS"] == "3"


def test_torchrun_gets_ranks_of_a_node_and_accelerate_those_of_all(launcher: ModuleType) -> None:
    assert launcher.options_for("torchrun", 1) == ["--nproc-per-node", "1"]
    assert launcher.options_for("torchrun", 4) == ["--nproc-per-node", "4", "--tee", "3"]
    assert launcher.options_for("accelerate", 1) == ["--num_processes", "3"]
    assert launcher.options_for("accelerate", 4) == ["--num_processes", "12", "--tee", "3"]


def test_deepspeed_gets_the_gpus_of_every_node(launcher: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def slots() -> Any:
        (option,) = launcher.options_for("deepspeed", 2)
        return json.loads(base64.urlsafe_b64decode(option.removeprefix("--world_info=")))

    assert slots() == {"0": [0, 1], "1": [0, 1], "2": [0, 1]}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert slots() == {"0": ["4", "6"], "1": ["4", "6"], "2": ["4", "6"]}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert slots()["0"] == ["-1", "-1"]


@pytest.mark.parametrize(
    ("ends", "code", "reason"),
    [
        ([(2, 9, 50)], 9, "rank 2 ended with 9"),
        ([(1, -signal.SIGKILL, 50)], 137, "rank 1 ended with 137 (SIGKILL)"),
        # In one look of torchrun's: peers that lost a connection, and those that it has ended itself, explain nothing.
        ([(0, 1, 50), (1, 9, 50)], 9, "rank 1 ended with 9"),
        ([(0, -signal.SIGABRT, 50), (1, 9, 50)], 9, "rank 1 ended with 9"),
        ([(0, -signal.SIGTERM, 50), (1, 1, 50)], 1, "rank 1 ended with 1"),
        ([(0, 8, 51), (1, 9, 50)], 9, "rank 1 ended with 9"),
        # A rank that heeds torchrun's TERM, and ends later with a code of its own, has not failed first.
        ([(0, 9, 53), (1, 1, 50)], 1, "rank 1 ended with 1"),
    ],
)
def test_exit_code_is_that_of_the_rank_that_no_other_explains(
    launcher: ModuleType, tmp_path: Path, ends: list[tuple[int, int, int]], code: int, reason: str
) -> None:
    assert launcher.failed(failures(*ends)) == code
    assert (tmp_path / "entry-point-ended").read_text() == f"{reason}\n"
    assert not (tmp_path / "reason").exists()  # the agent puts the error's own words before it


@pytest.mark.parametrize(
    ("ended", "code", "reason"),
    [
        ("1002", -signal.SIGABRT, "rank 2 ended with 134 (SIGABRT) after the script's last line"),
        ("1001", -signal.SIGABRT, "rank 2 ended with 134 (SIGABRT)"),
        ("1002", 7, "rank 2 ended with 7"),  # sys.exit(7) is the script's last line
    ],
)
def test_a_rank_that_is_killed_when_its_script_has_ended_is_told_apart(
    launcher: ModuleType, tmp_path: Path, ended: str, code: int, reason: str
) -> None:
    (tmp_path / f"script-ended-{ended}").touch()
    launcher.failed(failures((2, code, 50)))
    assert (tmp_path / "entry-point-ended").read_text() == f"{reason}\n"


def test_torchs_own_report_is_shown(launcher: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    launcher.failed(failures((2, 9, 50)))
    assert capsys.readouterr().err == "torch's report\n"


def test_port_that_is_taken_is_named_with_the_way_out(
    launcher: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("MAIN_ADDRESS", "127.0.0.1")
        monkeypatch.setenv("RENDEZVOUS_PORT", str(port))
        with pytest.raises(SystemExit) as raised:
            launcher.listen()
    assert raised.value.code == 78
    reason = f"main cannot listen on 127.0.0.1:{port} (Address already in use); choose another RENDEZVOUS_PORT\n"
    assert (tmp_path / "reason").read_text() == reason


def test_main_listens_on_its_own_address_alone(launcher: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIN_ADDRESS", "127.0.0.1")
    monkeypatch.setenv("RENDEZVOUS_PORT", "0")
    with launcher.listen() as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
