"""Read-only client of the tenancy, for ``check.sh`` and ``setup.sh``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import oci

from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.tenancy.requirements import Needed, Places, placed, places_of
from oci_cluster.backends.oci.tenancy.security_rules import SECURITY_LIST, SecurityList, Subnet, blocks_of
from oci_cluster.errors import BackendError, ClusterError

if TYPE_CHECKING:
    from oci_cluster.backends.oci.service import Service

# How long one question is repeated that a service does not answer. Somebody waits for the report, and what is not
# answered is told as such: long enough for a service that is busy, chosen.
_PATIENCE_S = 20.0
#: Until a report of ``make smoke-oci`` from a tenancy is in the repository.
NEVER_SEEN = "what OCI does was never seen by this project: make smoke-oci tells"
#: States of what can be used.
ALIVE = {"ACTIVE", "AVAILABLE"}


@dataclass(frozen=True)
class Answer:
    """An answer of OCI: a value with its etag, or why there is none."""

    value: Any = None
    refusal: ClusterError | None = None
    etag: str = ""

    @property
    def is_given(self) -> bool:
        """True if there is a value; an empty list is one."""
        return self.refusal is None

    def or_raise(self) -> Any:
        """Return the value; raise the refusal where there is none."""
        if self.refusal is not None:
            raise self.refusal
        return self.value

    @property
    def is_refused(self) -> bool:
        """True if OCI has said no; silence is no refusal."""
        return isinstance(self.refusal, ServiceError) and self.refusal.is_final

    @property
    def status(self) -> int:
        """HTTP status of OCI's refusal; 0 where there is none."""
        return self.refusal.status if isinstance(self.refusal, ServiceError) else 0

    @property
    def code(self) -> str:
        """OCI's code of its refusal; empty where it has not refused."""
        return self.refusal.code if isinstance(self.refusal, ServiceError) and self.is_refused else ""

    @property
    def why(self) -> str:
        """The reason without a value, in OCI's words; empty where there is one."""
        return self.refusal.reason if self.refusal else ""


class Tenancy:
    """Asks OCI's services for one look: nothing twice, and nothing that changes anything."""

    def __init__(self, service: Service, given: Mapping[str, str], *, patience_s: float = _PATIENCE_S) -> None:
        self.service = service
        self.given = given
        #: OCIDs of the settings; nobody has checked them.
        self.places: Places = places_of(given)
        self.client = service.client_of
        self._patience_s = patience_s
        self._answers: dict[Hashable, Answer] = {}

    def ask(self, what: str, request: Callable[..., Any], *args: Any, **kwargs: Any) -> Answer:
        """Return the answer to *request*; *what* is for messages: ``look up the project``."""

        def asked() -> Answer:
            response = self.service.call(what, request, *args, patience_s=self._patience_s, **kwargs)
            return Answer(response.data, etag=response.headers.get("etag", ""))

        return self._once(request, args, kwargs, asked)

    def ask_all(self, what: str, request: Callable[..., Any], *args: Any, **kwargs: Any) -> Answer:
        """Return the items of all pages of a list, without those that are deleted."""

        def asked() -> Answer:
            found = self.service.all_pages(what, request, *args, patience_s=self._patience_s, **kwargs)
            return Answer([item for item in found if getattr(item, "lifecycle_state", "ACTIVE") in ALIVE])

        return self._once(request, args, kwargs, asked)

    def _once(
        self, request: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], asked: Callable[[], Answer]
    ) -> Answer:
        owner = type(getattr(request, "__self__", None)).__name__
        key = (owner, getattr(request, "__name__", repr(request)), repr(args), repr(sorted(kwargs.items())))
        if key not in self._answers:
            try:
                self._answers[key] = asked()
            except ClusterError as error:
                self._answers[key] = Answer(refusal=error)
        return self._answers[key]

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

    @cached_property
    def user(self) -> str:
        """The OCID of the caller; empty where nobody tells."""
        config, signer = self.service.identity
        if signer is None or "security_token_file" not in config:
            return str(config.get("user", ""))
        # A session is of whom its token names, as oci-cli reads it; its profile has the user of the profile DEFAULT.
        token = str(signer.api_key).removeprefix("ST$")
        try:
            return str(oci.auth.security_token_container.SecurityTokenContainer(None, token).get_jwt()["sub"])
        except (ValueError, KeyError, oci.exceptions.ClientError):
            return ""

    @property
    def namespace(self) -> Answer:
        """The namespace of Object Storage. Everybody whom OCI knows may ask for it."""
        return self.ask("look up the namespace", self.storage.get_namespace)

    @property
    def subnet(self) -> Answer:
        """The subnet that ``SUBNET_OCID`` names, which is to be set."""
        return self.ask(f"look up SUBNET_OCID {self.places.subnet}", self.network.get_subnet, self.places.subnet)

    @property
    def project(self) -> Answer:
        """The project that ``PROJECT_OCID`` names, which is to be set."""
        ocid = self.given["PROJECT_OCID"]
        request = self.client(oci.data_science.DataScienceClient).get_project
        return self.ask(f"look up PROJECT_OCID {ocid}", request, ocid)

    @property
    def bastion(self) -> Answer:
        """The bastion that ``BASTION_ID`` names, which is to be set."""
        ocid = self.given["BASTION_ID"]
        request = self.client(oci.bastion.BastionClient).get_bastion
        return self.ask(f"look up BASTION_ID {ocid}", request, ocid)

    @property
    def log_group(self) -> Answer:
        """The log group that ``LOG_GROUP_OCID`` names, which is to be set."""
        request = self.client(oci.logging.LoggingManagementClient).get_log_group
        return self.ask(f"look up LOG_GROUP_OCID {self.places.log_group}", request, self.places.log_group)

    def bucket(self, name: str) -> Answer:
        """Return the bucket *name* of the namespace that ``WORK_DIR`` has."""
        where = self.places.namespace or self.namespace.value
        return self.ask(f"look up bucket {name}", self.storage.get_bucket, where, name)

    def repository(self, name: str) -> Answer:
        """Return the repository *name*, wherever in the tenancy it is; no value: nowhere.

        A push makes it in the root compartment. Who may not look everywhere looks where images are to be.
        """
        request = self.client(oci.artifacts.ArtifactsClient).list_container_repositories
        what, answer = f"look up the repository {name}", Answer()
        looks = [(self.id, {"compartment_id_in_subtree": True}), (self.places.images, {})]
        for place, subtree in looks:
            if place:
                answer = self.ask_all(what, request, place, display_name=name, **subtree)
                if answer.is_given:
                    return Answer(next((one for one in answer.value if one.display_name == name), None))
        return answer

    def required_tags(self, compartment: str) -> Answer:
        """Return the defined tags, ``namespace.key``, required of anything made in *compartment*."""
        identity, required = self.identity, list[str]()
        answer = self.ask_all("list tag defaults", identity.assemble_effective_tag_set, compartment)
        for one in answer.value or []:
            if one.is_required:
                space = self.ask("look up a tag namespace", identity.get_tag_namespace, one.tag_namespace_id)
                if not space.is_given:
                    why = f"{one.tag_definition_name} is required, of which namespace: {space.why}"
                    return Answer(refusal=BackendError(why))
                required.append(f"{space.value.name}.{one.tag_definition_name}")
        return replace(answer, value=required) if answer.is_given else answer

    def placed(self, needed: Needed) -> Needed:
        """Return *needed* at the compartments in which things were found."""
        places, none = self.places, Answer()
        found = {
            "bucket": self.bucket(needed.bucket),
            "logs": self.log_group if places.log_group else none,
            "network": self.subnet if places.subnet else none,
            "project": self.project if self.given.get("PROJECT_OCID") else none,
        }
        there = {name: one for name in needed.repositories if (one := self.repository(name).value)}
        homes = {name: str(one.compartment_id) for name, one in there.items()}
        where = {name: str(one.value.compartment_id) for name, one in found.items() if one.value}
        return placed(needed, **where, repositories=homes)

    def security_lists(self) -> Subnet:
        """Return the subnet with its security lists, and ours if not attached."""
        subnet, network = self.subnet.or_raise(), self.network
        attached = subnet.security_list_ids or []
        home = {"vcn_id": subnet.vcn_id, "display_name": SECURITY_LIST}
        own = self.ask_all("list security lists", network.list_security_lists, subnet.compartment_id, **home).or_raise()
        unused = [item.id for item in own if item.id not in attached]
        return Subnet(
            id=subnet.id,
            blocks=blocks_of(subnet),
            vcn=subnet.vcn_id,
            compartment=subnet.compartment_id,
            lists=[self._security_list(one) for one in attached],
            unused=self._security_list(unused[-1]) if unused else None,
            etag=self.subnet.etag,
        )

    def _security_list(self, ocid: str) -> SecurityList:
        answer = self.ask(f"read security list {ocid}", self.network.get_security_list, ocid)
        found, network = answer.or_raise(), self.network
        ingress = [as_sent(network, rule) for rule in found.ingress_security_rules]
        egress = [as_sent(network, rule) for rule in found.egress_security_rules]
        return SecurityList(ocid, found.display_name, ingress, egress, answer.etag)

    def compartment(self, ocid: str) -> Answer:
        """Return a compartment; the tenancy is one, too."""
        return self.ask(f"look up compartment {ocid}", self.identity.get_compartment, ocid)

    def chain(self, ocid: str) -> list[Ancestor]:
        """Return a compartment and its parents that are seen, up to the tenancy."""
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
    """A compartment above a place; *name* is in lower case, and empty if unknown."""

    id: str
    name: str
    is_root: bool = False


def cli(command: str, *flags: str, **options: str) -> tuple[str, ...]:
    """Return oci-cli's words of a command such as ``iam group create``."""
    words = ((f"--{name.replace('_', '-')}", text) for name, text in options.items())
    return (*command.split(), *(word for pair in words for word in pair), *flags)


def for_shell(words: Sequence[str]) -> str:
    """Return the line for a shell that runs oci-cli with *words*."""
    return shlex.join(["oci", *words])


def as_sent(client: Any, model: Any) -> dict[str, Any]:
    """Return a model of the SDK as its JSON, without what is not set."""
    found: Mapping[str, Any] = client.base_client.sanitize_for_serialization(model)
    return {name: value for name, value in found.items() if value is not None}
