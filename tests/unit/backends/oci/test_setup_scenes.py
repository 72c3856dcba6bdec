"""``setup.sh --apply`` where it begins with anything: it ends right, or with one line before anything is made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oci_service import access as rights
from oci_service.access import Need, run_principal
from oci_service.resources import Principal
from unit.backends.oci.scientist import Scientist
from unit.backends.oci.stand_in import ELSEWHERE, StandIn

from oci_cluster.backends.findings import Checked, Verdict
from oci_cluster.backends.oci import check
from oci_cluster.backends.oci.check import image, limits
from oci_cluster.backends.oci.tenancy.requirements import matching_rule
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import ClusterError, NotPermittedError

pytestmark = pytest.mark.slow  # a scene takes a second of CPU

Scene = Callable[[StandIn], Any]
#: Commands of oci-cli on an empty tenancy.
STEPS = 10
READ = "allow group staff to read all-resources in tenancy"


class Killed(Exception):  # noqa: N818 - what is to happen
    """Setup is killed."""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setattr(check, "of_settings", lambda *_: iter(()))
    for part in (image, limits):  # which ask others than this tenancy, and have tests of their own
        monkeypatch.setattr(part, "findings", lambda *_: iter(()))
    made = StandIn(tmp_path, monkeypatch)
    for name, text in made.environ.items():
        monkeypatch.setenv(name, text)
    yield made
    made.service.close()


# --- Scenes


def killed(at: int, *, is_done: bool) -> Scene:
    """Kill setup before, or after, command *at*."""

    def scene(stand_in: StandIn) -> None:
        count = 0

        def kill(_: Any) -> None:
            nonlocal count
            count += 1
            if count == at:
                raise Killed

        setattr(stand_in, "after" if is_done else "before", kill)
        with pytest.raises(Killed):
            stand_in.setup("--apply")
        stand_in.before = stand_in.after = lambda _: None

    return scene


def another(at: int) -> Scene:
    """Have another administrator run setup just before command *at* of this one."""

    def scene(stand_in: StandIn) -> None:
        count = 0

        def run(_: Any) -> None:
            nonlocal count
            count += 1
            if count == at:
                stand_in.before = lambda _: None
                stand_in.setup("--apply")

        stand_in.before = run

    return scene


def lost(operation: str) -> Scene:
    """Have the answer to the first *operation* get lost, which is done."""
    rule = {"operation": operation, "kind": "drop-after", "nth": 1}
    return lambda stand_in: stand_in.service.controls.set({"faults": [rule]})


def given(**settings: str) -> Scene:
    return lambda stand_in: stand_in.settings.update(settings)


def in_root(stand_in: StandIn) -> None:
    stand_in.jobs = stand_in.images = stand_in.root
    stand_in.settings.update(COMPARTMENT_OCID=stand_in.root, IMAGES_COMPARTMENT_OCID=stand_in.root)


def other_names(stand_in: StandIn) -> None:
    """Have groups of other names, one with its rule in another order, a policy of somebody, and a log group."""
    common = {"compartmentId": stand_in.root, "description": "x", "lifecycleState": "ACTIVE"}
    stand_in.identity.groups.add(**common, name="Scientists")
    rule = f"All {{resource.compartment.id='{stand_in.jobs}', resource.type='datasciencejobrun'}}"
    group = stand_in.identity.dynamic_groups.add(**common, name="Runs", matchingRule=rule)
    stand_in.identity._read(stand_in.identity.dynamic_groups, group)
    stand_in.allow(f"allow group scientists to manage data-science-family in compartment id {stand_in.jobs}")
    log_group = stand_in.service.logs.groups.add(
        compartmentId=stand_in.other, displayName="theirs", lifecycleState="ACTIVE"
    )
    names = {"PEOPLE_GROUP": "scientists", "NODES_GROUP": "runs", "POLICY_NAME": "p", "LOG_GROUP_OCID": log_group["id"]}
    stand_in.settings.update(names)


def a_dated_policy(stand_in: StandIn) -> None:
    stand_in.allow(
        "allow any-user to inspect regions in tenancy".replace("regions", "vcns"),
        name="clusters",
        versionDate="2019-05-04",
    )


def things_elsewhere(stand_in: StandIn) -> None:
    """Have the bucket in another compartment, and the repository where a first push makes it."""
    stand_in.service.objects.add_bucket("clusters", stand_in.other, stand_in.identity.user)
    there = {"compartmentId": stand_in.root, "lifecycleState": "AVAILABLE"}
    stand_in.tenancy.repositories.add(**there, displayName="training/dask", isPublic=False, imageCount=0)


def a_list_of_ours(stand_in: StandIn) -> None:
    """Have our security list, empty, and not attached."""
    (vcn,) = stand_in.tenancy.vcns.all()
    about = {"compartmentId": stand_in.network, "vcnId": vcn["id"], "lifecycleState": "AVAILABLE"}
    rules: dict[str, Any] = {"ingressSecurityRules": [], "egressSecurityRules": []}
    stand_in.tenancy.security_lists.add(**about, **rules, displayName="oci-cluster")


def elsewhere(stand_in: StandIn) -> None:
    """Launch in another region than the home region."""
    stand_in.settings["OCI_CLI_REGION"] = ELSEWHERE


def domain(*, has_nodes: bool, rule: str = "", home: str = "root", name: str = "Ours") -> Scene:
    """Have the groups in an identity domain of a compartment, *home*, which settings call *name*."""

    def scene(stand_in: StandIn) -> None:
        domains = stand_in.identity.domains
        domains.add(getattr(stand_in, home), "Ours")
        domains.groups.add(domain="Ours", displayName="scientists")
        if has_nodes:
            text = rule or matching_rule(stand_in.jobs)
            domains.dynamic_groups.add(domain="Ours", displayName="runs", matchingRule=text)
        stand_in.settings.update(PEOPLE_GROUP=f"{name}/scientists", NODES_GROUP=f"{name}/runs")

    return scene


def required_tags(**settings: str) -> Scene:
    """Have tags be required of all that is made."""

    def scene(stand_in: StandIn) -> None:
        stand_in.service.controls.set({"required_tags": ["Operations.CostCenter", "Operations.Team"]})
        stand_in.settings.update(settings)

    return scene


def late(stand_in: StandIn) -> None:
    """Have lists that show what was made two looks later."""
    stand_in.late = 2


def two_blocks(stand_in: StandIn) -> None:
    (subnet,) = stand_in.tenancy.subnets.all()
    stand_in.tenancy.subnets.touch(subnet, ipv4CidrBlocks=["10.0.0.0/20", "10.1.0.0/20"])


def without(*statements: str) -> Scene:
    """Have an administrator who may do no more than these."""

    def scene(stand_in: StandIn) -> None:
        identity = stand_in.identity
        (group,) = identity.groups.all()
        identity.groups.touch(group, name="staff")
        (policy,) = identity.policies.all()
        said = [one.format(**vars(stand_in)) for one in statements]
        identity.policies.touch(policy, statements=said)
        identity._read(identity.policies, policy)

    return scene


def delegated(stand_in: StandIn) -> None:
    """Have an administrator whose rights in a compartment are in a policy of that compartment."""
    stand_in.service.objects.add_bucket("clusters", stand_in.other, stand_in.identity.user)
    inside = "allow group staff to manage all-resources in compartment id"
    identity = ("groups", "dynamic-groups", "policies")
    without(
        READ,
        *(f"allow group staff to manage {of} in tenancy" for of in identity),
        *(f"{inside} {{{of}}}" for of in ("jobs", "images")),
    )(stand_in)
    for place in (stand_in.network, stand_in.other):
        stand_in.allow(f"{inside} {place}", name="staff", compartmentId=place)


SCENES: dict[str, Scene] = {
    "empty": lambda _: None,
    **{f"killed before command {at}": killed(at, is_done=False) for at in (2, 6)},
    **{f"killed after command {at}": killed(at, is_done=True) for at in range(1, STEPS + 1)},
    **{f"another administrator before command {at}": another(at) for at in (1, 5, 7, 9)},
    **{f"the answer of {name} is lost": lost(name) for name in ("create_bucket", "create_security_list")},
    "other names": other_names,
    "a policy of somebody with a date": a_dated_policy,
    "things elsewhere": things_elsewhere,
    "a security list that is not attached": a_list_of_ours,
    "the administrator's policies stand where things are": delegated,
    "in root": in_root,
    "not in the home region": elsewhere,
    "domains": domain(has_nodes=True),
    "a domain of the Jobs' compartment": domain(has_nodes=True, home="jobs"),
    "lists are late": late,
    "tags are required": required_tags(DEFINED_TAGS="operations.costcenter=42 'Operations.Team=vision and speech'"),
    "two blocks": two_blocks,
    "pages of one item": lambda stand_in: stand_in.service.controls.set({"page_size": 1}),
    "the whole bucket, nothing deleted": given(WORK_DIR="oci://clusters@stand-in", KEEP_CLUSTERS_DAYS="0"),
    "without logs": given(LOG_GROUP_NAME="none"),
}


@pytest.mark.parametrize("name", SCENES)
def test_setup_makes_what_is_needed_and_no_more(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, clock: Any, name: str
) -> None:
    region = ELSEWHERE if name == "not in the home region" else "us-ashburn-1"
    monkeypatch.setattr(rights, "STORAGE", Principal("service", f"objectstorage-{region}", ""))
    SCENES[name](stand_in)
    shown = stand_in.setup("--apply")
    stand_in.settings.update(line.split("=") for line in shown if line.startswith("LOG_"))
    before = len(stand_in.changes())
    assert stand_in.setup("--apply") == ["= nothing is missing"]
    assert stand_in.changes()[before:] == []
    assert_rights(stand_in)
    assert_checked(stand_in)
    stand_in.late = 0
    scientist = Scientist(stand_in, people_of(stand_in), a_project(stand_in), monkeypatch, clock)
    for flipped in ([], ["log-maker"]):  # whoever it is that makes logs: there is one
        stand_in.service.controls.set({"flipped": flipped})
        assert scientist.launch(3) == 0
    if name == "a policy of somebody with a date":
        (policy,) = [one for one in stand_in.identity.policies.all() if one["name"] == "clusters"]
        assert (policy["versionDate"], policy["statements"][0]) == (
            "2019-05-04",
            "allow any-user to inspect vcns in tenancy",
        )


def assert_checked(stand_in: StandIn) -> None:
    """Check as the administrator: nothing fails, and nothing is to be done."""
    given = {**stand_in.settings, "PROJECT_OCID": a_project(stand_in)}
    found = check.findings(Checked("dask", 2, PROJECT_ROOT, given, None), print)
    wrong = {Verdict.FAILS, Verdict.ADVICE}
    assert [(one.item, one.text, one.fix) for one in found if one.verdict in wrong] == []


def a_project(stand_in: StandIn) -> str:
    fields = {"compartmentId": stand_in.jobs, "displayName": "p", "lifecycleState": "ACTIVE"}
    return str(stand_in.service.science._projects.add(**fields)["id"])


# Of what a launch does without: old clusters are deleted, people push images, and look at logs later.
NOT_OF_A_LAUNCH = {
    "objectstorage-us-ashburn-1 to manage object-family",
    "data-scientists to inspect objects",
    "data-scientists to read log-content",
    "data-scientists to manage repos",
}


def test_a_scientist_needs_each_statement(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, clock: Any) -> None:
    """But for some that other verbs need, a launch fails without it."""
    shown = stand_in.setup("--apply")
    stand_in.settings.update(line.split("=") for line in shown if line.startswith("LOG_"))
    scientist = Scientist(stand_in, people_of(stand_in), a_project(stand_in), monkeypatch, clock)
    (policy,) = [one for one in stand_in.identity.policies.all() if one["name"] == "clusters"]
    every, works_without = policy["statements"], set()
    for missing in every:
        stand_in.identity.policies.touch(policy, statements=[one for one in every if one != missing])
        stand_in.identity._read(stand_in.identity.policies, policy)
        with contextlib.suppress(ClusterError):
            if scientist.launch(3) == 0:
                works_without.add(missing.partition(" in ")[0].partition(" ")[2].partition(" ")[2])
    assert works_without == NOT_OF_A_LAUNCH


# --- Rights, as the stand-in judges them


def assert_rights(stand_in: StandIn) -> None:
    """People and nodes may do what a launch does, and nothing else: of others, or to what is theirs."""
    settings = stand_in.settings
    people = stand_in.user(people_of(stand_in))
    nodes = run_principal({"id": "ocid1.datasciencejobrun.oc1.iad.r", "compartmentId": stand_in.jobs})
    places, bucket, home = wanted(stand_in)
    below = "team-a/work" if settings["WORK_DIR"].endswith("/team-a/work") else ""
    objects = "OBJECT_INSPECT OBJECT_READ OBJECT_OVERWRITE OBJECT_CREATE OBJECT_DELETE"
    repository = {"target.repo.name": "training/dask"}
    inside = {"target.bucket.name": "clusters", "target.object.name": f"{below or 'any'}/x"}
    for who, what, where, about in (
        (people, "DATA_SCIENCE_JOB_CREATE DATA_SCIENCE_JOB_RUN_CREATE DATA_SCIENCE_PROJECT_READ", stand_in.jobs, {}),
        (people, "SUBNET_READ SUBNET_ATTACH VNIC_ATTACH VNIC_CREATE", stand_in.network, {}),
        (rights.SERVICE, "SUBNET_READ SUBNET_ATTACH VNIC_ATTACH VNIC_CREATE", stand_in.network, {}),
        (people, "REPOSITORY_READ REPOSITORY_UPDATE", places["repository"], repository),
        (nodes, "REPOSITORY_READ", places["repository"], repository),
        (people, objects, bucket, inside),
        (nodes, objects, bucket, inside),
        (people, "OBJECT_INSPECT", bucket, {"target.bucket.name": "clusters"}),
        (nodes, "OBJECT_INSPECT", bucket, {"target.bucket.name": "clusters"}),
        *(
            [(people, "LOG_GROUP_READ LOG_CONTENT_READ", home, {}), (nodes, "LOG_CONTENT_PUSH", home, {})]
            if home
            else []
        ),
    ):
        lacking = [one for one in what.split() if not may(stand_in, who, one, where, about)]
        assert not lacking, (who, where)
    others = {"target.bucket.name": "clusters", "target.object.name": "team-b/x"} if below else {}
    for about in (others, {**inside, "target.bucket.name": "private"}, {"target.repo.name": "training/theirs"}):
        for who in (people, nodes):
            kinds = "REPOSITORY_READ REPOSITORY_UPDATE" if "target.repo.name" in about else objects
            where = places["repository"] if "target.repo.name" in about else bucket
            listed = {"OBJECT_INSPECT"} if about is others else set()
            assert not about or not [k for k in {*kinds.split()} - listed if may(stand_in, who, k, where, about)]
    never = (
        "POLICY_CREATE GROUP_UPDATE DYNAMIC_GROUP_UPDATE BUCKET_DELETE BUCKET_CREATE LOG_GROUP_CREATE LOG_GROUP_DELETE"
    )
    for where in {stand_in.root, stand_in.jobs, stand_in.network, stand_in.images, stand_in.other}:
        for who in (people, nodes):
            assert not [one for one in never.split() if may(stand_in, who, one, where, {})]
        assert not may(stand_in, nodes, "DATA_SCIENCE_JOB_RUN_CREATE", where, {})


def people_of(stand_in: StandIn) -> str:
    """Return the OCID of the group of those who launch."""
    group = stand_in.settings.get("PEOPLE_GROUP", "data-scientists").rpartition("/")[2].lower()
    every = [*stand_in.identity.groups.all(), *stand_in.identity.domains.groups.all()]
    (own,) = [one["id"] for one in every if (one.get("name") or one["displayName"]).lower() == group]
    return str(own)


def wanted(stand_in: StandIn) -> tuple[dict[str, str], str, str]:
    """Return the compartments of the repository, of the bucket, and of the log group."""
    (repository,) = stand_in.tenancy.repositories.all()
    bucket = stand_in.service.objects.buckets["clusters"].fields["compartmentId"]
    groups = stand_in.service.logs.groups.all()
    return {"repository": repository["compartmentId"]}, str(bucket), str(groups[0]["compartmentId"]) if groups else ""


def may(stand_in: StandIn, who: Principal, permission: str, where: str, about: dict[str, str]) -> bool:
    access = stand_in.service.access
    assert access is not None
    return access._has(who, "x.y", Need((permission,), where, about))


# --- What ends with one line before anything is made


def five_lists(stand_in: StandIn) -> None:
    (vcn,), (subnet,) = stand_in.tenancy.vcns.all(), stand_in.tenancy.subnets.all()
    about = {"compartmentId": stand_in.network, "vcnId": vcn["id"], "lifecycleState": "AVAILABLE"}
    rules: dict[str, Any] = {"ingressSecurityRules": [], "egressSecurityRules": []}
    lists = stand_in.tenancy.security_lists
    more = [lists.add(**about, **rules, displayName=f"n{number}")["id"] for number in range(4)]
    stand_in.tenancy.subnets.touch(subnet, securityListIds=[*subnet["securityListIds"], *more])


def wrong_rule(stand_in: StandIn) -> None:
    common = {"compartmentId": stand_in.root, "description": "x", "lifecycleState": "ACTIVE"}
    rule = "all {resource.type = 'datasciencenotebooksession'}"
    group = stand_in.identity.dynamic_groups.add(**common, name="Cluster-Runs", matchingRule=rule)
    stand_in.identity._read(stand_in.identity.dynamic_groups, group)


def named_elsewhere(stand_in: StandIn) -> None:
    """Have policies name groups of an identity domain, which no setting does."""
    domains = stand_in.identity.domains
    domains.add(stand_in.root, "Ours")
    domains.groups.add(domain="Ours", displayName="data-scientists")
    domains.dynamic_groups.add(domain="Ours", displayName="cluster-runs", matchingRule=matching_rule(stand_in.jobs))
    named = {"group": "data-scientists", "dynamic-group": "cluster-runs"}
    stand_in.allow(*(f"allow {kind} 'Ours'/'{name}' to read buckets in tenancy" for kind, name in named.items()))


REFUSED: dict[str, tuple[Scene, str]] = {
    "nobody in particular": (
        without("allow group staff to inspect compartments in tenancy"),
        "what setup.sh --print prints",
    ),
    "an auditor": (without(READ), "no policy allows your groups, staff, to manage groups in tenancy or to "),
    "an administrator of identity alone": (
        without(
            READ, *(f"allow group staff to manage {of} in tenancy" for of in ("groups", "dynamic-groups", "policies"))
        ),
        "to manage repos in compartment id ",
    ),
    "an administrator of compartments alone": (
        without(
            READ,
            *(
                f"allow group staff to manage all-resources in compartment id {{{of}}}"
                for of in ("jobs", "network", "images")
            ),
        ),
        "to manage groups in tenancy or to manage dynamic-groups in tenancy or to manage policies in tenancy; nothing",
    ),
    "five security lists": (five_lists, "5 security lists"),
    "a dynamic group of others": (wrong_rule, "has another matching rule"),
    "a domain without the dynamic group": (
        domain(has_nodes=False),
        "runs is not in that identity domain: make it there",
    ),
    "a domain whose group has other runs": (
        domain(has_nodes=True, rule="all {resource.type = 'x'}"),
        "another matching rule",
    ),
    "a domain of another name": (
        domain(has_nodes=True, name="Our"),
        "there is no identity domain Our in the tenancy or around COMPARTMENT_OCID; there is Ours",
    ),
    "a tag is required besides those that are given": (
        required_tags(DEFINED_TAGS="Operations.CostCenter=42"),
        "set DEFINED_TAGS='Operations.CostCenter=42 Operations.Team=<value>'",
    ),
    "policies name the dynamic group of a domain": (
        named_elsewhere,
        "dynamic group cluster-runs: there is none in the domain Default, and policies name ours/cluster-runs: set",
    ),
    "policies name the group of a domain": (
        named_elsewhere,
        "group data-scientists: there is none in the domain Default, and policies name ours/data-scientists: set",
    ),
    "another namespace": (given(WORK_DIR="oci://clusters@theirs/team-a/work"), "in the namespace theirs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_all_be_made_is_told_before_anything_is(stand_in: StandIn, name: str) -> None:
    scene, told = REFUSED[name]
    scene(stand_in)
    with pytest.raises(ClusterError) as error:
        stand_in.setup("--apply")
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert stand_in.changes() == []
    is_denied = "administrator" in name or name in {"an auditor", "nobody in particular"}
    assert isinstance(error.value, NotPermittedError) is is_denied
