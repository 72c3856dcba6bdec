"""What there is in a tenancy of what clusters need: asked of OCI, and nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import oci

from oci_cluster.backends.oci.needed import Needed
from oci_cluster.backends.oci.needed_settings import Places
from oci_cluster.backends.oci.refusals import ServiceError
from oci_cluster.backends.oci.service import Service
from oci_cluster.backends.oci.setup_steps import SECURITY_LIST, Found, Policy, SecurityList, Subnet
from oci_cluster.errors import SettingsError

_ACTIVE = {"ACTIVE", "AVAILABLE"}


class Finder:
    """Asks OCI's services."""

    def __init__(self, service: Service, needed: Needed, places: Places) -> None:
        """Prepare to look for what is *needed* at these *places*."""
        self._service = service
        self._needed = needed
        self._places = places
        self._identity = service.client_of(oci.identity.IdentityClient)
        self._network = service.client_of(oci.core.VirtualNetworkClient)
        self._storage = service.client_of(oci.object_storage.ObjectStorageClient)
        self._artifacts = service.client_of(oci.artifacts.ArtifactsClient)

    def found(self) -> Found:
        """Return what there is.

        Raises:
            ServiceError: OCI does not answer, or does not show it.
            SettingsError: ``WORK_DIR`` is of another tenancy.
        """
        needed, places = self._needed, self._places
        tenancy = self._tenancy()
        namespace = str(self._service.call("look up the namespace", self._storage.get_namespace).data)
        if places.namespace not in {"", namespace}:
            msg = f"WORK_DIR is in the namespace {places.namespace}, and this tenancy has {namespace}"
            raise SettingsError(f"{msg}; set oci://{needed.bucket}@{namespace}/...")
        subnet = self.subnet() if places.subnet else None
        bucket, lifecycle, etag = self._bucket(namespace)
        homes = {tenancy, places.jobs, places.images, bucket, places.network, subnet.compartment if subnet else ""}
        return Found(
            tenancy=tenancy,
            jobs=places.jobs,
            images=places.images,
            namespace=namespace,
            home_region=self._home_region(tenancy),
            has_people=self._has_people(tenancy),
            nodes_rule=self._nodes_rule(tenancy),
            policies=[policy for home in sorted(filter(None, homes)) for policy in self._policies(home)],
            paths=self._paths(tenancy),
            bucket=bucket,
            lifecycle=lifecycle,
            lifecycle_etag=etag,
            repositories=self._repositories(tenancy),
            log_group=self._log_group(),
            subnet=subnet,
        )

    def log_group_home(self) -> str:
        """Return the compartment of the log group that a setting names; empty without one."""
        if not self._places.log_group:
            return ""
        what = f"look up LOG_GROUP_OCID {self._places.log_group}"
        found = self._service.call(what, self._service.log_groups.get_log_group, self._places.log_group)
        return str(found.data.compartment_id)

    # --- Identity

    def _tenancy(self) -> str:
        config, signer = self._service.identity
        if found := config.get("tenancy") or getattr(signer, "tenancy_id", ""):
            return str(found)
        at = self._places.jobs
        while at.startswith("ocid1.compartment."):
            at = str(self._service.call(f"look up {at}", self._identity.get_compartment, at).data.compartment_id)
        return at

    def _home_region(self, tenancy: str) -> str:
        found = self._service.call("look up the home region", self._identity.list_region_subscriptions, tenancy).data
        return next(str(item.region_name) for item in found if item.is_home_region)

    def _listed(self, what: str, request: Any, *args: Any, **kwargs: Any) -> list[Any]:
        found = self._service.all_pages(what, request, *args, **kwargs)
        return [item for item in found if getattr(item, "lifecycle_state", "ACTIVE") in _ACTIVE]

    def _has_people(self, tenancy: str) -> bool | None:
        if "/" in self._needed.people:
            return None  # this service shows the domain Default alone
        return bool(self._listed("list groups", self._identity.list_groups, tenancy, name=self._needed.people))

    def _nodes_rule(self, tenancy: str) -> str | None:
        if "/" in self._needed.nodes:
            return None
        found = self._listed(
            "list dynamic groups", self._identity.list_dynamic_groups, tenancy, name=self._needed.nodes
        )
        return str(found[0].matching_rule) if found else ""

    def _policies(self, home: str) -> list[Policy]:
        found = []
        for item in self._listed("list policies", self._identity.list_policies, home):
            etag = ""
            if item.name == self._needed.policy:
                answer = self._service.call("read the policy", self._identity.get_policy, item.id)
                item, etag = answer.data, answer.headers["etag"]  # noqa: PLW2901 - the same, newer
            found.append(Policy(item.id, item.name, item.compartment_id, tuple(item.statements), etag))
        return found

    def _paths(self, tenancy: str) -> dict[str, str]:
        every = self._listed(
            "list compartments",
            self._identity.list_compartments,
            tenancy,
            compartment_id_in_subtree=True,
            access_level="ANY",
        )
        by_id = {item.id: item for item in every}

        def path(item: Any) -> str:
            parent = by_id.get(item.compartment_id)
            return f"{path(parent)}:{item.name.lower()}" if parent is not None else str(item.name.lower())

        return {path(item): item.id for item in every}

    # --- Storage, registry, logs

    def _bucket(self, namespace: str) -> tuple[str, list[dict[str, Any]] | None, str]:
        name, storage = self._needed.bucket, self._storage
        try:
            home = self._service.call(f"look up bucket {name}", storage.get_bucket, namespace, name).data.compartment_id
        except ServiceError as error:
            if error.code == "BucketNotFound":
                return "", None, ""
            raise
        try:
            what = "read the bucket's lifecycle policy"
            answer = self._service.call(what, storage.get_object_lifecycle_policy, namespace, name)
        except ServiceError as error:
            if error.code == "LifecyclePolicyNotFound":
                return home, None, ""
            raise
        return home, [as_sent(storage, item) for item in answer.data.items], answer.headers["etag"]

    def _repositories(self, tenancy: str) -> dict[str, str]:
        found = {}
        for name in self._needed.repositories:
            for item in self._listed(
                f"look up repository {name}",
                _items_of(self._artifacts.list_container_repositories),
                tenancy,
                compartment_id_in_subtree=True,
                display_name=name,
            ):
                found[item.display_name] = item.compartment_id
        return found

    def _log_group(self) -> str:
        if not self._needed.log_group:
            return ""
        request, name = self._service.log_groups.list_log_groups, self._needed.log_group
        found = self._listed("list log groups", request, self._places.jobs, display_name=name)
        return str(found[0].id) if found else ""

    # --- Network

    def subnet(self) -> Subnet:
        """Return the subnet that a setting names.

        Raises:
            ServiceError: OCI does not answer, or does not show it.
        """
        network = self._network
        answer = self._service.call(
            f"look up SUBNET_OCID {self._places.subnet}", network.get_subnet, self._places.subnet
        )
        subnet = answer.data
        attached = subnet.security_list_ids or []
        unused = None
        request = network.list_security_lists
        home = {"vcn_id": subnet.vcn_id, "display_name": SECURITY_LIST}
        for item in self._listed("list security lists", request, subnet.compartment_id, **home):
            if item.id not in attached:
                unused = self._security_list(item.id)
        return Subnet(
            id=subnet.id,
            cidr=subnet.cidr_block,
            vcn=subnet.vcn_id,
            compartment=subnet.compartment_id,
            lists=[self._security_list(one) for one in attached],
            unused=unused,
            etag=answer.headers["etag"],
        )

    def _security_list(self, list_id: str) -> SecurityList:
        answer = self._service.call(f"read security list {list_id}", self._network.get_security_list, list_id)
        ingress = [as_sent(self._network, rule) for rule in answer.data.ingress_security_rules]
        egress = [as_sent(self._network, rule) for rule in answer.data.egress_security_rules]
        return SecurityList(list_id, answer.data.display_name, ingress, egress, answer.headers["etag"])


def as_sent(client: Any, model: Any) -> dict[str, Any]:
    """Return a model of the SDK as its JSON, without what is not set."""
    found: Mapping[str, Any] = client.base_client.sanitize_for_serialization(model)
    return {name: value for name, value in found.items() if value is not None}


def _items_of(request: Any) -> Any:
    """Return *request*, whose answer is a collection, so that its answer is a list."""

    def asked(*args: Any, **kwargs: Any) -> Any:
        response = request(*args, **kwargs)
        response.data = response.data.items
        return response

    asked.__name__ = request.__name__
    return asked
