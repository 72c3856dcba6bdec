"""A terminal with a shell in it, as a person has one: keys go in, and what the screen shows comes out."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path

# As elsewhere in these tests: a busy machine of two cores is much slower than a quiet one.
PATIENCE_S = 120.0
# What a terminal obeys, and does not show.
_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][0-9A-Z]|[=>78])|[\x00\x07\x08\x0f]")
# A key that shows what is typed so far, and the marks between which it does.
SHOW = "\x18p"
_BEFORE, _AFTER = "<<<", ">>>"

BASH = [
    *("PS1='$ '", "HISTFILE=", "unset PROMPT_COMMAND"),
    "bind 'set show-all-if-ambiguous on'; bind 'set completion-query-items 0'; bind 'set page-completions off'",
    "bind 'set enable-bracketed-paste off'; bind 'set bell-style none'",
    r"""bind -x '"\C-xp": printf "\n%s%s%s\n" "<<" "<${READLINE_LINE}>" ">>"'""",
]
ZSH = [
    *("PS1='$ '", "HISTFILE=", "LISTMAX=1000", "zle_bracketed_paste=()"),
    "setopt no_beep no_prompt_cr",
    *("_show() { print; print -r -- '<<''<'$BUFFER'>''>>' }", "zle -N _show", "bindkey '^Xp' _show"),
]


def why_not(shell: str) -> str:
    """Return what is missing to have *shell* in a terminal; empty where nothing is."""
    return "" if shutil.which(shell) else f"needs {shell}"


class Terminal:
    """A shell of its own, in a terminal."""

    def __init__(self, shell: str, directory: Path, environ: Mapping[str, str], columns: int = 200) -> None:
        """Start *shell*, ``bash`` or ``zsh``, in *directory*, without the files that a person has for it."""
        command = [shell, "--norc", "--noprofile", "-i"] if shell == "bash" else [shell, "-f", "-i"]
        self._terminal, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            env={"TERM": "xterm", **environ},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no thread here takes locks
        )
        os.close(its)
        self._seen = ""
        for line in {"bash": BASH, "zsh": ZSH}[shell]:
            self.run(line)

    def __enter__(self) -> Terminal:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the shell as a terminal does that is closed."""
        os.close(self._terminal)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()

    def run(self, line: str) -> str:
        """Run *line*, wait for its end, and return all that the terminal got meanwhile: colours, too."""
        # The mark is not what is typed: that is shown as well.
        self._send(f"{line}; printf '%s%s\\n' END -OF-IT\r")
        shown = self._until(r"END-OF-IT\r?\n").rpartition("END-OF-IT")[0]
        # It is shown twice where it came before the prompt.
        return shown.rpartition("-OF-IT\r")[2]

    def complete(self, text: str) -> tuple[str, str]:
        """Return what is typed when TAB has been pressed behind *text*, and what was shown to choose from."""
        self._send(f"{text}\t{SHOW}")
        shown = plain(self._until(re.escape(_AFTER)))
        listed, _, line = shown.rpartition(_BEFORE)
        self._send("\x15")  # deletes what is typed
        return line.removesuffix(_AFTER), listed.partition(text)[2]

    def seconds_of(self, text: str) -> float:
        """Return how long a TAB behind *text* takes, and the key that shows the line."""
        begun = time.monotonic()
        self.complete(text)
        return time.monotonic() - begun

    def _send(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _until(self, pattern: str) -> str:
        """Return what has come up to *pattern*."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, self._seen)):
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                msg = f"waited {PATIENCE_S:g} s for {pattern}; got {self._seen!r}"
                raise AssertionError(msg)
            self._seen += os.read(self._terminal, 65536).decode(errors="replace")
        before, self._seen = self._seen[: found.end()], self._seen[found.end() :]
        return before


def plain(text: str) -> str:
    """Return *text* without what a terminal obeys."""
    return _SEQUENCE.sub("", text)
