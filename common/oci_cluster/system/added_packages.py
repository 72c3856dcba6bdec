"""Packages that a launch adds to a framework's environment, in ``.venv/envs/<framework>+<digest>``.

Each set of them has a small environment of its own, which sees the framework's and shares its files. So the framework's
stays as it is, another launch does not notice, and nothing large is installed twice.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.env_lock import is_lock_of, lock_beside, locked_beside
from oci_cluster.system.pip_config import TORCH_CPU_INDEX, torch_index
from oci_cluster.system.python_env import (
    listed_requirements,
    one_at_a_time,
    own_pip,
    pip_settings_of,
    run_installer,
)

# What must be of one build: what they share is C++. PyTorch's releases carry the build in their versions: 2.13.0+cpu.
_TORCH_FAMILY = ("torchvision", "torchaudio")
# A line of a .pth file that begins with `import` is run; so those of the framework's environment count, too.
_SEES = "import site; site.addsitedir({!r})\n"


def with_packages(
    root: Path, base: Path, packages: Sequence[str], env_files: Sequence[Path], say: Say, *, torch: str = ""
) -> Path:
    """Return the interpreter of an environment that is *base*'s and has *packages* and the lists of *env_files* too.

    It is made where it is not there. No package of *base* is replaced: a requirement that needs another version of one
    is refused.

    Args:
        root: The checkout, whose pip installs.
        base: The interpreter of a framework's environment.
        packages: Requirements as pip takes them.
        env_files: Conda environment files with a ``pip:`` list.
        say: Shows a line of progress.
        torch: ``cpu``: PyTorch's index of CPU builds is looked at, too.

    Raises:
        SettingsError: a file is not one, or asks for conda packages; or a requirement contradicts what is there.
        BackendError: something cannot be installed; holds pip's last words.
    """
    framework = base.parents[1]
    directory = framework.with_name(f"{framework.name}+{_digest(framework, packages, env_files)}")
    python, stamp = directory / "bin" / "python", directory / ".made"
    if stamp.exists() and python.exists():
        return python
    with one_at_a_time(root, directory.name, say):
        if not (stamp.exists() and python.exists()):
            listed = {file: listed_requirements(root, file) for file in env_files}
            wanted = [*packages, *(word for words in listed.values() for word in words)]
            locks = [lock_beside(file) for file, words in listed.items() if is_lock_of(lock_beside(file), words)]
            say(f"adding {', '.join(wanted)} to the environment of {framework.name} (first time only)")
            shutil.rmtree(directory, ignore_errors=True)
            try:
                _make(directory, base)
                _install_locked(root, python, base, locks, say)
                _install(root, python, base, wanted, say, torch=torch)
                _check_torch(python, torch)
            except BaseException:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            stamp.touch()
    return python


def _digest(framework: Path, packages: Sequence[str], env_files: Sequence[Path]) -> str:
    """Return what names this set: it changes with the framework's environment, too."""
    made = sorted(path.name for path in framework.glob(".made-*"))
    parts = [
        str(framework),
        sys.version,
        *made,
        *sorted(packages),
        *(
            path.read_text(errors="replace")
            for file in env_files
            for path in (file, lock_beside(file))
            if path.exists()
        ),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _make(directory: Path, base: Path) -> None:
    """Make an environment that sees that of *base*, and has its programs."""
    run_installer([base, "-m", "venv", "--without-pip", directory], lambda _: None)
    (packages,), (seen,) = ([*place.glob("lib/python*/site-packages")] for place in (directory, base.parents[1]))
    (packages / "_framework.pth").write_text(_SEES.format(str(seen)))
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


def _install_locked(root: Path, python: Path, base: Path, locks: Sequence[Path], say: Say) -> None:
    """Install what *locks* have, by its hashes, but for what *base* has."""
    install = [*own_pip(root, say), "--python", str(python), "install", "--compile", "--no-deps", "--require-hashes"]
    for lock in locks:
        with tempfile.TemporaryDirectory() as scratch:
            if locked_beside(lock, _versions(base), locked := Path(scratch, "locked.txt")):
                run_installer([*install, "--requirement", locked], say)


def _install(root: Path, python: Path, base: Path, wanted: Sequence[str], say: Say, *, torch: str) -> None:
    # pip, also where there is uv: uv does not see what an environment sees of another.
    url = torch_index(pip_settings_of(root), torch)
    index = ["--extra-index-url", url] if url else []
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch, "constraints.txt")
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in _versions(base).items()))
        install = [*own_pip(root, say), "--python", str(python), "install", "--constraint", str(constraints), *index]
        try:
            run_installer([*install, "--compile", *wanted], say)
        except BackendError as error:
            reason = str(error).partition("\n")[2]
            msg = (
                f"{', '.join(wanted)} cannot be added to the environment of {base.parents[1].name}, "
                "of which nothing is replaced (for other versions, take an environment of your own: --python):\n"
                f"{reason}"
            )
            # Of others nobody knows whether they are there, where an index did not answer.
            is_known = any(word in reason for word in ("ResolutionImpossible", "Invalid requirement"))
            raise (SettingsError if is_known else BackendError)(msg) from error


def _versions(python: Path) -> Mapping[str, str]:
    """Return the version of each package that *python* has."""
    code = (
        "import importlib.metadata as m, json\n"
        "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions() if d.metadata['Name']}))"
    )
    asked = [str(python), "-I", "-c", code]
    found: dict[str, str] = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)  # noqa: S603 - ours
    return found


def _check_torch(python: Path, asked: str) -> None:
    """Raise BackendError where what goes with torch is of another build than torch."""
    found = {name.lower(): version for name, version in _versions(python).items()}
    torch = found.get("torch", "")
    for name in _TORCH_FAMILY:
        version = found.get(name, "")
        if torch and version and version.partition("+")[2] != torch.partition("+")[2]:
            advice = "TORCH=cpu names PyTorch's own" if torch.endswith("+cpu") else "name it to pip"
            if asked:
                advice = f"{TORCH_CPU_INDEX}, which TORCH=cpu names, did not answer or does not have it"
            msg = (
                f"{name} {version} is not of the same build as torch {torch}, and its operators would be missing "
                f"('operator {name}::... does not exist'); both must come from one index: {advice}"
            )
            raise BackendError(msg)
