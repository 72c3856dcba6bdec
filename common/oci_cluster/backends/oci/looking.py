"""What a tenancy answers when it is asked and nothing is changed: of each question a value, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import oci

from oci_cluster.backends.oci.needed_settings import Places, places_of
from oci_cluster.backends.oci.refusals import ServiceError
from oci_cluster.errors import ClusterError

if TYPE_CHECKING:
    from oci_cluster.backends.oci.service import Service

# How long one question is repeated that a service does not answer. Somebody waits for the report, and what is not
# answered is told as such: long enough for a service that is busy, chosen.
_PATIENCE_S = 20.0
#: States of what can be used.
ALIVE = {"ACTIVE", "AVAILABLE"}


@dataclass(frozen=True)
class Answer:
    """What OCI says to one question: a value, or why there is none."""

    value: Any = None
    refusal: ClusterError | None = None

    @property
    def is_given(self) -> bool:
        """Whether there is a value; an empty list is one."""
        return self.refusal is None

    @property
    def is_refused(self) -> bool:
        """Whether OCI has said no: what was asked for is not there, or the caller may not see it. Not on silence."""
        return isinstance(self.refusal, ServiceError) and self.refusal.is_final

    @property
    def is_of_the_caller(self) -> bool:
        """Whether OCI does not know who asks."""
        return isinstance(self.refusal, ServiceError) and self.refusal.status == 401

    @property
    def why(self) -> str:
        """Why there is no value, in OCI's own words, without what to do; empty where there is one."""
        return self.refusal.reason if self.refusal else ""


class Tenancy:
    """Asks OCI's services for one check: nothing twice, and nothing that changes anything."""

    def __init__(self, service: Service, given: Mapping[str, str]) -> None:
        """Prepare to look at what the settings *given* name.

        Args:
            service: Asks.
            given: Settings.
        """
        self.service = service
        self.given = given
        #: OCIDs of the settings; nobody has checked them.
        self.places: Places = places_of(given)
        self._clients: dict[Any, Any] = {}
        self._answers: dict[Hashable, Answer] = {}

    def client(self, kind: Any) -> Any:
        """Return the client of a service, by the SDK's class.

        Raises:
            SettingsError: there is no usable identity.
        """
        if kind not in self._clients:
            self._clients[kind] = self.service.client_of(kind)
        return self._clients[kind]

    def ask(self, what: str, request: Callable[..., Any], *args: Any, **kwargs: Any) -> Answer:
        """Return what *request*, a method of the SDK, gives; *what* is for messages: ``look up the project``."""

        def asked() -> Any:
            return self.service.call(what, request, *args, patience_s=_PATIENCE_S, **kwargs).data

        return self._once(request, args, kwargs, asked)

    def ask_all(self, what: str, request: Callable[..., Any], *args: Any, **kwargs: Any) -> Answer:
        """Return the items of all pages of a list, without those that are deleted."""

        def asked() -> Any:
            found = self.service.all_pages(what, request, *args, patience_s=_PATIENCE_S, **kwargs)
            return [item for item in found if getattr(item, "lifecycle_state", "ACTIVE") in ALIVE]

        return self._once(request, args, kwargs, asked)

    def _once(self, request: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], asked: Any) -> Answer:
        owner = type(getattr(request, "__self__", None)).__name__
        key = (owner, getattr(request, "__name__", repr(request)), repr(args), repr(sorted(kwargs.items())))
        if key not in self._answers:
            try:
                self._answers[key] = Answer(asked())
            except ClusterError as error:
                self._answers[key] = Answer(refusal=error)
        return self._answers[key]

    # --- What several items are about

    @property
    def identity(self) -> Any:
        """The client of Identity."""
        return self.client(oci.identity.IdentityClient)

    @property
    def network(self) -> Any:
        """The client of networks."""
        return self.client(oci.core.VirtualNetworkClient)

    @property
    def storage(self) -> Any:
        """The client of Object Storage."""
        return self.client(oci.object_storage.ObjectStorageClient)

    @cached_property
    def id(self) -> str:
        """The OCID of the tenancy; empty where nobody tells."""
        config, signer = self.service.identity
        if found := config.get("tenancy") or getattr(signer, "tenancy_id", ""):
            return str(found)
        chain = self.chain(self.places.jobs)
        return chain[-1].id if chain and chain[-1].is_root else ""

    @property
    def namespace(self) -> Answer:
        """The namespace of Object Storage. Everybody whom OCI knows may ask for it."""
        return self.ask("look up the namespace", self.storage.get_namespace)

    @property
    def subnet(self) -> Answer:
        """The subnet that ``SUBNET_OCID`` names, which is to be set."""
        return self.ask(f"look up SUBNET_OCID {self.places.subnet}", self.network.get_subnet, self.places.subnet)

    def compartment(self, ocid: str) -> Answer:
        """Return a compartment; the tenancy is one, too."""
        return self.ask(f"look up compartment {ocid}", self.identity.get_compartment, ocid)

    def chain(self, ocid: str) -> list[Ancestor]:
        """Return a compartment and those that it is in, up to the tenancy, as far as the caller may see them."""
        found: list[Ancestor] = []
        while ocid:
            if ocid.startswith("ocid1.tenancy."):
                return [*found, Ancestor(ocid, "", is_root=True)]
            answer = self.compartment(ocid)
            found.append(Ancestor(ocid, str(answer.value.name).lower() if answer.is_given else ""))
            parent = str(answer.value.compartment_id) if answer.is_given else ""
            ocid = "" if parent in {one.id for one in found} else parent
        return found


@dataclass(frozen=True)
class Ancestor:
    """A compartment on the way to the tenancy; *name* is in lower case, and empty where nobody tells it."""

    id: str
    name: str
    is_root: bool = False
