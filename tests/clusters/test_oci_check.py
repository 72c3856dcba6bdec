"""``check.sh`` on a tenancy of the stand-in: nothing where all is right, each planted fault, and what mends it.

A mend is applied as it was printed: a command is run, a setting is written, a statement is added, and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from empty_tenancy import empty_tenancy
from oci_checks import Checks, failed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")


@pytest.fixture(scope="module")
def made(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checks]:
    with empty_tenancy(checkout_copy, tmp_path_factory.mktemp("check")) as tenancy:
        yield Checks(tenancy)


@pytest.fixture
def checks(made: Checks) -> Checks:
    made.begin()
    return made


# --- All is right ---------------------------------------------------------------------------------------------------


def test_nothing_is_found_where_all_is_right(checks: Checks) -> None:
    """And nothing is left of the probe, or changed."""
    before = checks.tenancy.count()
    code, found = checks.check()
    assert [one for one in found if one["verdict"] != "fine"] == []
    assert code == 0
    assert checks.tenancy.changes(before) == ["object_storage.put_object", "object_storage.delete_object"]
    assert checks.tenancy.service.objects("team-a/work/") == []


def test_who_may_not_read_policies_is_told_what_was_not_seen(checks: Checks) -> None:
    code, found = checks.check(checks.tenancy.reader.environ)
    assert failed(found) == {}
    assert code == 3
    unseen = {one["item"]: one["text"] for one in found if one["verdict"] == "unknown"}
    assert "setup.sh dask --print tells your administrator" in unseen["policies"]
    assert "all {resource.type = 'datasciencejobrun', resource.compartment.id = " in unseen["dynamic group"]
    assert {"bucket", "compartment", "project", "subnet", "route", "security rules", "log group"} <= {
        one["item"] for one in found if one["verdict"] == "fine"
    }


# --- Settings that name what is not there ---------------------------------------------------------------------------


def test_wrong_places_are_named(checks: Checks) -> None:
    """A bucket, a project, a log group, a bastion and a CIDR that are none of this tenancy's, and its namespace."""
    wrong = {
        "PROJECT_OCID": "ocid1.datascienceproject.oc1.iad.none",
        "LOG_GROUP_OCID": "ocid1.loggroup.oc1.iad.none",
        "BASTION_ID": "ocid1.bastion.oc1.iad.none",
        "SUBNET_CIDR": "10.1.0.0/20",
        "WORK_DIR": "oci://others@stand-in/team-a/work",
    }
    checks.settings |= wrong
    _, found = checks.check()
    assert set(failed(found)) == {"project", "log group", "bastion", "SUBNET_CIDR", "bucket"}
    checks.until_fine(found)
    assert checks.settings["PROJECT_OCID"] == checks.right["PROJECT_OCID"]
    assert checks.settings["WORK_DIR"] == "oci://clusters@stand-in/team-a/work"
