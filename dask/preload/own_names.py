"""Has Dask's HTTP servers answer only to names of their own: a preload.

A browser runs the scripts of every page that it shows. Such a page can give its own host name this machine's address
(DNS rebinding), and then reads what it finds here as if it were its own. The name stands in the request all the same.
And a page may open a WebSocket to any server: only the server can refuse it, by the page's Origin, and Dask tells Bokeh
to take all.

An address is no name that somebody could give to another machine, so all addresses are taken: nodes are reached through
tunnels and published ports, whose addresses nobody here knows.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from distributed.http.routing import RoutingApplication
from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler


class Refused(RequestHandler):
    """Answers with 403 and the way out, and with nothing of the cluster."""

    def prepare(self) -> None:
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(
            "403: this server does not answer to the host name, or to pages of the origin, that the request has. "
            "Use localhost or the node's address, or launch with --env DASHBOARD_HOSTS=NAME.\n"
        )


def given_names() -> set[str]:
    """Return the names in DASHBOARD_HOSTS, which has commas between."""
    return {name.strip().lower() for name in os.environ.get("DASHBOARD_HOSTS", "").split(",")} - {""}


def own_names() -> set[str]:
    """Return the machine's own names: DNS is not asked, others can write there."""
    name = socket.gethostname().lower()
    return {"localhost", name, name.partition(".")[0]} - {""}


def is_allowed(host: str, origin: str | None, own: Collection[str], given: Collection[str]) -> bool:
    """Return whether a request with these headers, Host and Origin, is answered.

    Names in *own* are this machine's, in lower case; the user has given those in *given*, also for pages.
    """
    name, _ = place_of(f"//{host}")
    if not (name in own or name in given or is_address(name)):
        return False
    if origin is None:
        return True
    page, place = place_of(origin)
    # Another port of the same machine is another server, perhaps somebody else's.
    return place == host.lower() or page in given


def place_of(url: str) -> tuple[str, str]:
    """Return the name in *url*, without and with its port; empty: there is none."""
    try:
        found = urlsplit(url)
        return (found.hostname or "").removesuffix("."), found.netloc.lower()
    except ValueError:
        return "", ""


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def guard(application: type[RoutingApplication]) -> None:
    """Have every *application* refuse what is not allowed.

    Dask runs a preload twice as it loads it. The second time changes nothing: the same is asked once more.
    """
    own, given = own_names(), given_names()
    find = application.find_handler

    def find_handler(self: RoutingApplication, request: HTTPServerRequest, **kwargs: Any) -> Any:
        origin = request.headers.get("Origin", request.headers.get("Sec-Websocket-Origin"))
        if is_allowed(request.host, origin, own, given):
            return find(self, request, **kwargs)
        return self.get_handler_delegate(request, Refused)

    application.find_handler = find_handler


# Not in dask_setup: the servers listen before that.
guard(RoutingApplication)
