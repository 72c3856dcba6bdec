"""Where versions come from; what is hostile there is refused, and nothing is run or written for it."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.project.user_project import UserProject, git, write

from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.project import wheel
from oci_cluster.project.wheel import open_folder, open_source, pack, read_checkout, read_wheel

LIB = "common/lib.sh"
DATA = "oci_cluster-0.1.0.data/data/share/oci-cluster"


def test_a_folder_is_taken_as_it_is_without_git(project: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    project.ours(LIB, "edited\n")
    files = open_source(project.checkout.name, project.place)
    assert files[LIB].content == b"edited\n"
    assert not [name for name in files if "__pycache__" in name or "extra-env" in name or "dev-setup" in name]


def test_nothing_is_run_that_a_repository_is_configured_to(project: UserProject) -> None:
    """To look at what somebody has sent is to run nothing of it."""
    script = write(project.place / "hostile", f'#!/bin/sh\ntouch "{project.place}/run"\n', 0o755)
    git(project.checkout, "init", "--quiet")
    for setting in ("core.fsmonitor", "filter.x.clean", "filter.x.smudge", "core.sshCommand"):
        git(project.checkout, "config", setting, str(script))
    project.ours(".gitattributes", "* filter=x\n")
    open_folder(project.checkout)
    assert not (project.place / "run").exists()


@pytest.mark.parametrize("text", ["nothing", "https://example.com/oci-cluster.git", "~nobody-here/x"])
def test_what_is_no_version_is_refused(project: UserProject, text: str) -> None:
    with pytest.raises(UsageError, match="' is neither a folder nor a wheel; give a checkout: git clone brings one"):
        open_source(text, project.place)


@pytest.mark.parametrize("place", ["common/a", "scripts/templates/more", "ray"])
def test_a_link_is_not_followed_out_of_a_checkout(project: UserProject, place: str) -> None:
    """What it leads to may be a key of whoever takes the version."""
    write(project.place / "mine/start-master.sh", "mine")
    path = project.checkout / place
    if path.is_dir():
        path.rename(project.place / "ray")
    path.symlink_to(project.place / "mine")
    with pytest.raises(SettingsError, match=f"{place} is a link, which no project gets; put a file in its place"):
        open_folder(project.checkout)


def test_what_is_no_checkout_or_cannot_be_read_is_named(project: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.place / "other").mkdir()
    with pytest.raises(SettingsError, match=r"other has no common/pyproject.toml; name a checkout"):
        open_folder(project.place / "other")

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(SettingsError, match="cannot be read: Permission denied; allow reading it"):
        open_folder(project.checkout)


# --- Wheels -----------------------------------------------------------------------------------------------------------


def test_a_project_is_a_version_as_long_as_its_locks_are_as_they_came(project: UserProject) -> None:
    """Its wheel has no room for them; alone it is none."""
    project.new("dask")
    files = open_folder(project.root)
    assert files == {
        name: file for name, file in read_checkout(project.checkout).items() if not name.startswith("ray/")
    }
    project.yours("dask/env-lock.txt", "mine\n")
    with pytest.raises(SettingsError, match=r"has not dask/env-lock.txt, nor is it beside it"):
        open_folder(project.root)
    project.wheel.rename(project.place / project.wheel.name)
    name = next(project.place.glob("*.whl")).name
    with pytest.raises(SettingsError, match=r"has not dask/env-lock.txt, nor is it beside it; name a checkout, or"):
        open_source(name, project.place)


HOSTILE: dict[str, tuple[list[tuple[str, int]], str]] = {
    "absolute": ([("/tmp/x", 0o100644)], "'/tmp/x' is there twice, is no file, or leads out"),
    "above": ([("../x", 0o100644)], "'../x' is"),
    "above, later": ([(f"{DATA}/../../../../x", 0o100644)], "or leads out"),
    "hooks": ([(f"{DATA}/.git/hooks/post-checkout", 0o100644)], "or leads out"),
    "hooks, on macOS": ([(f"{DATA}/common/.GIT/config", 0o100644)], "or leads out"),
    "backslash": ([(f"{DATA}/common\\..\\x", 0o100644)], "or leads out"),
    "a link": ([(f"{DATA}/common/a", 0o120777)], "a' is there twice, is no file, or leads out"),
    "a folder": ([(f"{DATA}/common/a/", 0o040755)], "is no file"),
    "a device": ([(f"{DATA}/common/a", 0o020644)], "is no file"),
    "twice": ([(f"{DATA}/a", 0o100644), (f"{DATA}/a", 0o100644)], "is there twice"),
    "a file as folder": ([(f"{DATA}/a", 0o100644), (f"{DATA}/a/b", 0o100644)], "'a/b' is in a folder that is a file"),
    "elsewhere": ([("x.pth", 0o100644)], "'x.pth' is no place in a wheel of ours"),
    "scripts of pip": ([("oci_cluster-0.1.0.data/scripts/x", 0o100644)], "is no place in a wheel"),
}


@pytest.mark.parametrize(("entries", "why"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_wheel_is_refused_as_a_whole(project: UserProject, entries: list[tuple[str, int]], why: str) -> None:
    project.new("dask")
    before = project.everything()
    files = read_checkout(project.checkout)
    name, content = pack(files, ["dask"], with_locks=True)
    path = write(project.place / name, content)
    with zipfile.ZipFile(path, "a") as archive:
        for member, mode in entries:
            entry = zipfile.ZipInfo(member)
            entry.external_attr = mode << 16
            archive.writestr(entry, b"x")
    with pytest.raises(SettingsError, match="cannot be used as a wheel of the templates: ") as caught:
        project.update(path.name)
    assert why in str(caught.value)
    assert project.everything() == before


def test_a_wheel_writes_where_templates_are_alone(project: UserProject) -> None:
    """A shell, a workflow or an interpreter of the user's would run what stands elsewhere."""
    project.new("dask")
    files = dict(read_checkout(project.checkout))
    names = (".envrc", ".github/workflows/x.yml", ".venv/bin/python", "Makefile", "src/train.py", "dask/.envrc")
    for name in (*names, "scripts/x/y.sh", "scripts/.envrc", "vendor/x.whl", "spark/start-master.sh", "ray/mine"):
        files[name] = files["LICENSE"]
    files["common/lib.sh"] = files["LICENSE"]
    name, content = pack(files, ["dask", "spark"], with_locks=True)
    write(project.place / name, content)
    before = project.everything()
    assert project.update(name) == 0
    after = project.everything()
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == {
        *("common/lib.sh", *(name for name in {*before, *after} if name.startswith("vendor/"))),
    }
    project.unpack()
    assert not {"scripts/x", "common/x"} & {
        path.relative_to(project.root).as_posix() for path in project.root.rglob("*")
    }


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda _: b"no wheel",
    "cut": lambda content: content[:900],
    "damaged": lambda content: content[:300] + bytes(400) + content[700:],
    "a pointer of git-lfs": lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_wheel_that_is_broken_is_named(project: UserProject, spoil: Callable[[bytes], bytes]) -> None:
    name, content = pack(read_checkout(project.checkout), ["dask"])
    path = write(project.place / name, spoil(content))
    with pytest.raises(SettingsError, match="cannot be used as a wheel of the templates"):
        read_wheel(path)
    with pytest.raises(SettingsError, match="its name is not oci_cluster-VERSION-0_BUILD-"):
        read_wheel(write(project.place / "x.whl", content))


def test_a_wheel_that_is_too_large_is_refused(project: UserProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it says that it holds, before that is read."""
    name, content = pack(read_checkout(project.checkout), ["dask"])
    path = write(project.place / name, content)
    for limit in ("_MAX_BYTES", "_MAX_FILES"):
        with monkeypatch.context() as patch:
            patch.setattr(wheel, limit, 5)
            with pytest.raises(SettingsError, match=r"more than .* MiB or .* files"):
                read_wheel(path)


def test_bits_of_a_wheel_are_those_of_files(project: UserProject) -> None:
    name, content = pack(read_checkout(project.checkout), ["dask"])
    with zipfile.ZipFile(write(project.place / name, content)) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    assert all(stat.S_ISREG(mode) for mode in modes.values())
    assert modes[f"{DATA}/scripts/launch.sh"] & stat.S_IXUSR
    assert not modes[f"{DATA}/common/lib.sh"] & stat.S_IXUSR
