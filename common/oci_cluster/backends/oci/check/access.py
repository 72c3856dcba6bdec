"""Checks groups and policies of the tenancy for what a launch and its nodes do.

Most people may not read policies: then this is not known, and what they may do themselves is tried elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from oci_cluster.backends.findings import Checked, Finding, advice, fails, fine, unknown
from oci_cluster.backends.oci.tenancy.client import Tenancy, cli, for_shell
from oci_cluster.backends.oci.tenancy.policy_judge import Access, Judgement
from oci_cluster.backends.oci.tenancy.requirements import Needed, Statement, matching_rule, statements

ASSUMED, NODES, PEOPLE, POLICIES = "assumed", "dynamic group", "group", "policies"

_IN_CONSOLE = "# in the Console, {} it in that identity domain"


def named(tenancy: Tenancy, needed: Needed) -> Needed:
    """Return *needed* with other groups that have those rights, for missing ones."""
    access = Access(tenancy, needed)
    return replace(needed, nodes=_nodes_there(access), people=_people_there(access))


def _nodes_there(access: Access) -> str:
    name, answer = access.needed.nodes, access.nodes
    if "/" in name or not answer.is_given or answer.value:
        return name
    others = [str(one.name) for one in access.dynamic_groups.value if access.has_runs(one)]
    return others[0] if others else access.elsewhere("dynamic-group", name) or name


def _people_there(access: Access) -> str:
    name, answer = access.needed.people, access.people
    if "/" in name or not answer.is_given or answer.value or access.groups_of_caller:
        return name
    return access.elsewhere("group", name) or name


def groups(tenancy: Tenancy, needed: Needed) -> Iterator[Finding]:
    """Yield what is found of the groups that statements name."""
    access = Access(tenancy, needed)
    yield _dynamic_group(access)
    yield _people(access)


def findings(checked: Checked, tenancy: Tenancy, needed: Needed) -> Iterator[Finding]:
    """Yield each statement that is missing."""
    yield from _policies(Access(tenancy, needed), checked.framework)


def assumed(checked: Checked, needed: Needed) -> Finding:
    """Return by which groups and policy the tenancy is judged."""
    names = {"PEOPLE_GROUP": needed.people, "NODES_GROUP": needed.nodes, "POLICY_NAME": needed.policy}
    told = ", ".join(f"{name}={text}" for name, text in names.items())
    usual = [name for name, text in names.items() if not checked.given.get(name)]
    return fine(ASSUMED, f"{told}{'; nobody has set ' + ', '.join(usual) if usual else ''}")


def _dynamic_group(access: Access) -> Finding:
    name, jobs, answer = access.needed.nodes, access.tenancy.places.jobs, access.nodes
    rule = matching_rule(jobs)
    if not answer.is_given:
        return unknown(NODES, f"{answer.why}; the rule of {name} is to be: {rule}")
    if (own := answer.value) is None:
        if "/" in name:
            return fails(NODES, f"there is no {name}", f"{_IN_CONSOLE.format('make')}, with the rule {rule}")
        return _without_dynamic_group(access, rule)
    verdict, text = access.has_runs(own), f"{name}: {own.matching_rule}"
    if verdict:
        return fine(NODES, f"it has the Job Runs, {text}")
    if verdict is None:
        return unknown(NODES, f"whether it has the Job Runs, its rule does not tell, {text}")
    both = f"any {{{own.matching_rule}, {rule}}}"
    fix = for_shell(cli("iam dynamic-group update", "--force", dynamic_group_id=own.id, matching_rule=both))
    fix = f"{_IN_CONSOLE.format('change')}, with the rule {both}" if "/" in name else fix
    return fails(NODES, f"its rule does not match the Job Runs of {jobs}, {text}", fix)


def _without_dynamic_group(access: Access, rule: str) -> Finding:
    name, other = access.needed.nodes, _nodes_there(access)
    if "/" in other:
        text = f"there is no {name} in the domain Default, and policies name {other}"
        return fails(NODES, text, f"NODES_GROUP={other}")
    if other != name:
        return fine(NODES, f"{other} has the Job Runs, and there is no {name}; NODES_GROUP={other} tells setup.sh")
    make = cli("iam dynamic-group create", name=name, description="Job Runs of clusters", matching_rule=rule)
    return fails(NODES, f"there is no dynamic group {name}, nor another one with these Job Runs", for_shell(make))


def _people(access: Access) -> Finding:
    name, answer = access.needed.people, access.people
    if not answer.is_given:
        return unknown(PEOPLE, answer.why)
    if answer.value:
        return fine(PEOPLE, f"{name} is there")
    if "/" in name:
        return fails(PEOPLE, f"there is no {name}", _IN_CONSOLE.format("make"))
    if (other := _people_there(access)) != name:
        text = f"there is no {name} in the domain Default, and policies name {other}"
        return fails(PEOPLE, text, f"PEOPLE_GROUP={other}")
    own = ", ".join(sorted(access.groups_of_caller))
    if own and all(access.allows(one).is_allowed for one in statements(access.needed) if one.of == "people"):
        return fine(PEOPLE, f"there is no {name}, and you are in {own}")
    make = cli("iam group create", name=name, description="Launch clusters")
    yours = f"; yours, {own}, may do less than launches need" if own else ""
    text = f"there is no group {name}: PEOPLE_GROUP is the group of those who launch, and setup.sh makes it{yours}"
    return advice(PEOPLE, text, for_shell(make))


def _policies(access: Access, framework: str) -> Iterator[Finding]:
    """Yield each statement that is missing, and what of the policies is not seen."""
    hidden = [answer.why for _, answer in access.policies if not answer.is_given]
    if hidden and not access.there:
        asked = f"{hidden[0]}; what is needed, setup.sh {framework} --print tells your administrator"
        yield unknown(POLICIES, asked)
        return
    # A launch without a subnet of yours needs none about networks.
    has_subnet = bool(access.tenancy.places.subnet)
    wanted = [one for one in statements(access.needed) if has_subnet or " virtual-network-family " not in one.text]
    if not access.tenancy.bucket(access.needed.bucket).is_given:
        wanted = [one for one in wanted if "target.bucket.name" not in one.text]
        yield unknown(POLICIES, f"those about objects: bucket {access.needed.bucket} is not seen")
    found = [one for statement in wanted if (one := _judged(statement, access.allows(statement), hidden))]
    yield from found
    if count := len(wanted) - len(found):
        yield fine(POLICIES, f"{count} of {len(wanted)} statements that are needed are there, or wider ones")


def _judged(one: Statement, said: Judgement, hidden: list[str]) -> Finding | None:
    if said.is_allowed:
        return None
    text = f"{one.why}: {one.text}"
    if said.denial:
        fix = f"# what denies it must go, or have a condition: {said.denial}"
        if said.is_allowed is None:
            return unknown(POLICIES, f"whether this is denied, the policies' text does not tell: {text}", fix)
        return fails(POLICIES, f"a policy denies that {one.why}: {said.denial}", fix)
    if said.is_allowed is None:
        return unknown(POLICIES, f"whether this is allowed, the policies' text does not tell: {text}", one.text)
    if hidden:
        return unknown(POLICIES, f"this is allowed by no policy that is seen ({hidden[0]}): {text}", one.text)
    say = advice if one.is_extra else fails
    return say(POLICIES, f"no policy allows that {one.why}", one.text)
