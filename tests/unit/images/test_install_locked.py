"""The environment of an image that has a lock: what is checked, and what may be added beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from unit.images.image import Image, wheel

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.system.envs.package_lists import head, lock_beside

pytestmark = pytest.mark.slow  # the real installer installs

COMMON, OWN = ["two==1"], ["needy==1"]


def locked(
    image: Image,
    packages: Sequence[str] = ("two==1", "needy==1", "one==1"),
    *,
    own: Sequence[str] = OWN,
    wrong: str = "",
) -> list[Path]:
    """Return the files of a framework that needs `one` below 2, with their lock; the hash of *wrong* is not its own."""
    files = [image.file(*COMMON, folder="common"), image.file(*own)]
    lines = []
    for package in packages:
        path = image.wheels / f"{package.replace('==', '-')}-py3-none-any.whl"
        content = path.read_bytes() if path.exists() and package != wrong else b""
        lines.append(f"{package} \\\n    --hash=sha256:{hashlib.sha256(content).hexdigest()}\n")
    lock_beside(files[1]).write_text(head(own, [*COMMON, *own]) + "".join(lines))
    return files


def test_an_image_has_what_is_locked(image: Image) -> None:
    """A newer version that nobody locked is not taken."""
    wheel(image.wheels, "one", "1.5")
    image.install(*locked(image))
    assert image.packages == ["needy==1", "one==1", "two==1"]
    assert not any("make lock" in said for said in image.said)


def test_a_package_that_was_changed_is_refused(image: Image) -> None:
    """Nothing is made of it."""
    with pytest.raises(BackendError, match="Hash mismatch for `one==1`"):
        image.install(*locked(image, wrong="one==1"))


def test_what_is_added_gets_the_versions_that_are_locked(image: Image) -> None:
    """Of what both need; it is in no lock itself."""
    wheel(image.wheels, "one", "1.5")
    wheel(image.wheels, "mine", "3", needs="one")
    image.install(*locked(image), image.file("mine", name="extra-env-1-my"))
    assert image.packages == ["mine==3", "needy==1", "one==1", "two==1"]


@pytest.mark.parametrize("is_right", [True, False])
def test_what_is_added_with_a_lock_is_checked_too(image: Image, *, is_right: bool) -> None:
    """As the files of sessions have one; of what the framework has, too, the framework's lock counts."""
    wheel(image.wheels, "mine", "3", needs="one")
    wheel(image.wheels, "mine", "4", needs="one")
    added = image.file("mine==3", name="extra-env-1-my")
    digest = (
        hashlib.sha256((image.wheels / "mine-3-py3-none-any.whl").read_bytes()).hexdigest() if is_right else "0" * 64
    )
    lines = [f"mine==3 \\\n    --hash=sha256:{digest}\n", f"one==2 \\\n    --hash=sha256:{'0' * 64}\n"]
    lock_beside(added).write_text(head(["mine==3"]) + "".join(lines))
    if is_right:
        image.install(*locked(image), added)
        assert image.packages == ["mine==3", "needy==1", "one==1", "two==1"]
    else:
        with pytest.raises(BackendError, match="Hash mismatch for `mine==3`"):
            image.install(*locked(image), added)


def test_a_lock_for_other_systems_leaves_room(image: Image) -> None:
    """What the framework has on Windows alone, something added may have here."""
    wheel(image.wheels, "other", "1")
    wheel(image.wheels, "mine", "3", needs="other")
    added, files = image.file("mine==3", name="extra-env-1-my"), locked(image)
    with lock_beside(files[1]).open("a") as lock:
        lock.write(f"other==2 ; sys_platform == 'win32' \\\n    --hash=sha256:{'0' * 64}\n")
    lines = []
    for name in ("mine-3", "other-1"):
        digest = hashlib.sha256((image.wheels / f"{name}-py3-none-any.whl").read_bytes()).hexdigest()
        lines.append(f"{name.replace('-', '==')} \\\n    --hash=sha256:{digest}\n")
    lock_beside(added).write_text(head(["mine==3"]) + "".join(lines))
    image.install(*files, added)
    assert image.packages == ["mine==3", "needy==1", "one==1", "other==1", "two==1"]


def test_what_a_lock_of_something_added_lacks_is_not_installed(image: Image) -> None:
    """All have a hash, or nothing is installed."""
    wheel(image.wheels, "other", "1")
    wheel(image.wheels, "mine", "3", needs="other")
    added = image.file("mine==3", name="extra-env-1-my")
    digest = hashlib.sha256((image.wheels / "mine-3-py3-none-any.whl").read_bytes()).hexdigest()
    lock_beside(added).write_text(head(["mine==3"]) + f"mine==3 \\\n    --hash=sha256:{digest}\n")
    with pytest.raises(BackendError, match="no trusted hash was provided for: `other`"):
        image.install(*locked(image), added)


def test_what_is_added_replaces_nothing_that_is_locked(image: Image) -> None:
    """Both are named, also where env.yaml knows nothing of the package."""
    wheel(image.wheels, "one", "1.5")
    with pytest.raises(SettingsError) as caught:
        image.install(*locked(image), image.file("one>=1.5", name="extra-env-1-my"))
    for word in ("one>=1.5", "one==1", "extra-env-1-my.yaml; what a lock has is not replaced."):
        assert word in str(caught.value)


def test_another_list_has_no_lock(image: Image) -> None:
    """ENV_FILE with a list of the user's own: resolved as it stands, which is said."""
    files = locked(image)
    image.file("needy==1", "hooked==1")
    wheel(image.wheels, "one", "1.5")
    image.install(*files)
    assert image.packages == ["hooked==1", "needy==1", "one==1.5", "two==1"]
    assert any("env.yaml: env-lock.txt is not of this list, so versions are chosen anew" in said for said in image.said)


def test_a_build_of_torch_that_is_not_locked_comes_beside_it(image: Image) -> None:
    """TORCH=cpu; the hashes of all others are checked."""
    for version in ("2.13.0", "2.13.0+cpu"):
        wheel(image.wheels, "torch", version, needs="one")
    own, packages = ["needy==1", "torch==2.13.0"], ("two==1", "needy==1", "one==1", "torch==2.13.0")
    files = locked(image, packages, own=own)
    image.install(*files, torch="cpu")
    assert image.packages == ["needy==1", "one==1", "torch==2.13.0+cpu", "two==1"]
    assert any("its hash, and those of what it alone brings, are not checked" in said for said in image.said)
    image.directory = image.place / "another"
    locked(image, packages, own=own, wrong="needy==1")
    with pytest.raises(BackendError, match="Hash mismatch for `needy==1`"):
        image.install(*files, torch="cpu")
