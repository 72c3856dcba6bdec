"""The Python environment of an image: ``common/install-env.sh`` runs this while the image is built.

It is a program of its own and no verb: that a change elsewhere in the package does not have an image's packages
installed again, the build is given this file and those that it imports, no others.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oci_cluster.errors import BackendError, ClusterError, SettingsError
from oci_cluster.system.console import Say, say_to_stderr
from oci_cluster.system.env_lock import IMAGE_LOCK, Step, is_lock_of, locked_steps, names_torch, not_locked
from oci_cluster.system.no_pip import put_into
from oci_cluster.system.pip_config import pip_settings, torch_index, uv_options, with_index
from oci_cluster.system.python_env import (
    HOOK_PROGRESS,
    OTHER_TORCH,
    EnvFile,
    cpu_pins,
    read_env_file,
    run_installer,
    split_pip_entries,
)

# What of the SDK stays: what nodes use, and what scripts are told to read secrets, data and models from. The other
# services are 190 MB of clients and models. An image whose own environment file names `oci` keeps them all.
_OCI_SERVICES = {
    *("data_science", "dns", "generative_ai_inference", "identity", "identity_data_plane", "key_management"),
    *("logging", "loggingingestion", "loggingsearch", "model_deployment", "monitoring", "object_storage", "ons"),
    *("secrets", "streaming", "vault", "work_requests"),  # dns and work_requests come with any other
}
# What no node loads, by patterns in site-packages: tests (90 MB beside Dask, 160 MB beside torch), headers, and what
# those need who work on Bokeh itself (15 MB: dashboards load the files whose names end in .min.js). Whole folders of
# tests only where it is known that nothing imports them: numpy.testing takes a helper out of one.
_TESTED = ("dask", "distributed", "networkx", "numpy", "scipy", "sklearn", "sympy")
_UNUSED = (
    *("pandas/tests", "pyarrow/tests", "pyarrow/include"),
    *(f"{name}/**/tests/{what}" for name in _TESTED for what in ("test_*.py", "data")),
    *(f"torch/{name}" for name in ("test", "bin/test_*", "bin/*Test", "bin/protoc*")),
    *(f"bokeh/server/static/js/{name}" for name in ("boke*[!n].js", "compiler.js", "lib")),
)
# torch, torchvision, torchaudio, and what is built upon them under such a name.
_OF_TORCH = re.compile(r"torch")
# Copies of the files of EXTRA_ENV, which a build gets beside the framework's own.
_EXTRA = "extra-env-"
# In this order: mamba and micromamba solve faster.
_CONDAS = ("mamba", "micromamba", "conda")


def check_conflicts(files: Sequence[EnvFile]) -> None:
    """Check that what the *files* say of one package can be true together.

    What follows from dependencies only the installer finds; a version that one file pins and another excludes is known
    before anything is fetched.

    Raises:
        SettingsError: names every two requirements that cannot, and their files.
    """
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - only there once the installer is

    asked: dict[str, list[tuple[Any, Path]]] = {}
    for file in files:
        for entry in file.pip:
            wanted = _requirement(entry)
            if wanted and (wanted.marker is None or wanted.marker.evaluate()):
                asked.setdefault(canonicalize_name(wanted.name), []).append((wanted, file.path))
    problems = [
        f"'{one}' ({path}) and '{other}' ({other_path})"
        for entries in asked.values()
        for number, (one, path) in enumerate(entries)
        for other, other_path in entries[number + 1 :]
        if not _fit(one, other)
    ]
    if problems:
        msg = f"these requirements cannot be met together: {'; '.join(problems)}; change one of each pair"
        raise SettingsError(msg)


def _requirement(entry: str) -> Any:
    """Return an *entry* of a ``pip:`` list as a requirement; None for an option, a path or a URL."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - as above

    try:
        return Requirement(entry)
    except InvalidRequirement:
        return None


def _fit(one: Any, other: Any) -> bool:
    """Return whether a version that one of two requirements pins meets both; without a pin, the installer will see."""
    pinned = [
        specifier.version
        for specifier in (*one.specifier, *other.specifier)
        if specifier.operator == "==" and not specifier.version.endswith(".*")
    ]
    both = one.specifier & other.specifier
    return not pinned or any(both.contains(version, prereleases=True) for version in pinned)


def install(directory: Path, env_files: Sequence[Path], cache: Path, say: Say, *, torch: str = "") -> None:
    """Make the environment *directory* with all that *env_files* ask for; nothing of it is there before.

    With conda, mamba or micromamba on PATH by one of them; else a venv with what is listed under ``pip:``. Then the
    ``post-install.sh`` beside each file is run, what an image has no use for is removed, and all is byte-compiled.

    Args:
        directory: The environment.
        env_files: The framework's, and those that add to it.
        cache: What post-install scripts keep from one build to the next.
        say: Shows a line of progress.
        torch: ``cpu``: torch is PyTorch's own build for CPUs.

    Raises:
        SettingsError: a file is not one, asks for what cannot be had here, or two of them contradict each other.
        BackendError: an installer failed; holds its last words.
    """
    files = [read_env_file(path) for path in env_files]
    check_conflicts(files)
    entries = _pip_entries(files)
    index = torch_index(pip_settings(os.environ), torch) if any(_OF_TORCH.match(entry) for entry in entries) else ""
    pins = cpu_pins(entries) if torch else []
    conda = next(filter(None, map(shutil.which, _CONDAS)), None)
    if conda:
        say("  conda makes this environment: versions are chosen anew, and hashes are not checked")
        _install_with_conda(conda, directory, files, say, [*([f"--extra-index-url {index}"] if index else []), *pins])
    else:
        _check_without_conda(files)
        run_installer([sys.executable, "-m", "venv", "--without-pip", directory], say)
    python = directory / "bin" / "python"
    command, environ = _install_command(python, say, index)
    if not conda:
        with tempfile.TemporaryDirectory() as scratch:
            for step in _steps(files, pins, Path(scratch), say):
                _run_step(command, step, say, _install_command(python, say)[1] if step.is_locked else environ)
    for hook in dict.fromkeys(file.path.with_name("post-install.sh") for file in files):
        if hook.exists():
            cache.mkdir(parents=True, exist_ok=True)
            run_installer([hook.absolute(), python, cache, *command], say, environ, HOOK_PROGRESS)
    site_packages = _site_packages(python)
    named = [wanted.name for file in files for entry in file.pip if (wanted := _requirement(entry))]
    _trim(site_packages, services=named.count("oci") <= 1)
    # Some packages bring templates in no Python that there is: what cannot be compiled is not used. The hash is not
    # looked at: nothing in an image changes, and times of files do not survive every builder.
    compile_all = [str(python), "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*compile_all, site_packages], check=False, **quiet)  # noqa: S603 - ours
    (directory / "packages.txt").write_text(_packages(python, directory))
    put_into(directory)


def _steps(files: Sequence[EnvFile], pins: Sequence[str], scratch: Path, say: Say) -> list[Step]:
    """Return how what all *files* ask for is installed: by the framework's lock, then what files of EXTRA_ENV add."""
    own = [file for file in files if not file.path.name.startswith(_EXTRA)]
    entries, added = _pip_entries(own), [*_pip_entries([file for file in files if file not in own]), *pins]
    lock = own[-1].path.with_name(IMAGE_LOCK)
    if not is_lock_of(lock, entries):
        say(f"  {not_locked(lock, ', '.join(str(file.path) for file in own))}")
        # One call: what the files ask for has to be met together.
        return [Step([*entries, *added])]
    is_other = bool(pins) or names_torch(entries, pip_settings(os.environ))
    if is_other:
        say(f"  {OTHER_TORCH}")
    return locked_steps(lock, entries, scratch, added=added, is_other_torch=is_other)


def _run_step(command: Sequence[str], step: Step, say: Say, extra: Mapping[str, str]) -> None:
    try:
        run_installer([*command, *step.words], say, extra)
    except BackendError as error:
        if "No solution found" in str(error):
            held = f"\nWhat {IMAGE_LOCK} locks is not replaced." if "--constraint" in step.words else ""
            raise SettingsError(f"{error}{held}") from error
        raise


def _pip_entries(files: Sequence[EnvFile]) -> list[str]:
    return [word for file in files for word in split_pip_entries(file.pip)]


def _check_without_conda(files: Sequence[EnvFile]) -> None:
    problems = []
    for file in files:
        for entry in file.conda:
            name = entry.split()[0].partition("=")[0].rstrip("<>!~")
            if name == "pip":
                continue
            if name != "python":
                problems.append(f"{file.path} asks for the conda package '{entry}'")
                continue
            version = ".".join(map(str, sys.version_info[:3]))
            # conda's python=3.11 is pip's ==3.11.*
            text = f"{entry.replace('=', '==')}.*" if "python=3" in entry and "==" not in entry else entry
            wanted = _requirement(text)
            if wanted is None:
                problems.append(f"{file.path}: '{entry}' is not a version of Python")
            elif not wanted.specifier.contains(version):
                problems.append(f"{file.path} asks for '{entry}', this base has Python {version}")
    if problems:
        msg = (
            f"{'; '.join(problems)}. This base image has none of {', '.join(_CONDAS)}: "
            "list PyPI's packages under 'pip:', "
            "or choose a BASE_IMAGE that has conda, or that has the Python which the file asks for"
        )
        raise SettingsError(msg)


def _install_with_conda(conda: str, directory: Path, files: Sequence[EnvFile], say: Say, more: Sequence[str]) -> None:
    """Have conda make the environment: one file for it, which it solves as a whole; its pip is told *more*."""
    pip = [*(entry for file in files for entry in file.pip), *more]
    channels = dict.fromkeys(channel for file in files for channel in file.channels)
    packages = dict.fromkeys(entry for file in files for entry in file.conda)
    merged = {"channels": [*channels], "dependencies": [*packages, {"pip": pip}]}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "environment.yaml")
        path.write_text(json.dumps(merged))  # JSON is YAML
        create = ["create"] if Path(conda).name == "micromamba" else ["env", "create"]
        yes = ["--yes"] if Path(conda).name == "micromamba" else []
        run_installer([conda, *create, *yes, "--prefix", directory, "--file", path], say)


def _install_command(python: Path, say: Say, index: str = "") -> tuple[list[str], dict[str, str]]:
    """Return the command that installs packages for *python*, from *index* too, and its environment."""
    uv = Path(sys.executable).with_name("uv")
    options, environ = uv_options(with_index(pip_settings(os.environ), index), say)
    # An index that a file itself names must not hide another's versions.
    # Compiled in the end, when it is known what stays.
    own = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_COMPILE_BYTECODE": "0"}
    return [str(uv), "pip", "install", "--python", str(python), *options], {**environ, **own}


def _site_packages(python: Path) -> Path:
    found = subprocess.run(  # noqa: S603 - the interpreter that was just made
        [python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(found.stdout.strip())


def _trim(site_packages: Path, *, services: bool) -> None:
    if services:
        for models in site_packages.glob("oci/*/models"):
            if models.parent.name not in _OCI_SERVICES:
                shutil.rmtree(models.parent)
    for path in [path for pattern in _UNUSED for path in site_packages.glob(pattern)]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # it may be gone with one above it
        else:
            path.unlink(missing_ok=True)


def _packages(python: Path, directory: Path) -> str:
    """Return the exact list of what is installed: a line each, ``name==version``, conda's with its build."""
    code = (
        "import importlib.metadata as m\n"
        "print(*sorted({d.metadata['Name'] + '==' + d.version for d in m.distributions()}, key=str.lower), sep='\\n')"
    )
    listed = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    conda = sorted(path.stem for path in directory.glob("conda-meta/*.json"))
    return "".join(f"{line}\n" for line in [*listed.stdout.split(), *(f"conda {name}" for name in conda)])


def main(arguments: Sequence[str]) -> int:
    """Make the environment that the command line names; ``install-env.sh --help`` tells how."""
    say = say_to_stderr("install-env.sh")
    directory, *env_files = map(Path, arguments)
    try:
        install(directory, env_files, Path(os.environ["INSTALL_CACHE"]), say, torch=os.environ.get("TORCH", ""))
    except ClusterError as error:
        say(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
