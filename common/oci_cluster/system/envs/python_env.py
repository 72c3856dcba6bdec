"""Python environments of launcher and frameworks, and packages that launches add.

Imports the standard library only: the first launch makes the rest with it.
"""

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.envs.installer import Uv, run_installer
from oci_cluster.system.envs.no_pip import put_into
from oci_cluster.system.envs.package_lists import (
    asked_for,
    is_lock_of,
    lock_beside,
    locked_beside,
    names_torch,
    pins_torch,
    uv_words,
)
from oci_cluster.system.files import locked

if TYPE_CHECKING:
    from importlib.metadata import Distribution

# The first whose UV_TORCH_BACKEND is no preview. Tried with it: that, and locks as constraints with hashes.
_OLDEST_UV = (0, 8)
# What shows that an environment is the launcher's, also one that is not whole yet: a lock is there before it is made.
_MARKS = (".launcher.lock", ".uv.lock", ".tools-*", ".dev-installed")
# What must be of one build: what they share is C++. PyTorch's releases carry the build in their versions: 2.13.0+cpu.
_TORCH_FAMILY = {"torchvision", "torchaudio"}
# A line of a .pth file that begins with `import` is run; so those of the framework's environment count, too.
_SEES = "import site; site.addsitedir({!r})\n"


def own_venv(root: Path) -> Path:
    """Return the folder of the launcher's environment in *root*, whether it exists or not.

    A project may have a ``.venv`` of its user's, also one of conda's or a file that names one, in which nothing of ours
    is installed: then it is ``.venv-clusters``. ``common/lib.sh`` knows the same.
    """
    usual = root / ".venv"
    is_there = (usual / "pyvenv.cfg").exists() or (usual / "conda-meta").exists() or usual.is_file()
    is_users = is_there and not any(any(usual.glob(mark)) for mark in _MARKS)
    return root / ".venv-clusters" if is_users else usual


def tools_python(root: Path) -> Path:
    """Return the interpreter of the launcher's own environment, whether it exists or not."""
    return own_venv(root) / "bin" / "python"


def uv_of(root: Path, say: Say) -> Path:
    """Return uv: a new enough one of PATH, or that of ``.venv``, by its hash."""
    own = own_venv(root) / "bin" / "uv"
    for found in filter(None, (shutil.which("uv"), shutil.which(own))):
        if _version(found) >= _OLDEST_UV:
            return Path(found)
    python, lock = tools_python(root), root / "common" / "requirements-install.txt"
    with _one_at_a_time(root, "uv", say):
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
    """Make ``.venv`` with what launcher and agent need; return its interpreter."""
    return _ensure_locked(root, "requirements.txt", ".tools", f"making {own_venv(root).name} for the launcher", say)


def ensure_backend_tools(root: Path, backend: str, say: Say, *, is_preview: bool = False) -> Path | None:
    """Add to ``.venv`` what the launcher needs for *backend*; return its interpreter.

    None for a backend that has no ``common/requirements-<name>.txt``: it needs nothing. A preview asks nobody, and is
    content with ``common/requirements-<name>-preview.txt``.
    """
    if not (root / "common" / f"requirements-{backend}.txt").exists():
        return None
    ensure_tools(root, say)
    whole, what = f"requirements-{backend}.txt", f"installing what the backend {backend} needs"
    if is_preview and not _stamp(root, whole, f".{backend}-tools").exists():
        part = f"requirements-{backend}-preview.txt"
        return _ensure_locked(root, part, f".{backend}-preview-tools", f"{what} for a dry run", say)
    return _ensure_locked(root, whole, f".{backend}-tools", what, say)


def has_backend_tools(root: Path, backend: str) -> bool:
    """Return whether all is there that the launcher needs for *backend*."""
    wanted = {"requirements.txt": ".tools", f"requirements-{backend}.txt": f".{backend}-tools"}
    stamps = [_stamp(root, file, name) for file, name in wanted.items() if (root / "common" / file).exists()]
    return all(_is_made(stamp, tools_python(root)) for stamp in stamps)


def _stamp(root: Path, requirements: str, name: str) -> Path:
    """Return the file that shows that ``.venv`` has all that *requirements* locks."""
    return own_venv(root) / f"{name}-{_digest((root / 'common' / requirements).read_bytes())}"


def _ensure_locked(root: Path, requirements: str, stamp_name: str, what: str, say: Say) -> Path:
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

    _once(root, "the launcher", lambda: _is_made(stamp, python), make, say)
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


def _once(root: Path, name: str, is_there: Callable[[], bool], make: Callable[[], None], say: Say) -> None:
    if is_there():
        return
    with _one_at_a_time(root, name, say):
        if not is_there():  # nor has another launch made it meanwhile
            started = time.monotonic()
            make()
            say(f"  done in {time.monotonic() - started:.0f} s")


def _one_at_a_time(root: Path, name: str, say: Say) -> AbstractContextManager[int]:
    """Hold the lock of the environment *name*: Horovod's takes minutes, and holds up no other."""
    path = own_venv(root) / f".{name.rpartition(' ')[2]}.lock"  # uv has a `.lock` of its own there
    return locked(path, lambda: say(f"waiting: another launch is making the Python environment of {name}"))


# --- Frameworks -------------------------------------------------------------------------------------------------------


def ensure_framework(root: Path, env_file: Path, say: Say, torch: str = "") -> Path:
    """Make the environment that *env_file* describes; return its interpreter.

    It is kept in ``.venv/envs`` under the framework's name. When *env_file* changes, or its lock, it is made anew. With
    the lock of exactly this file, every package is one that the lock has a hash of. What a ``pip:`` list cannot say is
    done by ``post-install.sh`` beside it: called with the environment's interpreter, a directory that outlives the
    environment, and the command that installs packages into it. Its own helpers are in ``post-install/``.

    *torch* is the setting ``TORCH``. With ``cpu``, torch is PyTorch's build for CPUs, and an environment that has
    another one is made anew; without, whatever build is there stays.
    """
    ensure_tools(root, say)
    name, hook, stamp = env_file.parent.name, env_file.with_name("post-install.sh"), framework_stamp(root, env_file)
    directory = stamp.parent
    python = directory / "bin" / "python"

    def make() -> None:
        say(f"making the Python environment of {name} (first time only)")
        listed = _listed_requirements(root, env_file)
        uv = Uv(uv_of(root, say), say, torch=torch)
        if not torch and pins_torch(listed) and not names_torch(uv.settings):
            _say_size(say)
        with _replaced(directory):
            uv.venv(directory, tools_python(root))
            # What a hook leaves there when it is ended goes with it.
            with tempfile.TemporaryDirectory(prefix="oci-cluster-") as scratch:
                uv.install(directory, uv_words(listed, env_file, Path(scratch), say, uv.settings, torch=torch))
                if hook.exists():
                    uv.run_hook(hook, directory, _kept_builds(root, name), TMPDIR=scratch)
            put_into(directory)
            stamp.touch()

    _once(root, name, lambda: has_framework(root, env_file, torch), make, say)
    return python


def has_framework(root: Path, env_file: Path, torch: str = "") -> bool:
    """Return whether the environment of *env_file* is there, whole, and of no older file."""
    stamp = framework_stamp(root, env_file)
    return _is_made(stamp, stamp.with_name("bin") / "python") and not (torch and _has_other_torch(stamp.parent))


def framework_stamp(root: Path, env_file: Path) -> Path:
    """Return the file that says that the environment of *env_file* is whole."""
    hook = env_file.with_name("post-install.sh")
    helpers = sorted(path for path in hook.with_suffix("").glob("*") if path.is_file())
    # The last says which Python this is.
    files = [env_file, lock_beside(env_file), hook, *helpers, own_venv(root) / "pyvenv.cfg"]
    made = f".made-{_digest(b''.join(path.read_bytes() for path in files if path.exists()))}"
    # Resolved: the scripts that are installed there name it, and must not name a link that may go.
    return own_venv(root).resolve() / "envs" / env_file.parent.name / made


@contextlib.contextmanager
def _replaced(directory: Path) -> Iterator[None]:
    """Put an environment aside while it is made anew, and back where that fails."""
    old = directory.with_name(f"{directory.name}.old")  # also there where whoever made it anew was killed
    if any(directory.glob(".made-*")):
        shutil.rmtree(old, ignore_errors=True)
        directory.rename(old)
    try:
        shutil.rmtree(directory, ignore_errors=True)
        yield
    except BaseException:
        if old.exists():
            shutil.rmtree(directory, ignore_errors=True)
            old.rename(directory)
        raise
    for gone in (old, *directory.parent.glob(f"{directory.name}+*")):  # the last see this one's packages
        shutil.rmtree(gone, ignore_errors=True)


def _has_other_torch(directory: Path) -> bool:
    """Return whether an environment has a torch that is not the build for CPUs."""
    found = [*directory.glob("lib/python*/site-packages/torch-*.dist-info")]
    return sys.platform == "linux" and bool(found) and not any("+cpu" in path.name for path in found)


def _say_size(say: Say) -> None:
    """Say what a person should know before PyPI's torch is installed."""
    if (sys.platform, os.uname().machine) == ("linux", "x86_64"):
        # Both sizes: torch 2.13.0 with all that env.yaml lists, on disk.
        advice = "; without a GPU, PyTorch's CPU build does with 1.1 GB: Ctrl-C, then TORCH=cpu before the same command"
        found = shutil.which("nvidia-smi")
        say(f"  torch from PyPI brings NVIDIA's libraries: 5.4 GB on disk{'' if found else advice}")


def _listed_requirements(root: Path, env_file: Path) -> list[str]:
    """Return the ``pip:`` list of *env_file*, which the launcher's environment reads: it has YAML."""
    command = [str(tools_python(root)), "-m", "oci_cluster", "requirements", str(env_file)]  # our own verb
    environ = {**os.environ, "PYTHONPATH": str(root / "common")}
    listed = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)  # noqa: S603
    if listed.returncode:
        raise SettingsError(listed.stderr.strip().partition("error: ")[2] or listed.stderr.strip())
    return listed.stdout.splitlines()


def _kept_builds(root: Path, framework: str) -> Path:
    """Return where what a post-install.sh has compiled is kept, for all checkouts."""
    # Compiling Horovod takes minutes, and what comes of it is the same in each.
    own = own_venv(root) / "cache" / framework
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - without a home, too
    for place in (caches / "oci-cluster" / framework, own):
        if place.is_absolute():
            with contextlib.suppress(OSError):  # a home that is not there, or read-only
                place.mkdir(parents=True, exist_ok=True)
                if os.access(place, os.W_OK):
                    return place
    return own


def missing_packages(python: Path, packages: Sequence[str]) -> list[str]:
    """Return those of *packages* that the user's interpreter *python* does not have.

    Asks for distributions, not modules: a folder named ``dask`` can pass for the module. Each is asked for by its name:
    to read what all of them are called takes 150 ms where there are a hundred.
    """
    code = (
        "import sys, json, importlib.metadata as m\n"
        "there = lambda d: any(map(d.read_text, ('METADATA', 'PKG-INFO', '')))\n"
        "print(json.dumps([p for p in sys.argv[1:] if not any(map(there, m.distributions(name=p)))]))"
    )
    try:
        asked = [str(python), "-I", "-c", code, *packages]  # the interpreter that the user named
        done = subprocess.run(asked, capture_output=True, text=True, check=True)  # noqa: S603
        return [str(package) for package in json.loads(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        detail = (getattr(error, "stderr", "") or str(error)).strip().rpartition("\n")[2]
        raise SettingsError(f"--python {python} is not a Python that can be run: {detail}") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


# --- Packages that a launch adds --------------------------------------------------------------------------------------


def with_packages(
    root: Path, base: Path, packages: Sequence[str], env_files: Sequence[Path], say: Say, *, torch: str = ""
) -> Path:
    """Return an interpreter that has *base*'s packages, *packages*, and the lists of *env_files*.

    *base* is the interpreter of a framework's environment. Each set of additions has a small environment of its own in
    ``.venv/envs/<framework>+<digest>``, which sees the framework's and shares its files: that stays as it is, another
    launch does not notice, and nothing large is installed twice. *torch* is the setting ``TORCH``.
    """
    framework = base.parents[1]
    made = sorted(path.name for path in framework.glob(".made-*"))  # the set's name changes with the framework's, too
    files = [path for file in env_files for path in (file, lock_beside(file)) if path.exists()]
    parts = [
        str(framework),
        sys.version,
        *made,
        *sorted(packages),
        *(path.read_text(errors="replace") for path in files),
    ]
    directory = framework.with_name(f"{framework.name}+{_digest(json.dumps(parts).encode())[:12]}")
    python, stamp = directory / "bin" / "python", directory / ".made"

    def make() -> None:
        listed = {file: _listed_requirements(root, file) for file in env_files}
        wanted = [*packages, *(line for lines in listed.values() for line in lines)]
        locks = [lock_beside(file) for file, lines in listed.items() if is_lock_of(lock_beside(file), lines)]
        say(f"adding {', '.join(wanted)} to the environment of {framework.name} (first time only)")
        # An index that a file names must not hide another's versions.
        uv = Uv(uv_of(root, say), say, torch=torch, UV_INDEX_STRATEGY="unsafe-best-match")
        shutil.rmtree(directory, ignore_errors=True)
        try:
            make_layer(uv, directory, base)
            _install_beside(uv, directory, framework, wanted, locks)
            _check_torch(directory, framework, torch)
            stamp.touch()
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    _once(root, directory.name, lambda: stamp.exists() and python.exists(), make, say)
    return python


def make_layer(uv: Uv, directory: Path, base: Path) -> None:
    """Make an environment that sees that of *base*, and has its programs."""
    uv.venv(directory, base)
    (_packages(directory) / "_framework.pth").write_text(_SEES.format(str(_packages(base.parents[1]))))
    for program in base.parent.iterdir():
        own = directory / "bin" / program.name
        if own.exists() or program.is_symlink():  # interpreters
            continue
        content = program.read_bytes()
        if content.startswith(b"#!"):
            # Its first lines name the interpreter, which is to be the one that sees what is added.
            head, end, rest = content.partition(b"\nimport ")
            content = head.replace(bytes(base.parent), bytes(own.parent)) + end + rest
        own.write_bytes(content)
        own.chmod(program.stat().st_mode)


def _install_beside(uv: Uv, directory: Path, framework: Path, wanted: Sequence[str], locks: Sequence[Path]) -> None:
    # uv does not see what an environment sees of another. It takes for installed what has METADATA: a copy, meanwhile.
    seen = [path for path in _packages(framework).glob("*.dist-info/METADATA") if path.is_file()]
    copies = [_packages(directory) / path.parent.name for path in seen]
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch, "versions.txt")
        versions = {found.name: found.version for found in _distributions(_packages(framework))}
        own = "".join(f"{name}=={version}\n" for name, version in versions.items())
        constraints.write_text(own + locked_beside(locks, versions))
        for path, copy in zip(seen, copies, strict=True):
            copy.mkdir()
            shutil.copy(path, copy)
        try:
            uv.install(directory, [*asked_for(wanted, Path(scratch)), "--constraint", constraints])
        except ClusterError as error:
            raise type(error)(
                f"{', '.join(wanted)} cannot be added to the environment of {framework.name}, "
                "of which nothing is replaced (for other versions, take an environment of your own: --python):\n"
                f"{str(error).partition(chr(10))[2]}"
            ) from error
    for copy in copies:
        shutil.rmtree(copy)


def _packages(directory: Path) -> Path:
    return next(directory.glob("lib/python*/site-packages"))


def _distributions(*packages: Path) -> Iterable[Distribution]:
    from importlib.metadata import distributions  # noqa: PLC0415 - takes as long as a tenth of a launch

    return distributions(path=[str(folder) for folder in packages])


def _check_torch(directory: Path, framework: Path, asked: str) -> None:
    """Raise BackendError where what goes with torch is of another build than torch."""
    both = _distributions(_packages(framework), _packages(directory))
    found = {one.name.lower(): one.version for one in both}
    torch = found.get("torch", "")
    for name in _TORCH_FAMILY & found.keys():
        version = found[name]
        if torch and version.partition("+")[2] != torch.partition("+")[2]:
            advice = "TORCH=cpu takes PyTorch's own" if torch.endswith("+cpu") and not asked else "name it to pip"
            raise BackendError(
                f"{name} {version} is not of the same build as torch {torch}, and its operators would be missing "
                f"('operator {name}::... does not exist'); both must come from one index: {advice}"
            )
