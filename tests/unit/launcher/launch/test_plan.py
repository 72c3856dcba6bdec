"""What a plan holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from unit.launcher.fake_checkout import Checkout, refusal

from oci_cluster import __version__
from oci_cluster.contract.cluster import Limits
from oci_cluster.errors import SettingsError

# --- The whole ------------------------------------------------------------------------------------------------------


def test_a_plan_holds_all_that_will_be_launched(checkout: Checkout) -> None:
    """With nothing given, the framework's example runs on main and the workers that were asked for."""
    assert checkout.plan().to_json() == {
        "schema": 1,
        "launch_id": "1f2e3d4c",
        "cluster_id": "dask-1f2e-1f2e3d4c",
        "name": "dask-1f2e",
        "framework": "dask",
        "backend": "local",
        "created": "2026-01-02T03:04:05Z",
        "work_dir": "",
        "python": "",
        "project": "my project",
        "code_dir": str(checkout.root / "dask" / "example"),
        "code_uri": "",
        "settings": {},
        "environment": {
            "MIN_WORKERS": "1",
            "FRAMEWORK": "dask",
            "LAUNCH_ID": "1f2e3d4c",
            "LAUNCH_KEY": "1f2e3d4c" * 8,
            "LAUNCHER_VERSION": __version__,
            "CLUSTER_ID": "dask-1f2e-1f2e3d4c",
            "CLUSTER_NAME": "dask-1f2e",
            "WORKER_COUNT": "2",
            "PS_COUNT": "0",
            "EPHEMERAL": "1",
            "ENTRY_POINT": "train.py",
            "ARGS": "[]",
            "CODE_DIR": str(checkout.root / "dask" / "example"),
        },
        "nodes": [
            {"node": "MAIN", "environment": {"MODE": "MAIN", "NODE_RANK": "0"}},
            {"node": "WORKER_1", "environment": {"MODE": "WORKER", "NODE_RANK": "1"}},
            {"node": "WORKER_2", "environment": {"MODE": "WORKER", "NODE_RANK": "2"}},
        ],
    }


def test_a_plan_can_be_written_as_json(checkout: Checkout) -> None:
    """The plan is what cluster.json will hold: JSON gives it back unchanged."""
    plan = checkout.plan(arguments=["a b", "ü"]).to_json()
    assert json.loads(json.dumps(plan)) == plan


def test_each_launch_has_an_id_and_a_key_of_its_own(tmp_path: Path) -> None:
    """Two plans never share them: files of one launch are not taken for the other's."""
    checkout = Checkout(tmp_path)
    first, second = (checkout.plan() for _ in range(2))
    for one, other, form in (
        (first.launch_id, second.launch_id, "[0-9a-f]{8}"),
        (first.launch_key, second.launch_key, "[0-9a-f]{64}"),
    ):
        assert one != other
        assert re.fullmatch(form, one)


def test_parameter_servers_follow_the_workers(checkout: Checkout) -> None:
    """PS_COUNT adds nodes whose ranks come after the workers'."""
    nodes = checkout.plan({"PS_COUNT": "2"}, workers="1").nodes
    assert [(node.name, node.environment) for node in nodes] == [
        ("MAIN", {"MODE": "MAIN", "NODE_RANK": "0"}),
        ("WORKER_1", {"MODE": "WORKER", "NODE_RANK": "1"}),
        ("PS_2", {"MODE": "PS", "NODE_RANK": "2"}),
        ("PS_3", {"MODE": "PS", "NODE_RANK": "3"}),
    ]


def test_a_slash_from_completion_is_taken_off(checkout: Checkout) -> None:
    """Tab completion turns dask into dask/, which is the same framework."""
    plan = checkout.plan(framework="dask/")
    assert (plan.framework, plan.environment["FRAMEWORK"]) == ("dask", "dask")


def test_arguments_reach_the_plan_exactly(checkout: Checkout) -> None:
    """What stood after -- is kept word by word, quotes, blanks, dashes and empty words included."""
    arguments = ["a", "b c", "d'e", "", "--entry", "$HOME", "x\ny"]
    assert json.loads(checkout.environment(arguments=arguments)["ARGS"]) == arguments


def test_arguments_on_the_command_line_win_over_args(checkout: Checkout) -> None:
    """Words after -- replace ARGS, under its other name too, and no words at all (a bare --) mean none."""
    given = {"ARGS": "from environment", "OCI__ENTRY_SCRIPT_ARGS": "older"}
    assert [checkout.environment(given, arguments=words)["ARGS"] for words in (["x"], [])] == ['["x"]', "[]"]


def test_args_of_the_environment_are_made_plain(checkout: Checkout) -> None:
    """ARGS in either form reaches the nodes as a JSON list."""
    assert checkout.environment({"ARGS": "a 'b c'"})["ARGS"] == '["a", "b c"]'


# --- What the launcher obeys, too -----------------------------------------------------------------------------------


def test_durations_are_seconds_for_the_launcher(checkout: Checkout) -> None:
    """What nodes read as text is parsed once; the framework's defaults count, then the contract's own."""
    given = {"TTL": "2h", "TIMEOUT": "5m", "GRACE_PERIOD": "90s", "HEARTBEAT_TIMEOUT": "2m"}
    assert checkout.plan(given).limits == Limits(
        min_workers=1,
        workers_to_begin=1,
        timeout_s=300.0,
        ttl_s=7200.0,
        grace_period_s=90.0,
        heartbeat_timeout_s=120.0,
        ports={"SCHEDULER_PORT": 8786, "DASHBOARD_PORT": 8787},
    )
    (checkout.root / "dask" / "settings.env").write_text("GRACE_PERIOD=3\n")
    limits = checkout.plan().limits
    assert (limits.grace_period_s, limits.timeout_s, limits.ttl_s) == (3.0, 600.0, 0.0)


@pytest.mark.parametrize("setting", ["GANG", "WAIT_FOR_ADDRESSES"])
def test_where_main_waits_for_every_address_all_are_needed_to_begin(checkout: Checkout, setting: str) -> None:
    """Fewer could never become ready, however few may be left later."""
    limits = checkout.plan({setting: "1"}, workers="3").limits
    assert (limits.min_workers, limits.workers_to_begin) == (1, 3)


# --- Ports and secrets ----------------------------------------------------------------------------------------------


def test_ports_are_the_frameworks_single_ones(checkout: Checkout) -> None:
    """Every *_PORT that the framework declares is one, as set for this launch or by default; ranges are none."""
    plan = checkout.plan({"DASHBOARD_PORT": "9000"}, environment=["OTHER_PORT=1"])
    assert plan.limits.ports == {"SCHEDULER_PORT": 8786, "DASHBOARD_PORT": 9000}
    assert set(plan.limits.ports) - plan.chosen == {"SCHEDULER_PORT"}


@pytest.mark.parametrize("where", ["--env", "environment", "config.env"])
def test_a_port_that_somebody_has_chosen_is_no_default(checkout: Checkout, where: str) -> None:
    """Though it is the same number: who names it wants this one."""
    if where == "config.env":
        (checkout.root / "config.env").write_text("SCHEDULER_PORT=8786\n")
    given = {"SCHEDULER_PORT": "8786"} if where == "environment" else {}
    plan = checkout.plan(given, environment=["SCHEDULER_PORT=8786"] if where == "--env" else [])
    assert set(plan.limits.ports) - plan.chosen == {"DASHBOARD_PORT"}


@pytest.mark.parametrize("text", ["0", "65536", "http", "-1"])
def test_what_is_no_port_is_named(checkout: Checkout, text: str) -> None:
    """A port out of range is a wrong setting, named with its limits."""
    said = refusal(SettingsError, checkout, environment=[f"SCHEDULER_PORT={text}"])
    assert said == f"SCHEDULER_PORT: '{text}' is not a whole number from 1 to 65535"


# --- What a backend needs -------------------------------------------------------------------------------------------


def test_a_backends_own_settings_are_in_the_plan(checkout: Checkout) -> None:
    """Those that its file lists, and no others: flags, environment and config.env win over the file."""
    folder = checkout.root / "scripts" / "backends"
    folder.mkdir(parents=True)
    (folder / "cloud.env").write_text("SHAPE=small\nIMAGE=\nREGION=here\n")
    checkout.config("SHAPE=large", "REGION=there", "OTHER=x")
    plan = checkout.plan({"REGION": "elsewhere", "CODE_URI": "image"}, backend="cloud")
    assert plan.settings == {"SHAPE": "large", "IMAGE": "", "REGION": "elsewhere"}
    assert plan.code_uri == "image"
    assert "SHAPE" not in plan.environment


def test_a_kept_cluster_has_code_only_where_some_is_named(checkout: Checkout) -> None:
    """Without an entry point there is nothing to send, unless a folder was asked for."""
    assert checkout.plan({"EPHEMERAL": "0"}).code_dir == ""
    assert checkout.plan({"EPHEMERAL": "0", "CODE_DIR": str(checkout.cwd)}).code_dir == str(checkout.cwd)


def test_a_name_of_a_checkout_fits_a_tag(checkout: Checkout) -> None:
    """100 characters at most."""
    checkout.root = checkout.root.rename(checkout.root.parent / ("p" * 200))
    assert checkout.plan().project == "p" * 100
