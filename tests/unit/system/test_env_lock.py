"""Locks of a framework's environment: when they count, and what is installed by them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import audit
import pytest
from unit.system.fake_checkout import Checkout
from unit.system.wheels import environment, run, wheel

from oci_cluster.errors import BackendError
from oci_cluster.system import python_env
from oci_cluster.system.env_lock import IMAGE_LOCK, LOCK, head, is_lock_of, lock_beside, locked_steps, names_torch
from oci_cluster.system.python_env import ensure_framework, requirements

ROOT = Path(__file__).resolve().parents[3]
FRAMEWORKS = sorted(path.parent.name for path in ROOT.glob("*/Dockerfile"))
ADDED = [ROOT / "common" / "env-notebook.yaml", *ROOT.glob("scripts/sessions/*/env.yaml")]
LISTED = ["dask==1.0", "bokeh==2.0"]  # of fake_checkout.ENV_YAML


def lock_of(entries: Sequence[str], *packages: str) -> str:
    """Return a lock of *entries* that holds *packages*, each with a hash of nothing."""
    return head(entries) + "".join(f"{package} \\\n    --hash=sha256:{'0' * 64}\n" for package in packages)


# --- Those that are in the checkout ---------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_is_locked_as_its_env_file_stands(framework: str) -> None:
    """Every pin is in both locks, every package has hashes; `make lock` was not forgotten."""
    own = requirements(ROOT / framework / "env.yaml")
    common = requirements(ROOT / "common" / "env.yaml")
    for name, entries in ((LOCK, own), (IMAGE_LOCK, [*common, *own])):
        lock = ROOT / framework / name
        assert is_lock_of(lock, entries), f"{framework}/env.yaml has changed, and {name} has not: make lock"
        locked = re.findall(
            r"^([a-z0-9.-]+==[^ ]+) (?:; [^\\\n]+)?\\\n    --hash=sha256:", lock.read_text(), re.MULTILINE
        )
        assert len(locked) == len(re.findall(r"^[A-Za-z0-9]", lock.read_text(), re.MULTILINE))
        # Without extras: what they bring is locked by itself.
        pins = {re.sub(r"\[[^]]*]", "", entry.partition(";")[0].strip()) for entry in entries}
        assert {pin.replace("_", "-").replace("backports.", "backports-") for pin in pins} <= set(locked)
        assert "://" not in lock.read_text()  # where packages come from is the user's affair


@pytest.mark.parametrize("file", ADDED, ids=lambda path: path.parent.name)
def test_what_is_added_for_notebooks_and_sessions_is_locked_too(file: Path) -> None:
    """As the file stands; and it is audited."""
    lock = lock_beside(file)
    assert is_lock_of(lock, requirements(file)), f"{file} has changed, and {lock.name} has not: make lock"
    assert set(requirements(file)) <= set(re.findall(r"^([a-z0-9.-]+==[^ ]+) ", lock.read_text(), re.MULTILINE))
    assert lock in [path for pattern in audit.LOCKS for path in ROOT.glob(pattern)]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_both_locks_of_a_framework_agree(framework: str) -> None:
    """What runs on this machine runs in an image."""
    lines = [
        set(re.findall(r"^\S+==\S+", (ROOT / framework / name).read_text(), re.MULTILINE))
        for name in (LOCK, IMAGE_LOCK)
    ]
    assert lines[0] <= lines[1]


# --- When they count ------------------------------------------------------------------------------------------------


def test_a_lock_is_one_of_exactly_its_list(tmp_path: Path) -> None:
    """A list with one more, or in which a version is another, is another list; so is what is no lock."""
    lock = tmp_path / LOCK
    assert not is_lock_of(lock, LISTED)
    lock.write_text(lock_of(LISTED, *LISTED))
    assert is_lock_of(lock, LISTED)
    assert not is_lock_of(lock, [*LISTED, "more"])
    assert not is_lock_of(lock, ["dask==1.1", "bokeh==2.0"])
    lock.write_bytes(b"\xff\n")
    assert not is_lock_of(lock, LISTED)


@pytest.mark.parametrize("uv", [True, False])
def test_what_is_locked_is_installed_by_its_hashes(uv: bool, request: pytest.FixtureRequest) -> None:  # noqa: FBT001
    """One call, with uv as with pip; another lock makes the environment anew, and the second launch asks nothing."""
    checkout: Checkout = request.getfixturevalue("checkout" if uv else "without_uv")
    lock = checkout.root / "dask" / LOCK
    lock.write_text(lock_of(LISTED, *LISTED, "below==3"))
    checkout.framework()
    assert checkout.calls()[-1].endswith("--require-hashes --requirement ROOT/dask/env-lock.txt")
    checkout.framework()
    assert checkout.calls() == []
    lock.write_text(lock_of(LISTED, *LISTED, "below==4"))
    checkout.framework()
    assert checkout.calls()[-1].endswith("env-lock.txt")
    assert not any("make lock" in said for said in checkout.said)


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "there is no env-lock.txt beside it"), (lock_of(["other==1"]), "env-lock.txt is not of this list")],
)
def test_a_list_without_its_lock_is_resolved_and_said(checkout: Checkout, text: str, why: str) -> None:
    """As a copy of the folder is, in which somebody has changed the list."""
    if text:
        (checkout.root / "dask" / LOCK).write_text(text)
    checkout.framework()
    assert checkout.calls()[-1].endswith(" dask==1.0 bokeh==2.0")
    said = f"  dask/env.yaml: {why}, so versions are chosen anew, and hashes are not checked; `make lock` locks them"
    assert checkout.said.count(said) == 1


# --- torch ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "is_so"),
    [
        ({}, False),
        ({"index-url": "https://mirror/simple"}, False),
        ({"find-links": "WHEELS"}, True),
        ({"find-links": "OTHER"}, False),
        ({"find-links": "https://wheels"}, True),
        ({"extra-index-url": "https://mine"}, True),
    ],
)
def test_pips_settings_may_name_another_build_of_torch(
    tmp_path: Path, settings: dict[str, str], *, is_so: bool
) -> None:
    """A folder counts where it has this version."""
    for folder, version in (("WHEELS", "2.13.0+cpu"), ("OTHER", "2.12.0+cpu")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"torch-{version}-cp311-none-any.whl").touch()
    places = {name: text if "://" in text else str(tmp_path / text) for name, text in settings.items()}
    assert names_torch(["torch==2.13.0", "b==1"], places) == is_so
    assert not names_torch(["b==1"], places)


def test_another_build_of_torch_comes_beside_what_is_locked(tmp_path: Path) -> None:
    """Neither it nor what NVIDIA's builds bring is asked for by hash; all that stays is the lock's."""
    entries = ["torch==2.13.0", "numpy==2.0"]
    lock = tmp_path / LOCK
    marked = "nvidia-nccl==3 ; sys_platform == 'linux'"
    lock.write_text(lock_of(entries, "numpy==2.0", marked, "sympy==1.14", "torch==2.13.0", "triton==3.7"))
    first, second = locked_steps(lock, entries, tmp_path, added=["torch==2.13.0+cpu"], is_other_torch=True)
    assert (first.is_locked, [*first.words[:3]]) == (True, ["--no-deps", "--require-hashes", "--requirement"])
    kept = Path(first.words[3]).read_text()
    assert (re.findall(r"^\w+", kept, re.MULTILINE), kept.count("--hash")) == (["numpy", "sympy"], 2)
    assert (second.is_locked, [*second.words[2:]]) == (False, [*entries, "torch==2.13.0+cpu"])
    versions = Path(second.words[1]).read_text().splitlines()
    assert versions == ["numpy==2.0", marked, "sympy==1.14", "torch==2.13.0", "triton==3.7"]


class Place:
    """A checkout with wheels of `base`, which needs `below`, and of torch; the real pip installs, offline."""

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
        (folder / LOCK).write_text(head(entries) + "".join(lines))
        python = ensure_framework(self.root, folder / "env.yaml", self.said.append)
        code = "import importlib.metadata as m; print(*sorted(d.name + '=' + d.version for d in m.distributions()))"
        return run(python, "-I", "-c", code).split()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    made = Place(tmp_path)
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.wheels))
    monkeypatch.setattr(python_env, "ensure_tools", lambda *_: made.root / ".venv" / "bin" / "python")
    monkeypatch.setattr(python_env.shutil, "which", lambda _: None)  # no uv
    return made


@pytest.mark.slow
def test_the_real_pip_takes_what_is_locked_and_nothing_else(place: Place) -> None:
    """A newer version of what env.yaml does not name is not taken, and a file that was changed is refused."""
    locked = ["base==1.0", "below==1.0"]
    assert place.framework("one", ["base==1.0"], locked) == ["base=1.0", "below=1.0"]
    with pytest.raises(BackendError, match="DO NOT MATCH THE HASHES"):
        place.framework("two", ["base==1.0"], locked, wrong="below==1.0")


@pytest.mark.slow
def test_a_build_of_torch_that_is_not_locked_is_taken_and_said(place: Place) -> None:
    """From a folder of pip's settings; of all others the hash is checked all the same."""
    entries, locked = ["base==1.0", "torch==2.13.0"], ["base==1.0", "below==1.0", "torch==2.13.0", "nvidia-x==1"]
    assert place.framework("one", entries, locked) == ["base=1.0", "below=1.0", "torch=2.13.0+cpu"]
    assert any(
        "its hash, and those of what it alone brings, are not checked; all others are" in said for said in place.said
    )
    with pytest.raises(BackendError, match="DO NOT MATCH THE HASHES"):
        place.framework("two", entries, locked, wrong="below==1.0")
