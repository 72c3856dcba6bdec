"""docs/from-ads.md names all that there is to move, and nothing under a name that it does not have."""

from __future__ import annotations

import re
from pathlib import Path

from oci_cluster.ads_migration import infrastructure, job, runtime
from oci_cluster.contract.settings import ads_names
from oci_cluster.contract.settings.schema import SETTINGS
from oci_cluster.contract.settings.settings_files import framework_defaults

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "from-ads.md").read_text()


def test_each_field_and_each_variable_is_there() -> None:
    names = {row.name for row in ads_names._NAMES} - {"kwargs"}
    options = {option for named in ads_names._OPTIONS.values() for option in named}
    fields = {
        *infrastructure._SAME,
        *infrastructure._TAKEN,
        *runtime._OF_FETCHED,
        *job.FIELDS,
        "entryPoint",
        "args",
        "kwargs",
        "env",
    }
    assert {name for name in {*names, *options, *fields} if not re.search(rf"[`.]{name}[`:]", PAGE)} == set()


def test_what_a_name_becomes_is_a_setting() -> None:
    own = {row.own for row in ads_names._NAMES if row.own}
    own |= {name for named in ads_names._OPTIONS.values() for name in named.values()}
    own |= set(infrastructure._SAME.values())
    known = set(SETTINGS)
    for path in ROOT.glob("*/start-master.sh"):
        known |= set(framework_defaults(path.parent))
    assert own <= known
