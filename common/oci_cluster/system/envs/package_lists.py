"""Lists of packages in environment files and requirements files, and their locks.

``make lock`` writes a lock beside ``env.yaml``. It counts for exactly the ``pip:`` lists that it was made of, on every
system and Python: a list that was changed is resolved anew, and nothing of it is checked.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.errors import SettingsError
from oci_cluster.system.console import Say

_HEAD = "# Of the pip lists with the sha256"
# What a venv has by itself: these two, with or without a version. Not python-dateutil.
_INTERPRETER = re.compile(r"(python|pip)\s*([=<>!~ ].*)?")
# One package of a lock: its name, its version, and where it is for some systems only, for which.
_BLOCK = re.compile(r"^([\w.-]+)==([^\s;]+)(?: *;([^\\\n]*))?.*\n(?:[ \t].*\n)*", re.MULTILINE)
_PIN = re.compile(r"([\w.-]+)[^;=]*==([^=*;]+)(;|$)")
_TORCH = re.compile(r"torch==[0-9.]+")
# torch, and what only some builds of it bring: PyPI's for Linux needs NVIDIA's libraries, the one for CPUs has none.
_HASHES_OF_TORCH = re.compile(r"^((?:torch|triton|nvidia-[^=]*|cuda-[^=]*)==[^\\\n]*)\\\n(?:[ \t].*\n)*", re.MULTILINE)
_OTHER_TORCH = (
    "torch may be another build than the lock's: its hash, and those of what it alone brings, are not checked; "
    "all others are"
)
# Lines of a requirements.txt. Of one requirement: what pip checks, or hands on to a build. Of this machine: a folder or
# an archive, which nobody else has.
_COMMENT = re.compile(r"(?:^|\s)#.*")
_FILE_OPTION = re.compile(r"(?:-r|--requirement)(?:\s+|\s*=\s*|(?=\S))(?P<file>\S.*)")
_OWN_OPTIONS = re.compile(r"\s--(?:hash|config-settings?|global-option)\b.*")
_LOCAL = re.compile(r"(?:-e|--editable)\b.*|\.{0,2}/.*|\.|file:.*|[^\s@]*\.(?:whl|zip|tar\.gz)")
_CONSTRAINT = re.compile(r"(?:-c|--constraint)\b.*")


@dataclass(frozen=True)
class EnvFile:
    """A conda environment file."""

    path: Path
    conda: Sequence[str]
    pip: Sequence[str]
    channels: Sequence[str]


def read_env_file(path: Path) -> EnvFile:
    """Return what the environment file *path*, or a ``requirements.txt``, asks for."""
    if path.suffix == ".txt":
        return EnvFile(path, [], entries_of(path), [])
    import yaml  # noqa: PLC0415 - only there once .venv is

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        dependencies = list(content["dependencies"])
        channels = [str(channel) for channel in content.get("channels") or []]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError) as error:
        raise SettingsError(f"{path} is not a conda environment file with a 'dependencies' list: {error!r}") from error
    lists = [part["pip"] for part in dependencies if isinstance(part, dict) and isinstance(part.get("pip"), list)]
    conda = [part for part in dependencies if isinstance(part, str)]
    return EnvFile(path, conda, [str(entry) for entries in lists for entry in entries], channels)


def requirements(env_file: Path) -> list[str]:
    """Return the ``pip:`` list of an environment file, as lines of a requirements file."""
    file = read_env_file(env_file)
    other = [entry for entry in file.conda if not _INTERPRETER.fullmatch(entry)]
    if other or not (file.pip or env_file.suffix == ".txt"):  # a .txt that lists nothing asks for nothing
        reason = f"asks for conda packages ({', '.join(other)})" if other else "has no 'pip:' list"
        raise SettingsError(
            f"{env_file} {reason}; a local cluster has pip packages only: list them under 'pip:', or use --python"
        )
    return [*file.pip]


def lock_beside(env_file: Path) -> Path:
    """Return where the lock of *env_file* is: beside it."""
    return env_file.with_name(f"{env_file.stem}-lock.txt")


def head(*lists: Sequence[str]) -> str:
    """Return the first line of a lock that counts for each of the *lists*."""
    return f"{_HEAD} {' '.join(map(_digest, lists))}\n"


def _digest(entries: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps([*entries]).encode()).hexdigest()


def is_lock_of(lock: Path, entries: Sequence[str]) -> bool:
    """Return whether the file *lock* is there, and counts for exactly *entries*."""
    try:
        with lock.open(encoding="utf-8") as file:
            first = file.readline()
    except (OSError, UnicodeDecodeError):
        return False
    return first.startswith(_HEAD) and _digest(entries) in first.split()


def uv_words(
    entries: Sequence[str],
    env_file: Path,
    scratch: Path,
    say: Say,
    settings: Mapping[str, str],
    *,
    torch: str = "",
    added: Sequence[EnvFile] = (),
    holds: Callable[[str], bool] = bool,
) -> list[str]:
    """Return how uv is told to install *entries*, by the lock beside *env_file*.

    uv reads files in *scratch*. pip's *settings*, and *torch*, the setting ``TORCH``, may name another build of torch
    than PyPI's, of which no hash is known. What is *added* gets the lock's versions of what both need, and for the rest
    those of its own locks, where it has them: *holds* tells whether a marker is true here. What is not checked is said.
    """
    lock, pins = env_file.with_name("env-lock.txt"), cpu_pins(entries) if torch else []
    wanted = [*entries, *(entry for file in added for entry in file.pip)]
    words = asked_for([*wanted, *pins], scratch)
    if not is_lock_of(lock, entries):
        why = f"{lock.name} is not of this list" if lock.exists() else f"there is no {lock.name} beside it"
        what = f"{env_file.parent.name}/{env_file.name}: {why}, so versions are chosen anew, and hashes are not checked"
        say(f"  {what}; `make lock` locks them")
        return words
    text = lock.read_text(encoding="utf-8")
    locks = [beside for file in added if is_lock_of(beside := lock_beside(file.path), file.pip)]
    own = [found[1] for found in _BLOCK.finditer(text) if not (locks and found[3]) or holds(found[3].strip())]
    text += locked_beside(locks, own)
    is_other = bool(pins) or (pins_torch(entries) and names_torch(settings))
    if is_other:
        say(f"  {_OTHER_TORCH}")
        text = _HASHES_OF_TORCH.sub(r"\1\n", text)
    versions = scratch / "versions.txt"
    versions.write_text(text, encoding="utf-8")
    # A constraint's hash is checked in any case. That all have one is asked for where each entry is pinned to a locked
    # version; of a contradiction uv tells more without.
    locked = {(_normal(found[1]), found[2]) for found in _BLOCK.finditer(text)}
    pins_added = [_PIN.match(entry) for file in added for entry in file.pip]
    is_whole = not is_other and len(locks) == len(added) and all(map(_PIN.match, entries))
    is_whole = is_whole and all(pin and (_normal(pin[1]), pin[2].strip()) in locked for pin in pins_added)
    return [*words, "--constraint", str(versions), *(["--require-hashes"] if is_whole else [])]


def locked_beside(locks: Sequence[Path], names: Iterable[str]) -> str:
    """Return the blocks of *locks*, first come, without packages of these *names*."""
    there, text = {_normal(name) for name in names}, ""
    for lock in locks:
        blocks = [match for match in _BLOCK.finditer(lock.read_text("utf-8")) if _normal(match[1]) not in there]
        there |= {_normal(match[1]) for match in blocks}
        text += "".join(match[0] for match in blocks)
    return text


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def asked_for(entries: Sequence[str], scratch: Path) -> list[str]:
    """Return uv's words for *entries*: a file, for an option may hold a password."""
    (scratch / "wanted.txt").write_text("".join(f"{entry}\n" for entry in entries), encoding="utf-8")
    # What uv ignores in a file.
    options = [word for entry in entries if entry.startswith(("--pre", "--trusted-host")) for word in entry.split()]
    return ["--requirement", str(scratch / "wanted.txt"), *options]


def cpu_pins(entries: Sequence[str]) -> list[str]:
    """Return pins of PyTorch's build for CPUs, for the torch of *entries*."""
    # Elsewhere than on Linux every build is one for CPUs, and is not called so.
    return [f"{entry}+cpu" for entry in entries if _TORCH.fullmatch(entry) and sys.platform == "linux"]


def pins_torch(entries: Sequence[str]) -> bool:
    """Return whether *entries* pin a version of torch."""
    return any(map(_TORCH.fullmatch, entries))


def names_torch(settings: Mapping[str, str]) -> bool:
    """Return whether pip's *settings* name a place with a torch of its own."""
    return not settings.keys().isdisjoint({"extra-index-url", "find-links"})


def entries_of(path: Path) -> list[str]:
    """Return the entries of *path* and files that it names, without hashes."""
    return list(_entries(path, ()))


def _entries(path: Path, above: tuple[Path, ...]) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    above = (*above, path.resolve())
    for line in text.replace("\\\n", " ").splitlines():
        entry = _OWN_OPTIONS.sub("", _COMMENT.sub("", line)).strip()
        if found := _FILE_OPTION.fullmatch(entry):
            other = path.parent / found["file"]
            if other.resolve() not in above:
                yield from _entries(other, above)
        elif _LOCAL.fullmatch(entry):
            raise SettingsError(
                f"{path}: '{entry}' is on this machine only; your own code goes by itself (--code), so leave it out"
            )
        elif _CONSTRAINT.fullmatch(entry):
            raise SettingsError(
                f"{path}: '{entry}' names constraints, which are not taken; list the versions that you want"
            )
        elif entry:
            yield entry
