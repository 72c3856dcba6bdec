"""Three versions of a file become one: as it came, as it is in the project, and as the newer version has it.

Lines are merged by ``git merge-file``, which needs no repository. Ends of lines and the executable bit are merged apart
from them: a checkout on Windows has other ends in every line, and no line of it was edited for that.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.project.files import File
from oci_cluster.system.text import printable

YOURS = "your project"
"""What stands behind the first mark of a conflict."""


class Result(Enum):
    """What has become of a file; the values are the words that people see."""

    SAME = "unchanged"
    KEPT = "kept"
    ADDED = "added"
    UPDATED = "updated"
    REMOVED = "removed"
    MERGED = "merged"
    CONFLICT = "CONFLICT"


@dataclass(frozen=True)
class Merged:
    """What a project has after a merge.

    Attributes:
        file: The file; None where there is none.
        result: What was done.
        why: For people, where the result does not say all.
        beside: What the newer version has, where it could not be brought into the file.
    """

    file: File | None
    result: Result
    why: str = ""
    beside: File | None = None


MergeText = Callable[[bytes, bytes, bytes], tuple[bytes, bool]]
"""From what came, the project's and the newer text to one, and whether it holds marks of a conflict."""


def merge(base: File | None, ours: File | None, theirs: File | None, merge_text: MergeText) -> Merged:
    """Return what becomes of a file that came as *base*, is *ours* in the project, and *theirs* in the newer version.

    None is no file. Nothing of the project's own is ever given up: what cannot be brought together is in the file with
    marks, or as a second file beside it.

    Raises:
        BackendError, SettingsError: what *merge_text* raises.
    """
    if theirs is None or ours is None:
        return _of_missing(base, ours, theirs)
    if same(ours, theirs) or (base and same(base, theirs)):
        return Merged(ours, Result.SAME)
    if base and same(base, ours):
        return Merged(_with_our_ends(base, ours, theirs), Result.UPDATED)
    if not (ours.is_text and theirs.is_text and (base is None or base.is_text)):
        if ours.is_link == theirs.is_link and ours.content == theirs.content:  # another mode alone
            return Merged(replace(ours, mode=_mode(base, ours, theirs)), Result.UPDATED)
        why = "it is no text, and has changed here and there" if base else "it is there, and is another"
        return Merged(ours, Result.CONFLICT, why, theirs)
    return _of_texts(base or File(b"", theirs.mode), ours, theirs, merge_text)


def _of_missing(base: File | None, ours: File | None, theirs: File | None) -> Merged:
    if theirs is None:
        if ours is None or base is None:
            return Merged(ours, Result.SAME)
        if same(base, ours):
            return Merged(None, Result.REMOVED)
        return Merged(ours, Result.CONFLICT, "the newer version has removed it, you have changed it; it stays")
    if base is None:
        return Merged(theirs, Result.ADDED)
    if same(base, theirs):
        return Merged(None, Result.SAME)
    return Merged(None, Result.KEPT, "you have removed it, and the newer version has changed it; it stays removed")


def _of_texts(base: File, ours: File, theirs: File, merge_text: MergeText) -> Merged:
    texts = [plain_ends(file.content) for file in (base, ours, theirs)]
    content, is_marked = texts[1], False
    if texts[0] == texts[1]:
        content = texts[2]
    elif texts[2] not in (texts[0], texts[1]):
        content, is_marked = merge_text(*texts)
    if _ends(base, ours, theirs):
        content = content.replace(b"\n", b"\r\n")
    merged = File(content, _mode(base, ours, theirs))
    if is_marked:
        return Merged(merged, Result.CONFLICT, "look for the lines that begin with <<<<<<<")
    return Merged(merged, Result.SAME if merged == ours else Result.MERGED)


def same(one: File, other: File) -> bool:
    """Return whether two files are the same but for the ends of their lines."""
    if one.mode != other.mode:
        return False
    return one.content == other.content or (
        one.is_text and other.is_text and plain_ends(one.content) == plain_ends(other.content)
    )


def _mode(base: File | None, ours: File, theirs: File) -> str:
    return theirs.mode if base and base.mode == ours.mode else ours.mode


def _with_our_ends(base: File, ours: File, theirs: File) -> File:
    if theirs.is_text and ours.is_text and base.is_text and _ends(base, ours, theirs) != _is_crlf(theirs.content):
        plain = plain_ends(theirs.content)
        return replace(theirs, content=plain.replace(b"\n", b"\r\n") if _ends(base, ours, theirs) else plain)
    return theirs


def _ends(base: File, ours: File, theirs: File) -> bool:
    """Return whether the lines of the merged file end as those of Windows do."""
    was, here, there = (_is_crlf(file.content) for file in (base, ours, theirs))
    return there if was == here else here


def _is_crlf(content: bytes) -> bool:
    """Return whether every line of *content* ends with CR LF: where some do, these are content."""
    return b"\r\n" in content and content.count(b"\r\n") == content.count(b"\n")


def plain_ends(content: bytes) -> bytes:
    """Return *content* with the ends of lines that Linux has, where all are those of Windows."""
    return content.replace(b"\r\n", b"\n") if _is_crlf(content) else content


def git_merge(label: str) -> MergeText:
    """Return what merges texts with git; *label* names the newer version in the marks.

    Raises, when it is called:
        SettingsError: git is not installed.
        BackendError: it failed.
    """

    def merge_text(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, bool]:
        with tempfile.TemporaryDirectory() as scratch:
            paths = [Path(scratch, name) for name in ("ours", "base", "theirs")]
            for path, content in zip(paths, (ours, base, theirs), strict=True):
                path.write_bytes(content)
            labels = [word for name in (YOURS, "as it came", label) for word in ("-L", name)]
            # Of the user's own configuration nothing counts: marks in another style would not be found again.
            environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
            environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": scratch}
            try:
                done = subprocess.run(  # noqa: S603
                    ["git", "merge-file", "-p", *labels, *map(str, paths)],  # noqa: S607
                    cwd=scratch,
                    env=environ,
                    capture_output=True,
                    check=False,
                )
            except FileNotFoundError as error:
                msg = "git is not installed, and files that you have changed are merged with it; install git"
                raise SettingsError(msg) from error
        if not 0 <= done.returncode < 128:
            msg = (
                f"git merge-file failed: {printable(done.stderr.decode(errors='replace').strip())}; nothing was changed"
            )
            raise BackendError(msg)
        return done.stdout, done.returncode > 0

    return merge_text


def is_marked(file: File) -> bool:
    """Return whether *file* still holds the marks of a conflict that `git_merge` has left there."""
    return file.is_text and f"<<<<<<< {YOURS}".encode() in (line.rstrip(b"\r") for line in file.content.split(b"\n"))
