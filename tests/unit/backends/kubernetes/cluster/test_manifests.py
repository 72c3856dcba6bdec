"""What a launch sends: objects that several versions of Kubernetes take, with what settings ask for, and no secret."""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from kube import schemas
from secret_rows import PLAIN, SECRETS
from unit.backends.kubernetes_place import KubernetesPlace

from oci_cluster.backends.kubernetes import backend
from oci_cluster.backends.kubernetes.api.service import Service
from oci_cluster.backends.kubernetes.cluster import manifests, states
from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.settings.node import read_settings
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.node.start import paced_at_main
from oci_cluster.system import archive

Object = dict[str, Any]


@pytest.fixture
def place(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> KubernetesPlace:
    return KubernetesPlace(tmp_path, clock, monkeypatch)


def placed(place: KubernetesPlace, **settings: str) -> Plan:
    place.settings |= settings
    plan: Plan = place.backend.place(place.plan("mine", 2), place.said.append)
    return plan


def sent(place: KubernetesPlace, **settings: str) -> dict[str, Object]:
    """Return the objects of a launch by kind; the Secret of the code is ``code``."""
    text = place.backend.preview(placed(place, **settings), as_json=True)
    objects = json.loads(text)["objects"]
    return {"code" if found["metadata"]["name"].endswith("-code") else found["kind"]: found for found in objects}


def pod_of(found: dict[str, Object]) -> Object:
    template: Object = found["Job"]["spec"]["template"]["spec"]
    return template


EVERYTHING = {
    "GPUS": "2",
    "CPUS": "500m",
    "CPU_LIMIT": "1.5",
    "MEMORY": "512Mi",
    "NODE_SELECTOR": "topology.kubernetes.io/zone=a,gpu=yes",
    "TOLERATIONS": "team=vision:NoSchedule,spot",
    "VOLUMES": "data=pvc:datasets:ro work=pvc:shared keys=secret:keys conf=configmap:conf far=nfs:10.0.0.9:/export",
    "ENV_SECRETS": "wandb,hf",
    "IMAGE_PULL_SECRETS": "ocir",
    "SERVICE_ACCOUNT": "training",
    "LABELS": "team=vision",
    "ANNOTATIONS": "contact=me@example.com",
    "HOST_NETWORK": "1",
    "QUEUE": "lq",
    "PRIORITY": "high",
    "PRIORITY_CLASS": "batch",
    "MAX_PREEMPTIONS": "3",
    "WORK_DIR": "file:///mnt/work",
}


@pytest.mark.parametrize("settings", [{}, EVERYTHING, {"TTL": "0", "SHM_SIZE": ""}])
def test_several_versions_of_kubernetes_take_it(place: KubernetesPlace, settings: dict[str, str]) -> None:
    """Strictly: no field that one of them does not know."""
    text = place.backend.preview(placed(place, **settings), as_json=False)
    assert schemas.faults(text) == []


def test_an_image_that_is_not_there_is_told_of(place: KubernetesPlace) -> None:
    assert "stands for" not in place.backend.preview(placed(place), as_json=False)
    plan = placed(place, IMAGE="r.example/plain:not-pushed")
    assert "\n# r.example/plain:not-pushed stands for an image that was" in place.backend.preview(plan, as_json=False)


def test_the_least_that_a_cluster_is(place: KubernetesPlace) -> None:
    """One Indexed Job, a key of its own, names, a wall, and the code."""
    found = sent(place)
    assert list(found) == ["Secret", "code", "Service", "NetworkPolicy", "Job"]
    assert found["code"]["kind"] == "Secret"
    spec = found["Job"]["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (3, 3, "Indexed")
    assert spec["activeDeadlineSeconds"] == 86400 + 600
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    container = pod_of(found)["containers"][0]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert len(env) == len(container["env"])  # Kueue refuses a name that is there twice
    name = found["Job"]["metadata"]["name"]
    assert env["WORK_DIR"] == f"main://{name}-0.{name}:7077"
    assert env["LAUNCH_KEY"] is None
    assert "MODE" not in env
    assert "NODE_RANK" not in env


def test_a_launch_is_read_packed_and_rendered_once_and_sent_as_it_was_shown(
    place: KubernetesPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the launcher adds to the environment when it starts comes last; the Job is held until all is there."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **more: (counts.update([name]), real(*args, **more))[1])

    count(backend, "settings_of")
    count(archive, "pack_code")
    count(jinja2.Template, "render")
    plan = place.plan("mine", 2)
    place.backend.check(plan)
    plan = place.backend.place(plan, place.said.append)
    shown = json.loads(place.backend.preview(plan, as_json=True))["objects"]
    made: list[Object] = []
    real = Service.create

    def create(service: Service, path: str, body: Object, *, dry_run: bool = False) -> Object:
        made.extend([] if dry_run else [copy.deepcopy(body)])
        return real(service, path, body, dry_run=dry_run)

    monkeypatch.setattr(Service, "create", create)
    plan = place.backend.prepare(plan, place.said.append)
    place.lifecycle.launch(replace(plan, environment={**plan.environment, "START_BY": "$soon"}))
    assert counts == {"settings_of": 1, "pack_code": 1, "render": 1}
    job, *others = made
    for one in others:
        del one["metadata"]["ownerReferences"]
    assert job["spec"].pop("suspend") is True
    assert shown[-1]["spec"].pop("suspend") is False
    variables = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert variables.pop() == {"name": "START_BY", "value": "$$soon"}
    assert [*others, job] == shown


def test_the_launchs_key_is_in_its_secret_alone(place: KubernetesPlace) -> None:
    """Whoever may look at Jobs must not be able to speak for a node."""
    found = sent(place)
    key = found["Secret"]["stringData"]["LAUNCH_KEY"]
    assert len(key) == 64
    assert key not in json.dumps([item for kind, item in found.items() if kind != "Secret"])


@pytest.mark.parametrize(
    ("given", "interval_s", "look_s"),
    [({}, 5, 1), ({"HEARTBEAT_TIMEOUT": "6"}, 2.4, 1), ({"HEARTBEAT_INTERVAL": "3", "POLL_CEILING": "0.5"}, 3, 0.5)],
)
def test_heartbeats_are_as_often_as_their_timeout_needs(
    place: KubernetesPlace, given: dict[str, str], interval_s: float, look_s: float
) -> None:
    """A default of ours is no setting that a person has given, and would be told of as wrong: nodes have it."""
    plan = place.plan("mine", 2)
    plan = place.backend.place(replace(plan, environment={**plan.environment, **given}), place.said.append)
    objects = json.loads(place.backend.preview(plan, as_json=True))["objects"]
    job = next(found for found in objects if found["kind"] == "Job")
    variables = {one["name"]: one.get("value") for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    names = {"HEARTBEAT_INTERVAL", "HEARTBEAT_TIMEOUT", "POLL_CEILING"}
    assert {name: text for name, text in variables.items() if name in names} == given
    text = {name: text for name, text in variables.items() if text is not None}
    pod = {"LAUNCH_KEY": "0" * 64, "JOB_COMPLETION_INDEX": "0"}
    node = paced_at_main(read_settings({**text, **pod}, place.root))
    assert (node.heartbeat_interval_s, node.poll_ceiling_s) == (interval_s, look_s)


@pytest.mark.parametrize(
    ("given", "sent_cpus"), [("500m", "0.5"), ("9999999m", "9999.999"), ("2000m", "2"), ("1m", "0.001")]
)
def test_thousandths_of_cpus_are_exact(place: KubernetesPlace, given: str, sent_cpus: str) -> None:
    container = pod_of(sent(place, CPUS=given))["containers"][0]
    assert container["resources"]["requests"]["cpu"] == sent_cpus


@pytest.mark.parametrize(
    ("value", "sent_value"),
    [
        ("$(LAUNCH_KEY) $$ $HOME $", "$$(LAUNCH_KEY) $$$$ $$HOME $$"),
        ("\U0001f600 \u00e9 \u2028 \x85 \\ud83d\\ude00 '<&>\"", "\U0001f600 \u00e9 \u2028 \x85 \\ud83d\\ude00 '<&>\""),
    ],
)
def test_nodes_get_a_value_as_it_was_given(place: KubernetesPlace, value: str, sent_value: str) -> None:
    """Kubernetes puts the value of NAME in the place of `$(NAME)`; YAML has no halves of characters, as JSON has."""
    plan = place.plan("mine", 1)
    plan = place.backend.place(replace(plan, environment={**plan.environment, "A": value}), place.said.append)
    documents = list(yaml.safe_load_all(place.backend.preview(plan, as_json=False)))
    job = next(one for one in documents if one and one["kind"] == "Job")
    variables = {one["name"]: one.get("value") for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert variables["A"] == sent_value
    assert states.environment_of(job)["A"] == value
    assert schemas.faults(place.backend.preview(plan, as_json=False)) == []


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({}, None),
        ({"INTERRUPTIBLE": "0"}, "0"),
        ({"MAX_PREEMPTIONS": "3"}, "3"),
        ({"INTERRUPTIBLE": "0", "MAX_PREEMPTIONS": "3"}, "3"),
    ],
)
def test_a_script_that_is_to_run_once_may_not_be_preempted(
    place: KubernetesPlace, given: dict[str, str], most: str | None
) -> None:
    """Kueue would have it begin again; who sets both knows better."""
    about = sent(place, QUEUE="team", **given)["Job"]["metadata"]["annotations"]
    assert about.get("oci-cluster-max-preemptions") == most


@pytest.mark.parametrize(("given", "user"), [({}, 1000), ({"RUN_AS": "2001"}, 2001)])
def test_pods_run_as_the_user_of_their_image(place: KubernetesPlace, given: dict[str, str], user: int) -> None:
    """The files of an image that was built with RUN_AS belong to that one."""
    secure = pod_of(sent(place, **given))["securityContext"]
    assert [secure[key] for key in ("runAsUser", "runAsGroup", "fsGroup")] == [user] * 3


def test_pods_keep_to_the_restricted_standard(place: KubernetesPlace) -> None:
    """As a namespace may demand it."""
    pod = pod_of(sent(place))
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False


def test_only_its_own_nodes_may_connect_to_a_cluster(place: KubernetesPlace) -> None:
    """By the launch's id, which all pods of it have, and no other launch's; to every port."""
    found = sent(place)
    own = {"matchLabels": {"oci-cluster-launch": found["Job"]["metadata"]["labels"]["oci-cluster-launch"]}}
    assert found["NetworkPolicy"]["spec"] == {
        "podSelector": own,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": own}]}],
    }
    assert found["Job"]["spec"]["template"]["metadata"]["labels"].items() >= own["matchLabels"].items()


def test_all_that_settings_ask_for(place: KubernetesPlace) -> None:
    """Each where Kubernetes looks for it."""
    found = sent(place, **EVERYTHING)
    job, pod = found["Job"], pod_of(found)
    container = pod["containers"][0]
    assert container["resources"] == {
        "requests": {"cpu": "0.5", "memory": "512Mi", "nvidia.com/gpu": "2"},
        "limits": {"cpu": "1.5", "memory": "512Mi", "nvidia.com/gpu": "2"},
    }
    assert pod["priorityClassName"] == "batch"
    labels = job["metadata"]["labels"]
    assert (labels["kueue.x-k8s.io/queue-name"], labels["kueue.x-k8s.io/priority-class"]) == ("lq", "high")
    assert labels["team"] == "vision"
    assert "suspend" not in job["spec"]  # the queue decides
    assert "successPolicy" not in job["spec"]  # it would cut short who still writes to the volume
    assert job["metadata"]["annotations"]["oci-cluster-max-preemptions"] == "3"
    assert pod["nodeSelector"] == {"topology.kubernetes.io/zone": "a", "gpu": "yes"}
    assert {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"} in pod["tolerations"]
    assert {"key": "spot", "operator": "Exists"} in pod["tolerations"]
    assert [one["secretRef"]["name"] for one in container["envFrom"]] == ["wandb", "hf"]
    mounts = {one["mountPath"]: one.get("readOnly") for one in container["volumeMounts"]}
    assert mounts["/mnt/data"] is True
    assert mounts["/mnt/work"] is False
    assert pod["hostNetwork"] is True
    assert (pod["serviceAccountName"], pod["imagePullSecrets"]) == ("training", [{"name": "ocir"}])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"CPUS": "0"}, "CPUS: '0' is not a number of CPUs"),
        ({"MEMORY": "4 GB"}, "MEMORY: '4 GB' is not a size"),
        ({"RUN_AS": "0"}, "RUN_AS: '0' is not the number of an ordinary user, such as 1000, as root runs no pod"),
        ({"RUN_AS": "2147483648"}, "RUN_AS: '2147483648' is not the number of an ordinary user"),
        ({"GPUS": "all"}, "GPUS: 'all' is not a whole number"),
        ({"VOLUMES": "data"}, "VOLUMES: 'data' is not <name>=pvc:<claim>"),
        ({"VOLUMES": "a=pvc:x a=pvc:y"}, "VOLUMES: two of them have one name"),
        ({"TOLERATIONS": "a:Never"}, "TOLERATIONS: 'a:Never' is not a toleration"),
        ({"LABELS": "oci-cluster-launch=x"}, "LABELS: 'oci-cluster-launch' is one that the launch itself sets"),
        ({"LABELS": "a=b\nc"}, "LABELS"),
        ({"LABELS": f"pat=ghp_{'0Aa1' * 9}"}, "LABELS looks like a secret"),
        ({"ANNOTATIONS": f"pat=ghp_{'0Aa1' * 9}"}, "ANNOTATIONS looks like a secret"),
        ({"PRIORITY": "low"}, "PRIORITY is one of a queue"),
        ({"CPUS": "2", "CPU_LIMIT": "500m"}, "CPU_LIMIT: '0.5' is less than CPUS, which is 2"),
        ({"WORK_DIR": "file:///data"}, "WORK_DIR: 'file:///data' is on no volume that all nodes share"),
        ({"WORK_DIR": "file:///mnt/data", "VOLUMES": "data=pvc:x:ro"}, "is on no volume that all nodes share"),
        ({"WORK_DIR": "main://x:1"}, "WORK_DIR: main:// is chosen by itself"),
        ({"POD_PATCH": "/nowhere.yaml"}, "POD_PATCH: there is no file '/nowhere.yaml'"),
        ({"IMAGE": ""}, "IMAGE is not set, and no image of plain was pushed from here; make push-plain"),
        ({"NAMESPACE": "Team A"}, "NAMESPACE: 'Team A' is not the name of a namespace"),
    ],
)
def test_what_is_wrong_is_told(place: KubernetesPlace, settings: dict[str, str], said: str) -> None:
    """With the value, and what it must look like; nothing is sent."""
    place.settings |= settings
    with pytest.raises(SettingsError, match="bad settings") as raised:
        place.backend.check(place.plan("mine", 2))
    assert said in str(raised.value)
    assert place.requests() == 0


def test_a_secret_is_no_variable_of_a_job(place: KubernetesPlace) -> None:
    """All who may look at Jobs would see it; the way out is named, the value is not, and what is none is sent."""
    plan = place.plan("mine", 2)
    for name, text in SECRETS:
        guarded = replace(plan, environment={**plan.environment, name: text})
        with pytest.raises(SettingsError, match=rf"{name} looks like a secret.*ENV_SECRETS=.*--env-plain") as raised:
            place.backend.check(guarded)
        assert text not in str(raised.value)
        place.backend.check(replace(guarded, plain=frozenset({name})))
    for name, text in PLAIN:
        place.backend.check(replace(plan, environment={**plan.environment, name: text}))


def test_code_by_a_url_with_a_password_is_no_variable_of_a_job(place: KubernetesPlace) -> None:
    """As on OCI: the pods' template would have it."""
    for code_uri in ("git+https://hunter2@host/r@main", "https://me:hunter2@host/x.tar.gz#sha256=00"):
        with pytest.raises(SettingsError, match="CODE_URI looks like a secret") as raised:
            place.backend.check(replace(place.plan("mine", 2), code_uri=code_uri))
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mine", "mine-0123abcd"),
        ("My_Cluster.2", "my-cluster-2-0123abcd"),
        ("7up", "c7up-0123abcd"),
        ("___", "c-0123abcd"),
        ("x" * 100, f"{'x' * 40}-0123abcd"),
    ],
)
def test_names_as_kubernetes_takes_them(name: str, expected: str) -> None:
    """Whatever a cluster is called; two of one name differ by their launch."""
    assert manifests.object_name(name, "0123abcd") == expected


def test_code_that_is_too_large_for_a_config_map(place: KubernetesPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is Kubernetes' own; the ways out are named."""
    monkeypatch.setattr(manifests, "MOST_CODE_BYTES", 10)
    with pytest.raises(SettingsError, match=r"fit into a Secret: .* mount data \(VOLUMES\)"):
        placed(place)


def test_python_is_the_images(place: KubernetesPlace) -> None:
    """Pods have no environment of this machine."""
    import dataclasses  # noqa: PLC0415 - here alone

    with pytest.raises(UsageError, match="--python"):
        place.backend.place(dataclasses.replace(place.plan("mine", 2), python="/usr/bin/python3"))


PATCH = """
metadata:
  labels: {team: vision}
spec:
  runtimeClassName: nvidia
  tolerations: null
  containers:
    - name: node
      env: [{name: NCCL_DEBUG, value: INFO}]
      volumeMounts: [{name: more, mountPath: /more}]
    - name: sidecar
      image: sidecar:1
  volumes: [{name: more, emptyDir: {}}]
"""


def test_a_users_own_piece_is_merged_last(place: KubernetesPlace, tmp_path: Path) -> None:
    """By names where a list has names; ours stays where nothing is said of it."""
    file = tmp_path / "pod.yaml"
    file.write_text(PATCH)
    found = sent(place, POD_PATCH=str(file))
    pod = pod_of(found)
    node, sidecar = pod["containers"]
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in node["env"]
    assert any(one["name"] == "WORK_DIR" for one in node["env"])
    assert [one["mountPath"] for one in node["volumeMounts"]][-1] == "/more"
    assert (sidecar["name"], pod["runtimeClassName"]) == ("sidecar", "nvidia")
    assert "tolerations" not in pod
    assert schemas.faults(list(found.values())) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "cannot be read"),
        ("kind: Pod", "is not a part of a pod's template"),
        ("spec: {subdomain: x}", "changes spec.subdomain"),
        ("spec: {containers: [{image: x}]}", "spec.containers: each item needs 'name'"),
        ("spec: {$patch: replace}", "directives are not supported"),
    ],
)
def test_a_piece_that_cannot_be_merged(place: KubernetesPlace, tmp_path: Path, text: str, said: str) -> None:
    """Told before anything is sent."""
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match="POD_PATCH") as raised:
        placed(place, POD_PATCH=str(file))
    assert said in str(raised.value)
