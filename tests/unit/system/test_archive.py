"""Archives: what is packed, and what is refused when a hostile one is unpacked."""

from __future__ import annotations

import copy
import hashlib
import io
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oci_cluster.errors import SettingsError
from oci_cluster.system import archive
from oci_cluster.system.archive import (
    ArchiveError,
    ArchiveTooLargeError,
    pack_file,
    read_files,
    unpack,
    unpack_beneath,
)
from oci_cluster.system.code_files import code_files

LINK, HARD_LINK, DEVICE, PIPE, FOLDER = (
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.FIFOTYPE,
    tarfile.DIRTYPE,
)


def entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def tar(*entries: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode=mode) as opened:
        for info, content in entries:
            opened.addfile(info, io.BytesIO(content))
    return body.getvalue()


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below *folder*, links too, with its content."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pack(source: Path, target: Path) -> str:
    """Pack what goes of the folder *source*, as a launch does."""
    return archive.pack_code(source, code_files(source).paths, target)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "my target"
    path.mkdir()
    return path


# --- Packing ----------------------------------------------------------------------------------------------------------


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


def test_code_that_is_packed_can_be_unpacked(source: Path, target: Path, tmp_path: Path) -> None:
    """All but what is hidden or made by tools, with links and what may be run."""
    pack(source, tmp_path / "code.tar.gz")
    unpack(tmp_path / "code.tar.gz", target)
    assert sorted(path.relative_to(target).as_posix() for path in target.rglob("*")) == [
        "lib", "lib/a b.py", "link.py", "linked", "run.sh", "train.py",
    ]  # fmt: skip
    assert (target / "lib" / "a b.py").read_text() == "content of lib/a b.py"
    assert (target / "link.py").readlink() == Path("train.py")
    assert (target / "linked" / "a b.py").read_text() == "content of lib/a b.py"
    assert [bool((target / name).stat().st_mode & 0o100) for name in ("run.sh", "train.py")] == [True, False]


def test_the_same_files_make_the_same_archive(source: Path, tmp_path: Path) -> None:
    """Whoever packs them, when, and in whatever order their folder has them: code is not sent twice."""
    first = pack(source, tmp_path / "one.tar.gz")
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
    assert pack(copied, tmp_path / "two.tar.gz") == first
    assert hashlib.sha256((tmp_path / "two.tar.gz").read_bytes()).hexdigest() == first
    (copied / "train.py").write_text("other")
    assert pack(copied, tmp_path / "two.tar.gz") != first


def test_who_has_packed_it_is_nobodys_business(source: Path, tmp_path: Path) -> None:
    """No user, group or time is in the archive."""
    pack(source, tmp_path / "code.tar.gz")
    with tarfile.open(tmp_path / "code.tar.gz") as tar:
        assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in tar} == {(0, 0, "", "", 0)}


def test_code_has_a_limit(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data belongs into a bucket: the file that made it too much is named. The limit itself is allowed."""
    total = sum((source / name).stat().st_size for name in ("lib/a b.py", "run.sh", "train.py"))
    monkeypatch.setattr(archive, "MAX_CODE_BYTES", total)
    pack(source, tmp_path / "code.tar.gz")
    monkeypatch.setattr(archive, "MAX_CODE_BYTES", total - 1)
    with pytest.raises(SettingsError, match=r"the code in .* is more than 0 MiB \(train\.py made it so\)"):
        pack(source, tmp_path / "code.tar.gz")


@pytest.mark.parametrize("to", ["/etc/passwd", "../outside.py", "lib/../../outside.py"])
def test_a_link_that_leads_out_is_refused(source: Path, tmp_path: Path, to: str) -> None:
    """A node would refuse it, after all have been started."""
    (tmp_path / "outside.py").touch()
    (source / "out").symlink_to(to)
    with pytest.raises(SettingsError, match=r"my source/out cannot be sent to the nodes: .*; move it out of "):
        pack(source, tmp_path / "code.tar.gz")


def test_a_file_that_cannot_be_read_is_named(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent."""
    opened = Path.open

    def refuse(path: Path, *words: Any, **named: Any) -> Any:
        if path.name == "train.py":
            raise PermissionError(13, "Permission denied")
        return opened(path, *words, **named)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SettingsError, match=r"train\.py cannot be sent to the nodes: .*Permission denied"):
        pack(source, tmp_path / "code.tar.gz")


def test_what_is_no_file_is_left_out(source: Path, tmp_path: Path) -> None:
    """A pipe or a socket is nobody's code."""
    os.mkfifo(source / "pipe")
    pack(source, tmp_path / "code.tar.gz")
    with tarfile.open(tmp_path / "code.tar.gz") as tar:
        assert "pipe" not in tar.getnames()


def test_a_file_is_packed_as_it_is(target: Path) -> None:
    """Its name, content, permissions and time; its owner is root, by number."""
    body = pack_file("stop", b"content", mode=0o640, modified_s=1234)
    with tarfile.open(fileobj=io.BytesIO(body)) as opened:
        (info,) = opened.getmembers()
    assert (info.name, info.mode, info.mtime, info.uid, info.gid) == ("stop", 0o640, 1234, 0, 0)
    (target / "tar").write_bytes(body)
    unpack(target / "tar", target)
    assert (target / "stop").read_bytes() == b"content"


# --- Unpacking all ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_all_of_an_archive_is_unpacked(tmp_path: Path, target: Path, mode: str) -> None:
    """Compressed or not, with its folders, and links that stay inside."""
    link = entry("b.py", type=LINK, linkname="lib/a b.py")
    (tmp_path / "tar").write_bytes(tar(entry("train.py", b"1"), entry("lib/a b.py", b"2"), link, mode=mode))
    unpack(tmp_path / "tar", target)
    assert tree(target) == {"train.py": b"1", "lib/a b.py": b"2", "b.py": b"2"}
    assert (target / "b.py").is_symlink()


OUTSIDE = {
    "up": [entry("../evil", b"x")],
    "up inside": [entry("lib/../../evil", b"x")],
    "link up": [entry("link", type=LINK, linkname="../outside")],
    "absolute link": [entry("link", type=LINK, linkname="/etc/passwd")],
    "through a link": [entry("up", type=LINK, linkname=".."), entry("up/evil", b"x")],
    "by way of a link that is replaced": [
        entry("link", type=LINK, linkname="a/b"),
        entry("out", type=LINK, linkname="link/../.."),
        entry("link", type=LINK, linkname="."),
    ],
    "hard link": [entry("hard", type=HARD_LINK, linkname="../tar")],
    "device": [entry("null", type=DEVICE, devmajor=1, devminor=3)],
    "pipe": [entry("pipe", type=PIPE)],
}


@pytest.mark.parametrize("entries", OUTSIDE.values(), ids=OUTSIDE)
def test_what_leaves_the_folder_is_refused(
    tmp_path: Path, target: Path, entries: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    """Paths, links, devices and pipes; nothing is put anywhere else."""
    (tmp_path / "tar").write_bytes(tar(*entries))
    with pytest.raises(ArchiveError):
        unpack(tmp_path / "tar", target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my target", "tar"]


def test_nobodys_rights_are_taken_over(tmp_path: Path, target: Path) -> None:
    """Set-id bits, and what others may write, are dropped."""
    (tmp_path / "tar").write_bytes(tar(entry("tool", b"x", mode=0o6777)))
    unpack(tmp_path / "tar", target)
    assert oct((target / "tool").stat().st_mode & 0o7022) == "0o0"


@pytest.mark.parametrize(
    ("mode", "damage"),
    # Nothing in a tar itself tells of another content.
    [(mode, damage) for mode in ("w", "w:gz", "w:bz2", "w:xz") for damage in ("", "x") if (mode, damage) != ("w", "x")],
)
def test_a_broken_archive_is_told_whatever_its_compression(
    tmp_path: Path, target: Path, mode: str, damage: str
) -> None:
    """Cut off or overwritten. Where a decompressor has no other it is an OSError, which callers expect as well."""
    whole = tar(entry("a.bin", os.urandom(50_000)), mode=mode)
    half = len(whole) // 2
    (tmp_path / "tar").write_bytes(whole[:half] + damage.encode() * half)
    with pytest.raises((ArchiveError, OSError)):
        unpack(tmp_path / "tar", target)


def unpack_stream(stream: io.BytesIO, target: Path) -> None:
    path = target.with_name("streamed.tar")
    path.write_bytes(stream.getvalue())
    unpack(path, target)


READERS: dict[str, Callable[[io.BytesIO, Path], object]] = {
    "unpack": unpack_stream,
    "unpack_beneath": lambda stream, target: unpack_beneath(stream, target, prefix="c"),
    "read_files": lambda stream, _: read(stream.getvalue()),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_name_without_end_fills_no_memory(
    target: Path, kind: bytes, reader: Callable[[io.BytesIO, Path], object]
) -> None:
    """Compressed, one of 8 GiB has 30 MB, and takes as much memory as it says; many in one another take no less."""
    header, file = tarfile.TarInfo("././@LongLink"), tar(entry("c/a", b"x"))
    header.type, header.size = kind, 512
    nested = (header.tobuf(tarfile.GNU_FORMAT) + bytes(512)) * 2000
    header.size = (1 << 16) + 1
    long = header.tobuf(tarfile.GNU_FORMAT) + bytes((1 << 16) + 512)
    for hostile, why in ((long, "65537 bytes"), (nested, ".")):
        with pytest.raises(ArchiveError, match=why):
            reader(io.BytesIO(file[:1024] + hostile + file), target)


SPARSE: dict[str, tuple[bytes, dict[str, str]]] = {
    "GNU's own": (tarfile.GNUTYPE_SPARSE, {}),
    "0.0": (tarfile.REGTYPE, {"GNU.sparse.size": "1"}),
    "0.1": (tarfile.REGTYPE, {"GNU.sparse.map": "0,1"}),
    "1.0": (tarfile.REGTYPE, {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize(("kind", "headers"), SPARSE.values(), ids=SPARSE)
def test_a_sparse_file_is_refused(
    target: Path, kind: bytes, headers: dict[str, str], reader: Callable[[io.BytesIO, Path], object]
) -> None:
    """Its list of holes is read at once, however long it is."""
    header = tarfile.TarInfo("c/a")
    header.type, header.size, header.pax_headers = kind, 512, headers
    hostile = header.tobuf(tarfile.PAX_FORMAT) + b"0\n" * 256
    with pytest.raises(ArchiveError, match="--sparse"):
        reader(io.BytesIO(hostile + tar(entry("c/b", b"x"))), target)


def test_what_is_no_archive_is_refused(tmp_path: Path, target: Path) -> None:
    """Such as a zip."""
    (tmp_path / "tar").write_bytes(b"PK\x03\x04 is a zip")
    with pytest.raises(ArchiveError):
        unpack(tmp_path / "tar", target)


def test_what_is_wrong_with_the_disk_is_no_fault_of_the_archive(tmp_path: Path) -> None:
    """An archive that is not there, for one."""
    with pytest.raises(FileNotFoundError):
        unpack(tmp_path / "none", tmp_path)


# --- Unpacking a part -------------------------------------------------------------------------------------------------


def test_files_beneath_a_folder_are_unpacked(target: Path) -> None:
    """With their folders, under their names; what stands elsewhere is left out."""
    entries = [entry("out", type=FOLDER), entry("out/MAIN", type=FOLDER, mode=0o000), entry("out/MAIN/a b", b"1")]
    entries += [entry("out/empty", type=FOLDER, mtime=1)]
    others = [entry("outside", b"x"), entry("other/out/x", b"x"), entry("x", b"x")]
    unpack_beneath(io.BytesIO(tar(*entries, *others)), target, prefix="out")
    assert tree(target) == {"out/MAIN/a b": b"1"}
    assert (target / "out" / "MAIN").stat().st_mode & 0o700 == 0o700
    assert (target / "out" / "empty").stat().st_mtime != 1


@pytest.mark.parametrize("name", ["link up", "absolute link", "hard link", "device", "pipe"])
def test_what_is_neither_file_nor_folder_is_left_out(target: Path, name: str) -> None:
    """Of a stream nothing is refused for them: a script may have made some."""
    bad = [(copy.copy(info), content) for info, content in OUTSIDE[name]]
    for info, _ in bad:
        info.name = f"out/{info.name}"
    unpack_beneath(io.BytesIO(tar(*bad, entry("out/good", b"1"))), target, prefix="out")
    assert tree(target) == {"out/good": b"1"}
    assert [path.name for path in (target / "out").iterdir()] == ["good"]


def test_a_link_cannot_lead_later_files_out(tmp_path: Path, target: Path) -> None:
    """It is left out itself."""
    (tmp_path / "elsewhere").mkdir()
    entries = [entry("out/up", type=LINK, linkname="../../elsewhere"), entry("out/up/evil", b"x")]
    unpack_beneath(io.BytesIO(tar(*entries)), target, prefix="out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_name_that_leads_out_is_refused(tmp_path: Path, target: Path) -> None:
    """Whatever it begins with."""
    with pytest.raises(ArchiveError):
        unpack_beneath(io.BytesIO(tar(entry("out/../../evil", b"x"))), target, prefix="out")
    assert list(tmp_path.iterdir()) == [target]


def test_half_a_file_is_no_file(target: Path) -> None:
    """A stream that ends early is told."""
    with pytest.raises(ArchiveError):
        unpack_beneath(io.BytesIO(tar(entry("out/a", b"x" * 5000))[:2000]), target, prefix="out")


# --- Reading ----------------------------------------------------------------------------------------------------------


def read(body: bytes, **limits: int) -> dict[str, bytes]:
    limits = {"max_file_bytes": 10, "max_bytes": 100, "max_files": 3, **limits}
    return read_files(io.BytesIO(body), names=re.compile("[a-z]+"), **limits)


def test_plain_files_right_below_the_folder_are_read() -> None:
    """By their names, with what they hold; deeper ones, links and what nobody wants are left out."""
    entries = [
        entry("c", type=FOLDER),
        entry("c/a", b"1"),
        entry("./c/b", b"2"),
        entry("c/deep/x", b"x"),
        entry("c/../x", b"x"),
        entry("c/not-wanted", b"x"),
        entry("c/link", type=LINK, linkname="/etc/passwd"),
        entry("top", b"x"),
    ]
    assert read(tar(*entries)) == {"a": b"1", "b": b"2"}


def test_a_long_file_is_cut_off_where_it_can_be_told() -> None:
    """One byte after the longest that is wanted."""
    assert read(tar(entry("c/a", b"x" * 10), entry("c/b", b"x" * 50))) == {"a": b"x" * 10, "b": b"x" * 11}


def test_what_all_files_have_together_is_limited() -> None:
    """The limit itself is allowed; what nobody wants counts too."""
    entries = [entry("c/a", b"x" * 60), entry("c/deep/x", b"x" * 40)]
    assert list(read(tar(*entries))) == ["a"]
    with pytest.raises(ArchiveTooLargeError, match=r"more than 100 bytes \('c/b' made it so\)"):
        read(tar(*entries, entry("c/b", b"x")))


def test_how_many_files_are_read_is_limited() -> None:
    """The limit itself is allowed; what nobody wants does not count."""
    entries = [entry(f"c/{name}", b"x") for name in "abc"]
    assert list(read(tar(*entries, entry("c/1", b"x")))) == ["a", "b", "c"]
    with pytest.raises(ArchiveTooLargeError, match=r"more than 3 files \('c/d' made it so\)"):
        read(tar(*entries, entry("c/d", b"x")))


def test_a_folder_that_cannot_be_read_to_its_end_is_told() -> None:
    """It is no empty one."""
    with pytest.raises(ArchiveError):
        read(tar(entry("c/a", b"x" * 5000))[:2000], max_bytes=10_000, max_file_bytes=10_000)
