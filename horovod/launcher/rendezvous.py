"""Horovod's rendezvous server, on main's own address and a port with a name.

Horovod's own takes a random port on all interfaces, and whoever reaches it can change the job, or run code in it where
it is elastic: what ranks put there is unpickled, and so is what answers at the address that came there, signed with the
key that came there. So only addresses of nodes may talk to it, on loopback only this user may change anything, nobody
can read the keys that ranks put there, and what is unpickled is plain data.
"""

from __future__ import annotations

import io
import ipaddress
import pickle
import socket
import socketserver
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cloudpickle
from endings import log_once
from horovod.runner.common.util import codec, network
from horovod.runner.elastic.rendezvous import GET_RANK_AND_SIZE, PUT_WORKER_ADDRESSES
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer, RendezvousServer
from horovod.runner.util.threads import in_thread

from oci_cluster.errors import SettingsError
from oci_cluster.system.listeners import peer_is_of_this_user

# Ranks put some hundred bytes there: addresses, and a key.
_LONGEST_VALUE = 1 << 20
_ANSWERS = {(network.__name__, "PingResponse"), (network.__name__, "AckResponse")}


class _DataUnpickler(pickle.Unpickler):
    """Takes plain data, and the two answers of ranks. Other pickles may run anything."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ANSWERS:
            raise pickle.UnpicklingError(f"{module[:50]}.{name[:50]} is not what ranks send")
        return super().find_class(module, name)


# Horovod's own code unpickles so in this process.
codec.cloudpickle = network.cloudpickle = SimpleNamespace(
    dumps=cloudpickle.dumps, loads=lambda pickled: _DataUnpickler(io.BytesIO(pickled)).load()
)


class _Guard:
    """Precedes a handler of Horovod's: refuses whoever may not change the server's data."""

    def parse_request(self) -> bool:
        """Return whether http.server is to answer a request; a refused one has its answer."""
        if not super().parse_request():
            return False
        if code := self._refusal():
            self.close_connection = True  # what follows would be taken for the next request
            self.send_status_code(code)
        return not code

    def _refusal(self) -> int:
        """Return the status of a request that is refused, else 0."""
        scope, length = self.path.split("/")[1:2], self.headers.get("Content-Length", "")
        if self.command not in {"GET", "PUT", "DELETE"}:  # http.server's HEAD tells of files in the working directory
            return 405
        if self.command == "PUT" and not (length.isdecimal() and int(length) <= _LONGEST_VALUE):
            return 413
        # A request for a rank counts as ready. The ranks' addresses, with their keys, are for the driver alone.
        if self.command == "GET" and scope != [GET_RANK_AND_SIZE]:
            return 403 if scope == [PUT_WORKER_ADDRESSES] else 0
        # On loopback all nodes' connections come from one address.
        if ipaddress.ip_address(self.client_address[0]).is_loopback and not peer_is_of_this_user(self.connection):
            log_once("rendezvous: refused a process of another user of this machine")
            return 403
        return 0


class _Server(RendezvousHTTPServer):
    daemon_threads = True  # one that waits for ranks that never come must not keep main from ending
    request_queue_size = 1024  # all ranks ask at once, and again every 10 ms

    def __init__(self, address: tuple[str, int], handler: type, node_addresses: Callable[[], set[str]]) -> None:
        self._node_addresses, self._known = node_addresses, {address[0]}
        super().__init__(address, handler, 0)

    def server_bind(self) -> None:
        # http.server asks DNS for this machine's name here, which can take longer than all else.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def verify_request(self, request: socket.socket, client_address: tuple[str, int]) -> bool:  # noqa: ARG002
        peer, own = map(ipaddress.ip_address, (client_address[0], self.server_address[0]))
        if own.is_loopback and peer.is_loopback:
            return True
        # Kept: a rank whose node has just been taken out asks once more, and must hear that it is out.
        self._known |= self._node_addresses()
        if str(peer) not in self._known:
            log_once(f"rendezvous: refused {peer}, which is no node's address")
        return str(peer) in self._known

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        """Log a failed request in one line: nonsense must not fill the log."""
        log_once(f"rendezvous: a request of {client_address[0]} failed: {sys.exc_info()[1]!r}")


class Rendezvous(RendezvousServer):
    def __init__(self, address: str, port: int, node_addresses: Callable[[], set[str]]) -> None:
        super().__init__()
        self.address, self.port, self._node_addresses = address, port, node_addresses

    def start(self, handler_cls: type = RendezvousHandler) -> int:
        handler = type("Guarded", (_Guard, handler_cls), {})
        try:
            self._httpd = _Server((self.address, self.port), handler, self._node_addresses)
        except OSError as error:
            msg = f"the rendezvous server cannot listen on {self.address} port {self.port}: {error.strerror}"
            msg += "; choose another: RENDEZVOUS_PORT=..."
            raise SettingsError(msg) from error
        self._listen_thread = in_thread(target=self._httpd.serve_forever)
        return self.port
