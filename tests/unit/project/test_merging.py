"""One file of three versions."""

from __future__ import annotations

import pytest
from unit.project.user_project import TRAIN, edited

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.project.files import EXECUTABLE, LINK, PLAIN, File
from oci_cluster.project.merging import Result, git_merge, is_marked, merge

BASE = File(TRAIN.encode())
OURS = File(edited(TRAIN, 3, "ours").encode())
THEIRS = File(edited(TRAIN, 20, "theirs").encode())
THEIRS_SAME_LINE = File(edited(TRAIN, 3, "theirs").encode())
BOTH = edited(edited(TRAIN, 3, "ours"), 20, "theirs").encode()
ICON, ICON_OURS, ICON_THEIRS = File(b"\0a"), File(b"\0b"), File(b"\0c")


def crlf(file: File) -> File:
    return File(file.content.replace(b"\n", b"\r\n"), file.mode)


CASES = {
    "nothing has changed": (BASE, BASE, BASE, BASE, Result.SAME),
    "only here": (BASE, OURS, BASE, OURS, Result.SAME),
    "only there": (BASE, BASE, THEIRS, THEIRS, Result.UPDATED),
    "the same on both sides": (BASE, OURS, OURS, OURS, Result.SAME),
    "different lines": (BASE, OURS, THEIRS, File(BOTH), Result.MERGED),
    "added there": (None, None, THEIRS, THEIRS, Result.ADDED),
    "added by both, alike": (None, THEIRS, THEIRS, THEIRS, Result.SAME),
    "removed there": (BASE, BASE, None, None, Result.REMOVED),
    "removed there, changed here": (BASE, OURS, None, OURS, Result.CONFLICT),
    "removed by both": (BASE, None, None, None, Result.SAME),
    "removed here": (BASE, None, BASE, None, Result.SAME),
    "removed here, changed there": (BASE, None, THEIRS, None, Result.KEPT),
    "nobody's of ours": (None, OURS, None, OURS, Result.SAME),
    "ends of Windows here": (BASE, crlf(BASE), THEIRS, crlf(THEIRS), Result.UPDATED),
    "ends of Windows here, and an edit": (BASE, crlf(OURS), THEIRS, crlf(File(BOTH)), Result.MERGED),
    "ends of Windows here alone": (BASE, crlf(BASE), BASE, crlf(BASE), Result.SAME),
    "ends of Windows there": (BASE, BASE, crlf(THEIRS), crlf(THEIRS), Result.UPDATED),
    "ends of Windows there, and an edit here": (BASE, OURS, crlf(THEIRS), crlf(File(BOTH)), Result.MERGED),
    "ends of Windows came, and went here": (crlf(BASE), BASE, crlf(THEIRS), THEIRS, Result.UPDATED),
    "executable there": (BASE, OURS, File(BASE.content, EXECUTABLE), File(OURS.content, EXECUTABLE), Result.MERGED),
    "executable here": (BASE, File(BASE.content, EXECUTABLE), THEIRS, File(THEIRS.content, EXECUTABLE), Result.MERGED),
    "a picture, there": (ICON, ICON, ICON_THEIRS, ICON_THEIRS, Result.UPDATED),
    "a picture, here": (ICON, ICON_OURS, ICON, ICON_OURS, Result.SAME),
    "a picture, both": (ICON, ICON_OURS, ICON_THEIRS, ICON_OURS, Result.CONFLICT),
    "a picture, executable there": (
        *(ICON, File(b"\0a", EXECUTABLE), File(b"\0a", EXECUTABLE), File(b"\0a", EXECUTABLE), Result.SAME),
    ),
    "a link, there": (File(b"a", LINK), File(b"a", LINK), File(b"b", LINK), File(b"b", LINK), Result.UPDATED),
    "a link, both": (File(b"a", LINK), File(b"c", LINK), File(b"b", LINK), File(b"c", LINK), Result.CONFLICT),
    "a link became a file there": (File(b"a", LINK), File(b"a", LINK), BASE, BASE, Result.UPDATED),
    "a link here, changed there": (BASE, File(b"a", LINK), THEIRS, File(b"a", LINK), Result.CONFLICT),
}


@pytest.mark.parametrize(("base", "ours", "theirs", "wanted", "result"), CASES.values(), ids=CASES)
def test_three_versions_become_one(
    base: File | None, ours: File | None, theirs: File | None, wanted: File | None, result: Result
) -> None:
    merged = merge(base, ours, theirs, git_merge("v2"))
    assert (merged.file, merged.result) == (wanted, result)


def test_what_cannot_be_merged_is_kept_beside() -> None:
    assert merge(ICON, ICON_OURS, ICON_THEIRS, git_merge("v2")).beside == ICON_THEIRS
    assert merge(None, ICON_OURS, ICON_THEIRS, git_merge("v2")).beside == ICON_THEIRS


def test_a_mode_that_both_have_changed_of_a_picture_is_taken_along() -> None:
    here = File(b"\0a", PLAIN)
    merged = merge(None, here, File(b"\0a", EXECUTABLE), git_merge("v2"))
    assert (merged.file, merged.beside) == (here, None)


def test_lines_that_both_have_changed_are_marked_with_both() -> None:
    merged = merge(BASE, OURS, THEIRS_SAME_LINE, git_merge("v2"))
    assert merged.result is Result.CONFLICT
    assert merged.file is not None
    text = merged.file.content.decode()
    assert "<<<<<<< your project\nours\n=======\ntheirs\n>>>>>>> v2\n" in text
    assert is_marked(merged.file)
    assert is_marked(crlf(merged.file))
    assert not is_marked(BASE)
    assert not is_marked(File(b"a", LINK))


def test_a_file_that_both_have_added_is_marked() -> None:
    merged = merge(None, OURS, THEIRS_SAME_LINE, git_merge("v2"))
    assert merged.result is Result.CONFLICT
    assert merged.file is not None
    assert {b"ours", b"theirs"} <= set(merged.file.content.split(b"\n"))


def test_marks_do_not_depend_on_the_users_configuration(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[merge]\n\tconflictStyle = diff3\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", "/none")
    merged = merge(BASE, OURS, THEIRS_SAME_LINE, git_merge("v2"))
    assert merged.file is not None
    assert b"|||||||" not in merged.file.content


def test_without_git_no_text_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one side alone has changed needs none."""
    monkeypatch.setenv("PATH", "/none")
    assert merge(BASE, BASE, THEIRS, git_merge("v2")).file == THEIRS
    with pytest.raises(SettingsError, match="git is not installed, and files that you have changed are merged with it"):
        merge(BASE, OURS, THEIRS, git_merge("v2"))


def test_a_git_that_fails_changes_nothing(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\necho no memory >&2; exit 255\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(BackendError, match="git merge-file failed: no memory; nothing was changed"):
        merge(BASE, OURS, THEIRS, git_merge("v2"))
