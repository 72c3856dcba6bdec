"""Packages that are added to a framework's environment, out of a folder of small wheels.

What is said of pip is asked of the real pip, which takes seconds. The rest is done with an installer that unpacks.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from unit.system.wheels import environment, run, wheel

from oci_cluster.errors import BackendError, ClusterError, SettingsError
from oci_cluster.system import added_packages, pip_config, python_env
from oci_cluster.system.added_packages import with_packages
from oci_cluster.system.env_lock import head, lock_beside

pytestmark = pytest.mark.slow


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
        (self.root / "common").symlink_to(Path(__file__).resolve().parents[3] / "common")
        self.said: list[str] = []

    @property
    def environments(self) -> list[str]:
        return sorted(path.name for path in (self.root / ".venv" / "envs").iterdir())

    def add(self, *packages: str, files: tuple[Path, ...] = (), torch: str = "") -> Path:
        return with_packages(self.root, self.python, packages, files, self.said.append, torch=torch)

    def names(self, python: Path) -> list[str]:
        code = "import importlib.metadata as m; print(*sorted(d.name + '=' + d.version for d in m.distributions()))"
        return run(python, "-I", "-c", code).split()

    def end(self) -> None:
        """Remove what a test has added: the base costs seconds, and is never changed."""
        for name in self.environments[1:]:
            shutil.rmtree(self.root / ".venv" / "envs" / name)
        self.said.clear()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return such a checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def place(made: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return it, with nothing added; pip finds packages in its wheels alone."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.wheels))
    # Whether .venv has a pip is asked elsewhere: each question costs half a second.
    pip = [str(made.root / ".venv" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    monkeypatch.setattr(added_packages, "own_pip", lambda *_: pip)
    yield made
    made.end()


@pytest.fixture
def unpacked(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Return it with an installer that unpacks the wheel of each name, and needs no process."""

    def install(command: Sequence[str | Path], say: Callable[[str], None]) -> None:
        words = [str(word) for word in command]
        if "--compile" not in words:
            return python_env.run_installer(command, say)  # venv
        (packages,) = Path(words[words.index("--python") + 1]).parents[1].glob("lib/python*/site-packages")
        for name in words[words.index("--compile") + 1 :]:
            found = sorted(place.wheels.glob(f"{name.partition('==')[0]}-*.whl"))
            if not found:
                raise BackendError(f"pip failed:\nNo matching distribution found for {name}")
            with zipfile.ZipFile(found[-1]) as archive:
                archive.extractall(packages)
        return None

    monkeypatch.setattr(added_packages, "run_installer", install)
    return place


def test_packages_are_added_and_the_base_stays_as_it_is(place: Place) -> None:
    """The base is seen, not copied; what an added package needs of it is there already.

    Programs, such as `dask worker` and `torchrun`, run in the environment in which the packages are.
    """
    before = sorted(place.python.parents[1].rglob("*"))
    python = place.add("extra")
    assert place.names(python) == ["base=1.0", "extra=3.0", "second=1.0", "tool=1.0"]
    assert place.names(place.python) == ["base=1.0", "tool=1.0"]
    assert sorted(place.python.parents[1].rglob("*")) == before
    where = run(python, "-c", "import base, extra; print(base.__file__, extra.__file__)").split(" /")
    assert "/envs/dask/" in where[0]
    assert f"/envs/{python.parents[1].name}/" in f"/{where[1]}"
    for program in ("tool", "extra"):
        assert run(python.with_name(program)) == str(python.parents[1])
    assert run(place.python.with_name("tool")) == str(place.python.parents[1])


def test_the_same_packages_are_installed_once_and_others_apart(unpacked: Place) -> None:
    """Two launches with different sets do not disturb each other; nor does one after env.yaml has changed."""
    first = unpacked.add("second")
    unpacked.said.clear()
    assert (unpacked.add("second"), unpacked.said) == (first, [])
    stamp = unpacked.python.parents[1] / ".made-1"
    stamp.rename(stamp.with_name(".made-2"))
    other = unpacked.add("second")
    stamp.with_name(".made-2").rename(stamp)
    assert (other != first, unpacked.names(first)) == (True, unpacked.names(other))


def test_a_file_adds_its_list(unpacked: Place, tmp_path: Path) -> None:
    """EXTRA_ENV; another content is another set."""
    path = tmp_path / "my.yaml"
    path.write_text("dependencies:\n  - pip:\n      - second==1.0\n")
    assert "second=1.0" in unpacked.names(unpacked.add(files=(path,)))
    path.write_text("dependencies:\n  - pip:\n      - nothing\n")
    with pytest.raises(BackendError, match="nothing cannot be added"):
        unpacked.add(files=(path,))


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
    assert place.names(python) == ["base=1.0", "extra=3.0", "second=1.0", "tool=1.0"]
    with pytest.raises(BackendError, match="THESE PACKAGES DO NOT MATCH THE HASHES"):
        place.add(files=(locked(tmp_path, place.wheels, second="1" * 64),))


@pytest.mark.parametrize(
    ("package", "kind", "why"),
    [
        ("nothing", BackendError, "No matching distribution found for nothing"),
        ("newer", SettingsError, "(constraint) base==1.0"),
    ],
)
def test_what_cannot_be_added_is_refused_with_pips_reason(
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


def test_an_attempt_that_was_killed_is_begun_anew(unpacked: Place) -> None:
    """What is there without its stamp is worth nothing."""
    python = unpacked.add("second")
    (python.parents[1] / ".made").unlink()
    python.unlink()
    assert unpacked.add("second") == python
    assert "second=1.0" in unpacked.names(python)


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
    monkeypatch: pytest.MonkeyPatch, torch: str, vision: str, *, is_well: bool
) -> None:
    """Its operators would be missing as soon as it is imported."""
    monkeypatch.setattr(added_packages, "_versions", lambda _: {"torch": torch, "torchvision": vision})
    if is_well:
        added_packages._check_torch(Path("python"), "")
        return
    with pytest.raises(BackendError, match=f"torchvision {re.escape(vision)} is not of the same build as torch"):
        added_packages._check_torch(Path("python"), "")


def test_a_build_that_does_not_fit_leaves_nothing(unpacked: Place) -> None:
    """It is seen before anything is started."""
    wheel(unpacked.wheels, "torch", "2.13.0+cpu")
    wheel(unpacked.wheels, "torchvision", "0.28.0", needs=("torch==2.13.0",))
    with pytest.raises(BackendError, match="must come from one index: TORCH=cpu names"):
        unpacked.add("torch", "torchvision")
    with pytest.raises(BackendError, match="which TORCH=cpu names, did not answer or does not have it"):
        unpacked.add("torch", "torchvision", torch="cpu")
    assert unpacked.environments == ["dask"]


def test_pytorchs_index_is_named_to_pip(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """TORCH=cpu: beside the user's own settings, and not where these want no index."""
    called: list[str] = []
    monkeypatch.setattr(added_packages, "run_installer", lambda command, _: called.append(" ".join(map(str, command))))
    for no_index in ("1", ""):
        monkeypatch.setenv("PIP_NO_INDEX", no_index)
        added_packages._install(place.root, place.python, place.python, ["second"], place.said.append, torch="cpu")
    assert [" --extra-index-url https://download.pytorch.org/whl/cpu " in command for command in called] == [
        False,
        True,
    ]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of an index on this machine, which is in the place of PyTorch's."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    (tmp_path / "whl").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")  # which has nothing
    monkeypatch.setattr(pip_config, "TORCH_CPU_INDEX", f"{url}/whl")
    yield tmp_path / "whl"
    server.shutdown()
    server.server_close()


def test_torch_and_what_goes_with_it_come_from_pytorchs_index(
    place: Place, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTP, by the real pip: the framework's torch, and torchvision that is added to it."""
    for folder, label in ((place.wheels, ""), (index, "+cpu")):
        wheel(folder / "torch" if label else folder, "torch", f"2.13.0{label}")
        wheel(folder / "torchvision" if label else folder, "torchvision", f"0.28.0{label}", needs=("torch==2.13.0",))
    env_file = place.root / "mine" / "env.yaml"
    env_file.parent.mkdir()
    env_file.write_text("dependencies:\n  - pip:\n      - torch==2.13.0\n")
    monkeypatch.setattr(python_env, "ensure_tools", lambda *_: place.root / ".venv" / "bin" / "python")
    monkeypatch.setattr(python_env.shutil, "which", lambda _: None)  # no uv
    python = python_env.ensure_framework(place.root, env_file, place.said.append, "cpu")
    assert place.names(python) == ["torch=2.13.0+cpu"]
    added = with_packages(place.root, python, ["torchvision"], [], place.said.append, torch="cpu")
    assert place.names(added) == ["torch=2.13.0+cpu", "torchvision=0.28.0+cpu"]
