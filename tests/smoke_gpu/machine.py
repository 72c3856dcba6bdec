"""What there is on this machine: GPUs by its driver, GPUs by torch, packages, compilers, a container engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A driver that hangs, or an import from a slow disk, must not hold the ladder up for longer.
_PATIENCE_S = 60
# Asks for distributions, not modules: a folder of this checkout can pass for the module dask.
_PACKAGES = """
import importlib.metadata as m, json, os, platform, sysconfig
names = {(d.metadata["Name"] or "").lower().replace("_", "-"): d.version for d in m.distributions()}
folders = {sysconfig.get_path("include"), sysconfig.get_config_var("INCLUDEPY")}
headers = any(os.path.exists(os.path.join(folder, "Python.h")) for folder in folders)
print(json.dumps({"python": platform.python_version(), "packages": names, "headers": headers}))
"""
_TORCH = """
import json, torch
gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
seen = {"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus, "nccl": None, "bf16": None}
if gpus:
    seen["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    seen["bf16"] = torch.cuda.is_bf16_supported(including_emulation=False)
    seen["capability"] = ".".join(map(str, torch.cuda.get_device_capability(0)))
print(json.dumps(seen))
"""


@dataclass(frozen=True)
class Driver:
    """What ``nvidia-smi`` tells; *why_not* says why there is nothing to tell."""

    gpus: tuple[str, ...] = ()
    version: str = ""
    cuda: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class Environment:
    """A Python environment; *error* says why torch cannot be imported there."""

    python: Path
    version: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    has_headers: bool = False
    torch: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that torch can use."""
        return tuple(self.torch.get("gpus", ()))

    def first_of(self, *names: str) -> str:
        """Return the first of the distributions *names* that is installed; empty where none is."""
        return next((name for name in names if name in self.packages), "")


def output_of(command: Sequence[str | Path]) -> str:
    """Return what a program prints.

    Raises:
        OSError: it is not there, or has failed; the text is its last line.
    """
    # What the user's Python is told would change what is seen of the environment.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, env=environ, check=False)
    except subprocess.TimeoutExpired as error:
        msg = f"{command[0]} has not ended after {_PATIENCE_S} s"
        raise OSError(msg) from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        msg = f"{Path(command[0]).name} ended with {done.returncode}: {last}"
        raise OSError(msg)
    return done.stdout


def driver() -> Driver:
    """Return the GPUs that the driver names."""
    if not shutil.which("nvidia-smi"):
        return Driver(why_not="no GPU: nvidia-smi is not on PATH")
    try:
        gpus = re.findall(r"^GPU \d+: (.*) \(UUID", output_of(["nvidia-smi", "-L"]), re.MULTILINE)
        head = output_of(["nvidia-smi"])
    except OSError as error:
        return Driver(why_not=str(error))
    if not gpus:
        return Driver(why_not="no GPU: nvidia-smi names none")
    # Drivers from 590 on have other words for both (KMD, UMD).
    version, cuda = (re.search(rf"{word} Version: *([\d.]+)", head) for word in ("(?:Driver|KMD)", "CUDA(?: UMD)?"))
    return Driver(tuple(gpus), version[1] if version else "not told", cuda[1] if cuda else "not told")


def environment(python: Path) -> Environment:
    """Return what *python* has.

    Raises:
        OSError: it cannot be run.
    """
    found = json.loads(output_of([python, "-I", "-c", _PACKAGES]))
    torch, error = {}, ""
    if "torch" in found["packages"]:
        try:
            torch = json.loads(output_of([python, "-I", "-c", _TORCH]).strip().rpartition("\n")[2])
        except (OSError, ValueError) as problem:
            error = str(problem)
    return Environment(python, found["python"], found["packages"], found["headers"], torch, error)


def compiler(*, for_gpu: bool) -> str:
    """Return the compiler that torch.compile takes: for GPUs Triton's, of C, for CPUs one of C++; empty without one."""
    known = (os.environ.get("CC", ""), "gcc", "clang") if for_gpu else (os.environ.get("CXX", ""), "g++", "clang++")
    return next((name for name in known if name and shutil.which(name)), "")


def memory_used() -> str:
    """Return how much memory of each GPU is in use, by whomever; empty where the driver does not tell."""
    try:
        told = output_of(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"])
    except OSError:
        return ""
    return ", ".join(told.split("\n")).strip(", ")


def engine_gpus() -> str:
    """Return why the container engine cannot hand GPUs to containers; empty where it can."""
    engine = os.environ.get("DOCKER") or "docker"
    if not shutil.which(engine):
        return f"{engine} is not on PATH"
    try:
        told = output_of([engine, "info"])
    except OSError as error:
        return str(error)
    return "" if "nvidia" in told.lower() else f"`{engine} info` names no runtime and no devices of NVIDIA's"
