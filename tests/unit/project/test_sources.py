"""Where versions come from; what is hostile there is refused, and nothing is written for it."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.project.user_project import UserProject, git, write

from oci_cluster.errors import BackendError, SettingsError, UsageError
from oci_cluster.project import sources
from oci_cluster.project.contents import LIST
from oci_cluster.project.record import read_record
from oci_cluster.project.sources import open_archive, open_folder, open_source


@pytest.fixture
def repository(project: UserProject) -> Path:
    """Return the checkout as a repository of git, with the tag v1, and a branch `next` that has newer files."""
    git(project.checkout, "init", "--quiet")
    git(project.checkout, "add", ".")
    git(project.checkout, "commit", "--quiet", "-m", "one")
    git(project.checkout, "tag", "v1")
    git(project.checkout, "checkout", "--quiet", "-b", "next")
    project.ours("common/lib.sh", "next\n")
    git(project.checkout, "commit", "--quiet", "-am", "two")
    git(project.checkout, "checkout", "--quiet", "main")
    return project.checkout


def test_a_folder_is_taken_as_it_is_with_gits_name_for_it(project: UserProject, repository: Path) -> None:
    version = open_folder(repository)
    assert (version.name, version.commit) == ("v1", git(repository, "rev-parse", "HEAD").strip())
    project.ours("common/lib.sh", "edited\n")
    version = open_folder(repository)
    assert (version.name, version.commit) == ("v1-dirty", "")
    assert version.files["common/lib.sh"].content == b"edited\n"


@pytest.mark.parametrize("setting", ["core.fsmonitor", "filter.x.clean", "core.sshCommand", "remote.origin.uploadpack"])
def test_a_folder_runs_nothing_that_its_git_is_configured_to(
    project: UserProject, repository: Path, setting: str
) -> None:
    """To look at what somebody has sent is to run nothing of it."""
    script = write(project.place / "hostile", f'#!/bin/sh\ntouch "{project.place}/run"\n', 0o755)
    git(repository, "config", "extensions.partialClone", "origin")
    git(repository, "config", "remote.origin.url", "ssh://nobody@localhost/x")
    git(repository, "config", setting, str(script))
    project.ours(".gitattributes", "* filter=x\n")
    project.ours("common/lib.sh", "edited\n")
    assert open_folder(repository).name == "v1-dirty"
    tree = git(repository, "rev-parse", "HEAD^{tree}").strip()
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    open_folder(repository)
    assert not (project.place / "run").exists()


def test_a_folder_that_is_in_somebody_elses_git_has_no_name_of_that(project: UserProject, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "x")
    assert open_folder(project.checkout).name == "unknown"


def test_a_folder_is_read_without_git(project: UserProject, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    assert open_folder(repository).name == "unknown"
    with pytest.raises(SettingsError, match=r"git is not installed, and .* at v1 needs it; install git, or give"):
        open_source(str(repository), "v1", project.place)


@pytest.mark.parametrize("form", ["folder", "folder#ref", "url", "url#ref"])
def test_git_brings_a_ref(project: UserProject, repository: Path, form: str) -> None:
    """Whatever is checked out; the folder may have blanks in its name."""
    text = repository.as_uri() if "url" in form else repository.name
    words = (f"{text}#next", "") if "#" in form else (text, "next")
    version = open_source(*words, project.place)
    assert version.files["common/lib.sh"].content == b"next\n"
    assert (version.name, version.commit) == ("next", git(repository, "rev-parse", "next").strip())
    assert open_source(text, version.commit, project.place).name == version.commit[:12]


def test_an_url_without_a_ref_is_its_default_branch(project: UserProject, repository: Path) -> None:
    version = open_source(repository.as_uri(), "", project.place)
    assert version.commit == git(repository, "rev-parse", "main").strip()
    assert version.origin == repository.as_uri()


def test_a_hooks_variables_name_no_other_repository(
    project: UserProject, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/none")
    monkeypatch.setenv("GIT_INDEX_FILE", "/none/index")
    assert open_source(str(repository), "next", project.place).name == "next"


@pytest.mark.parametrize(
    ("text", "ref", "why"),
    [
        ("nothing", "", "'nothing' is neither a folder, nor an archive, nor an URL of git; give one of these"),
        ("templates v1/LICENSE", "v1", "an archive has no refs, got 'v1'"),
        ("templates v1", "--upload-pack=x", "'--upload-pack=x' is no branch, tag or commit"),
        ("https://h/r#v1", "v2", "the ref is given twice: 'v1' and 'v2'"),
        ("--upload-pack=x", "", "is neither a folder"),
    ],
)
def test_what_is_no_version_is_refused(project: UserProject, text: str, ref: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        open_source(text, ref, project.place)


@pytest.mark.parametrize("url", ["ext::sh -c touch% {}/run", "helper://x"])
def test_no_helper_is_run_that_an_url_names(project: UserProject, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Whatever a configuration allows, and whatever is installed."""
    write(project.place / ".gitconfig", '[protocol "ext"]\n\tallow = always\n')
    write(project.place / "git-remote-helper", f'#!/bin/sh\ntouch "{project.place}/run"\n', 0o755)
    monkeypatch.setenv("HOME", str(project.place))
    monkeypatch.setenv("PATH", f"{project.place}:{os.environ['PATH']}")
    with pytest.raises((UsageError, BackendError)):
        open_source(url.format(project.place), "main", project.place)
    assert not (project.place / "run").exists()


def test_a_ref_that_is_not_there_is_named_without_a_password(project: UserProject, repository: Path) -> None:
    with pytest.raises(BackendError, match=r"v9; name an URL and a ref that git can fetch"):
        open_source(str(repository), "v9", project.place)
    url = f"file://me:secret@{repository.as_uri().removeprefix('file://')}"
    with pytest.raises(BackendError) as caught:
        open_source(url, "v9", project.place)
    assert "secret" not in str(caught.value)


# --- Archives ---------------------------------------------------------------------------------------------------------


def archive(path: Path, *entries: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for entry, content in entries:
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content) if content else None)
    return path


def entry(
    name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found, content


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("top", ["", "templates-1.2/", "./"])
def test_an_archive_may_be_compressed_and_have_all_in_one_folder(project: UserProject, mode: str, top: str) -> None:
    path = project.place / "templates-1.2.tar.gz"
    with tarfile.open(path, mode) as tar:
        tar.add(project.checkout, arcname=top or ".")
    version = open_source(path.name, "", project.place)
    assert (version.name, version.commit, version.origin) == ("templates-1.2", "", str(path))
    assert version.files["scripts/launch.sh"].mode == "100755"
    project.new("dask")
    project.ours("common/lib.sh", "newer\n")
    assert project.update(path.name) == 0
    assert project.text("common/lib.sh") != "newer\n"
    record = read_record(project.root)
    assert record is not None
    assert record.origin == str(path)


def test_an_archive_of_git_knows_its_commit(project: UserProject, repository: Path) -> None:
    git(repository, "archive", "--prefix=t/", "--output", str(project.place / "t.tar"), "next")
    version = open_source("t.tar", "", project.place)
    assert version.commit == git(repository, "rev-parse", "next").strip()


HOSTILE: dict[str, tuple[list[tuple[tarfile.TarInfo, bytes]], str]] = {
    "absolute": ([entry("/tmp/x")], "'/tmp/x' is no path inside a project"),
    "above": ([entry("../x")], "'../x' is no path inside a project"),
    "above, later": ([entry("common/../../x")], "is no path inside a project"),
    "hooks": ([entry(".git/hooks/post-checkout")], "is no path inside a project"),
    "hooks, on macOS": ([entry("common/.GIT/config")], "is no path inside a project"),
    "backslash": ([entry("common\\..\\x")], "is no path inside a project"),
    "a link out": ([entry("common/a", b"", tarfile.SYMTYPE, "../../x")], "the link 'common/a' leads out"),
    "an absolute link": ([entry("a", b"", tarfile.SYMTYPE, "/etc")], "the link 'a' leads out of its folder, to '/etc'"),
    "a link to nothing": ([entry("a", b"", tarfile.SYMTYPE, "")], "the link 'a' leads out"),
    "through a link": ([entry("a", b"", tarfile.SYMTYPE, "common"), entry("a/b")], "'a' is a file, and the folder of"),
    "a file as folder": ([entry("a"), entry("a/b")], "'a' is a file, and the folder of 'a/b'"),
    "twice": ([entry("a"), entry("a")], "'a' is there twice"),
    "a hard link": ([entry("a", b"", tarfile.LNKTYPE, "common/lib.sh")], "'a' is neither a file, a folder nor a"),
    "a device": ([entry("a", b"", tarfile.CHRTYPE)], "'a' is neither a file"),
    "a pipe": ([entry("a", b"", tarfile.FIFOTYPE)], "'a' is neither a file"),
}


@pytest.mark.parametrize(("entries", "why"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_is_refused_as_a_whole(
    project: UserProject, entries: list[tuple[tarfile.TarInfo, bytes]], why: str
) -> None:
    project.new("dask")
    before = project.everything()
    listed = entry(LIST, (project.checkout / LIST).read_bytes())
    path = archive(project.place / "x.tar", listed, *entries)
    with pytest.raises(SettingsError, match="cannot be used as an archive: ") as caught:
        project.update(str(path))
    assert why in str(caught.value)
    assert project.everything() == before


@pytest.mark.parametrize("goal", ["../x", "/x", ".git/hooks/", "a/../../x", "a//b"])
def test_a_hostile_list_names_nothing_outside(project: UserProject, goal: str) -> None:
    project.new("dask")
    project.next_version()
    project.ours(LIST, f"common/\nLICENSE -> {goal}\n")
    with pytest.raises(SettingsError, match=r"contents.txt:2: '.*' is no path inside a project; if that"):
        project.update()


@pytest.mark.parametrize("goal", [".envrc", ".github/workflows/x.yml", ".venv/bin/python", "Makefile", "src/train.py"])
def test_a_hostile_list_writes_where_templates_are_alone(project: UserProject, goal: str) -> None:
    """A shell, a workflow or an interpreter of the user's would run it."""
    project.new("dask")
    project.next_version()
    for line in (f"LICENSE -> {goal}", f"? LICENSE -> {goal}"):
        project.ours(LIST, f"common/\n{line}\n")
        with pytest.raises(SettingsError, match=f"contents.txt:2: '{goal}' is in none of common/, scripts/"):
            project.update()


def test_a_link_by_way_of_a_link_is_refused(project: UserProject) -> None:
    """Each of them stays inside; where they lead together is another matter."""
    first = entry("common/a/b", b"", tarfile.SYMTYPE, link="../../scripts")
    second = entry("common/c", b"", tarfile.SYMTYPE, link="a/b/../../x")
    path = archive(project.place / "x.tar", first, second)
    with pytest.raises(SettingsError, match="the link 'common/c' leads by way of another one, 'common/a/b'"):
        open_archive(path)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_name_that_is_as_long_as_memory_is_not_read(
    project: UserProject, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Compressed, an archive of it is small."""
    monkeypatch.setattr(sources, "_MAX_TAR_BYTES", 1 << 20)
    path = archive(project.place / "x.tar", entry("a/" * 600_000 + "a"), mode=mode)
    with pytest.raises(SettingsError, match="it goes on after 1 MiB"):
        open_archive(path)


def test_an_archive_that_is_too_large_is_refused(project: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it says that it holds, before that is read."""
    path = archive(project.place / "x.tar", entry("a", b"12345"), entry("b"))
    monkeypatch.setattr(sources, "_MAX_BYTES", 5)
    with pytest.raises(SettingsError, match="more than 0 MiB or 20000 files"):
        open_archive(path)
    monkeypatch.setattr(sources, "_MAX_BYTES", 50)
    monkeypatch.setattr(sources, "_MAX_FILES", 1)
    with pytest.raises(SettingsError, match="or 1 files"):
        open_archive(path)


@pytest.mark.parametrize(
    "spoil", [lambda _: b"no archive", lambda content: content[:100], lambda content: content[:400]], ids=[0, 1, 2]
)
@pytest.mark.parametrize("mode", ["w:gz", "w:xz"])
def test_an_archive_that_is_broken_is_named(project: UserProject, spoil: Callable[[bytes], bytes], mode: str) -> None:
    path = project.place / "x.tar.gz"
    with tarfile.open(path, mode) as tar:
        tar.add(project.checkout, arcname=".")
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(SettingsError, match="cannot be used as an archive"):
        open_archive(path)


def test_what_is_no_checkout_of_templates_is_named(project: UserProject) -> None:
    (project.place / "other").mkdir()
    with pytest.raises(SettingsError, match=r"other has no scripts/templates/project/contents.txt; name a checkout"):
        open_folder(project.place / "other")
    with pytest.raises(SettingsError, match=r"x.tar has no scripts/templates/project/contents.txt"):
        open_archive(archive(project.place / "x.tar", entry("a")))


def test_links_of_a_folder_do_not_lead_out(project: UserProject) -> None:
    (project.checkout / "common" / "a").symlink_to("/etc/passwd")
    with pytest.raises(SettingsError, match="the link 'common/a' leads out of its folder, to '/etc/passwd'; corr"):
        open_folder(project.checkout)


def test_links_to_folders_are_links(project: UserProject) -> None:
    (project.checkout / "common" / "a").symlink_to("../dask")
    assert open_folder(project.checkout).files["common/a"].content == b"../dask"


def test_what_cannot_be_read_is_named(project: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(SettingsError, match="cannot be read: Permission denied; allow reading it"):
        open_folder(project.checkout)
