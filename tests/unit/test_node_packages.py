"""node_modules without npm: from a registry of the test's own, all of it or nothing."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import node_packages
import pytest
from node_packages import InstallError, fetch, install, locked_packages, npm_settings, unpack

PATIENCE_S = 60


def packed(*members: tuple[str, bytes, int], kind: bytes = tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content, mode in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.type = len(content), mode, kind
            member.linkname = "elsewhere"
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


BATS = packed(("package/bin/bats", b"#!/bin/sh\n", 0o755), ("package/README.md", b"read me\n", 0o600))


class Registry:
    """What answers, by path; ``asked`` has the paths and credentials; None hangs until the test ends."""

    def __init__(self) -> None:
        self.files: dict[str, bytes | int | None] = {}
        self.asked: list[tuple[str, str]] = []
        self.is_asked, self.ends = threading.Event(), threading.Event()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append((self.path, self.headers.get("Authorization", "")))
                registry.is_asked.set()
                found = registry.files.get(self.path, 404)
                if found is None:
                    registry.ends.wait(PATIENCE_S)
                    found = 404
                self.send_response(found if isinstance(found, int) else 200)
                self.end_headers()
                self.wfile.write(found if isinstance(found, bytes) else b"")

            def log_message(self, *words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/npm"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(node_packages.time, "sleep", lambda _: None)
    made = Registry()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.ends.set()
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def lock(tmp_path: Path) -> Callable[..., Path]:
    """Return what writes a lock with packages by folder, in a checkout that is returned."""

    def lock(**packages: bytes | str) -> Path:
        root = tmp_path / "check out"
        root.mkdir(exist_ok=True)
        entries: dict[str, dict[str, str]] = {"": {"name": "tools"}}
        for name, tarball in packages.items():
            entries[f"node_modules/{name}"] = {"version": "1.2.3", "integrity": integrity(tarball)}
        (root / "package-lock.json").write_text(json.dumps({"lockfileVersion": 3, "packages": entries}))
        return root

    return lock


def integrity(tarball: bytes | str) -> str:
    if isinstance(tarball, str):
        return tarball
    return "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()


def environ(registry: Registry) -> dict[str, str]:
    return {"npm_config_registry": registry.url, "HOME": "/none"}


def test_packages_are_installed_as_npm_does_it(registry: Registry, lock: Callable[..., Path]) -> None:
    registry.files = {"/npm/bats/-/bats-1.2.3.tgz": BATS, "/npm/more/-/more-1.2.3.tgz": BATS}
    root = lock(bats=BATS, more=BATS)
    (root / "node_modules" / "old").mkdir(parents=True)
    install(root, environ(registry))
    assert sorted(path.name for path in (root / "node_modules").iterdir()) == ["bats", "more"]
    assert os.access(root / "node_modules" / "bats" / "bin" / "bats", os.X_OK)
    assert (root / "node_modules" / "bats" / "README.md").stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in root.iterdir()) == ["node_modules", "package-lock.json"]


def test_what_the_lock_calls_resolved_is_asked_of_the_users_registry(registry: Registry, tmp_path: Path) -> None:
    lock = tmp_path / "package-lock.json"
    entry = {"version": "1.2.3", "integrity": integrity(BATS), "resolved": "https://registry.npmjs.org/b/-/other.tgz"}
    lock.write_text(json.dumps({"packages": {"node_modules/@a/b": entry}}))
    ((url, _),) = locked_packages(lock).values()
    registry.files["/npm/b/-/other.tgz"] = BATS
    assert fetch(url, {"registry": registry.url}) == BATS
    del entry["resolved"]
    lock.write_text(json.dumps({"packages": {"node_modules/@a/b": entry}}))
    assert locked_packages(lock)["node_modules/@a/b"][0] == "https://registry.npmjs.org/@a/b/-/b-1.2.3.tgz"


def test_a_wrong_hash_is_refused_and_what_was_there_stays(registry: Registry, lock: Callable[..., Path]) -> None:
    registry.files = {"/npm/bats/-/bats-1.2.3.tgz": BATS, "/npm/more/-/more-1.2.3.tgz": b"another file"}
    root = lock(bats=BATS, more=BATS)
    (root / "node_modules" / "old").mkdir(parents=True)
    with pytest.raises(InstallError, match=r"node_modules/more: the registry's file has sha512 .*; not installed"):
        install(root, environ(registry))
    assert [path.name for path in (root / "node_modules").iterdir()] == ["old"]
    assert sorted(path.name for path in root.iterdir()) == ["node_modules", "package-lock.json"]


@pytest.mark.parametrize("name", ["/etc/x", "../x", "package/../../x", "package/a/../../../x"])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InstallError, match=r"bats has '.*', which is no plain file inside it"):
        unpack(packed((name, b"x", 0o644)), tmp_path / "here" / "bats")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_link_is_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(InstallError, match="no plain file"):
        unpack(packed(("package/x", b"", 0o644), kind=kind), tmp_path / "bats")


@pytest.mark.parametrize(
    "place", ["node_modules/../x", "node_modules/a/../../x", "/etc", "src", "node_modules/.x", "node_modules/"]
)
def test_a_lock_with_another_folder_is_refused(tmp_path: Path, place: str) -> None:
    lock = tmp_path / "package-lock.json"
    lock.write_text(json.dumps({"packages": {place: {"version": "1", "integrity": integrity(BATS)}}}))
    with pytest.raises(InstallError, match="is no folder of packages"):
        locked_packages(lock)


@pytest.mark.parametrize("text", ["", "sha1-abc"])
def test_a_package_without_sha512_is_refused(lock: Callable[..., Path], text: str) -> None:
    with pytest.raises(InstallError, match="'node_modules/bats' has no sha512; make the lock again"):
        locked_packages(lock(bats=text) / "package-lock.json")


def test_an_interrupted_installation_leaves_nothing(registry: Registry, lock: Callable[..., Path]) -> None:
    registry.files = {"/npm/bats/-/bats-1.2.3.tgz": BATS, "/npm/more/-/more-1.2.3.tgz": None}
    root = lock(bats=BATS, more=BATS)
    command = [sys.executable, "-I", node_packages.__file__, str(root)]
    with subprocess.Popen(command, env={**os.environ, **environ(registry)}) as process:
        while len(registry.asked) < 2:
            assert registry.is_asked.wait(PATIENCE_S)
            registry.is_asked.clear()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
    assert [path.name for path in root.iterdir()] == ["package-lock.json"]


def test_a_registry_that_fails_is_asked_again_and_one_that_refuses_is_not(registry: Registry) -> None:
    registry.files["/npm/x"] = 503
    with pytest.raises(InstallError, match=rf"{registry.url}/x cannot be had: .*503.*npm_config_registry=URL"):
        fetch("https://registry.npmjs.org/x", {"registry": registry.url})
    assert len(registry.asked) == node_packages.TRIES
    with pytest.raises(InstallError, match="404"):
        fetch("https://registry.npmjs.org/y", {"registry": registry.url})
    assert len(registry.asked) == node_packages.TRIES + 1


@pytest.mark.parametrize("registry_url", ["file:///etc", "registry.example"])
def test_a_registry_that_is_no_address_is_named(registry_url: str) -> None:
    with pytest.raises(InstallError, match=rf"'{registry_url}/x' is no address; see npm's setting registry"):
        fetch("https://registry.npmjs.org/x", {"registry": registry_url})


def test_the_registrys_token_is_told_to_it_alone(registry: Registry) -> None:
    registry.files = {"/npm/x": b"x", "/y": b"y"}
    host = registry.url.partition(":")[2]
    settings = {"registry": registry.url, f"{host}/:_authToken": "secret"}
    fetch("https://registry.npmjs.org/x", settings)
    fetch(registry.url.replace("/npm", "/y"), settings)
    assert registry.asked == [("/npm/x", "Bearer secret"), ("/y", "")]


def test_settings_are_those_of_npm(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").write_text(
        "; registry=no\n#registry=no\nregistry = https://${HOST}/x/\ncafile='/a b'\n${NONE}=1\n"
    )
    root = tmp_path / "root"
    root.mkdir()
    found = npm_settings(root, {"HOME": str(tmp_path), "HOST": "h"})
    assert (found["registry"], found["cafile"]) == ("https://h/x/", "/a b")
    (root / ".npmrc").write_text("registry=https://checkout/")
    assert npm_settings(root, {"HOME": str(tmp_path)})["registry"] == "https://checkout/"
    assert npm_settings(root, {"HOME": str(tmp_path), "NPM_CONFIG_REGISTRY": "https://v/"})["registry"] == "https://v/"
    moved = {"HOME": "/none", "npm_config_userconfig": str(tmp_path / ".npmrc"), "HOST": "h"}
    assert npm_settings(tmp_path / "none", moved)["registry"] == "https://h/x/"
