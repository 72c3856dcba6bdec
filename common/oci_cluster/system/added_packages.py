"""Packages that a launch adds to a framework's environment, in ``.venv/envs/<framework>+<digest>``.

Each set of them has a small environment of its own, which sees the framework's and shares its files. So the framework's
stays as it is, another launch does not notice, and nothing large is installed twice.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from oci_cluster.errors import BackendError, ClusterError
from oci_cluster.system.console import Say
from oci_cluster.system.env_file import asked_for, is_lock_of, lock_beside, locked_beside
from oci_cluster.system.installer import Uv
from oci_cluster.system.python_env import listed_requirements, once, uv_of

# What must be of one build: what they share is C++. PyTorch's releases carry the build in their versions: 2.13.0+cpu.
_TORCH_FAMILY = {"torchvision", "torchaudio"}
# A line of a .pth file that begins with `import` is run; so those of the framework's environment count, too.
_SEES = "import site; site.addsitedir({!r})\n"


def with_packages(
    root: Path, base: Path, packages: Sequence[str], env_files: Sequence[Path], say: Say, *, torch: str = ""
) -> Path:
    """Return the interpreter of an environment that has what *base*'s has, *packages*, and the lists of *env_files*.

    It is made where it is not there. *base* is the interpreter of a framework's environment, of which no package is
    replaced. *torch* is the setting ``TORCH``.

    Raises:
        SettingsError: a file is not one, or asks for conda packages; or a requirement contradicts what is there.
        BackendError: something cannot be installed; holds uv's last words.
    """
    framework = base.parents[1]
    directory = framework.with_name(f"{framework.name}+{_digest(framework, packages, env_files)}")
    python, stamp = directory / "bin" / "python", directory / ".made"

    def make() -> None:
        listed = {file: listed_requirements(root, file) for file in env_files}
        wanted = [*packages, *(line for lines in listed.values() for line in lines)]
        locks = [lock_beside(file) for file, lines in listed.items() if is_lock_of(lock_beside(file), lines)]
        say(f"adding {', '.join(wanted)} to the environment of {framework.name} (first time only)")
        # An index that a file names must not hide another's versions.
        uv = Uv(uv_of(root, say), say, torch=torch, UV_INDEX_STRATEGY="unsafe-best-match")
        shutil.rmtree(directory, ignore_errors=True)
        try:
            make_layer(uv, directory, base)
            _install(uv, directory, framework, wanted, locks)
            _check_torch(directory, framework, torch)
            stamp.touch()
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    once(root, directory.name, lambda: stamp.exists() and python.exists(), make, say)
    return python


def _digest(framework: Path, packages: Sequence[str], env_files: Sequence[Path]) -> str:
    """Return what names this set: it changes with the framework's environment, too."""
    made = sorted(path.name for path in framework.glob(".made-*"))
    files = [path for file in env_files for path in (file, lock_beside(file)) if path.exists()]
    texts = [path.read_text(errors="replace") for path in files]
    parts = [str(framework), sys.version, *made, *sorted(packages), *texts]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


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


def _install(uv: Uv, directory: Path, framework: Path, wanted: Sequence[str], locks: Sequence[Path]) -> None:
    # uv does not see what an environment sees of another. It takes for installed what has METADATA: a copy, meanwhile.
    seen = [path for path in _packages(framework).glob("*.dist-info/METADATA") if path.is_file()]
    copies = [_packages(directory) / path.parent.name for path in seen]
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch, "versions.txt")
        versions = {found.name: found.version for found in distributions(path=[str(_packages(framework))])}
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


def _check_torch(directory: Path, framework: Path, asked: str) -> None:
    """Raise BackendError where what goes with torch is of another build than torch."""
    both = [str(_packages(framework)), str(_packages(directory))]
    found = {one.name.lower(): one.version for one in distributions(path=both)}
    torch = found.get("torch", "")
    for name in _TORCH_FAMILY & found.keys():
        version = found[name]
        if torch and version.partition("+")[2] != torch.partition("+")[2]:
            advice = "TORCH=cpu takes PyTorch's own" if torch.endswith("+cpu") and not asked else "name it to pip"
            raise BackendError(
                f"{name} {version} is not of the same build as torch {torch}, and its operators would be missing "
                f"('operator {name}::... does not exist'); both must come from one index: {advice}"
            )
