"""What there is in a tenancy of what clusters need: asked of OCI, and nothing is changed."""

from __future__ import annotations

from typing import Any

import oci

from oci_cluster.backends.oci.access import Access
from oci_cluster.backends.oci.needed import Needed, same_statement, statements
from oci_cluster.backends.oci.setup_steps import Found, Policy
from oci_cluster.backends.oci.tenancy import Tenancy, as_sent
from oci_cluster.errors import SettingsError


def look(tenancy: Tenancy, needed: Needed) -> tuple[Needed, Found]:
    """Return what is *needed* at the places where things were found, and what there is.

    Raises:
        SettingsError: ``WORK_DIR`` is of another tenancy.
    """
    places = tenancy.places
    for one in [] if tenancy.id else tenancy.chain(places.jobs):
        tenancy.compartment(one.id).or_raise()  # which of them is not seen
    namespace = str(tenancy.namespace.or_raise())
    if places.namespace not in {"", namespace}:
        msg = f"WORK_DIR is in the namespace {places.namespace}, and this tenancy has {namespace}"
        raise SettingsError(f"{msg}; set oci://{needed.bucket}@{namespace}/...")
    subnet = tenancy.security_lists() if places.subnet else None
    if places.log_group:
        tenancy.log_group.or_raise()  # which compartment it is in must be known
    bucket, lifecycle, etag = _bucket(tenancy, needed.bucket)
    needed = tenancy.placed(needed)
    access = Access(tenancy, needed, makes_groups=True)
    rule, has_runs = _nodes(access)
    lacking, unsure = _statements(access)
    return needed, Found(
        tenancy=tenancy.id,
        jobs=places.jobs,
        images=places.images,
        namespace=namespace,
        home_region=_home_region(tenancy),
        has_people=_has_people(access),
        nodes_rule=rule,
        has_runs=has_runs,
        lacking=lacking,
        unsure=unsure,
        policy=_policy(access),
        bucket=bucket,
        lifecycle=lifecycle,
        lifecycle_etag=etag,
        repositories=_repositories(tenancy, needed),
        log_group=_log_group(tenancy, needed.log_group),
        subnet=subnet,
    )


# --- Identity


def _home_region(tenancy: Tenancy) -> str:
    request = tenancy.identity.list_region_subscriptions
    found = tenancy.ask("look up the home region", request, tenancy.id).or_raise()
    return next(str(item.region_name) for item in found if item.is_home_region)


def _has_people(access: Access) -> bool | None:
    if "/" in access.needed.people:
        return None  # this service shows the domain Default alone
    access.groups.or_raise()
    return access.has_people()


def _nodes(access: Access) -> tuple[str | None, bool | None]:
    """Return the rule of the dynamic group, and whether it has the Job Runs."""
    if "/" in access.needed.nodes:
        return None, None
    access.dynamic_groups.or_raise()  # a group that is not seen is none that is not there
    own = access.own_dynamic_group()
    return ("", False) if own is None else (str(own.matching_rule), access.has_runs(own))


def _statements(access: Access) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the statements that are missing, and those that are there in these words, and that others may deny."""
    for _, answer in access.policies:
        answer.or_raise()  # a statement that is not seen may be there
    there = {same_statement(given.text) for given in access.there}
    unsure = [one.text for one in statements(access.needed) if not access.allows(one)]
    lacking = tuple(text for text in unsure if same_statement(text) not in there)
    return lacking, tuple(text for text in unsure if text not in lacking)


def _policy(access: Access) -> Policy | None:
    """Return our policy, as it is just now."""
    tenancy = access.tenancy
    for home, answer in access.policies:
        for item in answer.or_raise() if home == tenancy.id else ():
            if item.name == access.needed.policy:
                own = tenancy.ask("read the policy", tenancy.identity.get_policy, item.id)
                return Policy(own.or_raise().id, tuple(own.value.statements), own.etag)
    return None


# --- Storage, registry, logs


def _bucket(tenancy: Tenancy, name: str) -> tuple[str, list[dict[str, Any]] | None, str]:
    """Return the bucket's compartment, and the rules of its lifecycle policy with their etag."""
    bucket, storage = tenancy.bucket(name), tenancy.storage
    if bucket.code == "BucketNotFound":
        return "", None, ""
    home, where = str(bucket.or_raise().compartment_id), (tenancy.namespace.value, name)
    rules = tenancy.ask("read the bucket's lifecycle policy", storage.get_object_lifecycle_policy, *where)
    if rules.code == "LifecyclePolicyNotFound":
        return home, None, ""
    return home, [as_sent(storage, item) for item in rules.or_raise().items], rules.etag


def _repositories(tenancy: Tenancy, needed: Needed) -> dict[str, str]:
    request = tenancy.client(oci.artifacts.ArtifactsClient).list_container_repositories
    found = {}
    for name in needed.repositories:
        where = {"compartment_id_in_subtree": True, "display_name": name}
        for item in tenancy.ask_all(f"look up repository {name}", request, tenancy.id, **where).or_raise():
            found[item.display_name] = item.compartment_id
    return found


def _log_group(tenancy: Tenancy, name: str) -> str:
    if not name:
        return ""
    request = tenancy.client(oci.logging.LoggingManagementClient).list_log_groups
    found = tenancy.ask_all("list log groups", request, tenancy.places.jobs, display_name=name).or_raise()
    return str(found[0].id) if found else ""
