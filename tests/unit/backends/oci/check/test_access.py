"""What a check says of groups and policies: what is missing, and what cannot be seen."""

from __future__ import annotations

from typing import Any

import pytest
from unit.backends.oci.fake_tenancy import GIVEN, JOBS, ROOT, SILENT, World, fails, item, refusal, unknown

from oci_cluster.backends.findings import Finding, Verdict
from oci_cluster.backends.oci import check
from oci_cluster.backends.oci.check import access, image, limits, network, resources
from oci_cluster.backends.oci.tenancy.client import NEVER_SEEN
from oci_cluster.backends.oci.tenancy.requirements import matching_rule
from oci_cluster.errors import BackendError

OTHER = "all {resource.type = 'datasciencejobrun', resource.compartment.id = 'ocid1.compartment.oc1..other'}"


@pytest.fixture
def world() -> World:
    return World()


def test_all_is_right(world: World) -> None:
    found = world.find(access)
    assert {one.verdict for one in found.values()} == {Verdict.FINE}
    assert found["policies"].text == "13 of 13 statements that are needed are there, or wider ones"


def test_each_statement_is_missed_alone(world: World) -> None:
    every = list(world.statements)
    for missing in every:
        world.statements = [one for one in every if one != missing]
        (wrong,) = [one for one in world.found(access) if one.verdict is not Verdict.FINE]
        assert wrong.fix == missing
        assert wrong.text.startswith("no policy allows that ")
        is_extra = any(words in missing for words in ("manage object-family", "manage repos", "to read log-content"))
        assert wrong.verdict is (Verdict.ADVICE if is_extra else Verdict.FAILS)


def test_a_launch_without_subnet_and_logs_needs_fewer(world: World) -> None:
    world.statements = [one for one in world.statements if "network" not in one and "log-" not in one]
    assert fails(world.find(access, SUBNET_OCID="", LOG_GROUP_OCID="")) == []
    assert "policies" in {one.item for one in world.found(access) if one.verdict is Verdict.FAILS}


def test_what_the_text_does_not_tell_is_not_known(world: World) -> None:
    missing = world.statements.pop(0)
    world.statements.append(f"{missing} where request.region = 'iad'")
    found = [one for one in world.found(access) if one.verdict is not Verdict.FINE]
    assert [(one.verdict, one.fix) for one in found] == [(Verdict.UNKNOWN, missing)]


def test_policies_that_are_not_seen(world: World) -> None:
    """All of them; or those of one compartment, which may have what is missing."""
    world.by_name["list_policies"] = refusal()
    found = world.find(access)
    assert unknown(found) == ["policies"]
    assert "setup.sh dask --print tells your administrator" in found["policies"].text
    world.by_name["list_policies"] = lambda home: refusal() if home == JOBS else [item(statements=world.statements)]
    assert {one.verdict for one in world.found(access)} == {Verdict.FINE}
    missing = world.statements.pop()
    found = world.find(access)
    assert (fails(found), [one.fix for one in world.found(access) if one.fix]) == ([], [missing])


def test_a_bucket_that_is_not_seen_leaves_its_statements_open(world: World) -> None:
    world.by_name["get_bucket"] = refusal(404, "BucketNotFound")
    world.statements = [one for one in world.statements if "target.bucket.name" not in one]
    found = world.found(access)
    assert [one.text for one in found if one.verdict is Verdict.UNKNOWN] == [
        "those about objects: bucket clusters is not seen"
    ]
    assert [one for one in found if one.verdict is Verdict.FAILS] == []


# --- Groups


def dynamic(world: World, **given: str) -> Finding:
    return world.find(access, **given)["dynamic group"]


def test_the_rule_of_a_dynamic_group(world: World) -> None:
    world.group.matching_rule = OTHER
    found = dynamic(world)
    assert found.verdict is Verdict.FAILS
    both = f"any {{{OTHER}, {matching_rule(JOBS)}}}"
    quoted = "'" + both.replace("'", "'\"'\"'") + "'"
    assert found.fix == f"oci iam dynamic-group update --dynamic-group-id d --matching-rule {quoted} --force"
    world.group.matching_rule = both
    assert dynamic(world).verdict is Verdict.FINE
    for text in ("all {resource.type = 'datasciencejobrun', tag.a.b.value = 'c'}", "something else"):
        world.group.matching_rule = text
        assert dynamic(world).verdict is Verdict.UNKNOWN


def test_a_dynamic_group_of_another_name(world: World) -> None:
    """It does as well, and so do the statements that name it, by name or by OCID."""
    world.group.name = "theirs"
    world.statements = [one.replace("cluster-runs", "theirs") for one in world.statements]
    found = world.find(access)
    assert fails(found) == []
    assert "NODES_GROUP=theirs" in found["dynamic group"].text
    world.statements = [one.replace("dynamic-group theirs", "dynamic-group id d") for one in world.statements]
    assert fails(world.find(access)) == []
    world.by_name["list_dynamic_groups"] = []
    assert dynamic(world).fix.startswith("oci iam dynamic-group create --name cluster-runs --description")


def test_groups_that_are_not_seen(world: World) -> None:
    world.by_name |= dict.fromkeys(("list_dynamic_groups", "list_groups"), refusal())
    found = world.find(access)
    assert unknown(found) == ["dynamic group", "group"]
    assert matching_rule(JOBS) in found["dynamic group"].text
    assert found["policies"].verdict is Verdict.FINE
    world.statements = [
        one.replace("cluster-runs", "'d'/'n'").replace("data-scientists", "'d'/'p'") for one in world.statements
    ]
    elsewhere = world.find(access, NODES_GROUP="d/n", PEOPLE_GROUP="d/p")
    assert unknown(elsewhere) == ["dynamic group", "group"]
    assert elsewhere["policies"].verdict is Verdict.FINE


def test_groups_of_a_domain(world: World) -> None:
    """They are looked up there; what the domain has not got is made in the Console."""
    runs, people = item(id="n", matching_rule=OTHER), item(id="p", display_name="p")
    nodes: list[Any] = []
    launchers = [people]
    world.by_name["list_domains"] = [item(display_name="D", url="https://d")]
    world.by_name["list_groups"] = lambda *home: [] if home else item(resources=launchers)
    world.by_name["list_dynamic_resource_groups"] = item(resources=nodes)

    def look() -> list[tuple[Verdict, str]]:
        found = world.find(access, PEOPLE_GROUP="d/p", NODES_GROUP="d/n")
        return [(found[name].verdict, found[name].fix) for name in ("dynamic group", "group")]

    right, make = matching_rule(JOBS), "# in the Console, make it in that identity domain"
    assert look() == [(Verdict.FAILS, f"{make}, with the rule {right}"), (Verdict.FINE, "")]
    nodes.append(runs)
    launchers.clear()
    change = f"# in the Console, change it in that identity domain, with the rule any {{{OTHER}, {right}}}"
    assert look() == [(Verdict.FAILS, change), (Verdict.FAILS, make)]
    runs.matching_rule = right
    assert look()[0] == (Verdict.FINE, "")


def test_whose_rights_count_where_there_is_no_group(world: World) -> None:
    """Those of the groups that the caller is in; somebody without any is told to make the group."""
    world.by_name["list_groups"] = [item(id="a", name="Administrators")]
    world.statements = [one for one in world.statements if "data-scientists" not in one]
    world.statements.append("allow group Administrators to manage all-resources in tenancy")
    found = world.find(access)
    assert (fails(found), found["group"].text) == ([], "there is no data-scientists, and you are in administrators")
    world.config.pop("user")
    assert "policies" in {one.item for one in world.found(access) if one.verdict is Verdict.FAILS}
    assert world.find(access)["group"].verdict is Verdict.ADVICE
    assert world.find(access)["group"].fix.startswith("oci iam group create --name data-scientists")


# --- All parts


@pytest.fixture
def whole(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(check, "Service", lambda _: world)
    monkeypatch.setattr(check, "of_settings", lambda *_: iter(()))
    for part in (image, limits):  # which have tests of their own
        monkeypatch.setattr(part, "findings", lambda *_: iter(()))
    return world


def looked(world: World, **given: str) -> dict[str, Finding]:
    return {one.item: one for one in check.findings(world.checked(**given), print)}


@pytest.mark.parametrize("answers", [{}, {"get_namespace": refusal(401, "NotAuthenticated")}])
def test_a_check_says_that_oci_was_never_seen(whole: World, answers: dict[str, Any]) -> None:
    whole.by_name |= answers
    said: list[str] = []
    assert [*check.findings(whole.checked(), said.append)]
    assert said[-1] == NEVER_SEEN


def test_the_whole_tenancy(whole: World) -> None:
    found = looked(whole)
    assert {one.verdict for one in found.values()} == {Verdict.FINE}
    assert [*found][:5] == ["credentials", "assumed", "dynamic group", "group", "namespace"]
    assert found["assumed"].text == (
        "PEOPLE_GROUP=data-scientists, NODES_GROUP=cluster-runs, POLICY_NAME=clusters; nobody has set PEOPLE_GROUP,"
        " NODES_GROUP, POLICY_NAME"
    )
    assert looked(whole, POLICY_NAME="p")["assumed"].text.endswith(
        "POLICY_NAME=p; nobody has set PEOPLE_GROUP, NODES_GROUP"
    )
    assert [*found][-1] == "policies"


def test_who_is_not_known_is_told_nothing_else(whole: World) -> None:
    whole.by_name["get_namespace"] = SILENT
    whole.asked.clear()
    assert [*looked(whole)] == ["credentials", "tenancy"]
    assert whole.asked == ["get_namespace"]


def test_wrong_settings_and_a_compartment_that_is_not_there(whole: World) -> None:
    assert "REGISTRY" in looked(whole, REGISTRY="none of these")["tenancy"].text
    whole.by_name |= dict.fromkeys(("list_jobs", "get_compartment"), refusal())
    found = looked(whole)
    assert unknown(found) == ["access", "room"]
    assert fails(found) == ["compartment"]


def test_a_part_that_ends_early_does_not_end_the_others(whole: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise BackendError("no way")

    monkeypatch.setattr(network, "findings", broken)
    found = looked(whole)
    assert found["network"].text == "the look at it ended here: no way"
    assert found["policies"].verdict is Verdict.FINE
    assert resources.COMPARTMENT in found


def test_the_tenancy_of_a_principal_is_found_by_its_compartment(world: World) -> None:
    world.config.clear()
    assert world.tenancy().id == ROOT
    assert fails(world.find(access)) == []
    assert GIVEN["COMPARTMENT_OCID"] == JOBS
