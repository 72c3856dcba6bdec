"""Files that are written whole, and locks that go with whoever holds them."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oci_cluster.errors import BackendError, NotPermittedError, StoppedError
from oci_cluster.system import files
from oci_cluster.system.files import at_home, is_locked, locked, not_writable, read_kept, write_whole

COMMON = Path(files.__file__).parents[2]


def test_a_home_that_nobody_knows_stays_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """As does that of a user without a name: whoever opens the file tells that there is none."""
    assert at_home("~nobody-here/x") == Path("~nobody-here/x")
    monkeypatch.setenv("HOME", "/home/me")
    assert at_home("~/x") == Path("/home/me/x")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 1 << 30)
    assert at_home("~/x") == Path("~/x")


def test_no_path_of_a_user_is_expanded_in_another_way() -> None:
    """pathlib's own raises what nobody expects; this one does."""
    found = {path.name for path in COMMON.rglob("*.py") if ".expanduser()" in path.read_text()}
    assert found == {"last_error.py"}


# --- Files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_replaced(tmp_path: Path) -> None:
    """By text, in UTF-8, or by bytes; nothing else is left in its folder."""
    path = tmp_path / "a file"
    for content, wanted in (("caf\u00e9\n", b"caf\xc3\xa9\n"), (b"\xff", b"\xff"), ("", b"")):
        write_whole(path, content)
        assert (path.read_bytes(), list(tmp_path.iterdir())) == (wanted, [path])


def test_a_name_of_the_file_system_comes_back_as_it_was(tmp_path: Path) -> None:
    """Names on Linux are bytes."""
    write_whole(tmp_path / "a", os.fsdecode(b"caf\xe9"))
    assert (tmp_path / "a").read_bytes() == b"caf\xe9"


@pytest.mark.parametrize(("given", "mode"), [({}, 0o600), ({"mode": 0o644}, 0o644), ({"mode": 0o666}, 0o644)])
def test_a_file_is_private_unless_said_otherwise(tmp_path: Path, given: dict[str, int], mode: int) -> None:
    """Whoever wrote there before: the old file's permissions are gone with it. The process's mask holds."""
    (tmp_path / "a").touch(mode=0o777)
    before = os.umask(0o022)
    try:
        write_whole(tmp_path / "a", "x", **given)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == mode


def test_it_is_private_from_its_first_byte_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can open it before it has its name."""
    seen: list[int] = []
    replace = Path.replace

    def look(path: Path, target: Path) -> Path:
        seen.append(path.stat().st_mode & 0o777)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", look)
    write_whole(tmp_path / "a", "x")
    assert seen == [0o600]


@pytest.mark.parametrize("content", [b"x", "\ud800"])
def test_a_failure_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | bytes) -> None:
    """Whatever fails, and nothing is left beside it."""
    (tmp_path / "a").write_text("old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises((OSError, UnicodeEncodeError)):
        write_whole(tmp_path / "a", content)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    """A reader sees what one of them wrote, all of it, at any time."""
    path = tmp_path / "a"
    contents = [bytes([letter]) * 200_000 for letter in b"ab"]
    write_whole(path, contents[0])

    def write(content: bytes) -> None:
        for _ in range(50):
            write_whole(path, content)

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, content) for content in contents]
        while not all(writer.done() for writer in writers):
            assert path.read_bytes() in contents
    assert [writer.exception() for writer in writers] == [None, None]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["large", "sparse", "pipe", "device"])
def test_what_is_kept_is_a_file_of_no_more_than_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A cluster's nodes could have replaced it, and whoever lists clusters reads it."""
    path = tmp_path / "kept"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        monkeypatch.setattr(files, "_MOST_KEPT_BYTES", 5)
        path.write_bytes(b"12345")
        assert read_kept(path) == b"12345"
        path.write_bytes(b"123456")
        if kind == "sparse":
            os.truncate(path, 10 << 30)
    with pytest.raises(OSError, match="larger than 5 bytes" if kind in {"large", "sparse"} else "not a regular file"):
        read_kept(path)


# --- Locks ------------------------------------------------------------------------------------------------------------


def test_a_lock_is_held_and_given_back(tmp_path: Path) -> None:
    """Its folder is made; whoever holds it can hand the descriptor on."""
    path = tmp_path / "folder" / "lock"
    assert not is_locked(path)
    with locked(path, lambda: pytest.fail("nobody has it")) as descriptor:
        assert (is_locked(path), os.fstat(descriptor).st_ino) == (True, path.stat().st_ino)
        assert path.stat().st_mode & 0o077 == 0, "who may read it may lock it"
    assert not is_locked(path)


def test_who_asks_is_not_taken_for_a_holder(tmp_path: Path) -> None:
    """Two launchers may ask at the same time."""
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert not is_locked(tmp_path / "lock")


def test_a_failure_gives_it_back(tmp_path: Path) -> None:
    """Else the next one would wait for ever."""
    reason = ValueError("a reason")
    with pytest.raises(ValueError, match="a reason"), locked(tmp_path / "lock"):
        raise reason
    assert not is_locked(tmp_path / "lock")


def test_a_second_one_waits(tmp_path: Path) -> None:
    """Until the first has gone; it is told so first."""
    order: list[str] = []
    waits = threading.Event()

    def second() -> None:
        with locked(tmp_path / "lock", waits.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(tmp_path / "lock"):
        thread.start()
        assert waits.wait(60)
        thread.join(0.1)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_who_is_told_to_stop_waits_no_more(tmp_path: Path) -> None:
    """The one that holds it may be suspended for ever."""
    told: list[str] = []
    with (
        locked(tmp_path / "lock"),
        pytest.raises(StoppedError, match=r"stopped while another process had .*/lock"),
        locked(tmp_path / "lock", lambda: told.append("waiting"), lambda: bool(told)),
    ):
        pytest.fail("two have it")
    assert told == ["waiting"]


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    """However that ends."""
    code = (
        "import sys, signal; from pathlib import Path; from oci_cluster.system.files import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    signal.pause()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    holder = subprocess.Popen(command, cwd=COMMON, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_locked(tmp_path / "lock")
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate(timeout=60)
    assert not is_locked(tmp_path / "lock")


def test_a_lock_whose_folder_cannot_be_made_is_named(tmp_path: Path) -> None:
    """With what helps."""
    (tmp_path / "file").touch()
    wanted = pytest.raises(BackendError, match=r"/file cannot be written: File exists; make room there")
    with wanted, locked(tmp_path / "file" / "lock"):
        pass


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (errno.EACCES, NotPermittedError, "allow writing there"),
        (errno.EROFS, NotPermittedError, "allow writing there"),
        (errno.ENOSPC, BackendError, "make room there"),
        (errno.ENOENT, BackendError, "bring its folder back"),
        (errno.ESTALE, BackendError, "bring its folder back"),
    ],
)
def test_what_cannot_be_written_is_told_with_what_helps(code: int, kind: type[Exception], advice: str) -> None:
    """77 where somebody must allow it, 69 where not."""
    told = not_writable(Path("/some where"), OSError(code, os.strerror(code)))
    assert (type(told), str(told)) == (kind, f"/some where cannot be written: {os.strerror(code)}; {advice}")
