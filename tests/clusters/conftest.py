"""Real clusters: real scripts, agents and processes, in a copy of the checkout whose path has a space."""

from __future__ import annotations

import compileall
import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import engine as engines
import pytest
import rings
import warm
from engine import Engine
from harness import Project, wait_until
from host_cluster import Launch, launching
from oci_cloud import Cloud
from oci_service.handle import Service
from toy_image import build_toy_image

if TYPE_CHECKING:
    from oci_user import User

CHECKOUT = Path(__file__).resolve().parents[2]
HAS_HOROVOD = bool(shutil.which(os.environ.get("CXX", "g++"))) or (CHECKOUT / ".venv" / "envs" / "horovod").exists()


# --- With tests/run.sh: which tests run beside each other

# Of tests that compute on every node, as they import gigabytes or build images, this many run at a time, whatever the
# number of workers: a machine that has ten such nodes on two CPUs breaks the time-outs of others.
HEAVY = re.compile(r"ray|tensorflow|horovod|pytorch|test_images|test_first_evening|test_hosts|test_subnet|test_python")
HEAVY_AT_ONCE = 2
WAIT_S = 600.0  # several of the longest
# First what needs nothing that `.ci/run` may still be making, then what has tests of a minute: none of them begins when
# the other workers are done; the rest fills gaps.
ORDER = (
    *("test_gang", "test_docker", "test_docker_ways", "test_foreign_image", "test_oci_walk_through", "test_oci"),
    *("test_oci_groups", "test_oci_logging", "test_oci_check", "test_first_evening", "test_oci_refusals"),
    *("test_oci_faults", "test_dask", "test_sessions", "test_pytorch", "test_images", "test_horovod"),
    *("test_ray_neighbours", "test_ray", "test_hosts", "test_tensorflow", "test_python", "test_subnet"),
    *("test_oci_setup", "test_oci_bastion", "test_oci_storage_rest", "test_installed", "test_new_project"),
    *("test_from_ads", "test_neighbours", "test_strangers", "test_local_storage", "test_local_losses"),
)
# One worker runs all tests of such a file, because they share what takes long to make:
TOGETHER = {
    # a stand-in for OCI, and somebody with an account there;
    *("test_oci_service", "test_oci_service_runs", "test_oci_service_storage", "test_oci_logging"),
    # a tenancy in which all that a launch needs has been made;
    *("test_oci_walk_through", "test_oci_setup", "test_oci_check"),
    # a container engine with images;
    *("test_engine", "test_images"),
    # a Python environment of the user's own, or that of Ray;
    *("test_python", "test_ray_outside"),
    # a machine with nothing on it, on which README.md is followed.
    "test_first_evening",
}
# And all tests of these files: one container engine with the image of a toy.
WITH_TOY_ENGINE = {"test_docker", "test_docker_ways", "test_foreign_image"}


def group_of(nodeid: str) -> str:
    """Return the name of what one worker has to run: of a file, of several, or the test's own."""
    file = Path(nodeid.partition("::")[0]).stem
    if file in WITH_TOY_ENGINE:
        return "toy engine"
    return file if file in TOGETHER else nodeid


def place_of(item: pytest.Item) -> int:
    """Return what tests are sorted by."""
    return ORDER.index(item.path.stem) if item.path.stem in ORDER else len(ORDER)


def is_heavy(nodeid: str) -> bool:
    return bool(HEAVY.search(nodeid.removeprefix("tests/clusters/")))


def in_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return *items* in their order, but with heavy ones spread evenly among the others, and none at the end."""
    heavy = [item for item in items if is_heavy(item.nodeid)]
    light = [item for item in items if not is_heavy(item.nodeid)]
    places = [(0.9 * number / len(heavy), item) for number, item in enumerate(heavy)]
    places += [(number / len(light), item) for number, item in enumerate(light)]
    return [item for _, item in sorted(places, key=lambda place: place[0])]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests by their ring, and bring them into an order in which several workers are done soon."""
    rings.mark(items)
    for item in items:
        if "horovod" in item.nodeid and not HAS_HOROVOD:
            item.add_marker(pytest.mark.skip(reason="Horovod is compiled: needs g++, or what CXX names"))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = in_turns(sorted(items, key=place_of))


@pytest.fixture(autouse=True)
def _few_at_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Wait for one of the places of heavy tests, which the workers share."""
    if "PYTEST_XDIST_WORKER" not in os.environ or not is_heavy(request.node.nodeid):
        yield
        return
    shared = tmp_path_factory.getbasetemp().parent
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context((shared / f"heavy-{n}").open("a")) for n in range(HEAVY_AT_ONCE)]
        wait_until(lambda: any(map(_is_taken, places)), "a place for a heavy test", WAIT_S)
        yield


def _is_taken(place: TextIO) -> bool:
    """Return whether *place* was free; then it is this process' until it is closed."""
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out groups. xdist 3.8 has `xdist_group` for it, which it writes where pytest 9.2 does not look."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - one test file alone runs without it

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)


# --- What tests share


@pytest.fixture(scope="session")
def checkout_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout that shares its environments."""
    path = tmp_path_factory.mktemp("checkout") / "my project"
    frameworks = [script.parent.name for script in CHECKOUT.glob("*/start-master.sh")]
    for folder in ("common", "scripts", *frameworks):
        shutil.copytree(CHECKOUT / folder, path / folder)
    for toy in ("gang", "plain"):
        shutil.copytree(Path(__file__).parent / toy, path / toy)
    # Processes there write none themselves: each would compile what it imports.
    compileall.compile_dir(path, quiet=2)
    (path / ".venv").symlink_to(CHECKOUT / ".venv")
    return path


@pytest.fixture
def project(checkout_copy: Path, tmp_path: Path) -> Iterator[Project]:
    """Return a project without clusters; whatever a test starts in it is ended."""
    project = Project(checkout_copy, tmp_path)
    yield project
    project.end_all()
    clusters = checkout_copy / ".clusters"
    if clusters.is_symlink():
        clusters.unlink()
    shutil.rmtree(clusters, ignore_errors=True)


@pytest.fixture(scope="session")
def toy_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return an engine that has the toy framework's image, ``plain:1``."""
    with engines.running(tmp_path_factory.mktemp("engine") / "e") as engine:
        build_toy_image(engine, tmp_path_factory.mktemp("image"), "plain:1", "plain")
        yield engine


@pytest.fixture
def launch_on_hosts(checkout_copy: Path, tmp_path: Path) -> Iterator[Launch]:
    """Return what :func:`launching` yields."""
    with launching(checkout_copy, tmp_path) as launch:
        yield launch


@pytest.fixture
def cloud(project: Project, tmp_path: Path) -> Iterator[Cloud]:
    """Return a project with a stand-in for OCI of its own."""
    directory = tmp_path / "oci"
    with Service(directory, start=warm.command("oci_service")) as service:
        yield Cloud(project, service)


@pytest.fixture(scope="module")
def proxied() -> Iterator[Callable[[Service], None]]:
    """Have the clients in this process use a service."""
    with pytest.MonkeyPatch.context() as patch:

        def use(service: Service) -> None:
            for name, value in service.environ.items():
                patch.setenv(name, value)

        yield use


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, proxied: Callable[[Service], None]) -> Iterator[User]:
    """Return somebody with an account at a stand-in for OCI, which the tests of a file share."""
    from oci_user import User  # noqa: PLC0415 - needs the SDK, as these tests alone do

    with Service(tmp_path_factory.mktemp("service") / "service", start=warm.command("oci_service")) as service:
        proxied(service)
        yield User(service)


@pytest.fixture
def user(shared: User) -> User:
    """Return the same, with a service as it is at first."""
    from oci_user import CONTROLS  # noqa: PLC0415 - needs the SDK, as these tests alone do

    shared.service.control(CONTROLS)
    return shared
