"""Horovod's rendezvous server, on main's own address and a port with a name.

Horovod's own takes a random port on all interfaces, and whoever reaches it can change the job, or run code in it where
it is elastic: what ranks put there is unpickled. So only addresses of nodes may talk to it, on loopback only this user
may change anything, and nobody can read the keys that ranks put there. unpickling.py has the rest.
"""

from __future__ import annotations

import ipaddress
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from typing import Any

from horovod.runner.elastic.rendezvous import GET_RANK_AND_SIZE, PUT_WORKER_ADDRESSES
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer, RendezvousServer
from messages import NodeError, log
from neighbours import is_of_this_user

# What ranks put there is some hundred bytes: addresses, and a key.
_LONGEST_VALUE = 1 << 20


class _Guard:
    """What comes before a handler of Horovod's: it lets those alone through who may change what the server holds."""

    def do_PUT(self) -> None:  # noqa: N802 - http.server's name
        length = self.headers.get("Content-Length", "")
        if not (length.isdecimal() and int(length) <= _LONGEST_VALUE):
            self.close_connection = True  # what follows would be taken for the next request
            self.send_status_code(413)
        elif self._is_allowed():
            super().do_PUT()

    def do_DELETE(self) -> None:  # noqa: N802
        if self._is_allowed():
            super().do_DELETE()

    def do_GET(self) -> None:  # noqa: N802
        scope = self.path.split("/")[1:2]
        # Who asks for a rank is counted as ready. Where ranks are reached, with their keys, is for the driver alone.
        if scope == [PUT_WORKER_ADDRESSES]:
            self.send_status_code(403)
        elif scope != [GET_RANK_AND_SIZE] or self._is_allowed():
            super().do_GET()

    def do_HEAD(self) -> None:  # noqa: N802 - http.server's own tells of files in the working directory
        self.send_status_code(405)

    def _is_allowed(self) -> bool:
        if self.may_change(self.connection):
            return True
        self.close_connection = True
        self.send_status_code(403)
        return False


def guarded(handler: type, may_change: Callable[[socket.socket], bool]) -> type:
    """Return *handler*, of Horovod's, for those alone who *may_change* what the server holds."""
    return type("Guarded", (_Guard, handler), {"may_change": staticmethod(may_change)})


class _Server(RendezvousHTTPServer):
    daemon_threads = True  # one that waits for ranks that never come must not keep main from ending
    request_queue_size = 1024  # all ranks ask at once, and again every 10 ms

    def __init__(self, address: tuple[str, int], handler: type, is_node: Callable[[str], bool]) -> None:
        self._is_node = is_node
        self._refused: set[str] = set()
        self._errors: set[str] = set()
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

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        """Say in one line what a request has led to: who sends nonsense must not fill the log with stacks."""
        error = sys.exc_info()[1]
        if len(self._errors) < 100 and repr(error) not in self._errors:
            self._errors.add(repr(error))
            log(f"rendezvous: a request of {client_address[0]} failed: {error!r}")


class Rendezvous(RendezvousServer):
    def __init__(self, address: str, port: int, node_addresses: Callable[[], set[str]]) -> None:
        super().__init__()
        self.address = address
        self.port = port
        self._node_addresses = node_addresses
        self._known = {address}
        # On loopback all nodes' connections come from one address.
        self._is_loopback = ipaddress.ip_address(address).is_loopback
        self._has_refused = False

    def start(self, handler_cls: type = RendezvousHandler) -> int:
        try:
            handler = guarded(handler_cls, self._may_change)
            self._httpd = _Server((self.address, self.port), handler, self._is_node)
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

    def _may_change(self, connection: socket.socket) -> bool:
        if not self._is_loopback or is_of_this_user(connection):
            return True
        if not self._has_refused:
            self._has_refused = True
            log("rendezvous: refused a process of another user of this machine")
        return False
