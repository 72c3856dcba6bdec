"""The way to an unpublished port of a container: a program run inside it."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import time
from pathlib import Path

from oci_cluster.errors import BackendError, NotPermittedError
from oci_cluster.system.engine import Engine
from oci_cluster.system.stream_bridge import Lines
from oci_cluster.system.text import printable

_RELAY = Path(__file__).with_name("exec_proxy.py").read_text(encoding="utf-8")
# To start a program in a container took 0.1 s, on a busy machine of 2 cores 1.5 (docker 20.10).
_DIAL_S = 30.0
# Its words are one line.
_LONGEST_WORDS = 4096
# Its client may take so long to end when the program has.
_END_S = 5.0


class ContainerPortForward:
    """A way to a port of one container; each connection is a program there."""

    address = ""

    def __init__(self, engine: Engine, container: str, node: str, port: int) -> None:
        """Lead to *port* of *container*, by its name: its replacement is found, too."""
        self._engine = engine
        self._container, self._node, self._port = container, node, port
        self._lines = Lines()

    def dial(self) -> socket.socket:
        """Return a new connection to the port."""
        words = ("exec", "--interactive", self._container, "python", "-I", "-S", "-c", _RELAY, str(self._port))
        line = _ExecLine(self._engine.talk(*words))
        try:
            self._check(line)
        except BaseException:
            line.close()
            line.free()
            raise
        return self._lines.carry(line)

    def _check(self, line: _ExecLine) -> None:
        """Raise why *line* does not lead to the port, where it does not."""
        said, where = line.first_words(_DIAL_S), f"port {self._port} of {self._node}"
        if said == b"+":
            return
        if said is None:
            raise BackendError(
                f"{where}: {self._engine.program} exec {self._container} did not answer within {_DIAL_S:g} s"
            )
        if said[:1] == b"-":
            raise BackendError(f"nobody listens on {where} ({printable(said[1:].decode(errors='replace'))})")
        # In the engine's words, which its clients print on either.
        failure = self._engine.failure(("exec", self._container), said + line.errors())
        if isinstance(failure, NotPermittedError):
            raise failure
        raise BackendError(f"{where} cannot be reached: {failure}") from failure

    def close(self) -> None:
        """End all connections."""
        self._lines.close()


class _ExecLine:
    """The bytes of one connection, in the frames that ``exec_proxy.py`` explains."""

    # Through the engine's client, which ends by itself when the other end has: it is killed later.
    last_s = 5.0

    def __init__(self, client: subprocess.Popen[bytes]) -> None:
        assert client.stdin is not None  # noqa: S101 - for the type checker: all three are pipes
        assert client.stdout is not None  # noqa: S101 - likewise
        assert client.stderr is not None  # noqa: S101 - likewise
        self._client = client
        self._in, self._out, self._errors = client.stdin, client.stdout, client.stderr

    def first_words(self, timeout_s: float) -> bytes | None:
        """Return ``+`` when connected; else all that was said; None: nothing was."""
        deadline = time.monotonic() + timeout_s
        said = b""
        while said != b"+" and len(said) < _LONGEST_WORDS:
            if not select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return said or None
            # A byte: what comes behind is the port's.
            if not (more := self._out.read(1 if not said else _LONGEST_WORDS)):
                break
            said += more
        return said

    def errors(self) -> bytes:
        """Return what the client has said of errors, when it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._client.wait(_END_S)
            return self._errors.read(_LONGEST_WORDS) or b""
        return b""

    def send(self, data: bytes) -> None:
        for part in (len(data).to_bytes(4, "big"), data):
            self._write(part)

    def end_sending(self) -> None:
        self._write(bytes(4))

    def _write(self, data: bytes) -> None:
        while data:
            data = data[self._in.write(data) or 0 :]

    def receive(self) -> bytes:
        return self._read(int.from_bytes(self._read(4), "big"))

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            if not (more := self._out.read(count - len(found))):
                raise EOFError
            found += more
        return found

    def close(self) -> None:
        # A pipe that another thread writes to is not closed under its hands: the client is ended, and that ends both.
        self._client.kill()
        self._client.wait()

    def free(self) -> None:
        for pipe in (self._in, self._out, self._errors):
            pipe.close()
