"""The ladder of `make smoke-oci`: its guesses are those of the stand-in's page, and its bounds are what it starts."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from oci_service import identity
from oci_service.faults import FLIPS
from smoke_oci import bastions
from smoke_oci import policies as smoke_policies
from smoke_oci.guesses import GUESSES, RUNGS, Findings
from smoke_oci.page import page
from smoke_oci.prices import NODES, bound, price_of
from smoke_oci.reads_and_jobs import SHAPES
from smoke_oci.tenancy import Tenancy
from unit.backends.oci.stand_in import StandIn
from unit.fake_backend import plan_of

from oci_cluster.backends.oci.service import Service

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "shape": "VM.Standard.E4.Flex",
    "ocpus": 1,
    "memory_gbs": 8,
    "storage_gbs": 50,
    "image": "iad.ocir.io/x/dask:1",
}


def test_the_guesses_are_those_of_the_stand_in() -> None:
    """Each with the same id, words and rung, or the same reason why none tells."""
    text = (ROOT / "tests" / "oci_service" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \| (rung `(\w+)`|not tested: (.+)) \|$", text, re.MULTILINE)
    listed = {name: (words, rung, why_not) for name, words, _, rung, why_not in rows}
    assert listed == {name: (guess.text, guess.rung, guess.why_not) for name, guess in GUESSES.items()}
    assert {guess.rung for guess in GUESSES.values()} == {"", *RUNGS}
    assert not re.search(r"is a guess[^\n]*\n\n- ", text), "a guess without an id"


def test_what_can_be_turned_around_is_a_guess_that_is_tested() -> None:
    assert {name for name, guess in GUESSES.items() if guess.rung} >= FLIPS


def test_the_table_of_shapes_is_the_stand_ins() -> None:
    from oci_service.data_science import _SHAPES  # noqa: PLC0415 - needs the SDK

    assert {name: size[:2] for name, size in _SHAPES.items()} == SHAPES


@pytest.mark.parametrize(
    ("shape", "ocpus", "memory", "price"),
    [
        ("VM.Standard.E4.Flex", 1, 16, 0.025 + 16 * 0.0015),
        ("VM.Standard2.4", 0, 0, 4 * 0.0638),
        ("VM.Standard2.x", 0, 0, 0.0),
        ("BM.GPU.H100.8", 0, 0, None),
    ],
)
def test_a_price_is_that_of_the_shape(shape: str, ocpus: float, memory: float, price: float | None) -> None:
    assert price_of(shape, ocpus, memory) == pytest.approx(price)


def test_the_bound_counts_all_nodes_and_the_time_to_start_them() -> None:
    """The service ends each after ten minutes."""
    assert sum(NODES.values()) == 13
    said = bound(RUNGS, SETTINGS, 0.6)
    assert said.startswith(
        "at most 13 nodes of VM.Standard.E4.Flex (1 OCPUs, 8 GB), 10 minutes each, 160 minutes in all"
    )
    assert "at most $5.23, with $0.6000 for a node and hour" in said
    assert bound(RUNGS[:1], SETTINGS, 0.6).startswith("at most 0 nodes")


def test_the_page_has_what_is_wrong_first() -> None:
    """A service's words are no markup. What was not reached could not be told."""
    findings = Findings()
    findings.note("job-active", is_right=True, evidence="it is ACTIVE", request_id="REQ1")
    findings.note("list-order", is_right=False, evidence="a | b\nc", request_id="REQ2")
    rows = [line for line in page(findings, RUNGS[:2], SETTINGS, 0).splitlines() if line.startswith("| `")]
    assert rows[0] == "| `list-order` | lists have the newest first | WRONG | a \\| b c | REQ2 |"
    assert len(rows) == len(GUESSES)
    assert "| `groups-rank` | ranks count through the groups | could not tell | this rung was not wanted |  |" in rows
    assert findings.wrong() == ["list-order"]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any) -> Iterator[StandIn]:
    for place in (identity, smoke_policies):
        monkeypatch.setattr(place, "time", SimpleNamespace(monotonic=clock))
    made = StandIn(tmp_path, monkeypatch)
    yield made
    made.service.close()


def tenancy_of(stand_in: StandIn, clock: Any, given: dict[str, str] | None = None, **more: str) -> Tenancy:
    times: dict[str, Any] = {"clock": clock, "sleep": clock.sleep}
    service, settings = Service(stand_in.environ, **times), {"compartment": stand_in.jobs, **more}
    plan = plan_of(ROOT, settings=given or {})
    return Tenancy(service, plan, settings, ROOT, name="smoke-01234567", owner="me", **times)


# As somebody may write it: blanks, host bits; the node is in the second block.
TWO_BLOCKS = "10.0.0.5/24, 10.0.1.0/24"


def test_a_session_leads_to_an_address_of_the_first_block(stand_in: StandIn, clock: Any) -> None:
    tenancy = tenancy_of(stand_in, clock, {"SUBNET_CIDR": TWO_BLOCKS}, bastion="ocid1.bastion")
    assert tenancy.variables("meet", "first")["SUBNET_CIDR"] == "10.0.0.0/24,10.0.1.0/24"
    target = bastions._body(tenancy, "ssh-ed25519 AAAA")["targetResourceDetails"]
    assert target["targetResourcePrivateIpAddress"] == "10.0.0.10"


@pytest.mark.parametrize("cidr", [TWO_BLOCKS, ""])
def test_a_node_knows_its_address_in_any_block(
    stand_in: StandIn, clock: Any, monkeypatch: pytest.MonkeyPatch, cidr: str
) -> None:
    """Also without a subnet's addresses: the one that is not loopback."""
    found = [SimpleNamespace(family=socket.AF_INET, address=text) for text in ("127.0.0.1", "10.0.1.7")]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": found})
    sent = tenancy_of(stand_in, clock, {"SUBNET_CIDR": cidr}, subnet="").variables("none", "first")
    for name, text in {**sent, "SMOKE_URL": "memory://smoke", "NODE_ADDRESS": ""}.items():
        monkeypatch.setenv(name, text)
    inside: dict[str, Any] = {}
    with pytest.raises(KeyError, match="none"):  # no program of that name: its functions alone are wanted
        exec((ROOT / "tests" / "smoke_oci" / "inside.py").read_text(encoding="utf-8"), inside)  # noqa: S102 - ours
    assert inside["own_address"]() == "10.0.1.7"


def found_of_policies(stand_in: StandIn, clock: Any) -> tuple[str, str]:
    """Return what the rung finds: verdict and evidence. Nothing is left of it."""
    before = len(stand_in.identity.policies.all())
    tenancy, findings = tenancy_of(stand_in, clock), Findings()
    smoke_policies.policies(tenancy, findings)
    tenancy._remove_policy(tenancy.name)
    assert (stand_in.service.objects.buckets, len(stand_in.identity.policies.all())) == ({}, before)
    found = findings.of("policy-at-once", RUNGS)
    return found.verdict, found.evidence


@pytest.mark.parametrize(
    ("late_s", "verdict", "evidence"),
    [
        (0, "right", "it counts 0 s after it was made"),
        (20, "WRONG", "it counts 20 s after it was made"),
        (900, "WRONG", "it does not count within 300 s"),
    ],
)
def test_a_policy_counts_when_object_storage_takes_it(
    stand_in: StandIn, clock: Any, late_s: float, verdict: str, evidence: str
) -> None:
    stand_in.service.controls.set({"policy_late_s": late_s})
    assert found_of_policies(stand_in, clock) == (verdict, evidence)


def test_when_a_policy_counts_is_not_known_where_another_allows_the_same(stand_in: StandIn, clock: Any) -> None:
    stand_in.allow("allow service objectstorage-us-ashburn-1 to manage all-resources in tenancy")
    assert found_of_policies(stand_in, clock) == ("could not tell", "another policy allows it already")


@pytest.mark.parametrize("family", ["object-family", "policies"])
def test_who_may_not_make_what_it_takes_cannot_tell(stand_in: StandIn, clock: Any, family: str) -> None:
    """The policy, or the bucket."""
    (policy,) = stand_in.identity.policies.all()
    stand_in.identity.policies.touch(policy, statements=[f"allow any-group to manage {family} in tenancy"])
    stand_in.identity._read(stand_in.identity.policies, policy)
    verdict, evidence = found_of_policies(stand_in, clock)
    assert (verdict, evidence.partition(":")[0]) == ("could not tell", "refused to who asks")


@pytest.mark.parametrize("operation", ["delete_bucket", "delete_policy"])
def test_what_may_not_be_deleted_is_named_and_its_job_stays(
    stand_in: StandIn, clock: Any, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """The next start finds by the Job what is left."""
    tenancy, removed = tenancy_of(stand_in, clock), list[str]()
    smoke_policies.policies(tenancy, Findings())
    stand_in.service.controls.set({"faults": [{"operation": operation, "kind": "404", "nth": 1}]})
    jobs = SimpleNamespace(service=tenancy.service, runs=lambda _: [], cancel=lambda _: None, remove=removed.append)
    monkeypatch.setattr(tenancy, "_jobs", jobs)
    monkeypatch.setattr(tenancy, "left", lambda: iter([("ocid1.job", tenancy.name)]))
    monkeypatch.setattr(tenancy, "_remove_folder", lambda _: None)
    (failed,) = tenancy.remove(lambda _: None)
    assert failed.startswith("ocid1.job: cannot delete a ")
    assert removed == []
    assert (tenancy.remove(lambda _: None), removed) == ([], ["ocid1.job"])
