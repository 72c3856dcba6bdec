"""What all nodes of a launch on OCI are given: nobody is asked, so everything here is what the function returns."""

from __future__ import annotations

import pytest
from unit.fake_oci import Checkout, with_environment

from oci_cluster.backends.oci.jobs import requests as oci_requests
from oci_cluster.errors import SettingsError


def test_nodes_are_given_the_plans_environment_and_where_things_are(checkout: Checkout) -> None:
    """Not the launcher's own folder of code: the nodes have that elsewhere."""
    plan = checkout.plan(NODE_LOGS="0")
    environment = oci_requests.node_environment(plan, code_uri="U", subnet_cidr="C")
    expected = {key: text for key, text in plan.environment.items() if key != "CODE_DIR"}
    assert "CODE_DIR" in plan.environment
    assert environment == {
        **expected, "CODE_URI": "U", "SUBNET_CIDR": "C", "WORK_DIR": "oci://bucket@ns/work", "NODE_LOGS": "0",
    }  # fmt: skip


def test_what_there_is_none_of_is_not_given(checkout: Checkout) -> None:
    """An image's own code needs no address; without a subnet there are no addresses to choose from."""
    environment = oci_requests.node_environment(checkout.plan(), code_uri="", subnet_cidr="")
    assert not {"CODE_URI", "SUBNET_CIDR"} & set(environment)


def test_an_environment_that_is_too_large_is_refused_before_the_service_does(checkout: Checkout) -> None:
    """The service takes 20,000 characters; the longest variable is named, and what to do."""
    plan = checkout.plan()
    oci_requests.node_environment(plan, code_uri="", subnet_cidr="")
    plan = with_environment(plan, BIG="x" * 19_900)
    with pytest.raises(SettingsError) as caught:
        oci_requests.node_environment(plan, code_uri="", subnet_cidr="")
    assert "20000 at most; BIG is the longest: put what it holds into a file of your code" in str(caught.value)


def test_an_environment_that_just_fits_is_taken(checkout: Checkout) -> None:
    """The limit itself is allowed, one character more is not."""
    plan = checkout.plan()
    given = oci_requests.node_environment(plan, code_uri="", subnet_cidr="")
    left = 20_000 - 100 - sum(len(name) + len(text) for name, text in given.items())
    plan = with_environment(plan, BIG="x" * (left - 3))
    oci_requests.node_environment(plan, code_uri="", subnet_cidr="")
    plan = with_environment(plan, BIG="x" * (left - 2))
    with pytest.raises(SettingsError, match="20001 characters"):
        oci_requests.node_environment(plan, code_uri="", subnet_cidr="")
