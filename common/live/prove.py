"""The entry point of check.sh --live: nodes prove that their ports can be reached.

Each node listens on one port of each setting in LIVE_PORTS (NAME=first:last, blanks between; without any on a port that
the system chooses) and the other connects. Where main alone runs the entry point, the framework takes the functions to
the workers: peers.py, which lies beside this file then, says how. Else main and workers meet on LIVE_MEETING, a port of
main, where each proves that it has the launch's key before the other says or does more.

Prints a line for each port: live: fine|fails from NODE to NODE: NAME PORT. Exit: 0 all are reached; 1 one is not.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import importlib
import json
import os
import secrets
import socket
import sys
import time
from pathlib import Path
from typing import Any

# Seconds for a connection, which in a subnet takes a thousandth; a rule that is missing lets it hang.
CONNECT_S = 10.0
# Until the other node's script runs: it may start a minute later, and imports take a while.
MEET_S = 180.0
# For who says who it is: whoever reaches the port may say nothing.
PROOF_S = 5.0


def open_ports(wanted: str) -> dict[str, int]:
    """Listen on one port of each setting that is *wanted*; return the ports by setting.

    A single port that is taken is the framework's own, which listens there: it can be connected to as well.
    """
    address, found, kept = os.environ["NODE_ADDRESS"], {}, []
    for word in wanted.split() or ["ANY_PORT=0"]:
        name, _, text = word.partition("=")
        first, _, last = text.partition(":")
        for port in range(int(first), int(last or first) + 1):
            server = socket.socket()
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind((address, port))
                server.listen()
            except OSError as error:
                server.close()
                if error.errno != errno.EADDRINUSE:
                    raise
                found.setdefault(name, port)
            else:
                found[name] = server.getsockname()[1]
                kept.append(server)
                break
    # They listen as long as this process lives, wherever this function has been taken to.
    vars(sys).setdefault("live_servers", []).extend(kept)
    return found


def reach(address: str, ports: dict[str, int]) -> dict[str, str]:
    """Connect to *ports* on *address*; return why each failed; empty where none did."""
    found = {}
    for name, port in ports.items():
        try:
            socket.create_connection((address, port), timeout=CONNECT_S).close()
            found[name] = ""
        except OSError as error:
            found[name] = str(error)
    return found


class Peer:
    """A worker's part in the proof, called by another process."""

    def open(self, wanted: str) -> tuple[str, str, dict[str, int]]:
        """Return the node's name, its address and the ports on which it listens."""
        return os.environ["NODE_NAME"], os.environ["NODE_ADDRESS"], open_ports(wanted)

    def reach(self, address: str, ports: dict[str, int]) -> dict[str, str]:
        return reach(address, ports)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tell(source: str, target: str, ports: dict[str, int], results: dict[str, str]) -> bool:
    """Print what became of each port; return whether all were reached."""
    for name, why in results.items():
        verdict = "fails" if why else "fine"
        say(f"live: {verdict} from {source} to {target}: {name} {ports[name]}{f': {why}' * bool(why)}")
    return not any(results.values())


def with_peer(call: Any, wanted: str) -> bool:
    """Prove both ways between this node and a worker whose :class:`Peer` does what *call* is given."""
    own_name, own_address, own = Peer().open(wanted)
    name, address, theirs = call("open", wanted)
    there = tell(own_name, name, theirs, reach(address, theirs))
    return tell(name, own_name, own, call("reach", own_address, own)) and there


def with_peers(wanted: str) -> bool:
    """Prove it with each worker to which the framework takes a :class:`Peer`."""
    peers = importlib.import_module("peers")  # beside this file
    # Each, whatever becomes of one.
    return all([with_peer(call, wanted) for call in peers.callers(Peer)])  # noqa: C419


def as_main(wanted: str, meeting: int, workers: int) -> bool:
    """Meet *workers* nodes that run this script, too, and prove it with each."""
    is_proved, deadline = True, time.monotonic() + MEET_S
    with socket.create_server((os.environ["NODE_ADDRESS"], meeting)) as server:
        while workers:
            server.settimeout(max(0.1, deadline - time.monotonic()))
            with contextlib.closing(_Line(server.accept()[0])) as line:
                if line.is_of_this_launch("MAIN", "WORKER"):
                    workers -= 1
                    is_proved = with_peer(line, wanted) and is_proved
    return is_proved


def proof(role: str, question: str) -> str:
    """Return the answer to *question* as *role*: neither can be played to the other."""
    launch_key = os.environ.get("LAUNCH_KEY") or os.environ.get(
        "LAUNCH_ID", ""
    )  # as contract/files/signing.py derives keys
    key = hmac.digest(launch_key.encode(), b"live", "sha256")
    return hmac.digest(key, f"{role} {question}".encode(), "sha256").hex()


class _Line:
    """One connection between main and a worker."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile(encoding="utf-8")

    def is_of_this_launch(self, own: str, other: str) -> bool:
        """Return whether the other end has the launch's key, as the role *other*; show it the same, as *own*."""
        self._connection.settimeout(PROOF_S)
        question = secrets.token_hex(32)
        try:
            self._say(question)
            self._say(proof(own, self._file.readline(100).strip()))
            is_one = hmac.compare_digest(self._file.readline(100).strip().encode(), proof(other, question).encode())
        except (OSError, ValueError):  # it hangs up, says nothing, or says what is no text
            return False
        self._connection.settimeout(MEET_S)
        return is_one

    def _say(self, text: str) -> None:
        self._connection.sendall(f"{text}\n".encode())

    def __call__(self, method: str, *arguments: Any) -> Any:
        """Have the worker do *method* of its :class:`Peer`; return what that returns."""
        self._say(json.dumps([method, *arguments]))
        return json.loads(self._file.readline())

    def obey(self) -> None:
        for asked in self._file:
            method, *arguments = json.loads(asked)
            self._say(json.dumps(getattr(Peer(), method)(*arguments)))

    def close(self) -> None:
        self._file.close()
        self._connection.close()


def as_worker(meeting: int) -> bool:
    """Do what main asks for, until it hangs up."""
    deadline = time.monotonic() + MEET_S
    while True:
        why = "another program listens there"
        try:
            connection = socket.create_connection((os.environ["MAIN_ADDRESS"], meeting), timeout=CONNECT_S)
            with contextlib.closing(_Line(connection)) as line:
                if line.is_of_this_launch("WORKER", "MAIN"):
                    line.obey()
                    return True
        except OSError as error:
            why = str(error)
        if time.monotonic() > deadline:
            say(f"live: fails from {os.environ['NODE_NAME']} to MAIN: the meeting {meeting}: {why}")
            return False
        time.sleep(0.2)


def main() -> int:
    """Prove it as this node's framework and role do; return the exit code."""
    wanted = os.environ.get("LIVE_PORTS", "")
    local_rank = os.environ.get("LOCAL_RANK") or os.environ.get("HOROVOD_LOCAL_RANK") or "0"
    if local_rank != "0":  # one process speaks for its node
        return 0
    if Path(__file__).with_name("peers.py").is_file():
        is_proved = with_peers(wanted)
    elif os.environ["MODE"] == "MAIN":
        is_proved = as_main(wanted, int(os.environ["LIVE_MEETING"]), int(os.environ["WORKER_COUNT"]))
    else:
        is_proved = as_worker(int(os.environ["LIVE_MEETING"]))
    # What a node leaves in the work dir is seen by others: the agent brings it there.
    Path(os.environ["OUTPUT_DIR"], f"proved-by-{os.environ['NODE_NAME']}").touch()
    return 0 if is_proved else 1


if __name__ == "__main__":
    sys.exit(main())
