"""Locks of a framework's environment: every package that its ``env.yaml`` leads to, with its version and its hashes.

``make lock`` writes them beside ``env.yaml``. A lock counts for exactly the ``pip:`` list that it was made of, on every
system and Python: a list that was changed is resolved anew, and nothing of it is checked.
Only the standard library is imported here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Of env.yaml, for nodes on this machine; of common/env.yaml and env.yaml, for images.
LOCK = "env-lock.txt"
IMAGE_LOCK = "image-lock.txt"
_HEAD = "# Of the pip lists with the sha256 "
_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==\S+")
# torch, and what only some builds of it bring: PyPI's for Linux needs NVIDIA's libraries, the one for CPUs has none.
_OF_TORCH_BUILD = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)==")
_TORCH = re.compile(r"torch==([0-9.]+)")


@dataclass(frozen=True)
class Step:
    """One call of an installer: its *words*. What is locked comes from no index that only torch needs."""

    words: Sequence[str]
    is_locked: bool = False


def lock_beside(env_file: Path) -> Path:
    """Return where the lock of *env_file* is: beside it."""
    return env_file.with_name(f"{env_file.stem}-lock.txt")


def head(entries: Sequence[str]) -> str:
    """Return the first line of a lock that is made of *entries*."""
    return f"{_HEAD}{hashlib.sha256(json.dumps([*entries]).encode()).hexdigest()}\n"


def is_lock_of(lock: Path, entries: Sequence[str]) -> bool:
    """Return whether the file *lock* is there, and was made of exactly *entries*."""
    try:
        with lock.open(encoding="utf-8") as file:
            return file.readline() == head(entries)
    except (OSError, UnicodeDecodeError):
        return False


def not_locked(lock: Path, what: str) -> str:
    """Return what is said where *lock* does not count for *what*."""
    why = f"{lock.name} is not of this list" if lock.exists() else f"there is no {lock.name} beside it"
    return f"{what}: {why}, so versions are chosen anew, and hashes are not checked; `make lock` locks them"


def names_torch(entries: Sequence[str], settings: Mapping[str, str]) -> bool:
    """Return whether pip's *settings* may have another build than PyPI's of the torch that *entries* pin."""
    versions = [match[1] for entry in entries if (match := _TORCH.fullmatch(entry))]
    places = settings.get("find-links", "").split()
    return bool(versions) and (
        "extra-index-url" in settings
        or any("://" in place for place in places)
        or any(
            [*Path(place).expanduser().glob(f"torch-{version}[+-]*.whl")] for place in places for version in versions
        )
    )


def locked_steps(
    lock: Path, entries: Sequence[str], scratch: Path, *, added: Sequence[str] = (), is_other_torch: bool = False
) -> list[Step]:
    """Return how an environment is made of *lock*: what is locked by its hashes, then the rest beside it.

    Args:
        lock: The lock of *entries*.
        entries: The ``pip:`` list.
        scratch: A directory for files that the installer reads.
        added: What is installed too. It is in no lock, and gets the lock's versions of what both need.
        is_other_torch: torch may be another build than the lock's. Of it no hash is known, and what only its builds
            bring may differ: both come with *added*.
    """
    blocks = _blocks(lock.read_text(encoding="utf-8"))
    whole = ["--require-hashes", "--requirement", str(lock)]
    if is_other_torch:
        path = scratch / "locked.txt"
        path.write_text("".join(block for block in blocks if not _OF_TORCH_BUILD.match(block)), encoding="utf-8")
        # What needs torch is there before torch is.
        whole = ["--no-deps", "--require-hashes", "--requirement", str(path)]
    if not added and not is_other_torch:
        return [Step(whole, is_locked=True)]
    versions = scratch / "versions.txt"
    lines = [block.partition("\\")[0].partition("\n")[0].strip() + "\n" for block in blocks]
    versions.write_text("".join(lines), encoding="utf-8")
    return [Step(whole, is_locked=True), Step(["--constraint", str(versions), *entries, *added])]


def locked_beside(lock: Path, names: Collection[str], target: Path) -> bool:
    """Write what *lock* has, but for the packages *names*, to the file *target*; return whether that is anything.

    Args:
        lock: Of what is added to an environment.
        names: What that environment has already, whose versions count.
        target: Is installed with ``--no-deps --require-hashes``.
    """
    there = {_normal(name) for name in names}
    blocks = [
        block for block in _blocks(lock.read_text(encoding="utf-8")) if _normal(block.partition("==")[0]) not in there
    ]
    target.write_text("".join(blocks), encoding="utf-8")
    return bool(blocks)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _blocks(text: str) -> list[str]:
    """Return the packages of a lock: the line that pins each, with the lines of its hashes."""
    blocks: list[str] = []
    for line in text.splitlines(keepends=True):
        if _PINNED.match(line):
            blocks.append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            blocks[-1] += line
    return blocks
