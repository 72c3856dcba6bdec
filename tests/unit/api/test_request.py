"""What the words of Cluster(...) are to the launcher."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from unit.api.conftest import Site

from oci_cluster.api import request as module
from oci_cluster.api.place import Place
from oci_cluster.api.request import asked as asked_at
from oci_cluster.api.request import line_of
from oci_cluster.errors import UsageError
from oci_cluster.launcher.launch.plan import Request


def asked(site: Site, backend: str = "local", own: dict[str, str] | None = None, **options: Any) -> Request:
    settings = {name: str(text) for name, text in options.get("settings", {}).items()}
    place = Place.of(backend, site.root, {**settings, **(own or {})}, None)
    return asked_at(line_of("plain", 2, options), settings, place, site.said.append)  # type: ignore[arg-type]


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


def test_a_list_of_packages_and_a_variable_that_is_no_secret_are_options_too(site: Site) -> None:
    """Of the name ARGS the arguments are none, which is no variable."""
    found = asked(site, packages=["pandas>=2,<3", "scipy"], env={"A": "1=2"}, env_plain={"B": "-x", "ARGS": ""})
    assert (found.packages, found.environment) == (("pandas>=2,<3", "scipy"), ["A=1=2", "B=-x"])
    assert found.plain == {"B", "ARGS"}
    assert asked(site, arguments=[]).arguments == []
    assert asked(site, wait_for_quota="5m").settings["WAIT_FOR_QUOTA"] == "5m"


def test_a_limit_of_0_is_an_option_too(site: Site) -> None:
    assert asked(site, ttl=0).settings == {"TTL": "0", "EPHEMERAL": "0"}


@pytest.mark.parametrize("name", ["arguments", "outputs", "packages"])
def test_a_text_where_a_list_belongs_is_refused(site: Site, name: str) -> None:
    """Else each of its letters would be a package, which an index of packages has."""
    with pytest.raises(UsageError, match=rf"{name}='pandas' is a text, and no list; write {name}=\[\.\.\.\]"):
        asked(site, **{name: "pandas"})


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
        asked_at(line_of("ray", 1, {}), {}, Place.of("local", site.root, {}, None), site.said.append)


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
