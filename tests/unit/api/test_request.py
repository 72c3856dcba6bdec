"""What the words of Cluster(...) are to the launcher."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from unit.api.conftest import Site

from oci_cluster.api import request as module
from oci_cluster.api.options import Options, PlaceOptions
from oci_cluster.api.place import Place
from oci_cluster.api.request import Wanted, request_of
from oci_cluster.errors import UsageError
from oci_cluster.launcher.planning import Request


def asked(site: Site, backend: str = "local", own: dict[str, str] | None = None, **options: Any) -> Request:
    settings = {name: str(text) for name, text in options.get("settings", {}).items()}
    wanted = Wanted.of("plain", 2, options)
    return request_of(wanted, Place.of(backend, site.root, {**settings, **(own or {})}, None), site.said.append)


def test_options_are_the_flags_of_the_script(site: Site) -> None:
    found = asked(
        site,
        entry="train.py",
        arguments=["a", 1],
        code=site.root,
        outputs=["runs", "models"],
        name="mine",
        ps=1,
        ttl="2h",
        env={"ROUNDS": 5},
        python="/usr/bin/python3",
        settings={"NPROCS": 2},
    )
    assert found == Request(
        framework="plain",
        workers="2",
        backend="local",
        settings={
            "NPROCS": "2",
            "ENTRY_POINT": "train.py",
            "CODE_DIR": str(site.root),
            "OUTPUT_FOLDERS": "runs,models",
            "CLUSTER_NAME": "mine",
            "PS_COUNT": "1",
            "TTL": "2h",
        },
        environment=["ROUNDS=5"],
        arguments=["a", "1"],
        python="/usr/bin/python3",
    )


def test_every_option_that_is_told_is_one_and_the_other_way_round() -> None:
    """What help shows is what is taken."""
    wanted = {field.name for field in fields(Wanted)} - {"framework", "workers"}
    assert set(get_type_hints(Options)) - set(get_type_hints(PlaceOptions)) == (wanted | {"keep"}) - {"settings"}


def test_without_an_entry_point_a_cluster_stays(site: Site) -> None:
    assert asked(site).settings == {"EPHEMERAL": "0"}
    assert asked(site, module="package.train").settings == {"ENTRY_MODULE": "package.train"}


def test_a_plan_gets_no_secret_of_who_asks(site: Site) -> None:
    """What names the place does."""
    own = {"kubernetes.token": "s3cret", "NAMESPACE": "team"}
    assert asked(site, backend="kubernetes", own=own).settings == {"NAMESPACE": "team", "EPHEMERAL": "0"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("CLUSTER_NAME", "settings: CLUSTER_NAME has an argument of its own"),
        ("LAUNCH_ID", "settings: LAUNCH_ID is decided by the launch itself"),
        ("ROUNDS", "settings: ROUNDS is no setting of plain on local; a variable of the nodes is given with env="),
    ],
)
def test_a_setting_that_is_none_is_refused(site: Site, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked(site, settings={name: "1"})


def test_a_framework_that_is_none_is_refused(site: Site) -> None:
    with pytest.raises(UsageError, match="unknown framework 'ray'; this checkout has: plain"):
        request_of(Wanted("ray", 1), Place.of("local", site.root, {}, None), site.said.append)


def test_nodes_of_this_machine_have_this_programs_python_where_it_can_be(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the framework's packages, nothing is to be added, and a notebook has what runs it."""
    settings = site.root / "plain" / "settings.env"
    settings.write_text(settings.read_text() + "REQUIRED_PACKAGES=pytest\n")
    assert asked(site).python == sys.executable
    assert site.said == [f"nodes run in the Python of this program, {sys.executable}"]
    assert asked(site, packages=["pandas"]).python == ""
    assert asked(site, settings={"EXTRA_ENV": "my.yaml"}).python == ""
    assert asked(site, backend="docker").python == ""
    monkeypatch.setattr(module, "missing_here", lambda packages: [name for name in packages if name != "pytest"])
    assert asked(site, entry="a.ipynb").python == ""
    settings.write_text(settings.read_text() + "REQUIRED_PACKAGES=torch\n")
    assert asked(site).python == ""
