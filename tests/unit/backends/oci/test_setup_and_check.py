"""``setup.sh`` and ``check.sh`` say the same of the same tenancy."""

from __future__ import annotations

from typing import Any

import pytest
from unit.backends.oci.fake_tenancy import GIVEN, JOBS, World, item, refusal

from oci_cluster.backends.findings import Verdict
from oci_cluster.backends.oci.check import access
from oci_cluster.backends.oci.setup import Found, Setup, Step, difference
from oci_cluster.backends.oci.tenancy.requirements import Needed
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import NotPermittedError


@pytest.fixture
def world() -> World:
    return World()


def look(world: World, **given: str) -> tuple[Needed, Found, list[Step]]:
    service: Any = world
    return Setup(service, {**GIVEN, **given}, PROJECT_ROOT, ["dask"]).look()


def identity_steps(world: World, **given: str) -> list[Step]:
    """Return what setup.sh would do about groups and policies."""
    return [step for step in look(world, **given)[2] if step.item.partition(" ")[0] in {"policy", "group", "dynamic"}]


def failing(world: World, **given: str) -> list[str]:
    """Return the fixes of what fails for check.sh, or is advice."""
    found = world.found(access, **given)
    return [one.fix for one in found if one.verdict in {Verdict.FAILS, Verdict.ADVICE}]


def test_statements_that_are_there_are_not_missing(world: World) -> None:
    assert (identity_steps(world), failing(world)) == ([], [])


def test_each_statement_that_is_missing_is_missing_for_both(world: World) -> None:
    every = list(world.statements)
    for missing in every:
        world.statements = [one for one in every if one != missing]
        assert failing(world) == [missing]
        assert [line for step in identity_steps(world) for line in step.lines] == [missing]


def test_a_wider_statement_is_enough(world: World) -> None:
    """People of a group that may do everything need no statement more."""
    world.statements = [one for one in world.statements if not one.startswith("allow group ")]
    assert len(failing(world)) == len(identity_steps(world)[0].lines) > 1
    world.statements.append("allow group data-scientists to manage all-resources in tenancy")
    assert (failing(world), identity_steps(world)) == ([], [])


def test_the_conditions_of_a_rule_have_no_order(world: World) -> None:
    """The dynamic group is right, and what is truly missing is made."""
    rule = f"all {{resource.compartment.id = '{JOBS}', resource.type = 'datasciencejobrun'}}"
    world.group.matching_rule = rule
    missing = world.statements.pop(1)
    assert failing(world) == [missing]
    (step,) = identity_steps(world)
    assert (step.problem, step.lines) == ("", (missing,))


def test_a_rule_whose_text_does_not_tell_is_shown_and_does_not_stop_the_rest(world: World) -> None:
    world.group.matching_rule = "all {resource.type = 'datasciencejobrun', tag.a.b.value = 'c'}"
    missing = world.statements.pop(1)
    (step,) = identity_steps(world)
    assert (step.problem, step.lines) == ("", (missing,))


def test_a_rule_of_other_job_runs_is_a_persons_to_change(world: World) -> None:
    world.group.matching_rule = "all {resource.type = 'datasciencenotebooksession'}"
    assert len(failing(world)) == 1
    (step,) = identity_steps(world)
    assert "has another matching rule" in step.problem


def test_a_group_that_setup_makes_gets_its_own_statements(world: World) -> None:
    """The caller may do everything, by another group; those who are to launch may not yet."""
    world.by_name["list_groups"] = world.by_name["list_groups"][1:]
    world.statements = [one for one in world.statements if "data-scientists" not in one]
    world.statements.append("allow group Administrators to manage all-resources in tenancy")
    assert failing(world) == []
    group, policy = identity_steps(world)
    assert group.item == "group data-scientists"
    assert policy.lines
    assert all(line.startswith("allow group data-scientists to ") for line in policy.lines)


def test_policies_that_are_not_seen_end_setup(world: World) -> None:
    """What is missing among those that are seen may be among the others."""
    policies = world.by_name["list_policies"]
    world.by_name["list_policies"] = lambda home: refusal() if home == JOBS else policies(home)
    with pytest.raises(NotPermittedError):
        identity_steps(world)


def test_a_dynamic_group_of_another_domain_is_taken_to_have_the_runs(world: World) -> None:
    """Although another one, which is seen, has them, too, and may do nothing."""
    world.group.name = "theirs"
    world.statements = [one.replace("cluster-runs", "'d'/'n'") for one in world.statements]
    assert failing(world, NODES_GROUP="d/n") == []
    assert identity_steps(world, NODES_GROUP="d/n") == []


def test_what_a_policy_may_deny_is_not_added_again(world: World) -> None:
    """Adding it changes nothing: setup.sh would wait for it for ever. It is shown instead."""
    world.statements.append("deny group data-scientists to manage objects in tenancy")
    assert identity_steps(world) == []
    shown = [line for line in difference(*look(world)).splitlines() if line.startswith("? policies: ")]
    assert ["allow group data-scientists to" in line for line in shown] == [True, True]
    world.statements = [one for one in world.statements if " data-science-family " not in one]
    world.statements.append("allow group data-scientists to manage data-science-family in tenancy where a.b = 'c'")
    (step,) = identity_steps(world)
    assert [line.partition(" in ")[0] for line in step.lines] == [
        "allow group data-scientists to manage data-science-family"
    ]


def test_a_compartment_that_hides_its_tags_hides_no_others(world: World) -> None:
    tag = item(tag_namespace_id="n", tag_definition_name="CostCenter", is_required=True)
    world.by_name["assemble_effective_tag_set"] = lambda home: [tag] if home == JOBS else refusal()
    needed, found, steps = look(world, LOG_OCID="")
    assert [step.problem.partition(":")[0] for step in steps if step.problem] == ["Operations.CostCenter"]
    assert "? required tags: cannot look: no" in difference(needed, found, steps).splitlines()


def test_required_tags_that_are_not_seen_are_told_and_stop_nothing(world: World) -> None:
    world.by_name["assemble_effective_tag_set"] = refusal()
    needed, found, steps = look(world)
    assert not [step for step in steps if step.problem]
    assert "? required tags: cannot look: no" in difference(needed, found, steps).splitlines()
