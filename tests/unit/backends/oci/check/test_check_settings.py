"""What check.sh tells of a launch on OCI without asking anybody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.fake_oci import LEAST, Checkout

from oci_cluster.backends import check_of
from oci_cluster.backends.findings import Checked, Finding, Verdict
from oci_cluster.backends.oci import check
from oci_cluster.contract.cluster import Plan

IMAGE = "iad.ocir.io/mytenancy/dask:1"
BOTH = "MAIN_SHAPE=VM.GPU.A10.1\nWORKER_SHAPE=VM.GPU.A10.1"
HERE = {"OCI_CLI_REGION": "us-ashburn-1"}
Look = Callable[..., dict[str, Finding]]


@pytest.fixture
def look(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Return what is found of a launch with settings, by item; the last of an item counts."""
    monkeypatch.setattr(check, "_region", lambda given: given.get("OCI_CLI_REGION", ""))

    def found(change: Callable[[Plan], Plan] = lambda plan: plan, **settings: str) -> dict[str, Finding]:
        plan = change(checkout.plan(**settings))
        given: Mapping[str, str] = {**LEAST, **HERE, **settings}
        checked = Checked("plain", 2, checkout.root, given, plan)
        return {one.item: one for one in check.of_settings(checked, said.append)}

    said: list[str] = []
    found.said = said  # type: ignore[attr-defined]
    return found


def verdicts(found: dict[str, Finding]) -> dict[str, str]:
    return {item: str(one.verdict) for item, one in found.items()}


def test_a_right_launch_is_fine_in_all_items(look: Look) -> None:
    """Each says what was seen."""
    found = look()
    assert verdicts(found) == dict.fromkeys(("image name", "shape", "code", "environment", "arguments"), "fine")
    assert found["image name"].text == f"{IMAGE}, in the registry of us-ashburn-1"
    assert found["shape"].text == "VM.Standard.E4.Flex for MAIN, WORKER, flexible: 4 OCPUs, 64 GB"
    assert found["arguments"].text == "0 characters of 4000"


@pytest.mark.parametrize(
    ("image", "region", "verdict", "text"),
    [
        ("us-ashburn-1.ocir.io/n/x:1", "us-ashburn-1", "fine", "in the registry of us-ashburn-1"),
        ("ocir.us-ashburn-1.oci.oraclecloud.com/n/x:1", "us-ashburn-1", "fine", "in the registry of us-ashburn-1"),
        ("fra.ocir.io/n/x:1", "us-ashburn-1", "fails", "is in the registry of eu-frankfurt-1, and the Job will be in"),
        ("docker.io/n/x:1", "us-ashburn-1", "fails", "is not in OCI's registry, from which alone a Job takes"),
        (IMAGE, "", "unknown", "the region of the Job is not known; see credentials"),
    ],
)
def test_the_image_must_be_in_the_registry_of_the_jobs_region(
    look: Look, image: str, region: str, verdict: str, text: str
) -> None:
    """By the region's name or its key."""
    found = look(IMAGE=image, OCI_CLI_REGION=region)["image name"]
    assert (str(found.verdict), text in found.text) == (verdict, True)
    if verdict == "fails" and "docker.io" in image:
        assert found.fix == f"make push-plain REGISTRY={region}.ocir.io/<namespace>/<folder>"
    elif verdict == "fails":
        push = "make push-plain REGISTRY=iad.ocir.io/n TAG=1"
        assert found.fix == f"IMAGE=iad.ocir.io/n/x:1\n# after it was pushed there: {push}"


def test_the_region_is_that_of_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the one that a setting names, which needs no more than a profile; without one it is not known."""
    assert check._region({}) == ""
    monkeypatch.setattr("oci_cluster.backends.oci.service.Service.region", "IAD")
    assert check._region({}) == "us-ashburn-1"


@pytest.mark.parametrize(
    ("settings", "verdict", "text", "fix"),
    [
        ({"SHAPE": "VM.GPU.A10.1"}, "fine", "VM.GPU.A10.1 for MAIN, WORKER, with a size of its own", ""),
        ({"SHAPE": "BM.GPU.A100-v2.8"}, "fine", "with a size of its own", ""),
        ({"SHAPE": "BM.GPU.L40S.4"}, "fine", "with a size of its own", ""),
        ({"SHAPE": "VM.Standard.E9.Flex"}, "fine", "flexible: 4 OCPUs, 64 GB", ""),
        ({"SHAPE": "VM.Standard3.Flex", "OCPUS": "2", "MEMORY_GBS": "8"}, "fine", "flexible: 2 OCPUs, 8 GB", ""),
        ({"SHAPE": "VM.Standrad.E4.Flex"}, "fails", "did you mean VM.Standard.E4.Flex?", "SHAPE=VM.Standard.E4.Flex"),
        ({"SHAPE": "vm.standard.e4.flex"}, "fails", "did you mean VM.Standard.E4.Flex?", "SHAPE=VM.Standard.E4.Flex"),
        ({"SHAPE": "VM.Standard.E4"}, "fails", "did you mean VM.Standard.E4.Flex?", "SHAPE=VM.Standard.E4.Flex"),
        ({"SHAPE": "VM.GPU.A10.Flex"}, "fails", "GPU shapes are not flexible", "SHAPE=VM.GPU.A10.1"),
        ({"SHAPE": "huge"}, "unknown", "huge for MAIN, WORKER has none of the forms", ""),
        ({"SHAPE": "VM.Standard.A1.Flex"}, "fails", "has Arm processors", "SHAPE=VM.Standard.E4.Flex"),
        ({"SHAPE": "VM.Standard.A1.Flex", "PLATFORM": "linux/arm64"}, "fine", "flexible", ""),
        ({"OCPUS": "1", "MEMORY_GBS": "65"}, "fails", "65 GB is not 1 to 64 GB for each of 1 OCPUs", "MEMORY_GBS=64"),
        ({"OCPUS": "8", "MEMORY_GBS": "7"}, "fails", "7 GB is not 1 to 64 GB for each of 8 OCPUs", "MEMORY_GBS=8"),
        ({"MAIN_SHAPE": "VM.GPU.A10.Flex", "WORKER_SHAPE": "VM.GPU.A10.Flex"}, "fails", "not flexible", BOTH),
        ({"SHAPE": "/"}, "unknown", "there is none for MAIN, WORKER that could be looked at", ""),
    ],
)
def test_a_shape_is_spelled_right_and_flexible_or_not(
    look: Look, settings: dict[str, str], verdict: str, text: str, fix: str
) -> None:
    """A name of a new generation is none that is spelled wrong."""
    found = look(**settings)["shape"]
    assert (str(found.verdict), text in found.text, found.fix) == (verdict, True, fix), found.text


def test_machines_that_differ_are_items_of_their_own(checkout: Checkout, look: Look) -> None:
    plan = checkout.plan(MAIN_SHAPE="VM.GPU.A10.1")
    checked = Checked("plain", 2, checkout.root, {**LEAST, **HERE}, plan)
    texts = [one.text for one in check.of_settings(checked, lambda _: None) if one.item == "shape"]
    assert texts == [
        "VM.GPU.A10.1 for MAIN, with a size of its own",
        "VM.Standard.E4.Flex for WORKER, flexible: 4 OCPUs, 64 GB",
    ]


def test_an_environment_that_is_too_large_fails(look: Look) -> None:
    """In the words of the launch; with the code's address, which is long."""

    def large(plan: Plan) -> Plan:
        return replace(plan, environment={**plan.environment, "BIG": "x" * 19_500})

    found = look(large)["environment"]
    assert (found.verdict, "20000 at most" in found.text) == (Verdict.FAILS, True)
    assert found.fix == "BIG is the longest: put what it holds into a file of your code"


def test_more_arguments_than_oci_documents_are_named(look: Look) -> None:
    """They go as a variable: whether OCI counts them there is not known, and that is not passed off as fine."""
    assert look(ARGS='["' + "x" * 4000 + '"]')["arguments"].verdict is Verdict.FINE
    found = look(ARGS='["' + "x" * 3999 + '", "y"]')["arguments"]
    assert (found.verdict, found.text[:15]) == (Verdict.UNKNOWN, "4001 characters")


def test_code_that_cannot_be_sent_fails_and_keys_are_told(look: Look, tmp_path: Path) -> None:
    """As the launch would refuse it, and as it would say it."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "run.py").write_text(f"TOKEN = 'ghp_{'a1' * 18}'\n")
    found = look(CODE_DIR=str(code), ENTRY_POINT="run.py")["code"]
    assert (found.verdict, found.text[:8]) == (Verdict.FINE, "code in ")
    said: Any = look
    assert any("run.py has what looks like" in line for line in said.said)
    (code / ".gitignore").write_text("run.py\n")
    found = look(CODE_DIR=str(code), ENTRY_POINT="run.py")["code"]
    assert (found.verdict, "would not be sent" in found.text) == (Verdict.FAILS, True)
    assert look(CODE_URI="image")["code"].text == "not sent from here"


def test_without_an_image_there_is_no_name_to_look_at(look: Look) -> None:
    assert look(IMAGE="")["image name"].verdict is Verdict.UNKNOWN


def test_without_a_launch_nothing_is_known(checkout: Checkout) -> None:
    """And nothing is taken for fine."""
    found = list(check_of("oci")(Checked("plain", 2, checkout.root, {}, None), lambda _: None))
    assert {one.verdict for one in found if one.item in {"image name", "shape", "arguments"}} == {Verdict.UNKNOWN}
