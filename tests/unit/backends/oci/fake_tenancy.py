"""A tenancy in which all is right, for checks: each method of any client answers what stands here, by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import oci

from oci_cluster.backends.findings import Checked, Finding, Verdict
from oci_cluster.backends.oci.check import access
from oci_cluster.backends.oci.check.resources import needed_by
from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.tenancy.client import Tenancy
from oci_cluster.backends.oci.tenancy.requirements import matching_rule, statements
from oci_cluster.errors import ExitCode

ROOT, JOBS, NET = "ocid1.tenancy.oc1..t", "ocid1.compartment.oc1..jobs", "ocid1.compartment.oc1..net"
SUBNET, BUCKET = "ocid1.subnet.oc1.iad.s", "clusters"
GIVEN = {
    "COMPARTMENT_OCID": JOBS,
    "PROJECT_OCID": "ocid1.datascienceproject.oc1.iad.p",
    "SUBNET_OCID": SUBNET,
    "SUBNET_CIDR": "10.0.0.0/24",
    "BASTION_ID": "ocid1.bastion.oc1.iad.b",
    "BASTION_HOST_KEY": "ssh-ed25519 AAAA",
    "LOG_GROUP_OCID": "ocid1.loggroup.oc1.iad.g",
    "LOG_OCID": "ocid1.log.oc1.iad.l",
    "WORK_DIR": f"oci://{BUCKET}@ns/team-a/work",
    "REGISTRY": "iad.ocir.io/ns/training",
}
NAT = "ocid1.natgateway.oc1.iad.n"
core = oci.core.models


def item(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"lifecycle_state": "ACTIVE", **fields})


def refusal(status: int = 404, code: str = "NotAuthorizedOrNotFound") -> ServiceError:
    code_of_exit = ExitCode.NOT_PERMITTED if status == 404 else ExitCode.UNAVAILABLE
    return ServiceError("cannot look: no; ask", status=status, code=code, exit_code=code_of_exit)


SILENT = refusal(503, "ServiceUnavailable")


def route(gateway: str, destination: str = "0.0.0.0/0", kind: str = "CIDR_BLOCK") -> Any:
    return core.RouteRule(destination=destination, destination_type=kind, network_entity_id=gateway)


def ingress(cidr: str = "10.0.0.0/24", **more: Any) -> Any:
    return core.IngressSecurityRule(**{"protocol": "6", "source": cidr, "is_stateless": False, **more})


def egress(cidr: str = "0.0.0.0/0", **more: Any) -> Any:
    return core.EgressSecurityRule(**{"protocol": "6", "destination": cidr, "is_stateless": False, **more})


BASTION = item(
    id=GIVEN["BASTION_ID"],
    name="bastion",
    target_vcn_id="v",
    private_endpoint_ip_address="10.0.0.9",
    client_cidr_block_allow_list=["0.0.0.0/0"],
)
# What setup.sh alone asks for.
OF_SETUP = {
    "list_domains": [],
    "list_region_subscriptions": [item(region_name="us-ashburn-1", is_home_region=True)],
    "list_container_repositories": item(items=[item(display_name="training/dask", compartment_id=JOBS)]),
    "get_object_lifecycle_policy": ServiceError("none", status=404, code="LifecyclePolicyNotFound"),
}
# What nothing but a check asks for.
OF_CHECK = {
    "assemble_effective_tag_set": [],
    "get_tag_namespace": item(name="Operations"),
    "list_retention_rules": [],
    "list_projects": [],
    "get_log": item(display_name="log", is_enabled=True, log_type="CUSTOM"),
    "list_log_groups": [],
    "list_logs": [],
    "get_dhcp_options": item(options=[core.DhcpDnsOption(type="DomainNameServer", server_type="VcnLocalPlusInternet")]),
}


class World:
    """What a Service has, where answers are given by hand; an error among them is raised."""

    def __init__(self) -> None:
        self.config: dict[str, str] = {"tenancy": ROOT, "user": "ocid1.user.oc1..u"}
        self.region, self.domain = "us-ashburn-1", "oraclecloud.com"
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.subnet = item(
            id=SUBNET,
            display_name="nodes",
            cidr_block="10.0.0.0/24",
            vcn_id="v",
            compartment_id=NET,
            prohibit_public_ip_on_vnic=True,
            availability_domain=None,
            route_table_id="rt",
            dhcp_options_id="dhcp",
            security_list_ids=["l1"],
        )
        self.rules = item(
            id="l1", display_name="l1", ingress_security_rules=[ingress()], egress_security_rules=[egress()]
        )
        self.table = item(id="rt", display_name="out", route_rules=[route(NAT)])
        self.nat = item(id=NAT, display_name="nat", block_traffic=False)
        self.group = item(id="d", name="cluster-runs", matching_rule=matching_rule(JOBS))
        self.statements: list[str] = []
        self.by_name: dict[str, Any] = {
            "get_namespace": "ns",
            "get_compartment": self._compartment,
            "list_jobs": [],
            "get_project": item(display_name="project", compartment_id=JOBS),
            "get_bucket": item(compartment_id=JOBS, storage_tier="Standard", is_read_only=False),
            "list_buckets": [item(name=BUCKET)],
            "put_object": self._put,
            "get_object": lambda *key: item(data=item(content=self.objects[key[2]])),
            "list_objects": self._list,
            "delete_object": self._delete,
            "get_log_group": item(display_name="logs", compartment_id=JOBS),
            "get_bastion": BASTION,
            "get_subnet": self.subnet,
            "list_subnets": [self.subnet],
            "get_vcn": item(cidr_blocks=["10.0.0.0/22"], cidr_block="10.0.0.0/22"),
            "get_route_table": self.table,
            "list_route_tables": [self.table],
            "get_nat_gateway": self.nat,
            "list_nat_gateways": [self.nat],
            "get_service_gateway": item(display_name="services", block_traffic=False),
            "list_security_lists": [],
            "get_security_list": self.rules,
            "list_network_security_groups": [],
            "list_network_security_group_security_rules": [],
            "list_private_ips": [],
            "list_dynamic_groups": [self.group],
            "list_groups": [item(id="g", name="data-scientists"), item(id="a", name="Administrators")],
            "list_user_group_memberships": [item(group_id="a")],
            "list_policies": lambda home: [self._policy()] if home == ROOT else [],
            "get_policy": lambda _: self._policy(),
            **OF_SETUP,
            **OF_CHECK,
        }
        self.statements = [one.text for one in statements(needed_by(self.checked(), self.tenancy()))]

    def _policy(self) -> SimpleNamespace:
        return item(id="p", name="clusters", compartment_id=ROOT, statements=self.statements)

    def _compartment(self, ocid: str) -> Any:
        if not ocid.startswith("ocid1.compartment."):
            raise refusal()
        return item(id=ocid, name=ocid.rpartition("..")[2], compartment_id=ROOT)

    def _list(self, *_: Any, **__: Any) -> Any:
        return item(objects=[item(name=name, time_modified=None) for name in self.objects], next_start_with=None)

    def _put(self, *key: Any) -> None:
        self.objects[key[2]] = key[3]

    def _delete(self, *key: Any) -> None:
        del self.objects[key[2]]

    # --- What is checked

    def checked(self, workers: int = 2, **given: str) -> Checked:
        root = Path(__file__).resolve().parents[4]
        return Checked("dask", workers, root, {**GIVEN, **given}, None)

    def tenancy(self, **given: str) -> Tenancy:
        service: Any = self
        return Tenancy(service, {**GIVEN, **given})

    def find(self, part: Any, workers: int = 2, **given: str) -> dict[str, Finding]:
        """Return the findings of a *part* of the check by their items; of several of one item, the worst."""
        ranks = [Verdict.FINE, Verdict.ADVICE, Verdict.UNKNOWN, Verdict.FAILS]
        every = self.found(part, workers, **given)
        worst = {one.item: one for one in sorted(every, key=lambda one: ranks.index(one.verdict))}
        return {one.item: worst[one.item] for one in every}

    def found(self, part: Any, workers: int = 2, **given: str) -> list[Finding]:
        checked, tenancy = self.checked(workers, **given), self.tenancy(**given)
        needed = needed_by(checked, tenancy)
        if part is access:  # as the whole check does, which tells the groups first
            return [*access.groups(tenancy, needed), *access.findings(checked, tenancy, access.named(tenancy, needed))]
        return list(part.findings(checked, tenancy, needed))

    # --- What a Service has

    @property
    def identity(self) -> tuple[dict[str, str], Any]:
        return self.config, None

    def client_of(self, kind: Any, *_: str) -> Any:
        base = oci.base_client.BaseClient.__new__(oci.base_client.BaseClient)  # it asks nobody
        base.complex_type_mappings = dict(core.core_type_mapping)
        return SimpleNamespace(base_client=base, **{name: self._named(name) for name in self.by_name})

    def _named(self, name: str) -> Callable[..., Any]:
        def ask(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(name)
            found = self.by_name[name]
            found = found(*args) if callable(found) else found
            if isinstance(found, Exception):
                raise found
            return found

        ask.__name__ = name
        return ask

    def call(self, _: str, request: Callable[..., Any], *args: Any, patience_s: float = 0, **kwargs: Any) -> Any:
        found = request(*args, **kwargs)
        # The probe reads what the SDK has in `data`, as all else does.
        return SimpleNamespace(data=getattr(found, "data", found), headers={"etag": "e"})

    def all_pages(self, what: str, request: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        found = self.call(what, request, *args, **kwargs).data
        return list(getattr(found, "items", found))


def fails(found: dict[str, Finding]) -> list[str]:
    return [name for name, one in found.items() if one.verdict is Verdict.FAILS]


def unknown(found: dict[str, Finding]) -> list[str]:
    return [name for name, one in found.items() if one.verdict is Verdict.UNKNOWN]
