"""What is wrong with a launch is told before anything starts."""

from __future__ import annotations

import pytest
from unit.launcher.fake_checkout import HINT, Checkout, refusal

from oci_cluster.errors import ClusterError, SettingsError, UsageError


@pytest.mark.parametrize("workers", ["-1", "abc", "251", "1000000", "3.0", ""])
def test_a_wrong_number_of_workers_is_wrong_usage(checkout: Checkout, workers: str) -> None:
    """The number, the backend's limit and a number that works are in one line (2)."""
    assert refusal(UsageError, checkout, workers=workers) == (
        f"workers: '{workers}' is not a whole number from 0 to 250, which is what the local backend takes; try 3"
    )


@pytest.mark.parametrize("workers", ["0", "250"])
def test_the_limits_of_a_backend_are_allowed(checkout: Checkout, workers: str) -> None:
    """One worker, and as many as the backend takes, are right."""
    assert checkout.environment(workers=workers)["WORKER_COUNT"] == workers


@pytest.mark.parametrize("name", ["spark", "../dask"])
def test_an_unknown_framework_is_wrong_usage(checkout: Checkout, name: str) -> None:
    """An unknown framework is named with those that there are (2)."""
    assert refusal(UsageError, checkout, framework=name) == f"unknown framework '{name}'; this checkout has: dask"


@pytest.mark.parametrize("pair", ["X", "=1", "1X=1", "A-B=1", "A B=1", ""])
def test_an_env_that_is_no_pair_is_wrong_usage(checkout: Checkout, pair: str) -> None:
    """--env wants NAME=VALUE with a name that a shell can have."""
    shown = pair.replace("=1", "=...")  # the value may be a secret
    assert refusal(UsageError, checkout, environment=[pair]) == f"--env '{shown}' is not NAME=VALUE"


@pytest.mark.parametrize(
    "name", ["MODE", "NODE_RANK", "WORKER_COUNT", "LAUNCH_ID", "CLUSTER_ID", "FRAMEWORK", "NODE_ADDRESS"]
)
def test_what_a_launch_decides_cannot_be_set(checkout: Checkout, name: str) -> None:
    """--env cannot change what makes a node this node of this launch."""
    assert refusal(UsageError, checkout, environment=[f"{name}=x"]) == (
        f"--env {name} is decided by the launch itself; leave it out"
    )


def test_what_has_a_flag_is_given_by_it(checkout: Checkout) -> None:
    said = refusal(UsageError, checkout, environment=["CODE_DIR=x"])
    assert said == "--env CODE_DIR is not accepted; use --code instead"


@pytest.mark.parametrize(
    "pair", ["EPHEMERAL=0", "ENTRY_POINT=x.py", "CODE_DIR=/x", "PS_COUNT=1", "CLUSTER_NAME=x", 'ARGS=["x"]']
)
def test_an_env_is_never_dropped_silently(checkout: Checkout, pair: str) -> None:
    """An --env either reaches the nodes as it was given, or is refused."""
    try:
        environment = checkout.environment(environment=[pair])
    except UsageError:
        return
    name, _, value = pair.partition("=")
    assert environment[name] == value


def test_a_bad_env_is_refused_before_anything_starts(checkout: Checkout) -> None:
    """A setting that --env gives is checked as one from anywhere else."""
    with pytest.raises(ClusterError, match="TTL"):
        checkout.plan(environment=["TTL=soon"])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"TTL": "soon"},
            "--ttl: 'soon' is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h",
        ),
        ({"PS_COUNT": "some"}, "--ps: 'some' is not a whole number from 0 to 1000000"),
        ({"PS_COUNT": "-1"}, "--ps: '-1' is not a whole number from 0 to 1000000"),
        ({"CLUSTER_NAME": "a/b"}, "--name: 'a/b' is not a name of letters, digits and . _ - (100 at most)"),
        ({"CLUSTER_NAME": "-rf"}, "--name: '-rf' is not a name of letters, digits and . _ - (100 at most)"),
    ],
)
def test_a_bad_flag_is_wrong_usage_in_its_own_name(checkout: Checkout, settings: dict[str, str], why: str) -> None:
    """A value that a flag brought is named by the flag, with exit code 2."""
    assert refusal(UsageError, checkout, settings=settings) == why


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("TTL", "soon", "is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h"),
        ("TIMEOUT", "-1", "is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h"),
        ("PS_COUNT", "x", "is not a whole number from 0 to 1000000"),
        ("MIN_WORKERS", "x", "is not a whole number from 0 to 1000000"),
        ("MIN_NODES", "0", "is not a whole number from 1 to 1000000"),
        ("MAX_RESTARTS", "-1", "is not a whole number from 0 to 1000000"),
        ("ENTRY_ON", "workers", "is neither main nor all"),
        ("GANG", "2", "is neither 1 nor 0"),
        ("FIND_INTERFACE", "eth0", "is neither 1 nor 0"),
        ("EPHEMERAL", "2", "is neither 1 nor 0"),
        ("CLUSTER_TLS", "maybe", "is neither 1 nor 0"),
        ("CLUSTER_NAME", "a b", "is not a name of letters, digits and . _ - (100 at most)"),
        ("NAMED_ARGS", "x", "is not of the form k=v"),
        ("WORK_DIR", "/data", "is not an fsspec URL such as file:///data/work or oci://bucket@namespace/work"),
    ],
)
def test_a_bad_setting_is_named(checkout: Checkout, name: str, text: str, why: str) -> None:
    """A value from the environment is named by its variable, with exit code 78."""
    assert refusal(SettingsError, checkout, {name: text}) == f"bad settings: {name}: '{text}' {why} {HINT}"


def test_every_problem_is_in_one_message(checkout: Checkout) -> None:
    """Bad values from all places are told at once; one that came by a flag makes it wrong usage."""
    checkout.config("POLL_CEILING=often")
    assert refusal(UsageError, checkout, {"EPHEMERAL": "2"}, settings={"ENTRY_POINT": "nope.py"}) == (
        "EPHEMERAL: '2' is neither 1 nor 0;"
        f" --entry: there is no file 'nope.py' in '{checkout.cwd}'; give the path of your script;"
        " POLL_CEILING: 'often' is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h"
    )


def test_a_bad_line_of_the_configuration_is_named(checkout: Checkout) -> None:
    """config.env is read, never run: a line that is no KEY=VALUE is refused (78)."""
    checkout.config("TTL=1h", "set A=1")
    assert refusal(SettingsError, checkout) == (
        f"{checkout.root}/config.env:2: expected KEY=VALUE (quote a value with spaces), got: set A=..."
    )


def test_the_clusters_id_can_be_a_files_name(checkout: Checkout) -> None:
    """The longest --name that is allowed still makes a CLUSTER_ID that is a name; a longer one is refused by name."""
    assert len(checkout.plan(settings={"CLUSTER_NAME": "n" * 100}).cluster_id) <= 255
    with pytest.raises(UsageError, match=r"--name: 'n+' is not a name of letters, digits and . _ - \(100 at most\)"):
        checkout.plan(settings={"CLUSTER_NAME": "n" * 101})
