"""Locks of a framework's environment: when they count, and what is installed by them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import audit
import pytest
from unit.system.fake_checkout import Checkout
from unit.system.wheels import environment, has, offline, wheel

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.system.envs import python_env
from oci_cluster.system.envs.package_lists import head, is_lock_of, lock_beside, requirements
from oci_cluster.system.envs.python_env import ensure_framework

ROOT = Path(__file__).resolve().parents[4]
FRAMEWORKS = sorted(path.parent.name for path in ROOT.glob("*/Dockerfile"))
ADDED = [ROOT / "common" / "env-notebook.yaml", *ROOT.glob("scripts/sessions/*/env.yaml")]
LOCK = "env-lock.txt"
LISTED = ["dask==1.0", "bokeh==2.0"]  # of fake_checkout.ENV_YAML


def lock_of(entries: Sequence[str], *packages: str) -> str:
    """Return a lock of *entries* that holds *packages*, each with a hash of nothing."""
    return head(entries) + "".join(f"{package} \\\n    --hash=sha256:{'0' * 64}\n" for package in packages)


# --- Those that are in the checkout ---------------------------------------------------------------------------------


def with_hashes(lock: str) -> list[str]:
    """Return the pins of *lock*, of which each has hashes."""
    locked = re.findall(r"^([a-z0-9.-]+==[^ ]+) (?:; [^\\\n]+)?\\\n    --hash=sha256:", lock, re.MULTILINE)
    assert len(locked) == len(re.findall(r"^[A-Za-z0-9]", lock, re.MULTILINE))
    return locked


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_is_locked_as_its_env_file_stands(framework: str) -> None:
    """For this machine and for images: every pin is in it, every package has hashes; `make lock` was not forgotten."""
    own = requirements(ROOT / framework / "env.yaml")
    both = [*requirements(ROOT / "common" / "env.yaml"), *own]
    text = (ROOT / framework / LOCK).read_text()
    assert text.startswith(head(own, both)), f"{framework}/env.yaml has changed, and {LOCK} has not: make lock"
    locked = with_hashes(text)
    # Without extras: what they bring is locked by itself.
    pins = {re.sub(r"\[[^]]*]", "", entry.partition(";")[0].strip()) for entry in both}
    assert {pin.replace("_", "-").replace("backports.", "backports-") for pin in pins} <= set(locked)
    assert "://" not in text  # where packages come from is the user's affair


@pytest.mark.parametrize("file", ADDED, ids=lambda path: path.parent.name)
def test_what_is_added_for_notebooks_and_sessions_is_locked_too(file: Path) -> None:
    """As the file stands, with hashes; and it is audited."""
    lock = lock_beside(file)
    assert is_lock_of(lock, requirements(file)), f"{file} has changed, and {lock.name} has not: make lock"
    assert set(requirements(file)) <= set(with_hashes(lock.read_text()))
    assert lock in [path for pattern in audit.LOCKS for path in ROOT.glob(pattern)]


# --- When they count ------------------------------------------------------------------------------------------------


def test_what_is_locked_is_installed_by_its_hashes(checkout: Checkout) -> None:
    """The lock says them for all; another makes the environment anew, and the second launch asks nothing."""
    lock = checkout.root / "dask" / LOCK
    lock.write_text(head(["other"], LISTED) + "below==3 # of both\n")  # of images too
    checkout.framework()
    asked = "--requirement wanted --constraint versions --require-hashes <dask==1.0 bokeh==2.0 >"
    assert checkout.calls()[-1].endswith(f"{asked} <{head(['other'], LISTED).strip()} below==3 # of both >")
    checkout.framework()
    assert checkout.calls() == []
    lock.write_text(lock_of(LISTED, *LISTED, "below==4"))
    checkout.framework()
    assert " below==4 " in checkout.calls()[-1]
    assert not any("make lock" in said for said in checkout.said)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "there is no env-lock.txt beside it"),
        (lock_of(["other==1"]).encode(), "env-lock.txt is not of this list"),
        (lock_of([*LISTED, "more"], *LISTED).encode(), "env-lock.txt is not of this list"),
        (lock_of(["dask==1.1", "bokeh==2.0"]).encode(), "env-lock.txt is not of this list"),
        (b"\xff\n", "env-lock.txt is not of this list"),
    ],
)
def test_a_list_without_its_lock_is_resolved_and_said(checkout: Checkout, text: bytes, why: str) -> None:
    """As a copy of the folder is, in which somebody has changed the list."""
    if text:
        (checkout.root / "dask" / LOCK).write_bytes(text)
    checkout.framework()
    assert checkout.calls()[-1].endswith(" --requirement wanted <dask==1.0 bokeh==2.0 >")
    said = f"  dask/env.yaml: {why}, so versions are chosen anew, and hashes are not checked; `make lock` locks them"
    assert checkout.said.count(said) == 1


# --- What real uv makes of them -------------------------------------------------------------------------------------


class Place:
    """A checkout with wheels of `base`, which needs `below`, and of torch; the real uv installs, offline."""

    def __init__(self, path: Path) -> None:
        self.root = path / "my checkout"
        self.wheels = path / "wheels"
        for name, version in (("base", "1.0"), ("below", "1.0"), ("below", "2.0"), ("torch", "2.13.0+cpu")):
            needs = {"base": ("below",), "torch": ("below",)}.get(name, ())
            wheel(self.wheels, name, version, needs=needs)
        environment(self.root, self.wheels, "base")
        (self.root / "common").symlink_to(ROOT / "common")
        self.said: list[str] = []

    def framework(self, name: str, entries: Sequence[str], locked: Sequence[str], wrong: str = "") -> list[str]:
        """Make the environment of a framework *name*; return what it has. The hash of *wrong* is not its own."""
        folder = self.root / name
        folder.mkdir()
        (folder / "env.yaml").write_text(json.dumps({"dependencies": [{"pip": [*entries]}]}))
        lines = []
        for package in locked:
            file = self.wheels / f"{package.replace('==', '-')}-py3-none-any.whl"
            content = file.read_bytes() if file.exists() and package != wrong else b""
            lines.append(f"{package} \\\n    --hash=sha256:{hashlib.sha256(content).hexdigest()}\n")
        if locked:
            (folder / LOCK).write_text(head(entries) + "".join(lines))
        return has(ensure_framework(self.root, folder / "env.yaml", self.said.append))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    offline(monkeypatch, made.wheels)
    monkeypatch.setattr(python_env, "ensure_tools", lambda *_: made.root / ".venv" / "bin" / "python")
    monkeypatch.setattr(python_env, "tools_python", lambda _: Path(python_env.sys.executable))
    return made


@pytest.mark.slow
def test_what_is_locked_is_taken_and_nothing_else(place: Place) -> None:
    """Of images' packages none, and no newer version of what env.yaml does not name; a changed file is refused."""
    locked = ["base==1.0", "below==1.0", "of-images-alone==1.0"]
    assert place.framework("one", ["base==1.0"], locked) == ["base=1.0", "below=1.0"]
    with pytest.raises(BackendError, match=r"Hash mismatch for `below==1\.0`"):
        place.framework("two", ["base==1.0"], locked, wrong="below==1.0")
    with pytest.raises(BackendError, match="no trusted hash was provided for: `below`"):
        place.framework("three", ["base==1.0"], ["base==1.0"])


@pytest.mark.slow
def test_a_build_of_torch_that_is_not_locked_is_taken_and_said(place: Place) -> None:
    """From a folder of pip's settings; of all others the hash is checked all the same."""
    entries, locked = ["base==1.0", "torch==2.13.0"], ["base==1.0", "below==1.0", "torch==2.13.0", "nvidia-x==1"]
    assert place.framework("one", entries, locked) == ["base=1.0", "below=1.0", "torch=2.13.0+cpu"]
    assert any(
        "its hash, and those of what it alone brings, are not checked; all others are" in said for said in place.said
    )
    with pytest.raises(BackendError, match=r"Hash mismatch for `below==1\.0`"):
        place.framework("two", entries, locked, wrong="below==1.0")


@pytest.mark.slow
def test_lists_that_contradict_themselves_are_a_wrong_setting(place: Place) -> None:
    """78; what is nowhere is not available: 69."""
    with pytest.raises(SettingsError, match=r"base==1\.0 and base==2\.0"):
        place.framework("one", ["base==1.0", "base==2.0"], [])
    with pytest.raises(BackendError, match="nothing was not found"):
        place.framework("two", ["nothing"], [])


@pytest.mark.slow
def test_a_list_without_pins_is_locked_too(place: Place) -> None:
    """uv asks for hashes of all only where each entry is pinned; those that the lock has are checked all the same."""
    entries, locked = ["--pre", "base", "torch==2.13.*"], ["base==1.0", "below==1.0", "torch==2.13.0+cpu"]
    assert place.framework("one", entries, locked) == ["base=1.0", "below=1.0", "torch=2.13.0+cpu"]
    with pytest.raises(BackendError, match=r"Hash mismatch for `below==1\.0`"):
        place.framework("two", entries, locked, wrong="below==1.0")
