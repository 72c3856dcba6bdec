"""What ``setup.sh`` prints: the difference, what an administrator needs, and variables of Terraform."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from oci_cluster.backends.oci.needed import Needed, lifecycle_rules, matching_rule, statements
from oci_cluster.backends.oci.needed_settings import Places
from oci_cluster.backends.oci.setup_steps import Found, Rules, Step, rule_line
from oci_cluster.errors import SettingsError

#: In what is printed without asking: who reads it knows.
CIDR = "<CIDR of the subnet>"


def difference(needed: Needed, found: Found, steps: Sequence[Step]) -> str:
    """Return what is missing, line by line, and what nobody could look at."""
    lines = []
    for step in steps:
        lines.append(f"{'!' if step.problem else '+'} {step.item}")
        lines += [f"    {line}" for line in step.lines]
        lines += [f"    {step.problem}"] if step.problem else []
    if found.has_people is None:
        lines.append(f"? group {needed.people}: groups of other identity domains are not shown here")
    if found.nodes_rule is None:
        lines.append(f"? dynamic group {needed.nodes}: likewise; its matching rule is to be:")
        lines.append(f"    {matching_rule(found.jobs)}")
    elif found.nodes_rule and found.has_runs is None:
        lines.append(
            f"? dynamic group {needed.nodes}: whether it has the Job Runs, its rule does not tell; it is to be:"
        )
        lines.append(f"    {matching_rule(found.jobs)}")
    if found.subnet is None:
        lines.append("? security rules: SUBNET_OCID is not set; OCI_JOB_STYLE=multinode alone needs none")
    if not steps:
        lines.append("= nothing is missing")
    return "\n".join(lines)


def for_administrator(needed: Needed, places: Places, cidr: str, rules: Callable[[str], Rules]) -> str:
    """Return all that is needed, for somebody who may make it; a line that is no comment is as OCI takes it."""
    ingress, egress = rules(cidr or CIDR_FOR_RULES)
    lines = [f"# Group of those who launch: {needed.people}"]
    lines += [f"# Dynamic group {needed.nodes}, its matching rule:", matching_rule(places.jobs)]
    lines += [f"# Policy {needed.policy}, in the root compartment:"]
    for statement in statements(needed):
        lines += [f"#   {statement.why}:", statement.text]
    lines += ["# Rules of the subnet's security list, all stateful:"]
    lines += [f"#   {rule_line(rule).replace(CIDR_FOR_RULES, CIDR)}" for rule in (*ingress, *egress)]
    lines += [f"# Bucket {needed.bucket} in {places.jobs}"]
    if kept := lifecycle_rules(needed):
        lines += ["# Its lifecycle policy:", *(f"#   {json.dumps(rule)}" for rule in kept)]
    lines += [f"# Repositories in {places.images}: {', '.join(needed.repositories)}"]
    lines += [f"# Log group {needed.log_group} in {places.jobs}"] if needed.log_group else []
    return "\n".join(lines)


# Any network, which is replaced by words before it is shown.
CIDR_FOR_RULES = "192.0.2.0/24"


def variables(needed: Needed, places: Places, tenancy: str, cidr: str, rules: Callable[[str], Rules]) -> str:
    """Return ``terraform.tfvars.json`` for ``scripts/templates/terraform``; what is not known is left out."""
    if domains := [group for group in (needed.people, needed.nodes) if "/" in group]:
        msg = f"{', '.join(domains)}: the templates for Terraform make groups of the identity domain Default alone"
        raise SettingsError(f"{msg}; make these yourself, and use --print")
    ingress, _ = rules(cidr or CIDR_FOR_RULES)
    spans = [rule["tcpOptions"]["destinationPortRange"] for rule in ingress]
    found = {
        "tenancy_ocid": tenancy,
        "compartment_ocid": places.jobs,
        "images_compartment_ocid": places.images,
        "network_compartment_ocid": places.network,
        "region": needed.region,
        "namespace": places.namespace,
        "people_group": needed.people,
        "nodes_group": needed.nodes,
        "policy_name": needed.policy,
        "bucket": needed.bucket,
        "prefix": needed.prefix,
        "keep_clusters_days": needed.keep_days,
        "repositories": list(needed.repositories),
        "uses_logging": bool(needed.logs),
        "log_group_name": needed.log_group,
        "subnet_cidr": cidr,
        "node_ports": spans,
    }
    return json.dumps(
        {name: value for name, value in found.items() if value != "" or name == "log_group_name"}, indent=2
    )
