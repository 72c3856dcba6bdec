"""What is missing in a tenancy, as steps that make it: out of what is needed, and of what was found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oci_cluster.backends.oci.needed import Needed, lifecycle_rules, matching_rule
from oci_cluster.backends.oci.security_rules import SECURITY_LIST, SecurityList, Subnet, missing_rules

JSON = dict[str, Any]
#: In the words of a command: the OCID of the security list that the step before has made.
NEW_LIST = "<OCID of the new security list>"
# Source: OCI's documentation of security lists: "up to five security lists with a given subnet".
_MOST_LISTS = 5


@dataclass(frozen=True)
class Policy:
    """Our policy, which is there."""

    id: str
    statements: tuple[str, ...]
    etag: str = ""


@dataclass(frozen=True)
class Found:
    """What there is in a tenancy.

    Attributes:
        tenancy: Its OCID.
        jobs: The OCID of the compartment of the Jobs.
        images: The OCID of the compartment of the repositories.
        namespace: That of Object Storage.
        home_region: Where alone identity can be changed.
        has_people: Whether the group of people is there; None where it cannot be seen.
        nodes_rule: The matching rule of the dynamic group; empty where there is none, None where it cannot be seen.
        has_runs: Whether by this rule the Job Runs are in it; None where its text does not tell.
        lacking: The statements that are missing: no policy allows what they would.
        unsure: The statements that are there, and that another one may deny.
        policy: Ours; None where there is none.
        bucket: The OCID of the bucket's compartment; empty where there is none.
        lifecycle: The rules of its lifecycle policy; None where it has none.
        lifecycle_etag: The etag of that policy.
        repositories: The OCIDs of their compartments, by name.
        log_group: The OCID of the log group of that name; empty where there is none.
        subnet: None without ``SUBNET_OCID``.
    """

    tenancy: str
    jobs: str
    images: str
    namespace: str
    home_region: str
    has_people: bool | None = False
    nodes_rule: str | None = ""
    has_runs: bool | None = False
    lacking: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    policy: Policy | None = None
    bucket: str = ""
    lifecycle: Sequence[JSON] | None = None
    lifecycle_etag: str = ""
    repositories: Mapping[str, str] = field(default_factory=dict)
    log_group: str = ""
    subnet: Subnet | None = None


@dataclass(frozen=True)
class Step:
    """One thing that is missing, what it adds, and the words of oci-cli that make it; else why only a person can."""

    item: str
    lines: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    problem: str = ""


Rules = tuple[Sequence[JSON], Sequence[JSON]]


def steps_of(needed: Needed, found: Found, rules: Rules) -> list[Step]:
    """Return what is missing, in the order in which it can be made; *rules* are those of ingress and egress."""
    return [
        *_people(needed, found),
        *_nodes(needed, found),
        *_repositories(needed, found),
        *_log_group(needed, found),
        *_bucket(needed, found),
        *_policy(needed, found),
        *_lifecycle(needed, found),
        *(network_steps(found.subnet, rules) if found.subnet else ()),
    ]


# --- Identity -------------------------------------------------------------------------------------------------------


def _people(needed: Needed, found: Found) -> Iterator[Step]:
    if found.has_people is False:
        about = ("--name", needed.people, "--description", "Launch clusters")
        lines = ("nobody is in it yet: oci iam group add-user",)
        yield Step(f"group {needed.people}", lines, _iam(found, "group", "create", *about))


def _nodes(needed: Needed, found: Found) -> Iterator[Step]:
    rule, item = matching_rule(found.jobs), f"dynamic group {needed.nodes}"
    if found.nodes_rule == "":
        about = ("--name", needed.nodes, "--description", "Job Runs of clusters", "--matching-rule", rule)
        yield Step(item, (rule,), _iam(found, "dynamic-group", "create", *about))
    elif found.nodes_rule and found.has_runs is False:
        problem = (
            f"{item} has another matching rule, {found.nodes_rule}, and other things may rely on it: set NODES_GROUP to"
            f" a name that is free, or have its rule say {rule}, too"
        )
        yield Step(item, (rule,), problem=problem)


def _iam(found: Found, *words: str) -> tuple[str, ...]:
    return ("iam", *words, "--region", found.home_region)


def _policy(needed: Needed, found: Found) -> Iterator[Step]:
    lacking, own = found.lacking, found.policy
    if not lacking:
        return
    item = f"policy {needed.policy}"
    if own is None:
        where = ("--compartment-id", found.tenancy, "--name", needed.policy, "--description", "Data Science clusters")
        yield Step(item, tuple(lacking), _iam(found, "policy", "create", *where, "--statements", json.dumps(lacking)))
    else:
        every = json.dumps([*own.statements, *lacking])
        # oci-cli wants a version together with statements; empty is the current one.
        words = ("--policy-id", own.id, "--statements", every, "--version-date", "", "--if-match", own.etag, "--force")
        yield Step(item, tuple(lacking), _iam(found, "policy", "update", *words))


# --- Storage, registry, logs ----------------------------------------------------------------------------------------


def _bucket(needed: Needed, found: Found) -> Iterator[Step]:
    if not found.bucket:
        where = ("--namespace", found.namespace, "--compartment-id", found.jobs, "--name", needed.bucket)
        yield Step(f"bucket {needed.bucket}", (), ("os", "bucket", "create", *where))


def _lifecycle(needed: Needed, found: Found) -> Iterator[Step]:
    given = list(found.lifecycle or [])
    lacking = [rule for rule in lifecycle_rules(needed) if not any(_is_same_rule(rule, other) for other in given)]
    if not lacking:
        return
    names = {rule["name"] for rule in lacking}
    every = [*(rule for rule in given if rule["name"] not in names), *lacking]
    where = ("--namespace", found.namespace, "--bucket-name", needed.bucket, "--items", json.dumps(every), "--force")
    # Whoever changes it meanwhile must not lose a rule.
    guard = ("--if-match", found.lifecycle_etag) if found.lifecycle is not None else ("--if-none-match", "*")
    words = ("os", "object-lifecycle-policy", "put", *where, *guard)
    yield Step(f"lifecycle rules of bucket {needed.bucket}", tuple(map(_lifecycle_line, lacking)), words)


def _is_same_rule(rule: JSON, other: Mapping[str, Any]) -> bool:
    names = {name: value for name, value in (other.get("objectNameFilter") or {}).items() if value}
    said = {**other, "objectNameFilter": names}
    return {name: value for name, value in said.items() if value not in (None, {})} == rule


def _lifecycle_line(rule: JSON) -> str:
    below = f" below {rule['objectNameFilter']['inclusionPrefixes'][0]}" if "objectNameFilter" in rule else ""
    return f"{rule['name']}: {rule['action']} {rule['target']}{below} after {rule['timeAmount']} days"


def _repositories(needed: Needed, found: Found) -> Iterator[Step]:
    for name in needed.repositories:
        home, item = found.repositories.get(name, ""), f"repository {name}"
        if not home:
            where = ("--compartment-id", found.images, "--display-name", name)
            yield Step(item, (), ("artifacts", "container", "repository", "create", *where))
        elif home != found.images:
            yield Step(item, problem=f"{item} is in another compartment: set IMAGES_COMPARTMENT_OCID={home}")


def _log_group(needed: Needed, found: Found) -> Iterator[Step]:
    if needed.log_group and not found.log_group:
        where = ("--compartment-id", found.jobs, "--display-name", needed.log_group, "--wait-for-state", "SUCCEEDED")
        yield Step(f"log group {needed.log_group}", (), ("logging", "log-group", "create", *where))


# --- Network --------------------------------------------------------------------------------------------------------


def network_steps(subnet: Subnet, rules: Rules) -> Iterator[Step]:
    """Yield what makes the security lists of *subnet* have the *rules* of ingress and egress that they lack."""
    ingress = missing_rules([rule for one in subnet.lists for rule in one.ingress], list(rules[0]))
    egress = missing_rules([rule for one in subnet.lists for rule in one.egress], list(rules[1]))
    if not ingress and not egress:
        return
    item = f"security list {SECURITY_LIST}"
    lines = tuple(map(rule_line, [*ingress, *egress]))
    own = next((one for one in subnet.lists if one.name == SECURITY_LIST), None)
    if own is None and len(subnet.lists) >= _MOST_LISTS:
        names = ", ".join(one.name for one in subnet.lists)
        problem = (
            f"the subnet has {len(subnet.lists)} security lists, {names}, and may have {_MOST_LISTS}: add the rules to"
            " one of them, or take one away"
        )
        yield Step(item, lines, problem=problem)
    elif own is not None:
        yield _with_rules(item, lines, own, ingress, egress)
    elif subnet.unused is not None:
        left = (
            missing_rules(subnet.unused.ingress, list(rules[0])),
            missing_rules(subnet.unused.egress, list(rules[1])),
        )
        if any(left):
            yield _with_rules(item, lines, subnet.unused, *left)
        yield _attached(subnet, subnet.unused.id)
    else:
        where = ("--compartment-id", subnet.compartment, "--vcn-id", subnet.vcn, "--display-name", SECURITY_LIST)
        what = ("--ingress-security-rules", json.dumps(rules[0]), "--egress-security-rules", json.dumps(rules[1]))
        yield Step(item, lines, ("network", "security-list", "create", *where, *what))
        yield _attached(subnet, NEW_LIST)


def _with_rules(item: str, lines: tuple[str, ...], own: SecurityList, ingress: list[JSON], egress: list[JSON]) -> Step:
    every = json.dumps([*own.ingress, *ingress]), json.dumps([*own.egress, *egress])
    what = ("--ingress-security-rules", every[0], "--egress-security-rules", every[1])
    words = ("--security-list-id", own.id, *what, "--if-match", own.etag, "--force")
    return Step(item, lines, ("network", "security-list", "update", *words))


def _attached(subnet: Subnet, new: str) -> Step:
    every = json.dumps([*(one.id for one in subnet.lists), new])
    words = ("--subnet-id", subnet.id, "--security-list-ids", every, "--if-match", subnet.etag, "--force")
    return Step("security lists of the subnet", (SECURITY_LIST,), ("network", "subnet", "update", *words))


def rule_line(rule: Mapping[str, Any]) -> str:
    """Return a security rule of ours for people: ``ingress, TCP 8786, from 10.0.0.0/20``."""
    span = rule["tcpOptions"]["destinationPortRange"]
    ports = f"{span['min']}" if span["min"] == span["max"] else f"{span['min']}-{span['max']}"
    if "source" in rule:
        return f"ingress, TCP {ports}, from {rule['source']}"
    return f"egress, TCP {ports}, to {rule['destination']}"
