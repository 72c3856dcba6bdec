"""Runs a command with the signals of a terminal: `with_signals.py COMMAND...`.

What is started in the background ignores SIGINT from its first moment, what nohup starts SIGHUP. No shell can take that
back, and tests of Ctrl-C and of a closed terminal need both. The command gets a session of its own: the signals of the
terminal that this was started from do not reach it; TERM does, through this process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def main() -> int:
    """Return the command's exit code, as a shell has it."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)
    child = subprocess.Popen(sys.argv[1:], start_new_session=True)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(child.pid, signal.SIGTERM))
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
