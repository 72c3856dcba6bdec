"""Places where nodes can run: each starts, shows and ends nodes, and decides nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oci_cluster.backends.base import Backend, IsStopped
    from oci_cluster.backends.findings import Checked, Finding
    from oci_cluster.contract.cluster import Plan
    from oci_cluster.system.console import Say


def known_backends() -> list[str]:
    """Return the names of all backends: each is a package beside this module."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/backend.py"))


def open_backend(
    name: str,
    root: Path,
    given: Mapping[str, str],
    is_stopped: IsStopped = lambda: False,
    *,
    is_looking: bool = False,
) -> Backend:
    """Return the backend *name* for the checkout *root*, importing it and no other.

    Args:
        name: One of :func:`known_backends`.
        root: The checkout.
        given: Settings: environment and ``config.env``.
        is_stopped: Whether the launcher has been told to stop.
        is_looking: Whether nothing is to be changed: who waits for an answer gives up soon, and asks again.
    """
    module = importlib.import_module(f"oci_cluster.backends.{name}.backend")
    backend: Backend = module.open_backend(root, given, is_stopped, is_looking=is_looking)
    return backend


def with_placeholder(plan: Plan, root: Path, given: Mapping[str, str]) -> Plan:
    """Return *plan*, with a name for its image where none was pushed."""
    from dataclasses import replace  # noqa: PLC0415 - TAB asks for the names alone

    from oci_cluster.images.records import placeholder, pushed_image  # noqa: PLC0415 - of a look alone

    if "IMAGE" not in plan.settings or pushed_image(plan.settings["IMAGE"], plan.framework, root):
        return plan
    image = placeholder(plan.framework, given.get("REGISTRY", ""))
    return replace(plan, settings={**plan.settings, "IMAGE": image})


def check_of(name: str) -> Callable[[Checked, Say], Iterator[Finding]]:
    """Return the check of launches on the backend *name*, importing it and no other.

    It yields a finding as soon as it has one, and is told whom to tell what is waited for. What the other side answers
    is a finding, too, and no error.
    """
    module = importlib.import_module(f"oci_cluster.backends.{name}.check")
    findings: Callable[[Checked, Say], Iterator[Finding]] = module.findings
    return findings
