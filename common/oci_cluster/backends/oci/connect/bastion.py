"""Sessions of an OCI Bastion that forward one port of one node.

A guard deletes them where the process of a way was killed.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oci_cluster.backends.base import IsStopped
from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.settings import KEY_TYPES
from oci_cluster.contract.storage.retry import poll_delays
from oci_cluster.errors import BackendError, ClusterError, StoppedError
from oci_cluster.system.process_reaper import wait

if TYPE_CHECKING:
    from oci_cluster.backends.oci.service import Service

# Source: OCI's documentation of Bastion: a session lives for 3 hours at most.
_LONGEST_S = 10800
# OCI makes a session within a minute; past this it is given up. Chosen, not measured.
_MADE_WITHIN_S = 300.0
# How long the requests are repeated that end a session, while somebody waits for a prompt.
_END_PATIENCE_S = 20.0
# A request of the killed process may still be on its way: so long its session is looked for. As for Jobs.
_APPEARS_S = 10.0
# How long all is tried; then the sessions end by themselves, after three hours at most.
_GUARD_PATIENCE_S = 600.0
_LOOK_S = 1.0
_GOING = {"CREATING", "ACTIVE"}
_HOST = r"host\.bastion\.(?P<region>[a-z0-9-]+)\.oci\.(?P<domain>[a-z0-9.-]+)"
_COMMAND = re.compile(rf"(.* )?(?P<user>ocid1\.bastionsession\.[A-Za-z0-9._-]+)@(?P<host>{_HOST})\s*", re.DOTALL)
_PORT = re.compile(r"(?:^|\s)-p\s+(\d{1,5})(?=\s)")
_KEY = re.compile(rf"(?:^|\s)((?:{KEY_TYPES})\s+[A-Za-z0-9+/]+={{0,2}})(?=\s|$)")


@dataclass(frozen=True)
class Session:
    """An ACTIVE session: where ssh goes, and until when by the caller's clock.

    *host_keys* are for ``known_hosts``; empty where neither OCI nor a setting has told the host's key.
    """

    id: str
    host: str
    port: int
    host_keys: tuple[str, ...]
    asked_at: float
    ends_at: float


class Sessions:
    """Sessions of one way; *name* is no other way's, and *bastion* an OCID."""

    def __init__(
        self,
        service: Service,
        bastion: str,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._service = service
        self.bastion = bastion
        self.name = name
        #: Whether no session is wanted any more.
        self.is_unwanted: IsStopped = lambda: False
        #: Host keys that count where OCI tells none.
        self.pinned: tuple[str, ...] = ()
        self._clock = clock
        self._sleep = sleep
        self._longest_s = 0
        self._made = 0
        #: Those that have been made and not deleted.
        self.left: list[str] = []
        #: Whether a session may have been made that nobody has told of.
        self.is_unsure = False
        #: From where the bastion lets ssh in, as it says itself.
        self.allowed_from: list[str] = []

    def check(self) -> None:
        """Look the bastion up; raise where it is not seen, or not ready."""
        found = self._call(f"look at BASTION_ID {self.bastion}", "get_bastion", self.bastion).data
        if found.lifecycle_state != "ACTIVE":
            details = f": {found.lifecycle_details}" if found.lifecycle_details else ""
            raise BackendError(
                f"the bastion {self.bastion} is {found.lifecycle_state}{details}; wait, or set another BASTION_ID"
            )
        self._longest_s = min(int(found.max_session_ttl_in_seconds or _LONGEST_S), _LONGEST_S)
        self.allowed_from = [str(cidr) for cidr in found.client_cidr_block_allow_list or []]

    def _call(self, what: str, operation: str, *args: Any, **kwargs: Any) -> Any:
        return self._service.call(what, getattr(self._service.bastion, operation), *args, **kwargs)

    def create(self, address: str, port: int, public_key: str) -> Session:
        """Return a new ACTIVE session to *port* of *address*; an error leaves none."""
        if not self._longest_s:
            self.check()
        asked_at = self._clock()
        self._made += 1
        body = {
            "displayName": self.name,
            "bastionId": self.bastion,
            "keyType": "PUB",
            "keyDetails": {"publicKeyContent": public_key},
            "sessionTtlInSeconds": self._longest_s,
            "targetResourceDetails": {
                "sessionType": "PORT_FORWARDING",
                "targetResourcePrivateIpAddress": address,
                "targetResourcePort": port,
            },
        }
        self.is_unsure = True
        try:
            token = f"{self.name}-{self._made}"
            made = self._call("create a session of the bastion", "create_session", body, opc_retry_token=token).data
        except ServiceError as error:
            self.is_unsure = not error.is_final
            raise
        self.is_unsure = False
        self.left.append(str(made.id))
        try:
            ready = self._wait(made)
            life_s = min(int(ready.session_ttl_in_seconds or self._longest_s), self._longest_s)
            host, ssh_port = self._place(ready)
            keys = host_keys(ready.bastion_public_host_key_info or "") or self.pinned
            return Session(str(ready.id), host, ssh_port, keys, asked_at, asked_at + life_s)
        except BaseException:
            self.delete(str(made.id))
            raise

    def _wait(self, made: Any) -> Any:
        deadline = self._clock() + _MADE_WITHIN_S
        for delay in poll_delays(3.0, first_s=0.3):
            if made.lifecycle_state == "ACTIVE":
                return made
            if made.lifecycle_state != "CREATING":
                why = str(made.lifecycle_details or "OCI does not say why")[:300]
                raise BackendError(
                    f"the session of the bastion became {made.lifecycle_state}: {why}; BASTION_ID must be a bastion in"
                    " the VCN of the nodes, and not too many sessions be open (docs/oci.md, 'Reach a port of a node')"
                )
            if self._clock() > deadline:
                raise BackendError(
                    f"the session of the bastion was still CREATING after {_MADE_WITHIN_S:g} s; try again later"
                )
            self._check_wanted()
            self._sleep(delay)
            self._check_wanted()
            # It was made just now: not all of OCI may know of it.
            until = self._clock() + _END_PATIENCE_S
            made = self._call("look at the session", "get_session", made.id, not_seen_until=until).data
        raise AssertionError  # poll_delays never ends

    def _check_wanted(self) -> None:
        if self.is_unwanted():
            raise StoppedError("stopped before the session of the bastion was ready")

    def _place(self, session: Any) -> tuple[str, int]:
        """Return host and port of a session, all that is taken of its command."""
        said = str((session.ssh_metadata or {}).get("command", ""))
        usual = host_of(self._service)
        if not said:
            return usual, 22
        command, port = _COMMAND.fullmatch(said), _PORT.search(said)
        number = int(port[1]) if port else 22
        is_own = command and command["user"] == session.id and command["host"] == usual
        if not is_own or not 1 <= number <= 65535:
            shown = re.sub(r"[^\x20-\x7e]", "?", said)[:300]
            raise BackendError(
                f"OCI says that the session is reached by {shown!r}, which does not lead to {usual}; nothing was sent"
            )
        return usual, number

    def is_active(self, session: str) -> bool:
        """Return whether *session* can be used still."""
        try:
            found = self._call("look at the session", "get_session", session).data
        except ServiceError as error:
            if error.status != 404:
                raise
            return False
        return bool(found.lifecycle_state == "ACTIVE")

    def delete(self, session: str) -> None:
        """Delete *session*; one that is over is no error."""
        try:
            with self._service.cleaning_up():
                how = {"repeat_also": ("IncorrectState", "Conflict"), "patience_s": _END_PATIENCE_S}
                self._call("delete a session of the bastion", "delete_session", session, **how)
        except ServiceError as error:
            # Said of what is gone, and of what may not be deleted.
            if error.status not in {404, 409} or session in {found.id for found in self.going()}:
                raise
        if session in self.left:
            self.left.remove(session)

    def going(self) -> list[Any]:
        """Return this way's sessions that are listed, and not over."""
        what = "list the sessions of the bastion"
        client = self._service.bastion
        listed = self._service.all_pages(what, client.list_sessions, self.bastion, display_name=self.name)
        return [found for found in listed if found.display_name == self.name and found.lifecycle_state in _GOING]


def guard_main(arguments: Sequence[str]) -> None:
    """End what is left of a killed way: ``DIRECTORY [BASTION NAME]``."""
    directory, *of_bastion = arguments
    if not wait():
        return
    shutil.rmtree(directory, ignore_errors=True)
    if of_bastion:
        from oci_cluster.backends.oci.service import Service  # noqa: PLC0415 - with the SDK: when it is needed

        end_sessions(Sessions(Service(os.environ), *of_bastion))


def end_sessions(sessions: Sessions) -> None:
    """Delete all *sessions*, and those that appear in the next seconds."""
    began = time.monotonic()
    while True:
        time_s = time.monotonic() - began
        try:
            going = sessions.going()
            for session in going:
                sessions.delete(session.id)
            if not going and time_s > _APPEARS_S:
                return
        except ClusterError:
            if time_s > _GUARD_PATIENCE_S:
                raise
        time.sleep(_LOOK_S)


def host_of(service: Service) -> str:
    """Return the host that all bastions of the region have."""
    return f"host.bastion.{service.region}.oci.{service.domain}"


def host_keys(said: str) -> tuple[str, ...]:
    """Return the bastion's host keys: lines of OpenSSH, or one bare key."""
    if not said.strip():
        return ()
    found = tuple(" ".join(key.split()) for line in said.splitlines() for key in _KEY.findall(line.strip()))
    if not found and (kind := _kind_of(said.strip())):
        found = (f"{kind} {said.strip()}",)
    if not found:
        shown = re.sub(r"[^\x20-\x7e]", "?", said)[:200]
        raise BackendError(
            f"OCI says that the bastion's host key is {shown!r}, which is no key of OpenSSH; nothing was sent"
        )
    return found


def _kind_of(text: str) -> str:
    """Return the type of a bare key in base64; empty where it is none."""
    try:
        blob = base64.b64decode(text, validate=True)
        (length,) = struct.unpack_from(">I", blob)
    except (binascii.Error, struct.error):
        return ""
    kind = blob[4 : 4 + length].decode("latin-1")
    return kind if re.fullmatch(KEY_TYPES, kind) else ""
