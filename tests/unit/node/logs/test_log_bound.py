"""What is kept of a node that prints without end, and what is said of the rest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from oci_cluster.contract.files import node_logs
from oci_cluster.node.logs.pump import LogBound

NOTICE = b"more than 10 bytes have been printed (MAX_LOG_BYTES); further output is not kept\n"


def test_what_is_within_the_bound_is_kept_unchanged() -> None:
    """The last byte of it, too; nothing is said."""
    bound = LogBound(10)
    assert bound.take(b"12345678\n", b"") + bound.take(b"0", b"") + bound.take(b"", b"") + bound.end() == b"12345678\n0"


def test_what_is_beyond_it_is_counted_and_said_twice() -> None:
    """When it begins, and at the end with a number: each as a line of its own. The agent's lines stay."""
    bound = LogBound(10)
    kept = [
        bound.take(b"open", b""),
        bound.take(b"", b""),
        bound.take(b"1234567agent: x\n", b"agent: x\n"),
        bound.take(b"more\n", b""),
    ]
    kept += [bound.take(b"agent: y\nand", b"agent: y\n"), bound.end()]
    said = b"15 bytes of output were not kept (MAX_LOG_BYTES)\n"
    assert kept == [b"open", b"", b"\n" + NOTICE + b"agent: x\n", b"", b"agent: y\n", said]


def test_a_line_that_has_ended_is_not_ended_again() -> None:
    """Nor where nothing has been printed since."""
    bound = LogBound(10)
    assert bound.take(b"whole\n", b"") + bound.take(b"", b"") + bound.take(b"much more", b"") == b"whole\n" + NOTICE


def test_no_bound_is_none() -> None:
    """0."""
    bound = LogBound(0)
    assert (len(bound.take(b"x" * 10**6, b"")), bound.end()) == (10**6, b"")


# --- A script that prints as fast as it can ---------------------------------------------------------------------------

TOTAL = 200_000_000
NODE = """
import logging, subprocess, sys
from pathlib import Path
from oci_cluster.node.logs.pump import LogPump
logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
bound, stamped = int(sys.argv[1]), Path(sys.argv[2])
relay = LogPump("MAIN", stamped=stamped, max_bytes=bound)
code = subprocess.call([sys.executable, "-c", '''
import sys
block = ("x" * 99 + chr(10)) * 10_000
for _ in range(199):
    sys.stdout.write(block)
sys.stdout.write(block[:-9] + "the last" + chr(10))
sys.exit(3)
'''])
logging.info("agent: it ended with %d, after %r", code, relay.tail()[-9:])
relay.finish()
"""


@pytest.mark.slow
@pytest.mark.parametrize("bound", [0, 2 << 20])
def test_a_script_that_prints_200_mb_goes_on_and_nothing_is_lost_without_a_word(tmp_path: Path, bound: int) -> None:
    """It ends with its own code, its last words are known; what is kept and what is counted is all it has printed."""
    stamped = tmp_path / "stamped"
    stamped.touch()
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, "-c", NODE, str(bound), str(stamped)],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(node_logs.__file__).parents[3])},
            stdout=log, stderr=subprocess.STDOUT, timeout=600, check=False,
        )  # fmt: skip
    text = (tmp_path / "log").read_bytes()
    lines = text[-1000:].decode().splitlines()
    agents = "agent: it ended with 3, after 'the last\\n'"
    assert (done.returncode, agents in lines) == (0, True)
    kept = sum(len(found) for found in re.findall(rb"^x+(?:the last)?\n", text, re.MULTILINE))
    if not bound:
        assert kept == TOTAL
        return
    dropped = re.fullmatch(r"(\d+) bytes of output were not kept \(MAX_LOG_BYTES\)", lines[-1])
    assert dropped is not None
    is_cut = not text.partition(b"\nmore than")[0].endswith(b"x" * 99)
    assert (kept + int(dropped[1]) - is_cut, len(text) <= bound + 1000) == (TOTAL, True)
    assert text.count(b"more than 2097152 bytes have been printed") == 1
    assert stamped.stat().st_size < 2 * bound
