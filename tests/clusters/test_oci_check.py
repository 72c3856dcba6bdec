"""``check.sh`` on a tenancy of the stand-in: nothing where all is right, each planted fault, and what fixes it.

A fix is applied as it was printed: a command is run, a setting is written, a statement is added, and nothing else.
What a person does where a command is of no use is done by the test: a push.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from empty_tenancy import FIND, empty_tenancy
from oci_checks import IMAGE, OPEN, ROUTES, RULES, SUBNET, Checks, failed, nat, quoted, route, subnet, tcp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

E4 = "VM.Standard.E4.Flex"
OTHER = f"sha256:{'1' * 64}"
_PUSH = re.compile(
    r"^(?:PLATFORM=(?P<platform>\S+) )?make push-(?P<last>\w+) REGISTRY=(?P<folder>\S+) TAG=(?P<tag>\S+)"
)


class Rooms(Checks):
    """A tenancy that is right, and somebody who also pushes."""

    def begin(self) -> None:
        """Have right settings, images and hosts again."""
        super().begin()
        self.tenancy.service.control({"capacity": {}, "told": {}, "required_tags": [], "faults": []})
        self.tenancy.service.control({"expire_tokens": "", "clock_s": 0})
        self.push(IMAGE)
        (self.tenancy.project.path / ".images" / "dask.json").unlink(missing_ok=True)

    def push(self, image: str, **about: Any) -> None:
        """Have *image* in the registry, where it has a repository."""
        self.tenancy.service.control({"images": {image: {**self.tenancy.image(Path(sys.executable)), **about}}})

    def fix(self, text: str) -> None:
        """Do what the fix of a finding says; `make push`, which does nothing there, is done by its words."""
        super().fix(text)
        for line in text.splitlines():
            if push := _PUSH.match(line):
                image = f"{push['folder']}/{push['last']}:{push['tag']}"
                self.push(image, platform=push["platform"] or "linux/amd64")


@pytest.fixture(scope="module")
def made(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rooms]:
    with empty_tenancy(checkout_copy, tmp_path_factory.mktemp("check")) as tenancy:
        yield Rooms(tenancy)


@pytest.fixture
def checks(made: Rooms) -> Rooms:
    made.begin()
    return made


# --- All is right ---------------------------------------------------------------------------------------------------


def test_nothing_is_found_where_all_is_right(checks: Rooms) -> None:
    """And nothing is left of the probe, or changed."""
    before = checks.tenancy.count()
    code, found = checks.check()
    assert [one for one in found if one["verdict"] != "fine"] == []
    assert code == 0
    assert checks.tenancy.changes(before) == ["object_storage.put_object", "object_storage.delete_object"]
    assert checks.tenancy.service.objects("team-a/work/") == []


def test_who_may_not_read_policies_is_told_what_was_not_seen(checks: Rooms) -> None:
    code, found = checks.check(checks.tenancy.reader.environ)
    assert failed(found) == {}
    assert code == 3
    unseen = {one["item"]: one["text"] for one in found if one["verdict"] == "unknown"}
    assert "setup.sh dask --print" in unseen["policies"]
    assert "all {resource.type = 'datasciencejobrun', resource.compartment.id = " in unseen["dynamic group"]
    assert {"bucket", "compartment", "project", "subnet", "route", "security rules", "log group"} <= {
        one["item"] for one in found if one["verdict"] == "fine"
    }


# --- Settings that name what is not there ---------------------------------------------------------------------------


def test_wrong_places_are_named(checks: Rooms) -> None:
    """A bucket, a project, a log group, a bastion and a CIDR that are none of this tenancy's, and its namespace."""
    wrong = {
        "PROJECT_OCID": "ocid1.datascienceproject.oc1.iad.none",
        "LOG_GROUP_OCID": "ocid1.loggroup.oc1.iad.none",
        "BASTION_ID": "ocid1.bastion.oc1.iad.none",
        "SUBNET_CIDR": "10.1.0.0/20",
        "WORK_DIR": "oci://others@stand-in/team-a/work",
    }
    checks.settings |= wrong
    _, found = checks.check()
    assert set(failed(found)) == {"project", "log group", "bastion", "SUBNET_CIDR", "bucket"}
    checks.until_fine(found)
    assert checks.settings["PROJECT_OCID"] == checks.right["PROJECT_OCID"]
    assert checks.settings["WORK_DIR"] == "oci://clusters@stand-in/team-a/work"


def test_a_wrong_namespace_and_a_bucket_that_is_nowhere(checks: Rooms) -> None:
    checks.settings["WORK_DIR"] = "oci://clusters@elsewhere/team-a/work"
    _, found = checks.check()
    assert failed(found) == {"namespace": ["WORK_DIR is in the namespace elsewhere, and this tenancy has stand-in"]}
    checks.until_fine(found)


@pytest.mark.parametrize(
    ("control", "why", "fix"),
    [
        ({"expire_tokens": "api-key"}, "OCI does not know you", "in the Console (your profile, API keys)"),
        ({"clock_s": 900}, "s behind OCI's: set it", "sudo timedatectl set-ntp true"),
        ({"clock_s": -900}, "s ahead of OCI's: set it", "sudo timedatectl set-ntp true"),
    ],
)
def test_who_is_not_known_is_told_why(checks: Rooms, control: dict[str, Any], why: str, fix: str) -> None:
    checks.tenancy.service.control(control)
    _, found = checks.check()
    (wrong,) = [one for one in found if one["verdict"] == "fails"]
    assert (wrong["item"], why in wrong["text"]) == ("credentials", True), wrong["text"]
    assert wrong["fix"].startswith(fix)


def test_a_project_of_another_compartment(checks: Rooms) -> None:
    make = 'ocid data-science project create --compartment-id "$network" --display-name theirs'
    checks.settings["PROJECT_OCID"] = checks.make(make)
    _, found = checks.check()
    assert failed(found) == {"policies": ["no policy allows that a Job Run is of a project"]}
    checks.until_fine(found)


def test_a_bucket_in_the_archive_and_a_tag_that_is_required(checks: Rooms) -> None:
    checks.make('oci os bucket create --compartment-id "$tenancy" --name cold --storage-tier Archive')
    checks.settings["WORK_DIR"] = "oci://cold@stand-in/team-a/work"
    checks.tenancy.service.control({"required_tags": ["Operations.CostCenter"]})
    _, found = checks.check()
    assert {"bucket", "required tags"} <= set(failed(found))
    checks.until_fine(found)
    assert checks.settings["WORK_DIR"] == "oci://cold-clusters@stand-in/team-a/work"
    assert checks.settings["DEFINED_TAGS"] == "'Operations.CostCenter=<value>'"


@pytest.mark.parametrize(
    ("told", "fault", "why"),
    [
        ({"get_bucket": {"isReadOnly": True}}, {}, "it is read-only, as another bucket is replicated to it"),
        (
            {"list_retention_rules": {"items": [{"id": "r", "displayName": "seven years"}]}},
            {},
            "objects can be neither changed nor deleted, by its retention rules: seven years",
        ),
        (
            {"get_bucket": {"kmsKeyId": "ocid1.key.oc1.iad.k"}},
            {"operation": "put_object", "kind": "409"},
            "the bucket's key ocid1.key.oc1.iad.k may be disabled",
        ),
    ],
)
def test_a_bucket_that_nobody_can_use(checks: Rooms, told: dict[str, Any], fault: dict[str, str], why: str) -> None:
    """No statement helps; another bucket does."""
    checks.tenancy.service.control({"told": told, "faults": [fault] if fault else []})
    _, found = checks.check()
    (text,) = failed(found)["bucket"]
    assert text.endswith(why)
    (fix,) = [one["fix"] for one in found if one["item"] == "bucket"]
    assert "allow " not in fix
    checks.tenancy.service.control({"told": {}, "faults": []})
    checks.until_fine(found)
    assert checks.settings["WORK_DIR"] == "oci://clusters-clusters@stand-in/team-a/work"


def test_a_bastion_that_lets_nobody_in_and_a_name_server_of_somebodys(checks: Rooms) -> None:
    """The last lines say what is not known of OCI, and of these."""
    bastion = checks.make(
        "ocid bastion bastion create --bastion-type STANDARD --compartment-id \"$network\" --client-cidr-list '[]' "
        f"--target-subnet-id {checks.settings['SUBNET_OCID']}"
    )
    checks.settings["BASTION_ID"] = bastion
    server = {"type": "DomainNameServer", "serverType": "CustomDnsServer", "customDnsServers": ["10.9.9.9"]}
    checks.tenancy.service.control({"told": {"get_dhcp_options": {"options": [server]}}})
    _, found = checks.check()
    assert "lets nobody in" in failed(found)["bastion"][0]
    assert "OCI may not tell the key of host.bastion" in failed(found)["bastion"][1]
    fixes = "\n".join(one["fix"] for one in found if one["item"] == "bastion" and one["verdict"] == "fails")
    checks.tenancy.as_administrator(fixes.replace("<your address>/32", "0.0.0.0/0"))
    _, found = checks.check(BASTION_HOST_KEY="'ssh-ed25519 AAAA'")
    assert failed(found) == {}
    assert [one["item"] for one in found if one["verdict"] == "unknown"] == ["name server"]


def test_a_compartment_that_is_not_there(checks: Rooms) -> None:
    """The project tells which one was meant; nothing is said about rights in what is not there."""
    checks.settings["COMPARTMENT_OCID"] = "ocid1.compartment.oc1..none"
    code, found = checks.check()
    assert code == 1
    assert set(failed(found)) == {"compartment"}
    checks.until_fine(found)
    assert checks.settings["COMPARTMENT_OCID"] == checks.right["COMPARTMENT_OCID"]


def test_a_subnet_that_is_gone(checks: Rooms) -> None:
    checks.settings["SUBNET_OCID"] = "ocid1.subnet.oc1.iad.gone"
    checks.settings["NETWORK_COMPARTMENT_OCID"] = checks.tenancy.network
    _, found = checks.check()
    assert set(failed(found)) == {"subnet"}
    checks.until_fine(found)
    assert checks.settings["SUBNET_OCID"] == checks.right["SUBNET_OCID"]


def test_logs_and_a_bastion_of_somewhere_else(checks: Rooms) -> None:
    """A log that is not in its group; a bastion in front of another network."""
    made = checks.make(
        'other=$(ocid network vcn create --compartment-id "$network" --cidr-block 10.9.0.0/16 --display-name other)',
        'subnet=$(ocid network subnet create --compartment-id "$network" --vcn-id "$other" --cidr-block 10.9.0.0/24)',
        'ocid bastion bastion create --bastion-type STANDARD --compartment-id "$network" --target-subnet-id "$subnet"',
    )
    checks.settings |= {"LOG_OCID": "ocid1.log.oc1.iad.none", "BASTION_ID": made.splitlines()[-1]}
    _, found = checks.check()
    assert set(failed(found)) == {"log group", "bastion"}
    assert "and the subnet is of" in failed(found)["bastion"][0]
    checks.until_fine(found)
    assert checks.settings["LOG_OCID"] == checks.right["LOG_OCID"]


# --- The network ----------------------------------------------------------------------------------------------------


def test_a_subnet_with_nothing_that_nodes_need(checks: Rooms) -> None:
    """No route, rules for another network alone, no address left; and a CIDR that was right for another subnet."""
    ingress, egress = [tcp("source", "10.9.0.0/16")], [tcp("destination", "10.9.0.0/16")]
    made = subnet(checks, "10.0.32.0/28", "[]", ingress=ingress, egress=egress)
    take = f"oci network private-ip create --subnet-id {made} --lifetime RESERVED"
    checks.make(*[take] * 11)
    checks.settings["SUBNET_CIDR"] = "10.0.0.0/20"
    _, found = checks.check()
    texts = failed(found)
    assert set(texts) == {"route", "security rules", "free addresses", "SUBNET_CIDR"}
    assert "one does from 10.9.0.0/16" in texts["security rules"][0]
    (free,) = texts["free addresses"]
    assert "2 of 13 " in free
    checks.until_fine(found)


def test_a_public_subnet(checks: Rooms) -> None:
    """Its way out is for public addresses; a private one is beside it."""
    gateway = checks.make(
        'ocid network internet-gateway create --compartment-id "$network" --vcn-id "$vcn" --is-enabled true'
    )
    subnet(checks, "10.0.48.0/24", route(gateway), private="false")
    _, found = checks.check()
    assert set(failed(found)) == {"subnet", "route"}
    assert "is a public subnet" in failed(found)["subnet"][0]
    (other,) = [one["fix"] for one in found if one["item"] == "subnet"]
    checks.settings["SUBNET_OCID"] = other.partition("=")[2]
    checks.until_fine(checks.check()[1])


def test_gateways_that_block_and_rules_that_do_not_hold(checks: Rooms) -> None:
    """A NAT gateway that blocks; and a rule without state, to whose answers no rule of egress is open."""
    gateway = nat(checks)
    checks.make(f"oci network nat-gateway update --nat-gateway-id {gateway} --block-traffic true")
    ingress = [tcp("source", "10.0.0.0/16", is_stateless=True)]
    low = {"tcpOptions": {"destinationPortRange": {"min": 1, "max": 9000}}}
    egress = [{**tcp("destination", "0.0.0.0/0"), **low}]
    subnet(checks, "10.0.49.0/24", route(gateway), ingress=ingress, egress=egress)
    _, found = checks.check()
    assert set(failed(found)) == {"route", "security rules"}
    assert "blocks all traffic" in failed(found)["route"][0]
    assert "a stateless rule does" in failed(found)["security rules"][0]
    assert "egress" not in failed(found)["security rules"][0]
    checks.until_fine(found)


def test_a_service_gateway_is_a_way_out(checks: Rooms) -> None:
    """With a rule of egress that names the services; but not when it leads to storage alone, or blocks."""
    services = json.loads(checks.make("oci network service list"))["data"]
    (every,) = [one for one in services if one["cidr-block"].startswith("all-")]
    (storage,) = [one for one in services if not one["cidr-block"].startswith("all-")]
    gateway = checks.make(
        'ocid network service-gateway create --compartment-id "$network" --vcn-id "$vcn" '
        f"--services {quoted([{'serviceId': every['id']}])} --display-name services"
    )
    egress = [
        tcp("destination", "10.0.50.0/24"),
        {**tcp("destination", every["cidr-block"]), "destinationType": "SERVICE_CIDR_BLOCK"},
    ]
    leads = route(gateway, every["cidr-block"], "SERVICE_CIDR_BLOCK")
    made = subnet(checks, "10.0.50.0/24", leads, egress=egress)
    code, found = checks.check()
    assert (code, failed(found)) == (0, {})
    checks.make(f"oci network service-gateway update --service-gateway-id {gateway} --block-traffic true --force")
    _, found = checks.check()
    assert set(failed(found)) == {"route"}
    checks.until_fine(found)
    table = checks.make(f"oci network subnet get --subnet-id {made} --query 'data.\"route-table-id\"' --raw-output")
    narrow = route(gateway, storage["cidr-block"], "SERVICE_CIDR_BLOCK")
    checks.make(f"oci network route-table update --rt-id {table} --route-rules '{narrow}' --force")
    _, found = checks.check()
    assert set(failed(found)) == {"route"}
    checks.until_fine(found)


def test_rules_of_a_security_group_alone(checks: Rooms) -> None:
    ingress, egress = [{**tcp("source", "10.0.0.0/16"), "direction": "INGRESS"}], {"direction": "EGRESS"}
    rules = [*ingress, {**tcp("destination", "0.0.0.0/0"), **egress}]
    checks.make(
        'group=$(ocid network nsg create --compartment-id "$network" --vcn-id "$vcn" --display-name nodes)',
        f'oci network nsg rules add --nsg-id "$group" --security-rules {quoted(rules)}',
    )
    subnet(checks, "10.0.51.0/24", route(nat(checks)), ingress=[], egress=[])
    _, found = checks.check()
    assert set(failed(found)) == {"security rules"}
    assert "network security group nodes" in failed(found)["security rules"][0]
    checks.until_fine(found)


def test_a_subnet_of_another_compartment(checks: Rooms) -> None:
    """The statements are about the compartment of the other one."""
    jobs = checks.right["COMPARTMENT_OCID"]
    make = SUBNET.format(block="10.0.52.0/24", name="elsewhere", private="true").replace('"$network"', jobs)
    rules = RULES.format(name="elsewhere", ingress=json.dumps(OPEN["ingress"]), egress=json.dumps(OPEN["egress"]))
    checks.settings["SUBNET_OCID"] = checks.make(ROUTES.format(name="elsewhere", rules=route(nat(checks))), rules, make)
    _, found = checks.check()
    assert failed(found) == {
        "policies": [
            "no policy allows that the service puts nodes into the subnet",
            "no policy allows that people put Jobs into the subnet",
        ]
    }
    checks.until_fine(found)


# --- Who may do what ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_each_statement_that_is_missing_is_named(checks: Rooms, which: int) -> None:
    """Every second one is taken away, of each verb and for each caller, and nothing else is said."""
    checks.tenancy.service.set_statements([one for n, one in enumerate(checks.statements) if n % 2 != which])
    _, found = checks.check()
    named = [one["fix"] for one in found if one["verdict"] in {"fails", "advice"}]
    assert sorted(named) == sorted(one for n, one in enumerate(checks.statements) if n % 2 == which)
    checks.until_fine(found)


def test_groups_that_are_missing_or_of_something_else(checks: Rooms) -> None:
    """The dynamic group has the Job Runs of another compartment; then there is none; and no group of people."""
    groups = FIND.format("dynamic-group", "cluster-runs")
    other = "all {resource.type = 'datasciencejobrun', resource.compartment.id = 'ocid1.compartment.oc1..other'}"
    update = f'oci iam dynamic-group update --dynamic-group-id "$found" --matching-rule "{other}" --force'
    checks.tenancy.as_administrator(groups, update)
    _, found = checks.check()
    assert set(failed(found)) == {"dynamic group"}
    assert "does not match the Job Runs" in failed(found)["dynamic group"][0]
    checks.until_fine(found)
    checks.tenancy.as_administrator(groups, 'oci iam dynamic-group delete --dynamic-group-id "$found" --force')
    _, found = checks.check()
    assert failed(found) == {
        "dynamic group": ["there is no dynamic group cluster-runs, nor another one with these Job Runs"]
    }
    checks.until_fine(found)


def test_what_a_person_may_not_do_is_found_by_trying(checks: Rooms) -> None:
    """Somebody who reads no policies, and has lost the right to write; to list; to see Jobs, subnet and log group."""
    reader = checks.tenancy.reader.environ
    before = checks.statements
    for what, item in (
        ("group data-scientists to manage objects", "bucket"),
        ("group data-scientists to inspect objects", "bucket"),
        ("group data-scientists to manage data-science-family", "compartment"),
        ("group data-scientists to use virtual-network-family", "subnet"),
        ("group data-scientists to read log-groups", "log group"),
    ):
        (missing,) = [one for one in before if what in one]
        checks.tenancy.service.set_statements([one for one in before if one != missing])
        code, found = checks.check(reader, NETWORK_COMPARTMENT_OCID=checks.tenancy.network)
        assert (code, item in failed(found)) == (1, True), (what, found)
        (fix,) = [one["fix"] for one in found if one["item"] == item]
        assert missing in fix
        checks.begin()
        checks.tenancy.service.set_statements(before)
    assert checks.check(reader)[0] == 3


# --- Who asks -------------------------------------------------------------------------------------------------------


def test_credentials_that_are_refused_or_not_there(checks: Rooms) -> None:
    checks.tenancy.service.control({"expire_tokens": "api-key"})
    try:
        code, found = checks.check()
    finally:
        checks.tenancy.service.control({"expire_tokens": ""})
    assert code == 1
    assert set(failed(found)) == {"credentials"}
    assert [one["item"] for one in found][-2:] == ["credentials", "tenancy"]
    code, found = checks.check(OCI_CLI_PROFILE="NOBODY")
    assert (code, set(failed(found))) == (1, {"credentials"})
    (fix,) = [one["fix"] for one in found if one["verdict"] == "fails"]
    assert "oci setup config" in fix
    assert checks.check()[0] == 0


def test_a_service_that_does_not_answer_is_not_known(checks: Rooms) -> None:
    """Neither for good nor for bad; and the rest is looked at."""
    checks.tenancy.service.control({"faults": [{"operation": "virtual_network.get_route_table", "kind": "503"}]})
    try:
        code, found = checks.check()
    finally:
        checks.tenancy.service.control({"faults": []})
    assert code == 3
    assert [one["item"] for one in found if one["verdict"] == "unknown"] == ["route"]


# --- Images, shapes and hosts ---------------------------------------------------------------------------------------


def of(found: list[dict[str, str]], item: str) -> list[tuple[str, str]]:
    return [(one["verdict"], one["text"]) for one in found if one["item"] == item]


def test_nothing_is_found_where_there_is_room(checks: Rooms) -> None:
    """The registry's own words for the image; hosts, as an indication."""
    code, found = checks.check()
    assert (code, failed(found)) == (0, {})
    assert of(found, "image") == [("fine", f"{IMAGE}@sha256:{'0' * 64}")]
    assert of(found, "image platform") == [("fine", "linux/amd64, as iad.ocir.io says")]
    assert of(found, "shape there") == [("fine", f"{E4} is there for Jobs in us-ashburn-1")]
    ((verdict, text),) = of(found, "capacity")
    assert (verdict, "an indication" in text) == ("fine", True)


def test_who_launches_sees_the_image_and_is_told_what_shows_the_rest(checks: Rooms) -> None:
    """Hosts are not shown to those who may only launch; the statements that are printed show them."""
    reader = checks.tenancy.reader.environ
    _, found = checks.check(reader)
    assert [of(found, item)[0][0] for item in ("image", "image platform", "shape there")] == ["fine"] * 3
    (hidden,) = [one for one in found if one["item"] == "capacity"]
    assert hidden["verdict"] == "unknown"
    checks.fix(hidden["fix"])
    _, found = checks.check(reader)
    assert [verdict for verdict, _ in of(found, "capacity")] == ["fine"]


def test_the_commands_that_show_limits_are_those_of_oci_cli(checks: Rooms) -> None:
    """They show what is left of each; which of them the shape counts against, its name tells a person."""
    (limits,) = checks.limits()
    assert limits["verdict"] == "unknown"
    every, one = [line for line in limits["fix"].splitlines() if not line.startswith("#")]
    listed = json.loads(checks.tenancy.as_administrator(every))["data"]
    cores = next(item["name"] for item in listed if item["name"].endswith("e4-core-count"))
    left = json.loads(checks.tenancy.as_administrator(one.replace("<its name>", cores)))["data"]
    assert left["available"] == 1000


# --- The image


def test_a_repository_that_is_missing_is_made_and_pushed_to(checks: Rooms) -> None:
    checks.settings["IMAGE"] = "iad.ocir.io/stand-in/elsewhere/dask:1"
    code, found = checks.check()
    assert code == 1
    text = "there is no repository elsewhere/dask in iad.ocir.io/stand-in"
    assert failed(found)["repository"] == [text]
    checks.until_fine(found)


def test_a_tag_that_is_missing_is_pushed(checks: Rooms) -> None:
    checks.settings["IMAGE"] = IMAGE.replace(":1", ":2")
    _, found = checks.check()
    assert failed(found) == {"image": ["there is no 2 in the repository training/dask of iad.ocir.io"]}
    checks.until_fine(found)


def test_an_image_for_other_machines_is_built_anew(checks: Rooms) -> None:
    """Of a list for several platforms, one is enough."""
    checks.push(IMAGE, platform="linux/arm64")
    _, found = checks.check()
    (text,) = failed(found).pop("image platform")
    assert text.startswith(f"{IMAGE} is for linux/arm64, as iad.ocir.io says, and the machines need linux/amd64")
    checks.until_fine(found)
    checks.push(IMAGE, platform=["linux/arm64", "linux/amd64"])
    assert checks.check()[0] == 0


def test_an_image_that_somebody_else_has_pushed_over_is_named_by_its_digest(checks: Rooms) -> None:
    """What was pushed from here is what a launch wants; its record says which."""
    record = {"image": IMAGE, "id": "sha256:x", "digest": OTHER, "built": "2026-01-02T03:04:05Z"}
    place = checks.tenancy.project.path / ".images"
    place.mkdir(exist_ok=True)
    (place / "dask.json").write_text(json.dumps(record))
    _, found = checks.check()
    (text,) = failed(found).pop("image")
    assert text.startswith(f"{IMAGE} is sha256:{'0' * 64} now, and {OTHER} is wanted")
    checks.until_fine(found)
    assert checks.settings["IMAGE"] == f"{IMAGE}@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("image", "item"),
    [
        (IMAGE.replace("iad.", "phx."), "image name"),
        (IMAGE.replace("stand-in", "standin"), "repository"),
    ],
    ids=["another region", "another tenancy"],
)
def test_an_image_of_somewhere_else_is_named_as_it_must_be(checks: Rooms, image: str, item: str) -> None:
    checks.settings["IMAGE"] = image
    _, found = checks.check()
    assert set(failed(found)) == {item}
    checks.until_fine(found)
    assert checks.settings["IMAGE"] == IMAGE


def test_without_the_registry_lists_and_the_record_tell(checks: Rooms) -> None:
    """It is down, or does not take the token: OCI's lists have the digest; of the platform nothing is known."""
    down = [{"operation": "registry.get_token", "kind": "404"}]
    checks.tenancy.service.control({"faults": down})
    try:
        code, found = checks.check()
    finally:
        checks.tenancy.service.control({"faults": []})
    assert (code, failed(found)) == (3, {})
    assert of(found, "image") == [("fine", f"{IMAGE}@sha256:{'0' * 64}")]
    assert of(found, "image platform")[0][0] == "unknown"


# --- Shapes


def test_a_shape_that_is_not_there_is_replaced_by_one_that_is(checks: Rooms) -> None:
    """A shape may look right: which ones there are, only the region knows."""
    checks.settings["SHAPE"] = "VM.Standard.E9.Flex"
    _, found = checks.check()
    assert failed(found) == {"shape there": ["VM.Standard.E9.Flex is no shape for Jobs in us-ashburn-1"]}
    checks.until_fine(found)
    assert checks.settings["SHAPE"].endswith(".Flex")


@pytest.mark.parametrize(
    "wrong",
    [{"SHAPE": "VM.Standard2.4", "OCPUS": "4"}, {"SHAPE": E4, "OCPUS": "0"}],
    ids=["a size for a shape that has one", "no size for one that has none"],
)
def test_a_size_that_does_not_go_with_the_shape_is_named(checks: Rooms, wrong: dict[str, str]) -> None:
    """Which machines are wanted is then not known, and nothing of them is fine."""
    checks.settings |= wrong
    code, found = checks.check()
    assert code == 1
    (text,) = failed(found)["settings"]
    assert text.startswith("OCPUS")
    assert of(found, "capacity") == []
    del checks.settings["OCPUS"]
    assert checks.check()[0] == 0


# --- Hosts


def test_another_shape_is_named_that_has_hosts(checks: Rooms) -> None:
    checks.tenancy.service.control({"capacity": {E4: 0, "VM.Standard.E5.Flex": 2}})
    _, found = checks.check()
    (text,) = failed(found).pop("capacity")
    assert text.startswith(f"Compute is out of hosts for {E4} in 1 availability domain")
    checks.until_fine(found)
    assert checks.settings["SHAPE"] == "VM.Standard3.Flex"


def test_hosts_for_some_of_the_nodes_are_no_promise(checks: Rooms) -> None:
    checks.tenancy.service.control({"capacity": {E4: 3}})
    code, found = checks.check()
    assert (code, of(found, "capacity")[0][0]) == (3, "unknown")


def test_a_reservation_is_what_counts_where_one_is_set(checks: Rooms) -> None:
    """Whatever Compute has for others."""
    checks.tenancy.service.control({"capacity": {E4: 0}})
    parts = [{"instanceShape": E4, "reservedCount": 3}]
    make = "ocid compute capacity-reservation create --availability-domain test:US-ASHBURN-AD-1"
    reservation = checks.make(f"{make} --compartment-id $network --instance-reservation-configs '{json.dumps(parts)}'")
    checks.settings["CAPACITY_RESERVATION_OCID"] = reservation
    _, found = checks.check()
    (text,) = failed(found).pop("capacity")
    assert text == f"3 of the hosts for {E4} that are reserved in {reservation} are free, and 4 are wanted"
    checks.workers = 2
    assert checks.check()[0] == 0
