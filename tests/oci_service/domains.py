"""Identity domains besides Default: their groups and dynamic groups, which SCIM alone shows."""

from __future__ import annotations

import re
import threading
from typing import Any

from oci_service.faults import Controls
from oci_service.resources import JSON, Answer, Operation, Request, Route, Shelf, invalid

HOST = "idcs-stand-in.identity.oraclecloud.com"
_FILTER = re.compile(r'displayName eq "([^"]+)"')
_SCHEMA = "urn:ietf:params:scim:schemas:"


class Domains:
    """The domains of a tenancy; all of them answer at one host, so there is one at a time."""

    def __init__(self, controls: Controls, lock: threading.RLock) -> None:
        self._controls = controls
        self.domains = Shelf("domain", lock)
        self.groups = Shelf("domaingroup", lock)
        self.dynamic_groups = Shelf("domaindynamicgroup", lock)

    def add(self, tenancy: str, name: str) -> None:
        """Make a domain in the root compartment."""
        where: dict[str, Any] = {"compartmentId": tenancy, "url": f"https://{HOST}:443", "type": "SECONDARY"}
        self.domains.add(**where, displayName=name, homeRegionUrl=where["url"], lifecycleState="ACTIVE")

    def list_domains(self, request: Request) -> Answer:
        """Answer with the domains of a compartment."""
        return self.domains.list(request, ("compartmentId", "displayName", "lifecycleState"), self._controls.page_size)

    def routes(self) -> list[Route]:
        """Return the operations of a domain."""
        return [
            ("GET", "/admin/v1/Groups", "list_groups", self._lister(self.groups)),
            (
                "GET",
                "/admin/v1/DynamicResourceGroups",
                "list_dynamic_resource_groups",
                self._lister(self.dynamic_groups),
            ),
        ]

    def _lister(self, shelf: Shelf) -> Operation:
        def answer(request: Request) -> Answer:
            wanted = _FILTER.fullmatch(request.query.get("filter", ""))
            if wanted is None:
                raise invalid("the stand-in knows filters by displayName alone")
            # An attribute is told where it is asked for.
            asked = {"id", "displayName", *request.query.get("attributes", "").split(",")}
            found: list[JSON] = [
                {"schemas": [f"{_SCHEMA}core:2.0:Group"], **{key: text for key, text in one.items() if key in asked}}
                for one in ({**item, "ocid": item["id"]} for item in shelf.all())
                if one["displayName"].lower() == wanted[1].lower()
            ]
            told = {"schemas": [f"{_SCHEMA}api:messages:2.0:ListResponse"], "totalResults": len(found)}
            return Answer({**told, "Resources": found, "startIndex": 1, "itemsPerPage": 50})

        return answer
