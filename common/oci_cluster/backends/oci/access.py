"""Judges groups and policies of a tenancy by their meaning, for ``check.sh`` and ``setup.sh`` alike."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from oci_cluster.backends.oci.granted import Caller, Given, Known, allowed, group_name, holds, names_of, parse_condition
from oci_cluster.backends.oci.needed import Needed, Statement
from oci_cluster.backends.oci.tenancy import Answer, Tenancy

# What a rule can ask of compute instances, which Job Runs are not.
_NOT_OF_RUNS = ("instance.",)
# OCI's own words for what it runs: source: OCI's documentation of Data Science, policies with resource principals.
_RUN = "datasciencejobrun"


class Access:
    """Groups and policies of a tenancy, and what they allow those who need it."""

    def __init__(self, tenancy: Tenancy, needed: Needed, *, makes_groups: bool = False) -> None:
        """Judge what is *needed*; with *makes_groups*, groups of these names are taken to be there."""
        self.tenancy = tenancy
        self.needed = needed
        self._makes_groups = makes_groups
        self._of_run = {"type": _RUN, "compartment.id": tenancy.places.jobs}

    # --- Who is in which group

    @property
    def dynamic_groups(self) -> Answer:
        """The dynamic groups of the identity domain Default."""
        return self.tenancy.ask_all("list dynamic groups", self.tenancy.identity.list_dynamic_groups, self.tenancy.id)

    @property
    def groups(self) -> Answer:
        """The groups of the identity domain Default."""
        return self.tenancy.ask_all("list groups", self.tenancy.identity.list_groups, self.tenancy.id)

    def own_dynamic_group(self) -> Any:
        """Return the dynamic group that ``NODES_GROUP`` names; None where it is not seen."""
        name = group_name(self.needed.nodes)
        return next((one for one in self.dynamic_groups.value or [] if group_name(one.name) == name), None)

    def has_runs(self, group: Any) -> Known:
        """Return whether the Job Runs of this launch are in a dynamic *group*."""
        values = {f"resource.{name}": value for name, value in self._of_run.items()}
        try:
            return holds(parse_condition(group.matching_rule), values, _NOT_OF_RUNS)
        except ValueError:
            return None

    @cached_property
    def groups_of_caller(self) -> frozenset[str]:
        """The names of the groups that the caller is in, as far as they are seen."""
        user, identity = str(self.tenancy.service.identity[0].get("user", "")), self.tenancy.identity
        if not user or not self.tenancy.id:
            return frozenset()
        request = identity.list_user_group_memberships
        found = self.tenancy.ask_all("list your groups", request, self.tenancy.id, user_id=user)
        own = {item.group_id for item in found.value or []}
        return names_of([one.name for one in self.groups.value or [] if one.id in own])

    def has_people(self) -> bool:
        """Return whether the group of those who launch is seen."""
        return group_name(self.needed.people) in names_of([one.name for one in self.groups.value or []])

    def _caller(self, of: str, text: str) -> Caller:
        needed = self.needed
        if of == "service":
            return Caller("service", frozenset({text.split()[2]}))
        if of == "people":
            named = names_of([needed.people])
            is_there = self._makes_groups or not self.groups.is_given or self.has_people()
            return Caller("group", named if is_there else self.groups_of_caller or named)
        matching = [group for group in self.dynamic_groups.value or [] if self.has_runs(group)]
        own = [needed.nodes] if self._makes_groups or "/" in needed.nodes or not matching else []
        values = {f"request.principal.{name}": value for name, value in self._of_run.items()}
        names = names_of([*(group.name for group in matching), *own])
        return Caller("dynamic-group", names, frozenset(group.id for group in matching), values)

    # --- What they may do

    @cached_property
    def policies(self) -> list[tuple[str, Answer]]:
        """The policies of each compartment whose policies can be about this launch."""
        tenancy, needed = self.tenancy, self.needed
        targets = [needed.network, needed.images, needed.bucket_in, needed.logs]
        ocids = [tenancy.places.jobs, *(one.partition("compartment id ")[2] for one in targets)]
        every = [tenancy.id, *(up.id for ocid in ocids for up in tenancy.chain(ocid))]
        request = tenancy.identity.list_policies
        homes = dict.fromkeys(filter(None, every))
        return [(home, tenancy.ask_all(f"list policies of {home}", request, home)) for home in homes]

    @cached_property
    def there(self) -> list[Given]:
        """The statements that are seen."""
        every = [(home, policy) for home, answer in self.policies for policy in answer.value or []]
        return [Given(text, home) for home, policy in every for text in policy.statements]

    def allows(self, one: Statement) -> Known:
        """Return whether the statements that are there allow what *one* would."""
        return allowed(one.text, self._caller(one.of, one.text), self.there, self.tenancy.id, self.tenancy.chain)
