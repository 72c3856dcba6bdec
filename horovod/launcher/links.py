"""Main's ssh connections: one to each worker, for as long as it is there. Its ranks are channels of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

import asyncssh
from messages import log
from nodes import Node, NodesDir
from options import Options
from ranks import PRINTED_BYTES, until_first
from server import KEEPALIVE, LEAVE, RANK

_POLL_S = 0.2
_CONNECT_TIMEOUT_S = 10.0


class Link:
    """The connection to one worker; made again when it breaks."""

    def __init__(self, node: Node, options: Options, key: asyncssh.SSHKey) -> None:
        self.node = node
        self.problem = "no answer yet"
        self._port = options.ssh_port
        self._grace_s = options.link_grace_s
        self._key = key
        self._connection: asyncssh.SSHClientConnection | None = None
        self._wants_to_leave = False
        self._task = asyncio.ensure_future(self._keep())

    @property
    def is_up(self) -> bool:
        """Whether the worker answers, and does not want to leave."""
        return self._connection is not None and not self._wants_to_leave

    async def _keep(self) -> None:
        pause_s = 0.1
        while True:
            is_news = True
            try:
                async with await self._connect() as self._connection:
                    pause_s = 0.1
                    self._wants_to_leave = False
                    await self._connection.run(LEAVE)
                    self._wants_to_leave = True
                    await self._connection.wait_closed()
                problem = "the connection broke"
            except asyncssh.HostKeyNotVerifiable:
                problem = "its host key is not the one that it has published"
            except (OSError, asyncssh.Error, asyncio.TimeoutError) as error:
                problem = str(error) or type(error).__name__
                # Not yet, or no more: nothing that a log needs.
                is_news = not isinstance(error, ConnectionRefusedError)
            finally:
                self._connection = None
            if problem != self.problem:
                self.problem = problem
                if is_news:
                    log(f"{self.node.name} at {self.node.address} port {self._port}: {problem}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)

    async def _connect(self) -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            self.node.address,
            self._port,
            config=None,  # neither the user's nor the machine's
            username="horovod",  # the server has one user: its own
            client_keys=[self._key],
            known_hosts=([asyncssh.import_public_key(self.node.key)], [], []),
            preferred_auth="publickey",
            agent_path=None,
            gss_host=None,
            connect_timeout=_CONNECT_TIMEOUT_S,
            login_timeout=_CONNECT_TIMEOUT_S,
            **KEEPALIVE,
        )

    async def run_rank(self, environ: Mapping[str, str], unwanted: asyncio.Event) -> tuple[int | None, bytes]:
        """Run a rank on the worker, to its end or until it is *unwanted*.

        Returns its exit code, None if it is lost, and the end of what it printed to stderr.
        """
        connection = self._connection
        if connection is None:
            return None, b""
        try:
            # The rank's output is in its own node's log. Only its last errors travel, after its end.
            process = await connection.create_process(RANK, encoding=None, stdout=asyncssh.DEVNULL)
            process.stdin.write(json.dumps(dict(environ)).encode() + b"\n")
            await until_first(process.wait_closed(), unwanted.wait())
            if process.exit_status is None and not process.is_closing():
                process.stdin.write_eof()
                await until_first(process.wait_closed(), asyncio.sleep(self._grace_s))
            if process.exit_status is None:
                return None, b""
            return process.exit_status, await process.stderr.read(PRINTED_BYTES)
        except (OSError, asyncssh.Error):
            return None, b""

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class Workers:
    """A link to every worker that NODES_DIR tells of."""

    def __init__(self, nodes_dir: NodesDir, options: Options, key: Path) -> None:
        self.links: dict[str, Link] = {}
        """By the life of the node."""
        self._nodes_dir = nodes_dir
        self._options = options
        self._key = asyncssh.read_private_key(str(key))

    async def keep(self) -> None:
        """Follow NODES_DIR for ever."""
        while True:
            there = {node.life: node for node in self._nodes_dir.read().values() if node.rank}
            for life in [life for life in self.links if life not in there]:
                await self.links.pop(life).close()
            for life, node in there.items():
                if life not in self.links:
                    self.links[life] = Link(node, self._options, self._key)
            await asyncio.sleep(_POLL_S)

    def up(self) -> list[Node]:
        """Return the workers that answer, in the order of their ranks."""
        nodes = [link.node for link in list(self.links.values()) if link.is_up]
        return sorted(nodes, key=lambda node: node.rank)

    def names(self) -> set[str]:
        """Return the names of the workers that have come, whether they answer or not."""
        return {link.node.name for link in self.links.values()}

    def describe(self, name: str) -> str:
        """Return *name*, and why that worker does not answer where it has come."""
        return next((f"{name} ({link.problem})" for link in self.links.values() if link.node.name == name), name)
