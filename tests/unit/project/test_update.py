"""update.sh: a newer version, and what became of the user's changes."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
from pathlib import Path

import pytest
from unit.project.user_project import TEMPLATE, TRAIN, KilledError, UserProject, edited, git, killed_after, write

from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, SettingsError
from oci_cluster.project import files
from oci_cluster.project.files import alone
from oci_cluster.project.wheel import frameworks_of, read_wheel, version_of

TRAIN_PY = "dask/example/train.py"


@pytest.fixture
def old(project: UserProject) -> UserProject:
    """Return a project of the version v1; the checkout is a copy of it, which is to become v2."""
    project.new("dask")
    project.next_version()
    return project


def test_the_same_version_changes_nothing(old: UserProject) -> None:
    old.yours(TRAIN_PY, "mine")
    before = old.everything()
    assert old.update() == 0
    assert old.everything() == before
    assert old.said == [f"version {version_of(old.wheel)}: nothing to change"]
    assert old.shown == []


def test_what_the_changelog_has_since_is_told(project: UserProject) -> None:
    """Also by a dry run; a version without one says nothing."""
    project.ours("CHANGELOG.md", "# Changelog\n\n## [1.0]\n\n- old\n")
    project.new()
    newer = project.next_version()
    (newer / "CHANGELOG.md").write_text("# Changelog\n\n## [1.1]\n\n- new\n\n## [1.0]\n\n- old\n")
    for is_dry in (True, False):
        assert project.update(dry_run=is_dry) == 0
        assert project.said[:2] == ["## [1.1]", "- new"]
    assert project.update() == 0
    assert "- new" not in project.said


def test_an_edit_of_the_users_and_an_edit_of_ours_are_both_there(old: UserProject) -> None:
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    old.ours(TRAIN_PY, edited(TRAIN, 20, "newer"))
    old.ours("common/lib.sh", "newer\n")
    old.ours("scripts/more.sh", "more\n", mode=0o755)
    (old.checkout / "scripts/launch.sh").unlink()
    was = version_of(old.wheel)
    assert old.update() == 0
    assert old.text(TRAIN_PY) == edited(edited(TRAIN, 3, "mine"), 20, "newer")
    assert (old.text("common/lib.sh"), old.text("scripts/more.sh")) == ("newer\n", "more\n")
    assert os.access(old.root / "scripts/more.sh", os.X_OK)
    assert not (old.root / "scripts/launch.sh").exists()
    assert old.shown == [
        "updated   common/lib.sh",
        f"merged    {TRAIN_PY}",
        "removed   scripts/launch.sh",
        "added     scripts/more.sh",
    ]
    assert old.said == [f"version {was} to {version_of(old.wheel)}: 1 updated, 1 merged, 1 removed, 1 added"]
    assert len([*(old.root / "vendor").iterdir()]) == 1
    before = old.everything()
    assert old.update() == 0
    assert old.everything() == before


def test_a_conflict_is_marked_and_named_and_no_later_update_hides_it(old: UserProject) -> None:
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    old.ours(TRAIN_PY, edited(TRAIN, 3, "newer"))
    assert old.update() == 1
    assert "<<<<<<< your project\nmine\n=======\nnewer\n>>>>>>> the newer version\n" in old.text(TRAIN_PY)
    assert old.shown == [f"CONFLICT  {TRAIN_PY}: look for the lines that begin with <<<<<<<"]
    assert old.said[-1] == f"these need you: {TRAIN_PY}"
    before = old.everything()
    with pytest.raises(ClusterError, match=f"marks of a conflict are still in {TRAIN_PY}; edit these") as caught:
        old.update()
    assert (caught.value.exit_code, old.everything()) == (1, before)
    old.yours(TRAIN_PY, edited(TRAIN, 3, "both"))
    assert old.update() == 0
    assert old.text(TRAIN_PY) == edited(TRAIN, 3, "both")


def test_what_the_newer_version_has_removed_stays_where_it_was_edited(old: UserProject) -> None:
    """Once; then it is the user's alone."""
    old.yours(TRAIN_PY, "mine\n")
    (old.checkout / TRAIN_PY).unlink()
    assert old.update() == 1
    assert old.shown == [
        f"CONFLICT  {TRAIN_PY}: the newer version has removed it, you have changed it; it stays",
    ]
    assert old.update() == 0
    assert old.text(TRAIN_PY) == "mine\n"


def test_a_folder_that_is_empty_then_goes_too(old: UserProject) -> None:
    shutil.rmtree(old.checkout / "dask/example")
    assert old.update() == 0
    assert not (old.root / "dask/example").exists()
    assert (old.root / "dask/start-master.sh").exists()


def test_what_the_user_has_removed_stays_removed(old: UserProject) -> None:
    (old.root / TRAIN_PY).unlink()
    (old.root / "README.md").unlink()
    old.ours(TRAIN_PY, "newer\n")
    assert old.update() == 0
    assert not (old.root / TRAIN_PY).exists()
    assert not (old.root / "README.md").exists()
    assert old.shown == [
        f"kept      {TRAIN_PY}: you have removed it, and the newer version has changed it; it stays removed",
    ]


def test_a_framework_that_the_user_has_removed_stays_removed(project: UserProject) -> None:
    """Nothing new is put into its folder, a version without it is taken, and new.sh can bring it back."""
    project.new("dask", "ray")
    shutil.rmtree(project.root / "ray")
    (project.root / "ray/entry/__pycache__").mkdir(parents=True)
    project.next_version()
    project.ours("ray/more.py", "new\n")
    project.ours("ray/start-master.sh", "newer\n")
    assert project.update(dry_run=True) == 0
    assert project.update() == 0
    assert project.shown == ["kept      ray/: you have removed it; it stays removed"]
    assert not (project.root / "ray/more.py").exists()
    assert frameworks_of(read_wheel(project.wheel)) == ["dask"]
    assert project.update() == 0
    assert project.shown == []
    assert project.new("ray") == 0
    assert project.text("ray/more.py") == "new\n"
    shutil.rmtree(project.root / "ray")
    shutil.rmtree(project.next_version() / "ray")
    assert project.update() == 0


def test_an_unpacked_file_of_the_users_that_the_newer_version_has_changed_is_named(old: UserProject) -> None:
    """One that the newer version has as before is not."""
    old.unpack()
    old.yours(TEMPLATE, "mine\n")
    old.ours("common/oci_cluster/more.py", "newer\n")
    assert old.update() == 0
    assert old.shown == []
    old.ours(TEMPLATE, "newer\n")
    for is_dry in (True, False):
        assert old.update(dry_run=is_dry) == 0
        why = "it is yours, and the newer version has changed it; remove it to have that"
        assert old.shown == [f"kept      {TEMPLATE}: {why}"]
    assert old.text(TEMPLATE) == "mine\n"


def test_a_file_that_nobody_edited_is_renamed(old: UserProject) -> None:
    (old.checkout / TRAIN_PY).rename(old.checkout / "dask/example/digits.py")
    assert old.update() == 0
    assert old.shown == ["added     dask/example/digits.py", f"removed   {TRAIN_PY}"]


def test_a_file_of_the_users_where_the_newer_version_has_one_is_not_lost(old: UserProject) -> None:
    """A text gets both; anything else keeps what is there, and has the newer one beside it."""
    old.yours("dask/more.sh", "mine\n")
    old.yours("dask/same.sh", "same\n")
    old.yours("dask/icon", b"\0mine")
    old.yours("dask/icon.new", b"mine, too")
    old.ours("dask/more.sh", "newer\n")
    old.ours("dask/same.sh", "same\n")
    old.ours("dask/icon", b"\0newer")
    assert old.update() == 1
    assert old.text("dask/more.sh") == "<<<<<<< your project\nmine\n=======\nnewer\n>>>>>>> the newer version\n"
    assert (old.text("dask/icon"), old.text("dask/icon.new"), old.text("dask/icon.new1")) == (
        *("\0mine", "mine, too", "\0newer"),
    )
    assert old.shown[0] == "CONFLICT  dask/icon: it is there, and is another; the newer version's is in dask/icon.new1"
    assert old.said[-1] == "these need you: dask/icon, dask/more.sh"


def test_blanks_and_modes_are_taken_along(old: UserProject) -> None:
    old.ours("dask/a file with blanks.py", "x\n")
    (old.checkout / TRAIN_PY).chmod(0o755)
    assert old.update() == 0
    assert os.access(old.root / TRAIN_PY, os.X_OK)
    assert old.text("dask/a file with blanks.py") == "x\n"
    assert old.update() == 0
    assert old.said[-1].endswith(": nothing to change")


@pytest.mark.parametrize(
    ("edit", "newer", "shown"),
    [
        (None, "newer\n", ["updated   dask/env-lock.txt"]),
        ("mine\n", None, []),
        ("mine\n", "newer\n", ["CONFLICT  dask/env-lock.txt: it is no text, and has changed here and there; the new"]),
        ("", "newer\n", ["kept      dask/env-lock.txt: you have removed it, and the newer version has changed it; it"]),
    ],
)
def test_a_lock_is_replaced_unless_it_was_edited(
    old: UserProject, edit: str | None, newer: str | None, shown: list[str]
) -> None:
    """The wheel has its hash alone."""
    lock = "dask/env-lock.txt"
    if edit is not None:
        old.yours(lock, edit)
    if edit == "":
        (old.root / lock).unlink()
    if newer:
        old.ours(lock, newer)
    assert old.update() == (1 if edit == "mine\n" and newer else 0)
    assert [line[:80] for line in old.shown] == [line[:80] for line in shown]
    if edit == "mine\n":
        assert old.text(lock) == "mine\n"
        assert not newer or old.text(f"{lock}.new") == "newer\n"


def test_permissions_of_the_users_stay(old: UserProject) -> None:
    (old.root / TRAIN_PY).chmod(0o600)
    old.ours(TRAIN_PY, "newer\n")
    old.update()
    assert (old.root / TRAIN_PY).stat().st_mode & 0o777 == 0o600


def test_a_dry_run_shows_the_users_lines_that_would_change(old: UserProject) -> None:
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    old.ours(TRAIN_PY, edited(TRAIN, 20, "newer"))
    before = old.everything()
    assert old.update(dry_run=True) == 0
    assert old.everything() == before
    assert f"merged    {TRAIN_PY}" in old.shown
    assert {"-line 20", "+newer", f"--- {TRAIN_PY} now"} <= set(old.shown)
    assert old.said[-1].endswith("; nothing is changed, as this is a dry run")
    old.ours(TRAIN_PY, edited(TRAIN, 3, "newer"))
    assert old.update(dry_run=True) == 1
    assert old.everything() == before


def test_a_starter_that_the_project_has_follows_and_one_that_it_had_not_is_not_added(project: UserProject) -> None:
    project.yours("README.md", "mine")
    project.yours("CLUSTERS.txt", "mine")
    project.new("dask")
    project.next_version()
    project.ours("scripts/templates/project/README.md", "newer\n")
    project.ours(".dockerignore", "newer\n")
    assert project.update() == 0
    assert (project.text("README.md"), project.text(".dockerignore")) == ("mine", "newer\n")
    assert not (project.root / "CLUSTERS.md").exists()


def test_a_project_without_a_wheel_and_a_version_without_its_frameworks_are_refused(old: UserProject) -> None:
    shutil.rmtree(old.checkout / "dask")
    with pytest.raises(
        SettingsError, match=r"templates v2 lacks dask, which .*my project has; name a version with all"
    ):
        old.update()
    old.wheel.unlink()
    with pytest.raises(
        SettingsError, match=r"has no vendor/oci_cluster-\*.whl, so nobody knows what it came from; run n"
    ):
        old.update()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_an_interrupted_update_is_completed_by_the_next(
    old: UserProject, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """What was merged is not merged twice."""
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    old.ours(TRAIN_PY, edited(TRAIN, 20, "newer"))
    old.ours("common/lib.sh", "newer\n")
    old.ours("dask/a.py", "new\n")
    with monkeypatch.context() as patch:
        killed_after(count, patch)
        with pytest.raises(KilledError):
            old.update()
    assert old.update() == 0
    assert old.text(TRAIN_PY) == edited(edited(TRAIN, 3, "mine"), 20, "newer")
    assert (old.text("common/lib.sh"), old.text("dask/a.py")) == ("newer\n", "new\n")
    assert old.update() == 0
    assert old.said[-1].endswith(": nothing to change")


def test_a_run_that_could_not_name_the_wheel_is_completed(old: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    was = old.wheel.name
    old.ours("common/lib.sh", "newer\n")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(NotPermittedError, match="cannot be written: Permission denied"):
            old.update()
    assert old.wheel.name == was
    assert old.update() == 0
    assert old.wheel.name != was
    assert old.update() == 0
    assert old.said[-1].endswith(": nothing to change")


def test_a_disk_that_is_full_is_named_and_what_was_there_stays(
    old: UserProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    old.ours("common/lib.sh", "newer\n")
    before = old.everything()
    monkeypatch.setattr(files, "write_whole", full)
    with pytest.raises(BackendError, match="cannot be written: No space left on device; make room there"):
        old.update()
    assert old.everything() == before


def test_two_at_once_wait_for_each_other(old: UserProject) -> None:
    """The second one finds what the first one has left."""
    old.ours("common/lib.sh", "newer\n")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with alone(old.root):
            done = pool.submit(old.update)
            with pytest.raises(concurrent.futures.TimeoutError):
                done.result(0.3)
            assert old.text("common/lib.sh") != "newer\n"
        assert done.result(60) == 0
    assert old.text("common/lib.sh") == "newer\n"


# --- In a git of the user's -------------------------------------------------------------------------------------------


def test_git_status_shows_only_what_should_differ(project: UserProject) -> None:
    project.new("dask")
    git(project.root, "init", "--quiet")
    git(project.root, "add", ".")
    project.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    git(project.root, "commit", "--quiet", "-am", "mine")
    assert git(project.root, "status", "--short", "--ignored") == "!! config.env\n"
    project.next_version()
    project.ours("dask/start-master.sh", "newer\n", mode=0o755)
    project.ours("common/new.sh", "newer\n")
    project.ours(TEMPLATE, "newer\n")
    was = project.wheel.name
    assert project.update() == 0
    project.unpack()
    assert project.text("common/new.sh") == project.text(TEMPLATE) == "newer\n"
    assert git(project.root, "status", "--short").splitlines() == [
        " M dask/start-master.sh",
        f" D vendor/{was}",
        f"?? vendor/{project.wheel.name}",
    ]


def test_folders_in_the_way_are_named_before_anything_is_done(old: UserProject) -> None:
    old.ours("dask/more/a", "a\n")
    old.ours("common/lib.sh", "newer\n")
    old.yours("dask/more", "a file of mine")
    before = old.everything()
    with pytest.raises(SettingsError, match="more is a file, and a folder of the templates belongs there; rename it"):
        old.update()
    assert old.everything() == before
    shutil.rmtree(old.root / "dask/example")
    write(old.place / "elsewhere/train.py", TRAIN)
    (old.root / "dask/example").symlink_to(old.place / "elsewhere")
    with pytest.raises(SettingsError, match="example is a link, and a folder of the templates belongs there"):
        old.update()
