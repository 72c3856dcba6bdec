"""A process that all output of a node passes: it keeps lines whole."""

from __future__ import annotations

import gc
import logging
import mmap
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from oci_cluster.contract.files.log_times import Stamper, TimesWriter
from oci_cluster.system.process import name_process

# After so long a line without an end gets one: a progress bar draws its line again and again, for as long as an epoch.
CUT_S = 10.0
# The last output that is kept: a page of C++ stack or of a launcher's report may follow a traceback.
TAIL_BYTES = 32 << 10
# The size of a pipe (Linux).
_CHUNK = 64 << 10
# An answer takes microseconds. A disk to which others write gigabytes holds up who writes a log there for seconds;
# without an answer, an error is told without its own words.
_ANSWER_S = 15.0
_FORGET, _TELL = b"f", b"t"
_MOMENT = struct.Struct("d")
# Noted instead of obeyed: TERM to the whole group, as some engines send it, must not cost the last lines.
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Lines:
    """Output of script and agent as one text, in which lines stay whole."""

    def __init__(self, mark: bytes, clock: Callable[[], float]) -> None:
        """Expect *mark*, whose first byte is in it once, before the agent's lines alone."""
        self._mark = mark
        self._clock = clock
        self._held = b""
        self._open_since: float | None = None
        # True if the last line end was put in here: the script's own, if it comes now, would be a second one.
        self._is_cut = False
        self._of_agent = b""

    @property
    def due_s(self) -> float | None:
        """Seconds until :meth:`tick` has something to do; None where it has not."""
        return None if self._open_since is None else max(0.0, self._open_since + CUT_S - self._clock())

    def add(self, data: bytes) -> bytes:
        """Return what to write for the next *data*."""
        data = self._held + data
        cut_at = self._begun_mark(data)
        self._held, data = data[cut_at:], data[:cut_at]
        if self._mark not in data:
            return self._script(data)
        first, *others = data.split(self._mark)
        written = self._script(first)
        for text in others:
            line, end, more = text.partition(b"\n")
            self._of_agent += line + end
            written += self._cut() + line + end + self._script(more)
        return written

    def take_agents(self) -> bytes:
        """Return the lines of the agent's that have been added since the last call."""
        lines, self._of_agent = self._of_agent, b""
        return lines

    def _begun_mark(self, data: bytes) -> int:
        """Return where *data* ends in the beginning of a mark, else its length."""
        start = data.rfind(self._mark[:1], -len(self._mark))
        return start if start >= 0 and self._mark.startswith(data[start:]) and data[start:] != self._mark else len(data)

    def _script(self, data: bytes) -> bytes:
        if data and self._is_cut:
            self._is_cut = False
            data = data.removeprefix(b"\r\n" if data.startswith(b"\r") else b"\n")
        if data.endswith(b"\n"):
            self._open_since = None
        elif data and (self._open_since is None or b"\n" in data):
            self._open_since = self._clock()
        return data

    def tick(self) -> bytes:
        """Return the end of a line that has had none for too long."""
        return self._cut() if self.due_s == 0.0 else b""

    def end(self) -> bytes:
        """Return what ends the last line."""
        return self._held + (self._cut() or (b"\n" if self._held else b""))

    def _cut(self) -> bytes:
        if self._open_since is None:
            return b""
        self._open_since = None
        self._is_cut = True
        return b"\n"


def remember(tail: bytearray, data: bytes) -> None:
    """Add *data* to *tail*, the last ``TAIL_BYTES`` and some more."""
    tail += data
    if len(tail) > 4 * TAIL_BYTES:  # not with every line
        del tail[:-TAIL_BYTES]


class LogBound:
    """Passes on a number of bytes; of the rest, the agent's own lines only.

    What is dropped is counted, and that is said in the log: when it begins, and at the end.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._passed = 0
        self._dropped = 0
        self._is_open = False

    def take(self, printed: bytes, of_agent: bytes) -> bytes:
        """Return what is kept of *printed*, in which the lines *of_agent* are."""
        if not self._dropped:
            if not self._max_bytes or self._passed + len(printed) <= self._max_bytes:
                self._passed += len(printed)
                self._is_open = not printed.endswith(b"\n") if printed else self._is_open
                return printed
            self._dropped = len(printed) - len(of_agent)
            notice = b"more than %d bytes have been printed (MAX_LOG_BYTES); further output is not kept\n"
            return self._line(notice % self._max_bytes) + of_agent
        self._dropped += len(printed) - len(of_agent)
        return of_agent

    def end(self) -> bytes:
        """Return what is said at the end; nothing where all was kept."""
        return (
            self._line(b"%d bytes of output were not kept (MAX_LOG_BYTES)\n" % self._dropped) if self._dropped else b""
        )

    def _line(self, text: bytes) -> bytes:
        was_open, self._is_open = self._is_open, False
        return b"\n" + text if was_open else text


class Reminder:
    """Repeats the agent's reports in a long log: a kubelet keeps the last lines."""

    # A tenth of what a kubelet keeps of a log, and what is read of its beginning.
    LONG_BYTES = 1 << 20
    EVERY_BYTES, EVERY_S = 512 << 10, 10.0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[bytes, bytes] = {}
        self._bytes = self._since = 0
        self._at = clock()

    def add(self, shown: bytes, of_agent: bytes) -> bytes:
        """Return what is *shown*, with reports *of_agent* repeated after a line."""
        for line in of_agent.splitlines(keepends=True):
            if line.startswith(b"told "):
                self._told[line.split(b" ", 2)[1]] = line
        self._bytes += len(shown)
        self._since += len(shown)
        is_due = self._since >= self.EVERY_BYTES or self._clock() - self._at >= self.EVERY_S
        end = shown.rfind(b"\n") + 1
        if self._bytes <= self.LONG_BYTES or not (is_due and end):
            return shown
        self._since, self._at = 0, self._clock()
        return shown[:end] + b"".join(self._told.values()) + shown[end:]


class LogPump:
    """A process between this one, with its start script, and their output's place.

    It is a copy of this process, and nobody's child: the agent, which ends whatever is left of its own, does not end
    it. It ends when nobody is left who could print. What a script prints never waits for the agent. Script and agent
    write to one pipe, so that all is in the order of events; the agent's lines have a mark, which is taken off.
    """

    def __init__(
        self, node: str, *, times: Path | None = None, stamped: Path | None = None, max_bytes: int = 0
    ) -> None:
        """Begin.

        To be called before this process adopts orphans. *times* gets the times of a stdout that is a file, see
        `contract/files/log_times.py`; *stamped* all of it, each line after its time. *max_bytes*: see
        :class:`LogBound`; 0 is all.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        mark = f"\x1e{os.urandom(8).hex()}\x1f"
        printed, output = os.pipe()
        told, self._tell = os.pipe()
        self._answers, answers = os.pipe()
        self._saved = os.dup(1), os.dup(2)
        # Written by that process, and read by this one.
        self._printed = mmap.mmap(-1, _MOMENT.size)
        _MOMENT.pack_into(self._printed, 0, time.monotonic())
        # Until they are ignored there.
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        if (child := os.fork()) == 0:
            try:
                if os.fork() == 0:
                    for descriptor in (output, self._tell, self._answers, *self._saved):
                        os.close(descriptor)
                    pipes = printed, told, answers
                    places = {"times": times, "stamped": stamped}
                    _Copying(node, mark.encode(), pipes, self._printed, **places, max_bytes=max_bytes).run()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        for descriptor in (printed, told, answers):
            os.close(descriptor)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.close(output)
        self._marked = [
            _Marked(handler, mark)
            for handler in logging.getLogger().handlers
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr
        ]
        self._is_over = False

    def printed_at(self) -> float:
        """Return when the script last printed something, in monotonic seconds."""
        return float(_MOMENT.unpack_from(self._printed, 0)[0])

    def forget(self) -> None:
        """Forget what has been printed so far: another attempt begins."""
        self._say(_FORGET)

    def tail(self) -> str:
        """Return the last lines that were printed; nothing if the pump does not answer."""
        if not self._say(_TELL):
            return ""
        deadline = time.monotonic() + _ANSWER_S
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            left_s = deadline - time.monotonic()
            new = os.read(self._answers, _CHUNK) if select.select([self._answers], [], [], max(0.0, left_s))[0] else b""
            if not new:
                self._tell_no_more()
                return ""
            answer += new
        return answer[4:].decode(errors="replace")

    def finish(self) -> None:
        """Return when all is written; restore this process's own stdout and stderr."""
        if self._is_over:
            return
        self._is_over = True
        for marked in self._marked:
            marked.undo()
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, descriptor)
            os.close(saved)
        self._tell_no_more()
        select.select([self._answers], [], [], _ANSWER_S)  # readable when it has ended
        os.close(self._answers)

    def _say(self, what: bytes) -> bool:
        if self._tell < 0:
            return False
        try:
            os.write(self._tell, what)
        except BrokenPipeError:  # somebody has killed it
            self._tell_no_more()
            return False
        return True

    def _tell_no_more(self) -> None:
        if self._tell >= 0:
            os.close(self._tell)
            self._tell = -1


class _Marked(logging.Formatter):
    def __init__(self, handler: logging.Handler, mark: str) -> None:
        self._handler = handler
        self._formatter = handler.formatter or logging.Formatter()
        self._mark = mark
        handler.setFormatter(self)

    def format(self, record: logging.LogRecord) -> str:
        if record.name == "told":  # signed, and so without anything before it or in it
            return self._mark + record.getMessage()
        return self._mark + self._formatter.format(record)

    def undo(self) -> None:
        self._handler.setFormatter(self._formatter)


class _Log:
    def __init__(self, descriptor: int, stamper: Stamper | None = None) -> None:
        self._descriptor = descriptor
        self._stamper = stamper
        self._lost = 0

    def write(self, data: bytes) -> bool:
        """Write *data*; what a full disk refuses is lost, counted, and ends nothing."""
        text = f"\n{self._lost} bytes of this log could not be written\n".encode() + data if self._lost else data
        left = memoryview(self._stamper.add(text) if self._stamper else text)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except OSError:
                self._lost += len(data)
                if self._stamper:
                    self._stamper.is_open = True  # half of it may be there
                return False
        self._lost = 0
        return True


class _Copying:
    def __init__(
        self,
        node: str,
        mark: bytes,
        pipes: tuple[int, int, int],
        moment: mmap.mmap,
        *,
        times: Path | None,
        stamped: Path | None,
        max_bytes: int,
    ) -> None:
        self._printed, self._told, self._answers = pipes
        self._moment = moment
        self._lines = Lines(mark, time.monotonic)
        self._tail = bytearray()
        self._bound = LogBound(max_bytes)
        self._reminder = Reminder(time.monotonic)
        self._log = _Log(1)
        self._stamped = _Log(os.open(stamped, os.O_WRONLY | os.O_APPEND), Stamper()) if stamped else None
        self._has_ended = False
        self._times = TimesWriter(times) if times else None
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _IGNORED)
        gc.disable()  # what is there stays shared with the agent
        name_process(f"log {node}")
        os.set_blocking(self._printed, False)

    def run(self) -> None:
        """Write all output to stdout until nobody can print; obey the agent."""
        sources = [self._printed, self._told]
        while not self._has_ended:
            ready = select.select(sources, [], [], self._lines.due_s)[0]
            # All of it: what a script printed before it ended has to be in the answer to what is asked then.
            while self._pass_on():
                pass
            if self._told in ready and not self._obey():
                sources.remove(self._told)
            self._keep(self._lines.tick())
        self._keep(self._lines.end())
        self._write(self._bound.end())
        if self._times is not None:
            self._times.close()

    def _pass_on(self) -> bool:
        """Write what is there; return whether there may be more."""
        try:
            data = os.read(self._printed, _CHUNK)
        except BlockingIOError:
            return False
        self._has_ended = not data
        shown = self._lines.add(data)
        remember(self._tail, shown)
        self._keep(shown)
        return len(data) == _CHUNK

    def _obey(self) -> bool:
        """Do what the agent wants; return whether it may want more."""
        what = os.read(self._told, 1)
        if what == _TELL:
            body = self._tail[-TAIL_BYTES:]
            os.write(self._answers, len(body).to_bytes(4, "big") + body)
        elif what == _FORGET:
            self._tail.clear()
        return bool(what)

    def _keep(self, shown: bytes) -> None:
        of_agent = self._lines.take_agents()
        if len(shown) > len(of_agent):
            _MOMENT.pack_into(self._moment, 0, time.monotonic())
        self._write(self._reminder.add(self._bound.take(shown, of_agent), of_agent))

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._log.write(data) and self._times is not None:
            self._times.note(os.lseek(1, 0, os.SEEK_CUR))
        if self._stamped is not None:
            self._stamped.write(data)
