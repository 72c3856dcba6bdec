"""What costs nothing either: a session of a bastion, where there is one."""

from __future__ import annotations

import ipaddress
import tempfile
import time
from pathlib import Path
from typing import Any

from oci_cluster.backends.oci.connect import tunnels
from oci_cluster.backends.oci.connect.bastion import host_keys
from oci_cluster.errors import BackendError
from smoke_oci.guesses import Findings
from smoke_oci.tenancy import Refused, Tenancy, request_id

_GUESSES = ("session", "key-type", "command", "host-key", "name", "delete")
_SHORTEST_S = 1800
# Of documentation (RFC 5737), where the subnet is not known. Nobody needs to be there: no ssh is started.
_NOBODY = "192.0.2.77"


def bastions(tenancy: Tenancy, findings: Findings) -> None:
    """Make a session of BASTION_ID, look at it, and delete it, whatever happens."""
    if not tenancy.settings["bastion"]:
        for guess in _GUESSES:
            findings.note(f"bastion-{guess}", is_right=None, evidence="BASTION_ID is not set")
        return
    client = tenancy.service.bastion
    try:
        made = tenancy.ask("create a session", client.create_session, _body(tenancy), opc_retry_token=tenancy.name)
    except Refused as refused:
        is_about_key = refused.status == 400 and "key" in str(refused).lower()
        evidence = f"{refused.status} {refused.code}: {refused}"
        for guess, is_right in (("key-type", False if is_about_key else None), ("session", None)):
            findings.note(f"bastion-{guess}", is_right=is_right, evidence=evidence, request_id=refused.request_id)
        return
    findings.note("bastion-key-type", is_right=True, evidence="it was accepted", request_id=request_id(made))
    session = str(made.data.id)
    try:
        _look(tenancy, findings, session)
    finally:
        with tenancy.service.cleaning_up():
            deleted = tenancy.ask("delete a session", client.delete_session, session)
    _deleted(tenancy, findings, session, request_id(deleted))


def _body(tenancy: Tenancy) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        key = tunnels.new_key(Path(directory))
    address = str(ipaddress.ip_network(tenancy.cidr, strict=False)[10]) if tenancy.cidr else _NOBODY
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


def _look(tenancy: Tenancy, findings: Findings, session: str) -> None:
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
    place = f"{session}@host.bastion.{tenancy.service.region}.oci.{tenancy.service.domain}"
    is_right = command.strip().endswith(place)
    findings.note("bastion-command", is_right=is_right, evidence=command or "there is none", request_id=asked)
    told = found.bastion_public_host_key_info or ""
    try:
        is_right = bool(host_keys(told))
    except BackendError:
        is_right = False
    findings.note("bastion-host-key", is_right=is_right, evidence=told or "it tells none", request_id=asked)


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
