"""Builds, keeps and installs a wheel of Horovod for the versions in an environment."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

HOROVOD = "0.28.1"
SOURCE_SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
# The last CMake before 4; Ninja, as make may be missing where a compiler is not.
BUILD_TOOLS = ["cmake==3.31.10", "ninja==1.13.0", "pip==26.3", "wheel==0.48.0"]
# One of many compilers at a time takes up to this with the headers of torch or TensorFlow.
JOB_MEMORY = 1_500_000_000
SIGN_OF_LIFE_S = 15.0
SWITCHES = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
}
if platform.machine() == "x86_64":
    # Horovod finds these on every x86 of the last ten years. Given, as the wheel may be used on another machine.
    SWITCHES["HOROVOD_BUILD_ARCH_FLAGS"] = "-mf16c -mavx -mfma"
WRAPPER = Path(__file__).with_name("hvd-cxx")
ENABLED = "  assert(global_context.IsEnabled());\n"
FINALIZE = "void GlooContext::Finalize() {\n"
# Faults of its sources with Gloo, which is all that is built here: file, text, and the text that it should be.
PATCHES = [
    # A rank that has stalled is looked for among the elements of a vector that is only reserved, and has none. So
    # neither Horovod's warning comes nor the end after HOROVOD_STALL_SHUTDOWN_TIME_SECONDS.
    ("gloo/gloo_controller.cc", "global_ranks_.reserve(size_);", "global_ranks_.resize(size_);"),
    # Of two sets of connections, the one that is used stays open when Horovod shuts down. Others that wait for this
    # rank do not see that it has given up, and an elastic job that loses a node goes on after 90 s, not after one.
    ("gloo/gloo_context.cc", FINALIZE + "  if (!enabled_) {\n    return;\n  }\n", FINALIZE),
    # Sets of ranks connect over an interface of nobody's choice: that of the machine's name. What HOROVOD_GLOO_IFACE
    # says is forgotten.
    ("gloo/gloo_context.cc", ENABLED, ENABLED + "  gloo_iface_ = global_context.gloo_iface_;\n"),
]


class InstallError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def say(text: str) -> None:
    sys.stdout.write(f"  {text}\n")
    sys.stdout.flush()


def call(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, text=True, **options)  # noqa: PLW1510, S603 - an argument list; callers give check


def version_of(*packages: str) -> str:
    """Return the version of the first of *packages* that is installed, else ''."""
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return ""


def check_compiler(compiler: str) -> None:
    found = shutil.which(compiler)
    if found is None:
        raise InstallError(
            78,
            f"no C++ compiler: '{compiler}' is not on PATH, and Horovod {HOROVOD} has to be compiled; install one "
            "(Debian, Ubuntu: apt-get install g++; Oracle Linux, Fedora: dnf install gcc-c++), or name yours: CXX=...",
        )
    command = [found, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    done = call(command, input="#include <concepts>\n", capture_output=True, check=False)
    if done.returncode:
        first = done.stderr.strip().partition("\n")[0]
        raise InstallError(
            78, f"'{compiler}' cannot compile C++20, as g++ 10 and newer can: {first}; name another: CXX=..."
        )
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists():
        raise InstallError(
            78,
            f"{sys.executable} has no C headers ({headers / 'Python.h'}), and Horovod {HOROVOD} has to be compiled; "
            "install them (Debian, Ubuntu: apt-get install python3-dev), or use another Python: PYTHON=...",
        )


def job_count() -> int:
    """Return the number of compilers that CPUs and memory allow at a time."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        available = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        cpus = min(cpus, int(available.split()[1]) * 1024 // JOB_MEMORY)
    return max(cpus, 1)


def build(work: Path, log: Path, compiler: str, install: list[str], *, with_tensorflow: bool) -> Path:
    """Return the wheel, built in the directory *work*; *log* gets the output."""
    tools = work / "tools"
    run([*install, "--target", str(tools), *BUILD_TOOLS], log, os.environ)
    (tools / "bin" / "hvd-cxx").symlink_to(WRAPPER)
    # Horovod's build loses compiler flags to a blank in a path, and a checkout's may have one.
    (work / "env").symlink_to(sys.prefix)
    jobs = job_count()
    environ = {
        **os.environ,
        "PATH": os.pathsep.join([str(tools / "bin"), os.environ["PATH"]]),
        "PYTHONPATH": str(tools),
        "TMPDIR": str(work),
        "CXX": "hvd-cxx",
        "HVD_CXX": compiler,
        "CMAKE_GENERATOR": "Ninja",
        "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
        "MAKEFLAGS": f"-j{jobs}",  # without it Horovod asks for 8
        **SWITCHES,
        "HOROVOD_WITH_TENSORFLOW" if with_tensorflow else "HOROVOD_WITHOUT_TENSORFLOW": "1",
    }
    # pip's own cache knows nothing of the versions that a wheel was built for.
    pip = [str(work / "env" / "bin" / "python"), "-m", "pip", "--no-cache-dir"]
    options = ["--no-deps", "--no-build-isolation"]
    wanted = work / "horovod.txt"
    wanted.write_text(f"horovod=={HOROVOD} --hash=sha256:{SOURCE_SHA256}\n")
    source = ["--no-binary", "horovod", "--dest", str(work), "--requirement", str(wanted)]
    run([*pip, "download", *options, *source], log, environ)
    with tarfile.open(work / f"horovod-{HOROVOD}.tar.gz") as archive:
        archive.extractall(work)  # noqa: S202 - pip has compared its hash
    source_dir = work / f"horovod-{HOROVOD}"
    for name, text, instead in PATCHES:
        path = source_dir / "horovod" / "common" / name
        path.write_text(path.read_text().replace(text, instead))
    # Unless it is quiet, setup.py hands Ninja a word that only make knows.
    quiet = "--config-settings=--global-option=--quiet"
    run([*pip, "wheel", "--verbose", *options, quiet, "--wheel-dir", str(work), str(source_dir)], log, environ)
    return next(work.glob("horovod-*.whl"))


def run(command: list[str], log: Path, environ: Mapping[str, str]) -> None:
    """Run *command* with a sign of life now and then; *log* gets its output."""
    started = time.monotonic()
    with (
        log.open("ab") as output,
        subprocess.Popen(  # noqa: S603 - an argument list, no shell
            command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        while True:
            try:
                process.wait(SIGN_OF_LIFE_S)
                break
            except subprocess.TimeoutExpired:
                say(f"building Horovod: {time.monotonic() - started:.0f} s")
    if process.returncode:
        lines = log.read_text(errors="replace").splitlines()
        shown = [line.strip() for line in lines if "error:" in line.lower()][:5] or lines[-5:]
        msg = f"Horovod {HOROVOD} could not be built; all that the build printed is in {log}. Its first errors:"
        raise InstallError(69, "\n".join([msg, *(line[:200] for line in shown)]))


def check_import(module: str) -> None:
    """Import *module* in a new Python: only a wheel that loads is kept."""
    done = call([sys.executable, "-I", "-c", f"import {module}"], cwd="/", capture_output=True, check=False)
    if done.returncode:
        raise InstallError(
            69, f"Horovod was built, and {module} cannot be imported: {done.stderr.strip().rpartition(chr(10))[2]}"
        )


def install_horovod(cache: Path, install: list[str]) -> None:
    compiler = os.environ.get("CXX") or "g++"
    torch, tensorflow = version_of("torch"), version_of("tensorflow-cpu", "tensorflow")
    # A home may be that of several machines.
    versions = [SOURCE_SHA256, sys.version, sysconfig.get_platform(), *platform.libc_ver(), torch, tensorflow]
    recipe = [BUILD_TOOLS, SWITCHES, PATCHES, WRAPPER.read_text()]
    key = hashlib.sha256(repr([versions, recipe]).encode()).hexdigest()[:16]
    kept = cache / f"horovod-{HOROVOD}-{key}"
    if wheels := list(kept.glob("*.whl")):
        call([*install, "--no-deps", str(wheels[0])], check=True)
        return
    check_compiler(compiler)
    for_what = f"torch {torch.partition('+')[0]}" + (f" and TensorFlow {tensorflow}" if tensorflow else "")
    say(f"building Horovod {HOROVOD} for {for_what}, about 3 minutes on 2 CPUs (first time only)")
    cache.mkdir(parents=True, exist_ok=True)
    parent = tempfile.gettempdir()
    if " " in parent:  # see build()
        parent = "/tmp"  # noqa: S108 - the directory in it is new and private
    with tempfile.TemporaryDirectory(prefix="horovod-", dir=parent) as work:
        log = cache / "horovod-build.log"
        log.unlink(missing_ok=True)
        wheel = build(Path(work), log, compiler, install, with_tensorflow=bool(tensorflow))
        call([*install, "--no-deps", str(wheel)], check=True)
        check_import("horovod.torch")
        if tensorflow:
            check_import("horovod.tensorflow")
        # Under its own name when it is whole: what is there is used without another look.
        kept.mkdir(exist_ok=True)
        unfinished = kept / f"unfinished-{os.getpid()}"
        shutil.copy(wheel, unfinished)
        unfinished.replace(kept / wheel.name)


def main() -> int:
    _, cache, *install = sys.argv[1:]
    try:
        install_horovod(Path(cache), install)
    except InstallError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.code
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"error: '{' '.join(error.cmd[:4])} ...' ended with {error.returncode}\n")
        return 69
    return 0


if __name__ == "__main__":
    sys.exit(main())
