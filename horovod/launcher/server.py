"""A worker: an ssh server for main's key alone, which starts ranks of this node and nothing else.

OpenSSH may not be installed, needs root for some of what it does, and leaves processes behind when a connection breaks.
Here a rank lives no longer than its channel: a main that goes, or cannot be reached, leaves nothing running.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path

import asyncssh
from facts import KEY_FILE
from messages import NodeError, log
from nodes import Node, read_node
from options import Options, check_binding, read_options
from ranks import checked_environ, run_rank, until_first

# What main can have run: a rank, with its variables in the first line of input, or nothing, until this node wants to
# leave.
RANK, LEAVE = "rank", "leave"
# Both ends look so often whether the other is there, and give it up after so many looks without an answer.
KEEPALIVE = {"keepalive_interval": 5, "keepalive_count_max": 6}
# A rank's variables follow its command at once.
_ENVIRON_TIMEOUT_S = 30.0
_POLL_S = 0.02


class RankServer(asyncssh.SSHServer):
    """What asyncssh offers beyond commands (forwarding, files, terminals) is off as it comes, or switched off below."""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._peer = conn.get_extra_info("peername")[0]

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            log(f"connection of {self._peer} ended: {exc}")


class Ranks:
    """The ranks of this node, one for each command of main's."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._unwanted: set[asyncio.Event] = set()
        self._wants_to_leave = asyncio.Event()
        self._is_ending = False

    async def handle(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Do what main asks for, for as long as it holds the channel's input open."""
        try:
            if process.command == LEAVE:
                await until_first(self._wants_to_leave.wait(), process.wait_closed())
                process.exit(0)
            elif process.command == RANK and not self._is_ending:
                line = await asyncio.wait_for(process.stdin.readline(), _ENVIRON_TIMEOUT_S)
                code, printed = await self._run(checked_environ(json.loads(line)), process.stdin)
                with contextlib.suppress(BrokenPipeError):  # main has gone
                    process.stderr.write(printed)
                process.exit(code)
            else:
                msg = f"main wants '{process.command}' to be run"
                raise ValueError(msg)
        except (ValueError, asyncio.TimeoutError, asyncssh.Error) as error:
            log(f"refused: {error}")
            process.exit(2)

    async def _run(self, environ: dict[str, str], leash: asyncssh.SSHReader[bytes]) -> tuple[int, bytes]:
        unwanted = asyncio.Event()
        self._unwanted.add(unwanted)
        holding = asyncio.ensure_future(_hold(leash, unwanted))
        try:
            return await run_rank(environ, unwanted, grace_s=self._options.rank_grace_s)
        finally:
            holding.cancel()
            self._unwanted.discard(unwanted)

    async def leave(self) -> None:
        """Have main do without this node's ranks, and wait for them to end by that."""
        self._wants_to_leave.set()
        deadline = asyncio.get_running_loop().time() + self._options.leave_s
        while self._unwanted and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_POLL_S)

    async def end_all(self) -> None:
        self._is_ending = True
        for unwanted in self._unwanted:
            unwanted.set()
        while self._unwanted:
            await asyncio.sleep(_POLL_S)


async def _hold(leash: asyncssh.SSHReader[bytes], unwanted: asyncio.Event) -> None:
    try:
        while await leash.read(1024):
            pass
    except (asyncssh.Error, asyncssh.SignalReceived, asyncssh.BreakReceived):
        pass
    unwanted.set()


async def serve(address: str, main: Node, key: Path, options: Options) -> None:
    """Serve main until this process is told to end."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    ranks = Ranks(options)
    try:
        await asyncssh.listen(
            address,
            options.ssh_port,
            config=None,  # neither the user's nor the machine's
            server_factory=RankServer,
            server_host_keys=[str(key)],
            authorized_client_keys=asyncssh.import_authorized_keys(main.key),
            process_factory=ranks.handle,
            encoding=None,
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            gss_host=None,
            allow_pty=False,
            agent_forwarding=False,
            x11_forwarding=False,
            **KEEPALIVE,
        )
    except OSError as error:
        where = f"{address} port {options.ssh_port}"
        msg = f"the ssh server cannot listen on {where}: {error.strerror}; choose another port: SSH_PORT=..."
        raise NodeError(78, msg) from error
    await told.wait()
    if options.is_elastic:
        await ranks.leave()
    await ranks.end_all()


def main() -> int:
    options = read_options(os.environ)
    check_binding(options.framework)
    try:
        main_node = read_node(Path(os.environ["NODES_DIR"], "MAIN"))
    except ValueError as error:
        raise NodeError(78, str(error)) from error
    key = Path(os.environ["NODE_DIR"], KEY_FILE)
    asyncio.run(serve(os.environ["NODE_ADDRESS"], main_node, key, options))
    return 128 + signal.SIGTERM
