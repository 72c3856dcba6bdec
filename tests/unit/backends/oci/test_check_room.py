"""What is found of shapes, limits, quotas and hosts, by what OCI answers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from unit.backends.oci.answers import JOBS, ROOT, Answers, item, unseen
from unit.fake_oci import Checkout, with_environment

from oci_cluster.backends.findings import Checked, Finding, Verdict
from oci_cluster.backends.oci.check_room import findings
from oci_cluster.backends.oci.needed_settings import needed_of
from oci_cluster.backends.oci.tenancy import Tenancy
from oci_cluster.errors import BackendError

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


def row(name: str, value: int, domain: str | None = None) -> Any:
    return item(name=name, value=value, availability_domain=domain)


def left(available: float | None, used: float | None = 0, quota: float | None = None) -> Any:
    return item(available=available, used=used, effective_quota_value=quota)


def hosts(status: str = "AVAILABLE", count: int | None = 50) -> Any:
    one = item(instance_shape=E4, availability_status=status, available_count=count)
    return item(shape_availabilities=[one])


def answers(**more: Any) -> Answers:
    """Return a tenancy in which there is room."""
    usual = {
        "list_job_shapes": SHAPES,
        "list_limit_values": [row("ds-standard-e4-core-count", 100), row("notebook-session-count", 5)],
        "get_resource_availability": left(90, 10),
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
    assert {finding.verdict for finding in found} == {Verdict.FINE}
    assert [(finding.item, finding.mend) for finding in found] == [
        ("shape there", ""),
        ("service limit", ""),
        ("capacity", ""),
    ]
    limit = "4 nodes of VM.Standard.E4.Flex take 16 OCPUs, and ds-standard-e4-core-count leaves 90 of 100"
    assert found[1].text == limit
    (asked,) = [args for name, args, _ in service.calls if name == "get_resource_availability"]
    assert asked == ("data-science", "ds-standard-e4-core-count", JOBS)
    (report,) = [args[0] for name, args, _ in service.calls if name == "create_compute_capacity_report"]
    (wanted,) = report.shape_availabilities
    assert (report.compartment_id, report.availability_domain, wanted.instance_shape) == (ROOT, "AD-1", E4)
    assert (wanted.instance_shape_config.ocpus, wanted.instance_shape_config.memory_in_gbs) == (4, 64)


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
    assert (one.verdict, one.item, one.mend) == (Verdict.FAILS, "shape there", f"SHAPE={E4}")
    found = look(service, SHAPE=E4, MAIN_SHAPE="VM.Standard2.5")
    assert [(finding.verdict, finding.mend) for finding in found[:2]] == [
        (Verdict.FAILS, "MAIN_SHAPE=VM.Standard2.4"),
        (Verdict.FINE, ""),
    ]
    assert "3 nodes of VM.Standard.E4.Flex" in found[2].text
    (one,) = look(answers(list_job_shapes=[]), SHAPE=E4)
    assert one.mend == "SHAPE=<a shape for Jobs>"


def test_shapes_that_are_not_shown_are_not_known_to_be_there(look: Any) -> None:
    """Limits and hosts are looked at all the same, as far as the shape's name tells what a node takes."""
    found = look(answers(list_job_shapes=unseen()), SHAPE="VM.Standard2.4")
    assert found[0].verdict is Verdict.UNKNOWN
    limits = [row("ds-standard2-core-count", 100)]
    found = look(answers(list_job_shapes=unseen(), list_limit_values=limits), SHAPE="VM.Standard2.4")
    assert (found[1].verdict, "how many a node has is not known" in found[1].text) == (Verdict.UNKNOWN, True)


# --- Limits


@pytest.mark.parametrize(
    ("limits", "told", "verdict", "words"),
    [
        # One number is enough, or too little.
        ([row("ds-gpu-a10-count", 8)], left(8), Verdict.FINE, "leaves 8 of 8"),
        ([row("ds-gpu-a10-count", 8)], left(7, 1), Verdict.FAILS, "take 8 GPUs, and ds-gpu-a10-count leaves 7 of 8"),
        ([row("ds-gpu-a10-count", 0)], unseen(), Verdict.FAILS, "leaves 0 of 0"),
        # What is in use is not told: a limit that is too small fails all the same, another is not known.
        ([row("ds-gpu-a10-count", 7)], unseen(), Verdict.FAILS, "leaves 7 of 7"),
        ([row("ds-gpu-a10-count", 8)], unseen(), Verdict.UNKNOWN, "of 8 that ds-gpu-a10-count allows: cannot look"),
        ([row("ds-gpu-a10-count", 8)], left(None), Verdict.UNKNOWN, "OCI does not tell what is left"),
        # Availability domains: one has all, all have it together, or too little.
        (
            [row("ds-gpu-a10-count", 8, "AD-1"), row("ds-gpu-a10-count", 0, "AD-2")],
            left(8),
            Verdict.FINE,
            "leaves 8 of 8 in 2 availability domains",
        ),
        (
            [row("ds-gpu-a10-count", 6, "AD-1"), row("ds-gpu-a10-count", 6, "AD-2")],
            left(5, 1),
            Verdict.UNKNOWN,
            "leaves 10 in 2 availability domains, 5 in one of them at most",
        ),
        (
            [row("ds-gpu-a10-count", 6, "AD-1"), row("ds-gpu-a10-count", 6, "AD-2")],
            left(3, 3),
            Verdict.FAILS,
            "leaves 6 of 12 in 2 availability domains",
        ),
        ([row("ds-gpu-a10-count", 8, "AD-1")], left(2, 6), Verdict.FAILS, "leaves 2 of 8 in AD-1"),
        # No limit is about this shape: nothing is known, which is never fine.
        ([row("ds-gpu-a100-count", 80)], left(80), Verdict.UNKNOWN, "none of the 1 limits of Data Science names"),
        ([], left(80), Verdict.UNKNOWN, "by its family 'gpu-a10'"),
        (unseen(), left(80), Verdict.UNKNOWN, "Not there (404"),
    ],
)
def test_a_limit_is_fine_where_it_is_known_to_leave_enough(
    look: Any, limits: Any, told: Any, verdict: Verdict, words: str
) -> None:
    service = answers(list_limit_values=limits, get_resource_availability=told)
    one = of("service limit", look(service, SHAPE=A10))
    assert (one.verdict, words in one.text) == (verdict, True), one.text
    assert bool(one.mend) == (verdict is Verdict.FAILS or "404" in one.text)


def test_availability_is_asked_of_each_domain(look: Any) -> None:
    def told(*_: Any, availability_domain: str) -> Any:
        return left({"AD-1": 0, "AD-2": 9}[availability_domain])

    limits = [row("ds-gpu-a10-count", 9, domain) for domain in ("AD-1", "AD-2")]
    one = of("service limit", look(answers(list_limit_values=limits, get_resource_availability=told), SHAPE=A10))
    assert one.verdict is Verdict.FINE


def test_one_domain_that_tells_nothing_does_not_hide_one_that_has_enough(look: Any) -> None:
    def told(*_: Any, availability_domain: str) -> Any:
        return left(9) if availability_domain == "AD-2" else BackendError("silent")

    limits = [row("ds-gpu-a10-count", 9, domain) for domain in ("AD-1", "AD-2")]
    one = of("service limit", look(answers(list_limit_values=limits, get_resource_availability=told), SHAPE=A10))
    assert one.verdict is Verdict.FINE


def test_memory_is_not_all_that_a_node_takes(look: Any) -> None:
    """A limit of memory alone does not say that there are OCPUs."""
    limits = [row("ds-standard-e4-memory-count", 1000)]
    found = look(answers(list_limit_values=limits, get_resource_availability=left(1000)))
    verdicts = [finding.verdict for finding in found if finding.item == "service limit"]
    assert verdicts == [Verdict.UNKNOWN, Verdict.FINE]


def test_what_mends_a_limit_is_a_number_or_fewer_workers(look: Any) -> None:
    """The number has what is in use in it; what is left is enough for main and one worker."""
    limits = [row("ds-gpu-a10-count", 10)]
    one = of("service limit", look(answers(list_limit_values=limits, get_resource_availability=left(5, 5)), SHAPE=A10))
    assert one.mend.splitlines() == [
        f"# {CONSOLE} > ds-gpu-a10-count > Request a service limit increase, to at least 13",
        "# or fewer workers, or another SHAPE:",
        "./scripts/launch.sh plain 1",
    ]
    for machines, advice in [(3, "./scripts/launch.sh plain 0"), (1, "# or set another SHAPE")]:
        service = answers(list_limit_values=limits, get_resource_availability=left(machines, 10 - machines))
        assert of("service limit", look(service, SHAPE=A10)).mend.splitlines()[-1] == advice


def test_fewer_workers_are_no_advice_where_main_has_another_machine(look: Any) -> None:
    limits = [row("ds-standard-e4-core-count", 10)]
    service = answers(list_limit_values=limits, get_resource_availability=left(10))
    found = look(service, SHAPE=E4, MAIN_OCPUS="2", WORKER_OCPUS="8")
    one = of("service limit", found)
    assert one.text.startswith("1 node of VM.Standard.E4.Flex and 3 nodes of VM.Standard.E4.Flex take 26 OCPUs")
    assert "fewer workers" not in one.mend


def test_a_cluster_that_adapts_is_looked_at_at_its_largest(look: Any) -> None:
    one = of("service limit", look(answers(), workers=1, variables={"ADAPT": "1:24"}))
    assert (one.verdict, one.text.startswith("25 nodes of VM.Standard.E4.Flex take 100")) == (Verdict.FAILS, True)
    assert "fewer workers" not in one.mend


# --- Quotas


def with_quotas(*quotas: Any, **more: Any) -> Answers:
    """Return a tenancy whose quotas leave 10 of the 16 OCPUs that are wanted; *quotas* are told, or how that fails."""
    by_id = {f"q{number}": one for number, one in enumerate(quotas)}

    def read(ocid: str) -> Any:
        return by_id[ocid] if isinstance(by_id[ocid], Exception) else item(id=ocid, statements=by_id[ocid])

    told = {"list_quotas": [item(id=ocid) for ocid in by_id], "get_quota": read}
    return answers(get_resource_availability=left(10, 2, 12.0), **{**told, **more})


def test_a_quota_that_leaves_too_little_is_changed_by_a_command(look: Any) -> None:
    """Its other statements stay, and the new one comes behind them; other quotas are not touched."""
    own = ["set data-science quota ds-standard-e4-core-count to 12 in compartment ds-clusters", "zero vcn quotas in x"]
    one = of("quota", look(with_quotas(["zero vcn quotas in tenancy"], own, unseen())))
    assert one.verdict is Verdict.FAILS
    assert one.text.endswith("quotas on ds-standard-e4-core-count leave 10 in compartment ds-clusters")
    command, *others = one.mend.splitlines()
    words = shlex.split(command)
    assert words[:6] == ["oci", "limits", "quota", "update", "--quota-id", "q1"]
    new = "set data-science quota ds-standard-e4-core-count to 18 in compartment ds-clusters"
    assert (json.loads(words[7]), words[8:]) == ([*own, new], ["--force"])
    assert others == ["# or fewer workers, or another SHAPE:", "./scripts/launch.sh plain 1"]


@pytest.mark.parametrize("more", [{"list_quotas": unseen()}, {"list_quotas": []}])
def test_a_quota_that_is_not_shown_is_named_by_its_statement(look: Any, more: dict[str, Any]) -> None:
    one = of("quota", look(with_quotas(**more)))
    statement = "# set data-science quota ds-standard-e4-core-count to 18 in compartment ds-clusters"
    assert one.mend.splitlines()[1] == statement


def test_a_quota_that_leaves_enough_is_told_beside_the_limit(look: Any) -> None:
    found = look(answers(get_resource_availability=left(30, 2, 32.0)))
    assert [(one.item, one.verdict) for one in found[1:3]] == [
        ("service limit", Verdict.FINE),
        ("quota", Verdict.FINE),
    ]


def test_a_quota_does_not_hide_a_limit_that_is_too_small(look: Any) -> None:
    limits = [row("ds-standard-e4-core-count", 8)]
    found = look(answers(list_limit_values=limits, get_resource_availability=left(4, 0, 4.0)))
    assert of("service limit", found).verdict is Verdict.FAILS


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
    assert (one.mend == NOWHERE) == (verdict is Verdict.FAILS)


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
    first, second = one.mend.splitlines()
    assert (first, second.startswith("# or another region, or later")) == ("SHAPE=VM.Standard3.Flex", True)
    found = look(service, MAIN_SHAPE=E4, WORKER_SHAPE=E4, SHAPE="VM.Standard2.4")
    assert of("capacity", found).mend.splitlines()[:2] == [
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
    one = of("capacity", look(service, CAPACITY_RESERVATION_OCID="ocid1.capacityreservation.oc1.iad.r"))
    assert (one.verdict, bool(one.mend)) == (verdict, verdict is Verdict.FAILS)
    assert "create_compute_capacity_report" not in service.names()


def test_a_reservation_that_is_not_shown_tells_nothing(look: Any) -> None:
    service = answers(get_compute_capacity_reservation=unseen())
    one = of("capacity", look(service, CAPACITY_RESERVATION_OCID="ocid1.capacityreservation.oc1.iad.r"))
    assert (
        one.verdict,
        "allow group data-scientists to read compute-capacity-reservations in tenancy" in one.mend,
    ) == (Verdict.UNKNOWN, True)
