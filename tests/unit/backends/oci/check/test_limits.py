"""What is found of shapes and hosts, by what OCI answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from unit.backends.oci.answers import JOBS, ROOT, Answers, item, unseen
from unit.fake_oci import Checkout, with_environment

from oci_cluster.backends.findings import Checked, Finding, Verdict
from oci_cluster.backends.oci.check.limits import Machines, counted, findings
from oci_cluster.backends.oci.tenancy.client import Tenancy
from oci_cluster.backends.oci.tenancy.requirements import needed_of

CONSOLE = "Console > Governance & Administration > Limits, Quotas and Usage > service Data Science"
NOWHERE = "# another SHAPE, or another region, or later; or reserve hosts, and set CAPACITY_RESERVATION_OCID"
NEEDED = needed_of(
    {"COMPARTMENT_OCID": JOBS, "WORK_DIR": "oci://b@ns/w", "IMAGE": "iad.ocir.io/ns/x:1"}, ["plain"], "r"
)
E4, A10 = "VM.Standard.E4.Flex", "VM.GPU.A10.2"
SHAPES = [
    item(name="VM.Standard2.4", core_count=4, memory_in_gbs=60),
    item(name=E4, core_count=64, memory_in_gbs=1024),
    item(name=A10, core_count=30, memory_in_gbs=480),
]


def hosts(status: str = "AVAILABLE", count: int | None = 50) -> Any:
    one = item(instance_shape=E4, availability_status=status, available_count=count)
    return item(shape_availabilities=[one])


def fast(shape: str, cores: int, memory_gbs: int, egress: str = "SUPPORTED") -> Any:
    return item(shape_name=shape, core_count=cores, memory_in_gbs=memory_gbs, managed_egress_support=egress)


def answers(**more: Any) -> Answers:
    """Return a tenancy in which there is room."""
    usual = {
        "list_job_shapes": SHAPES,
        "list_fast_launch_job_configs": [fast("VM.Standard2.4", 4, 60)],
        "list_availability_domains": [item(name="AD-1")],
        "create_compute_capacity_report": hosts(),
        "get_compartment": item(name="ds-clusters", compartment_id=ROOT),
    }
    return Answers(**{**usual, **more})


@pytest.fixture
def look(checkout: Checkout) -> Any:
    """Return what looks at a launch of so many workers with these settings."""

    def found(service: Answers, workers: int = 3, variables: Mapping[str, str] | None = None, **more: str) -> Any:
        plan = with_environment(checkout.plan(workers, **more), **(variables or {}))
        checked = Checked("plain", workers, checkout.root, more, plan)
        return list(findings(checked, Tenancy(service, {"COMPARTMENT_OCID": JOBS, **more}), NEEDED))

    return found


def of(item_name: str, found: list[Finding]) -> Finding:
    (one,) = [finding for finding in found if finding.item == item_name]
    return one


def test_a_launch_for_which_there_is_room_is_fine(look: Any) -> None:
    service = answers()
    found = look(service)
    assert [(finding.item, finding.verdict) for finding in found] == [
        ("shape there", Verdict.FINE),
        ("fast launch", Verdict.FINE),
        ("service limit", Verdict.ADVICE),
        ("capacity", Verdict.FINE),
    ]
    (report,) = [args[0] for name, args, _ in service.calls if name == "create_compute_capacity_report"]
    (wanted,) = report.shape_availabilities
    assert (report.compartment_id, report.availability_domain, wanted.instance_shape) == (ROOT, "AD-1", E4)
    assert (wanted.instance_shape_config.ocpus, wanted.instance_shape_config.memory_in_gbs) == (4, 64)


def test_which_machines_start_fast_is_told(look: Any) -> None:
    every = "fast-launch configurations: VM.Standard2.4 (4 OCPUs, 60 GB)"
    said = of("fast launch", look(answers(), SHAPE="VM.Standard2.4")).text
    assert said == f"VM.Standard2.4 with 4 OCPUs and 60 GB starts fast; {every}"
    assert of("fast launch", look(answers())).text == f"{E4} with 4 OCPUs and 64 GB has to be made ready; {every}"
    assert of("fast launch", look(answers(list_fast_launch_job_configs=[]))).text.endswith("configurations: none")
    assert of("fast launch", look(answers(list_fast_launch_job_configs=unseen()))).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("egress", "subnet", "is_fast"),
    [("REQUIRED", "ocid1.subnet.oc1..s", False), ("UNSUPPORTED", "ocid1.subnet.oc1..s", True), ("SUPPORTED", "", True)],
)
def test_a_network_that_fast_machines_do_not_have_makes_none_of_them(
    look: Any, egress: str, subnet: str, *, is_fast: bool
) -> None:
    there = answers(list_fast_launch_job_configs=[fast("VM.Standard2.4", 4, 60, egress)])
    said = of("fast launch", look(there, SHAPE="VM.Standard2.4", SUBNET_OCID=subnet)).text
    assert ("starts fast" in said) is is_fast


def test_a_shape_whose_size_nobody_tells_is_known_by_its_name(look: Any) -> None:
    said = of("fast launch", look(answers(list_job_shapes=unseen()), SHAPE="VM.Standard2.4")).text
    assert said.startswith("VM.Standard2.4 starts fast; ")


def test_a_launch_whose_settings_are_wrong_is_not_looked_at(look: Any, checkout: Checkout) -> None:
    service = answers()
    (one,) = look(service, SHAPE="VM.Standard2.4", OCPUS="3")
    assert (one.verdict, one.item) == (Verdict.UNKNOWN, "service limit")
    assert "OCPUS: VM.Standard2.4 has a size of its own" in one.text
    (one,) = findings(Checked("plain", 1, checkout.root, {}, None), Tenancy(service, {}), NEEDED)
    assert (one.verdict, service.calls) == (Verdict.UNKNOWN, [])


def test_a_shape_that_is_not_there_is_named_with_one_that_is(look: Any) -> None:
    """It has no limit and no hosts to be asked for; that of a role has a setting of its own."""
    service = answers()
    (one,) = look(service, SHAPE="VM.Standard.E9.Flex")
    assert (one.verdict, one.item, one.fix) == (Verdict.FAILS, "shape there", f"SHAPE={E4}")
    found = look(service, SHAPE=E4, MAIN_SHAPE="VM.Standard2.5")
    assert [(finding.verdict, finding.fix) for finding in found[:2]] == [
        (Verdict.FAILS, "MAIN_SHAPE=VM.Standard2.4"),
        (Verdict.FINE, ""),
    ]
    assert "3 nodes of VM.Standard.E4.Flex" in found[3].text
    (one,) = look(answers(list_job_shapes=[]), SHAPE=E4)
    assert one.fix == "SHAPE=<a shape for Jobs>"


def test_shapes_that_are_not_shown_are_not_known_to_be_there(look: Any) -> None:
    """Hosts are looked at all the same."""
    found = look(answers(list_job_shapes=unseen()), SHAPE="VM.Standard2.4")
    assert found[0].verdict is Verdict.UNKNOWN
    assert [one.item for one in found] == ["shape there", "fast launch", "service limit", "capacity"]


# --- Limits


def test_limits_are_for_a_person_to_look_up(look: Any) -> None:
    """No answer of OCI says which of them a shape counts against, so none is guessed, and nobody is asked."""
    service = answers()
    one = of("service limit", look(service, MAIN_SHAPE=A10, WORKER_SHAPE=E4))
    assert one.verdict is Verdict.ADVICE
    assert one.text.startswith("OCI does not tell which limit of Data Science, or quota, 1 node of VM.GPU.A10.2 and 3 ")
    assert CONSOLE in one.text
    about = "--service-name data-science"
    assert [line for line in one.fix.splitlines() if line[0] != "#"] == [
        f"oci limits value list {about} --compartment-id {ROOT} --all",
        f"oci limits resource-availability get {about} --compartment-id {JOBS} --limit-name <its name>",
    ]
    asked = {
        "list_job_shapes",
        "list_fast_launch_job_configs",
        "list_availability_domains",
        "create_compute_capacity_report",
    }
    assert set(service.names()) == asked


def test_a_cluster_that_adapts_is_looked_at_at_its_largest(look: Any) -> None:
    found = look(answers(), workers=1, variables={"ADAPT": "1:24"})
    assert "25 nodes of VM.Standard.E4.Flex would" in of("service limit", found).text


# --- Hosts


@pytest.mark.parametrize(
    ("reports", "verdict", "words"),
    [
        (
            [hosts(count=4)],
            Verdict.FINE,
            "hosts for 4 nodes of VM.Standard.E4.Flex in 1 availability domain, and 4 are",
        ),
        ([hosts(count=None)], Verdict.FINE, "does not say how many"),
        ([hosts(count=3), hosts(count=2)], Verdict.FINE, "hosts for 5 nodes of VM.Standard.E4.Flex in 2 availability"),
        ([hosts(count=3), hosts("OUT_OF_HOST_CAPACITY", None)], Verdict.UNKNOWN, "hosts for 3 nodes"),
        ([hosts("OUT_OF_HOST_CAPACITY", None)] * 2, Verdict.FAILS, "is out of hosts"),
        ([hosts("OUT_OF_HOST_CAPACITY"), hosts("HARDWARE_NOT_SUPPORTED")], Verdict.FAILS, "is out of hosts"),
        ([hosts("HARDWARE_NOT_SUPPORTED", None)], Verdict.FAILS, "has no such hardware"),
        ([hosts("UNKNOWN_ENUM_VALUE", None)], Verdict.UNKNOWN, "does not tell"),
        ([item(shape_availabilities=None)], Verdict.UNKNOWN, "does not tell"),
        ([hosts(), unseen()], Verdict.UNKNOWN, "Not there (404"),
    ],
)
def test_what_compute_tells_of_its_hosts(look: Any, reports: list[Any], verdict: Verdict, words: str) -> None:
    domains = [item(name=f"AD-{number}") for number in range(len(reports))]

    def report(details: Any) -> Any:
        return reports[int(details.availability_domain[-1])]

    found = look(answers(list_availability_domains=domains, create_compute_capacity_report=report))
    one = of("capacity", found)
    assert (one.verdict, words in one.text) == (verdict, True), one.text
    assert (one.fix == NOWHERE) == (verdict is Verdict.FAILS)


def test_another_shape_that_has_hosts_is_named(look: Any) -> None:
    """The one whose name is most alike, of the same kind: flexible, without GPUs, and of the same processors."""
    names = ["VM.Standard.A1.Flex", "VM.GPU.A10.1", "VM.Standard2.4", "VM.Standard3.Flex", "VM.Standard.E5.Flex", E4]
    shapes = [item(name=name, core_count=64, memory_in_gbs=1024) for name in names]

    def report(details: Any) -> Any:
        counts = {E4: 0, "VM.Standard.E5.Flex": 3, "VM.Standard3.Flex": 50}
        told = [(one.instance_shape, counts[one.instance_shape]) for one in details.shape_availabilities]
        status = {True: "AVAILABLE", False: "OUT_OF_HOST_CAPACITY"}
        parts = [item(instance_shape=n, availability_status=status[c > 0], available_count=c) for n, c in told]
        return item(shape_availabilities=parts)

    service = answers(list_job_shapes=shapes, create_compute_capacity_report=report)
    one = of("capacity", look(service))
    first, second = one.fix.splitlines()
    assert (first, second.startswith("# or another region, or later")) == ("SHAPE=VM.Standard3.Flex", True)
    found = look(service, MAIN_SHAPE=E4, WORKER_SHAPE=E4, SHAPE="VM.Standard2.4")
    assert of("capacity", found).fix.splitlines()[:2] == [
        "MAIN_SHAPE=VM.Standard3.Flex",
        "WORKER_SHAPE=VM.Standard3.Flex",
    ]


def test_domains_that_are_not_shown_tell_nothing(look: Any) -> None:
    found = look(answers(list_availability_domains=unseen()))
    assert of("capacity", found).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("configs", "verdict"),
    [
        ([(E4, 6, 2)], Verdict.FINE),
        ([(E4, 2, 0), (E4, 2, None)], Verdict.FINE),
        ([(E4, 5, 2)], Verdict.FAILS),
        ([(A10, 50, 0)], Verdict.FAILS),
        (None, Verdict.FAILS),
    ],
)
def test_reserved_hosts_are_counted_instead(look: Any, configs: Any, verdict: Verdict) -> None:
    parts = configs and [item(instance_shape=s, reserved_count=r, used_count=u) for s, r, u in configs]
    service = answers(get_compute_capacity_reservation=item(instance_reservation_configs=parts))
    found = look(service, CAPACITY_RESERVATION_OCID="ocid1.capacityreservation.oc1.iad.r")
    assert "would count against, as those of a reservation do, too; see " in of("service limit", found).text
    one = of("capacity", found)
    assert (one.verdict, bool(one.fix)) == (verdict, verdict is Verdict.FAILS)
    assert "create_compute_capacity_report" not in service.names()


def test_a_reservation_that_is_not_shown_tells_nothing(look: Any) -> None:
    service = answers(get_compute_capacity_reservation=unseen())
    one = of("capacity", look(service, CAPACITY_RESERVATION_OCID="ocid1.capacityreservation.oc1.iad.r"))
    assert (
        one.verdict,
        "allow group data-scientists to read compute-capacity-reservations in tenancy" in one.fix,
    ) == (Verdict.UNKNOWN, True)


def test_roles_with_the_same_machine_are_counted_together() -> None:
    one, other = {"shape": E4, "ocpus": 4, "memory_gbs": 64}, {"shape": E4, "ocpus": 8, "memory_gbs": 64.5}
    machines = {"MAIN": one, "WORKER": one, "PS": other}
    assert counted({"MAIN": 1, "WORKER": 3, "PS": 0}, machines) == [Machines(E4, 4, 4, 64)]
    assert counted({"MAIN": 1, "WORKER": 3, "PS": 2}, machines) == [
        Machines(E4, 4, 4, 64),
        Machines(E4, 2, 8, 64.5),
    ]
