"""The Bastion service: bastions, sessions that end, and a real sshd behind each connection to a bastion's host.

OpenSSH's sshd takes whom a session is for: its OCID is the user's name, its public key the only key, its target the
only place that connections lead to. sshd asks the system who there is, so it gets a list of its own, by nss_wrapper.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import oci.bastion.models as sdk  # type: ignore[import-untyped]

from oci_service import models
from oci_service.faults import Controls
from oci_service.resources import JSON, REGION, Answer, Refusal, Request, Route, Shelf, invalid, not_found
from oci_service.tenancy import Tenancy

HOST = f"host.bastion.{REGION}.oci.oraclecloud.com"
PORT = "22"
# What the service documents: 30 minutes to 3 hours.
_SHORTEST_S, _LONGEST_S = 1800, 10800
_MOST_SESSIONS = 20
_SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
_USER = 65534  # what forwards connections has no rights; where this is not root's process, its own
_BLOCK = 1 << 16


class Bastions:
    """All bastions of a tenancy. *enter* is what runs a program in the network of the nodes."""

    def __init__(
        self, directory: Path, controls: Controls, tenancy: Tenancy, lock: threading.RLock, enter: Sequence[str] = ()
    ) -> None:
        self._directory = directory
        self._controls = controls
        self._tenancy = tenancy
        self._lock = lock
        self._enter = list(enter)
        self.bastions = Shelf("bastion", lock)
        self.sessions = Shelf("bastionsession", lock)
        self._requests = Shelf("bastionworkrequest", lock)
        self._began: dict[str, float] = {}
        self._connections: set[_Connection] = set()

    # --- The API

    def add(self, subnet: str) -> str:
        """Make a bastion that leads to *subnet*; return its OCID."""
        found = self._tenancy.subnets.get(subnet)
        return str(
            self.bastions.add(
                bastionType="STANDARD",
                name="clusters",
                compartmentId=found["compartmentId"],
                targetVcnId=found["vcnId"],
                targetSubnetId=subnet,
                clientCidrBlockAllowList=["0.0.0.0/0"],
                privateEndpointIpAddress=str(ipaddress.ip_network(found["cidrBlock"])[-2]),
                maxSessionTtlInSeconds=_LONGEST_S,
                maxSessionsAllowed=_MOST_SESSIONS,
                lifecycleState="ACTIVE",
            )["id"]
        )

    def routes(self) -> list[Route]:
        """Return the operations of the service."""
        base = "/20210331"
        return [
            ("POST", f"{base}/bastions", "create_bastion", self._create_bastion),
            ("GET", f"{base}/bastions", "list_bastions", self._list_bastions),
            ("GET", f"{base}/bastions/{{id}}", "get_bastion", lambda r: self.bastions.answer(self._bastion(r))),
            ("PUT", f"{base}/bastions/{{id}}", "update_bastion", self._update_bastion),
            ("POST", f"{base}/sessions", "create_session", self._create_session),
            ("GET", f"{base}/sessions", "list_sessions", self._list_sessions),
            ("GET", f"{base}/sessions/{{id}}", "get_session", self._get_session),
            ("DELETE", f"{base}/sessions/{{id}}", "delete_session", self._delete_session),
            ("GET", f"{base}/workRequests/{{id}}", "get_work_request", self._get_work_request),
        ]

    def _bastion(self, request: Request) -> JSON:
        return self.bastions.get(request.names["id"])

    def _create_bastion(self, request: Request) -> Answer:
        body = request.json()
        for name in ("bastionType", "compartmentId", "targetSubnetId"):
            if not body.get(name):
                raise Refusal(400, "MissingParameter", f"{name} is required")
        self._tenancy.check_compartment(body["compartmentId"])
        bastion = self.bastions.get(self.add(body["targetSubnetId"]))
        longest = body.get("maxSessionTtlInSeconds") or _LONGEST_S
        if not _SHORTEST_S <= longest <= _LONGEST_S:
            raise invalid(f"maxSessionTtlInSeconds must be between {_SHORTEST_S} and {_LONGEST_S}")
        self.bastions.touch(bastion, **{**body, "maxSessionTtlInSeconds": longest})
        return self.bastions.answer(bastion, **self._work_request("CREATE_BASTION", bastion))

    def _update_bastion(self, request: Request) -> Answer:
        bastion = self._bastion(request)
        self.bastions.touch(bastion, **models.check("UpdateBastionDetails", request.json(), package=sdk))
        return Answer(status=202, headers=self._work_request("UPDATE_BASTION", bastion))

    def _list_bastions(self, request: Request) -> Answer:
        self._tenancy.check_compartment(request.wanted("compartmentId"))
        wanted = ("compartmentId", "name", "bastionLifecycleState")
        return self.bastions.list(request, wanted, self._controls.page_size)

    def _create_session(self, request: Request) -> Answer:
        body = models.check("CreateSessionDetails", request.json(), package=sdk)
        bastion = self.bastions.get(body["bastionId"])
        target = body["targetResourceDetails"]
        if target["sessionType"] != "PORT_FORWARDING":
            raise invalid("targetResourceDetails.sessionType: nothing but PORT_FORWARDING is known here")
        ttl = body.get("sessionTtlInSeconds") or _SHORTEST_S
        if not _SHORTEST_S <= ttl <= bastion["maxSessionTtlInSeconds"]:
            raise invalid(f"sessionTtlInSeconds must be {_SHORTEST_S} to {bastion['maxSessionTtlInSeconds']}")
        try:
            ipaddress.ip_address(str(target.get("targetResourcePrivateIpAddress")))
        except ValueError as error:
            raise invalid(f"targetResourceDetails.targetResourcePrivateIpAddress: {error}") from None
        if not re.fullmatch(
            r"(ssh-rsa|ssh-ed25519) [A-Za-z0-9+/=]+( .*)?", body["keyDetails"]["publicKeyContent"].strip()
        ):
            raise invalid("keyDetails.publicKeyContent is no public key in OpenSSH's format")
        with self._lock:
            going = [item for item in self._living() if item["bastionId"] == bastion["id"]]
            if len(going) >= min(self._controls.bastion_sessions, bastion["maxSessionsAllowed"]):
                raise Refusal(400, "LimitExceeded", f"The bastion has {len(going)} sessions, which is its limit")
            session = self.sessions.add(
                **{**body, "sessionTtlInSeconds": self._controls.bastion_ttl_s or ttl},
                bastionName=bastion["name"],
                compartmentId=bastion["compartmentId"],
                lifecycleState="CREATING",
            )
            self._began[session["id"]] = time.monotonic()
        told = self._told(session)
        return Answer(told, 200, {"etag": "1", **self._work_request("CREATE_SESSION", session)})

    def _get_session(self, request: Request) -> Answer:
        return Answer(self._told(self.sessions.get(request.names["id"])), 200, {"etag": "1"})

    def _list_sessions(self, request: Request) -> Answer:
        self.bastions.get(request.wanted("bastionId"))
        named = {"sessionLifecycleState": "lifecycleState", "sessionId": "id"}
        query = {named.get(name, name): value for name, value in request.query.items()}
        wanted = ("bastionId", "displayName", "lifecycleState", "id")
        return self.sessions.list(replace(request, query=query), wanted, self._controls.page_size, told=self._told)

    def _delete_session(self, request: Request) -> Answer:
        session = self.sessions.get(request.names["id"])
        if self._told(session)["lifecycleState"] in {"DELETED", "FAILED"}:
            raise not_found()
        self._end(session)
        return Answer(status=202, headers=self._work_request("DELETE_SESSION", session))

    def _work_request(self, kind: str, resource: JSON) -> dict[str, str]:
        made = self._requests.add(
            operationType=kind,
            status="SUCCEEDED",
            compartmentId=self._tenancy.compartment,
            resources=[{"identifier": resource["id"], "entityType": "bastion", "actionType": "RELATED"}],
            percentComplete=100.0,
        )
        return {"opc-work-request-id": made["id"]}

    def _get_work_request(self, request: Request) -> Answer:
        return self._requests.answer(self._requests.get(request.names["id"]))

    # --- What a session is at this moment

    def _told(self, session: JSON) -> JSON:
        """Return what is told of a *session* now; one that is over is DELETED."""
        with self._lock:
            age_s, controls = time.monotonic() - self._began[session["id"]], self._controls
            state = session["lifecycleState"]
            if state == "CREATING" and age_s >= controls.bastion_creating_s:
                why = controls.bastion_fails
                self.sessions.touch(
                    session, lifecycleState="FAILED" if why else "ACTIVE", **({"lifecycleDetails": why} if why else {})
                )
            life_s = controls.bastion_life_s or session["sessionTtlInSeconds"]
            if session["lifecycleState"] == "ACTIVE" and age_s >= life_s:
                self._end(session)
            told = {name: value for name, value in session.items() if name != "compartmentId"}
        if told["lifecycleState"] == "ACTIVE":
            target = told["targetResourceDetails"]
            place = f"{target['targetResourcePrivateIpAddress']}:{target['targetResourcePort']}"
            told["sshMetadata"] = {
                "command": f"ssh -i <privateKey> -N -L <localPort>:{place} -p {PORT} {told['id']}@{HOST}"
            } | controls.bastion_ssh_metadata
            if controls.bastion_host_key != "untold":
                told["bastionPublicHostKeyInfo"] = self._host_key("other" if controls.bastion_host_key else "host")
        return told

    def _living(self) -> Iterator[JSON]:
        for session in self.sessions.all():
            if self._told(session)["lifecycleState"] in {"CREATING", "ACTIVE"}:
                yield session

    def _end(self, session: JSON) -> None:
        """End a *session*, with all its connections."""
        with self._lock:
            self.sessions.touch(session, lifecycleState="DELETED")
            theirs = [found for found in self._connections if found.user == session["id"]]
        for connection in theirs:
            connection.cut()

    def all(self) -> list[JSON]:
        """Return every session as it is told now."""
        return [self._told(session) for session in self.sessions.all()]

    # --- ssh

    def serve(self, client: socket.socket) -> None:
        """Have an sshd answer *client*, until one of them is done."""
        for _ in self._living():  # those that are over do not get in
            pass
        with self._lock:
            connection = _Connection([*self._enter, *self._command()], self._environ(), self._log())
            self._connections.add(connection)
        threading.Thread(target=self._end_in_time, args=(connection,), daemon=True).start()
        try:
            connection.pump(client)
        finally:
            self._connections.discard(connection)

    def _end_in_time(self, connection: _Connection) -> None:
        """End what is over while *connection* is there: nobody may be asking meanwhile."""
        while connection in self._connections:
            self.all()
            time.sleep(0.1)

    def _home(self) -> Path:
        home = self._directory / "bastion"
        home.mkdir(mode=0o755, exist_ok=True)
        return home

    def _log(self) -> Path:
        return self._home() / "log"

    def _host_key(self, name: str) -> str:
        """Return the public half of a key, which is made when it is wanted first."""
        file = self._home() / name
        with self._lock:
            if not file.exists():
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file], check=True)
        return (self._home() / f"{name}.pub").read_text().strip()

    def _command(self) -> list[str]:
        if _SSHD is None:
            raise FileNotFoundError("no sshd: on Debian, apt-get install openssh-server libnss-wrapper")
        self._host_key("host")
        late_s = self._controls.bastion_key_late_s
        blocks = []
        for session in self._living():
            target, key = session["targetResourceDetails"], session["keyDetails"]["publicKeyContent"].split()[:2]
            is_known = time.monotonic() - self._began[session["id"]] >= late_s
            blocks += [
                f"Match User {session['id']}",
                f"AuthorizedKeysCommand /bin/echo {' '.join(key) if is_known else ''}",
                "AllowTcpForwarding local",
                f"PermitOpen {target['targetResourcePrivateIpAddress']}:{target['targetResourcePort']}",
            ]
        config = self._home() / "sshd_config"
        config.write_text("\n".join([*_CONFIG, f"HostKey {self._home()}/host", *blocks, ""]))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd wants it; Debian's service makes it, too
        return [_SSHD, "-i", "-e", "-f", str(config)]

    def _environ(self) -> dict[str, str]:
        """Return what has sshd find the users that it is to find."""
        home, user = self._home(), _USER if os.geteuid() == 0 else os.geteuid()
        names = ["sshd", *(session["id"] for session in self.sessions.all())]
        people = [f"{name}:x:{user}:{user}::/nonexistent:/usr/sbin/nologin" for name in names]
        (home / "passwd").write_text("\n".join([f"root:x:{os.geteuid()}:0::/:/bin/sh", *people, ""]))
        (home / "group").write_text(f"root:x:0:\nnogroup:x:{user}:\n")
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LD_PRELOAD": "libnss_wrapper.so",
            "NSS_WRAPPER_PASSWD": str(home / "passwd"),
            "NSS_WRAPPER_GROUP": str(home / "group"),
        }

    def close(self) -> None:
        """End all connections."""
        for connection in list(self._connections):
            connection.cut()


_CONFIG = (
    "UsePAM no",
    "PidFile none",
    "LogLevel VERBOSE",
    "StrictModes no",
    "PasswordAuthentication no",
    "KbdInteractiveAuthentication no",
    "AuthorizedKeysFile none",
    "AuthorizedKeysCommandUser root",
    "AllowTcpForwarding no",
    "AllowStreamLocalForwarding no",
    "AllowAgentForwarding no",
    "X11Forwarding no",
    "PermitTTY no",
    "ForceCommand /bin/false",
)


class _Connection:
    """One client's sshd. What it says goes to *log*; whom it has let in, it says."""

    def __init__(self, command: Sequence[str], environ: dict[str, str], log: Path) -> None:
        self.user = ""
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._sshd = subprocess.Popen(
                command,
                env=environ,
                stdin=theirs,
                stdout=theirs,
                stderr=subprocess.PIPE,
                cwd="/",
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(log,), daemon=True).start()

    def _read(self, log: Path) -> None:
        assert self._sshd.stderr is not None
        with log.open("a") as stream:
            for line in self._sshd.stderr:
                stream.write(line)
                stream.flush()
                if found := re.match(r"Accepted publickey for (\S+) ", line):
                    self.user = found[1]

    def pump(self, client: socket.socket) -> None:
        """Carry bytes between *client* and sshd until both are done."""
        back = threading.Thread(target=_carry, args=(self._ours, client), daemon=True)
        back.start()
        _carry(client, self._ours)
        back.join()
        self.cut()
        self._sshd.wait()

    def cut(self) -> None:
        """End it at once."""
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._sshd.pid, 9)


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK):
            target.sendall(block)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
