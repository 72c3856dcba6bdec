"""Packages that are added to a framework's environment by the real uv, out of a folder of small wheels."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.system.wheels import environment, has, offline, run, wheel

from oci_cluster.errors import BackendError, ClusterError, SettingsError
from oci_cluster.system.envs.package_lists import head, lock_beside
from oci_cluster.system.envs.python_env import with_packages

pytestmark = pytest.mark.slow  # the real uv installs


class Place:
    """A checkout with an environment that has `base` 1.0 and `tool`, which is a program too."""

    def __init__(self, path: Path) -> None:
        self.root = path / "my checkout"
        self.wheels = path / "wheels"
        wheel(self.wheels, "base", "1.0")
        wheel(self.wheels, "tool", "1.0", needs=("base",), script=True)
        self.python = environment(self.root, self.wheels, "base", "tool")
        wheel(self.wheels, "base", "2.0")
        wheel(self.wheels, "extra", "3.0", needs=("base", "second"), script=True)
        wheel(self.wheels, "second", "1.0")
        wheel(self.wheels, "newer", "1.0", needs=("base>=2",))
        # As the launcher's own environment does, which has a parser of YAML.
        (self.root / "common").symlink_to(Path(__file__).resolve().parents[4] / "common")
        self.said: list[str] = []

    @property
    def environments(self) -> list[str]:
        return sorted(path.name for path in (self.root / ".venv" / "envs").iterdir())

    def add(self, *packages: str, files: tuple[Path, ...] = (), torch: str = "") -> Path:
        return with_packages(self.root, self.python, packages, files, self.said.append, torch=torch)

    def end(self) -> None:
        """Remove what a test has added: the base costs seconds, and is never changed."""
        for name in self.environments[1:]:
            shutil.rmtree(self.root / ".venv" / "envs" / name)
        self.said.clear()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return such a checkout."""
    return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def place(made: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return it, with nothing added; uv finds packages in its wheels alone."""
    offline(monkeypatch, made.wheels)
    yield made
    made.end()


def test_packages_are_added_and_the_base_stays_as_it_is(place: Place) -> None:
    """The base is seen, not copied; what an added package needs of it is there already.

    Programs, such as `dask worker` and `torchrun`, run in the environment in which the packages are.
    """
    before = sorted(place.python.parents[1].rglob("*"))
    python = place.add("extra")
    assert has(python) == ["base=1.0", "extra=3.0", "second=1.0", "tool=1.0"]
    assert has(place.python) == ["base=1.0", "tool=1.0"]
    assert sorted(place.python.parents[1].rglob("*")) == before
    where = run(python, "-c", "import base, extra; print(base.__file__, extra.__file__)").split(" /")
    assert "/envs/dask/" in where[0]
    assert f"/envs/{python.parents[1].name}/" in f"/{where[1]}"
    for program in ("tool", "extra"):
        assert run(python.with_name(program)) == str(python.parents[1])
    assert run(place.python.with_name("tool")) == str(place.python.parents[1])


def test_the_same_packages_are_installed_once_and_others_apart(place: Place) -> None:
    """Two launches with different sets do not disturb each other; nor does one after env.yaml has changed."""
    first = place.add("second")
    place.said.clear()
    assert (place.add("second"), place.said) == (first, [])
    stamp = place.python.parents[1] / ".made-1"
    stamp.rename(stamp.with_name(".made-2"))
    other = place.add("second")
    stamp.with_name(".made-2").rename(stamp)
    assert (other != first, has(first)) == (True, has(other))


def test_a_file_adds_its_list(place: Place, tmp_path: Path) -> None:
    """EXTRA_ENV; another content is another set."""
    path = tmp_path / "my.yaml"
    path.write_text("dependencies:\n  - pip:\n      - second==1.0\n")
    assert "second=1.0" in has(place.add(files=(path,)))
    path.write_text("dependencies:\n  - pip:\n      - nothing\n")
    with pytest.raises(BackendError, match="nothing cannot be added"):
        place.add(files=(path,))


def locked(path: Path, wheels: Path, **hashes: str) -> Path:
    """Return a file that lists `extra`, with its lock: the hashes are the wheels', or those that are given."""
    file = path / "my.yaml"
    file.write_text("dependencies:\n  - pip:\n      - extra==3.0\n")
    lines = [head(["extra==3.0"])]
    for name, version in (("base", "9.9"), ("extra", "3.0"), ("second", "1.0")):
        found = [*wheels.glob(f"{name}-{version}-*.whl")]
        own = hashlib.sha256(found[0].read_bytes()).hexdigest() if found else "0" * 64
        lines.append(f"{name}=={version} \\\n    --hash=sha256:{hashes.get(name, own)}\n")
    lock_beside(file).write_text("".join(lines))
    return file


def test_what_a_lock_has_is_installed_by_its_hashes(place: Place, tmp_path: Path) -> None:
    """But for what the framework's environment has, whose versions count. Another lock is another set."""
    python = place.add(files=(locked(tmp_path, place.wheels),))
    assert has(python) == ["base=1.0", "extra=3.0", "second=1.0", "tool=1.0"]
    with pytest.raises(BackendError, match="Hash mismatch for `second==1"):
        place.add(files=(locked(tmp_path, place.wheels, second="1" * 64),))


@pytest.mark.parametrize(
    ("package", "kind", "why"),
    [
        ("nothing", BackendError, "nothing was not found in"),
        ("second==7", BackendError, "there is no version of second==7"),
        ("newer", SettingsError, "newer depend on base>=2 and base==1.0"),
        ("not a name", SettingsError, "not a name"),
    ],
)
def test_what_cannot_be_added_is_refused_with_uvs_reason(
    place: Place, package: str, kind: type[ClusterError], why: str
) -> None:
    """Nothing of the base is replaced for it, and nothing is left of the attempt."""
    with pytest.raises(kind) as caught:
        place.add("second", package)
    said = str(caught.value)
    assert said.startswith(
        f"second, {package} cannot be added to the environment of dask, of which nothing is replaced (for "
        "other versions, take an environment of your own: --python):\n"
    )
    assert why in said
    assert place.environments == ["dask"]


def test_an_attempt_that_was_killed_is_begun_anew(place: Place) -> None:
    """What is there without its stamp is worth nothing."""
    python = place.add("second")
    (python.parents[1] / ".made").unlink()
    python.unlink()
    assert place.add("second") == python
    assert "second=1.0" in has(python)


@pytest.mark.parametrize(
    ("torch", "vision", "is_well"),
    [
        ("2.13.0+cpu", "0.28.0", False),
        ("2.13.0", "0.28.0+cpu", False),
        ("2.13.0+cpu", "0.28.0+cpu", True),
        ("2.13.0", "0.28.0", True),
    ],
)
def test_torchvision_of_another_build_than_torchs_is_refused(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: str, vision: str, *, is_well: bool
) -> None:
    """Its operators would be missing as soon as it is imported: it is seen before, and nothing is left."""
    wheel(tmp_path, "torch", torch)
    wheel(tmp_path, "torchvision", vision, needs=("torch==2.13.0",))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    if is_well:
        assert {f"torch={torch}", f"torchvision={vision}"} <= {*has(place.add("torch", "torchvision"))}
        return
    with pytest.raises(BackendError, match=f"torchvision {re.escape(vision)} is not of the same build as torch"):
        place.add("torch", "torchvision")
    assert place.environments == ["dask"]


def test_an_option_of_a_file_is_in_no_arguments(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL of an index may hold a password, and everybody on the machine sees arguments."""
    seen = tmp_path / "seen"
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>"{seen}"\nexec "{shutil.which("uv")}" "$@"\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    file = tmp_path / "my.yaml"
    file.write_text(
        "dependencies:\n  - pip:\n      - --extra-index-url http://ada:secret@127.0.0.1:9\n      - second\n"
    )
    assert "second=1.0" in has(place.add(files=(file,)))
    assert "--requirement" in seen.read_text()
    assert "secret" not in seen.read_text()
