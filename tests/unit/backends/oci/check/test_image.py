"""What is found of an image, by what registry and OCI answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from unit.backends.oci.answers import JOBS, Answers, item, unseen
from unit.fake_oci import Checkout

from oci_cluster.backends.findings import Checked, Finding, Verdict
from oci_cluster.backends.oci.check import image as check_image
from oci_cluster.backends.oci.check.image import Image, findings
from oci_cluster.backends.oci.errors import refused
from oci_cluster.backends.oci.tenancy.client import Tenancy
from oci_cluster.backends.oci.tenancy.requirements import needed_of
from oci_cluster.images import records

NAME = "iad.ocir.io/ns/team/plain:1"
DIGEST, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
NEEDED = needed_of({"COMPARTMENT_OCID": JOBS, "WORK_DIR": "oci://b@ns/w", "IMAGE": NAME}, ["plain"], "us-ashburn-1")
PUSH = "make push-plain REGISTRY=iad.ocir.io/ns/team TAG=1"


def of_registry(status: int, code: str) -> Exception:
    return refused("look up the image", status, code, "No", "r", operation="image")


class Shown:
    """The registry: what it has of the image, or how it refuses."""

    def __init__(self) -> None:
        self.found: Any = Image(DIGEST, ("linux/amd64",))
        self.asked: list[tuple[str, str, str]] = []

    def open(self, host: str, _: Any) -> Any:
        def image(repository: str, reference: str) -> Any:
            self.asked.append((host, repository, reference))
            if isinstance(self.found, Exception):
                raise self.found
            return SimpleNamespace(data=self.found, headers={})

        return SimpleNamespace(image=image)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    found = Shown()
    monkeypatch.setattr(check_image, "Registry", found.open)
    return found


def listed(repositories: Any = (), images: Any = ()) -> Answers:
    """Return a tenancy that lists these repositories and images."""
    return Answers(
        get_namespace="ns",
        list_container_repositories=repositories if isinstance(repositories, Exception) else item(items=repositories),
        list_container_images=images if isinstance(images, Exception) else item(items=images),
    )


def look(checkout: Checkout, service: Answers | None = None, **given: str) -> list[Finding]:
    settings = {"IMAGE": NAME, **given}
    checked = Checked("plain", 2, checkout.root, settings, checkout.plan(**settings))
    return list(findings(checked, Tenancy(service or listed(), {"COMPARTMENT_OCID": JOBS}), NEEDED))


def told(found: list[Finding]) -> list[tuple[str, str]]:
    return [(str(one.verdict), one.item) for one in found]


def test_an_image_that_is_there_for_the_right_machines_is_fine(checkout: Checkout, shown: Shown) -> None:
    found = look(checkout)
    assert told(found) == [("fine", "image"), ("fine", "image platform")]
    assert found[0].text == f"{NAME}@{DIGEST}"
    assert shown.asked == [("iad.ocir.io", "ns/team/plain", "1")]
    assert look(checkout, IMAGE=f"{NAME}@{DIGEST}") == found
    shown.found = Image("", ("linux/amd64", "linux/arm64"))
    assert [one.text for one in look(checkout)] == [f"{NAME} is there", "linux/amd64, as iad.ocir.io says"]


def test_what_was_pushed_last_is_looked_for(checkout: Checkout, shown: Shown) -> None:
    """Without IMAGE, or with its own name."""
    records.write("plain", checkout.root, {"image": NAME, "id": "i", "digest": OTHER, "built": "b"})
    for name in ("", NAME):
        one = look(checkout, IMAGE=name)[0]
        assert (one.verdict, one.item) == (Verdict.FAILS, "image")
        assert one.text.startswith(f"{NAME} is {DIGEST} now, and {OTHER} is wanted")
        assert one.fix == f"IMAGE={NAME}@{DIGEST}\n# or push what was built here: {PUSH}"
    shown.found = Image("", ("linux/amd64",))
    assert look(checkout)[0].verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("name", ["", "no image"])
def test_no_image_is_nothing_to_look_for(checkout: Checkout, shown: Shown, name: str) -> None:
    assert told(look(checkout, IMAGE=name)) == [("unknown", "image")]
    assert shown.asked == []


def test_a_plan_that_is_none_has_the_image_of_the_settings(checkout: Checkout, shown: Shown) -> None:
    given = {"IMAGE": "iad.ocir.io/ns/team/{framework}:1"}
    found = list(findings(Checked("plain", 2, checkout.root, given, None), Tenancy(listed(), {}), NEEDED))
    assert told(found) == [("fine", "image"), ("fine", "image platform")]


# --- Registry and namespace


@pytest.mark.parametrize("host", ["phx.ocir.io", "ghcr.io", "new.ocir.io"])
def test_another_registry_is_not_asked(checkout: Checkout, shown: Shown, host: str) -> None:
    """That it is another is told of the image's name."""
    (one,) = look(checkout, IMAGE=f"{host}/ns/team/plain:1@{DIGEST}")
    assert (one.verdict, one.item) == (Verdict.UNKNOWN, "image")
    assert f"{host} was not asked" in one.text
    assert shown.asked == []


def test_a_region_may_be_named_by_its_key(checkout: Checkout, shown: Shown) -> None:
    service = listed()
    service.region = "IAD"
    assert told(look(checkout, service)) == [("fine", "image"), ("fine", "image platform")]


def test_an_image_of_somebody_else_is_pushed_by_its_name(checkout: Checkout, shown: Shown) -> None:
    shown.found = of_registry(404, "MANIFEST_UNKNOWN")
    image = "iad.ocir.io/ns/theirs:3"
    (one,) = look(checkout, IMAGE=image)
    assert one.fix == f"docker push {image}"


def test_another_tenancys_namespace_is_named(checkout: Checkout, shown: Shown) -> None:
    shown.found = of_registry(404, "NAME_UNKNOWN")
    (one,) = look(checkout, IMAGE="iad.ocir.io/nss/team/plain:1")
    assert (one.verdict, one.item, one.fix) == (Verdict.FAILS, "repository", f"IMAGE={NAME}")


# --- Repository and tag


def test_a_repository_that_is_not_there_is_made_by_a_command(checkout: Checkout, shown: Shown) -> None:
    shown.found = of_registry(404, "NAME_UNKNOWN")
    (one,) = look(checkout)
    assert (one.verdict, one.item) == (Verdict.FAILS, "repository")
    make = "oci artifacts container repository create"
    assert one.fix == f"{make} --compartment-id {JOBS} --display-name team/plain\n{PUSH}"


def test_a_tag_that_is_not_there_is_pushed(checkout: Checkout, shown: Shown) -> None:
    shown.found = of_registry(404, "MANIFEST_UNKNOWN")
    (one,) = look(checkout)
    assert (one.verdict, one.item, one.fix) == (Verdict.FAILS, "image", PUSH)


REPOSITORY = item(display_name="team/plain", compartment_id=JOBS)
REFUSALS = [of_registry(403, "DENIED"), of_registry(404, "NOT_FOUND"), of_registry(503, "BUSY")]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ((unseen(), []), [("unknown", "image")]),
        (([], []), [("fails", "repository")]),
        (([REPOSITORY], []), [("fails", "image")]),
        (([REPOSITORY], unseen()), [("unknown", "image")]),
        (([REPOSITORY], [item(digest=DIGEST)]), [("fine", "image"), ("unknown", "image platform")]),
    ],
)
def test_what_the_registry_does_not_show_is_looked_up_in_lists(
    checkout: Checkout, shown: Shown, refusal: Exception, lists: tuple[Any, Any], expected: Any
) -> None:
    """Where these are not shown either, nothing is known, and a statement says what is missing."""
    shown.found = refusal
    service = listed(*lists)
    found = look(checkout, service)
    assert told(found) == expected
    if lists[0] == [REPOSITORY]:
        (asked,) = [kwargs for name, _, kwargs in service.calls if name == "list_container_images"]
        assert asked == {"repository_name": "team/plain", "version": "1"}
    elif expected[0][0] == "unknown":
        see = (
            f"allow group data-scientists to read repos in compartment id {JOBS} where target.repo.name = 'team/plain'"
        )
        assert found[0].fix == f"# lets it be seen:\n{see}"


def test_a_code_of_the_registry_that_comes_with_a_silence_is_no_answer(checkout: Checkout, shown: Shown) -> None:
    shown.found = of_registry(503, "NAME_UNKNOWN")
    assert told(look(checkout, listed(unseen()))) == [("unknown", "image")]


# --- Platform


@pytest.mark.parametrize(
    ("shape", "platforms", "wanted"),
    [
        ("VM.Standard.E4.Flex", ("linux/arm64",), "linux/amd64"),
        ("VM.Standard.A1.Flex", ("linux/amd64",), "linux/arm64"),
    ],
)
def test_an_image_for_other_machines_is_built_for_these(
    checkout: Checkout, shown: Shown, shape: str, platforms: tuple[str, ...], wanted: str
) -> None:
    shown.found = Image(DIGEST, platforms)
    one = look(checkout, SHAPE=shape)[1]
    assert (one.verdict, one.item, one.fix) == (Verdict.FAILS, "image platform", f"PLATFORM={wanted} {PUSH}")


def test_machines_of_both_kinds_need_an_image_of_both(checkout: Checkout, shown: Shown) -> None:
    one = look(checkout, MAIN_SHAPE="VM.Standard.A1.Flex")[1]
    assert (one.verdict, one.fix) == (Verdict.FAILS, f"PLATFORM=linux/amd64,linux/arm64 {PUSH}")
    shown.found = Image(DIGEST, ("linux/arm64/v8", "linux/amd64"))
    assert look(checkout, MAIN_SHAPE="VM.Standard.A1.Flex")[1].verdict is Verdict.FINE


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        ({"image": NAME, "digest": "", "platform": "linux/amd64"}, Verdict.FINE),
        ({"image": NAME, "digest": DIGEST, "platform": "linux/arm64"}, Verdict.FAILS),
        ({"image": "another:1", "digest": DIGEST, "platform": "linux/arm64"}, Verdict.FAILS),
        # Of an earlier version, or of another image: nothing is known, and nothing is wrong.
        ({"image": NAME, "digest": DIGEST}, Verdict.UNKNOWN),
        ({"image": "another:1", "digest": OTHER, "platform": "linux/arm64"}, Verdict.UNKNOWN),
        ({"image": "another:1", "digest": "", "platform": "linux/arm64"}, Verdict.UNKNOWN),
    ],
)
def test_where_the_registry_does_not_tell_the_record_of_the_build_does(
    checkout: Checkout, shown: Shown, record: dict[str, str], verdict: Verdict
) -> None:
    records.write("plain", checkout.root, {"id": "i", "built": "b", **record})
    shown.found = Image(DIGEST, ())
    one = look(checkout)[1]
    assert (one.verdict, one.item) == (verdict, "image platform")
    assert ("make build-plain" in one.text) == (verdict is Verdict.UNKNOWN)
