"""Which quotas are about a limit, and how a statement names the compartment that it is about."""

from __future__ import annotations

from typing import Any

import pytest
from unit.backends.oci.answers import ROOT, Answers, item, unseen

from oci_cluster.backends.oci.quotas import is_about, place_of
from oci_cluster.backends.oci.tenancy import Tenancy


@pytest.mark.parametrize(
    ("compartments", "jobs", "place"),
    [
        ({"in": ("Inner", "out"), "out": ("Outer", ROOT)}, "in", "compartment outer:inner"),
        ({"in": ("Inner", "out")}, "in", "compartment <its path from the tenancy>"),
        ({}, ROOT, "tenancy"),
        ({}, "", "compartment <its path from the tenancy>"),
    ],
)
def test_a_statement_names_a_compartment_by_its_path(
    compartments: dict[str, tuple[str, str]], jobs: str, place: str
) -> None:
    def compartment(ocid: str) -> Any:
        name, parent = compartments.get(ocid, ("", ""))
        return item(name=name, compartment_id=parent) if name else unseen()

    assert place_of(Tenancy(Answers(get_compartment=compartment), {"COMPARTMENT_OCID": jobs})) == place


@pytest.mark.parametrize(
    ("statement", "is_about_it"),
    [
        ("set data-science quota ds-gpu-a10-count to 4 in compartment x", True),
        (" Zero data-science quotas in tenancy", True),
        ("unset data-science quota ds-gpu-a10-count in compartment x where request.region = 'r'", True),
        ("set data-science quota /ds-gpu-*/ to 0 in tenancy", True),
        ("set data-science quota ds-gpu-* to 0 in tenancy", True),
        ("set data-science quota ds-gpu4-count to 4 in compartment x", False),
        ("zero compute-core quotas in tenancy", False),
        ("allow group x to read metrics in tenancy", False),
    ],
)
def test_a_quota_is_about_a_limit_that_it_names_or_about_all(statement: str, *, is_about_it: bool) -> None:
    assert is_about(statement, "ds-gpu-a10-count") is is_about_it
