"""``check.sh`` on a tenancy of the stand-in: planted faults of the image, of shapes, limits, quotas and hosts.

A mend is applied as it was printed. What a person does where a command is of no use is done by the test: a push, and an
increase of a limit.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from empty_tenancy import empty_tenancy
from oci_checks import IMAGE, Checks, failed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

E4, A10 = "VM.Standard.E4.Flex", "VM.GPU.A10.2"
CORES = "ds-standard-e4-core-count"
OTHER = f"sha256:{'1' * 64}"
_PUSH = re.compile(
    r"^(?:PLATFORM=(?P<platform>\S+) )?make push-(?P<last>\w+) REGISTRY=(?P<folder>\S+) TAG=(?P<tag>\S+)"
)


class Rooms(Checks):
    """A tenancy that is right, and somebody who also pushes."""

    def begin(self) -> None:
        """Have right settings, images, limits and hosts again."""
        super().begin()
        self.tenancy.service.control({"left": {}, "capacity": {}})
        self.push(IMAGE)
        (self.tenancy.project.path / ".images" / "dask.json").unlink(missing_ok=True)

    def push(self, image: str, **about: Any) -> None:
        """Have *image* in the registry, where it has a repository."""
        self.tenancy.service.control({"images": {image: {**self.tenancy.image(Path(sys.executable)), **about}}})

    def mend(self, text: str) -> None:
        """Do what the mend of a finding says; `make push`, which does nothing there, is done by its words."""
        super().mend(text)
        for line in text.splitlines():
            if push := _PUSH.match(line):
                image = f"{push['folder']}/{push['last']}:{push['tag']}"
                self.push(image, platform=push["platform"] or "linux/amd64")


@pytest.fixture(scope="module")
def made(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rooms]:
    with empty_tenancy(checkout_copy, tmp_path_factory.mktemp("room")) as tenancy:
        yield Rooms(tenancy)


@pytest.fixture
def rooms(made: Rooms) -> Rooms:
    made.begin()
    return made


def of(found: list[dict[str, str]], item: str) -> list[tuple[str, str]]:
    return [(one["verdict"], one["text"]) for one in found if one["item"] == item]


def test_nothing_is_found_where_there_is_room(rooms: Rooms) -> None:
    """The registry's own words for the image; both limits of the shape's family; hosts, as an indication."""
    code, found = rooms.check()
    assert (code, failed(found)) == (0, {})
    assert of(found, "image") == [("fine", f"{IMAGE}@sha256:{'0' * 64}")]
    assert of(found, "image platform") == [("fine", "linux/amd64, as iad.ocir.io says")]
    assert of(found, "shape there") == [("fine", f"{E4} is there for Jobs in us-ashburn-1")]
    assert of(found, "service limit") == [
        ("fine", f"4 nodes of {E4} take 16 OCPUs, and {CORES} leaves 1000 of 1000"),
        ("fine", f"4 nodes of {E4} take 256 GB of memory, and ds-standard-e4-memory-count leaves 16000 of 16000"),
    ]
    ((verdict, text),) = of(found, "capacity")
    assert (verdict, "an indication" in text) == ("fine", True)


def test_who_launches_sees_the_image_and_is_told_what_shows_the_rest(rooms: Rooms) -> None:
    """Limits and hosts are not shown to those who may only launch; the statements that are printed show them."""
    reader = rooms.tenancy.reader.environ
    _, found = rooms.check(reader)
    assert [of(found, item)[0][0] for item in ("image", "image platform", "shape there")] == ["fine"] * 3
    hidden = [one for one in found if one["item"] in {"service limit", "capacity"}]
    assert [one["verdict"] for one in hidden] == ["unknown"] * 2
    for one in hidden:
        rooms.mend(one["mend"])
    _, found = rooms.check(reader)
    assert [verdict for item in ("service limit", "capacity") for verdict, _ in of(found, item)] == ["fine"] * 3


# --- The image


def test_a_repository_that_is_missing_is_made_and_pushed_to(rooms: Rooms) -> None:
    rooms.settings["IMAGE"] = "iad.ocir.io/stand-in/elsewhere/dask:1"
    code, found = rooms.check()
    assert code == 1
    text = "there is no repository elsewhere/dask in iad.ocir.io/stand-in"
    assert failed(found)["repository"] == [text]
    rooms.until_fine(found)


def test_a_tag_that_is_missing_is_pushed(rooms: Rooms) -> None:
    rooms.settings["IMAGE"] = IMAGE.replace(":1", ":2")
    _, found = rooms.check()
    assert failed(found) == {"image": ["there is no 2 in the repository training/dask of iad.ocir.io"]}
    rooms.until_fine(found)


def test_an_image_for_other_machines_is_built_anew(rooms: Rooms) -> None:
    """Of a list for several platforms, one is enough."""
    rooms.push(IMAGE, platform="linux/arm64")
    _, found = rooms.check()
    (text,) = failed(found).pop("image platform")
    assert text.startswith(f"{IMAGE} is for linux/arm64, as iad.ocir.io says, and the machines need linux/amd64")
    rooms.until_fine(found)
    rooms.push(IMAGE, platform=["linux/arm64", "linux/amd64"])
    assert rooms.check()[0] == 0


def test_an_image_that_somebody_else_has_pushed_over_is_named_by_its_digest(rooms: Rooms) -> None:
    """What was pushed from here is what a launch wants; its record says which."""
    record = {"image": IMAGE, "id": "sha256:x", "digest": OTHER, "built": "2026-01-02T03:04:05Z"}
    place = rooms.tenancy.project.path / ".images"
    place.mkdir(exist_ok=True)
    (place / "dask.json").write_text(json.dumps(record))
    _, found = rooms.check()
    (text,) = failed(found).pop("image")
    assert text.startswith(f"{IMAGE} is sha256:{'0' * 64} now, and {OTHER} is wanted")
    rooms.until_fine(found)
    assert rooms.settings["IMAGE"] == f"{IMAGE}@sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("image", "item"),
    [
        (IMAGE.replace("iad.", "phx."), "image name"),
        (IMAGE.replace("stand-in", "standin"), "repository"),
    ],
    ids=["another region", "another tenancy"],
)
def test_an_image_of_somewhere_else_is_named_as_it_must_be(rooms: Rooms, image: str, item: str) -> None:
    rooms.settings["IMAGE"] = image
    _, found = rooms.check()
    assert set(failed(found)) == {item}
    rooms.until_fine(found)
    assert rooms.settings["IMAGE"] == IMAGE


def test_without_the_registry_lists_and_the_record_tell(rooms: Rooms) -> None:
    """It is down, or does not take the token: OCI's lists have the digest; of the platform nothing is known."""
    down = [{"operation": "registry.get_token", "kind": "404"}]
    rooms.tenancy.service.control({"faults": down})
    try:
        code, found = rooms.check()
    finally:
        rooms.tenancy.service.control({"faults": []})
    assert (code, failed(found)) == (3, {})
    assert of(found, "image") == [("fine", f"{IMAGE}@sha256:{'0' * 64}")]
    assert of(found, "image platform")[0][0] == "unknown"


# --- Shapes and limits


def test_a_shape_that_is_not_there_is_replaced_by_one_that_is(rooms: Rooms) -> None:
    """A shape may look right: which ones there are, only the region knows."""
    rooms.settings["SHAPE"] = "VM.Standard.E9.Flex"
    _, found = rooms.check()
    assert failed(found) == {"shape there": ["VM.Standard.E9.Flex is no shape for Jobs in us-ashburn-1"]}
    rooms.until_fine(found)
    assert rooms.settings["SHAPE"].endswith(".Flex")


@pytest.mark.parametrize(
    "wrong",
    [{"SHAPE": "VM.Standard2.4", "OCPUS": "4"}, {"SHAPE": E4, "OCPUS": "0"}],
    ids=["a size for a shape that has one", "no size for one that has none"],
)
def test_a_size_that_does_not_go_with_the_shape_is_named(rooms: Rooms, wrong: dict[str, str]) -> None:
    """Which machines are wanted is then not known, and nothing of them is fine."""
    rooms.settings |= wrong
    code, found = rooms.check()
    assert code == 1
    (text,) = failed(found)["settings"]
    assert text.startswith("OCPUS")
    assert of(found, "service limit")[0][0] == "unknown"
    del rooms.settings["OCPUS"]
    assert rooms.check()[0] == 0


def test_a_limit_of_0_is_to_be_increased_to_what_is_wanted(rooms: Rooms) -> None:
    """As all GPU limits of a new tenancy are."""
    rooms.settings["SHAPE"] = A10
    rooms.tenancy.service.control({"left": {"ds-gpu-a10-count": 0}})
    _, found = rooms.check()
    (text,) = failed(found)["service limit"]
    assert text.startswith(f"4 nodes of {A10} take 8 GPUs, and ds-gpu-a10-count leaves 0 of 0 in ")
    (mend,) = [one["mend"] for one in found if one["verdict"] == "fails"]
    asked = re.search(r"ds-gpu-a10-count .*, to at least (\d+)$", mend, re.MULTILINE)
    assert asked
    assert "launch.sh" not in mend
    rooms.tenancy.service.control({"left": {"ds-gpu-a10-count": int(asked[1])}})
    assert rooms.check()[0] == 0


def test_a_limit_for_fewer_nodes_leaves_room_for_fewer_workers(rooms: Rooms) -> None:
    rooms.tenancy.service.control({"left": {CORES: [9, 40]}})
    _, found = rooms.check()
    assert failed(found) == {"service limit": [f"4 nodes of {E4} take 16 OCPUs, and {CORES} leaves 9 of 40"]}
    rooms.until_fine(found)
    assert rooms.workers == 1


def test_a_shape_that_no_limit_names_is_not_known_to_have_room(rooms: Rooms) -> None:
    rooms.settings["SHAPE"] = "VM.GPU2.1"
    code, found = rooms.check()
    assert (code, failed(found)) == (3, {})
    ((verdict, text),) = of(found, "service limit")
    assert (verdict, "limits of Data Science names VM.GPU2.1 by its family 'gpu2'" in text) == ("unknown", True)


def test_a_limit_of_which_nothing_is_told_is_not_known_to_have_room(rooms: Rooms) -> None:
    rooms.tenancy.service.control({"faults": [{"operation": "get_resource_availability", "kind": "404"}]})
    try:
        code, found = rooms.check()
    finally:
        rooms.tenancy.service.control({"faults": []})
    assert (code, failed(found)) == (3, {})
    assert [verdict for verdict, _ in of(found, "service limit")] == ["unknown"] * 2


def test_a_quota_is_changed_by_the_command_that_is_printed(rooms: Rooms) -> None:
    """What else the quota says stays."""
    first = f"set data-science quota {CORES} to 8 in compartment ds-clusters"
    other = "zero data-science quotas in compartment ds-images"
    make = 'oci limits quota create --compartment-id "$tenancy" --name small --description x --statements'
    rooms.tenancy.as_administrator(f"{make} '{json.dumps([first, other])}'")
    _, found = rooms.check()
    text = f"4 nodes of {E4} take 16 OCPUs, and quotas on {CORES} leave 8 in compartment ds-clusters"
    assert failed(found) == {"quota": [text]}
    rooms.workers = 3
    mend = next(one["mend"] for one in found if one["verdict"] == "fails").splitlines()[0]
    rooms.mend(mend)
    code, found = rooms.check()
    assert (code, of(found, "quota")[0][0]) == (0, "fine")
    (body,) = rooms.tenancy.bodies("update_quota")
    assert body["statements"] == [first, other, f"set data-science quota {CORES} to 16 in compartment ds-clusters"]


# --- Hosts


def test_another_shape_is_named_that_has_hosts(rooms: Rooms) -> None:
    rooms.tenancy.service.control({"capacity": {E4: 0, "VM.Standard.E5.Flex": 2}})
    _, found = rooms.check()
    (text,) = failed(found).pop("capacity")
    assert text.startswith(f"Compute is out of hosts for {E4} in 1 availability domain")
    rooms.until_fine(found)
    assert rooms.settings["SHAPE"] == "VM.Standard3.Flex"


def test_hosts_for_some_of_the_nodes_are_no_promise(rooms: Rooms) -> None:
    rooms.tenancy.service.control({"capacity": {E4: 3}})
    code, found = rooms.check()
    assert (code, of(found, "capacity")[0][0]) == (3, "unknown")


def test_a_reservation_is_what_counts_where_one_is_set(rooms: Rooms) -> None:
    """Whatever Compute has for others."""
    rooms.tenancy.service.control({"capacity": {E4: 0}})
    parts = [{"instanceShape": E4, "reservedCount": 3}]
    make = "ocid compute capacity-reservation create --availability-domain test:US-ASHBURN-AD-1"
    reservation = rooms.make(f"{make} --compartment-id $network --instance-reservation-configs '{json.dumps(parts)}'")
    rooms.settings["CAPACITY_RESERVATION_OCID"] = reservation
    _, found = rooms.check()
    (text,) = failed(found).pop("capacity")
    assert text == f"3 of the hosts for {E4} that are reserved in {reservation} are free, and 4 are wanted"
    rooms.workers = 2
    assert rooms.check()[0] == 0
