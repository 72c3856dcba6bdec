"""Changes that are interrupted, and completed."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from unit.project.user_project import UserProject, write

from oci_cluster.errors import BackendError, NotPermittedError, SettingsError
from oci_cluster.project import changes
from oci_cluster.project.changes import STAGE, Change, finish_changes, make_changes
from oci_cluster.project.files import File, read_file


class KilledError(Exception):
    """What a test has instead of SIGKILL."""


def killed_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the move of the file with this number, from 0, end the process."""
    left = [count]
    replace = Path.replace

    def replaced(self: Path, target: Path) -> Path:
        if self.parent.name == STAGE and self.name.isdecimal():
            left[0] -= 1
            if left[0] < 0:
                raise KilledError
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replaced)


@pytest.mark.parametrize("count", [0, 1, 7, 15])
def test_an_interrupted_new_is_completed_by_the_next(
    project: UserProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int
) -> None:
    """Nothing differs from a project that was made at once."""
    (tmp_path / "x").mkdir()
    whole = UserProject(tmp_path / "x")
    whole.new("dask")
    with monkeypatch.context() as patch:
        killed_after(count, patch)
        with pytest.raises(KilledError):
            project.new("dask")
    assert project.new("dask") == 0
    assert project.said[0] == "an earlier run was interrupted: its changes are completed first"
    found = project.everything()
    wanted = whole.everything()
    assert found.pop(".launch-templates") != wanted.pop(".launch-templates")  # another folder is in it
    assert found == wanted


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_interrupted_update_is_completed_by_the_next(
    project: UserProject, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Also where a file was merged with a conflict: it is not merged twice."""
    project.new("dask")
    project.next_version()
    project.yours("dask/example/train.py", "mine\n")
    project.ours("dask/example/train.py", "newer\n")
    project.ours("dask/a.py", "new\n")
    with monkeypatch.context() as patch:
        killed_after(count, patch)
        with pytest.raises(KilledError):
            project.update()
    with pytest.raises(SettingsError, match="an earlier run was interrupted; complete it first"):
        project.update(dry_run="")
    with pytest.raises(Exception, match=r"marks of a conflict are still in dask/example/train.py"):
        project.update()
    assert project.text("dask/example/train.py").count("<<<<<<<") == 1
    assert project.text("dask/a.py") == "new\n"
    project.yours("dask/example/train.py", "both\n")
    assert project.update() == 0
    assert project.said[-1].endswith("nothing to change")
    assert not (project.root / STAGE).exists()


def test_a_run_that_had_no_plan_yet_has_changed_nothing(project: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(changes, "write_whole", stop)
        with pytest.raises(KilledError):
            project.new("dask")
    assert [path.name for path in project.root.iterdir()] == [STAGE]
    assert project.new("dask") == 0
    assert not (project.root / STAGE).exists()


def test_a_file_that_was_edited_after_an_interruption_is_left_alone(
    project: UserProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.new("dask")
    project.next_version()
    project.ours("common/lib.sh", "newer\n")
    with monkeypatch.context() as patch:
        killed_after(0, patch)
        with pytest.raises(KilledError):
            project.update()
    project.yours("common/lib.sh", "mine\n")
    with pytest.raises(SettingsError, match=r"lib.sh has changed since it was looked at; move it away"):
        project.update()
    assert project.text("common/lib.sh") == "mine\n"
    (project.root / "common/lib.sh").rename(project.root / "mine")
    with pytest.raises(SettingsError, match=r"lib.sh has changed"):
        project.update()


@pytest.mark.parametrize(
    "plan",
    [
        *("", "{}", "[1]", '[{"name": "a"}]'),
        '[{"name": "../a", "before": "", "after": "x", "staged": "0"}]',
        '[{"name": "a", "before": "", "after": "x", "staged": "../../b"}]',
    ],
)
def test_a_plan_that_is_damaged_is_not_followed(tmp_path: Path, plan: str) -> None:
    """Anybody may have written it: what it names is inside."""
    root = tmp_path / "p"
    write(root / STAGE / "plan.json", plan)
    if plan == "{}":
        finish_changes(root, lambda _: None)
        return
    with pytest.raises(SettingsError, match=r"plan.json is damaged: .*; look at what git shows, and remove"):
        finish_changes(root, lambda _: None)


def test_two_at_once_do_not_mix(project: UserProject) -> None:
    project.root.mkdir()
    descriptor = os.open(project.root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(SettingsError, match=r"another new.sh or update.sh changes .* just now; wait"):
            project.new("dask")
    finally:
        os.close(descriptor)


def test_a_project_that_cannot_be_opened_is_named(project: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    project.new("dask")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(SettingsError, match="cannot be opened: Permission denied; allow reading it"):
            project.update()


def test_a_disk_that_is_full_is_named_and_what_was_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    write(tmp_path / "a", "old")
    change = Change("a", read_file(tmp_path / "a"), File(b"new"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(BackendError, match="cannot be written: No space left on device; make room there"):
            make_changes(tmp_path, [change])
    assert (tmp_path / "a").read_text() == "old"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        with pytest.raises(BackendError, match="No space left"):
            make_changes(tmp_path, [change])
    make_changes(tmp_path, [change])
    assert (tmp_path / "a").read_text() == "new"


def test_what_cannot_be_completed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a", "old")
    file = read_file(tmp_path / "a")
    assert file
    step = {"name": "a", "before": f"{file.mode} {file.digest}", "after": "", "staged": "0"}
    write(tmp_path / STAGE / "plan.json", json.dumps([step]))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(NotPermittedError, match="cannot be written"):
        finish_changes(tmp_path, lambda _: None)
