"""What there is room for: service limits of Data Science, and what Compute says of its hosts."""

from __future__ import annotations

import threading
from typing import Any

from oci_service.data_science import _SHAPES
from oci_service.faults import Controls
from oci_service.resources import (
    JSON,
    Answer,
    Refusal,
    Request,
    Route,
    Shelf,
    getter,
    invalid,
    merged,
    not_found,
    page_of,
)
from oci_service.tenancy import Tenancy

SERVICE = "data-science"
# Names, scopes and values. That of GPUs is ADS's; the others are a guess: built like those of Compute. None is of the
# family of VM.GPU2.1.
_LIMITS = {
    "notebook-session-count": ("REGION", 20),
    "ds-standard2-core-count": ("REGION", 500),
    "ds-standard3-core-count": ("REGION", 500),
    "ds-standard-e4-core-count": ("REGION", 1000),
    "ds-standard-e4-memory-count": ("REGION", 16000),
    "ds-standard-e5-core-count": ("REGION", 1000),
    "ds-gpu3-count": ("AD", 8),
    "ds-gpu-a10-count": ("AD", 16),
}
_HOSTS = 1000


class Room:
    """Limits, reservations and hosts of one tenancy."""

    def __init__(self, controls: Controls, lock: threading.RLock, tenancy: Tenancy) -> None:
        self._controls = controls
        self._tenancy = tenancy
        self._reservations = Shelf("capacityreservation", lock)

    @property
    def shelves(self) -> list[Shelf]:
        """All that a policy can be about."""
        return [self._reservations]

    def limits_routes(self) -> list[Route]:
        """Return the operations of limits."""
        base = "/20190729"
        available = f"{base}/services/{{service}}/limits/{{limit}}/resourceAvailability"
        return [
            ("GET", f"{base}/services", "list_services", self._list_services),
            ("GET", f"{base}/limitDefinitions", "list_limit_definitions", self._list_definitions),
            ("GET", f"{base}/limitValues", "list_limit_values", self._list_values),
            ("GET", available, "get_resource_availability", self._get_availability),
        ]

    def compute_routes(self) -> list[Route]:
        """Return the operations of Compute."""
        base = "/20160918"
        reservations = f"{base}/computeCapacityReservations"
        return [
            ("POST", f"{base}/computeCapacityReports", "compute.create_compute_capacity_report", self._report),
            ("POST", reservations, "compute.create_compute_capacity_reservation", self._reserve),
            ("GET", f"{reservations}/{{id}}", "compute.get_compute_capacity_reservation", getter(self._reservations)),
        ]

    # --- Limits

    def _of_root(self, request: Request) -> None:
        if request.wanted("compartmentId") != self._tenancy.id:
            raise invalid("compartmentId must be the root compartment")

    def _page(self, request: Request, items: list[JSON], key: str = "name") -> Answer:
        page, headers = page_of(items, request.query, self._controls.page_size, key)
        return Answer(page, 200, headers)

    def _list_services(self, request: Request) -> Answer:
        self._of_root(request)
        return self._page(request, [{"name": SERVICE, "description": "Data Science"}])

    def _list_definitions(self, request: Request) -> Answer:
        self._of_root(request)
        common = {"serviceName": SERVICE, "areQuotasSupported": True, "isResourceAvailabilitySupported": True}
        items = [{**common, "name": name, "scopeType": scope} for name, (scope, _) in _LIMITS.items()]
        return self._page(request, items)

    def _list_values(self, request: Request) -> Answer:
        self._of_root(request)
        self._check_service(request.wanted("serviceName"))
        items = []
        for name, (scope, _) in _LIMITS.items():
            place = {"availabilityDomain": self._tenancy.identity.domain} if scope == "AD" else {}
            items.append({"name": name, "scopeType": scope, "value": self._left(name)[1], **place})
        return self._page(request, [item for item in items if request.query.get("name", item["name"]) == item["name"]])

    def _check_service(self, name: str) -> None:
        if name != SERVICE:
            raise not_found()

    def _left(self, limit: str) -> tuple[int, int]:
        """Return what is left of a limit, and the limit."""
        told = self._controls.left.get(limit, _LIMITS[limit][1])
        return (told[0], told[1]) if isinstance(told, list) else (told, told)

    def _get_availability(self, request: Request) -> Answer:
        limit, compartment = request.names["limit"], request.wanted("compartmentId")
        self._check_service(request.names["service"])
        self._tenancy.check_compartment(compartment)
        if limit not in _LIMITS:
            raise not_found()
        domain, is_of_domains = request.query.get("availabilityDomain"), _LIMITS[limit][0] == "AD"
        if domain != (self._tenancy.identity.domain if is_of_domains else None):
            raise invalid("availabilityDomain is for limits whose scope is AD, and needed for them")
        left, value = self._left(limit)
        return Answer({"available": left, "used": value - left})

    # --- Compute

    def _report(self, request: Request) -> Answer:
        body = request.json()
        if body.get("compartmentId") != self._tenancy.id:
            raise invalid("compartmentId must be the root compartment")
        if body.get("availabilityDomain") != self._tenancy.identity.domain:
            raise not_found()
        wanted = body.get("shapeAvailabilities") or []
        if not wanted:
            raise Refusal(400, "MissingParameter", "shapeAvailabilities is required")
        told = [{**merged(item), **self._hosts(str(item.get("instanceShape")))} for item in wanted]
        return Answer({**body, "shapeAvailabilities": told})

    def _hosts(self, shape: str) -> JSON:
        count = self._controls.capacity.get(shape, _HOSTS if shape in _SHAPES else None)
        if count is None:
            return {"availabilityStatus": "HARDWARE_NOT_SUPPORTED"}
        return (
            {"availabilityStatus": "AVAILABLE", "availableCount": count}
            if count
            else {"availabilityStatus": "OUT_OF_HOST_CAPACITY"}
        )

    def _reserve(self, request: Request) -> Answer:
        body: dict[str, Any] = request.json()
        parts = [{"usedCount": 0, **part} for part in body.get("instanceReservationConfigs") or []]
        fields = {**body, "instanceReservationConfigs": parts, "lifecycleState": "ACTIVE"}
        return self._reservations.answer(self._reservations.add(**fields))
