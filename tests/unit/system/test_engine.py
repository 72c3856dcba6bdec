"""The door to a container engine's command line, and the files in its volumes."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.signed_files import signed

from oci_cluster.backends.docker import volume_files as engine_files
from oci_cluster.backends.docker.volume_files import register
from oci_cluster.contract.files.cluster_dir import MAX_BYTES, ClusterDir
from oci_cluster.errors import BackendError, NotPermittedError, StorageError
from oci_cluster.system.engine import Engine, EngineError, Machine

Program = Callable[[str], Engine]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return what makes an engine of the text of a shell script."""

    def make(text: str) -> Engine:
        path = tmp_path / "my engine"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return Engine(str(path))

    return make


def test_a_call_returns_what_the_engine_prints(program: Program) -> None:
    """Words arrive as they are, and so does what it reads."""
    engine = program('printf "<%s>" "$@"; cat')
    assert engine.call("a b", "$HOME", stdin=b"in") == "<a b><$HOME>in"


def test_a_ctrl_c_in_the_terminal_is_not_for_the_engines_client(program: Program, tmp_path: Path) -> None:
    """Cut off in the middle, it would not tell what it has started."""
    engine = program(f"exec '{sys.executable}' -c 'import os; print(os.getsid(0) == os.getpid())'")
    assert engine.call() == "True\n"
    with engine.stream() as stream:
        assert stream.read() == b"True\n"
    assert engine.start(output=tmp_path / "out").wait() == 0
    assert (tmp_path / "out").read_text() == "True\n"


def test_an_engine_that_is_not_there_is_named() -> None:
    """With what to do: 69."""
    text = "the container engine 'none-of-that' cannot be run: .*; install Docker or Podman, or name .* DOCKER=podman"
    with pytest.raises(BackendError, match=text) as caught:
        Engine("none-of-that").call("info")
    assert caught.value.exit_code == 69
    with pytest.raises(BackendError, match=text), Engine("none-of-that").stream("info"):
        pass
    with pytest.raises(BackendError, match=text):
        Engine("none-of-that").start("info", output=Path("/dev/null"))


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("Cannot connect to the Docker daemon at unix:///x. Is it running?", EngineError, "does not answer: Cannot"),
        ("Got permission denied while trying to connect to the Docker socket", NotPermittedError, "the engine's group"),
        ("docker: Error response: no space.\nSee 'docker run --help'.", EngineError, "run x: docker: Error response"),
        ("", EngineError, "it says nothing"),
        ("a\033[31mb", EngineError, r"a\[31mb"),
    ],
)
def test_a_refusal_is_told_in_the_engines_words(program: Program, said: str, kind: type, told: str) -> None:
    """And an engine that does not answer with what to do."""
    engine = program(f"cat >&2 <<'END'\n{said}\nEND\nexit 125")
    with pytest.raises(kind, match=told):
        engine.call("run", "x")


@pytest.mark.parametrize(
    "said",
    [
        "Error: No such container: x",
        "Error response from daemon: Could not find the file /work/x in container y",
        "Error: no such volume y",
        "network y not found",
    ],
)
def test_what_is_not_there_is_told_from_what_fails(program: Program, said: str) -> None:
    """In the words of docker, podman and nerdctl."""
    with pytest.raises(EngineError) as caught:
        program(f"echo '{said}' >&2; exit 1").call("rm", "x")
    assert caught.value.is_absent
    with pytest.raises(EngineError) as caught:
        program("echo 'no space left on device' >&2; exit 1").call("rm", "x")
    assert not caught.value.is_absent


def test_an_engine_that_hangs_is_left(program: Program) -> None:
    """Named, with the limit."""
    with pytest.raises(EngineError, match=r"ps --all did not answer within 0\.05 s"):
        program("exec sleep 100").call("ps", "--all", timeout_s=0.05)


def test_what_was_removed_meanwhile_is_left_out_of_what_is_inspected(program: Program) -> None:
    """Whether the engine prints the others or not."""
    engine = program(
        'shift 2; [ $# = 1 ] && [ "$1" != b ] && echo "[{\\"Id\\": \\"$1\\"}]" && exit 0\n'
        "echo '[]'; echo 'Error: No such container: b' >&2; exit 1"
    )
    assert engine.inspect(["a", "b", "c"]) == [{"Id": "a"}, {"Id": "c"}]
    assert engine.inspect(["b"]) == []


@pytest.mark.parametrize("text", ["no json", "{}", '["x"]'])
def test_an_answer_that_is_none_is_refused_or_empty(program: Program, text: str) -> None:
    """Nothing in it is taken for a container."""
    engine = program(f"echo '{text}'")
    if text == "no json":
        with pytest.raises(EngineError, match="is not JSON: no json"):
            engine.inspect(["x"])
    else:
        assert engine.inspect(["x"]) == []


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ({"NCPU": 4, "MemTotal": 99}, Machine(4, 99, keeps_users=True)),
        ({"NCPU": 4, "MemTotal": 9, "SecurityOptions": ["name=apparmor"]}, Machine(4, 9, keeps_users=True)),
        ({"NCPU": 4, "MemTotal": 9, "SecurityOptions": ["name=rootless"]}, Machine(4, 9, keeps_users=False)),
        ({"NCPU": 4, "MemTotal": 9, "SecurityOptions": ["name=userns"]}, Machine(4, 9, keeps_users=False)),
        ({"host": {"cpus": 2, "memTotal": 7}}, Machine(2, 7, keeps_users=False)),
        ({"host": {"cpus": 2, "memTotal": 7, "security": {"rootless": False}}}, Machine(2, 7, keeps_users=True)),
    ],
)
def test_the_machine_of_the_containers_is_asked_for(program: Program, info: object, found: Machine) -> None:
    """docker's and nerdctl's names for it, and podman's."""
    assert program(f"echo '{json.dumps(info)}'").machine() == found


@pytest.mark.parametrize("ask", [Engine.machine, Engine.place])
def test_a_client_that_tells_of_itself_alone_is_no_answer(program: Program, ask: Callable[[Engine], object]) -> None:
    """docker's `info` succeeds where no engine answers."""
    said = json.dumps({"ServerErrors": ["Cannot connect to the Docker daemon at x."], "ClientInfo": {}})
    with pytest.raises(EngineError, match=r"info: the engine does not answer: Cannot connect .*; start it"):
        ask(program(f"echo '{said}'"))


@pytest.mark.parametrize(
    ("info", "place"),
    [
        ({"DockerRootDir": "/var/lib/docker"}, Path("/var/lib/docker")),
        ({"store": {"graphRoot": "/home/me/storage"}}, Path("/home/me/storage")),
        ({"Driver": "overlayfs"}, None),
    ],
)
def test_the_place_of_images_is_asked_for(program: Program, info: object, place: Path | None) -> None:
    """In the words of docker and podman; nerdctl does not tell."""
    assert program(f"echo '{json.dumps(info)}'").place() == place


@pytest.mark.parametrize("info", ["{}", "[]", "x", '{"NCPU": "many", "MemTotal": 1}'])
def test_a_program_that_is_no_engine_is_refused(program: Program, info: str) -> None:
    """By what it does not tell."""
    with pytest.raises(EngineError, match=r"is '.*my engine' docker, podman or nerdctl"):
        program(f"echo '{info}'").machine()


def test_a_stream_ends_with_the_engines_own_error(program: Program) -> None:
    """Rather than with what a reader makes of half an archive; one that is not read to its end is ended."""
    with (
        pytest.raises(EngineError, match="cut off"),
        program("printf abc; echo 'cut off' >&2; exit 1").stream("cp") as stream,
    ):
        assert stream.read() == b"abc"
    with (
        pytest.raises(EngineError, match="cut off"),
        program("echo 'cut off' >&2; exit 1").stream("cp") as stream,
        tarfile.open(fileobj=stream, mode="r|"),
    ):
        pass


def test_a_stream_that_is_not_wanted_any_more_is_ended(program: Program) -> None:
    """Its reader's error comes out, not that of the client that was cut off."""
    reader_failed = ValueError("enough")
    with pytest.raises(ValueError, match="enough"), program("exec yes").stream("cp"):
        raise reader_failed


# --- The files in a volume --------------------------------------------------------------------------------


def archive(*entries: tuple[str, bytes | str]) -> bytes:
    """Return a tar of files, and of links where the content is a text."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return body.getvalue()


class Folder:
    """A cluster dir whose engine gives what the test puts into a file, and keeps what it is given."""

    def __init__(self, place: Path, program: Program) -> None:
        self.tar, self.written, self.count = place / "tar", place / "written", place / "count"
        self.engine = program(
            f'echo "$@" >>"{self.count}"\n[ "$2" = - ] && exec cat >"{self.written}"\n[ -e "{self.tar}" ] && '
            f'exec cat "{self.tar}"\necho "Error: No such container:path: $2" >&2; exit 1'
        )
        register(self.engine)
        self.cluster_dir = ClusterDir("engine://c-MAIN/work/c", "1f2e3d4c", "")

    def asked(self) -> list[str]:
        return self.count.read_text().splitlines()


@pytest.fixture
def folder(tmp_path: Path, program: Program) -> Folder:
    return Folder(tmp_path, program)


def test_a_folder_is_copied_once_for_a_look(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read out of one copy for a moment, then out of a new one."""
    config = signed("MAIN_config.json", "1f2e3d4c", "", node="MAIN")
    folder.tar.write_bytes(archive(("c/MAIN_config.json", config), ("c/stop", b"x")))
    found = folder.cluster_dir.read("MAIN_config.json")
    assert found is not None
    assert found["node"] == "MAIN"
    before = folder.cluster_dir.listing()
    assert set(before) == {"MAIN_config.json", "stop"}
    assert folder.cluster_dir.is_there("stop")
    assert not folder.cluster_dir.is_there("other")
    assert len(folder.asked()) == 1
    folder.tar.write_bytes(archive(("c/stop", b"xyz")))
    monkeypatch.setattr(engine_files, "_FRESH_S", 0.0)
    assert folder.cluster_dir.read_bytes("stop", 1) == b"yz"
    assert folder.cluster_dir.listing()["stop"] != before["stop"]


def test_a_folder_that_is_not_there_yet_is_empty(folder: Folder) -> None:
    """As a cluster dir is before its first node has begun."""
    assert folder.cluster_dir.read("MAIN_config.json") is None
    assert folder.cluster_dir.listing() == {}


def test_an_engine_that_does_not_answer_tells_nothing_of_a_file(program: Program) -> None:
    """Not that it is absent."""
    register(program("echo 'Cannot connect to the Docker daemon' >&2; exit 1"))
    with pytest.raises(StorageError, match="does not answer"):
        ClusterDir("engine://c-MAIN/work/c", "1f2e3d4c", "").read("stop")


def test_what_is_no_plain_file_right_there_is_not_seen(folder: Folder) -> None:
    """Links, folders of nodes, paths that lead elsewhere, names that no node gives."""
    entries = [
        ("c/link", "/etc/passwd"),
        ("c/deep/stop", b"x"),
        ("c/../stop", b"x"),
        ("c/.hidden", b"x"),
        ("top", b"x"),
    ]
    folder.tar.write_bytes(archive(*entries, ("c/a b", b"x"), ("c/stop", b"x")))
    assert set(folder.cluster_dir.listing()) == {"stop"}


def test_a_file_that_is_too_long_is_not_kept_whole(folder: Folder) -> None:
    """And is refused by whoever reads it."""
    folder.tar.write_bytes(archive(("c/stop", b"x" * (3 * MAX_BYTES))))
    assert folder.cluster_dir.read("stop") is None
    assert folder.cluster_dir.unusable["stop"] == f"not usable (larger than {MAX_BYTES} bytes)"


def test_a_folder_that_is_too_large_is_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not fill the launcher's memory."""
    monkeypatch.setattr(engine_files, "_MAX_BYTES", 1 << 20)
    folder.tar.write_bytes(archive(*((f"c/{number}", b"x" * 1000) for number in range(2000))))
    with pytest.raises(StorageError, match="holds more than 1 MiB"):
        folder.cluster_dir.listing()


def test_an_archive_that_is_cut_off_is_asked_for_again(folder: Folder) -> None:
    """Three times; it is no empty folder."""
    folder.tar.write_bytes(archive(("c/stop", b"x" * 5000))[:2000])
    with pytest.raises(StorageError, match="cannot be read"):
        folder.cluster_dir.listing()
    assert len(folder.asked()) == 3


def test_a_file_is_written_so_that_the_nodes_user_can_read_it(folder: Folder) -> None:
    """It will be root's."""
    folder.cluster_dir.publish("stop", reason="enough")
    assert folder.asked() == ["cp - c-MAIN:/work/c"]
    with tarfile.open(folder.written) as tar:
        (entry,) = tar.getmembers()
        content = tar.extractfile(entry)
        assert content is not None
        assert json.loads(content.read())["reason"] == "enough"
    assert (entry.name, entry.mode) == ("stop", 0o644)
