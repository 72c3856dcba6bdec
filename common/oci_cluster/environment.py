"""Python environments of a checkout: ``.venv`` for the launcher, ``.venv/envs/<framework>`` for local nodes.

Only the standard library is imported here: on a fresh checkout this is what makes the rest available.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.errors import BackendError, SettingsError

# pip's options that decide where packages come from, and what uv calls them.
_UV_OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
    "no-index": "--no-index",
}
# What a venv has by itself: these two, with or without a version. Not python-dateutil.
_INTERPRETER = re.compile(r"(python|pip)\s*([=<>!~ ].*)?")
_PROGRESS = re.compile(r"^\s*(Downloading|Building|Installing collected|Resolved|Prepared|Installed) ?.*")
# What a post-install.sh means to be shown begins with two blanks.
HOOK_PROGRESS = re.compile(rf"^  \S|{_PROGRESS.pattern}")

_YES = {"1", "y", "yes", "t", "true", "on"}  # pip takes them all (distutils' strtobool)

Say = Callable[[str], None]


def tools_python(root: Path) -> Path:
    """Return the interpreter of the launcher's own environment, whether it exists yet or not."""
    return root / ".venv" / "bin" / "python"


def ensure_tools(root: Path, say: Say) -> Path:
    """Make ``.venv`` with the packages that launcher and agent need, unless it is there; return its interpreter.

    Raises:
        BackendError: it cannot be made; holds the installer's last words.
    """
    requirements = root / "common" / "requirements.txt"
    python = tools_python(root)
    stamp = root / ".venv" / f".tools-{_digest(requirements.read_bytes())}"
    if stamp.exists() and python.exists():
        return python
    with _one_at_a_time(root):
        if not (stamp.exists() and python.exists()):
            say("making .venv for the launcher (first time only)")
            _make(root / ".venv", ["--require-hashes", "--requirement", str(requirements)], root, say)
            stamp.touch()
    return python


def ensure_oci_tools(root: Path, say: Say) -> Path:
    """Add to ``.venv`` what the launcher needs for the backend ``oci``, unless it is there; return its interpreter.

    Raises:
        BackendError: it cannot be had; holds the installer's last words.
    """
    python = ensure_tools(root, say)
    requirements = root / "common" / "requirements-oci.txt"
    stamp = root / ".venv" / f".oci-tools-{_digest(requirements.read_bytes())}"
    if stamp.exists():
        return python
    with _one_at_a_time(root):
        if not stamp.exists():
            say("installing oci-cli and ocifs (first time only)")
            _make(root / ".venv", ["--require-hashes", "--requirement", str(requirements)], root, say)
            stamp.touch()
    return python


def ensure_framework(root: Path, env_file: Path, say: Say) -> Path:
    """Make the environment that *env_file* describes, unless it is there; return its interpreter.

    It is kept in ``.venv/envs`` under the framework's name. When *env_file* changes, it is made anew. What a ``pip:``
    list cannot say is done by ``post-install.sh`` beside it: called with the environment's interpreter, a directory
    that outlives the environment, and the command that installs packages into it. Its own helpers are in
    ``post-install/``.

    Raises:
        SettingsError: *env_file* cannot be used.
        BackendError: the environment cannot be made; holds the installer's last words.
    """
    tools = ensure_tools(root, say)
    # Resolved: the scripts that are installed there name it, and must not name a link that may go.
    directory = (root / ".venv").resolve() / "envs" / env_file.parent.name
    python = directory / "bin" / "python"
    hook = env_file.with_name("post-install.sh")
    helpers = sorted(path for path in hook.with_suffix("").glob("*") if path.is_file())
    recipe = b"".join(path.read_bytes() for path in [env_file, hook, *helpers] if path.exists())
    stamp = directory / f".made-{_digest(recipe + sys.version.encode())}"
    if stamp.exists() and python.exists():
        return python
    with _one_at_a_time(root):
        if not (stamp.exists() and python.exists()):
            say(f"making the Python environment of {env_file.parent.name} (first time only)")
            listed = subprocess.run(  # noqa: S603 - our own verb
                [tools, "-m", "oci_cluster", "requirements", str(env_file)],
                env={**os.environ, "PYTHONPATH": str(root / "common")},
                capture_output=True,
                text=True,
                check=False,
            )
            if listed.returncode:
                raise SettingsError(listed.stderr.strip().partition("error: ")[2] or listed.stderr.strip())
            shutil.rmtree(directory, ignore_errors=True)
            _make(directory, listed.stdout.splitlines(), root, say, hook)
            stamp.touch()
    return python


@dataclass(frozen=True)
class EnvFile:
    """A conda environment file."""

    path: Path
    conda: Sequence[str]
    pip: Sequence[str]
    channels: Sequence[str]


def read_env_file(path: Path) -> EnvFile:
    """Return what the environment file *path* asks for.

    Raises:
        SettingsError: it is not one.
    """
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
        done = subprocess.run(  # noqa: S603 - the interpreter that the user named
            [python, "-I", "-c", code, *packages], capture_output=True, text=True, check=True
        )
        return [str(package) for package in json.loads(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        detail = (getattr(error, "stderr", "") or str(error)).strip().rpartition("\n")[2]
        msg = f"--python {python} is not a Python that can be run: {detail}"
        raise SettingsError(msg) from error


def _make(directory: Path, packages: Sequence[str], root: Path, say: Say, hook: Path | None = None) -> None:
    started = time.monotonic()
    uv = shutil.which("uv")
    if not (directory / "bin" / "python").exists():
        # pip is wanted in .venv only: it installs into the others from there, three seconds sooner.
        without_pip = [] if directory == root / ".venv" else ["--without-pip"]
        make = [sys.executable, "-m", "venv", *without_pip, str(directory)]
        if uv:
            make = [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(directory)]
        run_installer(make, say)
    if uv:
        options, extra = uv_options(pip_configuration(tools_python(root)))
        install = [uv, "pip", "install", "--python", str(directory / "bin" / "python"), *options]
    else:
        extra = {}
        pip = [str(tools_python(root)), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:  # noqa: S603 - our own pip
            run_installer([tools_python(root), "-m", "ensurepip"], say)  # a .venv that uv made has none
        install = [*pip, "--python", str(directory / "bin" / "python"), "install"]
    # Compiled here and now, also where PYTHONDONTWRITEBYTECODE is set: an uncompiled start costs seconds, every time.
    compiled = ["--compile-bytecode"] if uv else ["--compile"]
    run_installer([*install, *compiled, *packages], say, extra)
    if hook is not None and hook.exists():
        cache = root / ".venv" / "cache" / directory.name
        cache.mkdir(parents=True, exist_ok=True)
        run_installer([hook, directory / "bin" / "python", cache, *install, *compiled], say, extra, HOOK_PROGRESS)
    say(f"  done in {time.monotonic() - started:.0f} s")


def pip_configuration(python: Path) -> dict[str, str]:
    """Return the user's pip settings (files and environment), by option name; {} where there is no pip to ask."""
    found: dict[str, str] = {}
    for interpreter in (python, Path(sys.executable)):
        done = subprocess.run(  # noqa: S603 - an interpreter of ours
            [interpreter, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            break
    else:
        return found
    lines = sorted(done.stdout.splitlines(), key=lambda line: line.startswith(":env:"))  # the environment wins
    for line in lines:
        key, equals, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if equals and section in {"global", "install", ":env:"}:
            found[option] = str(ast.literal_eval(value))
    return found


def uv_options(pip: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return uv's options and environment for the pip settings *pip*: uv does not read pip's configuration."""
    options: list[str] = []
    for name, option in _UV_OPTIONS.items():
        if name == "no-index":
            options += [option] if pip.get(name, "").lower() in _YES else []
        else:
            options += [part for value in pip.get(name, "").split() for part in (option, value)]
    if "extra-index-url" in pip:  # pip takes the best version of all indexes, uv that of the first index that has any
        options += ["--index-strategy", "unsafe-best-match"]
    return options, {"SSL_CERT_FILE": pip["cert"]} if "cert" in pip else {}


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
    try:
        process = subprocess.Popen(  # noqa: S603 - an argument list, no shell
            [str(part) for part in command],
            env={**os.environ, **(extra or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        msg = f"{command[0]} cannot be run: {error.strerror}"
        raise BackendError(msg) from error
    with process:
        for line in process.stdout or ():
            said.append(line.rstrip())
            if progress.match(line):
                say(f"  {line.strip()[:100]}")
    if process.returncode:
        shown = " ".join(str(part) for part in command[:4])
        msg = f"'{shown} ...' failed with exit code {process.returncode}:\n" + "\n".join(said[-15:])
        raise BackendError(msg)


@contextmanager
def _one_at_a_time(root: Path) -> Iterator[None]:
    """Hold a lock: two launches on a fresh checkout must not make the same environment twice, over each other."""
    try:
        (root / ".venv").mkdir(exist_ok=True)
        lock = (root / ".venv" / ".launcher.lock").open("w")  # uv has a `.lock` of its own there
    except OSError as error:
        msg = f"{root / '.venv'} cannot be written: {error.strerror}; make room there or allow it"
        raise BackendError(msg) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
