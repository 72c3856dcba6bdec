"""What a check says of the places that settings name, by what OCI answers, refuses, or leaves open."""

from __future__ import annotations

from typing import Any

import pytest
from unit.backends.oci.fake_tenancy import GIVEN, JOBS, SILENT, World, fails, item, refusal, unknown

from oci_cluster.backends.findings import Verdict
from oci_cluster.backends.oci.check import resources
from oci_cluster.errors import SettingsError

ITEMS = ["namespace", "compartment", "project", "bucket", "log group", "bastion", "required tags"]


@pytest.fixture
def world() -> World:
    """Return a tenancy that, as most do, shows the caller nobody's groups."""
    made = World()
    made.by_name["list_user_group_memberships"] = refusal()
    return made


def test_where_all_is_right_nothing_is_left_behind(world: World) -> None:
    found = world.find(resources)
    assert [(one.item, one.verdict, one.fix) for one in found.values()] == [(name, Verdict.FINE, "") for name in ITEMS]
    assert world.objects == {}
    assert resources.credentials(world.tenancy()).verdict is Verdict.FINE


def test_what_is_not_set_is_not_looked_at(world: World) -> None:
    without = {"LOG_GROUP_OCID": "", "BASTION_ID": "", "PROJECT_OCID": "", "SUBNET_OCID": ""}
    assert list(world.find(resources, **without)) == ["namespace", "compartment", "bucket", "required tags"]


@pytest.mark.parametrize(
    ("answer", "verdict", "fix"),
    [
        (refusal(401, "NotAuthenticated"), Verdict.FAILS, "ask"),
        (SILENT, Verdict.UNKNOWN, ""),
    ],
)
def test_who_asks(world: World, answer: Any, verdict: Verdict, fix: str) -> None:
    world.by_name["get_namespace"] = answer
    found = resources.credentials(world.tenancy())
    assert (found.verdict, found.fix) == (verdict, fix)


def test_nobody_asks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: Any) -> None:
        raise SettingsError("no identity for OCI; make one: oci setup config")

    monkeypatch.setattr(world, "client_of", nobody)
    found = resources.credentials(world.tenancy())
    assert (found.verdict, found.fix) == (Verdict.FAILS, "make one: oci setup config")


def test_a_service_that_is_silent_is_not_known(world: World) -> None:
    for name in ("list_jobs", "get_project", "put_object", "delete_object", "get_log_group", "get_bastion"):
        world.by_name[name] = SILENT
    assert unknown(world.find(resources)) == ["compartment", "project", "bucket", "log group", "bastion"]


def test_a_namespace_of_another_tenancy(world: World) -> None:
    found = world.find(resources, WORK_DIR="oci://clusters@theirs/team-a/work")
    assert found["namespace"].fix == "WORK_DIR=oci://clusters@ns/team-a/work"
    assert unknown(found) == ["bucket"]
    assert "put_object" not in world.asked


# --- The bucket


STATEMENT = "allow group data-scientists to manage objects in compartment id"


@pytest.mark.parametrize(
    ("name", "step"), [("get_object", "read"), ("list_objects", "listed"), ("delete_object", "deleted")]
)
def test_each_step_of_the_probe_counts(world: World, name: str, step: str) -> None:
    world.by_name[name] = refusal()
    found = world.find(resources)["bucket"]
    assert (found.verdict, f"cannot be {step}" in found.text) == (Verdict.FAILS, True)
    assert found.fix.startswith(STATEMENT)
    assert bool(world.objects) is (step == "deleted")


def test_something_else_is_read(world: World) -> None:
    world.by_name["get_object"] = item(data=item(content=b"cached"))
    found = world.find(resources)["bucket"]
    assert (found.verdict, world.objects) == (Verdict.UNKNOWN, {})


def test_a_list_that_lacks_what_was_written(world: World) -> None:
    """Nodes find each other by lists."""
    world.by_name["list_objects"] = item(data=item(objects=[item(name="another")]))
    found = world.find(resources)["bucket"]
    assert (found.verdict, "is not in the list" in found.text, world.objects) == (Verdict.UNKNOWN, True, {})


@pytest.mark.parametrize("name", ["put_object", "get_object", "list_objects"])
def test_a_ctrl_c_leaves_no_probe(world: World, name: str) -> None:
    """Nor one whose answer was still awaited."""
    deleted = []

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    world.by_name |= {name: interrupted, "delete_object": lambda *key: deleted.append(key[2])}
    with pytest.raises(KeyboardInterrupt):
        world.find(resources)
    assert len(deleted) == 1


def test_a_probe_that_may_have_been_written_is_deleted(world: World) -> None:
    """The answer was lost: the object is there, or is not."""
    world.by_name["put_object"] = SILENT
    deleted = []
    world.by_name["delete_object"] = lambda *key: deleted.append(key[2])
    assert unknown(world.find(resources)) == ["bucket"]
    assert len(deleted) == 1


@pytest.mark.parametrize(
    ("answers", "fix"),
    [
        ({}, STATEMENT),  # it can be listed: so it is there
        ({"list_objects": refusal()}, STATEMENT),  # it is among the buckets of the compartment
        (
            {"list_objects": refusal(), "list_buckets": [item(name="other")]},
            "WORK_DIR=oci://other@ns/team-a/work\n# or: oci os",
        ),
        ({"list_objects": refusal(), "list_buckets": []}, "oci os bucket create --namespace ns --compartment-id"),
        ({"list_objects": refusal(), "list_buckets": refusal()}, STATEMENT),
    ],
)
def test_a_bucket_that_takes_nothing(world: World, answers: dict[str, Any], fix: str) -> None:
    world.by_name |= {"put_object": refusal(), **answers}
    found = world.find(resources)["bucket"]
    assert found.verdict is Verdict.FAILS
    assert found.fix.startswith(fix)
    assert "delete_object" not in world.asked


# --- Data Science


def test_a_compartment_whose_jobs_are_not_seen(world: World) -> None:
    world.by_name["list_jobs"] = refusal()
    found = world.find(resources)["compartment"]
    assert found.fix == f"allow group data-scientists to manage data-science-family in compartment id {JOBS}"
    world.by_name["get_compartment"] = refusal()
    assert world.find(resources)["compartment"].fix.startswith(f"COMPARTMENT_OCID={JOBS}\n# or")
    world.by_name["get_project"] = refusal()
    assert "# or: COMPARTMENT_OCID=<OCID" in world.find(resources)["compartment"].fix


def test_a_project_that_cannot_be_used(world: World) -> None:
    world.by_name["get_project"] = refusal()
    assert world.find(resources)["project"].fix == (
        f"made=$(oci data-science project create --compartment-id {JOBS} --display-name clusters"
        ' --query data.id --raw-output) && echo "PROJECT_OCID=$made" >>config.env'
    )
    world.by_name["list_projects"] = [item(id="p2", display_name="other")]
    assert world.find(resources)["project"].fix == "PROJECT_OCID=p2"
    world.by_name["get_project"] = item(lifecycle_state="DELETED", display_name="old", compartment_id=JOBS)
    found = world.find(resources)["project"]
    assert (found.verdict, "it is DELETED" in found.text) == (Verdict.FAILS, True)


# --- Logs, bastion

LOGS = [item(id="l1", is_enabled=False), item(id="l2", is_enabled=True)]


@pytest.mark.parametrize(
    ("answers", "given", "fix"),
    [
        ({"get_log_group": refusal()}, {}, "allow group data-scientists to read log-groups in"),
        ({"get_log_group": refusal(), "list_log_groups": [item(id="l2")]}, {}, "LOG_GROUP_OCID=l2"),
        ({"get_log": refusal()}, {"LOG_OCID": "x"}, "allow group data-scientists to read log-groups in"),
        (
            {"get_log": refusal(), "list_log_groups": [item(id=GIVEN["LOG_GROUP_OCID"])]},
            {"LOG_OCID": "x"},
            "LOG_OCID=\n# it makes one log for all nodes, and prints LOG_OCID:\n./scripts/setup.sh dask --apply",
        ),
        (
            {"get_log": item(display_name="l", is_enabled=True, log_type="SERVICE"), "list_logs": LOGS},
            {"LOG_OCID": "x"},
            "LOG_OCID=l2",
        ),
        (
            {"get_log": item(display_name="l", is_enabled=False, log_type="CUSTOM"), "list_logs": LOGS},
            {"LOG_OCID": "x"},
            f"oci logging log update --log-group-id {GIVEN['LOG_GROUP_OCID']} --log-id x --is-enabled true",
        ),
    ],
)
def test_logs_that_are_not_there_or_take_no_lines(
    world: World, answers: dict[str, Any], given: dict[str, str], fix: str
) -> None:
    world.by_name |= answers
    found = world.find(resources, **given)
    assert fails(found) == ["log group"]
    assert found["log group"].fix.startswith(fix)


def test_a_log_that_is_there(world: World) -> None:
    assert world.find(resources, LOG_OCID="x")["log group"].text == "log x"


@pytest.mark.parametrize(
    ("logs", "fix"),
    [
        ([], "# it makes one log for all nodes, and prints LOG_OCID:\n./scripts/setup.sh dask --apply"),
        ([item(id="l1", is_enabled=False)], "# it makes one log for all nodes"),
        (LOGS, "LOG_OCID=l2"),
    ],
)
def test_without_a_log_of_all_nodes_one_is_advised(world: World, logs: list[Any], fix: str) -> None:
    """Else a launch makes one for each node, and OCI may make it by the right of whoever launches."""
    world.by_name["list_logs"] = logs
    found = world.find(resources, LOG_OCID="")["log group"]
    assert found.verdict is Verdict.ADVICE
    assert found.text.startswith(f"logs {GIVEN['LOG_GROUP_OCID']}: without LOG_OCID each launch makes a log for each")
    assert found.fix.startswith(fix)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (refusal(), "cannot look: no"),
        (item(name="b", target_vcn_id="other"), "it is of the VCN other, and the subnet is of v"),
        (item(name="b", target_vcn_id="v", lifecycle_state="DELETED"), "it is DELETED"),
    ],
)
def test_a_bastion_that_leads_nowhere(world: World, answer: Any, text: str) -> None:
    world.by_name["get_bastion"] = answer
    found = world.find(resources)["bastion"]
    assert (found.verdict, text in found.text) == (Verdict.FAILS, True)
    assert found.fix.startswith("BASTION_ID=\n# or: oci bastion bastion create --bastion-type STANDARD")


def test_settings_that_are_wrong_are_named(world: World) -> None:
    checked, tenancy = world.checked(REGISTRY="no registry"), world.tenancy()
    with pytest.raises(SettingsError, match="REGISTRY"):
        resources.needed_by(checked, tenancy)
