"""Horovod's rendezvous server, on main's own address and a port with a name.

Horovod's own takes a random port on all interfaces, and whoever reaches it can change the job, or run code in it where
it is elastic: what ranks put there is unpickled. So only addresses of nodes may talk to it.
"""

from __future__ import annotations

import ipaddress
import socket
import socketserver
import threading
from collections.abc import Callable

from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer, RendezvousServer
from talk import NodeError, log


class _Server(RendezvousHTTPServer):
    daemon_threads = True  # one that waits for ranks that never come must not keep main from ending
    request_queue_size = 1024  # all ranks ask at once, and again every 10 ms

    def __init__(self, address: tuple[str, int], handler: type, is_node: Callable[[str], bool]) -> None:
        self._is_node = is_node
        self._refused: set[str] = set()
        super().__init__(address, handler, 0)

    def server_bind(self) -> None:
        # http.server asks DNS for this machine's name here, which can take longer than all else.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def verify_request(self, request: socket.socket, client_address: tuple[str, int]) -> bool:  # noqa: ARG002
        peer = client_address[0]
        if self._is_node(peer):
            return True
        if peer not in self._refused and len(self._refused) < 100:
            self._refused.add(peer)
            log(f"rendezvous: refused {peer}, which is no node's address")
        return False


class Rendezvous(RendezvousServer):
    def __init__(self, address: str, port: int, node_addresses: Callable[[], set[str]]) -> None:
        super().__init__()
        self.address = address
        self.port = port
        self._node_addresses = node_addresses
        self._known = {address}
        # On loopback all nodes' connections come from one address.
        self._is_loopback = ipaddress.ip_address(address).is_loopback

    def start(self, handler_cls: type = RendezvousHandler) -> int:
        try:
            self._httpd = _Server((self.address, self.port), handler_cls, self._is_node)
        except OSError as error:
            msg = (
                f"the rendezvous server cannot listen on {self.address} port {self.port}: {error.strerror}; "
                "choose another: RENDEZVOUS_PORT=..."
            )
            raise NodeError(78, msg) from error
        self._listen_thread = threading.Thread(target=self._httpd.serve_forever, daemon=True)
        self._listen_thread.start()
        return self.port

    def _is_node(self, peer: str) -> bool:
        if self._is_loopback and ipaddress.ip_address(peer).is_loopback:
            return True
        # Kept: a rank whose node has just been taken out asks once more, and must hear that it is out.
        self._known |= self._node_addresses()
        return peer in self._known
