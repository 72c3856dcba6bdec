"""What builds the Kubernetes of tests: two at once, one that is killed, one that fails; with a stub for Go."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
BUILD = CHECKOUT / "tests" / "kubernetes" / "build-tools.sh"
GO = """#!/bin/bash
case "$1 $2" in
  "env GOVERSION") echo "${STUB_VERSION:-go1.26.8}" ;;
  "env GOOS") echo linux amd64 ;;
  "list -m") echo "$STUB" ;;
  build*)
    echo built >>"$STUB/log"
    [ -z "$STUB_FAILS" ] || { echo "x.go:1: wrong" >&2; exit 1; }
    while [ "$1" != -o ]; do shift; done
    touch "$2/server" "$2/kubelet"
    until [ -e "$STUB/go on" ]; do sleep 0.02; done
    ;;
esac
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Return what starts the build with a stub; ``go on`` lets it end."""
    stub = tmp_path / "stub"
    for folder in ("config/components", "kustomize"):
        (stub / folder).mkdir(parents=True)
    (stub / "go").write_text(GO)
    (stub / "go").chmod(0o755)

    def start(*words: str, script: Path = BUILD, **environ: str) -> subprocess.Popen[str]:
        own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "STUB": str(stub), "GO": str(stub / "go")}
        return subprocess.Popen(
            [script, *words],
            env={"PATH": os.environ["PATH"], **own, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start


def builds(tmp_path: Path) -> int:
    log = tmp_path / "stub" / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def wait_for_builds(tmp_path: Path, count: int) -> None:
    deadline = time.monotonic() + 30
    while builds(tmp_path) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_at_once_build_once(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    first = start()
    wait_for_builds(tmp_path, 1)
    second = start()
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1)  # it waits for the first
    (tmp_path / "stub" / "go on").touch()
    directories = {Path(process.communicate(timeout=30)[0].strip()) for process in (first, second)}
    assert len(directories) == 1
    assert builds(tmp_path) == 1
    assert {path.name for path in (directories.pop() / "bin").iterdir()} == {"etcd", "kubelet"}


def test_one_that_is_killed_leaves_nothing_that_passes_for_whole(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    first = start()
    wait_for_builds(tmp_path, 1)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    (tmp_path / "stub" / "go on").touch()
    second = start()
    directory = Path(second.communicate(timeout=30)[0].strip())
    assert builds(tmp_path) == 2
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]


def test_a_failure_is_told_with_what_the_compiler_said(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    failed = start(STUB_FAILS="1")
    out, err = failed.communicate(timeout=30)
    assert (failed.returncode, out) == (69, "")
    assert "x.go:1: wrong" in err
    assert "could not be built" in err
    (tmp_path / "stub" / "go on").touch()
    again = start()
    assert Path(again.communicate(timeout=30)[0].strip(), "bin", "etcd").exists()


def test_another_go_builds_into_another_directory(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    (tmp_path / "stub" / "go on").touch()
    versions = ("go1.26.8", "go1.27.1")
    assert len({start(STUB_VERSION=version).communicate(timeout=30)[0] for version in versions}) == 2


def test_a_go_that_is_too_old_is_not_taken(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    """Where there is no other: neither on PATH nor in .venv."""
    checkout, path = tmp_path / "checkout", tmp_path / "bin"
    shutil.copytree(BUILD.parent, checkout / "tests" / "kubernetes", ignore=shutil.ignore_patterns("*.py"))
    (checkout / "common").mkdir()
    shutil.copy(CHECKOUT / "common" / "lib.sh", checkout / "common")
    path.mkdir()
    for name in ("awk", "bash", "dirname", "env", "readlink", "sed", "sort"):
        (path / name).symlink_to(str(shutil.which(name)))
    script = checkout / "tests" / "kubernetes" / "build-tools.sh"
    assert start("--go", script=script, PATH=str(path)).communicate(timeout=30)[0].endswith("/stub/go\n")
    process = start("--go", script=script, PATH=str(path), STUB_VERSION="go1.25.9")
    err = process.communicate(timeout=30)[1]
    assert process.returncode == 69
    assert "go is go1.25.9; run: scripts/dev-setup.sh go" in err
