"""What a node is given, by its environment and its framework's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oci_cluster.contract.names import node_dir
from oci_cluster.contract.settings.node import NodeSettings, read_settings
from oci_cluster.errors import SettingsError

LEAST = {
    "MODE": "MAIN",
    "WORKER_COUNT": "3",
    "FRAMEWORK": "dask",
    "WORK_DIR": "file:///data/work",
    "CLUSTER_ID": "c1",
    "LAUNCH_ID": "1f2e3d4c",
    "ENTRY_POINT": "train.py",
}


# --- A node ---------------------------------------------------------------------------------------------------------


def test_the_least_that_makes_a_node_gets_the_contracts_defaults(root: Path) -> None:
    """Every setting that is not given has the default that the contract's table says."""
    assert read_settings(LEAST, root) == NodeSettings(
        mode="MAIN",
        rank=0,
        worker_count=3,
        ps_count=0,
        min_workers=3,
        framework="dask",
        framework_dir=root / "dask",
        work_dir="file:///data/work",
        cluster_id="c1",
        cluster_name="c1",
        launch_id="1f2e3d4c",
        launch_key="",
        launcher_version="",
        entry_point="train.py",
        entry_module="",
        entry_args=(),
        profile_cmd=(),
        code_dir=Path("/code"),
        code_uri="",
        output_dir="",
        output_folders=(),
        output_interval_s=60,
        timeout_s=600,
        ephemeral=True,
        ttl_s=0,
        session="",
        session_verifier="",
        idle_limit_s=3600,
        grace_period_s=10,
        heartbeat_interval_s=24,
        heartbeat_timeout_s=60,
        silence_timeout_s=60,
        poll_ceiling_s=4,
        wait_for_addresses=False,
        find_interface=False,
        entry_on_all=False,
        gang=False,
        max_restarts=0,
        interruptible=False,
        adapt=None,
        followed="",
        cluster_tls=False,
        client_token=False,
        node_logs=False,
        max_log_bytes=1 << 30,
        start_by=float("inf"),
        node_address="",
        cluster_nodes_metadata_file="",
        node_group="",
        own_network=False,
        expose=(),
        vault_secrets={},
        subnet_cidr="",
        termination_log="",
    )


# Each variable of the contract, with a value that is not its default.
EVERY = {
    **LEAST,
    "MODE": "worker",
    "NODE_RANK": "2",
    "PS_COUNT": "2",
    "SESSION_VERIFIER": "ab" * 32,
    "START_BY": "2026-02-02T02:40:00Z",
    "ADAPT": "1:10",
    "FOLLOWED": "last",
    "LAUNCHER_VERSION": "0.0.9",
    "MIN_WORKERS": "1",
    "WORK_DIR": "oci://bucket@ns/work/",
    "CLUSTER_NAME": "mine",
    "ENTRY_POINT": "",
    "ENTRY_MODULE": "package.train",
    "ARGS": "a 'b c'",
    "NAMED_ARGS": "k=v",
    "CODE_DIR": "/my code",
    "CODE_URI": "git+https://example.org/r@main",
    "OUTPUT_DIR": "/out",
    "OUTPUT_FOLDERS": "checkpoints,runs",
    "OUTPUT_INTERVAL": "30",
    "TIMEOUT": "2m",
    "EPHEMERAL": "0",
    "TTL": "1h",
    "IDLE_LIMIT": "5m",
    "GRACE_PERIOD": "3",
    "HEARTBEAT_INTERVAL": "1",
    "HEARTBEAT_TIMEOUT": "9",
    "SILENCE_TIMEOUT": "5m",
    "PROFILE_CMD": "py-spy record --",
    "PROFILE_NODES": "MAIN, WORKER_2",
    "POLL_CEILING": "0.5",
    "WAIT_FOR_ADDRESSES": "1",
    "FIND_INTERFACE": "1",
    "ENTRY_ON": "all",
    "GANG": "1",
    "MAX_RESTARTS": "4",
    "CLUSTER_TLS": "true",
    "CLIENT_TOKEN": "1",
    "VAULT_SECRETS": "TOKEN=ocid1.vaultsecret.oc1.iad.aaaa  B2=ocid1.vaultsecret.oc1..b",
    "NODE_LOGS": "1",
    "MAX_LOG_BYTES": "12345",
    "CLUSTER_NODES_METADATA_FILE": "/meta/nodes.json",
    "NODE_GROUP": "worker",
    "NODE_ADDRESS": " 10.0.0.5 ",
    "TERMINATION_LOG": "/dev/termination-log",
    "OWN_NETWORK": "1",
    "EXPOSE": "6006 9000",
    "SUBNET_CIDR": "10.0.0.5/24, 10.0.1.0/24",
}


def test_every_setting_is_read(root: Path) -> None:
    """Each variable of the contract reaches the node, checked and in its own type."""
    assert read_settings(EVERY, root) == NodeSettings(
        mode="WORKER",
        rank=2,
        worker_count=3,
        ps_count=2,
        min_workers=1,
        framework="dask",
        framework_dir=root / "dask",
        work_dir="oci://bucket@ns/work/",
        cluster_id="c1",
        cluster_name="mine",
        launch_id="1f2e3d4c",
        launch_key="",
        launcher_version="0.0.9",
        entry_point="",
        entry_module="package.train",
        entry_args=("a", "b c", "--k", "v"),
        profile_cmd=("py-spy", "record", "--"),
        code_dir=Path("/my code"),
        code_uri="git+https://example.org/r@main",
        output_dir="/out",
        output_folders=("checkpoints", "runs"),
        output_interval_s=30,
        timeout_s=120,
        ephemeral=False,
        ttl_s=3600,
        session="",
        session_verifier="ab" * 32,
        idle_limit_s=300,
        grace_period_s=3,
        heartbeat_interval_s=1,
        heartbeat_timeout_s=9,
        silence_timeout_s=300,
        poll_ceiling_s=0.5,
        wait_for_addresses=True,
        find_interface=True,
        entry_on_all=True,
        gang=True,
        max_restarts=4,
        interruptible=False,
        adapt=(1, 10),
        followed="last",
        cluster_tls=True,
        client_token=True,
        vault_secrets={"TOKEN": "ocid1.vaultsecret.oc1.iad.aaaa", "B2": "ocid1.vaultsecret.oc1..b"},
        node_logs=True,
        max_log_bytes=12345,
        start_by=1_770_000_000,
        node_address="10.0.0.5",
        cluster_nodes_metadata_file="/meta/nodes.json",
        node_group="worker",
        own_network=True,
        expose=(6006, 9000),
        subnet_cidr="10.0.0.0/24,10.0.1.0/24",
        termination_log="/dev/termination-log",
    )


@pytest.mark.parametrize(
    ("first", "given", "field", "value"),
    [
        ("MODE", "OCI__MODE=WORKER", "mode", "WORKER"),
        ("NODE_RANK", "RANK=2", "rank", 2),
        ("NODE_RANK", "OCI__RANK=2", "rank", 2),
        ("WORKER_COUNT", "OCI__WORKER_COUNT=7", "worker_count", 7),
        ("PS_COUNT", "OCI__PS_COUNT=7", "ps_count", 7),
        ("WORK_DIR", "OCI__WORK_DIR=memory://w", "work_dir", "memory://w"),
        ("CLUSTER_ID", "JOB_OCID=ocid1.job", "cluster_id", "ocid1.job"),
        ("ENTRY_POINT", "ENTRY_SCRIPT=my.py", "entry_point", "my.py"),
        ("ENTRY_POINT", "OCI__ENTRY_SCRIPT=my.py", "entry_point", "my.py"),
        ("ARGS", "OCI__ENTRY_SCRIPT_ARGS=a b", "entry_args", ("a", "b")),
        ("NAMED_ARGS", "OCI__ENTRY_SCRIPT_KWARGS=a=b", "entry_args", ("--a", "b")),
        ("CODE_DIR", "OCI__CODE_DIR=/c", "code_dir", Path("/c")),
        ("OUTPUT_DIR", "OCI__SYNC_DIR=/opt/ml", "output_dir", "/opt/ml"),
        ("TIMEOUT", "TIME_OUT=5", "timeout_s", 5),
        ("TIMEOUT", "OCI__TIMEOUT=5", "timeout_s", 5),
        ("EPHEMERAL", "OCI__EPHEMERAL=0", "ephemeral", False),
        ("TTL", "LIFE_SPAN=1h", "ttl_s", 3600),
        ("TTL", "OCI__LIFE_SPAN=1h", "ttl_s", 3600),
    ],
)
def test_the_names_that_ads_uses_are_read_too(root: Path, first: str, given: str, field: str, value: Any) -> None:
    """A setting is found under each of its names."""
    alias, _, text = given.partition("=")
    environ = {**LEAST, "MODE": "WORKER", "NODE_RANK": "1", alias: text}
    environ.pop(first, None)
    assert getattr(read_settings(environ, root), field) == value


def test_the_first_of_two_names_wins(root: Path) -> None:
    """Where a setting is given under two names, the contract's first one counts."""
    given = {**LEAST, "TIMEOUT": "5", "TIME_OUT": "9", "ENTRY_SCRIPT": "other.py"}
    settings = read_settings(given, root)
    assert (settings.timeout_s, settings.entry_point) == (5, "train.py")


def test_the_environment_wins_over_the_frameworks_settings(root: Path) -> None:
    """settings.env supplies defaults, and no more than that."""
    (root / "dask" / "settings.env").write_text("MIN_WORKERS=1\nCLUSTER_TLS=1\nTIMEOUT=9\n")
    settings = read_settings({**LEAST, "TIME_OUT": "5"}, root)
    assert (settings.min_workers, settings.cluster_tls, settings.timeout_s) == (1, True, 5)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"MODE": ""}, "MODE is not set; NODE_RANK is not set"),
        ({"MODE": "BOSS", "NODE_RANK": "1"}, "MODE: 'BOSS' is not one of MAIN, WORKER, PS"),
        ({"MODE": "WORKER"}, "NODE_RANK is not set"),
        ({"MODE": "PS", "NODE_RANK": "0"}, "NODE_RANK: '0' is not a whole number from 1 to 1000000"),
        ({"WORKER_COUNT": ""}, "WORKER_COUNT is not set"),
        ({"FRAMEWORK": ""}, "FRAMEWORK is not set"),
        ({"FRAMEWORK": "../x"}, "FRAMEWORK: unknown framework '../x'; this checkout has: dask"),
        ({"WORK_DIR": ""}, "WORK_DIR is not set"),
        ({"CLUSTER_ID": ""}, "CLUSTER_ID is not set"),
        ({"CLUSTER_ID": "a/../b"}, "CLUSTER_ID: 'a/../b' is not a name of letters, digits and . _ - (255 at most)"),
        ({"LAUNCH_ID": ""}, "LAUNCH_ID is not set"),
        ({"LAUNCH_ID": "a/b"}, "LAUNCH_ID: 'a/b' is not a name of letters, digits and . _ - (255 at most)"),
        ({"ENTRY_POINT": ""}, "ENTRY_POINT is not set"),
        (
            {"ENTRY_POINT": "", "ENTRY_MODULE": "a/b.py"},
            "ENTRY_MODULE: 'a/b.py' is not the name of a module, such as package.train",
        ),
        ({"ARGS": "[true]"}, "ARGS: true is not a string or a number; quote it"),
        ({"NAMED_ARGS": "x"}, "NAMED_ARGS: 'x' is not of the form k=v"),
        ({"EPHEMERAL": "2"}, "EPHEMERAL: '2' is neither 1 nor 0"),
        ({"GANG": "yes please"}, "GANG: 'yes please' is neither 1 nor 0"),
        ({"FIND_INTERFACE": "eth0"}, "FIND_INTERFACE: 'eth0' is neither 1 nor 0"),
        ({"ENTRY_ON": "ALL"}, "ENTRY_ON: 'ALL' is neither main nor all"),
        ({"MAX_RESTARTS": "-1"}, "MAX_RESTARTS: '-1' is not a whole number from 0 to 1000000"),
        ({"MIN_NODES": "0"}, "MIN_NODES: '0' is not a whole number from 1 to 1000000"),
        ({"MIN_NODES": "5"}, "MIN_WORKERS (MIN_NODES less main): 4 is more than WORKER_COUNT (3)"),
        ({"NODE_ADDRESS": "node-1"}, "NODE_ADDRESS: 'node-1' does not appear to be an IPv4 or IPv6 address"),
        ({"SUBNET_CIDR": "10.0.0/33"}, "SUBNET_CIDR: '10.0.0/33' does not appear to be an IPv4 or IPv6 network"),
    ],
)
def test_what_is_missing_or_wrong_is_named(root: Path, change: dict[str, str], why: str) -> None:
    """A bad or missing variable is named with its value and the form that is right."""
    with pytest.raises(SettingsError) as caught:
        read_settings({**LEAST, **change}, root)
    assert str(caught.value) == f"bad settings: {why} (common/README.md lists them all)"


@pytest.mark.parametrize("text", ["/data/work", "bucket/work", "C:\\work", "FILE://x", "://x"])
def test_a_work_dir_is_a_url(root: Path, text: str) -> None:
    """A path is not a URL: where it would lead is no guess of ours."""
    with pytest.raises(SettingsError) as caught:
        read_settings({**LEAST, "WORK_DIR": text}, root)
    assert str(caught.value) == (
        f"bad settings: WORK_DIR: '{text}' is not an fsspec URL such as file:///data/work or oci://bucket@namespace/work"
        " (common/README.md lists them all)"
    )


def test_nothing_given_names_all_that_is_required(root: Path) -> None:
    """An empty environment gets one message with everything that a node must be told."""
    with pytest.raises(SettingsError) as caught:
        read_settings({}, root)
    assert str(caught.value) == (
        "bad settings: FRAMEWORK is not set; MODE is not set; NODE_RANK is not set; WORKER_COUNT is not set;"
        " CLUSTER_ID is not set; ENTRY_POINT is not set; WORK_DIR is not set; LAUNCH_ID is not set"
        " (common/README.md lists them all)"
    )


@pytest.mark.parametrize(("interval", "timeout"), [("5", "10"), ("30", "60"), ("5", "1")])
def test_one_late_heartbeat_must_not_end_a_cluster(root: Path, interval: str, timeout: str) -> None:
    """HEARTBEAT_TIMEOUT is refused unless it is more than twice HEARTBEAT_INTERVAL."""
    with pytest.raises(SettingsError) as caught:
        read_settings({**LEAST, "HEARTBEAT_INTERVAL": interval, "HEARTBEAT_TIMEOUT": timeout}, root)
    assert str(caught.value) == (
        f"bad settings: HEARTBEAT_TIMEOUT: {timeout} s must be more than twice HEARTBEAT_INTERVAL ({interval} s),"
        " else one late heartbeat ends the cluster (common/README.md lists them all)"
    )


def test_no_more_workers_can_be_needed_than_there_are(root: Path) -> None:
    """MIN_WORKERS above WORKER_COUNT can never be met, and is refused before anything starts."""
    with pytest.raises(SettingsError, match="MIN_WORKERS"):
        read_settings({**LEAST, "MIN_WORKERS": "4"}, root)


def test_min_nodes_of_the_environment_wins_over_min_workers_of_the_framework(root: Path) -> None:
    """settings.env of Dask has MIN_WORKERS=1: --env MIN_NODES=4 must not be without effect."""
    (root / "dask" / "settings.env").write_text("MIN_WORKERS=1\n")
    assert read_settings(LEAST, root).min_workers == 1
    assert read_settings({**LEAST, "MIN_NODES": "4"}, root).min_workers == 3


@pytest.mark.parametrize(("text", "on_all"), [("main", False), ("all", True)])
def test_the_entry_point_runs_on_main_or_on_all(root: Path, text: str, *, on_all: bool) -> None:
    """Two words, and no others."""
    assert read_settings({**LEAST, "ENTRY_ON": text}, root).entry_on_all is on_all


@pytest.mark.parametrize("others", [{}, {"ENTRY_ON": "main", "WAIT_FOR_ADDRESSES": "0"}])
def test_a_gang_runs_on_all_nodes_and_knows_them(root: Path, others: dict[str, str]) -> None:
    """GANG=1 without the others would not work: it brings them, also against what is said."""
    settings = read_settings({**LEAST, "GANG": "1", **others}, root)
    assert (settings.gang, settings.entry_on_all, settings.wait_for_addresses) == (True, True, True)


def test_a_framework_declares_that_it_is_a_gang(root: Path) -> None:
    """settings.env says so, and the environment may say otherwise."""
    (root / "dask" / "settings.env").write_text("GANG=1\nMAX_RESTARTS=2\nFIND_INTERFACE=1\n")
    settings = read_settings(LEAST, root)
    assert (settings.gang, settings.max_restarts, settings.find_interface) == (True, 2, True)
    assert not read_settings({**LEAST, "GANG": "0"}, root).entry_on_all


def test_a_main_needs_no_rank(root: Path) -> None:
    """Main has rank 0, whatever it is told."""
    settings = read_settings({**LEAST, "NODE_RANK": "7"}, root)
    assert (settings.rank, settings.node, settings.is_main) == (0, "MAIN", True)


def test_a_workers_name_comes_from_its_rank(root: Path) -> None:
    """A worker is no main, and is named by its rank."""
    settings = read_settings({**LEAST, "MODE": "WORKER", "NODE_RANK": "2"}, root)
    assert (settings.node, settings.is_main) == ("WORKER_2", False)


def test_the_cluster_dir_is_named_by_work_dir_and_id(root: Path) -> None:
    """A slash at the end of WORK_DIR makes no empty name in the cluster's URL."""
    urls = {read_settings({**LEAST, "WORK_DIR": url}, root).cluster_url for url in ("oci://b@n/w", "oci://b@n/w/")}
    assert urls == {"oci://b@n/w/c1"}


def test_parameter_servers_have_the_ranks_after_the_workers(root: Path) -> None:
    """Workers have ranks 1 to N, parameter servers those after."""
    settings = read_settings({**LEAST, "WORKER_COUNT": "2", "PS_COUNT": "2"}, root)
    assert settings.other_nodes == ("WORKER_1", "WORKER_2", "PS_3", "PS_4")


# --- Where fetched code goes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "/code"),
        ({"CODE_URI": "u"}, "TMP/1f2e3d4c-MAIN/code"),
        ({"CODE_URI": "u", "MODE": "worker", "NODE_RANK": "2"}, "TMP/1f2e3d4c-WORKER_2/code"),
        ({"CODE_URI": "u", "CODE_DIR": "/mine"}, "/mine"),
        ({"CODE_DIR": "/mine"}, "/mine"),
    ],
)
def test_fetched_code_is_the_nodes_own(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], place: str
) -> None:
    """An image has it in /code; what is fetched goes into the node's directory, which is removed at the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    settings = read_settings({**LEAST, **given}, root)
    assert str(settings.code_dir) == place.replace("TMP", str(tmp_path))
    assert not given.get("CODE_URI") or settings.code_dir in {
        node_dir(LEAST["LAUNCH_ID"], settings.node) / "code",
        Path("/mine"),
    }


def test_a_module_is_an_entry_point(root: Path) -> None:
    """A script is not needed then."""
    settings = read_settings({**LEAST, "ENTRY_POINT": "", "ENTRY_MODULE": "package.train"}, root)
    assert (settings.entry_point, settings.entry_module) == ("", "package.train")


@pytest.mark.parametrize("name", ["ENTRY_POINT", "ENTRY_SCRIPT", "OCI__ENTRY_SCRIPT"])
def test_a_module_wins_over_a_script(root: Path, name: str) -> None:
    """Nodes of this machine inherit what the launcher's environment has, too."""
    settings = read_settings({**LEAST, "ENTRY_POINT": "", name: "train.py", "ENTRY_MODULE": "package.train"}, root)
    assert (settings.entry_point, settings.entry_module) == ("", "package.train")


@pytest.mark.parametrize(
    ("nodes", "entry_on", "counts"),
    [
        ("", "main", [True, False]),
        ("ALL", "main", [True, True]),
        ("ALL", "all", [True, True]),
        ("WORKER_2", "all", [False, True]),
        ("MAIN WORKER_2", "all", [True, True]),
    ],
)
def test_a_profiler_counts_on_some_nodes(root: Path, nodes: str, entry_on: str, counts: list[bool]) -> None:
    """On main alone, unless others are named."""
    given = {**LEAST, "PROFILE_CMD": '["a b", "c"]', "ENTRY_ON": entry_on, "PROFILE_NODES": nodes}
    seen = [
        read_settings({**given, "MODE": mode, "NODE_RANK": rank}, root)
        for mode, rank in (("MAIN", ""), ("WORKER", "2"))
    ]
    assert [settings.profile_cmd for settings in seen] == [("a b", "c") if does else () for does in counts]


@pytest.mark.parametrize(
    ("nodes", "entry_on", "problem"),
    [
        ("WORKER_1", "main", "PROFILE_NODES: WORKER_1: only MAIN runs the entry point (ENTRY_ON=main)"),
        ("worker", "all", "PROFILE_NODES: 'worker' is no node: MAIN, WORKER_1, ..., or ALL"),
    ],
)
def test_a_node_that_runs_no_entry_point_is_not_profiled(root: Path, nodes: str, entry_on: str, problem: str) -> None:
    given = {**LEAST, "PROFILE_CMD": "perf", "ENTRY_ON": entry_on, "PROFILE_NODES": nodes}
    with pytest.raises(SettingsError) as caught:
        read_settings(given, root)
    assert problem in str(caught.value)


def test_a_secret_is_no_setting(root: Path) -> None:
    """What it would say comes too late."""
    environ = {**EVERY, "VAULT_SECRETS": "TTL=ocid1.vaultsecret.oc1.iad.aaaa"}
    with pytest.raises(SettingsError, match="VAULT_SECRETS: TTL: a node reads its settings before it asks for secrets"):
        read_settings(environ, root)
