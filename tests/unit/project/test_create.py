"""new.sh: what is put into a project, and what is left as it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from unit.project.user_project import ROOT, TRAIN, KilledError, UserProject, edited, git, killed_after, write

from oci_cluster.contract.settings.settings_files import read_settings_file
from oci_cluster.errors import NotPermittedError, SettingsError, UsageError
from oci_cluster.project import create
from oci_cluster.project.wheel import frameworks_of, pack, read_checkout, read_wheel, unpacked_to


def test_a_new_project_has_what_it_needs_and_nothing_else(project: UserProject) -> None:
    assert project.new("dask", code="src", entry="train.py") == 0
    assert set(project.everything()) == {
        *(".dockerignore", ".gitattributes", ".gitignore", "Makefile", "README.md", "config.env", "config.env.example"),
        *("common/lib.sh", f"vendor/{project.wheel.name}"),
        *("dask/env-lock.txt", "dask/example/train.py", "dask/start-master.sh", "dask/start-worker.sh"),
        *("scripts/clusters.mk", "scripts/launch.sh", "scripts/new.sh", "scripts/update.sh"),
    }
    assert read_settings_file(project.root / "config.env") == {"CODE_DIR": "src", "ENTRY_POINT": "train.py"}
    assert os.access(project.root / "scripts" / "launch.sh", os.X_OK)
    assert not os.access(project.root / "common" / "lib.sh", os.X_OK)
    assert "/dask/** text=auto eol=lf\n" in project.text(".gitattributes")
    assert project.said == [
        f"{project.root} has what it needs; next: cd 'my project' && ./scripts/smoke.sh dask",
    ]
    assert project.shown[:4] == [
        *("new    common/  1 file", "new    dask/  4 files", "new    scripts/  4 files", "new    vendor/  1 file"),
    ]


def test_a_second_run_changes_nothing(project: UserProject) -> None:
    project.new(code="src", entry="train.py", backend="docker")
    before = project.everything()
    assert project.new(code="src", entry="train.py", backend="docker") == 0
    assert project.everything() == before
    assert project.said == [f"{project.root} has all of this already"]


def test_what_is_there_stays(project: UserProject) -> None:
    """Of its own files a project gets lines in three, which are shown; other folders and READMEs do not change."""
    own = {
        "Makefile": "all:\n\techo mine",
        ".gitignore": "*.csv\n.venv\n",
        "config.env": "REGISTRY='a b'\n",
        "README.rst": "mine",
        "tests/test_a.py": "mine",
        "scripts/mine.sh": "mine",
        ".dockerignore": "data",
    }
    for name, text in own.items():
        project.yours(name, text)
    assert project.new(code="src", entry="my train.py") == 0
    assert project.text("Makefile") == "all:\n\techo mine\n\ninclude scripts/clusters.mk\n"
    assert project.text(".gitignore").startswith("*.csv\n.venv\n\n# Training")
    assert project.text(".gitignore").splitlines().count(".venv") == 1
    assert project.text("config.env") == "REGISTRY='a b'\nCODE_DIR=src\nENTRY_POINT='my train.py'\n"
    for name in ("README.rst", "tests/test_a.py", "scripts/mine.sh", ".dockerignore"):
        assert project.text(name) == own[name]
    assert "include" not in project.text("CLUSTERS.md")[:10]
    assert not (project.root / "README.md").exists()
    shown = project.shown.index("lines  Makefile, behind its own:")
    assert project.shown[shown + 1] == "         + include scripts/clusters.mk"
    before = project.everything()
    project.new(code="src", entry="my train.py")
    assert project.everything() == before


@pytest.mark.parametrize("line", ["include scripts/clusters.mk", "-include  ./scripts/clusters.mk # ours"])
def test_a_makefile_that_includes_ours_gets_no_second_line(project: UserProject, line: str) -> None:
    project.yours("GNUmakefile", f"all:\n{line}\n")
    project.new()
    assert project.text("GNUmakefile") == f"all:\n{line}\n"
    assert not (project.root / "Makefile").exists()


def test_lines_end_as_the_others_of_the_file_do(project: UserProject) -> None:
    project.yours("Makefile", "all:\r\n\techo\r\n")
    project.new()
    assert project.text("Makefile") == "all:\r\n\techo\r\n\r\ninclude scripts/clusters.mk\r\n"


def test_a_file_of_the_same_name_stops_all_before_anything_is_done(project: UserProject) -> None:
    """All such files are named."""
    project.yours("scripts/launch.sh", "mine\n")
    project.yours("dask/start-master.sh", "mine too\n")  # alone no framework
    before = project.everything()
    with pytest.raises(SettingsError, match=r"other files .*: dask/start-master.sh, scripts/launch.sh; rename yours"):
        project.new()
    assert project.everything() == before


def test_many_files_in_the_way_are_counted(project: UserProject) -> None:
    for number in range(12):
        project.ours(f"dask/f{number:02}", "ours")
        project.yours(f"dask/f{number:02}", "yours")
    with pytest.raises(SettingsError, match=r"dask/f09 and 2 more; rename"):
        project.new()


def test_an_edit_in_the_folder_of_a_framework_that_is_there_stays(project: UserProject) -> None:
    """Of a copy that somebody made by hand; the next update merges it."""
    shutil.copytree(project.checkout, project.root, ignore=shutil.ignore_patterns("ray"))
    project.yours("dask/example/train.py", edited(TRAIN, 3, "mine"))
    assert project.new() == 0
    assert "these are yours, and stay as they are: dask/example/train.py" in project.said
    project.next_version()
    project.ours("dask/example/train.py", edited(TRAIN, 20, "newer"))
    assert project.update() == 0
    assert project.text("dask/example/train.py") == edited(edited(TRAIN, 3, "mine"), 20, "newer")


@pytest.mark.parametrize("name", ["common", "scripts", "dask"])
def test_nothing_is_written_through_a_link(project: UserProject, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    project.root.mkdir()
    (project.root / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match=f"{name} is a link, and a folder of the templates belongs there"):
        project.new()
    assert [*(tmp_path / "elsewhere").iterdir()] == []


@pytest.mark.parametrize("name", ["Makefile", ".gitignore", "config.env"])
def test_no_line_is_written_through_a_link(project: UserProject, tmp_path: Path, name: str) -> None:
    elsewhere = write(tmp_path / "elsewhere", "A=1\n")
    project.root.mkdir()
    (project.root / name).symlink_to(elsewhere)
    with pytest.raises(SettingsError, match=f"{name} is a link, through which nothing is written; put there"):
        project.new(code="src", entry="train.py")
    assert elsewhere.read_text() == "A=1\n"
    elsewhere.write_text("CODE_DIR=src\nENTRY_POINT=train.py\n")
    if name == "config.env":
        assert project.new(code="src", entry="train.py") == 0


def test_a_setting_that_is_another_one_is_named(project: UserProject) -> None:
    project.yours("config.env", "CODE_DIR=lib\n")
    with pytest.raises(SettingsError, match=r"config.env sets CODE_DIR to 'lib', not 'src'; change it there"):
        project.new(code="src", entry="train.py")


def test_a_file_where_a_folder_belongs_is_named(project: UserProject) -> None:
    project.yours("common", "a file")
    with pytest.raises(SettingsError, match=r"common is a file, and a folder of the templates belongs there"):
        project.new()


def test_a_folder_where_a_file_belongs_is_named(project: UserProject) -> None:
    project.yours("common/lib.sh/mine", "a file")
    with pytest.raises(SettingsError, match=r"lib.sh is a folder, where a file of the templates belongs; rename it"):
        project.new()


def test_a_framework_is_added_later(project: UserProject) -> None:
    """What was edited or removed meanwhile stays so."""
    project.new("dask")
    project.yours("dask/example/train.py", "mine\n")
    (project.root / "README.md").unlink()
    (project.root / "dask/start-worker.sh").unlink()
    assert project.new("ray") == 0
    assert project.text("dask/example/train.py") == "mine\n"
    assert (project.root / "ray" / "start-master.sh").exists()
    assert not (project.root / "README.md").exists()
    assert not (project.root / "dask/start-worker.sh").exists()
    assert frameworks_of(read_wheel(project.wheel)) == ["dask", "ray"]
    assert len([*(project.root / "vendor").iterdir()]) == 1
    assert "/ray/** text=auto eol=lf" in project.text(".gitattributes")


def test_a_framework_that_was_removed_can_come_back(project: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this is interrupted: the wheel has had it all the time, and cannot say how far it came."""
    project.new("dask", "ray")
    whole = project.everything()
    for count in range(4):
        shutil.rmtree(project.root / "ray")
        with monkeypatch.context() as patch:
            killed_after(count, patch)
            with pytest.raises(KilledError):
                project.new("ray")
        assert project.new("ray") == 0
        assert project.everything() == whole


def test_targets_of_the_projects_own_are_named(project: UserProject) -> None:
    project.ours("scripts/clusters.mk", "clusters-build: ## b\nclusters-pull-check:\nclusters-$(x): y\nother:\n")
    project.yours("Makefile", "pull-check build: x\n\techo mine\nother:\nbuild-dask := 1\n")
    project.new(dry_run="")
    said = "Makefile has build, pull-check of its own, which stay; ours are clusters-build, clusters-pull-check"
    assert said in project.said
    project.new()
    assert said in project.said
    project.new("ray")
    assert said not in project.said


def test_in_a_project_a_framework_comes_from_a_source_that_has_it(project: UserProject) -> None:
    project.new("dask")
    words = {"checkout": project.root, "cwd": project.root, "show": print, "say": print}
    with pytest.raises(
        UsageError, match=r"unknown framework 'ray'; .*my project has: dask; name a version that has it: -"
    ):
        create.run(["ray", "."], {}, **words)
    assert create.run(["ray", "."], {"--from": ["../templates v1"]}, **words) == 0
    assert (project.root / "ray" / "start-master.sh").exists()
    assert create.run(["dask", "../another"], {}, **words) == 0  # with its locks
    assert (project.place / "another/dask/env-lock.txt").read_text() == "lock of dask\n"
    name, content = pack(read_checkout(project.checkout), ["dask", "ray"], with_locks=True)
    write(project.place / name, content)
    assert create.run(["ray", "../third"], {"--from": [f"../{name}"]}, **words) == 0
    assert (project.place / "third/ray/env-lock.txt").exists()


def test_a_framework_of_another_version_is_not_added(project: UserProject) -> None:
    project.new("dask")
    project.next_version()
    project.ours("common/lib.sh", "newer\n")
    with pytest.raises(
        SettingsError, match=r"another version, 0.1.0-0_\w{12}; bring it up to date first: its scripts/u"
    ):
        project.new("ray")


@pytest.mark.parametrize("count", [0, 1, 7, 15])
@pytest.mark.parametrize("later", [False, True])
def test_an_interrupted_run_is_completed_by_the_next(
    project: UserProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int, *, later: bool
) -> None:
    """Nothing differs from a project that was made at once; also where a framework is added."""
    (tmp_path / "x").mkdir()
    whole = UserProject(tmp_path / "x")
    whole.new("dask", *(["ray"] if later else []))
    if later:
        project.new("dask")
    with monkeypatch.context() as patch:
        killed_after(count if not later else count % 6, patch)
        with pytest.raises(KilledError):
            project.new("ray" if later else "dask")
    assert project.new("ray" if later else "dask") == 0
    assert project.everything() == whole.everything()


def test_a_dry_run_changes_nothing(project: UserProject) -> None:
    assert project.new(dry_run="") == 0
    assert not project.root.exists()
    assert {"new    common/lib.sh", "new    dask/example/train.py"} <= set(project.shown)
    project.yours("scripts/launch.sh", "mine\n")
    with pytest.raises(SettingsError):
        project.new(dry_run="")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["spark", "x"], "unknown framework 'spark'; .*templates v1 has: dask, ray; name a version"),
        (["dask", "templates v1/ray"], "is a folder of the templates; name your project behind"),
        (["dask", "templates v1/scripts/x"], "is a folder of the templates"),
        (["dask", "templates v1"], "is, or holds, the templates themselves"),
        (["dask", "."], "is, or holds, the templates themselves"),
        (["dask", "templates v1/LICENSE"], "is a file; name a folder"),
        (["dask", "~nobody-here/x"], "'~nobody-here/x' is in a home folder that nobody knows; give the whole path"),
    ],
)
def test_a_folder_that_cannot_be_is_refused(project: UserProject, words: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        create.run(words, {}, checkout=project.checkout, cwd=project.place, show=print, say=print)


@pytest.mark.parametrize("path", ["/src", "~/src", "../src", "a/../../b", "a\nb"])
def test_code_outside_the_project_is_refused(project: UserProject, path: str) -> None:
    with pytest.raises(UsageError, match="is no path inside the project"):
        project.new(code=path, entry="train.py")


def test_a_project_may_be_in_the_checkout(project: UserProject) -> None:
    project.root = project.checkout / "my project"
    given = {"--dry-run": [""]}
    words = ["dask", "my project"]
    assert create.run(words, {}, checkout=project.checkout, cwd=project.checkout, show=print, say=print) == 0
    assert create.run(words, given, checkout=project.checkout, cwd=project.checkout, show=print, say=print) == 0
    assert (project.root / "dask" / "start-master.sh").exists()


def test_a_place_that_cannot_be_written_is_named(project: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is done; as root everything can be."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(NotPermittedError, match="cannot be written: Permission denied; allow writing there"):
        project.new()
    assert not project.root.exists()


def test_a_folder_that_cannot_be_made_is_named(project: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(NotPermittedError, match="my project cannot be written"):
        project.new()


# --- What this checkout itself puts there -----------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["dask", "horovod", "pytorch", "ray", "tensorflow"])
def test_a_project_of_this_checkout_is_small(tmp_path: Path, framework: str) -> None:
    """What git has: 27 files with the pages in a wheel, and the framework's: 50 files, 1.65 MiB."""
    words = [framework, str(tmp_path / "p")]
    assert create.run(words, {}, checkout=ROOT, cwd=tmp_path, show=lambda _: None, say=lambda _: None) == 0
    git(tmp_path / "p", "init", "--quiet")
    git(tmp_path / "p", "add", ".")
    names = git(tmp_path / "p", "ls-files", "-z").rstrip("\0").split("\0")
    sizes = {name: (tmp_path / "p" / name).stat().st_size for name in names}
    others = {name: size for name, size in sizes.items() if not name.startswith(f"{framework}/")}
    assert (len(others), sum(others.values()) <= 1.4 * 2**20) == (27, True), others
    assert (len(sizes) <= 50, sum(sizes.values()) <= 1.65 * 2**20) == (True, True), sizes
    if framework == "dask":
        assert f"With Dask these are {len(names)} files," in (ROOT / "docs/projects.md").read_text()
    wheel = next(name for name in names if name.startswith("vendor/"))
    packed = read_wheel(tmp_path / "p" / wheel)
    wanted = {"common/LICENSE", "common/env-notebook-lock.txt", f"scripts/templates/smoke/with_{framework}.py"}
    assert wanted <= {unpacked_to(name) for name in packed}
    refused = (".pyc", f"{framework}/env-lock.txt", "dev-setup.sh")
    assert not [name for name in packed if name.endswith(refused) or "tests" in name]
