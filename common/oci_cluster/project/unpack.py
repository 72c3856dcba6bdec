"""Unpacks the wheel of a project in place; imported from the wheel itself.

What is unpacked is in no git: ``common/.unpacked`` lists it. A file there that is not what the list says is the user's.
Its first line has the wheel and the user's files: if one of these is gone, ``common/lib.sh`` has all unpacked again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from oci_cluster.errors import ClusterError
from oci_cluster.project.files import File, alone, check_way, is_inside, put, read_file
from oci_cluster.project.wheel import read_wheel, unpacked_to, vendored
from oci_cluster.system.console import Say, program, say_to_stderr
from oci_cluster.system.files import not_writable

LIST = "common/.unpacked"
_IGNORED = ("common/.gitignore", "scripts/.gitignore")


def unpack(root: Path, say: Say) -> None:
    """Unpack the wheel of the project *root*, unless that is done."""
    wheel = vendored(root)
    if wheel is None or _is_done(root, wheel):
        return
    check_way(root, LIST)
    try:
        (root / "common").mkdir(exist_ok=True)
    except OSError as error:
        raise not_writable(root / "common", error) from error
    with alone(root / "common"):
        if not _is_done(root, wheel):  # nobody has done it meanwhile
            _unpack(root, wheel, _listed(root)[1], say)


def _is_done(root: Path, wheel: Path) -> bool:
    """Return whether *wheel* is unpacked, and nothing edited was removed since."""
    name, *edited = _listed(root)[0].split() or [""]
    return name == wheel.name and all((root / each).exists() for each in edited)


def _unpack(root: Path, wheel: Path, known: dict[str, set[str]], say: Say) -> None:
    files = {goal: file for name, file in read_wheel(wheel).items() if (goal := unpacked_to(name))}
    ours = [name.removeprefix("scripts") for name in sorted(files) if name.startswith("scripts/")]
    texts = ("# Unpacked from vendor/: git has the wheel.\n/*\n!/lib.sh\n", "\n".join(["/.gitignore", *ours, ""]))
    files = {**dict(zip(_IGNORED, (File(text.encode()) for text in texts), strict=True)), **files}
    for name in {*files, *known}:
        check_way(root, name)
    # An interrupted run leaves files of either wheel, and none that is the user's.
    put(root, LIST, _list("unfinished", [*known.items(), *((name, {file.digest}) for name, file in files.items())]))
    edited = []
    for name, file in files.items():
        there = read_file(root / name)
        if there is None or (there.digest in known.get(name, ()) and there != file):
            put(root, name, file)
        elif there.digest != file.digest:
            say(f"{name} is not what {wheel.name} has: yours counts; remove it to have the newer one")
            edited.append(name)
    for name in known.keys() - files.keys():
        if (there := read_file(root / name)) and there.digest in known[name]:
            put(root, name, None)
    put(root, LIST, _list(" ".join([wheel.name, *edited]), [(name, {file.digest}) for name, file in files.items()]))


def _list(first: str, lines: list[tuple[str, set[str]]]) -> File:
    text = [f"{digest}  {name}" for name, digests in sorted(lines) for digest in sorted(digests)]
    return File("\n".join([first, *text, ""]).encode())


def _listed(root: Path) -> tuple[str, dict[str, set[str]]]:
    """Return the list's first line, and the digests that each file may have."""
    found: dict[str, set[str]] = {}
    file = read_file(root / LIST)
    first, *lines = file.content.decode(errors="replace").splitlines() if file and file.content else [""]
    for line in lines:
        digest, _, name = line.partition("  ")
        if is_inside(name) and (name in _IGNORED or unpacked_to(name) == name):
            found.setdefault(name, set()).add(digest)
    return first, found


def main(root: str) -> int:
    """Unpack the wheel of the project *root*; return an exit code."""
    say = say_to_stderr(program())
    try:
        unpack(Path(root).resolve(), say)
    except ClusterError as error:
        say(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
