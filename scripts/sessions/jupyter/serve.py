"""JupyterLab, for one person, until nobody has used it for IDLE_LIMIT.

Jupyter's own limits do not say when nobody is there: an open tab asks for the list of kernels every few seconds, which
counts as activity; and kernels, or terminals, keep the server for as long as they are there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from jupyter_server.auth.identity import PasswordIdentityProvider
from jupyterlab.labapp import LabApp
from tornado.ioloop import PeriodicCallback
from traitlets.config import Config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from session_end import say_idle
from session_token import hashed, is_token, read_verifier

# sun_path of Linux has 108 bytes, that of macOS 104; and the name of a kernel's socket: /kernel-<UUID>-ipc-5.
_LONGEST_SOCKET = 103
_SOCKET = 50
# What a page asks for by itself: these never change anything.
_READS = {"GET", "HEAD", "OPTIONS"}
# What only a person asks of a kernel. A tab that is connected again, as after a cut on the way, asks for other things
# by itself: subshells, and widgets (comm_open, comm_msg).
_PERSONS_REQUESTS = frozenset({"execute_request", "complete_request", "inspect_request"})
# How often it is looked whether the session is idle: of a limit of an hour, late by 10 s.
_LOOK_S = 10.0


class HashedTokenProvider(PasswordIdentityProvider):  # type: ignore[misc] - untyped
    """Lets in who has the token, of which it has the hash: its `token` is that."""

    def get_token(self, handler: Any) -> str | None:
        """Return the hash of the token in a request."""
        token = super().get_token(handler)
        return hashed(token) if token else None

    def process_login_form(self, handler: Any) -> Any:
        """Return who has typed the token."""
        return self.generate_anonymous_user(handler) if is_token(handler.get_argument("password", "")) else None


def server_config(private: Path) -> Config:
    """Return how the server is reached, and by whom. No file of the user's wins over it."""
    config = Config()
    config.ServerApp.identity_provider_class = HashedTokenProvider
    config.IdentityProvider.token = read_verifier()
    config.PasswordIdentityProvider.hashed_password = ""
    config.PasswordIdentityProvider.allow_password_change = False
    config.ServerApp.update(
        {
            "ip": os.environ["SESSION_ADDRESS"],
            "port": int(os.environ["SESSION_PORT"]),
            "port_retries": 0,
            "root_dir": str(Path.cwd()),
            # A page of another site that has a name of its own for this address does not get in.
            "allow_remote_access": False,
            "allow_root": os.geteuid() == 0,
            "open_browser": False,
            "shutdown_no_activity_timeout": 0,
        }
    )
    # Through files of this user, as ports are everybody's; where the system takes names of sockets that are so long.
    if len(os.fsencode(private / "jupyter")) + _SOCKET <= _LONGEST_SOCKET:
        config.KernelManager.transport = "ipc"
    config.ExtensionApp.open_browser = False
    config.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
    config.ServerProxy.host_allowlist = ["localhost", "127.0.0.1", os.environ["PROXIED_HOST"]]
    config.Application.log_level = "WARN"
    return config


def ask_nothing(private: Path) -> None:
    """Leave out what asks each new user, as all are who have a home of their own, whether to fetch news."""
    lab = private / "jupyter-config" / "labconfig"
    lab.mkdir(parents=True, exist_ok=True)
    news = "@jupyterlab/apputils-extension:announcements"
    (lab / "page_config.json").write_text(json.dumps({"disabledExtensions": {news: True}}))
    places = [str(lab.parent), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, places))


class Idle:
    """Ends a server that nobody has used for *limit_s* seconds, in which no cell has run.

    Use is what only a person does: a page is opened, something is saved, a cell is run. What a terminal prints is use,
    too: a program works there. Whoever is not logged in uses nothing.
    """

    def __init__(self, server: Any, limit_s: float) -> None:
        self._server = server
        self._limit_s = limit_s
        self._used_at = time.time()
        # What follows from such a request is what a kernel's last activity tells of.
        server.kernel_manager.track_message_type = _PERSONS_REQUESTS.__contains__
        self._log_request = server.web_app.settings["log_function"]
        server.web_app.settings["log_function"] = self._note
        # Kept here: nobody else does.
        self._looking = PeriodicCallback(self._look, min(_LOOK_S, limit_s / 10) * 1000)
        self._looking.start()

    def _note(self, handler: Any) -> None:
        request = handler.request
        is_page = request.method == "GET" and request.path.startswith(("/lab", "/tree", "/doc"))
        is_person = handler.current_user is not None and handler.get_status() < 400
        # An open tab keeps its layout every 10 s by a PUT, whether it has changed or not.
        is_pages_own = request.path.startswith(("/lab/api/", "/lab/extensions/", "/proxy/"))
        if is_person and not is_pages_own and (is_page or request.method not in _READS):
            self._used_at = time.time()
        self._log_request(handler)

    def _look(self) -> None:
        kernels = self._server.kernel_manager
        running = [kernels.get_kernel(kernel) for kernel in kernels.list_kernel_ids()]
        if any(kernel.execution_state == "busy" for kernel in running):
            self._used_at = time.time()
            return
        times = [kernel.last_activity for kernel in running]
        times.append(self._server.web_app.settings.get("terminal_last_activity"))
        used_at = max([self._used_at, *(at.timestamp() for at in times if isinstance(at, datetime))])
        if time.time() - used_at < self._limit_s:
            return
        self._looking.stop()
        say_idle(self._limit_s)
        self._server.stop()


def log_no_referer(server: Any) -> None:
    """Have the log leave out where a page came from: the address of the login page repeats a token that was tried."""
    log_request = server.web_app.settings["log_function"]

    def log(handler: Any) -> None:
        handler.request.headers.pop("Referer", None)
        log_request(handler)

    server.web_app.settings["log_function"] = log


def main() -> None:
    """Serve until the end."""
    private = Path(os.environ["NODE_DIR"])
    # The file that has the token in it is nobody else's, and goes with the node.
    os.environ.update(JUPYTER_PLATFORM_DIRS="1", JUPYTER_RUNTIME_DIR=str(private / "jupyter"))
    ask_nothing(private)
    server = LabApp.initialize_server(argv=[], config=server_config(private))
    log_no_referer(server)
    limit_s = float(os.environ["IDLE_LIMIT"])
    idle = Idle(server, limit_s) if limit_s else None
    server.start()
    del idle


if __name__ == "__main__":
    main()
