"""One file of three versions."""

from __future__ import annotations

import pytest
from unit.project.user_project import TRAIN, edited

from oci_cluster.errors import BackendError
from oci_cluster.project.files import EXECUTABLE, LINK, File
from oci_cluster.project.update import CONFLICT, is_marked, merge

BASE = File(TRAIN.encode())
OURS = File(edited(TRAIN, 3, "ours").encode())
THEIRS = File(edited(TRAIN, 20, "theirs").encode())
THEIRS_SAME_LINE = File(edited(TRAIN, 3, "theirs").encode())
BOTH = edited(edited(TRAIN, 3, "ours"), 20, "theirs").encode()
ICON, ICON_OURS, ICON_THEIRS = File(b"\0a"), File(b"\0b"), File(b"\0c")


CASES = {
    "nothing has changed": (BASE, BASE, BASE, BASE, ""),
    "only here": (BASE, OURS, BASE, OURS, ""),
    "only there": (BASE, BASE, THEIRS, THEIRS, "updated"),
    "the same on both sides": (BASE, OURS, OURS, OURS, ""),
    "different lines": (BASE, OURS, THEIRS, File(BOTH), "merged"),
    "different lines, once more": (BASE, File(BOTH), THEIRS, File(BOTH), ""),
    "added there": (None, None, THEIRS, THEIRS, "added"),
    "added by both, alike": (None, THEIRS, THEIRS, THEIRS, ""),
    "removed there": (BASE, BASE, None, None, "removed"),
    "removed there, changed here": (BASE, OURS, None, OURS, CONFLICT),
    "removed by both": (BASE, None, None, None, ""),
    "removed here": (BASE, None, BASE, None, ""),
    "removed here, changed there": (BASE, None, THEIRS, None, "kept"),
    "nobody's of ours": (None, OURS, None, OURS, ""),
    "executable there": (BASE, OURS, File(BASE.content, EXECUTABLE), File(OURS.content, EXECUTABLE), "merged"),
    "executable here": (BASE, File(BASE.content, EXECUTABLE), THEIRS, File(THEIRS.content, EXECUTABLE), "merged"),
    "a picture, there": (ICON, ICON, ICON_THEIRS, ICON_THEIRS, "updated"),
    "a picture, here": (ICON, ICON_OURS, ICON, ICON_OURS, ""),
    "a picture, both": (ICON, ICON_OURS, ICON_THEIRS, ICON_OURS, CONFLICT),
    "a link here, changed there": (BASE, File(b"a", LINK), THEIRS, File(b"a", LINK), CONFLICT),
}


@pytest.mark.parametrize(("base", "ours", "theirs", "wanted", "result"), CASES.values(), ids=CASES)
def test_three_versions_become_one(
    base: File | None, ours: File | None, theirs: File | None, wanted: File | None, result: str
) -> None:
    merged = merge(base, ours, theirs)
    assert (merged.file, merged.result) == (wanted, result)


def test_what_cannot_be_merged_is_kept_beside() -> None:
    assert merge(ICON, ICON_OURS, ICON_THEIRS).newer == ICON_THEIRS
    assert merge(None, ICON_OURS, ICON_THEIRS).newer == ICON_THEIRS


@pytest.mark.parametrize("base", [BASE, None])
def test_lines_that_both_have_changed_are_marked_with_both(base: File | None, tmp_path, monkeypatch) -> None:
    """Whatever the user's configuration has for marks."""
    (tmp_path / ".gitconfig").write_text("[merge]\n\tconflictStyle = diff3\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", "/none")
    merged = merge(base, OURS, THEIRS_SAME_LINE)
    assert merged.result == CONFLICT
    assert merged.file is not None
    text = merged.file.content.decode()
    assert "<<<<<<< your project\n" in text
    assert "\n=======\n" in text
    assert "\n>>>>>>> the newer version\n" in text
    assert "|||||||" not in text
    assert {"ours", "theirs"} <= set(text.split("\n"))
    assert is_marked(merged.file)
    assert not is_marked(BASE)
    assert not is_marked(File(b"a", LINK))


def test_without_git_the_newer_text_is_kept_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one side alone has changed needs none."""
    monkeypatch.setenv("PATH", "/none")
    assert merge(BASE, BASE, THEIRS).file == THEIRS
    merged = merge(BASE, OURS, THEIRS)
    assert (merged.file, merged.result, merged.newer) == (OURS, CONFLICT, THEIRS)
    assert merged.why == "git, which merges lines, is not installed"


def test_a_git_that_fails_changes_nothing(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\necho no memory >&2; exit 255\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(BackendError, match="git merge-file failed: no memory; nothing was changed"):
        merge(BASE, OURS, THEIRS)
