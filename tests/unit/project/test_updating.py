"""update.sh: a newer version, and what became of the user's changes."""

from __future__ import annotations

import os
import shutil

import pytest
from unit.project.user_project import TRAIN, UserProject, edited, git, write

from oci_cluster.errors import ClusterError, SettingsError, UsageError
from oci_cluster.project.record import COPY, RECORD, read_copy, read_record

TRAIN_PY = "dask/example/train.py"


@pytest.fixture
def old(project: UserProject) -> UserProject:
    """Return a project of the version v1; the checkout is a copy of it, which is to become v2."""
    project.new("dask")
    project.next_version()
    return project


def test_the_same_version_changes_nothing(old: UserProject) -> None:
    """Its record alone, which names another folder; a second time not even that."""
    old.yours(TRAIN_PY, "mine")
    assert old.update() == 0
    before = old.everything()
    assert old.update() == 0
    assert old.everything() == before
    assert old.said == ["version unknown: nothing to change"]
    assert old.shown == []


def test_an_edit_of_the_users_and_an_edit_of_ours_are_both_there(old: UserProject) -> None:
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    old.ours(TRAIN_PY, edited(TRAIN, 20, "newer"))
    old.ours("common/lib.sh", "newer\n")
    old.ours("common/more.sh", "more\n", mode=0o755)
    (old.checkout / "scripts/launch.sh").unlink()
    assert old.update() == 0
    assert old.text(TRAIN_PY) == edited(edited(TRAIN, 3, "mine"), 20, "newer")
    assert (old.text("common/lib.sh"), old.text("common/more.sh")) == ("newer\n", "more\n")
    assert os.access(old.root / "common/more.sh", os.X_OK)
    assert not (old.root / "scripts/launch.sh").exists()
    assert old.shown == [
        "updated   common/lib.sh",
        "added     common/more.sh",
        f"merged    {TRAIN_PY}",
        "removed   scripts/launch.sh",
    ]
    assert old.said == ["version unknown: 1 added, 1 updated, 1 removed, 1 merged"]
    before = old.everything()
    assert old.update() == 0
    assert old.everything() == before


def test_a_conflict_is_marked_and_named_and_no_later_update_hides_it(old: UserProject) -> None:
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    old.ours(TRAIN_PY, edited(TRAIN, 3, "newer"))
    assert old.update() == 1
    assert "<<<<<<< your project\nmine\n=======\nnewer\n>>>>>>> unknown\n" in old.text(TRAIN_PY)
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


def test_a_file_that_was_renamed_takes_the_users_edit_along(old: UserProject) -> None:
    """Also where the newer version has changed it besides; one that is another file is not taken for it."""
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    (old.checkout / TRAIN_PY).unlink()
    old.ours("dask/example/digits.py", edited(TRAIN, 20, "newer"))
    old.ours("dask/example/other.py", "another\nfile\n")
    old.ours("dask/example/picture", b"\0")
    assert old.update() == 0
    assert not (old.root / TRAIN_PY).exists()
    assert old.text("dask/example/digits.py") == edited(edited(TRAIN, 3, "mine"), 20, "newer")
    assert f"merged    dask/example/digits.py: it was {TRAIN_PY}, which you have changed" in old.shown
    before = old.everything()
    assert old.update() == 0
    assert old.everything() == before


def test_a_file_that_was_renamed_without_a_change_takes_the_edit_along(old: UserProject) -> None:
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    (old.checkout / TRAIN_PY).rename(old.checkout / "dask/example/digits.py")
    assert old.update() == 0
    assert old.text("dask/example/digits.py") == edited(TRAIN, 3, "mine")


def test_an_edit_does_not_go_into_a_file_of_the_users_own(old: UserProject) -> None:
    """It has the new name, and is another file: the edit stays where it is."""
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    old.yours("dask/example/digits.py", "my own\n")
    (old.checkout / TRAIN_PY).rename(old.checkout / "dask/example/digits.py")
    old.update()
    assert old.text(TRAIN_PY) == edited(TRAIN, 3, "mine")
    assert "my own\n" in old.text("dask/example/digits.py")


def test_a_file_that_nobody_edited_is_renamed(old: UserProject) -> None:
    (old.checkout / TRAIN_PY).rename(old.checkout / "dask/example/digits.py")
    assert old.update() == 0
    assert old.shown == ["added     dask/example/digits.py", f"removed   {TRAIN_PY}"]


def test_a_file_of_the_users_where_the_newer_version_has_one_is_not_lost(old: UserProject) -> None:
    """A text gets both; anything else keeps what is there, and has the newer one beside it."""
    old.yours("scripts/more.sh", "mine\n")
    old.yours("scripts/same.sh", "same\n")
    old.yours("scripts/icon", b"\0mine")
    old.yours("scripts/icon.new", b"mine, too")
    old.ours("scripts/more.sh", "newer\n")
    old.ours("scripts/same.sh", "same\n")
    old.ours("scripts/icon", b"\0newer")
    assert old.update() == 1
    assert old.text("scripts/more.sh") == "<<<<<<< your project\nmine\n=======\nnewer\n>>>>>>> unknown\n"
    assert (old.text("scripts/icon"), old.text("scripts/icon.new"), old.text("scripts/icon.new1")) == (
        *("\0mine", "mine, too", "\0newer"),
    )
    assert old.shown[0] == (
        "CONFLICT  scripts/icon: it is there, and is another; the newer version's is in scripts/icon.new1"
    )
    assert old.said[-1] == "these need you: scripts/icon, scripts/more.sh"


def test_blanks_modes_and_links_are_taken_along(old: UserProject) -> None:
    old.ours("dask/a file with blanks.py", "x\n")
    (old.checkout / "dask" / "a link").symlink_to("a file with blanks.py")
    (old.checkout / TRAIN_PY).chmod(0o755)
    assert old.update() == 0
    assert (old.root / "dask" / "a link").readlink().as_posix() == "a file with blanks.py"
    assert os.access(old.root / TRAIN_PY, os.X_OK)
    assert old.update() == 0
    assert old.said == ["version unknown: nothing to change"]
    (old.checkout / "dask" / "a link").unlink()
    (old.checkout / "dask" / "a link").symlink_to("start-master.sh")
    assert old.update() == 0
    assert (old.root / "dask" / "a link").readlink().as_posix() == "start-master.sh"


def test_permissions_of_the_users_stay(old: UserProject) -> None:
    (old.root / TRAIN_PY).chmod(0o600)
    old.ours(TRAIN_PY, "newer\n")
    old.update()
    assert (old.root / TRAIN_PY).stat().st_mode & 0o777 == 0o600


def test_a_checkout_of_windows_is_no_edit(old: UserProject) -> None:
    """All lines end otherwise, and stay so."""
    for name in ("common/lib.sh", TRAIN_PY):
        old.yours(name, (old.root / name).read_bytes().replace(b"\n", b"\r\n"))
    old.ours(TRAIN_PY, edited(TRAIN, 20, "newer"))
    assert old.update() == 0
    assert old.shown == [f"updated   {TRAIN_PY}"]
    assert old.text(TRAIN_PY) == edited(TRAIN, 20, "newer").replace("\n", "\r\n")


def test_a_dry_run_shows_the_users_lines_that_would_change(old: UserProject) -> None:
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    old.ours(TRAIN_PY, edited(TRAIN, 20, "newer"))
    before = old.everything()
    assert old.update(dry_run="") == 0
    assert old.everything() == before
    assert f"merged    {TRAIN_PY}" in old.shown
    assert {"-line 20", "+newer", f"--- {TRAIN_PY} now"} <= set(old.shown)
    assert old.said[-1].endswith("; nothing is changed, as this is a dry run")
    old.ours(TRAIN_PY, edited(TRAIN, 3, "newer"))
    assert old.update(dry_run="") == 1
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


def test_the_newer_versions_own_list_says_what_goes(old: UserProject) -> None:
    old.ours("more/a", "a\n")
    contents = old.checkout / "scripts/templates/project/contents.txt"
    contents.write_text(contents.read_text() + "more/ -> common/more/\n- common/lib.sh\n")
    assert old.update() == 0
    assert old.shown == ["removed   common/lib.sh", "added     common/more/a"]


# --- What it came from ------------------------------------------------------------------------------------------------


def test_without_a_word_the_version_comes_from_where_the_last_one_did(old: UserProject) -> None:
    old.update()
    old.ours("common/lib.sh", "newest\n")
    assert old.update("", "") == 0
    assert old.text("common/lib.sh") == "newest\n"


def test_without_the_copy_all_is_done_that_needs_none(old: UserProject) -> None:
    """A file that is as it came, or as it shall be, is known by its hash. What else was edited needs the version."""
    (old.root / COPY).unlink()
    old.ours("common/lib.sh", "newer\n")
    old.yours("dask/start-master.sh", "the same\n", mode=0o755)
    old.ours("dask/start-master.sh", "the same\n", mode=0o755)
    (old.root / "README.md").unlink()
    assert old.update() == 0
    assert old.text("common/lib.sh") == "newer\n"
    record = read_record(old.root)
    assert record is not None
    assert len(read_copy(old.root, record)) == len(record.files)


@pytest.mark.parametrize("damage", ["missing", "cut", "another", "link"])
def test_a_copy_that_is_lost_is_asked_for(old: UserProject, damage: str) -> None:
    old.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    old.ours(TRAIN_PY, edited(TRAIN, 20, "newer"))
    kept = old.root / COPY
    content = kept.read_bytes()
    kept.unlink()
    if damage == "link":
        kept.symlink_to("/etc/passwd")
    elif damage != "missing":
        kept.write_bytes(content[:200] if damage == "cut" else b"no archive")
    before = old.everything()
    with pytest.raises(SettingsError, match=f"lacks files that you have edited, as they came: {TRAIN_PY}; bring it"):
        old.update()
    assert old.everything() == before
    assert old.update(base="templates v1") == 0
    assert old.text(TRAIN_PY) == edited(edited(TRAIN, 3, "mine"), 20, "newer")


def test_a_copy_made_by_hand_is_brought_up_to_date_from_its_version(project: UserProject) -> None:
    for folder in ("dask", "common", "scripts"):
        shutil.copytree(project.checkout / folder, project.root / folder)
    project.yours(TRAIN_PY, edited(TRAIN, 3, "mine"))
    project.next_version()
    project.ours(TRAIN_PY, edited(TRAIN, 20, "newer"))
    with pytest.raises(SettingsError, match=r"has no .launch-templates, so nobody knows which version it came from"):
        project.update()
    with pytest.raises(UsageError, match="expected the newer version"):
        project.update("", base="templates v1")
    assert project.update(base="templates v1") == 0
    assert project.text(TRAIN_PY) == edited(edited(TRAIN, 3, "mine"), 20, "newer")
    record = read_record(project.root)
    assert record is not None
    assert record.frameworks == ["dask"]
    assert not (project.root / "ray").exists()
    before = project.everything()
    assert project.update() == 0
    assert project.everything() == before


def test_a_base_that_has_nothing_in_common_is_refused(project: UserProject) -> None:
    project.yours("spark/start-master.sh", "x")
    with pytest.raises(SettingsError, match=r"has none of the frameworks of .*: dask, ray; name the version"):
        project.update(base="templates v1")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[]", "list indices"),
        ("{}", "'format'"),
        ('{"format": 2}', "its format is 2, this update.sh knows 1"),
        ('{"format": 1, "frameworks": ["../x"]}', "'../x' is no name of a framework"),
        (
            '{"format": 1, "frameworks": [], "files": {"../a": {"sha256": "", "mode": "100644"}}}',
            "'../a' is no path inside a project",
        ),
        ('{"format": 1, "frameworks": [], "files": {"a": {"sha256": "0", "mode": "100644"}}}', "the line of 'a'"),
    ],
)
def test_a_record_that_is_damaged_is_named(old: UserProject, text: str, why: str) -> None:
    old.yours(RECORD, text)
    with pytest.raises(SettingsError, match=rf"{RECORD} is damaged: .*{why}.*; bring it back from git"):
        old.update()


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
    assert project.update() == 0
    assert git(project.root, "status", "--short").splitlines() == [
        f" M {RECORD}",
        f" M {COPY}",
        " M dask/start-master.sh",
        "?? common/new.sh",
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
