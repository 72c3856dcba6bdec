"""Three versions of a file become one: as it came, as it is in the project, and as the newer version has it.

Lines are merged by ``git merge-file``, which needs no repository. Ends of lines and the executable bit are merged apart
from them: a checkout on Windows has other ends in every line, and no line of it was edited for that.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from oci_cluster.errors import BackendError
from oci_cluster.project.files import File
from oci_cluster.system.text import printable

YOURS, THEIRS = "your project", "the newer version"
"""What stands behind the marks of a conflict."""
CONFLICT = "CONFLICT"


@dataclass(frozen=True)
class Merged:
    """What a project has after a merge: *result* is the word that people see, *why* what it does not say.

    *beside* is what the newer version has, where it could not be brought into the file.
    """

    file: File | None
    result: str = ""
    why: str = ""
    beside: File | None = None


def merge(base: File | None, ours: File | None, theirs: File | None) -> Merged:
    """Return what becomes of a file that came as *base*, is *ours* in the project, and *theirs* in the newer version.

    None is no file. Nothing of the project's own is ever given up: what cannot be brought together is in the file with
    marks, or as a second file beside it.

    Raises:
        BackendError: git failed.
    """
    if same(ours, theirs) or same(base, theirs):
        return Merged(ours)
    if theirs is None:
        changed = Merged(ours, CONFLICT, "the newer version has removed it, you have changed it; it stays")
        return Merged(None, "removed") if same(base, ours) else changed
    if ours is None:
        kept = "you have removed it, and the newer version has changed it; it stays removed"
        return Merged(theirs, "added") if base is None else Merged(None, "kept", kept)
    if same(base, ours):
        return Merged(_with_ends(theirs, base, ours, theirs), "updated")
    if not (ours.is_text and theirs.is_text and (base is None or base.is_text)):
        why = "it is no text, and has changed here and there" if base else "it is there, and is another"
        return Merged(ours, CONFLICT, why, theirs)
    return _of_texts(base or File(b"", theirs.mode), ours, theirs)


def same(one: File | None, other: File | None) -> bool:
    """Return whether two files are the same but for the ends of their lines."""
    if one is None or other is None:
        return one is other
    return one.mode == other.mode and one.plain == other.plain


def _of_texts(base: File, ours: File, theirs: File) -> Merged:
    content, is_marked = ours.plain, False
    if base.plain == ours.plain:
        content = theirs.plain
    elif theirs.plain not in (base.plain, ours.plain):
        merged = _merge_lines(base.plain, ours.plain, theirs.plain)
        if merged is None:
            return Merged(ours, CONFLICT, "git, which merges lines, is not installed", theirs)
        content, is_marked = merged
    mode = theirs.mode if base.mode == ours.mode else ours.mode
    file = _with_ends(File(content, mode), base, ours, theirs)
    if is_marked:
        return Merged(file, CONFLICT, "look for the lines that begin with <<<<<<<")
    return Merged(file, "" if file == ours else "merged")


def _with_ends(file: File, base: File | None, ours: File, theirs: File) -> File:
    """Return *file* with lines that end as the project's do, or as the newer version has made them end."""
    is_crlf = theirs.is_crlf if base and base.is_crlf == ours.is_crlf else ours.is_crlf
    return replace(file, content=file.plain.replace(b"\n", b"\r\n") if is_crlf else file.plain)


def _merge_lines(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, bool] | None:
    """Return what git makes of three texts, and whether it has marks of a conflict; None where there is no git."""
    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch, name) for name in ("ours", "base", "theirs")]
        for path, content in zip(paths, (ours, base, theirs), strict=True):
            path.write_bytes(content)
        labels = [word for name in (YOURS, "as it came", THEIRS) for word in ("-L", name)]
        # Of the user's own configuration nothing counts: marks in another style would not be found again.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": scratch}
        command = ["git", "merge-file", "-p", *labels, *map(str, paths)]
        try:
            done = subprocess.run(command, cwd=scratch, env=environ, capture_output=True, check=False)  # noqa: S603
        except FileNotFoundError:
            return None
    if not 0 <= done.returncode < 128:
        said = printable(done.stderr.decode(errors="replace").strip())
        raise BackendError(f"git merge-file failed: {said}; nothing was changed")
    return done.stdout, done.returncode > 0


def is_marked(file: File | None) -> bool:
    """Return whether *file* still holds the marks of a conflict that `merge` has left there."""
    return file is not None and file.is_text and f"<<<<<<< {YOURS}".encode() in file.plain.split(b"\n")
