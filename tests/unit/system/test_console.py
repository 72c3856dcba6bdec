"""What is printed for a reader that goes, a disk that is full, a stream that is closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMON = Path(__file__).resolve().parents[3] / "common"


def run(code: str, stdout: str = "|") -> tuple[int, str, str]:
    """Run Python *code* whose stdout is `| true`, or the file *stdout*; return its exit code, stdout and stderr."""
    text = f"from oci_cluster.system.console import *; import sys, time\n{code}"
    shell = '"$0" -c "$1" | read -r first; exit ${PIPESTATUS[0]}' if stdout == "|" else f'"$0" -c "$1" >{stdout}'
    done = subprocess.run(
        ["bash", "-c", shell, sys.executable, text], cwd=COMMON, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


LASTING = """
out = LastingOutput(lambda error: sys.stderr.write(f"{type(error).__name__}: {error}\\n"))
for number in range(100_000):
    out.write(f"line {number}\\n")
    out.flush()
sys.exit(7)
"""


def test_who_must_go_on_does_so_without_a_reader() -> None:
    """It is told once; the exit code stays its own, and Python has no last words about it."""
    code, _, said = run(LASTING)
    assert (code, said) == (7, "BrokenPipeError: [Errno 32] Broken pipe\n")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
@pytest.mark.parametrize("check", ["", "check_stdout()\n"])
def test_who_must_go_on_does_so_on_a_full_disk(check: str) -> None:
    """Likewise, whether stdout is checked or not."""
    code, _, said = run(check + LASTING, "/dev/full")
    assert (code, said.count("\n")) == (7, 1)
    assert said.endswith("No space left on device\n")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
@pytest.mark.parametrize("flush", [True, False])
def test_a_print_that_fails_is_told_from_other_failures(*, flush: bool) -> None:
    """As an error of ours with one line; what could not be written is not tried again at Python's end."""
    code = f"""
check_stdout()
try:
    print("x" * 100, flush={flush})
    sys.stdout.flush()
except OutputError as error:
    sys.stderr.write(f"{{error}} {{error.exit_code:d}}\\n")
"""
    assert run(code, "/dev/full") == (0, "", "the output cannot be written: No space left on device 69\n")


def test_a_checked_stdout_prints_as_ever(tmp_path: Path) -> None:
    """In the encoding that it had."""
    file = tmp_path / "out"
    assert run("check_stdout(); print('caf\u00e9')", str(file))[0] == 0
    assert file.read_text() == "caf\u00e9\n"


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_talk_that_nobody_can_hear_fails_nothing() -> None:
    """A closed terminal must not end what goes on."""
    code = "from oci_cluster.system.console import *; say_to_stderr('launch.sh')('hello'); raise SystemExit(7)"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], cwd=COMMON, stderr=full, check=False)
    assert done.returncode == 7


def test_a_message_tells_no_password() -> None:
    """What others say, such as git or storage, quotes the URL that it was given."""
    code = "say_to_stderr('launch.sh')('ftp://me:hunter2@host/x: timed out')"
    assert run(code, "/dev/null") == (0, "", "launch.sh: ftp://***@host/x: timed out\n")
