"""Which of the places that name a setting counts, and what of it reaches the nodes."""

from __future__ import annotations

import json
import re

import pytest
from unit.launcher.fake_checkout import Checkout

from oci_cluster.errors import UsageError


def test_flags_win_over_environment_over_config_over_framework(checkout: Checkout) -> None:
    """Of the four places that name a setting the strongest counts, for each setting by itself."""
    (checkout.root / "dask" / "settings.env").write_text("TTL=1\nTIMEOUT=1\nGRACE_PERIOD=1\nPOLL_CEILING=1\n")
    checkout.config("TTL=2", "TIMEOUT=2", "GRACE_PERIOD=2")
    environment = checkout.environment({"TTL": "3", "TIMEOUT": "3"}, settings={"TTL": "4"})
    zero = checkout.environment({"MIN_WORKERS": "0", "PS_COUNT": "1"}, settings={"PS_COUNT": "0"})
    assert (zero["MIN_WORKERS"], zero["PS_COUNT"]) == ("0", "0")
    picked = [environment[name] for name in ("TTL", "TIMEOUT", "GRACE_PERIOD", "POLL_CEILING")]
    assert picked == ["4", "3", "2", "1"]


def test_env_wins_over_all_that_is_passed_on(checkout: Checkout) -> None:
    """--env sets a variable on every node, over the same one of the environment, config.env and settings.env."""
    checkout.config("TIMEOUT=2")
    environment = checkout.environment(
        {"TIMEOUT": "3", "NPROCS": "3"}, environment=["TIMEOUT=5", "NPROCS=5", "X=a=b", "Y=", "Z=1", "Z=a\nb"]
    )
    assert {name: environment[name] for name in ("TIMEOUT", "NPROCS", "X", "Y", "Z")} == {
        "TIMEOUT": "5",
        "NPROCS": "5",
        "X": "a=b",
        "Y": "",
        "Z": "a\nb",
    }


@pytest.mark.parametrize(
    ("alias", "name"), [("TIME_OUT", "TIMEOUT"), ("OCI__TIMEOUT", "TIMEOUT"), ("LIFE_SPAN", "TTL")]
)
def test_other_names_reach_the_nodes_under_the_first(checkout: Checkout, alias: str, name: str) -> None:
    """A setting given by another name is passed on by the contract's first one."""
    environment = checkout.environment({alias: "7m"})
    assert (environment[name], alias in environment) == ("7m", False)


@pytest.mark.parametrize("alias", ["ENTRY_SCRIPT", "OCI__ENTRY_SCRIPT"])
def test_a_flag_wins_over_the_other_names_of_its_setting(checkout: Checkout, alias: str) -> None:
    """--entry counts where the environment has the setting under another name."""
    environment = checkout.environment({alias: "absent.py"}, settings={"ENTRY_POINT": "my script.py"})
    assert environment["ENTRY_POINT"] == "my script.py"


@pytest.mark.parametrize("alias", ["ENTRY_SCRIPT", "OCI__ENTRY_SCRIPT"])
def test_the_entry_point_is_found_under_its_other_names(checkout: Checkout, alias: str) -> None:
    """ENTRY_SCRIPT in the environment names the script as ENTRY_POINT does."""
    assert checkout.environment({alias: "my script.py"})["ENTRY_POINT"] == "my script.py"


def test_the_environment_wins_over_config_under_any_name(checkout: Checkout) -> None:
    """TIME_OUT of the environment wins over TIMEOUT of config.env, as TIMEOUT does."""
    checkout.config("TIMEOUT=2")
    assert checkout.environment({"TIME_OUT": "3"})["TIMEOUT"] == "3"


def test_an_empty_variable_does_not_hide_configuration(checkout: Checkout) -> None:
    """An empty value counts as not given: config.env fills it in."""
    checkout.config("TTL=2h")
    assert checkout.environment({"TTL": ""})["TTL"] == "2h"


def test_the_frameworks_own_settings_are_passed_on(checkout: Checkout) -> None:
    """What the framework declares comes from environment or config.env to the nodes, its defaults stay its own."""
    checkout.config("DASHBOARD_PORT=9000")
    environment = checkout.environment({"NPROCS": "4"})
    assert (environment["NPROCS"], environment["DASHBOARD_PORT"], "SCHEDULER_PORT" in environment) == (
        "4",
        "9000",
        False,
    )


def test_settings_of_gangs_are_passed_on(checkout: Checkout) -> None:
    """What launch.sh was told of them reaches every node; what it was not told, the agents' defaults decide."""
    given = {"MAX_RESTARTS": "3", "ENTRY_ON": "all", "GANG": "1", "FIND_INTERFACE": "1"}
    environment = checkout.environment(given)
    assert {name: environment[name] for name in given} == given
    assert not set(given) & set(checkout.environment())


@pytest.mark.parametrize("as_option", [False, True])
def test_the_fewest_nodes_are_translated_into_workers(checkout: Checkout, *, as_option: bool) -> None:
    """At the door: nodes know of workers alone, however it was given."""
    given = {"MIN_NODES": "2"}
    words = [f"{name}={text}" for name, text in given.items()]
    plan = checkout.plan({}, environment=words) if as_option else checkout.plan(given)
    assert plan.environment["MIN_WORKERS"] == "1"
    assert "MIN_NODES" not in plan.environment
    assert plan.limits.min_workers == 1


def test_nothing_else_of_the_environment_reaches_the_nodes(checkout: Checkout) -> None:
    """LD_PRELOAD in config.env or in the launcher's environment gets nowhere into the plan."""
    checkout.config("LD_PRELOAD=/evil.so", "MODE=PS", "LAUNCH_ID=evil")
    plan = checkout.plan({"LD_PRELOAD": "/evil.so", "NODE_RANK": "evil", "AWS_SECRET_ACCESS_KEY": "evil"})
    assert re.findall("evil|LD_PRELOAD|AWS", json.dumps(plan.to_json())) == []


def test_the_work_dir_is_the_launchers_to_choose(checkout: Checkout) -> None:
    """WORK_DIR is kept for the backend, under its other name too."""
    assert checkout.plan({"OCI__WORK_DIR": "oci://b@n/w"}).work_dir == "oci://b@n/w"


@pytest.mark.parametrize("environ", [{}, {"ENTRY_POINT": "my script.py"}])
def test_a_cluster_that_is_kept_has_no_entry_point(checkout: Checkout, environ: dict[str, str]) -> None:
    """With EPHEMERAL=0 nodes are told so and get no entry point, also where the environment has one."""
    environment = checkout.environment(environ, settings={"EPHEMERAL": "no"})
    assert (environment["EPHEMERAL"], environment["ENTRY_POINT"]) == ("0", "")


def test_an_entry_point_for_a_cluster_that_is_kept_is_a_contradiction(checkout: Checkout) -> None:
    """--keep --entry: what was typed is not silently left out."""
    with pytest.raises(UsageError, match=r"--entry 'my script.py' would not be run"):
        checkout.plan(settings={"ENTRY_POINT": "my script.py", "EPHEMERAL": "0"})
