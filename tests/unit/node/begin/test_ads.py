"""Nodes that were started by ADS's variables alone."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from unit.fake_cluster import make_project

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.settings.node import NodeSettings, read_settings
from oci_cluster.contract.storage.retry import Waiting
from oci_cluster.errors import SettingsError, StorageError
from oci_cluster.node import start
from oci_cluster.node.begin.ads import with_own_names, with_own_rank

JOB = "ocid1.datasciencejob.oc1.iad.aaaa"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_project(tmp_path)
    for framework in ("dask", "horovod", "pytorch", "tensorflow"):
        (tmp_path / framework).mkdir()
        for script in ("start-master.sh", "start-worker.sh"):
            (tmp_path / framework / script).touch()
        (tmp_path / framework / "settings.env").touch()
    monkeypatch.setattr("oci_cluster.contract.settings.node.read_settings.__defaults__", (tmp_path,))
    return tmp_path


def of_ads(root: Path, **more: str) -> dict[str, str]:
    """Return what `ads opctl run` gives a node, and the service."""
    return {
        "JOB_OCID": JOB,
        "JOB_RUN_OCID": "ocid1.datasciencejobrun.oc1.iad.main",
        "OCI__WORK_DIR": f"file://{root}/work",
        "OCI__EPHEMERAL": "None",
        "OCI__CLUSTER_TYPE": "DASK",
        "OCI__WORKER_COUNT": "2",
        "OCI__START_ARGS": "",
        "OCI__ENTRY_SCRIPT": "train.py",
        "OCI__MODE": "MAIN",
        "RANK": "0",
        **more,
    }


def settings(root: Path, **more: str) -> NodeSettings:
    return read_settings(with_own_names(of_ads(root, **more)))


def test_what_ads_gives_makes_a_node(root: Path) -> None:
    main = settings(root)
    assert (main.framework, main.mode, main.rank, main.worker_count) == ("dask", "MAIN", 0, 2)
    assert (main.cluster_id, main.entry_point, main.ephemeral) == (JOB, "train.py", True)
    assert main.work_dir == f"file://{root}/work"
    worker = settings(root, OCI__MODE="WORKER", RANK="2", JOB_RUN_OCID="another")
    assert (worker.mode, worker.rank, worker.launch_id) == ("WORKER", 2, main.launch_id)
    other = settings(root, JOB_OCID="ocid1.datasciencejob.oc1.iad.bbbb")
    assert other.launch_id != main.launch_id


def test_ours_wins_where_both_are_given(root: Path) -> None:
    own = {"FRAMEWORK": "dask", "CLUSTER_ID": "c1", "LAUNCH_ID": "l1", "ENTRY_POINT": "own.py", "WORKER_COUNT": "5"}
    found = settings(root, **own, OCI__CLUSTER_TYPE="PYTORCH", SCHEDULER_PORT="1", OCI__START_ARGS="--port 2")
    assert (found.framework, found.cluster_id, found.launch_id) == ("dask", "c1", "l1")
    assert (found.entry_point, found.worker_count) == ("own.py", 5)
    assert with_own_names(of_ads(root, SCHEDULER_PORT="1", OCI__START_ARGS="--port 2"))["SCHEDULER_PORT"] == "1"


@pytest.mark.parametrize(
    ("framework", "given", "own"),
    [
        (
            "DASK",
            {"OCI__START_ARGS": "--port 9000 --dashboard-address :9001"},
            "SCHEDULER_PORT=9000 DASHBOARD_PORT=9001",
        ),
        (
            "DASK",
            {"OCI__START_ARGS": "--worker-port 8700:8800 --nanny-port=3000"},
            "WORKER_PORTS=8700:8800 NANNY_PORTS=3000:3000",
        ),
        ("HOROVOD", {"WORKER_PORT": "2222", "START_TIMEOUT": "900"}, "SSH_PORT=2222 TIMEOUT=900"),
        ("HOROVOD", {"HOROVOD_ARGS": "--gloo --min-np 2 --slots-per-host=4"}, "MIN_NP=2 SLOTS=4"),
        ("TENSORFLOW", {"WORKER_PORT": "2222"}, "TASK_PORT=2222"),
        ("PYTORCH", {"MASTER_PORT": "2222", "SYNC_SLEEP": "30"}, "RENDEZVOUS_PORT=2222 OUTPUT_INTERVAL=30"),
        (
            "DASK",
            {"OCI_IAM_TYPE": "api_key", "OCI_CONFIG_PROFILE": "P"},
            "OCIFS_IAM_TYPE=api_key OCIFS_CONFIG_PROFILE=P",
        ),
    ],
)
def test_variables_of_each_framework(root: Path, framework: str, given: Mapping[str, str], own: str) -> None:
    found = with_own_names(of_ads(root, OCI__CLUSTER_TYPE=framework, **given))
    assert {pair for pair in own.split() if found.get(pair.split("=")[0]) != pair.split("=")[1]} == set()


@pytest.mark.parametrize(
    ("kwargs", "arguments"),
    [("--cv 5 --name 'a b'", ["--x", "1", "--cv", "5", "--name", "a b"]), ("cv=5", ["--x", "1", "--cv", "5"])],
)
def test_named_arguments_come_behind_the_others(root: Path, kwargs: str, arguments: list[str]) -> None:
    """In ADS they are words; ours are pairs."""
    found = settings(root, OCI__ENTRY_SCRIPT_ARGS="--x 1", OCI__ENTRY_SCRIPT_KWARGS=kwargs)
    assert list(found.entry_args) == arguments


def test_none_is_no_value(root: Path) -> None:
    """ADS writes it for a field that its YAML lacks."""
    none = dict.fromkeys(
        ("OCI__ENTRY_SCRIPT_ARGS", "OCI__ENTRY_SCRIPT_KWARGS", "OCI__TIMEOUT", "OCI__CODE_DIR"), "None"
    )
    found = settings(root, **none)
    assert (found.entry_args, found.timeout_s, found.code_dir) == ((), 600, Path("/code"))


def test_arguments_with_an_open_quote(root: Path) -> None:
    """ADS splits its own at blanks then; of ours it is an error."""
    found = settings(root, OCI__ENTRY_SCRIPT_ARGS="it's", OCI__ENTRY_SCRIPT_KWARGS="--x 1")
    assert found.entry_args == ("it's", "--x", "1")
    with pytest.raises(SettingsError, match="ARGS: No closing quotation"):
        settings(root, ARGS="it's", OCI__ENTRY_SCRIPT_KWARGS="--x 1")


def test_own_named_arguments_win(root: Path) -> None:
    found = settings(root, NAMED_ARGS="a=1", OCI__ENTRY_SCRIPT_KWARGS="--cv 5")
    assert list(found.entry_args) == ["--a", "1"]


@pytest.mark.parametrize(
    ("given", "uri", "entry"),
    [
        ("TYPE=git URI=https://e.org/r.git GIT_BRANCH=b", "git+https://e.org/r.git@b", "train.py"),
        ("TYPE=git URI=https://e.org/r.git GIT_BRANCH=b GIT_COMMIT=c0", "git+https://e.org/r.git@c0", "train.py"),
        ("TYPE=git URI=https://e.org/r.git", "git+https://e.org/r.git@HEAD", "train.py"),
        ("TYPE=remote URI=oci://b@n/src", "folder+oci://b@n/src", "train.py"),
    ],
)
@pytest.mark.parametrize("folder", ["/code", "/opt/code/", ""])
def test_code_is_fetched_to_a_place_of_the_nodes_own(root: Path, given: str, uri: str, entry: str, folder: str) -> None:
    """ADS names the script by the place to which its own node would fetch it."""
    more = {f"OCI__RUNTIME_{name}": text for name, _, text in (pair.partition("=") for pair in given.split())}
    script = f"{(folder or '/code').rstrip('/')}/train.py"
    found = settings(root, **more, OCI__CODE_DIR=folder, OCI__ENTRY_SCRIPT=script)
    assert (found.code_uri, found.entry_point) == (uri, entry)
    assert found.code_dir.name == "code"
    assert found.launch_id in str(found.code_dir)


def test_own_code_wins(root: Path) -> None:
    more = {"OCI__RUNTIME_TYPE": "git", "OCI__RUNTIME_URI": "https://e.org/r", "CODE_URI": "git+https://e.org/own@v1"}
    assert settings(root, **more).code_uri == "git+https://e.org/own@v1"
    assert settings(root, OCI__CODE_DIR=str(root / "code")).code_dir == root / "code"


@pytest.mark.parametrize("given", [{"OCI__RUNTIME_TYPE": "zip", "OCI__RUNTIME_URI": "x"}, {"OCI__RUNTIME_TYPE": "git"}])
def test_a_runtime_that_nobody_knows_ends_the_node(root: Path, given: Mapping[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"OCI__RUNTIME_TYPE '(zip|git)' is neither git nor remote"):
        with_own_names(of_ads(root, **given))


@pytest.mark.parametrize("text", ["False", "None", "0", "1", "maybe"])
def test_the_script_runs_whatever_ephemeral_says(root: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """In ADS each text is true; a cluster that stays would run no script."""
    assert settings(root, OCI__EPHEMERAL=text).ephemeral
    assert len(caplog.records) == (text in {"False", "0"})
    assert not settings(root, OCI__EPHEMERAL=text, EPHEMERAL="0").ephemeral


def test_a_place_of_outputs_that_cannot_be_made_is_the_nodes_own(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADS's nodes are root, and ours are not: its usual /opt/ml cannot be made."""
    assert settings(root, OCI__SYNC_DIR=f"{root}/opt/ml").output_dir == f"{root}/opt/ml"
    assert settings(root, OCI__SYNC_DIR=f"{root}/dask/settings.env").output_dir == ""
    assert "settings.env: File exists; the script gets another folder" in caplog.text
    assert settings(root, OCI__SYNC_DIR=f"{root}/dask/settings.env", OUTPUT_DIR="/own").output_dir == "/own"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert settings(root, OCI__SYNC_DIR=f"{root}/opt").output_dir == ""
    assert "opt: nothing can be written there" in caplog.text


@pytest.mark.parametrize(("framework", "count"), [("DASK", 1), ("TENSORFLOW", 0)])
def test_without_a_number_of_workers_it_is_that_of_ads(root: Path, framework: str, count: int) -> None:
    given = of_ads(root, OCI__CLUSTER_TYPE=framework)
    del given["OCI__WORKER_COUNT"]
    assert read_settings(with_own_names(given)).worker_count == count


def test_what_has_no_counterpart_is_told(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    more = {"OCI__READY_TIMEOUT": "1", "PROFILE": "1", "OCI__START_ARGS": "--host x --port 1", "SYNC_ARTIFACTS": "1"}
    code = {"OCI__RUNTIME_TYPE": "git", "OCI__RUNTIME_URI": "u", "OCI__RUNTIME_GIT_SECRET_ID": "s"}
    with caplog.at_level(logging.WARNING):
        with_own_names(of_ads(root, **more, **code, FRAMEWORK="dask", OCI__CLUSTER_TYPE="RAY"))
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert sorted(said) == [
        "OCI__CLUSTER_TYPE is RAY, and FRAMEWORK, which wins, dask",
        "OCI__READY_TIMEOUT is not known here, and is left alone",
        "OCI__RUNTIME_GIT_SECRET_ID has no counterpart",
        "OCI__START_ARGS",
    ]


# --- Ranks ----------------------------------------------------------------------------------------------------------


def ranked(root: Path, mode: str, run: str, **more: str) -> int:
    given = {"OCI__MODE": mode, "JOB_RUN_OCID": run, "RANK": "", "OCI__PS_COUNT": "2", **more}
    return int(with_own_rank(with_own_names(of_ads(root, **given)))["NODE_RANK"])


def test_each_node_has_a_rank_of_its_own(root: Path) -> None:
    """Newer versions of ADS tell workers theirs; none tells parameter servers."""
    assert ranked(root, "MAIN", "m") == 0
    assert ranked(root, "WORKER", "w2", RANK="2") == 2
    assert ranked(root, "WORKER", "w1") == 1
    assert [ranked(root, "PS", run) for run in ("p1", "p2")] == [3, 4]
    assert ranked(root, "PS", "p1") == 3  # as when an answer was lost


@pytest.mark.parametrize(("mode", "rank"), [("MAIN", "0"), ("WORKER", "1")])
def test_runs_of_the_same_job_again_are_refused(root: Path, mode: str, rank: str) -> None:
    """They would find what the first ones have left: ADS's own end with 0, and have run nothing."""
    ranked(root, mode, "first", RANK=rank)
    with pytest.raises(SettingsError, match="the runs of one Job make one cluster, once; create a new Job"):
        ranked(root, mode, "again", RANK=rank)
    assert ranked(root, mode, "again", RANK=rank, CLUSTER_ID="another") == int(rank)


def test_without_a_job_each_node_is_another(root: Path) -> None:
    """On somebody's own machine there is none."""
    assert ranked(root, "MAIN", "", JOB_OCID="") == 0
    assert (root / "work" / "Undefined").is_dir()
    with pytest.raises(SettingsError, match="Undefined has, or had, the rank of this MAIN"):
        ranked(root, "MAIN", "", JOB_OCID="")


def test_storage_is_asked_until_it_answers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([StorageError("down"), StorageError("down"), None])
    create = ClusterDir.create

    def flaky(self: ClusterDir) -> None:
        if error := next(answers):
            raise error
        create(self)

    monkeypatch.setattr(ClusterDir, "create", flaky)
    waited: list[float] = []
    own = with_own_rank(with_own_names(of_ads(root)), Waiting(lambda: 0.0, waited.append))
    assert (own["NODE_RANK"], len(waited)) == ("0", 2)


def test_the_agent_gets_ours(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setenv("OCIFS_IAM_TYPE", "")

    def stop(node: str, **_: object) -> None:
        seen.append(node)
        raise SettingsError("enough")

    monkeypatch.setattr(start, "LogPump", stop)
    with pytest.raises(SettingsError, match="enough"):
        start.run_agent(of_ads(root, OCI_IAM_TYPE="api_key"))
    assert seen == ["MAIN"]
    assert os.environ["OCIFS_IAM_TYPE"] == "api_key"
    # A launch of ours decides: nothing is claimed, and what it has not given is missing.
    with pytest.raises(SettingsError, match="LAUNCH_ID is not set"):
        start.run_agent(of_ads(root, MODE="MAIN", FRAMEWORK="dask"))


def test_arguments_are_one_list(root: Path) -> None:
    found = with_own_names(of_ads(root, ARGS='["a b"]', OCI__ENTRY_SCRIPT_KWARGS="--cv 'x"))
    assert json.loads(found["ARGS"]) == ["a b", "--cv", "'x"]
