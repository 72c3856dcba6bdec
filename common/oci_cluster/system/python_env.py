"""Python environments of a checkout, for the launcher and for local nodes. Imports the standard library only."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from oci_cluster.errors import BackendError, NotPermittedError, SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.env_file import lock_beside, names_torch, pins_torch, uv_words
from oci_cluster.system.files import locked
from oci_cluster.system.installer import Uv, run_installer
from oci_cluster.system.no_pip import put_into
from oci_cluster.system.venv import own_venv

# The first whose UV_TORCH_BACKEND is no preview. Tried with it: that, and locks as constraints with hashes.
_OLDEST_UV = (0, 8)


def tools_python(root: Path) -> Path:
    """Return the interpreter of the launcher's own environment, whether it exists yet or not."""
    return own_venv(root) / "bin" / "python"


def uv_of(root: Path, say: Say) -> Path:
    """Return uv: the one on PATH where it is new enough, else that of ``.venv``, which pip installs by its hash.

    Raises:
        BackendError: there is none, and it cannot be installed; holds pip's last words.
    """
    own = own_venv(root) / "bin" / "uv"
    for found in filter(None, (shutil.which("uv"), shutil.which(own))):
        if _version(found) >= _OLDEST_UV:
            return Path(found)
    python, lock = tools_python(root), root / "common" / "requirements-install.txt"
    with one_at_a_time(root, "uv", say):
        if not own.exists() or _version(str(own)) < _OLDEST_UV:
            say("  installing uv with pip")
            if not python.exists():
                run_installer([sys.executable, "-m", "venv", own_venv(root)], say)
            pip = [str(python), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
            if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:  # noqa: S603 - our own pip
                run_installer([python, "-m", "ensurepip"], say)  # a .venv that uv made has none
            try:
                run_installer([*pip, "install", "--require-hashes", "--requirement", lock], say)
            except BackendError as error:
                oldest = ".".join(map(str, _OLDEST_UV))
                raise BackendError(
                    f"{error}\nuv makes all Python environments; let pip have it, or put uv {oldest} or newer on PATH"
                ) from error
    return own


def _version(uv: str) -> tuple[int, ...]:
    """Return the version of a *uv*, () where it cannot be run."""
    with contextlib.suppress(OSError):
        said = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603 - found above
        return tuple(map(int, re.findall(r"\d+", said)[:2]))
    return ()


def ensure_tools(root: Path, say: Say) -> Path:
    """Make ``.venv`` with the packages that launcher and agent need, unless it is there; return its interpreter.

    Raises:
        BackendError, NotPermittedError: it cannot be made; holds the installer's last words.
        SettingsError: a file of pip's settings is none.
    """
    return _ensure_locked(root, "requirements.txt", ".tools", f"making {own_venv(root).name} for the launcher", say)


def ensure_backend_tools(root: Path, backend: str, say: Say, *, is_preview: bool = False) -> Path | None:
    """Add to ``.venv`` what the launcher needs for *backend*, unless it is there; return its interpreter.

    None for a backend that has no ``common/requirements-<name>.txt``: it needs nothing. A preview asks nobody, and is
    content with ``common/requirements-<name>-preview.txt``. Raises as `ensure_tools` does.
    """
    if not (root / "common" / f"requirements-{backend}.txt").exists():
        return None
    ensure_tools(root, say)
    whole, what = f"requirements-{backend}.txt", f"installing what the backend {backend} needs"
    if is_preview and not _stamp(root, whole, f".{backend}-tools").exists():
        part = f"requirements-{backend}-preview.txt"
        return _ensure_locked(root, part, f".{backend}-preview-tools", f"{what} for a dry run", say)
    return _ensure_locked(root, whole, f".{backend}-tools", what, say)


def _stamp(root: Path, requirements: str, name: str) -> Path:
    """Return the file of ``.venv`` that is there when all that *requirements* of ``common`` locks is."""
    return own_venv(root) / f"{name}-{_digest((root / 'common' / requirements).read_bytes())}"


def _ensure_locked(root: Path, requirements: str, stamp_name: str, what: str, say: Say) -> Path:
    """Have in ``.venv`` what the file *requirements* of ``common`` locks; return its interpreter."""
    file, python = root / "common" / requirements, tools_python(root)
    stamp = _stamp(root, requirements, stamp_name)

    def make() -> None:
        say(f"{what} (first time only)")
        if not python.exists():
            with contextlib.suppress(OSError):  # a link to an interpreter that is gone: venv would leave it as it is
                python.unlink()
        uv = Uv(uv_of(root, say), say)
        if not python.exists():
            uv.venv(own_venv(root), sys.executable)
        uv.install(own_venv(root), ["--require-hashes", "--requirement", file])
        stamp.touch()

    once(root, "the launcher", lambda: _is_made(stamp, python), make, say)
    return python


def _is_made(stamp: Path, python: Path) -> bool:
    """Return whether an environment is there, whole, with its interpreter."""
    why = os.strerror(errno.EACCES)
    try:
        if not (stamp.exists() and python.exists()):
            return False
        if os.access(python, os.X_OK):
            return True
    except OSError as error:
        why = str(error.strerror)
    venv = python.parents[1]
    raise NotPermittedError(
        f"{python} cannot be run: {why}; allow that (chmod u+rx), or remove {venv}: the next launch makes it anew"
    )


def ensure_framework(root: Path, env_file: Path, say: Say, torch: str = "") -> Path:
    """Make the environment that *env_file* describes, unless it is there; return its interpreter.

    It is kept in ``.venv/envs`` under the framework's name. When *env_file* changes, or its lock, it is made anew. With
    the lock of exactly this file, every package is one that the lock has a hash of. What a ``pip:`` list cannot say is
    done by ``post-install.sh`` beside it: called with the environment's interpreter, a directory that outlives the
    environment, and the command that installs packages into it. Its own helpers are in ``post-install/``.

    *torch* is the setting ``TORCH``. With ``cpu``, torch is PyTorch's build for CPUs, and an environment that has
    another one is made anew; without, whatever build is there stays.

    Raises:
        SettingsError: *env_file* cannot be used, or a file of pip's settings is none.
        BackendError, NotPermittedError: the environment cannot be made; holds the installer's last words.
    """
    ensure_tools(root, say)
    # Resolved: the scripts that are installed there name it, and must not name a link that may go.
    name, directory = env_file.parent.name, own_venv(root).resolve() / "envs" / env_file.parent.name
    python, hook = directory / "bin" / "python", env_file.with_name("post-install.sh")
    helpers = sorted(path for path in hook.with_suffix("").glob("*") if path.is_file())
    # The last says which Python this is.
    files = [env_file, lock_beside(env_file), hook, *helpers, own_venv(root) / "pyvenv.cfg"]
    stamp = directory / f".made-{_digest(b''.join(path.read_bytes() for path in files if path.exists()))}"

    def is_there() -> bool:
        return _is_made(stamp, python) and not (torch and _has_other_torch(directory))

    def make() -> None:
        say(f"making the Python environment of {name} (first time only)")
        listed = listed_requirements(root, env_file)
        uv = Uv(uv_of(root, say), say, torch=torch)
        for old in (directory, *directory.parent.glob(f"{name}+*")):  # those see this one's packages
            shutil.rmtree(old, ignore_errors=True)
        if not torch and pins_torch(listed) and not names_torch(uv.settings):
            _say_size(say)
        uv.venv(directory, tools_python(root))
        # What a hook leaves there when it is ended goes with it.
        with tempfile.TemporaryDirectory(prefix="oci-cluster-") as scratch:
            uv.install(directory, uv_words(listed, env_file, Path(scratch), say, uv.settings, torch=torch))
            if hook.exists():
                uv.run_hook(hook, directory, _kept_builds(root, name), TMPDIR=scratch)
        put_into(directory)
        stamp.touch()

    once(root, name, is_there, make, say)
    return python


def once(root: Path, name: str, is_there: Callable[[], bool], make: Callable[[], None], say: Say) -> None:
    """Have the environment *name* made, unless it *is_there* now, or once another launch has made it."""
    if is_there():
        return
    with one_at_a_time(root, name, say):
        if not is_there():
            started = time.monotonic()
            make()
            say(f"  done in {time.monotonic() - started:.0f} s")


def one_at_a_time(root: Path, name: str, say: Say) -> AbstractContextManager[int]:
    """Hold the lock of the environment *name*: two launches on a fresh checkout must not install over each other.

    Each environment has its own. Horovod's takes minutes; nobody who needs another one waits for that.
    """
    path = own_venv(root) / f".{name.rpartition(' ')[2]}.lock"  # uv has a `.lock` of its own there
    return locked(path, lambda: say(f"waiting: another launch is making the Python environment of {name}"))


def _has_other_torch(directory: Path) -> bool:
    """Return whether the environment *directory* has a torch that is not the build for CPUs."""
    found = [*directory.glob("lib/python*/site-packages/torch-*.dist-info")]
    return sys.platform == "linux" and bool(found) and not any("+cpu" in path.name for path in found)


def _say_size(say: Say) -> None:
    """Say what a person should know before PyPI's torch is installed."""
    if (sys.platform, os.uname().machine) == ("linux", "x86_64"):
        # Both sizes: torch 2.13.0 with all that env.yaml lists, on disk.
        advice = "; without a GPU, PyTorch's CPU build does with 1.1 GB: Ctrl-C, then TORCH=cpu before the same command"
        found = shutil.which("nvidia-smi")
        say(f"  torch from PyPI brings NVIDIA's libraries: 5.4 GB on disk{'' if found else advice}")


def listed_requirements(root: Path, env_file: Path) -> list[str]:
    """Return the ``pip:`` list of *env_file*, read by the launcher's own environment: YAML's parser is there.

    Raises:
        SettingsError: the file cannot be used.
    """
    command = [str(tools_python(root)), "-m", "oci_cluster", "requirements", str(env_file)]  # our own verb
    environ = {**os.environ, "PYTHONPATH": str(root / "common")}
    listed = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)  # noqa: S603
    if listed.returncode:
        raise SettingsError(listed.stderr.strip().partition("error: ")[2] or listed.stderr.strip())
    return listed.stdout.splitlines()


def missing_packages(python: Path, packages: Sequence[str]) -> list[str]:
    """Return those of *packages* that the interpreter *python* does not have.

    Asks for distributions, not modules: a folder named ``dask`` can pass for the module.

    Raises:
        SettingsError: *python* cannot be run.
    """
    code = (
        "import sys, json, importlib.metadata as m\n"
        "have = {(d.metadata['Name'] or '').lower().replace('_', '-') for d in m.distributions()}\n"
        "print(json.dumps([p for p in sys.argv[1:] if p.lower().replace('_', '-') not in have]))"
    )
    try:
        asked = [str(python), "-I", "-c", code, *packages]  # the interpreter that the user named
        done = subprocess.run(asked, capture_output=True, text=True, check=True)  # noqa: S603
        return [str(package) for package in json.loads(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        detail = (getattr(error, "stderr", "") or str(error)).strip().rpartition("\n")[2]
        raise SettingsError(f"--python {python} is not a Python that can be run: {detail}") from error


def _kept_builds(root: Path, framework: str) -> Path:
    """Return where what a *framework*'s post-install.sh has built is kept: for all checkouts of a user who has a home.

    Compiling Horovod takes minutes, and what comes of it is the same in each.
    """
    own = own_venv(root) / "cache" / framework
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - without a home, too
    for place in (caches / "oci-cluster" / framework, own):
        if place.is_absolute():
            with contextlib.suppress(OSError):  # a home that is not there, or read-only
                place.mkdir(parents=True, exist_ok=True)
                if os.access(place, os.W_OK):
                    return place
    return own


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
