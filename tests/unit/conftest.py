# Surroundings of every unit test: none of the user's settings, folders or programs, and time that only a test moves.

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import re
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

ROOT = Path(__file__).resolve().parents[2]

# With the repository root on sys.path the folder dask/ would pass for the package dask.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

from oci_cluster.contract.settings.settings_files import ALIASES, framework_defaults, read_settings_file  # noqa: E402 - after sys.path is in order
from oci_cluster.system import lost_interrupts  # noqa: E402 - after sys.path

# What a test catches was not lost: nobody looks, in its process, whether it was.
lost_interrupts._FIRST_LOOK_S = 1000.0

_FOREIGN = re.compile(r"OCI_|XDG_|PIP_|UV_|GIT_|SSL_|DASK_|LC_|LD_PRELOAD$|PYTHON")
_LIBC = ctypes.CDLL(None)
_PR_GET_CHILD_SUBREAPER = 37  # linux/prctl.h
_NUMBERS = itertools.count()
_HANDLERS = {f"handler of {number!r}": number for number in signal.valid_signals()}
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


@functools.cache  # else each test parses all these files again, which costs more than most tests do
def contract_variables() -> frozenset[str]:
    """Return every variable that the contract, a framework or a script of ours reads."""
    names = {"BACKEND", "CDPATH", "CLUSTER_PROGRAM", "CLUSTER_RUNNER", "NO_COLOR", "OUTPUT_INTERVAL", "VIRTUAL_ENV"}
    for line in (ROOT / "common" / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            names.update(re.findall(r"\b[A-Z][A-Z0-9_]+\b", line.split("|")[1]))
    for name, others in ALIASES.items():
        names.update((name, *others))
    for path in ROOT.glob("*/settings.env"):
        names.update(framework_defaults(path.parent))
    for path in (ROOT / "scripts" / "backends").glob("*.env"):
        names.update(read_settings_file(path))
    return frozenset(names)


class Clock:
    """Monotonic seconds that pass only when a test, or a wait of the code under test, says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unit")


@pytest.fixture
def tmp_path(_folders: Path) -> Path:
    """Return a new folder; pytest's own fixture lists those of all tests before it, for a number: 20 ms of CPU."""
    path = _folders / str(next(_NUMBERS))
    path.mkdir(0o700)
    return path


@pytest.fixture
def empty_memory() -> Iterator[None]:
    """Leave nothing in memory://, which is one for the whole process."""
    yield
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def _process_state() -> dict[str, object]:
    """Return what tests of one process share, and none may change for those that follow."""
    adopts = ctypes.c_int()
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
    return {
        **{name: signal.getsignal(number) for name, number in _HANDLERS.items()},
        **{f"variable {name}": value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        **{f"limit {number}": resource.getrlimit(number) for number in _LIMITS},
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "working directory": Path.cwd(),
        "adopts orphans": adopts.value,
    }


@pytest.fixture
def same_process() -> Iterator[None]:
    """Name the test that leaves changed what another one may fail by."""
    before = _process_state()
    yield
    after = _process_state()
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert not changed, f"left changed: {', '.join(sorted(changed))}"


@pytest.fixture(autouse=True)
def _isolated(same_process: None, _folders: Path) -> Iterator[None]:
    """Leave what was, also where a test undoes what it has patched, or a verb sets variables of its own process."""
    before = dict(os.environ)
    home = _folders / f"home of number {next(_NUMBERS)}"
    work = home / "work"
    for folder in (home, work):  # folders are what costs most here
        folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name in contract_variables() or _FOREIGN.match(name)]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("PATH", "/usr/bin:/bin")
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.chdir(work)
        yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


@pytest.fixture(autouse=True)
def own_signals(same_process: None) -> Iterator[None]:
    """Leave behind no handler that a verb has installed: it would get the signals of the tests that follow."""
    before = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    if lost_interrupts._interrupt.was_raised:
        lost_interrupts.stop_looking()
