"""``setup.sh`` on an empty tenancy of the stand-in: what it makes, and what it never does."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from empty_tenancy import FIND, Tenancy, empty_tenancy
from harness import PATIENCE_S
from oci_cloud import environment_of
from terraform import Terraform, as_lifecycle, as_rule, camel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

FRAMEWORKS = ("dask",)


@pytest.fixture(scope="module")
def tenancy(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenancy]:
    """Return a tenancy that has compartments, a subnet and a project, and nothing else."""
    with empty_tenancy(checkout_copy, tmp_path_factory.mktemp("setup")) as made:
        yield made


def test_a_difference_changes_nothing(tenancy: Tenancy) -> None:
    before = tenancy.count()
    shown = tenancy.setup(*FRAMEWORKS)
    assert tenancy.changes(before) == []
    items = re.findall(r"^\+ (.+)$", shown, re.MULTILINE)
    assert items == [
        "group data-scientists",
        "dynamic group cluster-runs",
        "repository training/dask",
        "log group clusters",
        "log nodes",
        "bucket clusters",
        "policy clusters",
        "lifecycle rules of bucket clusters",
        "security list oci-cluster",
        "security lists of the subnet",
    ]
    assert "    allow dynamic-group cluster-runs to read repos in compartment id ocid1.compartment." in shown


def test_what_is_made_leads_to_a_cluster_and_is_made_once(tenancy: Tenancy) -> None:
    """The service is busy, and an answer is lost: oci-cli asks again, and nothing is made twice."""
    busy = {"operation": "identity.create_dynamic_group", "kind": "429", "times": 1}
    lost = {"operation": "identity.create_policy", "kind": "drop-after", "nth": 1}
    tenancy.service.control({"faults": [busy, lost]})
    printed = tenancy.setup(*FRAMEWORKS, "--apply")
    tenancy.service.control({"faults": []})
    assert [call["status"] for call in tenancy.service.calls("create_dynamic_group")] == [429, 200]
    assert [call["is_answered"] for call in tenancy.service.calls("create_policy")] == [False, True]
    logs = dict(re.findall(r"^(LOG_\w+)=(ocid1\.log\S+)$", printed, re.MULTILINE))
    assert logs.keys() == {"LOG_GROUP_OCID", "LOG_OCID"}
    tenancy.values |= logs
    tenancy.configure()
    before = tenancy.count()
    assert tenancy.setup(*FRAMEWORKS, "--apply") == "= nothing is missing\n"
    assert tenancy.changes(before) == []

    add = f'oci iam group add-user --group-id "$found" --user-id {tenancy.user}'
    tenancy.as_administrator(FIND.format("group", "data-scientists"), add)
    image = "iad.ocir.io/stand-in/training/dask:1"
    tenancy.service.push(tenancy.user, image, tenancy.image(environment_of(tenancy.project, "dask")))
    tenancy.service.control({"images": {image: tenancy.image(environment_of(tenancy.project, "dask"))}})
    check(tenancy, image, code=0)
    denied = len(tenancy.service.denials())
    entry = tenancy.project.write("hello.py", "print('hello')\n")
    launch = tenancy.project.launch("dask", "1", "--entry", entry, **{**tenancy.environ, "IMAGE": image})
    assert launch.wait(PATIENCE_S) == 0, launch.err
    assert tenancy.service.denials()[denied:] == []
    proved = check(tenancy, image, "--live", code=0)
    ports = ("SCHEDULER_PORT", "DASHBOARD_PORT", "WORKER_PORTS", "NANNY_PORTS")
    for way in ("from MAIN to WORKER_1", "from WORKER_1 to MAIN"):
        assert all(re.search(rf"^fine +live +{way}: {port} \d+$", proved, re.MULTILINE) for port in ports), proved
    assert {job["lifecycleState"] for job in tenancy.service.jobs() if job["displayName"].startswith("check-")} == {
        "DELETED"
    }

    (policy,) = tenancy.bodies("create_policy")
    missing = next(one for one in policy["statements"] if "allow dynamic-group" in one)
    tenancy.service.set_statements([one for one in policy["statements"] if one != missing])
    assert f"         {missing}\n" in check(tenancy, image, code=1)
    tenancy.service.set_statements(policy["statements"])


def check(tenancy: Tenancy, image: str, *options: str, code: int) -> str:
    done = tenancy.project.run("check", "dask", "3", *options, **{**tenancy.administrator.environ, "IMAGE": image})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_check_and_setup_agree(tenancy: Tenancy) -> None:
    """On people who may do everything, and on a matching rule whose conditions stand in another order."""
    (policy,) = tenancy.bodies("create_policy")
    (group,) = tenancy.bodies("create_dynamic_group")
    first, second = re.fullmatch(r"all \{(.+), (.+)\}", group["matchingRule"]).groups()  # type: ignore[union-attr]
    turned = f"all {{{second}, {first}}}"
    update = f'oci iam dynamic-group update --dynamic-group-id "$found" --force --matching-rule "{turned}"'
    tenancy.as_administrator(FIND.format("dynamic-group", "cluster-runs"), update)
    others = [one for one in policy["statements"] if not one.startswith("allow group ")]
    everything = "allow group data-scientists to manage all-resources in tenancy"
    tenancy.service.set_statements([*others[1:], everything])
    try:
        assert tenancy.setup(*FRAMEWORKS).splitlines() == ["+ policy clusters", f"    {others[0]}"]
        tenancy.setup(*FRAMEWORKS, "--apply")
        assert set(tenancy.bodies("update_policy")[-1]["statements"]) == {*others, everything}
        checked = tenancy.project.run("check", "dask", "3", "--json", **tenancy.administrator.environ)
        found = {one["item"]: one["verdict"] for one in json.loads(checked.stdout)["findings"]}
        assert (found["dynamic group"], found["policies"]) == ("fine", "fine")
    finally:
        back = update.replace(turned, group["matchingRule"])
        tenancy.as_administrator(FIND.format("dynamic-group", "cluster-runs"), back)
        tenancy.service.set_statements(policy["statements"])


def test_terraform_makes_the_same(tenancy: Tenancy) -> None:
    """What the templates make of the variables that setup.sh prints, and what --apply has made."""
    cidr = {
        "SUBNET_CIDR": "10.0.0.0/20",
        "LOG_GROUP_OCID": "",
        "LOG_OCID": "",
        "NETWORK_COMPARTMENT_OCID": tenancy.network,
    }
    tenancy.configure(**cidr)
    values = json.loads(tenancy.setup(*FRAMEWORKS, "--tfvars"))
    tenancy.configure()
    made = Terraform(tenancy.project.path / "scripts" / "templates" / "terraform", values).resources()
    for kind, operation, fields in (
        ("oci_identity_group", "create_group", "compartmentId name description"),
        ("oci_identity_dynamic_group", "create_dynamic_group", "compartmentId name description matchingRule"),
        ("oci_identity_policy", "create_policy", "compartmentId name description statements"),
        ("oci_objectstorage_bucket", "create_bucket", "compartmentId name"),
        ("oci_artifacts_container_repository", "create_container_repository", "compartmentId displayName"),
        ("oci_logging_log_group", "create_log_group", "compartmentId displayName"),
        ("oci_logging_log", "create_log", "displayName logType"),
    ):
        asked = [{name: body[name] for name in fields.split()} for body in tenancy.bodies(operation)]
        described = [{camel(name): value for name, value in one.items()} for one in made[kind]]
        assert [{name: one[name] for name in fields.split()} for one in described] == asked
    (kept,), (asked_kept,) = (
        made["oci_objectstorage_object_lifecycle_policy"],
        tenancy.bodies("put_object_lifecycle_policy"),
    )
    assert [as_lifecycle(rule) for rule in kept["rules"]] == asked_kept["items"]
    (rules,) = made["oci_core_security_list"]
    (asked_rules,) = [one for one in tenancy.bodies("create_security_list") if one["displayName"] == "oci-cluster"]
    assert rules["compartment_id"] == asked_rules["compartmentId"]
    for direction in ("ingress", "egress"):
        asked = asked_rules[f"{direction}SecurityRules"]
        assert [as_rule(rule) for rule in rules[f"{direction}_security_rules"]] == asked


def test_what_is_lost_is_made_again_and_nothing_of_others_is_touched(tenancy: Tenancy) -> None:
    """Two statements and a security rule are gone, and there are a statement and rules of somebody else."""
    (policy,) = tenancy.bodies("create_policy")
    (rules,) = [body for body in tenancy.bodies("create_security_list") if body["displayName"] == "oci-cluster"]
    (lifecycle,) = tenancy.bodies("put_object_lifecycle_policy")
    theirs = "allow group Administrators to read metrics in tenancy"
    their_rule = {"protocol": "6", "source": "192.0.2.0/24", "sourceType": "CIDR_BLOCK", "isStateless": False}
    their_item = {**lifecycle["items"][1], "name": "theirs"}
    files = tenancy.administrator.directory
    (files / "policy.json").write_text(json.dumps([*policy["statements"][2:], theirs]))
    (files / "ingress.json").write_text(json.dumps([*rules["ingressSecurityRules"][1:], their_rule]))
    (files / "items.json").write_text(json.dumps([their_item, lifecycle["items"][1]]))
    policies = "oci iam policy update --policy-id \"$found\" --statements file://policy.json --version-date '' --force"
    subnet = f"oci network subnet get --subnet-id {tenancy.values['SUBNET_OCID']}"
    lists = f"rules=$({subnet} --query 'data.\"security-list-ids\"[-1]' --raw-output)"
    update = 'oci network security-list update --security-list-id "$rules" --ingress-security-rules file://ingress.json'
    items = "oci os object-lifecycle-policy put --bucket-name clusters --items file://items.json --force"
    tenancy.as_administrator(FIND.format("policy", "clusters"), items, lists, f"{update} --force", policies)

    before = tenancy.count()
    shown = tenancy.setup(*FRAMEWORKS)
    lost = rules["ingressSecurityRules"][0]["tcpOptions"]["destinationPortRange"]
    expiring = re.findall(
        "^    that deletes [1-9][0-9]* objects of today below team-a/work/: 0 are .*", shown, re.MULTILINE
    )
    assert len(expiring) == 1
    assert shown.splitlines() == [
        "+ policy clusters",
        *(f"    {statement}" for statement in policy["statements"][:2]),
        "+ lifecycle rules of bucket clusters",
        "    oci-cluster-old-clusters: DELETE objects below team-a/work/ after 30 days",
        *expiring,
        "+ security list oci-cluster",
        f"    ingress, TCP {lost['min']}-{lost['max']}, from 10.0.0.0/20",
    ]
    tenancy.setup(*FRAMEWORKS, "--apply")
    assert tenancy.changes(before) == [
        "identity.update_policy",
        "object_storage.put_object_lifecycle_policy",
        "virtual_network.update_security_list",
    ]
    assert set(tenancy.bodies("update_policy")[-1]["statements"]) == {*policy["statements"], theirs}
    assert their_item in tenancy.bodies("put_object_lifecycle_policy")[-1]["items"]
    fixed = tenancy.bodies("update_security_list")[-1]
    assert "192.0.2.0/24" in {rule["source"] for rule in fixed["ingressSecurityRules"]}
    assert len(fixed["egressSecurityRules"]) == len(rules["egressSecurityRules"])


def test_what_does_not_fit_is_named_before_anything_is_made(tenancy: Tenancy) -> None:
    """A dynamic group of somebody else; a repository elsewhere fits, and its statements say where."""
    root = tenancy.service.settings["TENANCY_OCID"]
    rule = "all {resource.type = 'datasciencenotebooksession'}"
    tenancy.as_administrator(
        f'oci iam dynamic-group create --name theirs --description x --matching-rule "{rule}"',
        f"oci artifacts container repository create --compartment-id {root} --display-name elsewhere/plain",
    )
    before = tenancy.count()
    wrong = {"NODES_GROUP": "theirs", "REGISTRY": "iad.ocir.io/stand-in/elsewhere"}
    said = tenancy.setup("plain", "--apply", code=78, **wrong)
    assert f"dynamic group theirs has another matching rule, {rule}" in said
    assert tenancy.changes(before) == []
    missing = tenancy.setup("plain", REGISTRY=wrong["REGISTRY"]).splitlines()
    assert not [line for line in missing if line.startswith("+ repository")]
    assert {line.partition(" in ")[2] for line in missing if " repos in " in line} == {
        "tenancy where target.repo.name = 'elsewhere/plain'"
    }


def test_who_is_no_administrator_is_told_what_to_do(tenancy: Tenancy) -> None:
    done = tenancy.project.run("setup", "plain", **tenancy.reader.environ)
    assert done.returncode == 77
    assert "setup.sh --print prints" in done.stderr


def test_all_that_is_needed_is_printed_without_a_request(tenancy: Tenancy) -> None:
    before = tenancy.count()
    printed = tenancy.setup("dask", "--print")
    assert tenancy.count() == before
    statements = [line for line in printed.splitlines() if line.startswith("allow ")]
    assert len(statements) == 13
    assert "ingress, TCP 8700-8800, from <CIDR of the subnet>" in printed
    variables = json.loads(tenancy.setup("dask", "--tfvars"))
    assert tenancy.count() == before
    assert variables["tenancy_ocid"] == tenancy.service.settings["TENANCY_OCID"]


def test_an_answer_that_is_lost_is_no_second_thing(tenancy: Tenancy) -> None:
    """The list was made and nobody heard of it; the next time it is found, and put into the subnet."""
    subnet = f"oci network subnet update --subnet-id {tenancy.values['SUBNET_OCID']} --force"
    first = f"oci network subnet get --subnet-id {tenancy.values['SUBNET_OCID']}"
    lists = f"rules=$({first} --query 'data.\"security-list-ids\"[0]' --raw-output)"
    tenancy.as_administrator(lists, f"{subnet} --security-list-ids '[\"'$rules'\"]'")
    before = tenancy.count()
    tenancy.setup(*FRAMEWORKS, "--apply")
    assert tenancy.changes(before) == ["virtual_network.update_subnet"]
