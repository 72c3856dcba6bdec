"""``check.sh`` on a tenancy of the stand-in: planted faults of the image, of shapes and hosts.

A mend is applied as it was printed. What a person does where a command is of no use is done by the test: a push.
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
        self.tenancy.service.control({"capacity": {}})
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
    """The registry's own words for the image; hosts, as an indication."""
    code, found = rooms.check()
    assert (code, failed(found)) == (0, {})
    assert of(found, "image") == [("fine", f"{IMAGE}@sha256:{'0' * 64}")]
    assert of(found, "image platform") == [("fine", "linux/amd64, as iad.ocir.io says")]
    assert of(found, "shape there") == [("fine", f"{E4} is there for Jobs in us-ashburn-1")]
    ((verdict, text),) = of(found, "capacity")
    assert (verdict, "an indication" in text) == ("fine", True)


def test_who_launches_sees_the_image_and_is_told_what_shows_the_rest(rooms: Rooms) -> None:
    """Hosts are not shown to those who may only launch; the statements that are printed show them."""
    reader = rooms.tenancy.reader.environ
    _, found = rooms.check(reader)
    assert [of(found, item)[0][0] for item in ("image", "image platform", "shape there")] == ["fine"] * 3
    (hidden,) = [one for one in found if one["item"] == "capacity"]
    assert hidden["verdict"] == "unknown"
    rooms.mend(hidden["mend"])
    _, found = rooms.check(reader)
    assert [verdict for verdict, _ in of(found, "capacity")] == ["fine"]


def test_the_commands_that_show_limits_are_those_of_oci_cli(rooms: Rooms) -> None:
    """They show what is left of each; which of them the shape counts against, its name tells a person."""
    (limits,) = rooms.limits()
    assert limits["verdict"] == "unknown"
    every, one = [line for line in limits["mend"].splitlines() if not line.startswith("#")]
    listed = json.loads(rooms.tenancy.as_administrator(every))["data"]
    cores = next(item["name"] for item in listed if item["name"].endswith("e4-core-count"))
    left = json.loads(rooms.tenancy.as_administrator(one.replace("<its name>", cores)))["data"]
    assert left["available"] == 1000


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


# --- Shapes


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
    assert of(found, "capacity") == []
    del rooms.settings["OCPUS"]
    assert rooms.check()[0] == 0


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
