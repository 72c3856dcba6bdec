"""GPUs of this machine, by ``nvidia-smi -L`` and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from oci_cluster.system.process import kill_group

VISIBLE = "CUDA_VISIBLE_DEVICES"
PROGRAM = "nvidia-smi"
# Without persistence mode it wakes each GPU up, one after the other: a second or two each, and machines have 8.
PATIENCE_S = 20.0
_LISTED = re.compile(r"(?:GPU (\d+)|\s+MIG (\S+)\s+Device\s+\d+): ?(.*?) ?\(UUID: ((?:GPU|MIG)-[\w/-]+)\)\s*")


class Gpu(NamedTuple):
    """A whole GPU, or an instance of one that MIG has split."""

    id: str
    """As CUDA_VISIBLE_DEVICES names it."""
    name: str
    uuid: str


def gpus_here(environ: Mapping[str, str]) -> list[Gpu]:
    """Return the GPUs that a process with *environ* may use."""
    text = environ.get(VISIBLE)
    return [] if text == "" else visible(gpus_in(_ask(environ)), text)


def _ask(environ: Mapping[str, str]) -> str:
    """Return what ``nvidia-smi -L`` prints; empty where it is not there, or fails."""
    if (program := shutil.which(PROGRAM, path=environ.get("PATH", ""))) is None:
        return ""
    try:
        asked = subprocess.Popen(  # noqa: S603 - found on PATH
            [program, "-L"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ""
    try:
        printed = asked.communicate(timeout=PATIENCE_S)[0]
    except subprocess.TimeoutExpired as error:
        kill_group(asked.pid)
        asked.stdout.close()  # type: ignore[union-attr]
        asked.returncode = -9  # nobody waits for it: what hangs in the driver cannot be killed
        raise TimeoutError(f"{PROGRAM} has not answered for {PATIENCE_S:g} s") from error
    return printed.decode(errors="replace") if asked.returncode == 0 else ""


def gpus_in(listing: str) -> list[Gpu]:
    """Return the GPUs of a *listing*; of one that MIG has split, its instances."""
    found: list[Gpu] = []
    model = ""
    for index, profile, name, uuid in (line.groups() for line in map(_LISTED.fullmatch, listing.splitlines()) if line):
        if index:
            model = name
            found.append(Gpu(index, name, uuid))
            continue
        if found and not is_instance(found[-1]):
            found.pop()  # CUDA sees instances of it alone
        found.append(Gpu(uuid, f"{model} MIG {profile}", uuid))
    return found


def is_instance(gpu: Gpu) -> bool:
    """Return whether MIG has made it."""
    return gpu.uuid.startswith("MIG-")


def visible(gpus: list[Gpu], text: str | None) -> list[Gpu]:
    """Return those of *gpus* that CUDA_VISIBLE_DEVICES names, in its words.

    As CUDA has it, an entry that names none hides all that follow, and one that comes twice hides all.
    """
    if text is None:
        return gpus
    found: list[Gpu] = []
    for word in map(str.strip, text.split(",")):
        # CUDA takes the beginning of a UUID, too, where it is that of one alone.
        named = [gpu for gpu in gpus if word == gpu.id or (word[:4] in {"GPU-", "MIG-"} and gpu.uuid.startswith(word))]
        if len(named) != 1:
            break
        found.append(named[0]._replace(id=word))
    return found if len({gpu.uuid for gpu in found}) == len(found) else []
