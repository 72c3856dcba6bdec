"""A real Kubernetes: one for all tests of a run, a namespace for each; tests that harm the cluster have their own."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import engine as engines
import pytest
import rings
from harness import wait_until
from kube import images
from kube.cluster import Cluster, User, why_not
from kube.faults import FaultyProxy
from kube.launches import Site, copy_checkout, site_for

WHY_NOT = why_not()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests by their ring, and leave out what cannot run here; with CI=true that is a failure."""
    rings.mark(items)
    for item in items:
        if WHY_NOT:
            item.add_marker(pytest.mark.skip(reason=f"a Kubernetes: {WHY_NOT}"))


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that all workers of a run have."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def kubernetes(shared_directory: Path) -> Iterator[Cluster]:
    """Return a Kubernetes with Kueue and two nodes, which all workers share; it ends after the last of them."""
    with Cluster(shared_directory / "k") as cluster:
        cluster.do("import_image", archive=str(images.debian_archive(images.KEPT)))
        yield cluster


@pytest.fixture
def own_kubernetes(tmp_path: Path) -> Iterator[Cluster]:
    """Return a Kubernetes of the test's own, to be harmed."""
    with Cluster(tmp_path / "k") as cluster:
        cluster.do("import_image", archive=str(images.debian_archive(images.KEPT)))
        yield cluster


@pytest.fixture
def namespace(kubernetes: Cluster) -> Iterator[str]:
    """Return a new namespace under Pod Security `restricted`; at the end nothing may be left in it."""
    with kubernetes.namespace() as name:
        yield name
        wait_until(lambda: not kubernetes.left_in(name), lambda: f"nothing to be left: {kubernetes.left_in(name)}")


@pytest.fixture
def user(kubernetes: Cluster, namespace: str) -> User:
    """Return somebody with the ClusterRole `edit` in the namespace, and nothing else."""
    return kubernetes.user(namespace)


@pytest.fixture
def proxy(kubernetes: Cluster) -> Iterator[FaultyProxy]:
    """Return a proxy before the API server, which misbehaves when it is told to."""
    with FaultyProxy(kubernetes.server, kubernetes.authority) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def toy_image(kubernetes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name of an image of the frameworks of tests, which is on all nodes."""
    if reason := engines.why_not():
        pytest.skip(f"an engine, which builds images: {reason}")
    archive = images.toy_archive(images.KEPT, tmp_path_factory.mktemp("engine") / "e")
    kubernetes.do("import_image", archive=str(archive))
    return images.TOY


@pytest.fixture(scope="session")
def product_image(kubernetes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return what makes the image of a framework, as `make build` does: its name, when it is on all nodes."""
    if reason := engines.why_not():
        pytest.skip(f"an engine, which builds images: {reason}")

    @functools.cache  # both nodes unpack gigabytes
    def make(framework: str) -> str:
        place = tmp_path_factory.mktemp(framework)
        name, archive = images.product_archive(images.KEPT, place, framework)
        kubernetes.do("import_image", archive=str(archive))
        return name

    return make


@pytest.fixture(scope="session")
def checkout_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout with the frameworks of tests."""
    return copy_checkout(tmp_path_factory.mktemp("checkout") / "my project")


@pytest.fixture(scope="session")
def other_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return another such copy."""
    return copy_checkout(tmp_path_factory.mktemp("other") / "another project")


@pytest.fixture
def site(checkout_copy: Path, toy_image: str, user: User, tmp_path: Path) -> Iterator[Site]:
    """Return a project whose nodes are pods in the namespace of *user*."""
    with site_for(checkout_copy, tmp_path / "mine", user) as site:
        yield site


@pytest.fixture
def other_site(other_checkout: Path, user: User, tmp_path: Path) -> Iterator[Site]:
    """Return the same from another checkout, which knows nothing of the first."""
    checkout = other_checkout
    with site_for(checkout, tmp_path / "other", user) as site:
        yield site


@pytest.fixture
def site_behind(checkout_copy: Path, toy_image: str, user: User, proxy: FaultyProxy, tmp_path: Path) -> Iterator[Site]:
    """Return a project that reaches the API through the proxy."""
    with site_for(checkout_copy, tmp_path / "behind", user, proxy.url) as site:
        yield site
