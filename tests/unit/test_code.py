from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import pytest

from oci_cluster import code as code_module
from oci_cluster.code import fetch_code, pack_code
from oci_cluster.errors import SettingsError, StorageError


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "my code"


def tree(folder: Path) -> dict[str, str]:
    """Return every file in *folder* but git's own, with its text."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


# --- Archives -------------------------------------------------------------------------------------------------------


def member(name: str, **fields: object) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(entry, key, value)
    return entry


def archive(*entries: tarfile.TarInfo | tuple[str, bytes], mode: str = "w") -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode=mode) as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
            else:
                tar.addfile(member(entry[0], size=len(entry[1])), io.BytesIO(entry[1]))
    return body.getvalue()


def upload(tmp_path: Path, body: bytes, name: str = "code.tar") -> str:
    """Return the URI of an archive that holds *body*."""
    (tmp_path / name).write_bytes(body)
    return f"file://{tmp_path}/{name}#sha256={hashlib.sha256(body).hexdigest()}"


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_an_archive_becomes_the_code_directory(tmp_path: Path, target: Path, mode: str) -> None:
    """A tar, compressed or not, is unpacked with its folders, and nothing else is left in the code directory."""
    uri = upload(tmp_path, archive(("train.py", b"print()"), ("lib/a b.py", b"x = 1"), mode=mode))
    fetch_code(uri, target)
    assert tree(target) == {"train.py": "print()", "lib/a b.py": "x = 1"}
    assert sorted(path.name for path in target.iterdir()) == ["lib", "train.py"]


@pytest.mark.usefixtures("empty_memory")
def test_an_archive_comes_from_any_file_system(target: Path) -> None:
    """The URL is any that fsspec can open."""
    body = archive(("train.py", b"print()"))
    fsspec.filesystem("memory").pipe_file("/bucket/code.tar", body)
    fetch_code(f"memory://bucket/code.tar#sha256={hashlib.sha256(body).hexdigest()}", target)
    assert tree(target) == {"train.py": "print()"}


def test_an_empty_code_directory_is_filled(tmp_path: Path, target: Path) -> None:
    """An image may have made the directory beforehand."""
    target.mkdir()
    fetch_code(upload(tmp_path, archive(("a", b"1"))), target)
    assert tree(target) == {"a": "1"}


def test_code_is_not_mixed_with_what_is_there(tmp_path: Path, target: Path) -> None:
    """Fetched code needs a directory of its own: nothing is overwritten."""
    target.mkdir()
    (target / "old.py").write_text("old")
    with pytest.raises(SettingsError) as caught:
        fetch_code(upload(tmp_path, archive(("old.py", b"new"))), target)
    assert str(caught.value) == f"CODE_DIR {target} is not empty; fetched code needs a directory of its own"
    assert tree(target) == {"old.py": "old"}


def test_another_content_is_refused(tmp_path: Path, target: Path) -> None:
    """An archive whose hash is another's is not unpacked, and both hashes are named."""
    expected = "0" * 64
    uri = upload(tmp_path, archive(("evil.py", b"x")))
    url, _, found = uri.partition("#sha256=")
    with pytest.raises(SettingsError) as caught:
        fetch_code(f"{url}#sha256={expected}", target)
    assert str(caught.value) == (
        f"CODE_URI {url} has sha256 {found}, expected {expected}; upload it again or correct the URI"
    )
    assert list(target.iterdir()) == []


LINK, HARD_LINK, DEVICE, PIPE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE


@pytest.mark.parametrize(
    "entries",
    [
        [("../evil.py", b"x")],
        [("lib/../../evil.py", b"x")],
        [member("link", type=LINK, linkname="../outside")],
        [member("link", type=LINK, linkname="/etc/passwd")],
        [member("up", type=LINK, linkname=".."), ("up/evil.py", b"x")],
        [member("hard", type=HARD_LINK, linkname="../code.tar")],
        [member("null", type=DEVICE, devmajor=1, devminor=3)],
        [member("pipe", type=PIPE)],
    ],
    ids=["up", "up inside", "link up", "absolute link", "through a link", "hard link", "device", "pipe"],
)
def test_an_archive_cannot_reach_outside(
    tmp_path: Path, target: Path, entries: list[tarfile.TarInfo | tuple[str, bytes]]
) -> None:
    """Paths and links that leave the code directory, devices and pipes are refused, and nothing is put anywhere."""
    uri = upload(tmp_path, archive(("good.py", b"1"), *entries))
    with pytest.raises(SettingsError, match="cannot be unpacked"):
        fetch_code(uri, target)
    assert list(target.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code.tar", "my code"]


def test_an_absolute_path_is_taken_from_the_code_directory(tmp_path: Path, target: Path) -> None:
    """A leading slash is taken off: the file lands inside, never at the root."""
    outside = tmp_path / "outside.py"
    fetch_code(upload(tmp_path, archive((str(outside), b"x"))), target)
    assert (tree(target), outside.exists()) == ({str(outside).lstrip("/"): "x"}, False)


def test_set_user_id_bits_are_dropped(tmp_path: Path, target: Path) -> None:
    """An unpacked file gives nobody another's rights."""
    fetch_code(upload(tmp_path, archive(member("tool", mode=0o6777))), target)
    assert oct((target / "tool").stat().st_mode & 0o7022) == "0o0"


def test_links_inside_are_kept(tmp_path: Path, target: Path) -> None:
    """A link that stays in the code directory is part of the code."""
    entries = [("lib/a.py", b"1"), member("b.py", type=LINK, linkname="lib/a.py")]
    fetch_code(upload(tmp_path, archive(*entries)), target)
    assert ((target / "b.py").is_symlink(), (target / "b.py").read_text()) == (True, "1")


def test_what_is_no_archive_is_named(tmp_path: Path, target: Path) -> None:
    """A file of the right hash that is no tar is a wrong setting."""
    uri = upload(tmp_path, b"PK\x03\x04 is a zip")
    with pytest.raises(SettingsError) as caught:
        fetch_code(uri, target)
    assert str(caught.value).startswith(f"CODE_URI file://{tmp_path}/code.tar cannot be unpacked: ")
    assert list(target.iterdir()) == []


def test_a_truncated_archive_is_named(tmp_path: Path, target: Path) -> None:
    """An archive that was cut off before it was hashed is a wrong setting, not a bug in the agent."""
    whole = archive(("a.bin", bytes(range(256)) * 400), mode="w:gz")
    with pytest.raises(SettingsError, match="cannot be unpacked"):
        fetch_code(upload(tmp_path, whole[: len(whole) // 2]), target)


@pytest.mark.parametrize("url", ["file:///nowhere/code.tar", "nosuch://bucket/code.tar", "memory://bucket/none.tar"])
def test_an_archive_that_cannot_be_read_is_storages_failure(target: Path, url: str) -> None:
    """Whatever a file system raises is named with the URI (69), and nothing is left behind."""
    with pytest.raises(StorageError) as caught:
        fetch_code(f"{url}#sha256={'0' * 64}", target)
    assert str(caught.value).startswith(f"CODE_URI {url}: ")
    assert list(target.iterdir()) == []


def test_a_folder_in_an_archives_place_is_named(tmp_path: Path, target: Path) -> None:
    """A URL that names a folder is a failure with a name, not a bug in the agent."""
    with pytest.raises((SettingsError, StorageError), match="CODE_URI"):
        fetch_code(f"file://{tmp_path}#sha256={'0' * 64}", target)


def test_a_code_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file in the code directory's place is a wrong setting, not a bug in the agent."""
    uri = upload(tmp_path, archive(("a", b"1")))
    with pytest.raises(SettingsError, match="CODE_DIR"):
        fetch_code(uri, tmp_path / "code.tar")


@pytest.mark.parametrize(
    "uri",
    [
        "file:///code.tar",
        "file:///code.tar#sha256=",
        f"file:///code.tar#sha256={'0' * 63}",
        f"file:///code.tar#sha256={'0' * 65}",
        f"file:///code.tar#sha256={'G' * 64}",
        f"file:///code.tar#md5={'0' * 64}",
        f"#sha256={'0' * 64}",
        "https://example.org/r@main",
        "git+https://example.org/r",
        "git+https://example.org/r@",
        "git+https://example.org/r@-main",
        "git+https://example.org/r@--upload-pack=touch evil",
        "git+https://example.org/r@+main",
        "git+https://example.org/r@main:refs/heads/x",
        "git+https://example.org/r@main\n",
        "git+@main",
        "",
    ],
)
def test_a_uri_of_another_form_is_refused(target: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tar without its hash, or a ref that git could take for an option, is refused before anything is called."""
    monkeypatch.setattr(code_module.subprocess, "run", pytest.fail)
    with pytest.raises(SettingsError) as caught:
        fetch_code(uri, target)
    assert str(caught.value) == (
        f"CODE_URI '{uri}' is neither <URL of a tar>#sha256=<64 hex digits> nor git+<URL>@<ref>"
    )
    assert list(target.iterdir()) == []


# --- Repositories ---------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with two commits on main, the first of them tagged v1, and a branch with a slash."""
    place = tmp_path / "a repository"

    def git(*words: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *identity, "-C", place, *words], check=True, capture_output=True)

    place.mkdir()
    git("init", "--quiet")
    for text in ("one", "two"):
        (place / "train.py").write_text(text)
        git("add", "train.py")
        git("commit", "--quiet", "--message", text)
        if text == "one":
            git("tag", "v1")
    git("checkout", "--quiet", "-b", "user/topic")
    (place / "train.py").write_text("topic")
    git("commit", "--quiet", "--all", "--message", "topic")
    git("checkout", "--quiet", "main")
    return place


def commit(repository: Path, ref: str) -> str:
    found = subprocess.run(["git", "-C", repository, "rev-parse", ref], check=True, capture_output=True, text=True)
    return found.stdout.strip()


@pytest.mark.parametrize(("ref", "text"), [("main", "two"), ("v1", "one"), ("user/topic", "topic")])
def test_a_branch_or_tag_becomes_the_code_directory(repository: Path, target: Path, ref: str, text: str) -> None:
    """The files of the branch or tag that is named are there."""
    fetch_code(f"git+file://{repository}@{ref}", target)
    assert tree(target) == {"train.py": text}


def test_a_commit_becomes_the_code_directory(repository: Path, target: Path) -> None:
    """A commit can be named by its hash, so that every run takes the same one."""
    fetch_code(f"git+file://{repository}@{commit(repository, 'v1')}", target)
    assert tree(target) == {"train.py": "one"}


def test_only_what_is_needed_is_fetched(repository: Path, target: Path) -> None:
    """One commit is fetched, not the history of a project."""
    fetch_code(f"git+file://{repository}@main", target)
    done = subprocess.run(["git", "-C", target, "rev-list", "--count", "HEAD"], check=True, capture_output=True)
    assert done.stdout == b"1\n"


def test_the_last_at_begins_the_ref(tmp_path: Path, repository: Path, target: Path) -> None:
    """A URL may have an @ of its own, as git@host has."""
    other = repository.rename(tmp_path / "me@work")
    fetch_code(f"git+file://{other}@v1", target)
    assert tree(target) == {"train.py": "one"}


def test_a_ref_that_is_not_there_is_named(repository: Path, target: Path) -> None:
    """git's own words are told beside the URI (69), and nothing is left behind."""
    with pytest.raises(StorageError) as caught:
        fetch_code(f"git+file://{repository}@nope", target)
    assert str(caught.value) == (f"CODE_URI git+file://{repository}@nope: fatal: couldn't find remote ref nope")
    assert list(target.iterdir()) == []


def test_a_url_is_never_an_option_of_git(tmp_path: Path, target: Path) -> None:
    """A URL that begins with a dash stands after --, where git takes it for a URL."""
    witness = tmp_path / "witness"
    with pytest.raises(StorageError):
        fetch_code(f"git+--upload-pack=touch {witness};@main", target)
    assert not witness.exists()


def test_a_url_cannot_name_a_program(tmp_path: Path, target: Path) -> None:
    """git's ext:: transport, which runs what it is given, stays shut."""
    witness = tmp_path / "witness"
    with pytest.raises(StorageError, match="transport 'ext' not allowed"):
        fetch_code(f"git+ext::touch {witness}@main", target)
    assert not witness.exists()


def test_a_machine_without_git_says_so(target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing git is named, not a bug in the agent."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StorageError) as caught:
        fetch_code("git+https://example.org/r@main", target)
    assert str(caught.value) == ("CODE_URI git+https://example.org/r@main: [Errno 2] No such file or directory: 'git'")


def test_git_is_not_waited_for_without_end(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer is storage's failure after the timeout, and git cannot ask anybody anything."""
    asked: list[tuple[float, int]] = []

    def run(command: list[str], *, timeout: float, stdin: int, **_: object) -> None:
        asked.append((timeout, stdin))
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(code_module.subprocess, "run", run)
    with pytest.raises(StorageError, match="timed out after 7 seconds"):
        fetch_code("git+https://example.org/r@main", target, git_timeout_s=7)
    assert asked == [(7, subprocess.DEVNULL)]


def test_a_password_in_a_url_is_not_told(target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A token that stands in CODE_URI is in no message."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StorageError) as caught:
        fetch_code("git+https://user:hunter2@example.org/r@main", target)
    assert "hunter2" not in str(caught.value)


# --- The launcher's side --------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder of code with what people have in such folders."""
    folder = tmp_path / "my source"
    for name in ("train.py", "lib/a b.py", ".git/config", ".env", ".venv/bin/x", "lib/__pycache__/a.pyc", "lib/.hidden",
                 "node_modules/x.js"):  # fmt: skip
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "empty").mkdir()
    (folder / "link.py").symlink_to("train.py")
    (folder / "linked").symlink_to("lib")
    return folder


def test_code_that_is_packed_is_unpacked_by_a_node(source: Path, target: Path, tmp_path: Path) -> None:
    """All but what is hidden or made by tools, with links and what may be run."""
    digest = pack_code(source, tmp_path / "code.tar.gz")
    fetch_code(f"file://{tmp_path}/code.tar.gz#sha256={digest}", target)
    assert sorted(path.relative_to(target).as_posix() for path in target.rglob("*")) == [
        "lib", "lib/a b.py", "link.py", "linked", "run.sh", "train.py",
    ]  # fmt: skip
    assert (target / "lib" / "a b.py").read_text() == "content of lib/a b.py"
    assert (target / "link.py").readlink() == Path("train.py")
    assert (target / "linked" / "a b.py").read_text() == "content of lib/a b.py"
    assert [bool((target / name).stat().st_mode & 0o100) for name in ("run.sh", "train.py")] == [True, False]


def test_the_same_files_make_the_same_archive(source: Path, tmp_path: Path) -> None:
    """Whoever packs them, when, and in whatever order their folder has them: code is not sent twice."""
    first = pack_code(source, tmp_path / "one.tar.gz")
    copied = tmp_path / "elsewhere"
    copied.mkdir()
    for path in sorted(source.rglob("*"), reverse=True):
        there = copied / path.relative_to(source)
        there.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            there.symlink_to(path.readlink())
        elif path.is_file():
            there.write_bytes(path.read_bytes())
            there.chmod(0o700 if path.stat().st_mode & 0o100 else 0o600)
            os.utime(there, (1, 1))
    assert pack_code(copied, tmp_path / "two.tar.gz") == first
    assert hashlib.sha256((tmp_path / "two.tar.gz").read_bytes()).hexdigest() == first
    (copied / "train.py").write_text("other")
    assert pack_code(copied, tmp_path / "two.tar.gz") != first


def test_who_has_packed_it_is_nobodys_business(source: Path, tmp_path: Path) -> None:
    """No user, group or time is in the archive."""
    pack_code(source, tmp_path / "code.tar.gz")
    with tarfile.open(tmp_path / "code.tar.gz") as tar:
        assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in tar} == {(0, 0, "", "", 0)}


def test_code_has_a_limit(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data belongs into a bucket: the file that made it too much is named. The limit itself is allowed."""
    total = sum((source / name).stat().st_size for name in ("lib/a b.py", "run.sh", "train.py"))
    monkeypatch.setattr(code_module, "MOST_CODE_BYTES", total)
    pack_code(source, tmp_path / "code.tar.gz")
    monkeypatch.setattr(code_module, "MOST_CODE_BYTES", total - 1)
    with pytest.raises(SettingsError, match=r"the code in .* is more than 0 MiB \(train\.py made it so\)"):
        pack_code(source, tmp_path / "code.tar.gz")


@pytest.mark.parametrize("to", ["/etc/passwd", "../outside.py", "lib/../../outside.py"])
def test_a_link_that_leads_out_is_refused(source: Path, tmp_path: Path, to: str) -> None:
    """A node would refuse it, after all have been started."""
    (tmp_path / "outside.py").touch()
    (source / "out").symlink_to(to)
    with pytest.raises(SettingsError, match=r"my source/out cannot be sent to the nodes: .*; move it out of "):
        pack_code(source, tmp_path / "code.tar.gz")


def test_a_file_that_cannot_be_read_is_named(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent."""
    opened = Path.open

    def refuse(path: Path, *words: Any, **named: Any) -> Any:
        if path.name == "train.py":
            raise PermissionError(13, "Permission denied")
        return opened(path, *words, **named)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SettingsError, match=r"train\.py cannot be sent to the nodes: .*Permission denied"):
        pack_code(source, tmp_path / "code.tar.gz")


def test_what_is_no_file_is_left_out(source: Path, tmp_path: Path) -> None:
    """A pipe or a socket is nobody's code."""
    os.mkfifo(source / "pipe")
    pack_code(source, tmp_path / "code.tar.gz")
    with tarfile.open(tmp_path / "code.tar.gz") as tar:
        assert "pipe" not in tar.getnames()
