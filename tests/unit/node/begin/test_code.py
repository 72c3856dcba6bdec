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

from oci_cluster.contract.storage import oci
from oci_cluster.errors import ClusterError, NotPermittedError, SettingsError, StorageError
from oci_cluster.node.begin import code as code_module
from oci_cluster.node.begin.code import NoCodeError, fetch_code
from oci_cluster.system.archive import pack_code
from oci_cluster.system.code_files import code_files


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "my code"


def fetch(uri: str, target: Path, **named: Any) -> None:
    fetch_code(uri, target, environ=os.environ, **named)


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
    fetch(uri, target)
    assert tree(target) == {"train.py": "print()", "lib/a b.py": "x = 1"}
    assert sorted(path.name for path in target.iterdir()) == ["lib", "train.py"]


@pytest.mark.usefixtures("empty_memory")
def test_an_archive_comes_from_any_file_system(target: Path) -> None:
    """The URL is any that fsspec can open."""
    body = archive(("train.py", b"print()"))
    fsspec.filesystem("memory").pipe_file("/bucket/code.tar", body)
    fetch(f"memory://bucket/code.tar#sha256={hashlib.sha256(body).hexdigest()}", target)
    assert tree(target) == {"train.py": "print()"}


def test_an_empty_code_directory_is_filled(tmp_path: Path, target: Path) -> None:
    """An image may have made the directory beforehand."""
    target.mkdir()
    fetch(upload(tmp_path, archive(("a", b"1"))), target)
    assert tree(target) == {"a": "1"}


def test_code_is_not_mixed_with_what_is_there(tmp_path: Path, target: Path) -> None:
    """Fetched code needs a directory of its own: nothing is overwritten."""
    target.mkdir()
    (target / "old.py").write_text("old")
    with pytest.raises(SettingsError) as caught:
        fetch(upload(tmp_path, archive(("old.py", b"new"))), target)
    assert str(caught.value) == f"CODE_DIR {target} is not empty; fetched code needs a directory of its own"
    assert tree(target) == {"old.py": "old"}


def test_another_content_is_refused(tmp_path: Path, target: Path) -> None:
    """An archive whose hash is another's is not unpacked, and both hashes are named."""
    expected = "0" * 64
    uri = upload(tmp_path, archive(("evil.py", b"x")))
    url, _, found = uri.partition("#sha256=")
    with pytest.raises(SettingsError) as caught:
        fetch(f"{url}#sha256={expected}", target)
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
        fetch(uri, target)
    assert list(target.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code.tar", "my code"]


def test_an_absolute_path_is_taken_from_the_code_directory(tmp_path: Path, target: Path) -> None:
    """A leading slash is taken off: the file lands inside, never at the root."""
    outside = tmp_path / "outside.py"
    fetch(upload(tmp_path, archive((str(outside), b"x"))), target)
    assert (tree(target), outside.exists()) == ({str(outside).lstrip("/"): "x"}, False)


def test_set_user_id_bits_are_dropped(tmp_path: Path, target: Path) -> None:
    """An unpacked file gives nobody another's rights."""
    fetch(upload(tmp_path, archive(member("tool", mode=0o6777))), target)
    assert oct((target / "tool").stat().st_mode & 0o7022) == "0o0"


def test_links_inside_are_kept(tmp_path: Path, target: Path) -> None:
    """A link that stays in the code directory is part of the code."""
    entries = [("lib/a.py", b"1"), member("b.py", type=LINK, linkname="lib/a.py")]
    fetch(upload(tmp_path, archive(*entries)), target)
    assert ((target / "b.py").is_symlink(), (target / "b.py").read_text()) == (True, "1")


def test_what_is_no_archive_is_named(tmp_path: Path, target: Path) -> None:
    """A file of the right hash that is no tar is a wrong setting."""
    uri = upload(tmp_path, b"PK\x03\x04 is a zip")
    with pytest.raises(SettingsError) as caught:
        fetch(uri, target)
    assert str(caught.value).startswith(f"CODE_URI file://{tmp_path}/code.tar cannot be unpacked: ")
    assert list(target.iterdir()) == []


def test_a_truncated_archive_is_named(tmp_path: Path, target: Path) -> None:
    """An archive that was cut off before it was hashed is a wrong setting, not a bug in the agent."""
    whole = archive(("a.bin", bytes(range(256)) * 400), mode="w:gz")
    with pytest.raises(SettingsError, match="cannot be unpacked"):
        fetch(upload(tmp_path, whole[: len(whole) // 2]), target)


@pytest.mark.parametrize("url", ["file:///nowhere/code.tar", "nosuch://bucket/code.tar", "memory://bucket/none.tar"])
def test_an_archive_that_is_not_there_is_named(target: Path, url: str) -> None:
    """Whatever a file system raises is named with the URI (69), and nothing is left behind."""
    with pytest.raises(NoCodeError) as caught:
        fetch(f"{url}#sha256={'0' * 64}", target)
    assert caught.value.exit_code == 69
    assert str(caught.value).startswith(f"CODE_URI {url}: ")
    assert list(target.iterdir()) == []


@pytest.mark.usefixtures("empty_memory")
def test_an_archive_without_end_fills_no_disk(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hash is known when all of it is there; so it has a bound, and what is read beyond that is one piece."""
    monkeypatch.setattr(code_module, "_MOST_BYTES", 3 << 20)
    read = []

    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert size
            assert size > 0
            read.append(size)
            return bytes(size)

    monkeypatch.setattr(fsspec.filesystem("memory"), "open", lambda *_: Endless())
    with pytest.raises(SettingsError, match=r"CODE_URI /bucket/code\.tar is larger than 3 MiB; put data elsewhere"):
        fetch(f"memory://bucket/code.tar#sha256={'0' * 64}", target)
    assert sum(read) == 4 << 20
    assert list(target.iterdir()) == []


def test_an_object_that_is_larger_is_no_code(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as that, a bucket's is copied."""
    asked = []

    class Files:
        protocol = "oci"

        def get_file(self, *words: str, most: float = 0) -> bool:
            asked.append((*words, most))
            return False

    monkeypatch.setattr(oci, "open_files", lambda url, **_: (Files(), url.removeprefix("oci://")))
    with pytest.raises(SettingsError, match=r"CODE_URI b@n/code\.tar is larger than 10240 MiB"):
        fetch(f"oci://b@n/code.tar#sha256={'0' * 64}", target)
    assert [(path, most) for path, _, most in asked] == [("b@n/code.tar", 10 << 30)]
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ConnectionResetError("cut"), StorageError),
        (RuntimeError("503"), StorageError),
        (PermissionError("no"), NotPermittedError),
    ],
)
def test_storage_that_does_not_answer_is_told_from_storage_that_refuses(
    target: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, error: type[ClusterError]
) -> None:
    """The first can be asked again; nothing is left behind that a second try would stumble over."""

    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(fsspec.filesystem("memory"), "open", fail)
    with pytest.raises(error, match=r"CODE_URI memory://bucket/code\.tar: "):
        fetch(f"memory://bucket/code.tar#sha256={'0' * 64}", target)
    assert list(target.iterdir()) == []


def test_a_folder_in_an_archives_place_is_named(tmp_path: Path, target: Path) -> None:
    """A URL that names a folder is a failure with a name, not a bug in the agent."""
    with pytest.raises((SettingsError, NoCodeError), match="CODE_URI"):
        fetch(f"file://{tmp_path}#sha256={'0' * 64}", target)


@pytest.mark.parametrize("form", ["{}#sha256=" + "0" * 64, "folder+{}"])
@pytest.mark.parametrize("kind", ["pipe", "device", "link to a device"])
def test_what_is_no_file_holds_no_node_up(tmp_path: Path, target: Path, kind: str, form: str) -> None:
    """Others may write where the code is: such a thing is neither waited for nor read."""
    (tmp_path / "work").mkdir()
    name = tmp_path / "work" / "code.tar"
    if kind == "pipe":
        os.mkfifo(name)
    elif kind == "link to a device":
        name.symlink_to("/dev/zero")
    place = "/dev/zero" if kind == "device" else name.parent if form.startswith("folder") else name
    with pytest.raises(NoCodeError, match=r"CODE_URI file://.*(not a regular file|has no files)"):
        fetch(form.format(f"file://{place}"), target)
    assert list(target.iterdir()) == []


def test_a_code_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file in the code directory's place is a wrong setting, not a bug in the agent."""
    uri = upload(tmp_path, archive(("a", b"1")))
    with pytest.raises(SettingsError, match="CODE_DIR"):
        fetch(uri, tmp_path / "code.tar")


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
        "folder+/code",
        "folder+file://",
        "",
    ],
)
def test_a_uri_of_another_form_is_refused(target: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tar without its hash, or a ref that git could take for an option, is refused before anything is called."""
    monkeypatch.setattr(code_module.subprocess, "run", pytest.fail)
    with pytest.raises(SettingsError) as caught:
        fetch(uri, target)
    assert str(caught.value) == (
        f"CODE_URI '{uri}' is neither <URL of a tar>#sha256=<64 hex digits> nor git+<URL>@<ref>"
        " nor folder+<URL of a folder>"
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
    fetch(f"git+file://{repository}@{ref}", target)
    assert tree(target) == {"train.py": text}


def test_a_commit_becomes_the_code_directory(repository: Path, target: Path) -> None:
    """A commit can be named by its hash, so that every run takes the same one."""
    fetch(f"git+file://{repository}@{commit(repository, 'v1')}", target)
    assert tree(target) == {"train.py": "one"}


def test_only_what_is_needed_is_fetched(repository: Path, target: Path) -> None:
    """One commit is fetched, not the history of a project."""
    fetch(f"git+file://{repository}@main", target)
    done = subprocess.run(["git", "-C", target, "rev-list", "--count", "HEAD"], check=True, capture_output=True)
    assert done.stdout == b"1\n"


def test_the_last_at_begins_the_ref(tmp_path: Path, repository: Path, target: Path) -> None:
    """A URL may have an @ of its own, as git@host has."""
    other = repository.rename(tmp_path / "me@work")
    fetch(f"git+file://{other}@v1", target)
    assert tree(target) == {"train.py": "one"}


def test_a_ref_that_is_not_there_is_named(repository: Path, target: Path) -> None:
    """git's own words are told beside the URI (69), and nothing is left behind."""
    with pytest.raises(NoCodeError) as caught:
        fetch(f"git+file://{repository}@nope", target)
    assert str(caught.value) == (f"CODE_URI git+file://{repository}@nope: fatal: couldn't find remote ref nope")
    assert list(target.iterdir()) == []


def test_a_url_is_never_an_option_of_git(tmp_path: Path, target: Path) -> None:
    """A URL that begins with a dash stands after --, where git takes it for a URL."""
    witness = tmp_path / "witness"
    with pytest.raises(NoCodeError):
        fetch(f"git+--upload-pack=touch {witness};@main", target)
    assert not witness.exists()


def test_a_url_cannot_name_a_program(tmp_path: Path, target: Path) -> None:
    """git's ext:: transport, which runs what it is given, stays shut."""
    witness = tmp_path / "witness"
    with pytest.raises(NoCodeError, match="transport 'ext' not allowed"):
        fetch(f"git+ext::touch {witness}@main", target)
    assert not witness.exists()


def test_a_machine_without_git_says_so(target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing git is named, not a bug in the agent."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCodeError) as caught:
        fetch("git+https://example.org/r@main", target)
    assert str(caught.value) == ("CODE_URI git+https://example.org/r@main: [Errno 2] No such file or directory: 'git'")


def test_git_runs_in_the_nodes_environment(target: Path, tmp_path: Path) -> None:
    """Not in this process's, which may be another's: who forks agents has started with settings of its own."""
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text('#!/bin/sh\necho "$0 has $TOKEN" >&2\nexit 1\n')
    git.chmod(0o755)
    with pytest.raises(NoCodeError, match=f"{git} has mine"):
        fetch_code("git+https://example.org/r@main", target, environ={"PATH": str(git.parent), "TOKEN": "mine"})


def test_git_is_not_waited_for_without_end(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer is storage's failure after the timeout, and git cannot ask anybody anything."""
    asked: list[tuple[float, int]] = []

    def run(command: list[str], *, timeout: float, stdin: int, **_: object) -> None:
        asked.append((timeout, stdin))
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(code_module.subprocess, "run", run)
    with pytest.raises(NoCodeError, match="timed out after 7 seconds"):
        fetch("git+https://example.org/r@main", target, git_timeout_s=7)
    assert asked == [(7, subprocess.DEVNULL)]


def test_a_password_in_a_url_is_not_told(target: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A token that stands in CODE_URI is in no message."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCodeError) as caught:
        fetch("git+https://user:hunter2@example.org/r@main", target)
    assert "hunter2" not in str(caught.value)


# --- The launcher's side --------------------------------------------------------------------------------------------


def test_code_that_is_packed_is_unpacked_by_a_node(tmp_path: Path, target: Path) -> None:
    """What a launcher has put into the work dir, with its hash."""
    source = tmp_path / "my source"
    (source / "lib").mkdir(parents=True)
    (source / "train.py").write_text("import lib.a")
    (source / "lib" / "a.py").write_text("x = 1")
    (source / "link.py").symlink_to("train.py")
    digest = pack_code(source, code_files(source).paths, tmp_path / "code.tar.gz")
    fetch(f"file://{tmp_path}/code.tar.gz#sha256={digest}", target)
    assert tree(target) == {"train.py": "import lib.a", "lib/a.py": "x = 1", "link.py": "import lib.a"}
    assert (target / "link.py").readlink() == Path("train.py")
