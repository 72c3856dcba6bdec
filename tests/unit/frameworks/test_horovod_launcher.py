"""horovod/launcher: what it takes from outside, what it tells, how ranks end. tests/clusters has what needs Horovod."""

from __future__ import annotations

import asyncio
import importlib
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from oci_cluster.errors import LostError, SettingsError

LAUNCHER = Path(__file__).resolve().parents[3] / "horovod" / "launcher"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Return the launcher's modules by name; they are forgotten afterwards, as their names are everyday words."""
    monkeypatch.syspath_prepend(LAUNCHER)
    names = ["nodes", "ranks"]
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
        del sys.modules[name]


# --- NODES_DIR ------------------------------------------------------------------------------------------------------


def worker_file(directory: Path, name: str = "WORKER_1", **fields: str) -> Path:
    """Write the file of a node, with *fields* in the place of good ones."""
    good = {"rank": "1", "address": "10.0.0.2", "fact_ssh_host_key": KEY, "fact_slots": "2"}
    path = directory / name
    path.write_text("".join(f"{key}={value}\n" for key, value in {**good, **fields}.items()))
    return path


def test_node_is_what_its_file_says(launcher: dict[str, ModuleType], tmp_path: Path) -> None:
    """Name, address, key and slots; main's key is another fact than a worker's."""
    node = launcher["nodes"].read_node(worker_file(tmp_path, "WORKER_12"))
    assert (node.name, node.address, node.key, node.slots) == ("WORKER_12", "10.0.0.2", KEY, 2)
    main = launcher["nodes"].read_node(worker_file(tmp_path, "MAIN", fact_ssh_public_key=KEY))
    assert (main.host, main.key) == ("MAIN", KEY)
    assert [launcher["nodes"].rank_of(host) for host in (node.host, "WORKER_12", "MAIN")] == [12, 12, 0]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("WORKER_0", {}),
        ("WORKER_1.bak", {}),
        ("PS_1", {}),
        ("WORKER_1", {"address": "10.0.0.2 -oProxyCommand=x"}),
        ("WORKER_1", {"address": ""}),
        ("WORKER_1", {"fact_ssh_host_key": ""}),
        ("WORKER_1", {"fact_ssh_host_key": KEY.replace("ed25519", "rsa")}),
        ("WORKER_1", {"fact_ssh_host_key": f'command="id" {KEY}'}),
        ("WORKER_1", {"fact_ssh_host_key": f"{KEY} comment"}),
        ("WORKER_1", {"fact_slots": "0"}),
        ("WORKER_1", {"fact_slots": "1000"}),
        ("WORKER_1", {"fact_slots": "2; id"}),
        ("MAIN", {}),  # a host key is not main's public key
    ],
)
def test_hostile_file_is_no_node(
    launcher: dict[str, ModuleType], tmp_path: Path, name: str, fields: dict[str, str]
) -> None:
    """Who can write to the work dir decides neither where main connects nor whom a worker lets in by such a value."""
    with pytest.raises(ValueError, match=r"."):
        launcher["nodes"].read_node(worker_file(tmp_path, name, **fields))


def test_nodes_come_in_the_order_of_their_ranks(
    launcher: dict[str, ModuleType], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file that is not whole yet is left alone; one that is unusable is left out, and spoken of once."""
    for name in ("WORKER_10", "WORKER_2", ".WORKER_3"):
        worker_file(tmp_path, name)
    worker_file(tmp_path, "WORKER_4", fact_slots="x")
    read = lambda: [node.name for node in launcher["nodes"].read_nodes(tmp_path)]  # noqa: E731
    assert [read(), read()] == [["WORKER_2", "WORKER_10"]] * 2
    assert capfd.readouterr().err.count("left out: WORKER_4 has published no number of slots") == 1


def test_replacement_of_a_node_has_a_life_of_its_own(launcher: dict[str, ModuleType], tmp_path: Path) -> None:
    """Same name and address, another key: Horovod must not hold its predecessor's failure against it."""
    first = launcher["nodes"].read_node(worker_file(tmp_path))
    second = launcher["nodes"].read_node(worker_file(tmp_path, fact_ssh_host_key=KEY[:-1] + "B"))
    assert first.host.startswith("WORKER_1-")
    assert first.host != second.host


# --- Settings and facts ---------------------------------------------------------------------------------------------


def test_all_bad_settings_are_named_at_once(launcher: dict[str, ModuleType]) -> None:
    """With the value and what is expected; 78."""
    environ = {"SLOTS": "0", "SSH_PORT": "22", "MIN_NP": "two", "BLACKLIST_COOLDOWN": "9:5", "GRACE_PERIOD": "3s"}
    with pytest.raises(SettingsError) as raised:
        launcher["nodes"].read_options(environ)
    assert raised.value.exit_code == 78
    told = str(raised.value).removeprefix("bad settings: ").removesuffix(" (horovod/settings.env explains each)")
    assert told.split("; ") == [
        "GRACE_PERIOD: could not convert string to float: '3s'",
        "SSH_PORT: '22' is not a whole number from 1024 to 65535",
        "SLOTS: '0' is not a whole number from 1 to 999",
        "MIN_NP: 'two' is not a whole number from 1 to 9999",
        "BLACKLIST_COOLDOWN: '9:5' is not two numbers, the smaller first, such as 1:10",
    ]


@pytest.mark.parametrize(("environ", "is_elastic"), [({}, False), ({"MIN_NP": "2"}, True), ({"MAX_NP": "4"}, True)])
def test_either_limit_makes_it_elastic(
    launcher: dict[str, ModuleType], environ: dict[str, str], *, is_elastic: bool
) -> None:
    """MIN_NP or MAX_NP; but not one above the other."""
    assert launcher["nodes"].read_options(environ).is_elastic is is_elastic
    with pytest.raises(SettingsError, match="BLACKLIST_COOLDOWN: 0 s is less than 1"):
        launcher["nodes"].read_options({"BLACKLIST_COOLDOWN": "0:5"})
    with pytest.raises(SettingsError, match=r"MIN_NP: 5 is more than MAX_NP \(4\)"):
        launcher["nodes"].read_options({"MIN_NP": "5", "MAX_NP": "4"})


@pytest.mark.parametrize(
    ("period", "shares_s"), [("", (5, 6)), ("10", (5, 6)), ("3", (1.5, 1.8)), ("0.5", (0.25, 0.3)), ("0", (0, 0))]
)
def test_what_a_node_ends_itself_has_a_share_of_its_own_time(
    launcher: dict[str, ModuleType], period: str, shares_s: tuple[float, float]
) -> None:
    """A launcher that is killed while it waits for a rank leaves its work half done."""
    options = launcher["nodes"].read_options({"GRACE_PERIOD": period})
    assert (options.grace_s, options.longer_grace_s) == pytest.approx(shares_s)


@pytest.mark.parametrize(("visible", "count"), [("0,1,3", 3), ("", 0), ("-1", 0), ("GPU-1a2b", 1)])
def test_visible_gpus_are_counted(
    launcher: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, visible: str, count: int
) -> None:
    """What the user leaves visible counts, whatever the machine has."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert launcher["nodes"].gpu_count() == count


def test_key_is_private_new_and_published_as_others_expect_it(launcher: dict[str, ModuleType], tmp_path: Path) -> None:
    """The file is for its owner alone, even where an older one was not."""
    path = tmp_path / "key"
    path.touch(mode=0o644)
    first, second = (launcher["nodes"].make_key(path) for _ in range(2))
    assert first != second
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert launcher["nodes"].read_node(worker_file(tmp_path, fact_ssh_host_key=second)).key == second


# --- Ranks ----------------------------------------------------------------------------------------------------------


def test_rank_is_told_who_it_is(launcher: dict[str, ModuleType]) -> None:
    """All that Horovod gives its ranks passes."""
    told = {"HOROVOD_HOSTNAME": "WORKER_1-1a2b3c4d", "HOROVOD_RANK": "1", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1"}
    assert launcher["ranks"].checked_environ(told) == told


@pytest.mark.parametrize(
    "told",
    [
        {"LD_PRELOAD": "x.so"},
        {"HOROVOD_RANK": "1\n"},
        {"HOROVOD_HOSTNAME": "$(id)"},
        {"xHOROVOD_RANK": "1"},
    ],
)
def test_rank_is_told_nothing_else(launcher: dict[str, ModuleType], told: dict[str, str]) -> None:
    """Not even main's key gets another variable into a rank's environment."""
    with pytest.raises(ValueError, match="a rank is"):
        launcher["ranks"].checked_environ(told)


def run_rank(
    launcher: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, directory: Path, script: str, until: Path | None
) -> tuple[int, str]:
    """Run *script* as a rank, until the file *until* is there; return its exit code and its last errors."""
    path = directory / "rank.sh"
    path.write_text(f"#!/bin/bash\ncd '{directory}'\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(launcher["ranks"], "RANK_SH", path)
    monkeypatch.setenv("CODE_DIR", "/node 1/code")

    async def run() -> tuple[int, str]:
        unwanted = asyncio.Event()
        rank = asyncio.ensure_future(launcher["ranks"].run_rank({"HOROVOD_RANK": "3"}, unwanted, grace_s=0.2))
        deadline = time.monotonic() + 120
        while not rank.done():
            assert time.monotonic() < deadline
            if until is not None and until.exists():
                unwanted.set()
            await asyncio.sleep(0.01)
        ended, printed = rank.result()
        return ended, printed.decode()

    return asyncio.run(run())


@pytest.mark.parametrize(("script", "code"), [("exit 9", 9), ("kill -KILL $$", 137), ("exit $HOROVOD_RANK", 3)])
def test_ranks_own_code_is_returned(
    launcher: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, code: int
) -> None:
    """An exit code as it is, a signal as the shell has it."""
    assert run_rank(launcher, monkeypatch, tmp_path, script, None) == (code, "")


def test_the_end_of_a_ranks_errors_is_kept(
    launcher: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """All of them are printed, as they come; the user's files have names that main knows too."""
    script = """echo out; yes | head -c 100000 >&2; echo '  File "/node 1/code/lib/a.py", line 3' >&2; exit 1"""
    code, printed = run_rank(launcher, monkeypatch, tmp_path, script, None)
    out, err = capfd.readouterr()
    assert (code, out, len(err)) == (1, "out\n", 100_000 + len('  File "/node 1/code/lib/a.py", line 3\n'))
    assert len(printed) == (16 << 10) - len("/node 1/code/")
    assert printed.endswith('y\n  File "lib/a.py", line 3\n')


def test_errors_of_what_has_left_a_ranks_group_are_not_waited_for(
    launcher: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may stay for ever; the agent ends it."""
    monkeypatch.setattr(launcher["ranks"], "_LAST_ERRORS_S", 0.1)
    script = "setsid sh -c 'echo $$ >pid; exec sleep 100' & until [ -s pid ]; do sleep 0.01; done; exit 1"
    try:
        assert run_rank(launcher, monkeypatch, tmp_path, script, None) == (1, "")
    finally:
        psutil.Process(int((tmp_path / "pid").read_text())).kill()


def is_alive(pid: int) -> bool:
    """Return whether a process is there, and not only waited for."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("sleep 100 & echo $! >child; mv child there; wait", 143),
        ("trap '' TERM; sleep 100 & echo $! >child; mv child there; while :; do wait; done", 137),
    ],
)
def test_rank_that_is_not_wanted_goes_with_all_that_it_started(
    launcher: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, code: int
) -> None:
    """TERM first; KILL for one that does not listen."""
    assert run_rank(launcher, monkeypatch, tmp_path, script, tmp_path / "there") == (code, "")
    assert not is_alive(int((tmp_path / "there").read_text()))


def test_children_of_a_rank_that_has_ended_go_too(
    launcher: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Data loaders of a script that crashed would hold memory and GPUs."""
    assert run_rank(launcher, monkeypatch, tmp_path, "sleep 100 & echo $! >child; exit 7", None) == (7, "")
    deadline = time.monotonic() + 60
    while is_alive(int((tmp_path / "child").read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- Causes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("endings", "cause"),
    [
        ([(0, 1.0, 0), (1, 1.1, 0)], None),
        ([(0, 1.0, 7), (1, 1.1, 9)], 0),  # the first
        ([(0, 1.0, 1), (1, 1.2, 134), (2, 1.5, 9)], 2),  # the one that no lost peer explains
        ([(0, 1.0, 1), (2, 3.5, 9)], 0),  # but not one of another moment
        ([(1, 1.0, 1), (2, 1.1, None)], 2),  # a node that is gone explains the others
        ([(0, 1.0, 1), (1, 1.1, 1)], 0),
    ],
)
def test_first_cause(
    launcher: dict[str, ModuleType], endings: list[tuple[int, float, int | None]], cause: int | None
) -> None:
    """Of several failures, the one that brought on the others."""
    ending = launcher["ranks"].Ending
    found = launcher["ranks"].first_failure([ending(rank, "MAIN", at, code) for rank, at, code in endings])
    assert (found.rank if found else None) == cause


SHUT_DOWN = b"horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by ...\n"


@pytest.mark.parametrize(
    ("endings", "cause"),
    [
        ([(0, 1.0, 1, SHUT_DOWN), (2, 3.9, 1, b"ValueError: bad row 7\n")], 2),  # it has told the others, then ended
        ([(0, 1.0, 1, SHUT_DOWN), (2, 3.9, 9, b"")], 2),
        ([(0, 1.0, 1, b"ValueError: x\n"), (2, 1.5, 1, SHUT_DOWN)], 0),
        ([(0, 1.0, 1, SHUT_DOWN), (1, 1.1, 1, SHUT_DOWN)], 0),  # who has gone is not known
        ([(0, 1.0, 9, SHUT_DOWN), (2, 1.5, 1, b"")], 0),  # a code of its own
    ],
)
def test_ranks_that_have_lost_a_peer_are_no_cause(
    launcher: dict[str, ModuleType], endings: list[tuple[int, float, int, bytes]], cause: int
) -> None:
    """Their own errors say so, where another rank has one that does not."""
    ending = launcher["ranks"].Ending
    found = launcher["ranks"].first_failure(
        [ending(rank, "MAIN", at, code, printed=printed) for rank, at, code, printed in endings]
    )
    assert found.rank == cause


def test_rank_that_was_ended_has_not_failed(launcher: dict[str, ModuleType]) -> None:
    """What follows from our own TERM is no cause."""
    ending = launcher["ranks"].Ending
    told = ending(1, "WORKER_1", 1.0, 128 + signal.SIGTERM, was_told=True)
    assert launcher["ranks"].first_failure([told]) is None


@pytest.mark.parametrize(
    ("printed", "others", "told"),
    [
        (
            b"HorovodInternalError: x",
            ["rank 0 on MAIN"],
            "; rank 0 on MAIN had not ended 3 s later, which is what a hang",
        ),
        (b"HorovodInternalError: x", [], ""),
        (b"ValueError: bad row 7", ["rank 0 on MAIN"], ""),
    ],
)
def test_ranks_that_compute_are_no_hang(
    launcher: dict[str, ModuleType], printed: bytes, others: list[str], told: str
) -> None:
    """A rank that has failed by itself brings on nothing in those that do not wait for it."""
    failed = launcher["ranks"].Ending(1, "WORKER_1", 5.0, 1, printed=printed)
    error = str(launcher["ranks"].RankError(failed, others, 3.0))
    assert error.startswith(f"rank 1 on WORKER_1 ended: exit code 1{told}")
    assert bool(told) is ("hang" in error)


def test_endings_name_rank_and_node(launcher: dict[str, ModuleType]) -> None:
    """A lost node has no code of its own: 76."""
    ending = launcher["ranks"].Ending
    assert str(ending(2, "WORKER_2", 0.0, 137)) == "rank 2 on WORKER_2 ended: killed by SIGKILL"
    lost = ending(2, "WORKER_2", 0.0, None)
    assert (str(lost), lost.exit_code) == ("WORKER_2 was lost, with rank 2", 76)


def test_reason_reaches_log_and_agent(
    launcher: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What `die` of start-lib.sh does."""
    monkeypatch.setenv("NODE_DIR", str(tmp_path))
    endings = launcher["ranks"]
    endings.report(LostError("all is lost"))
    assert (tmp_path / "reason").read_text() == "all is lost\n"
    assert capfd.readouterr().err.endswith(" horovod: error: all is lost\n")
    assert [path.name for path in tmp_path.iterdir()] == ["reason"]
    cause = endings.Ending(2, "WORKER_2", 0.0, 1, printed=b"\xff words\n")
    endings.report(endings.RankError(cause))
    assert (tmp_path / "entry-point-ended").read_text() == "rank 2 on WORKER_2 ended: exit code 1\n"
    assert (tmp_path / "entry-point-printed").read_bytes() == b"WORKER_2\n\xff words\n"
