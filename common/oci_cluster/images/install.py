"""The Python environment of an image: ``common/install-env.sh`` runs this in builds.

It is a program of its own and no verb: that a change elsewhere in the package does not have an image's packages
installed again, the build is given this file and those that it imports, no others.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from oci_cluster.errors import ClusterError, SettingsError
from oci_cluster.system.console import Say, say_to_stderr
from oci_cluster.system.envs.installer import Uv, compile_packages, run_installer
from oci_cluster.system.envs.no_pip import put_into
from oci_cluster.system.envs.package_lists import EnvFile, cpu_pins, read_env_file, uv_words

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
# Copies of the files of EXTRA_ENV, which a build gets beside the framework's own.
_EXTRA = "extra-env-"
# In this order: mamba and micromamba solve faster.
_CONDAS = ("mamba", "micromamba", "conda")
# PyTorch's own builds for CPUs: uv knows it. Source: https://pytorch.org/get-started/locally/
_TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
_SDK = re.compile(r"oci\b(?![-_.])", re.IGNORECASE)


def install(directory: Path, env_files: Sequence[Path], cache: Path, say: Say, *, torch: str = "") -> None:
    """Make the environment *directory*, which is not there, with all of *env_files*.

    With conda, mamba or micromamba on PATH by one of them; else a venv with what is listed under ``pip:``. Then the
    ``post-install.sh`` beside each file is run, which keeps things in *cache* from one build to the next; what an image
    has no use for is removed, and all is byte-compiled. *torch* is the setting ``TORCH``.
    """
    files = [read_env_file(path) for path in env_files]
    # An index that a file itself names must not hide another's versions. Compiled in the end, when it is known what
    # stays.
    own = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    uv = Uv(Path(sys.executable).with_name("uv"), say, torch=torch, compiles=False, **own)
    conda = next(filter(None, map(shutil.which, _CONDAS)), None)
    if conda:
        say("  conda makes this environment: versions are chosen anew, and hashes are not checked")
        _install_with_conda(conda, directory, files, say, torch)
    else:
        _check_without_conda(files)
        uv.venv(directory, sys.executable)
        _install_with_uv(uv, directory, files, say, torch)
    for hook in dict.fromkeys(file.path.with_name("post-install.sh") for file in files):
        if hook.exists():
            cache.mkdir(parents=True, exist_ok=True)
            uv.run_hook(hook, directory, cache)
    site_packages = next(directory.glob("lib/python*/site-packages"))
    asked = [entry for file in files for entry in file.pip if _SDK.match(entry)]
    _trim(site_packages, services=len(asked) <= 1)
    compile_packages(directory, say, "image")
    # A line each, `name==version`; conda's with its build.
    listed = sorted(
        {f"{found.name}=={found.version}" for found in distributions(path=[str(site_packages)])}, key=str.lower
    )
    listed += sorted(f"conda {path.stem}" for path in directory.glob("conda-meta/*.json"))
    (directory / "packages.txt").write_text("".join(f"{line}\n" for line in listed))
    put_into(directory)


def _install_with_uv(uv: Uv, directory: Path, files: Sequence[EnvFile], say: Say, torch: str) -> None:
    """Install by the framework's lock, and beside it what files of EXTRA_ENV add, by theirs."""
    added = [file for file in files if file.path.name.startswith(_EXTRA)]
    own = [file for file in files if file not in added]
    entries = [entry for file in own for entry in file.pip]
    with tempfile.TemporaryDirectory() as scratch:
        words = uv_words(entries, own[-1].path, Path(scratch), say, uv.settings, torch=torch, added=added, holds=_holds)
        try:
            uv.install(directory, words)
        except SettingsError as error:
            asking = ", ".join(str(file.path) for file in files)
            raise SettingsError(f"{error}\nAsked for by {asking}; what a lock has is not replaced.") from error


def _holds(marker: str) -> bool:
    from packaging.markers import Marker  # noqa: PLC0415 - only there once the installer is

    return Marker(marker).evaluate()


def _check_without_conda(files: Sequence[EnvFile]) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - only there once the installer is

    problems, version = [], ".".join(map(str, sys.version_info[:3]))
    for file in files:
        for entry in file.conda:
            name = re.split(r"[=<>!~ ]", entry)[0]
            # conda's python=3.11 is pip's ==3.11.*
            wanted = re.sub(r"^=([^=]*)$", r"==\1.*", entry.removeprefix(name).strip())
            if name not in {"python", "pip"}:
                problems.append(f"{file.path} asks for the conda package '{entry}'")
            elif name == "python":
                try:
                    is_so = SpecifierSet(wanted).contains(version)
                except InvalidSpecifier:
                    is_so = False
                problems += [] if is_so else [f"{file.path} asks for '{entry}', this base has Python {version}"]
    if problems:
        raise SettingsError(
            f"{'; '.join(problems)}. This base image has none of {', '.join(_CONDAS)}: "
            "list PyPI's packages under 'pip:', "
            "or choose a BASE_IMAGE that has conda, or that has the Python which the file asks for"
        )


def _install_with_conda(conda: str, directory: Path, files: Sequence[EnvFile], say: Say, torch: str) -> None:
    """Have conda make the environment of one file, which it solves whole."""
    pip = [entry for file in files for entry in file.pip]
    pip += [f"--extra-index-url {_TORCH_CPU_INDEX}", *cpu_pins(pip)] if torch else []
    channels = dict.fromkeys(channel for file in files for channel in file.channels)
    packages = dict.fromkeys(entry for file in files for entry in file.conda)
    merged = {"channels": [*channels], "dependencies": [*packages, {"pip": pip}]}
    create = ["create", "--yes"] if Path(conda).name == "micromamba" else ["env", "create"]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "environment.yaml")
        path.write_text(json.dumps(merged))  # JSON is YAML
        run_installer([conda, *create, "--prefix", directory, "--file", path], say)


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
