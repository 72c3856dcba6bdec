"""What costs nothing either: a session of a bastion, where there is one, and an ssh to its host."""

from __future__ import annotations

import ipaddress
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from oci_cluster.backends.oci.connect import tunnels
from oci_cluster.backends.oci.connect.bastion import host_keys, host_of
from oci_cluster.errors import BackendError
from smoke_oci.guesses import Findings
from smoke_oci.tenancy import Refused, Tenancy, request_id

_GUESSES = ("session", "key-type", "command", "host-key", "late-key", "name", "delete")
# As long as connect.sh waits; and one ssh, which ends by itself unless nobody answers where it leads.
_KEY_WITHIN_S, _SSH_S = 75, 30
# What ssh says that has got in, wherever it is led then.
_IS_IN = "Authenticated to"
_SHORTEST_S = 1800
# Of documentation (RFC 5737), where the subnet is not known. Nobody needs to be there: no ssh is started.
_NOBODY = "192.0.2.77"


def bastions(tenancy: Tenancy, findings: Findings) -> None:
    """Make a session of BASTION_ID, look at it, and delete it, whatever happens."""
    if not tenancy.settings["bastion"]:
        for guess in _GUESSES:
            findings.note(f"bastion-{guess}", is_right=None, evidence="BASTION_ID is not set")
        return
    with tempfile.TemporaryDirectory() as directory:
        _session(tenancy, findings, Path(directory))


def _session(tenancy: Tenancy, findings: Findings, place: Path) -> None:
    client = tenancy.service.bastion
    try:
        body = _body(tenancy, tunnels.new_key(place))
        made = tenancy.ask("create a session", client.create_session, body, opc_retry_token=tenancy.name)
    except Refused as refused:
        is_about_key = refused.status == 400 and "key" in str(refused).lower()
        evidence = f"{refused.status} {refused.code}: {refused}"
        for guess, is_right in (("key-type", False if is_about_key else None), ("session", None)):
            findings.note(f"bastion-{guess}", is_right=is_right, evidence=evidence, request_id=refused.request_id)
        return
    findings.note("bastion-key-type", is_right=True, evidence="it was accepted", request_id=request_id(made))
    session = str(made.data.id)
    try:
        _look(tenancy, findings, session, place)
    finally:
        with tenancy.service.cleaning_up():
            deleted = tenancy.ask("delete a session", client.delete_session, session)
    _deleted(tenancy, findings, session, request_id(deleted))


def _body(tenancy: Tenancy, key: str) -> dict[str, Any]:
    address = str(ipaddress.ip_network(tenancy.cidr.split(",")[0])[10]) if tenancy.cidr else _NOBODY
    return {
        "displayName": tenancy.name,
        "bastionId": tenancy.settings["bastion"],
        "keyType": "PUB",
        "keyDetails": {"publicKeyContent": key},
        "sessionTtlInSeconds": _SHORTEST_S,
        "targetResourceDetails": {
            "sessionType": "PORT_FORWARDING",
            "targetResourcePrivateIpAddress": address,
            "targetResourcePort": 22,
        },
    }


def _look(tenancy: Tenancy, findings: Findings, session: str, place: Path) -> None:
    client, began = tenancy.service.bastion, time.monotonic()

    def done() -> Any:
        response = tenancy.ask("look at the session", client.get_session, session)
        return response if response.data.lifecycle_state != "CREATING" else None

    seen = tenancy.until(done, minutes=5)
    took_s = time.monotonic() - began
    found = seen.data if seen else None
    state = found.lifecycle_state if found else "CREATING"
    evidence = f"it is {state} after {took_s:.0f} s: {found.lifecycle_details if found else ''}".removesuffix(": None")
    asked = request_id(seen) if seen else ""
    is_active = state == "ACTIVE"
    findings.note("bastion-session", is_right=is_active and took_s <= 60, evidence=evidence, request_id=asked)
    listed = tenancy.ask(
        "list the sessions", client.list_sessions, tenancy.settings["bastion"], display_name=tenancy.name
    )
    names = [item.id for item in listed.data]
    evidence = f"the list has {len(names)} of that name"
    findings.note("bastion-name", is_right=names == [session], evidence=evidence, request_id=request_id(listed))
    if not is_active or found is None:
        return
    command = str((found.ssh_metadata or {}).get("command", ""))
    is_right = command.strip().endswith(f"{session}@{host_of(tenancy.service)}")
    findings.note("bastion-command", is_right=is_right, evidence=command or "there is none", request_id=asked)
    told = found.bastion_public_host_key_info or ""
    try:
        keys = host_keys(told)
    except BackendError:
        keys = ()
    findings.note("bastion-host-key", is_right=bool(keys), evidence=told or "it tells none", request_id=asked)
    _key(tenancy, findings, found, place, keys or tuple(filter(None, [tenancy.settings["bastion_host_key"]])))


def _key(tenancy: Tenancy, findings: Findings, session: Any, place: Path, keys: tuple[str, ...]) -> None:
    """Have ssh get in, as soon as its key is taken."""
    host, began = host_of(tenancy.service), time.monotonic()
    (place / "known_hosts").write_text("".join(f"{host} {key}\n" for key in keys))
    program, *words = tunnels.bastion_command(place, host, 22, session.id, is_pinned=bool(keys))
    target = f"{session.target_resource_details.target_resource_private_ip_address}:22"

    def said() -> str:
        command = [program, "-o", "LogLevel=VERBOSE", "-W", target, *words]
        try:
            heard = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_SSH_S
            ).stderr
        except subprocess.TimeoutExpired as error:
            heard = error.stderr or b""
        text = heard.decode(errors="replace").strip()
        return "" if "Permission denied" in text else text or "ssh said nothing"

    found = tenancy.until(said, minutes=_KEY_WITHIN_S / 60)
    is_in = found is not None and _IS_IN in found
    evidence = f"ssh is in after {time.monotonic() - began:.0f} s" if is_in else found or "its key is refused"
    findings.note("bastion-late-key", is_right=is_in or (None if found else False), evidence=evidence)


def _deleted(tenancy: Tenancy, findings: Findings, session: str, request: str) -> None:
    client = tenancy.service.bastion
    states: list[str] = []

    def gone() -> bool:
        try:
            states.append(tenancy.ask("look at the session", client.get_session, session).data.lifecycle_state)
        except Refused as refused:
            states.append(f"not there ({refused.status})")
        return states[-1] == "DELETED" or states[-1].startswith("not")

    is_right = bool(tenancy.until(gone, minutes=1))
    findings.note("bastion-delete", is_right=is_right, evidence=f"it is {states[-1]}", request_id=request)
