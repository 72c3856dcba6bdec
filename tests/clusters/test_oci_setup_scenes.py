"""``setup.sh`` where it begins with something, then ``check.sh`` and ``launch.sh``: the scripts as people run them.

More beginnings, in one process: tests/unit/backends/oci/test_setup_scenes.py.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from empty_tenancy import FIND, Tenancy, empty_tenancy
from harness import PATIENCE_S
from oci_cloud import environment_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

IMAGE = "iad.ocir.io/stand-in/training/dask:1"


def half_made(tenancy: Tenancy) -> str:
    """Have groups named in other capitals, a rule in another order, a repository in the root, a bucket elsewhere."""
    rule = f"All {{resource.compartment.id='{tenancy.values['COMPARTMENT_OCID']}', resource.type='datasciencejobrun'}}"
    tenancy.as_administrator(
        "oci iam group create --name Data-Scientists --description theirs",
        f'oci iam dynamic-group create --name Cluster-Runs --description theirs --matching-rule "{rule}"',
        'oci artifacts container repository create --compartment-id "$tenancy" --display-name training/dask',
        f"oci os bucket create --compartment-id {tenancy.network} --name clusters",
    )
    return "Data-Scientists"


def test_where_half_is_there_setup_leads_to_a_launch(checkout_copy: Path, tmp_path: Path) -> None:
    """Of a check nothing is left but the service limit, which OCI does not tell; nothing is denied."""
    with empty_tenancy(checkout_copy, tmp_path) as tenancy:
        group = half_made(tenancy)
        printed = tenancy.setup("dask", "--apply")
        tenancy.values |= dict(re.findall(r"^(LOG_\w+)=(ocid1\.log\S+)$", printed, re.MULTILINE))
        tenancy.configure()
        assert tenancy.setup("dask", "--apply") == "= nothing is missing\n"
        add = f'oci iam group add-user --group-id "$found" --user-id {tenancy.user}'
        tenancy.as_administrator(FIND.format("group", group), add)
        tenancy.service.push(tenancy.user, IMAGE, about := tenancy.image(environment_of(tenancy.project, "dask")))
        tenancy.service.control({"images": {IMAGE: about}})
        done = tenancy.project.run("check", "dask", "3", "--json", **tenancy.administrator.environ, IMAGE=IMAGE)
        found = json.loads(done.stdout)["findings"]
        assert (done.returncode, {one["item"] for one in found if one["verdict"] != "fine"}) == (0, {"service limit"})
        before = len(tenancy.service.denials())
        entry = tenancy.project.write("hello.py", "print('hello')\n")
        launch = tenancy.project.launch("dask", "3", "--entry", entry, **tenancy.environ, IMAGE=IMAGE)
        assert launch.wait(PATIENCE_S) == 0, launch.err
        assert tenancy.service.denials()[before:] == []
