"""Whether the policies of the tenancy, and its groups, allow what a launch and its nodes do.

Most people may not read policies: then this is not known, and what they may do themselves is tried elsewhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from oci_cluster.backends.findings import Checked, Finding, Verdict, fails, fine, unknown
from oci_cluster.backends.oci.conditions import Known, holds, parse_condition
from oci_cluster.backends.oci.granted import Caller, Given, allowed, group_name, names_of
from oci_cluster.backends.oci.looking import Answer, Tenancy
from oci_cluster.backends.oci.needed import Needed, Statement, matching_rule, statements

NODES, PEOPLE, POLICIES = "dynamic group", "group", "policies"
# What a rule can ask of compute instances, which Job Runs are not.
_NOT_OF_RUNS = ("instance.",)
# OCI's own words for what it runs: source: OCI's documentation of Data Science, policies with resource principals.
_RUN = "datasciencejobrun"


def findings(checked: Checked, tenancy: Tenancy, needed: Needed) -> Iterator[Finding]:
    """Yield what is found of the dynamic group, of the group of people, and of each statement that is missing."""
    access = _Access(checked, tenancy, needed)
    yield access.dynamic_group()
    yield from access.people()
    yield from access.policies()


@dataclass(frozen=True)
class _Access:
    """Groups and policies of the tenancy, for one launch."""

    checked: Checked
    tenancy: Tenancy
    needed: Needed

    @cached_property
    def _of_run(self) -> dict[str, str]:
        """What a matching rule can ask of this launch's Job Runs."""
        return {"resource.type": _RUN, "resource.compartment.id": self.tenancy.places.jobs}

    # --- Who is in which group

    @cached_property
    def _dynamic_groups(self) -> Answer:
        return self.tenancy.ask_all("list dynamic groups", self.tenancy.identity.list_dynamic_groups, self.tenancy.id)

    def _matches(self, group: Any) -> Known:
        """Return whether the Job Runs of this launch are in a dynamic *group*."""
        try:
            return holds(parse_condition(group.matching_rule), self._of_run, _NOT_OF_RUNS)
        except ValueError:
            return None

    def dynamic_group(self) -> Finding:
        """Return whether a dynamic group has the Job Runs of the compartment."""
        name, rule = self.needed.nodes, matching_rule(self.tenancy.places.jobs)
        answer = self._dynamic_groups
        if "/" in name:
            return unknown(
                NODES, f"{name} is of another identity domain, which is not seen here; its rule is to be: {rule}"
            )
        if not answer.is_given:
            return unknown(NODES, f"{answer.why}; the rule of {name} is to be: {rule}")
        own = next((one for one in answer.value if group_name(one.name) == group_name(name)), None)
        return self._without_group(name, rule) if own is None else self._with_group(own, rule)

    def _without_group(self, name: str, rule: str) -> Finding:
        if others := [one.name for one in self._dynamic_groups.value if self._matches(one)]:
            text = f"{others[0]} has the Job Runs, and there is no {name}; NODES_GROUP={others[0]} tells setup.sh"
            return fine(NODES, text)
        make = ["--name", name, "--description", "Job Runs of clusters", "--matching-rule", rule]
        text = f"there is no dynamic group {name}, nor another one with these Job Runs"
        return fails(NODES, text, _iam("dynamic-group create", *make))

    def _with_group(self, own: Any, rule: str) -> Finding:
        verdict, text = self._matches(own), f"{own.name}: {own.matching_rule}"
        if verdict:
            return fine(NODES, f"it has the Job Runs, {text}")
        if verdict is None:
            return unknown(NODES, f"whether it has the Job Runs, its rule does not tell, {text}")
        both = f"any {{{own.matching_rule}, {rule}}}"
        mend = _iam("dynamic-group update", "--dynamic-group-id", own.id, "--matching-rule", both, "--force")
        return fails(NODES, f"its rule does not match the Job Runs of {self.tenancy.places.jobs}, {text}", mend)

    @cached_property
    def _own_groups(self) -> frozenset[str]:
        """The names of the groups that the caller is in, as far as they are seen."""
        user = str(self.tenancy.service.identity[0].get("user", ""))
        if not user or not self.tenancy.id:
            return frozenset()
        identity = self.tenancy.identity
        found = self.tenancy.ask_all(
            "list your groups", identity.list_user_group_memberships, self.tenancy.id, user_id=user
        )
        own = {item.group_id for item in found.value or []}
        every = self.tenancy.ask_all("list groups", identity.list_groups, self.tenancy.id).value or []
        return names_of([one.name for one in every if one.id in own])

    def people(self) -> Iterator[Finding]:
        """Yield whether the group of those who launch is there, where this can be seen."""
        name = self.needed.people
        if "/" in name:
            yield unknown(PEOPLE, f"{name} is of another identity domain, which is not seen here")
            return
        answer = self.tenancy.ask_all("list groups", self.tenancy.identity.list_groups, self.tenancy.id)
        if not answer.is_given:
            yield unknown(PEOPLE, answer.why)
        elif group_name(name) in names_of([one.name for one in answer.value]):
            yield fine(PEOPLE, f"{name} is there")
        elif self._own_groups:
            yield fine(PEOPLE, f"there is no {name}, and you are in {', '.join(sorted(self._own_groups))}")
        else:
            make = _iam("group create", "--name", name, "--description", "Launch clusters")
            yield fails(PEOPLE, f"there is no group {name}: PEOPLE_GROUP is the group of those who launch", make)

    @property
    def _people(self) -> frozenset[str]:
        """Whose rights count for those who launch: the group's; where there is none, those of the caller's groups."""
        own = names_of([self.needed.people])
        answer = self.tenancy.ask_all("list groups", self.tenancy.identity.list_groups, self.tenancy.id)
        is_there = not answer.is_given or bool(own & names_of([one.name for one in answer.value]))
        return own if is_there else self._own_groups or own

    # --- What they may do

    def policies(self) -> Iterator[Finding]:
        """Yield each statement that is missing, and what of the policies nobody could see."""
        there: list[Given] = []
        hidden: list[str] = []
        for home in self._homes():
            answer = self.tenancy.ask_all(f"list policies of {home}", self.tenancy.identity.list_policies, home)
            there += [Given(text, home) for policy in answer.value or [] for text in policy.statements]
            if not answer.is_given:
                hidden.append(answer.why)
        if hidden and not there:
            asked = f"{hidden[0]}; what is needed, setup.sh {self.checked.framework} --print tells your administrator"
            yield unknown(POLICIES, asked)
            return
        wanted = list(self._wanted())
        if self._bucket_is_hidden:
            wanted = [one for one in wanted if "target.bucket.name" not in one.text]
            yield unknown(POLICIES, f"those about objects: bucket {self.needed.bucket} is not seen")
        count = 0
        for one in wanted:
            verdict = allowed(one.text, self._caller(one), there, self.tenancy.id, self.tenancy.chain)
            found = self._judged(one, verdict, hidden)
            count += found is None
            if found:
                yield found
        if count:
            yield fine(POLICIES, f"{count} of {len(wanted)} statements that are needed are there, or wider ones")

    def _judged(self, one: Statement, verdict: Known, hidden: list[str]) -> Finding | None:
        if verdict:
            return None
        text = f"{one.why}: {one.text}"
        if verdict is None:
            return unknown(POLICIES, f"whether this is allowed, the policies' text does not tell: {text}", one.text)
        if hidden:
            return unknown(POLICIES, f"this is allowed by no policy that is seen ({hidden[0]}): {text}", one.text)
        return Finding(POLICIES, Verdict.FAILS, f"no policy allows that {one.why}", one.text)

    @property
    def _bucket_is_hidden(self) -> bool:
        storage, namespace = self.tenancy.storage, self.tenancy.places.namespace
        return not self.tenancy.ask("look up the bucket", storage.get_bucket, namespace, self.needed.bucket).is_given

    def _homes(self) -> list[str]:
        """Return the compartments whose policies can be about this launch."""
        places = self.tenancy.places
        targets = [one.partition("compartment id ")[2] for one in self._targets()]
        every = [self.tenancy.id, *(up.id for ocid in [places.jobs, *targets] for up in self.tenancy.chain(ocid))]
        return list(dict.fromkeys(filter(None, every)))

    def _targets(self) -> list[str]:
        needed = self.needed
        return [needed.network, needed.images, needed.bucket_in, needed.logs]

    def _wanted(self) -> Iterator[Statement]:
        """Yield the statements that this launch needs: without a subnet of yours, none about networks."""
        for one in statements(self.needed):
            if self.tenancy.places.subnet or " virtual-network-family " not in one.text:
                yield one

    def _caller(self, one: Statement) -> Caller:
        if one.of == "service":
            return Caller("service", frozenset({one.text.split()[2]}))
        if one.of == "people":
            return Caller("group", self._people)
        matching = [group for group in self._dynamic_groups.value or [] if self._matches(group)]
        names = names_of([group.name for group in matching] or [self.needed.nodes])
        about = {"type": _RUN, "compartment.id": self.tenancy.places.jobs}
        values = {f"request.principal.{name}": value for name, value in about.items()}
        return Caller("dynamic-group", names, frozenset(group.id for group in matching), values)


def _iam(words: str, *more: str) -> str:
    return shlex.join(["oci", "iam", *words.split(), *more])
