"""Each field that ADS reads of its YAML: the setting, the word of the launch, or why there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.ads_migration.ads_yaml import Kind, converted, told

from oci_cluster.ads_migration.conversion import command
from oci_cluster.ads_migration.from_ads import Asked, convert
from oci_cluster.errors import SettingsError

# Section, its lines, and the settings that they become.
TAKEN = [
    ("infrastructure", "projectId: ocid1.p", {"PROJECT_OCID": "ocid1.p"}),
    ("infrastructure", "compartmentId: ocid1.c", {"COMPARTMENT_OCID": "ocid1.c"}),
    ("infrastructure", "logGroupId: ocid1.g", {"LOG_GROUP_OCID": "ocid1.g"}),
    ("infrastructure", "logId: ocid1.l", {"LOG_OCID": "ocid1.l"}),
    ("infrastructure", "subnetId: ocid1.s", {"SUBNET_OCID": "ocid1.s"}),
    ("infrastructure", "shapeName: VM.GPU.A10.1", {"SHAPE": "VM.GPU.A10.1"}),
    (
        "infrastructure",
        "shapeName: VM.Standard.E4.Flex\nshapeConfigDetails: {ocpus: 2, memoryInGBs: 16}",
        {"SHAPE": "VM.Standard.E4.Flex", "OCPUS": "2", "MEMORY_GBS": "16"},
    ),
    ("infrastructure", "blockStorageSize: 50", {"STORAGE_GBS": "50"}),
    ("infrastructure", "jobInfrastructureType: ME_STANDALONE", {"OCI_JOB_STYLE": "multinode"}),
    ("infrastructure", "freeformTags: {team: vision, n: 1}", {"FREEFORM_TAGS": '{"team": "vision", "n": "1"}'}),
    ("infrastructure", "definedTags: {Ops: {Centre: 42}}", {"DEFINED_TAGS": '{"Ops": {"Centre": "42"}}'}),
    (
        "infrastructure",
        "storageMount:\n- {src: 'oci://b@n/p', dest: data}\n- {src: 'ocid1.mounttarget.a:ocid1.export.b', dest: s}",
        {"STORAGE_MOUNTS": "data=oci://b@n/p s=fss:ocid1.mounttarget.a:ocid1.export.b"},
    ),
    ("cluster", "workDir: oci://b@n/w/", {"WORK_DIR": "oci://b@n/w/oci-cluster"}),
    ("cluster", "image: iad.ocir.io/ns/team/dask:dev", {"REGISTRY": "iad.ocir.io/ns/team"}),
    ("cluster", "main: {image: 'localhost:5000/x/dask'}", {"REGISTRY": "localhost:5000/x"}),
    ("cluster", "config: {env: [{name: OCI__TIMEOUT, value: 900}]}", {"TIMEOUT": "900"}),
    ("cluster", "config: {env: [{name: OCI__SYNC_DIR, value: /opt/ml}]}", {}),
    ("cluster", "config: {env: [{name: SYNC_SLEEP, value: 30}]}", {"OUTPUT_INTERVAL": "30"}),
    (
        "cluster",
        "config: {startOptions: ['--port 9000', '--dashboard-address', ':9001']}",
        {"SCHEDULER_PORT": "9000", "DASHBOARD_PORT": "9001"},
    ),
    ("cluster", "config: {startOptions: --nthreads 2}", {"NTHREAD": "2"}),
    ("cluster", "main: {config: {startOptions: [--protocol=tcp]}}", {"CLUSTER_TLS": "0"}),
    ("worker", "config: {startOptions: [--nworkers 4, --death-timeout 90]}", {"NPROCS": "4", "DEATH_TIMEOUT": "90"}),
    (
        "worker",
        "config: {startOptions: ['--worker-port 8700:8800', '--nanny-port 3000']}",
        {"WORKER_PORTS": "8700:8800", "NANNY_PORTS": "3000:3000"},
    ),
    ("runtime", "args: [--epochs, 3, 'a b', 1e-3]", {"ARGS": '["--epochs", "3", "a b", "1e-3"]'}),
    ("runtime", "args: --epochs 3", {"ARGS": '["--epochs", "3"]'}),
    ("runtime", "args: [--data, /code/data, /code]", {"ARGS": '["--data", "data", "."]'}),
    ("runtime", "kwargs: --cv 5", {"ARGS": '["--cv", "5"]'}),
    ("runtime", "args: [x]\nkwargs: --cv 5", {"ARGS": '["x", "--cv", "5"]'}),
    ("runtime", "kwargs: cv=5 lr=0.1", {"NAMED_ARGS": "cv=5 lr=0.1"}),
    ("runtime", "kwargs: {cv: 5}", {"NAMED_ARGS": '{"cv": "5"}'}),
    ("runtime", "env: [{name: SYNC_SLEEP, value: 9}]", {"OUTPUT_INTERVAL": "9"}),
]


@pytest.mark.parametrize(("section", "lines", "settings"), TAKEN, ids=[lines for _, lines, _ in TAKEN])
def test_a_field_becomes_settings(tmp_path: Path, section: str, lines: str, settings: dict[str, str]) -> None:
    found = converted(tmp_path, **{section: lines})
    own = {"BACKEND": "oci", "ENTRY_POINT": "train.py", "CODE_DIR": str(tmp_path)}
    assert found.settings == {**own, **settings}
    assert found.is_whole
    assert command(found, "launch.sh") == "launch.sh dask 2"


OF_FRAMEWORKS = [
    ("horovod", "WORKER_PORT", "2222", {"SSH_PORT": "2222"}),
    ("horovod", "START_TIMEOUT", "900", {"TIMEOUT": "900"}),
    (
        "horovod",
        "HOROVOD_ARGS",
        "--gloo --min-np 2 --max-np=4 --reset-limit 3",
        {"MIN_NP": "2", "MAX_NP": "4", "RESET_LIMIT": "3"},
    ),
    ("tensorflow", "WORKER_PORT", "2222", {"TASK_PORT": "2222"}),
    ("pytorch", "MASTER_PORT", "2222", {"RENDEZVOUS_PORT": "2222"}),
]


@pytest.mark.parametrize("where", ["all", "main", "worker"])
@pytest.mark.parametrize("row", OF_FRAMEWORKS)
def test_a_variable_of_a_framework_becomes_settings(
    tmp_path: Path, where: str, row: tuple[str, str, str, dict[str, str]]
) -> None:
    """Also where one role alone is given it: in ADS the others have the default, which nobody asks them for."""
    framework, name, value, settings = row
    config = f"config: {{env: [{{name: {name}, value: '{value}'}}]}}"
    lines = {"all": {"cluster": config}, "main": {"cluster": f"main: {{{config}}}"}, "worker": {"worker": config}}
    found = converted(tmp_path, framework=framework, **lines[where])
    assert found.settings.items() >= settings.items()
    assert found.is_whole
    assert not found.variables


def test_a_port_of_another_framework_is_a_variable_of_the_script(tmp_path: Path) -> None:
    found = converted(tmp_path, cluster="config: {env: [{name: WORKER_PORT, value: 1}]}")
    assert found.variables == {"WORKER_PORT": "1"}


def test_the_scripts_own_variables_go_with_the_command(tmp_path: Path) -> None:
    """Those of the runtime win, as in ADS; those of all roles are the cluster's."""
    each = "config: {env: [{name: C, value: 3}]}"
    cluster = "config: {env: [{name: A, value: 1}, {name: B, value: x y}]}\nname: my run\nmain: {" + each + "}"
    found = converted(tmp_path, cluster=cluster, worker=each, runtime="env: [{name: A, value: 2}, {name: E}]")
    assert found.variables == {"A": "2", "B": "x y", "C": "3", "E": ""}
    words = "launch.sh dask 2 --name my-run --env A=2 --env 'B=x y' --env C=3 --env E="
    assert command(found, "launch.sh") == words


@pytest.mark.parametrize(
    ("name", "display", "cluster"),
    [("a_b", "other", "a_b"), ("", "GridSearch Dask", "GridSearch-Dask"), ("  x/é/", "", "x"), ("", "", "")],
)
def test_the_name_is_the_clusters_or_the_jobs(tmp_path: Path, name: str, display: str, cluster: str) -> None:
    found = converted(tmp_path, infrastructure=f"displayName: {display}", cluster=f"name: {name}")
    assert found.name == cluster


def test_parameter_servers_are_counted(tmp_path: Path) -> None:
    found = converted(tmp_path, framework="TENSORFLOW", cluster="ps: {replicas: 3}")
    assert command(found, "launch.sh") == "launch.sh tensorflow 2 --ps 3"
    assert not told(converted(tmp_path, framework="pytorch"), Kind.LOST)


@pytest.mark.parametrize(
    ("text", "binding"),
    [("import horovod.tensorflow", "tensorflow"), ("import horovod.torch as hvd", "pytorch"), ("import x", None)],
)
def test_horovods_binding_is_what_the_script_imports(tmp_path: Path, text: str, binding: str | None) -> None:
    code = tmp_path / "src"
    code.mkdir()
    (code / "train.py").write_text(text)
    found = converted(tmp_path, framework="horovod", code=str(code))
    assert (found.settings.get("HOROVOD_FRAMEWORK"), found.settings["CODE_DIR"]) == (binding, str(code))


FETCHED = [
    ("git", "uri: https://e.org/r.git", "git+https://e.org/r.git@HEAD"),
    ("git", "uri: https://e.org/r.git\nbranch: dev", "git+https://e.org/r.git@dev"),
    ("git", "uri: https://e.org/r.git\nbranch: dev\ncommit: c0ffee", "git+https://e.org/r.git@c0ffee"),
    ("remote", "uri: oci://b@n/src", "folder+oci://b@n/src"),
]


@pytest.mark.parametrize(("kind", "lines", "uri"), FETCHED)
def test_code_that_nodes_fetch(tmp_path: Path, kind: str, lines: str, uri: str) -> None:
    more = "codeDir: /opt/code\npythonPath: lib\nargs: [/opt/code/conf.json]"
    found = converted(tmp_path, outer=f"type: {kind}", runtime=f"{lines}\n{more}")
    own = {"BACKEND": "oci", "CODE_URI": uri, "ENTRY_POINT": "train.py", "ARGS": '["conf.json"]'}
    assert found.settings == own | ({"SYSTEM_PACKAGES": "git"} if kind == "git" else {})
    assert found.is_whole
    not_needed = [line.partition(": ")[0].rpartition(".")[2] for line in told(found, Kind.NO_NEED)]
    assert not_needed[-2:] == ["codeDir", "pythonPath"]


def test_an_image_of_adss_last_build_is_known(tmp_path: Path) -> None:
    """`@image` stands for what config.ini says, which ADS has left beside the YAML."""
    (tmp_path / "config.ini").write_text("[main]\nregistry = iad.ocir.io/ns/dask\nsource_folder = src\ntag = 1\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    found = converted(tmp_path, cluster='image: "@image"')
    assert (found.settings["REGISTRY"], found.settings["CODE_DIR"]) == ("iad.ocir.io/ns", str(tmp_path / "src"))
    assert found.is_whole
    for text in (b"registry = x\n", b"\xff"):
        (tmp_path / "config.ini").write_bytes(text)
        assert told(converted(tmp_path, cluster='image: "@image"'), Kind.LOST) == [
            "spec.cluster.spec.image: it names no registry: set REGISTRY, into which `make build push` puts our image"
        ]


def test_a_script_elsewhere_in_the_image_is_the_images(tmp_path: Path) -> None:
    found = converted(tmp_path, runtime="")
    path = tmp_path / "train.yaml"
    path.write_text(path.read_text().replace("entryPoint: train.py", "entryPoint: /opt/app/train.py"))
    found = convert(Asked(path, "oci"))
    assert (found.settings["ENTRY_POINT"], found.settings["CODE_URI"]) == ("/opt/app/train.py", "image")
    assert "CODE_DIR" not in found.settings


# --- What is not simply taken ---------------------------------------------------------------------------------------

CA = "{id: a, downloadLocation: b}"
CERT = "{id: c, certDownloadLocation: d, keyDownloadLocation: e}"
NOT_NEEDED = [
    ("infrastructure", "jobType: DEFAULT", "each Job"),
    ("infrastructure", "jobInfrastructureType: STANDALONE", "SUBNET_OCID"),
    ("infrastructure", "shapeName: VM.GPU2.1\nshapeConfigDetails: {ocpus: 1}", "VM.GPU2.1 has a size of its own"),
    ("cluster", "ephemeral: False", "a cluster ends with its script, as in ADS, whatever stands here"),
    ("cluster", "main: {replicas: 2}", "one main"),
    ("cluster", "main: {name: chief}", "MAIN"),
    ("worker", "name: w", "WORKER_1"),
    ("cluster", "image: r.io/n/a:1\nmain: {image: 'r.io/n/b:1'}", "one image"),
    ("cluster", f"certificate: {{caCert: {CA}, cert: {CERT}}}", "encrypted anyway"),
    ("cluster", "certificate: {caCert: {id: a, cert: {id: c, keyDownloadLocation: e}}}", "encrypted anyway"),
    ("cluster", "config: {env: [{name: SYNC_ARTIFACTS, value: 1}]}", "always kept"),
    ("cluster", "config: {env: [{name: POST_PROCESSING_WAIT, value: 1}]}", "waited for"),
    ("cluster", "config: {env: [{name: OCI_IAM_TYPE, value: api_key}]}", "resource principal"),
    ("cluster", "config: {startOptions: [--tls-key /code/key.pem]}", "a certificate of its own"),
    ("runtime", "uri: x", "only where runtime.type"),
    ("runtime", "codeDir: x", "only where runtime.type"),
]


@pytest.mark.parametrize(("section", "lines", "why"), NOT_NEEDED, ids=[lines for _, lines, _ in NOT_NEEDED])
def test_what_is_not_needed_says_why(tmp_path: Path, section: str, lines: str, why: str) -> None:
    found = converted(tmp_path, **{section: lines})
    assert [line for line in told(found, Kind.NO_NEED) if why in line]
    assert found.is_whole


LOST = [
    ("infrastructure", "blockStorageSize: 5", "a whole number from 50 to 10240"),
    ("infrastructure", "jobType: OTHER", "type DEFAULT"),
    ("infrastructure", "jobInfrastructureType: MANAGED", "are launched alone"),
    ("infrastructure", "storageMount: [{src: '10.0.0.1:/x', dest: d}]", "OCIDs of mount target and export"),
    ("infrastructure", "storageMount: [{src: 'oci://b@n/x', dest: /data/a}]", "/mnt/<name>"),
    ("infrastructure", "storageMount: [{src: 'oci://b@n/x'}]", "src and dest"),
    ("cluster", "workDir: /data", "WORK_DIR: '/data/oci-cluster' is not an fsspec URL"),
    ("cluster", "workDir: https://me:secret@example.com/w", "a password or a token"),
    ("cluster", "image: dask", "names no registry"),
    ("cluster", "ps: {replicas: 1}", "parameter servers are TensorFlow's; dask has none"),
    ("cluster", "config: {env: [{name: MODE, value: 1}]}", "MODE: the launch decides it"),
    ("cluster", "config: {env: [{name: ARGS, value: 1}]}", "ARGS: the launch takes it as -- ARGUMENT... alone"),
    ("cluster", "config: {env: [{name: a-b, value: 1}]}", "letters, digits and _ alone"),
    ("cluster", "config: {env: [{name: WANDB_API_KEY, value: hidden}]}", "WANDB_API_KEY: a secret"),
    ("cluster", 'config: {env: [{name: A, value: "x\\ny"}]}', "one line of text"),
    ("cluster", "config: {env: [{value: 1}]}", "a variable has name and value"),
    ("cluster", "config: {env: [{name: OCI__TIMEOUT, value: soon}]}", "TIMEOUT: 'soon' is not a duration"),
    (
        "cluster",
        "config: {startOptions: [--host 0.0.0.0, --memory-limit 4GB, --port]}",
        "--memory-limit 4GB: Dask's programs",
    ),
    ("worker", "config: {env: [{name: A, value: 1}]}", "A: all nodes of a launch get the same variables"),
    ("runtime", "env: [{name: RANK, value: 1}]", "RANK: the launch decides it"),
    ("outer", "type: zip", "types git and remote"),
    ("infrastructure", 'freeformTags: {a: "https://me:secret@x.y/"}', "a password or a token"),
    ("cluster", "config: {env: [{name: SYNC_SLEEP, value: often}]}", "OUTPUT_INTERVAL: 'often' is not a duration"),
]


@pytest.mark.parametrize(("section", "lines", "why"), LOST, ids=[lines for _, lines, _ in LOST])
def test_what_has_no_counterpart_says_why(tmp_path: Path, section: str, lines: str, why: str) -> None:
    found = converted(tmp_path, **{section: lines})
    assert [line for line in told(found, Kind.LOST) if why in line], told(found)
    assert not found.is_whole
    assert [word for word in ("hidden", "secret@") if word in json.dumps([told(found), found.settings])] == []


OF_HOROVOD = [
    ("HOROVOD_ARGS", "--mpi", "there is no MPI"),
    ("HOROVOD_ARGS", "--timeline-filename /x", "horovodrun does not run here"),
    ("NP", "4", "all slots"),
    ("ENABLE_TIMELINE", "1", "HOROVOD_TIMELINE"),
    ("KWARGS", "--x", "horovodrun"),
]


@pytest.mark.parametrize(("name", "value", "why"), OF_HOROVOD)
def test_what_horovodrun_would_get_has_no_counterpart(tmp_path: Path, name: str, value: str, why: str) -> None:
    cluster = f"config: {{env: [{{name: {name}, value: '{value}'}}], startOptions: [--x]}}\nephemeral: false"
    lost = told(converted(tmp_path, framework="horovod", cluster=cluster), Kind.LOST)
    assert [line for line in lost if why in line]
    assert [line for line in lost if "nothing of horovod is started with options" in line]


def test_what_adss_horovod_yaml_says_by_default_needs_no_look(tmp_path: Path) -> None:
    """The YAML that ADS's `init` writes switches the timeline off, and has horovodrun say more."""
    env = "{name: ENABLE_TIMELINE, value: 0}, {name: HOROVOD_ARGS, value: --verbose}"
    found = converted(tmp_path, framework="horovod", cluster=f"config: {{env: [{env}]}}")
    assert found.is_whole, told(found)
    assert [line.partition(": ")[2].partition(":")[0] for line in told(found, Kind.NO_NEED)] == [
        "ENABLE_TIMELINE",
        "--verbose",
    ]


def test_another_kind_of_infrastructure_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    text = "kind: distributed\nspec:\n  infrastructure: {type: dataFlow}\n  cluster: {kind: dask, spec: {}}\n"
    path.write_text(text)
    (line, *_) = told(convert(Asked(path, "oci")), Kind.LOST)
    assert line == "spec.infrastructure.type: clusters run as Jobs of OCI Data Science: dataScienceJob"


def test_a_git_repository_by_ssh_or_with_a_password(tmp_path: Path) -> None:
    lines = "uri: https://me:word@e.org/r.git\ngitSecretId: ocid1.vaultsecret.x"
    found = converted(tmp_path, outer="type: git", runtime=lines)
    lost = told(found, Kind.LOST)
    assert [line.partition(":")[0].rpartition(".")[2] for line in lost] == ["uri", "gitSecretId"]
    assert "word" not in json.dumps([found.settings, lost[1:]])
    assert "CODE_URI" not in found.settings


def test_without_a_script_or_a_runtime_the_example_would_run(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    for runtime in ("", "runtime: {kind: python}", "runtime: {spec: {args: [a]}}", "runtime: {kind: conda, spec: {}}"):
        path.write_text("kind: distributed\nspec:\n  cluster: {kind: dask, spec: {}}\n" + f"  {runtime}\n")
        found = convert(Asked(path, "oci"))
        assert [line for line in told(found, Kind.LOST) if "example is launched" in line]


NAME_IT = "train.py: name the folder of the code with --code DIR"


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    found = converted(tmp_path, code=str(tmp_path / "nowhere"))
    assert told(found, Kind.LOST) == [
        f"spec.runtime.spec.entryPoint: there is no {tmp_path}/nowhere/{NAME_IT}",
    ]
    path, too_long = tmp_path / "train.yaml", "a" * 300 + ".py"
    path.write_text(path.read_text().replace("entryPoint: train.py", f"entryPoint: {too_long}"))
    assert told(convert(Asked(path, "oci")), Kind.LOST)[0].startswith("spec.runtime.spec.entryPoint: there is no ")


UNKNOWN = [
    ("infrastructure", "shape: x", "spec.infrastructure.spec.shape"),
    (
        "infrastructure",
        "projectID: x",
        "spec.infrastructure.spec.projectID: ADS does not read it either; did you mean proj",
    ),
    ("infrastructure", "shapeConfigDetails: {cpus: 1}", "spec.infrastructure.spec.shapeConfigDetails.cpus"),
    (
        "infrastructure",
        "storageMount: [{src: 'oci://b@n/x', dest: a, mode: ro}]",
        "spec.infrastructure.spec.storageMount[0].mode",
    ),
    ("cluster", "readyTimeout: 1", "spec.cluster.spec.readyTimeout"),
    ("cluster", "config: {ports: [1]}", "spec.cluster.spec.config.ports"),
    ("cluster", "config: {env: [{name: A, value: 1, secret: x}]}", "spec.cluster.spec.config.env[0].secret"),
    (
        "cluster",
        "config: {env: [{name: OCI__READY_TIMEOUT, value: 1}]}",
        "spec.cluster.spec.config.env[0]: OCI__READY_TIMEOUT",
    ),
    ("worker", "shapeName: x", "spec.cluster.spec.worker.shapeName"),
    ("runtime", "type: git", "spec.runtime.spec.type"),
    ("outer", "image: x", "spec.runtime.image"),
]


@pytest.mark.parametrize(("section", "lines", "path"), UNKNOWN, ids=[lines for _, lines, _ in UNKNOWN])
def test_an_unknown_field_is_named(tmp_path: Path, section: str, lines: str, path: str) -> None:
    found = converted(tmp_path, **{section: lines})
    (line,) = told(found, Kind.UNKNOWN)
    assert line.startswith(path)
    assert not found.is_whole


WRONG = [
    ("cluster", "config: 1", "line 16, spec.cluster.spec.config: expected fields of its own, found a text"),
    ("cluster", "config: {env: {A: 1}}", "line 16, spec.cluster.spec.config.env: expected a list, found fields"),
    ("cluster", "name: [a]", "line 16, spec.cluster.spec.name: expected a text or a number, found a list"),
    ("cluster", "ps: {replicas: many}", "line 16, spec.cluster.spec.ps.replicas: 'many' is not a whole number"),
]


@pytest.mark.parametrize(("section", "lines", "why"), WRONG)
def test_a_field_of_another_type_ends_it(tmp_path: Path, section: str, lines: str, why: str) -> None:
    with pytest.raises(SettingsError) as caught:
        converted(tmp_path, framework="tensorflow", **{section: lines})
    assert str(caught.value).startswith(why)


def test_an_unknown_framework_ends_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"spec\.cluster\.kind: unknown framework 'spark'; this checkout has: dask"):
        converted(tmp_path, framework="Spark")
