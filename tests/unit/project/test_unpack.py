"""The wheel of a project, unpacked in place: what is the user's own stays, and nothing is written elsewhere."""

from __future__ import annotations

import concurrent.futures
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from unit.project.user_project import TEMPLATE, KilledError, UserProject, git, killed_after, write

from oci_cluster.errors import SettingsError
from oci_cluster.project.files import alone
from oci_cluster.project.unpack import LIST, main

MODULE = "common/oci_cluster/__init__.py"


@pytest.fixture
def old(project: UserProject) -> UserProject:
    """Return a project of the version v1, unpacked; the checkout is a copy of it, which is to become v2."""
    project.new("dask")
    project.unpack()
    project.next_version()
    return project


def test_all_is_there_that_a_checkout_has_and_git_does_not_see_it(project: UserProject) -> None:
    project.new("dask")
    git(project.root, "init", "--quiet")
    git(project.root, "add", ".")
    before = git(project.root, "status", "--short")
    project.unpack()
    assert project.said == []
    for name in (MODULE, TEMPLATE, "common/pyproject.toml"):
        assert project.text(name) == (project.checkout / name).read_text()
    assert project.text("common/LICENSE") == "LICENSE\n"
    assert project.text(LIST).startswith(f"{project.wheel.name}\n")
    project.yours("scripts/templates/mine.j2", "mine")
    project.yours("scripts/sessions/mine/start.sh", "mine")
    assert git(project.root, "status", "--short").removeprefix(before).splitlines() == [
        "?? scripts/sessions/",
        "?? scripts/templates/",
    ]
    git(project.root, "add", ".")
    assert sorted(git(project.root, "ls-files", "scripts/sessions", "scripts/templates").splitlines()) == [
        "scripts/sessions/mine/start.sh",
        "scripts/templates/mine.j2",
    ]


def test_a_second_time_nothing_is_done_and_a_checkout_has_no_wheel(old: UserProject, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in old.root.rglob("*")}
    old.unpack()
    assert {path: path.stat().st_mtime_ns for path in old.root.rglob("*")} == before
    old.root = old.checkout
    old.unpack()
    assert not (old.checkout / LIST).exists()


def test_a_newer_wheel_replaces_adds_and_removes(old: UserProject) -> None:
    old.ours(TEMPLATE, "newer\n")
    old.ours("scripts/templates/more/a.j2", "a\n")
    (old.checkout / "common/pyproject.toml").write_bytes((old.checkout / "common/pyproject.toml").read_bytes() + b"#\n")
    (old.checkout / "scripts/templates/project/README.md").unlink()
    old.update()
    old.unpack()
    assert old.said == []
    assert (old.text(TEMPLATE), old.text("scripts/templates/more/a.j2")) == ("newer\n", "a\n")
    assert not (old.root / "scripts/templates/project/README.md").exists()
    (old.checkout / "scripts/templates/more/a.j2").unlink()
    old.update()
    old.unpack()
    assert not (old.root / "scripts/templates/more").exists()


def test_a_file_that_was_edited_wins_and_is_told_of(old: UserProject) -> None:
    """In every version from then on, also where the package has it no more, and in a clone."""
    git(old.root, "init", "--quiet")
    old.yours(TEMPLATE, "mine\n")
    git(old.root, "add", ".")
    git(old.root, "add", "-f", TEMPLATE)
    for text in ("newer\n", "newest\n"):
        old.ours(TEMPLATE, text)
        old.update()
        old.unpack()
        assert old.text(TEMPLATE) == "mine\n"
        assert old.said == [
            f"{TEMPLATE} is not what {old.wheel.name} has: yours counts; remove it to have the newer one",
        ]
    git(old.root, "add", ".")
    git(old.root, "commit", "--quiet", "-m", "mine")
    git(old.place, "clone", "--quiet", str(old.root), "clone")
    clone = UserProject(old.place / "x")
    clone.root = old.place / "clone"
    clone.unpack()
    assert clone.text(TEMPLATE) == "mine\n"
    assert clone.text(MODULE) == old.text(MODULE)
    (old.checkout / TEMPLATE).unlink()
    old.update()
    old.unpack()
    assert old.text(TEMPLATE) == "mine\n"


@pytest.mark.parametrize("is_told", [False, True])
def test_an_edited_file_that_is_removed_comes_back_newer(old: UserProject, *, is_told: bool) -> None:
    """Removed before or after it is said; another file that was edited stays, and all else is of the newer version."""
    old.yours(TEMPLATE, "mine\n")
    old.yours("common/pyproject.toml", "mine\n")
    old.ours(TEMPLATE, "newer\n")
    newer = old.text(MODULE) + "newer = 1\n"
    old.ours(MODULE, newer)
    old.update()
    if is_told:
        old.unpack()
    (old.root / TEMPLATE).unlink()
    old.unpack()
    assert (old.text(TEMPLATE), old.text(MODULE)) == ("newer\n", newer)
    assert old.text("common/pyproject.toml") == "mine\n"
    old.unpack()
    assert old.said == []


def test_a_gitignore_of_the_users_own_stays(project: UserProject) -> None:
    project.yours("scripts/.gitignore", "mine\n")
    project.new("dask")
    project.unpack()
    assert project.text("scripts/.gitignore") == "mine\n"


@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_an_interrupted_run_is_completed_by_the_next_also_of_another_wheel(
    old: UserProject, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """What it has left is not taken for the user's."""
    old.ours(TEMPLATE, "newer\n")
    old.ours(MODULE, '__version__ = "0.2.0"\n')
    old.update()
    with monkeypatch.context() as patch:
        killed_after(count, patch)
        if count < 4:
            with pytest.raises(KilledError):
                old.unpack()
        else:
            old.unpack()
    old.ours(TEMPLATE, "newest\n")
    old.ours(MODULE, '__version__ = "0.3.0"\n')
    old.update()
    old.unpack()
    assert old.said == []
    assert (old.text(TEMPLATE), old.text(MODULE)) == ("newest\n", '__version__ = "0.3.0"\n')


def test_two_at_once_unpack_once(project: UserProject) -> None:
    """As two launches in a fresh clone do: both find all, and neither an unfinished file."""
    project.new("dask")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from oci_cluster.project import unpack; "
        "done = unpack.main(sys.argv[2]); sys.path[0] = sys.argv[2] + '/common'; "
        "sys.exit(done or not open(sys.argv[2] + '/common/pyproject.toml').read())"
    )
    real = Path(__file__).resolve().parents[3] / "common"
    command = [sys.executable, "-I", "-c", code, str(real), str(project.root)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(6)]
    assert [(one.communicate()[1], one.returncode) for one in running] == [(b"", 0)] * 6
    assert project.text(LIST).startswith(f"{project.wheel.name}\n")


def test_who_comes_second_waits_and_finds_all_done(project: UserProject) -> None:
    project.new("dask")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with alone(project.root / "common"):
            done = pool.submit(project.unpack)
            with pytest.raises(concurrent.futures.TimeoutError):
                done.result(0.3)
            project.yours(LIST, f"{project.wheel.name}\n")
        done.result(60)
    assert not (project.root / TEMPLATE).exists()


def test_two_wheels_are_an_error_that_names_both(old: UserProject, capsys: pytest.CaptureFixture[str]) -> None:
    other = "oci_cluster-9.0.0-0_000000000000-py3-none-any.whl"
    old.yours(f"vendor/{other}", "")
    assert main(str(old.root)) == 78
    said = capsys.readouterr().err
    assert f"vendor has {min(other, next((old.root / 'vendor').glob('*0.1.0*')).name)} and " in said
    assert "remove all but the one that counts" in said


@pytest.mark.parametrize("name", ["common", "scripts/templates", "common/oci_cluster"])
def test_nothing_is_written_through_a_link(project: UserProject, name: str) -> None:
    project.new("dask")
    (project.place / "elsewhere").mkdir()
    if (project.root / name).exists():
        (project.root / name).rename(project.place / "moved")
    (project.root / name).symlink_to(project.place / "elsewhere")
    with pytest.raises(SettingsError, match=f"{name} is a link, and a folder of the templates belongs there"):
        project.unpack()
    assert [*(project.place / "elsewhere").iterdir()] == []


def test_a_list_that_somebody_has_written_removes_nothing_elsewhere(old: UserProject) -> None:
    """It is in no git, and whoever can write it could remove more; a wrong one is no reason to."""
    names = ("common/../../mine", "../mine", "src/x", "common/lib.sh")
    old.yours("src/x", "mine")
    old.yours("common/lib.sh", "mine")
    write(old.place / "mine", "mine")
    digest = hashlib.sha256(b"mine").hexdigest()
    old.yours(LIST, "\n".join(["other.whl", *(f"{digest}  {name}" for name in names), "nonsense", ""]))
    old.unpack()
    assert [(old.root / name).read_text() for name in names] == ["mine"] * 4
    assert old.text(LIST).startswith(f"{old.wheel.name}\n")
