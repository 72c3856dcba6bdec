"""Python environments of a checkout, for the launcher and for local nodes. Imports the standard library only."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.errors import BackendError, NotPermittedError, SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.env_lock import LOCK, Step, is_lock_of, locked_steps, names_torch, not_locked
from oci_cluster.system.files import locked
from oci_cluster.system.no_pip import put_into
from oci_cluster.system.pip_config import pip_settings, torch_index, uv_options, with_index
from oci_cluster.system.venv import own_venv

# What a venv has by itself: these two, with or without a version. Not python-dateutil.
_INTERPRETER = re.compile(r"(python|pip)\s*([=<>!~ ].*)?")
_PROGRESS = re.compile(r"^\s*(Downloading|Building|Installing collected|Resolved|Prepared|Installed) ?.*")
_TORCH = re.compile(r"torch==([0-9.]+)")
_PLATFORM = (sys.platform, os.uname().machine)
OTHER_TORCH = (
    "torch may be another build than the lock's: its hash, and those of what it alone brings, are not checked; "
    "all others are"
)
# What a post-install.sh means to be shown begins with two blanks.
HOOK_PROGRESS = re.compile(rf"^  \S|{_PROGRESS.pattern}")
# How long processes of an installer that is killed are looked for: meanwhile one may start another.
_SESSION_ENDS_S = 5.0


def tools_python(root: Path) -> Path:
    """Return the interpreter of the launcher's own environment, whether it exists yet or not."""
    return own_venv(root) / "bin" / "python"


def ensure_tools(root: Path, say: Say) -> Path:
    """Make ``.venv`` with the packages that launcher and agent need, unless it is there; return its interpreter.

    Raises:
        BackendError, NotPermittedError: it cannot be made; holds the installer's last words.
        SettingsError: a file of pip's settings is none.
    """
    return _ensure_locked(root, "requirements.txt", ".tools", f"making {own_venv(root).name} for the launcher", say)


def _own_version(root: Path) -> str:
    """Return the version of the launcher's own Python, which is also the nodes': who calls may run in another."""
    if Path(sys.prefix).resolve() == own_venv(root).resolve():
        return sys.version
    return subprocess.check_output([tools_python(root), "-c", "import sys; print(sys.version, end='')"], text=True)  # noqa: S603


def ensure_backend_tools(root: Path, backend: str, say: Say, *, is_preview: bool = False) -> Path | None:
    """Add to ``.venv`` what the launcher needs for *backend*, unless it is there; return its interpreter.

    None for a backend that has no ``common/requirements-<name>.txt``: it needs nothing. A preview asks nobody, and is
    content with ``common/requirements-<name>-preview.txt``.

    Raises:
        BackendError: it cannot be had; holds the installer's last words.
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
    if _is_made(stamp, python):
        return python
    with one_at_a_time(root, "the launcher", say):
        if not _is_made(stamp, python):
            say(f"{what} (first time only)")
            _make(own_venv(root), [Step(["--require-hashes", "--requirement", str(file)])], root, say)
            stamp.touch()
    return python


def _is_made(stamp: Path, python: Path) -> bool:
    """Return whether an environment is there, whole, with its interpreter.

    Raises:
        NotPermittedError: it is, and this user may not run it.
    """
    why = os.strerror(errno.EACCES)
    try:
        if not (stamp.exists() and python.exists()):
            return False
        if os.access(python, os.X_OK):
            return True
    except OSError as error:
        why = str(error.strerror)
    venv = python.parents[1]
    msg = f"{python} cannot be run: {why}; allow that (chmod u+rx), or remove {venv}: the next launch makes it anew"
    raise NotPermittedError(msg)


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
    directory = own_venv(root).resolve() / "envs" / env_file.parent.name
    python = directory / "bin" / "python"
    hook, lock = env_file.with_name("post-install.sh"), env_file.with_name(LOCK)
    helpers = sorted(path for path in hook.with_suffix("").glob("*") if path.is_file())
    recipe = b"".join(path.read_bytes() for path in [env_file, lock, hook, *helpers] if path.exists())
    stamp = directory / f".made-{_digest(recipe + _own_version(root).encode())}"

    def is_there() -> bool:
        return _is_made(stamp, python) and not (torch and _has_other_torch(directory))

    if is_there():
        return python
    with one_at_a_time(root, env_file.parent.name, say):
        if not is_there():
            say(f"making the Python environment of {env_file.parent.name} (first time only)")
            listed = listed_requirements(root, env_file)
            shutil.rmtree(directory, ignore_errors=True)
            for added in directory.parent.glob(f"{directory.name}+*"):  # they see this one's packages
                shutil.rmtree(added, ignore_errors=True)
            settings, pins = pip_settings_of(root), cpu_pins(listed) if torch else []
            if not torch and (size := _torch_size(listed, settings)):
                say(f"  {size}")
            index = torch_index(settings, torch) if pins else ""
            with tempfile.TemporaryDirectory() as scratch:
                is_other = bool(pins) or names_torch(listed, settings)
                steps = steps_of(lock, listed, pins, Path(scratch), say, is_other_torch=is_other)
                _make(directory, steps, root, say, hook, index=index)
            stamp.touch()
    return python


def steps_of(
    lock: Path, listed: Sequence[str], pins: Sequence[str], scratch: Path, say: Say, *, is_other_torch: bool
) -> list[Step]:
    """Return how what is *listed* is installed, by *lock* where that is its lock; what is not checked is said."""
    if not is_lock_of(lock, listed):
        say(f"  {not_locked(lock, f'{lock.parent.name}/env.yaml')}")
        return [Step([*listed, *pins])]
    if is_other_torch:
        say(f"  {OTHER_TORCH}")
    return locked_steps(lock, listed, scratch, added=pins, is_other_torch=is_other_torch)


def cpu_pins(packages: Sequence[str]) -> list[str]:
    """Return what makes the torch that *packages* pin PyTorch's build for CPUs, and nothing else; [] without torch.

    Without it, an index that does not answer would be passed over, and gigabytes of the other build be installed.
    """
    # Elsewhere than on Linux every build is one for CPUs, and is not called so.
    found = [_TORCH.fullmatch(package) for package in packages] if _PLATFORM[0] == "linux" else []
    return [f"torch=={match[1]}+cpu" for match in found if match]


def _has_other_torch(directory: Path) -> bool:
    """Return whether the environment *directory* has a torch that is not the build for CPUs."""
    found = [*directory.glob("lib/python*/site-packages/torch-*.dist-info")]
    return _PLATFORM[0] == "linux" and bool(found) and not any("+cpu" in path.name for path in found)


def _torch_size(packages: Sequence[str], settings: Mapping[str, str]) -> str:
    """Return what a person should know before torch is installed; empty where pip's *settings* may name CPU builds."""
    places = settings.get("find-links", "").split()
    has_wheel = any("://" in place or [*Path(place).expanduser().glob("torch-*.whl")] for place in places)
    has_torch = any(_TORCH.fullmatch(package) for package in packages)
    if not has_torch or has_wheel or "extra-index-url" in settings or _PLATFORM != ("linux", "x86_64"):
        return ""
    # Both sizes: torch 2.13.0 with all that env.yaml lists, on disk.
    size = "torch from PyPI brings NVIDIA's libraries: 5.4 GB on disk"
    advice = "; without a GPU, PyTorch's CPU build does with 1.1 GB: Ctrl-C, then TORCH=cpu before the same command"
    return size if shutil.which("nvidia-smi") else size + advice


def listed_requirements(root: Path, env_file: Path) -> list[str]:
    """Return the ``pip:`` list of *env_file*, read by the launcher's own environment: YAML's parser is there.

    Raises:
        SettingsError: the file cannot be used.
    """
    listed = subprocess.run(  # noqa: S603 - our own verb
        [tools_python(root), "-m", "oci_cluster", "requirements", str(env_file)],
        env={**os.environ, "PYTHONPATH": str(root / "common")},
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        raise SettingsError(listed.stderr.strip().partition("error: ")[2] or listed.stderr.strip())
    return listed.stdout.splitlines()


@dataclass(frozen=True)
class EnvFile:
    """A conda environment file."""

    path: Path
    conda: Sequence[str]
    pip: Sequence[str]
    channels: Sequence[str]


def read_env_file(path: Path) -> EnvFile:
    """Return what the environment file *path*, or a ``requirements.txt``, asks for.

    Raises:
        SettingsError: it is not one.
    """
    if path.suffix == ".txt":
        from oci_cluster.system.requirements_file import entries_of  # noqa: PLC0415 - no image has it, nor such a file

        return EnvFile(path, [], entries_of(path), [])
    import yaml  # noqa: PLC0415 - only there once .venv is

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        dependencies = list(content["dependencies"])
        channels = [str(channel) for channel in content.get("channels") or []]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError) as error:
        msg = f"{path} is not a conda environment file with a 'dependencies' list: {error!r}"
        raise SettingsError(msg) from error
    lists = [part["pip"] for part in dependencies if isinstance(part, dict) and isinstance(part.get("pip"), list)]
    conda = [part for part in dependencies if isinstance(part, str)]
    return EnvFile(path, conda, [str(entry) for entries in lists for entry in entries], channels)


def requirements(env_file: Path) -> list[str]:
    """Return the ``pip:`` list of a conda environment file.

    Raises:
        SettingsError: the file is not one, or asks for conda packages that a venv cannot have.
    """
    file = read_env_file(env_file)
    pip = split_pip_entries(file.pip)
    if env_file.suffix == ".txt":  # one that lists nothing asks for nothing
        return pip
    other = [entry for entry in file.conda if not _INTERPRETER.fullmatch(entry)]
    if other or not pip:
        reason = f"asks for conda packages ({', '.join(other)})" if other else "has no 'pip:' list"
        msg = f"{env_file} {reason}; a local cluster has pip packages only: list them under 'pip:', or use --python"
        raise SettingsError(msg)
    return pip


def split_pip_entries(entries: Sequence[str]) -> list[str]:
    """Return a ``pip:`` list as arguments: an option is two words of one entry there, as in a requirements file."""
    return [word for entry in entries for word in (entry.split() if entry.startswith("-") else [entry])]


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
        msg = f"--python {python} is not a Python that can be run: {detail}"
        raise SettingsError(msg) from error


def _make(
    directory: Path, steps: Sequence[Step], root: Path, say: Say, hook: Path | None = None, *, index: str = ""
) -> None:
    started, uv = time.monotonic(), shutil.which("uv")
    if not (directory / "bin" / "python").exists():
        with contextlib.suppress(OSError):  # a link to an interpreter that is gone: venv would leave it as it is
            (directory / "bin" / "python").unlink()
        # pip is wanted in .venv only: it installs into the others from there, three seconds sooner.
        is_own = directory == own_venv(root)
        base = sys.executable if is_own else str(tools_python(root))
        make = [base, "-m", "venv", *([] if is_own else ["--without-pip"]), str(directory)]
        run_installer([uv, "venv", "--quiet", "--allow-existing", "--python", base, directory] if uv else make, say)
    from_index: list[str] = []
    environ: dict[str, str] = {}
    environ_with_index: dict[str, str] = {}
    if uv:
        options, environ = uv_options(pip_settings_of(root), say)
        _, environ_with_index = uv_options(with_index(pip_settings_of(root), index), lambda _: None)
        install = [uv, "pip", "install", "--python", str(directory / "bin" / "python"), *options]
    else:
        from_index = ["--extra-index-url", index] if index else []
        install = [*own_pip(root, say), "--python", str(directory / "bin" / "python"), "install"]
    # Compiled here and now, also where PYTHONDONTWRITEBYTECODE is set: an uncompiled start costs seconds, every time.
    compiled = ["--compile-bytecode"] if uv else ["--compile"]
    for step in steps:
        if step.is_locked:
            run_installer([*install, *compiled, *step.words], say, environ)
        else:
            run_installer([*install, *from_index, *compiled, *step.words], say, environ_with_index)
    install += from_index
    if hook is not None and hook.exists():
        kept = _kept_builds(root, hook.parent.name)
        # What it leaves there when it is ended goes with it.
        with tempfile.TemporaryDirectory(prefix="oci-cluster-") as scratch:
            command: list[str | Path] = [hook, directory / "bin" / "python", kept, *install, *compiled]
            run_installer(command, say, {**environ_with_index, "TMPDIR": scratch}, HOOK_PROGRESS)
    if directory != own_venv(root):
        put_into(directory)
    say(f"  done in {time.monotonic() - started:.0f} s")


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


def own_pip(root: Path, say: Say) -> list[str]:
    """Return the command that is the pip of the launcher's own environment, where it is put if there is none."""
    pip = [str(tools_python(root)), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:  # noqa: S603 - our own pip
        run_installer([tools_python(root), "-m", "ensurepip"], say)  # a .venv that uv made has none
    return pip


def pip_settings_of(root: Path) -> dict[str, str]:
    """Return the settings of the pip that there is: ``.venv``'s, or where uv made that, this interpreter's."""
    has_pip = any(own_venv(root).glob("lib/python*/site-packages/pip"))
    return pip_settings(os.environ, prefix=own_venv(root) if has_pip else None)


def run_installer(
    command: Sequence[str | Path],
    say: Say,
    extra: Mapping[str, str] | None = None,
    progress: re.Pattern[str] = _PROGRESS,
) -> None:
    """Run *command*, in an environment with *extra*, and show those of its lines that tell of *progress*.

    Raises:
        BackendError: it cannot be run, or failed; holds its last words.
    """
    said: list[str] = []
    # A signal that comes while a program is being started would leave one that nobody knows of.
    release_signals = _hold_signals()
    try:
        process = subprocess.Popen(  # noqa: S603 - an argument list, no shell
            [str(part) for part in command],
            env={**os.environ, **(extra or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # to be ended with all that it has started
        )
    except OSError as error:
        release_signals()
        msg = f"{command[0]} cannot be run: {error.strerror}"
        raise BackendError(msg) from error
    try:
        release_signals()
        for line in process.stdout or ():
            said.append(line.rstrip())
            if progress.match(line):
                say(f"  {line.strip()[:100]}")
        process.wait()
    except BaseException:  # Ctrl-C, TERM: what it makes is wanted by nobody now
        _kill_session(process.pid)
        process.wait()
        raise
    finally:
        if process.stdout:
            process.stdout.close()
    if process.returncode:
        shown = " ".join(str(part) for part in command[:4])
        msg = f"'{shown} ...' failed with exit code {process.returncode}:\n" + "\n".join(said[-15:])
        raise BackendError(msg)


def _kill_session(leader: int) -> None:
    """Kill *leader*, a child of this process, with its session: ninja gives each compiler a group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    deadline = time.monotonic() + _SESSION_ENDS_S
    while (members := _members_of(leader)) and time.monotonic() < deadline:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _members_of(session: int) -> list[int]:
    """Return which processes of a *session* run; where there is no /proc, none."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            state, _, _, of_session, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(of_session) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found


def _hold_signals() -> Callable[[], None]:
    """Have signals wait; return what lets them through. By handlers: a mask is inherited by what is started."""
    held: dict[int, None] = {}
    if threading.current_thread() is not threading.main_thread():  # no handler runs there
        return held.clear
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)  # the last by system/interrupts.py
    old = {number: handler for number in numbers if (handler := signal.getsignal(number)) not in {signal.SIG_IGN, None}}
    for number in old:
        signal.signal(number, lambda came, _: held.setdefault(came))

    def release() -> None:
        for number, handler in old.items():
            signal.signal(number, handler)
        for came in held:
            signal.raise_signal(came)

    return release


def one_at_a_time(root: Path, name: str, say: Say) -> AbstractContextManager[int]:
    """Hold the lock of the environment *name*: two launches on a fresh checkout must not install over each other.

    Each environment has its own. Horovod's takes minutes; nobody who needs another one waits for that.
    """
    path = own_venv(root) / f".{name.rpartition(' ')[2]}.lock"  # uv has a `.lock` of its own there
    return locked(path, lambda: say(f"waiting: another launch is making the Python environment of {name}"))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
