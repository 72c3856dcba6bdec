"""What is forked of a process that has imported it: it gets what its caller has, and ends with its caller."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import warm
from harness import wait_until
from oci_service.handle import Service

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="beside Linux programs are started as they are")


def run(start: list[str], *words: str, **environ: str) -> tuple[int, str, str]:
    """Return the exit code of an oci-cli, and what it has printed and said."""
    given = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "env": environ}
    done = subprocess.run([*start, *words], check=False, timeout=60, **given)  # type: ignore[call-overload]
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [("--version",), ("os", "no-such-command")])
def test_oci_says_and_ends_with_what_it_would_by_itself(words: tuple[str, ...]) -> None:
    assert run(warm.command("oci"), *words) == run([str(Path(sys.executable).with_name("oci"))], *words)


def test_each_has_the_environment_that_it_was_given(tmp_path: Path) -> None:
    """And nothing of one before it."""
    for name in ("mine", "yours"):
        file = str(tmp_path / name)
        code, printed, _ = run(warm.command("oci"), "os", "ns", "get", OCI_CLI_CONFIG_FILE=file)
        assert (code != 0, file in printed, printed.count(str(tmp_path))) == (True, True, 1)


def test_a_program_ends_with_who_has_asked_for_it(tmp_path: Path) -> None:
    """However that ends."""
    with Service(tmp_path / "s", start=warm.command("oci_service")) as service:
        service.process.kill()
        service.process.wait()

        def left() -> list[psutil.Process]:
            return [one for one in psutil.process_iter() if service._port in listening(one)]

        wait_until(lambda: not left(), lambda: f"the end of {left()}", 30)


def listening(process: psutil.Process) -> set[int]:
    try:
        return {one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
    except psutil.Error:
        return set()
