"""What check.sh finds on this machine; a real disk, real ports and real locks."""

from __future__ import annotations

import errno
import re
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stub_gpus import listing, stub_nvidia_smi
from unit.fake_local import LIMITS, make_plan

from oci_cluster.backends import check_of
from oci_cluster.backends.findings import Checked, Finding, Verdict
from oci_cluster.backends.local import check
from oci_cluster.backends.local.addresses import Addresses
from oci_cluster.backends.local.backend import LocalBackend
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import SettingsError
from oci_cluster.system.envs.python_env import framework_stamp

pytestmark = pytest.mark.usefixtures("no_other_claims")
Look = Callable[[Plan | None], list[Finding]]


@pytest.fixture
def look(root: Path) -> Look:
    """Return what is found of a plan on this machine."""

    def found(plan: Plan | None) -> list[Finding]:
        return list(check_of("local")(Checked("plain", 1, root, {}, plan), lambda _: None))

    return found


def of(item: str, found: list[Finding]) -> Finding:
    (one,) = [finding for finding in found if finding.item == item]
    return one


def have_environment(root: Path, venv: str = ".venv") -> Path:
    """Make what looks like an environment; return what says that it is whole."""
    python = root / venv / "envs" / "plain" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    stamp = framework_stamp(root, root / "plain" / "env.yaml")
    stamp.touch()
    return stamp


def test_a_machine_that_can_run_it_is_fine(root: Path, look: Look) -> None:
    """And nothing is left of the look."""
    have_environment(root)
    before = sorted(root.rglob("*"))
    found = look(make_plan(limits=replace(LIMITS, ports={"A_PORT": free_port()})))
    assert [(one.item, str(one.verdict)) for one in found] == [
        ("Python", "fine"),
        ("memory", "fine"),
        ("GPUs", "fine"),
        ("free ports", "fine"),
        ("file locks", "fine"),
    ], found
    assert re.fullmatch(r"1 port of main on 127\.\S+", of("free ports", found).text)
    assert sorted(root.rglob("*")) == before


def test_an_environment_that_is_not_whole_is_not_there(root: Path, look: Look) -> None:
    """Its installation goes on, or was broken off; or its list has changed since."""
    stamp = have_environment(root)
    stamp.unlink()
    assert of("Python", look(make_plan())).text.startswith("the next launch makes the environment of plain in ")
    stamp.touch()
    assert of("Python", look(make_plan())).text.startswith("the environment of plain is there: ")
    (root / "plain" / "env.yaml").write_text("dependencies: [pip: [toolz]]\n")
    assert of("Python", look(make_plan())).text.startswith("the next launch makes the environment of plain in ")


def test_beside_a_venv_of_the_users_the_launchers_own_counts(root: Path, look: Look) -> None:
    """In a project whose `.venv` is somebody else's."""
    (root / ".venv").mkdir()
    (root / ".venv" / "pyvenv.cfg").touch()
    have_environment(root, ".venv-clusters")
    assert of("Python", look(make_plan())).text.startswith("the environment of plain is there: ")


def test_gpus_suffice_or_do_not(root: Path, look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the launch shares them out."""
    (root / "plain" / "settings.env").write_text("ENTRY_ON=all\n")
    assert of("GPUs", look(make_plan())).text == "none are shared out: each node sees what this machine has"
    stub_nvidia_smi(tmp_path / "bin", listing(3))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    said = "GPUS_PER_NODE: 1 of 3 GPUs for each node; left over: 2"
    assert of("GPUs", look(make_plan())).text == f"{said}, MAIN 0, WORKER_1 1"
    found = of("GPUs", look(make_plan(settings={"GPUS_PER_NODE": "2"})))
    assert (found.verdict, found.fix.startswith("one node has all GPUs")) == (Verdict.FAILS, True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_without_a_launch_nothing_is_known(look: Look) -> None:
    assert {str(one.verdict) for one in look(None)} == {"unknown"}


def test_a_python_of_the_users_needs_the_frameworks_packages(root: Path, look: Look) -> None:
    """With what installs them."""
    (root / "plain" / "settings.env").write_text("REQUIRED_PACKAGES=pytest,no-such-package\n")
    found = of("Python", look(make_plan(python=sys.executable)))
    assert (found.verdict, found.text) == (Verdict.FAILS, f"{sys.executable} lacks no-such-package")
    assert found.fix == f"{sys.executable} -m pip install no-such-package"
    (root / "plain" / "settings.env").write_text("REQUIRED_PACKAGES=pytest\n")
    assert of("Python", look(make_plan(python=sys.executable))).verdict is Verdict.FINE
    assert of("Python", look(make_plan(python="/nowhere/python"))).verdict is Verdict.FAILS


def test_an_environment_that_is_still_to_be_made_needs_room(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much, depends on the framework: little room is no failure, and not fine."""
    monkeypatch.setattr(check.shutil, "disk_usage", lambda _: SimpleNamespace(free=9 * 10**9))
    found = of("Python", look(make_plan()))
    assert (found.verdict, "9.0 GB free" in found.text) == (Verdict.FINE, True)
    monkeypatch.setattr(check.shutil, "disk_usage", lambda _: SimpleNamespace(free=700 * 10**6))
    found = of("Python", look(make_plan()))
    assert (found.verdict, "700 MB free" in found.text, found.fix[:13]) == (Verdict.UNKNOWN, True, "make room in ")


def test_an_environment_cannot_be_made_without_ensurepip(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian has it in a package of its own."""
    monkeypatch.setattr(check.importlib.util, "find_spec", lambda _: None)
    found = of("Python", look(make_plan()))
    assert (found.verdict, found.fix[:32]) == (Verdict.FAILS, "apt install python3-venv python3")


@pytest.mark.parametrize(
    ("available", "verdict", "fix"),
    [
        (160 * 10**6, "fine", ""),
        (159 * 10**6, "fails", "end other programs, or launch with 1 workers"),
        (10**6, "fails", "end other programs, or launch with 1 workers"),
    ],
)
def test_each_node_needs_some_memory(
    look: Look, monkeypatch: pytest.MonkeyPatch, available: int, verdict: str, fix: str
) -> None:
    memory = SimpleNamespace(available=available, total=10**9)
    monkeypatch.setattr(check.psutil, "virtual_memory", lambda: memory)
    found = of("memory", look(make_plan()))
    assert (str(found.verdict), found.fix) == (verdict, fix)
    assert "of 1.0 GB are free" in found.text


def test_each_port_that_is_taken_is_named(look: Look) -> None:
    """By the setting that chooses another; each of them, not the first alone."""
    with socket.socket() as one, socket.socket() as other:
        for taken in (one, other):
            taken.bind(("127.0.0.1", 0))
            taken.listen(1)
        first, second = (taken.getsockname()[1] for taken in (one, other))
        limits = replace(LIMITS, ports={"A_PORT": first, "B_PORT": free_port()}, exposed=(second,))
        found = [
            finding
            for finding in look(make_plan(limits=limits, chosen=frozenset({"A_PORT"})))
            if finding.item == "free ports"
        ]
    assert [(str(finding.verdict), finding.fix) for finding in found] == [
        ("fails", f"end it, or choose another port: --env A_PORT={first + 100}"),
        ("fails", "end it, or expose another port"),
    ]


def test_a_default_port_that_is_taken_is_told_with_the_one_instead(look: Look) -> None:
    """A launch does not fail for it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        limits = replace(LIMITS, ports={"A_PORT": port, "B_PORT": free_port()})
        found = of("free ports", look(make_plan(limits=limits)))
    assert str(found.verdict) == "fine"
    assert re.fullmatch(rf"A_PORT {port} is taken; this cluster has \d+", found.text)


def test_a_machine_without_addresses_is_told(look: Look) -> None:
    with Addresses(253):
        found = of("free ports", look(make_plan()))
    assert (found.verdict, found.fix) == (Verdict.FAILS, "end one: scripts/stop.sh")


def test_a_folder_that_cannot_be_written_fails(root: Path, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(check.tempfile, "NamedTemporaryFile", refuse)
    found = of("file locks", look(make_plan()))
    assert (found.verdict, found.fix) == (Verdict.FAILS, "allow writing there")
    assert found.text == f"{root} cannot be written: Read-only file system"


def test_locks_must_hold_in_the_work_dir_too(
    root: Path, look: Look, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One that nobody else sees is as bad as none."""
    shared = tmp_path_factory.mktemp("shared")
    place = shared / (300 * "n") / "yet"  # which the system refuses to look at, as in a folder of another user's
    plan = make_plan(work_dir=f"file://{place}")
    found = of("file locks", look(plan))
    assert (found.verdict, found.text) == (
        Verdict.FINE,
        f"they work in {root / '.clusters'}, {place}",
    )
    monkeypatch.setattr(check, "is_locked", lambda path: path.parent != shared)
    found = of("file locks", look(plan))
    assert (found.verdict, found.text) == (Verdict.FAILS, f"a lock in {shared} holds nobody off")


def test_a_file_system_without_locks_fails(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(check.fcntl, "flock", refuse)
    found = of("file locks", look(make_plan()))
    assert (found.verdict, found.text.endswith("has no file locks: No locks available")) == (Verdict.FAILS, True)
    assert found.fix == "put the checkout, and WORK_DIR, on a disk of this machine"


def test_settings_of_this_backend_are_checked_before_anything_is_placed(backend: LocalBackend) -> None:
    """Both what the setting is, and what processes cannot share."""
    backend.check()
    backend.check(make_plan(settings={"TORCH": ""}))
    with pytest.raises(SettingsError, match="TORCH"):
        backend.check(make_plan(settings={"TORCH": "gpu"}))
    with pytest.raises(SettingsError, match="nodes cannot share WORK_DIR memory://x"):
        backend.check(make_plan(work_dir="memory://x"))
