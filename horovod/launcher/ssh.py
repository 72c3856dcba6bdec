"""ssh between main and workers: a server for main's key, and main's links.

OpenSSH may not be installed, needs root for some of what it does, and leaves processes behind when a connection breaks.
Here a rank lives no longer than its channel: a main that goes, or cannot be reached, leaves nothing running.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import asyncssh
from nodes import KEY_FILE, Node, Options, read_node
from ranks import PRINTED_BYTES, STOPPED, Unwanted, checked_environ, log, run_rank, told_to_end, until_first

from oci_cluster.errors import SettingsError

# Main's commands: run a rank, or nothing, until the worker wants to leave.
RANK, LEAVE = "rank", "leave"
# Of both ends. Each looks every 5 s whether the other is there, and gives it up after so many looks without an answer.
# Neither the user's configuration of ssh counts nor the machine's.
_BOTH = {"config": None, "gss_host": None, "keepalive_interval": 5, "keepalive_count_max": 6}
# asyncssh offers these beyond commands by key, and has them on.
_OFF = ("password_auth", "kbdint_auth", "host_based_auth", "allow_pty", "agent_forwarding", "x11_forwarding")
_CONNECT_TIMEOUT_S = 10.0


class Server:
    """A worker's server: starts a rank of this node for each command of main's."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._unwanted = Unwanted()
        self._wants_to_leave = asyncio.Event()

    async def serve(self) -> None:
        """Serve main until this process is told to end."""
        told = told_to_end()
        address, port, node_dir = os.environ["NODE_ADDRESS"], self._options.ssh_port, Path(os.environ["NODE_DIR"])
        try:
            await asyncssh.listen(
                address,
                port,
                server_host_keys=[str(node_dir / KEY_FILE)],
                authorized_client_keys=asyncssh.import_authorized_keys(
                    read_node(Path(os.environ["NODES_DIR"], "MAIN")).key
                ),
                process_factory=self._handle,
                encoding=None,
                **_BOTH,
                **dict.fromkeys(_OFF, False),
            )
        except ValueError as error:
            raise SettingsError(str(error)) from error
        except OSError as error:
            raise SettingsError(
                f"the ssh server cannot listen on {address} port {port}: {error.strerror}; "
                "choose another port: SSH_PORT=..."
            ) from error
        await told.wait()
        self._wants_to_leave.set()
        if self._options.is_elastic:  # the job has its time to do without this node's ranks
            await until_first(self._unwanted.none_left(), asyncio.sleep(self._options.longer_grace_s))
        await self._unwanted.end_all()

    async def _handle(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        try:
            if process.command == LEAVE:
                await until_first(self._wants_to_leave.wait(), process.wait_closed())
                process.exit(0)
            elif process.command == RANK and not self._unwanted.is_ending:
                environ, unwanted = checked_environ(process.env), asyncio.Event()
                holding = asyncio.ensure_future(_hold(process.stdin, unwanted))
                with self._unwanted.holding(unwanted):
                    code, printed = await run_rank(environ, unwanted, grace_s=self._options.grace_s)
                holding.cancel()
                with contextlib.suppress(BrokenPipeError):  # main has gone
                    process.stderr.write(printed)
                process.exit(code)
            else:
                raise ValueError(f"main wants '{process.command}' to be run")
        except (ValueError, asyncssh.Error) as error:
            log(f"refused: {error}")
            process.exit(2)


async def _hold(leash: asyncssh.SSHReader[bytes], unwanted: asyncio.Event) -> None:
    """Set *unwanted* when main no longer holds the channel's input open."""
    with contextlib.suppress(asyncssh.Error, asyncssh.SignalReceived, asyncssh.BreakReceived):
        while await leash.read(1024):
            pass
    unwanted.set()


class Link:
    """Main's connection to one worker, made again when it breaks; carries its ranks."""

    def __init__(self, node: Node, options: Options, key: asyncssh.SSHKey) -> None:
        self.node = node
        self.problem = "no answer yet"
        self.is_up = False
        """Whether the worker answers, and does not want to leave."""
        self._options, self._key = options, key
        self._connection: asyncssh.SSHClientConnection | None = None
        self.task = asyncio.ensure_future(self._keep())

    async def _keep(self) -> None:
        pause_s = 0.1
        while True:
            is_news = True
            try:
                async with await self._connect() as self._connection:
                    pause_s, self.is_up = 0.1, True
                    await self._connection.run(LEAVE)
                    self.is_up = False
                    await self._connection.wait_closed()
                problem = "the connection broke"
            except asyncssh.HostKeyNotVerifiable:
                problem = "its host key is not the one that it has published"
            except (OSError, asyncssh.Error, asyncio.TimeoutError) as error:
                problem = str(error) or type(error).__name__
                # Not yet, or no more: nothing that a log needs.
                is_news = not isinstance(error, ConnectionRefusedError)
            finally:
                self._connection, self.is_up = None, False
            if problem != self.problem and is_news:
                log(f"{self.node.name} at {self.node.address} port {self._options.ssh_port}: {problem}")
            self.problem = problem
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)

    async def _connect(self) -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            self.node.address,
            self._options.ssh_port,
            username="horovod",  # the server has one user: its own
            client_keys=[self._key],
            known_hosts=([asyncssh.import_public_key(self.node.key)], [], []),
            preferred_auth="publickey",
            agent_path=None,
            connect_timeout=_CONNECT_TIMEOUT_S,
            login_timeout=_CONNECT_TIMEOUT_S,
            **_BOTH,
        )

    async def run_rank(self, environ: Mapping[str, str], unwanted: asyncio.Event) -> tuple[int | None, bytes]:
        """Run a rank on the worker as `run_rank` does here; None: it is lost."""
        if self._connection is None:
            return None, b""
        try:
            # The rank's output is in its own node's log. Only its last errors travel, after its end.
            process = await self._connection.create_process(RANK, env=environ, encoding=None, stdout=asyncssh.DEVNULL)
            await until_first(process.wait_closed(), unwanted.wait())
            if process.exit_status is None and not process.is_closing():
                process.stdin.write_eof()
                await until_first(process.wait_closed(), asyncio.sleep(self._options.longer_grace_s))
            printed = b"" if process.exit_status is None else await process.stderr.read(PRINTED_BYTES)
        except (OSError, asyncssh.Error):
            return None, b""
        return process.exit_status, printed


def main(options: Options) -> int:
    asyncio.run(Server(options).serve())
    return STOPPED
