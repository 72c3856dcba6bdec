"""Settings of the backends alone: rows of the table in ``settings_table.py``, which no node gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oci_cluster.contract.setting import Receiver, Setting
from oci_cluster.contract.values import parse_gpus


def _docker(name: str, meaning: str, default: str = "", **more: Any) -> Setting:
    return Setting(
        name, Receiver.BACKEND, meaning, default=default, **{"backend_defaults": {"docker": default}, **more}
    )


def _oci(name: str, meaning: str, default: str = "", **more: Any) -> Setting:
    return Setting(name, Receiver.BACKEND, meaning, default=default, backend_defaults={"oci": default}, **more)


def _kubernetes(name: str, meaning: str, default: str = "", **more: Any) -> Setting:
    defaults = {"kubernetes": default}
    return Setting(name, Receiver.BACKEND, meaning, default=default, backend_defaults=defaults, **more)


def _of_role(role: str, nodes: str, *examples: str) -> Iterator[Setting]:
    for name, example in zip(("SHAPE", "OCPUS", "MEMORY_GBS"), examples, strict=True):
        yield _oci(f"{role}_{name}", f"`{name}` of {nodes}, where that is another", example=example)


BACKEND_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "IMAGE",
        Receiver.BACKEND,
        "the image of the nodes; `{framework}` in it stands for the framework's name",
        backend_defaults={"docker": "", "oci": "", "kubernetes": ""},
        example="iad.ocir.io/<namespace>/training/{framework}:1",
    ),
    _docker("DOCKER", "the engine's program", "docker"),
    _docker("CPUS", "CPUs of each node", example="2", backend_defaults={"docker": "", "kubernetes": "1"}),
    _docker("MEMORY", "memory of each node", example="4g", backend_defaults={"docker": "", "kubernetes": "2g"}),
    _docker("SHM_SIZE", "size of each node's `/dev/shm`", "1g", backend_defaults={"docker": "1g", "kubernetes": "1g"}),
    _docker(
        "GPUS",
        "GPUs of each node: with docker as `--gpus` takes them, with Kubernetes a number",
        example="1",
        backend_defaults={"docker": "", "kubernetes": ""},
    ),
    Setting(
        "GPUS_PER_NODE",
        Receiver.BACKEND,
        "GPUs of this machine for each node of `local`: `auto` shares them out, `all` shows all to every node",
        parse_gpus,
        default="auto",
        backend_defaults={"local": "auto"},
    ),
    _docker("HARDENED", "0: nodes may write to their image, and have the engine's usual capabilities", "1"),
    _docker("PUBLISH", "ports of main on this machine's 127.0.0.1, blanks between", example="8787"),
    _oci(
        "COMPARTMENT_OCID",
        "compartment of the Job; needed, but on a notebook session",
        example="ocid1.compartment.oc1..aaaa",
        session_variable="NB_SESSION_COMPARTMENT_OCID",
    ),
    _oci(
        "PROJECT_OCID",
        "Data Science project of the Job; needed, but on a notebook session",
        example="ocid1.datascienceproject.oc1.iad.aaaa",
        session_variable="PROJECT_OCID",
    ),
    _oci("DESCRIPTION", "what the Job is, for people", example="digits, every night"),
    _oci("FREEFORM_TAGS", "free-form tags of the Job and its runs, besides our own", example="team=vision"),
    _oci("DEFINED_TAGS", "defined tags of the Job and its runs", example="Operations.CostCenter=42"),
    _oci(
        "IMAGE_SIGNATURE_ID",
        "the signature by which the service checks the image",
        example="ocid1.containerimagesignature.oc1.iad.aaaa",
    ),
    _oci("SUBNET_OCID", "a regional private subnet of the nodes", example="ocid1.subnet.oc1.iad.aaaa"),
    _oci("BASTION_ID", "a bastion that leads to the nodes, for `connect.sh`", example="ocid1.bastion.oc1.iad.aaaa"),
    _oci("SSH_JUMP", "a host of yours that reaches the nodes, instead of a bastion", example="me@jump.example.com"),
    _oci("SHAPE", "each node's machine", "VM.Standard.E4.Flex"),
    _oci("OCPUS", "cores of a flexible shape, 4 by default; a shape without `.Flex` has its own", example="4"),
    _oci("MEMORY_GBS", "memory of a flexible shape, 64 by default", example="64"),
    *_of_role("MAIN", "main", "VM.Standard.E4.Flex", "2", "16"),
    *_of_role("WORKER", "workers", "VM.Standard.E5.Flex", "8", "128"),
    *_of_role("PS", "parameter servers", "VM.Standard.E4.Flex", "4", "64"),
    _oci("STORAGE_GBS", "size of each node's disk", "100"),
    _oci(
        "CAPACITY_RESERVATION_OCID",
        "capacity that is reserved for the nodes",
        example="ocid1.capacityreservation.oc1.iad.aaaa",
    ),
    _oci("LOG_GROUP_OCID", "log group of OCI Logging", example="ocid1.loggroup.oc1.iad.aaaa"),
    _oci("LOG_OCID", "a log in that group; without it each node has one of its own", example="ocid1.log.oc1.iad.aaaa"),
    _oci(
        "STORAGE_MOUNTS",
        "what every node has under `/mnt/<name>`, several apart by blanks",
        example="data=oci://bucket@namespace/prefix shared=fss:<mount target OCID>:<export OCID>",
    ),
    _oci(
        "MAX_RUNTIME",
        "after this long the service ends a node",
        computed_default="the TTL and ten minutes",
        example="6h",
    ),
    _oci("OCI_JOB_STYLE", "`runs`: a Job Run for each node; `multinode`: one Job Run", "runs"),
    _kubernetes("KUBECONFIG", "kubectl's own: its configuration file", is_for_config=False),
    _kubernetes("KUBE_CONTEXT", "the context of the kubeconfig; else a person is asked", example="my-cluster"),
    _kubernetes("NAMESPACE", "namespace of the pods", computed_default="that of the context", example="team-a"),
    _kubernetes("IMAGE_PULL_SECRETS", "Secrets with which the image is pulled", example="ocir"),
    _kubernetes("GPU_RESOURCE", "what a GPU is called there", "nvidia.com/gpu"),
    _kubernetes(
        "NODE_SELECTOR", "labels that a machine must have", example="node.kubernetes.io/instance-type=BM.GPU4.8"
    ),
    _kubernetes("TOLERATIONS", "taints that the pods tolerate", example="team=vision:NoSchedule"),
    _kubernetes(
        "VOLUMES", "what every node has under `/mnt/<name>`, several apart by blanks", example="data=pvc:datasets:ro"
    ),
    _kubernetes("ENV_SECRETS", "Secrets whose keys become variables of every node", example="wandb"),
    _kubernetes("SERVICE_ACCOUNT", "service account of the pods", example="training"),
    _kubernetes("LABELS", "labels of all that is made, besides our own", example="team=vision"),
    _kubernetes("ANNOTATIONS", "annotations of all that is made, besides our own", example="contact=me@example.com"),
    _kubernetes("POD_PATCH", "a file that is merged into the pods' template", example="pod.yaml"),
    _kubernetes("HOST_NETWORK", "1: pods share the network of their machine", "0"),
    _kubernetes("EXCHANGE_PORT", "the port of main's small files, where there is no `WORK_DIR`", "7077"),
    _kubernetes("EXPOSE_SERVICE", "`NodePort`: every machine passes ports of `EXPOSE` on to main", example="NodePort"),
    _kubernetes("QUEUE", "a queue of Kueue's in the namespace", flag="--queue", example="team-a"),
    _kubernetes("PRIORITY", "a WorkloadPriorityClass", flag="--priority", example="low"),
    _kubernetes("PRIORITY_CLASS", "a PriorityClass of the pods, for Kubernetes' own scheduler", example="batch"),
    _kubernetes("CPU_LIMIT", "CPUs that a node takes at most", computed_default="any that are idle", example="8"),
    _kubernetes("WAIT_FOR_QUOTA", "longest wait in the queue; 0: none", "0", flag="--wait-for-quota", example="2h"),
    _kubernetes("MAX_PREEMPTIONS", "how often the cluster may be preempted before it is stopped", example="5"),
    _kubernetes("KEEP_ENDED", "how long Kubernetes keeps what has ended and was not brought", "7d"),
    Setting("OCI_CLI_CONFIG_FILE", Receiver.BACKEND, "oci-cli's own: its configuration file", is_for_config=False),
    Setting("OCI_CLI_PROFILE", Receiver.BACKEND, "oci-cli's own: the profile in that file", default="DEFAULT"),
    Setting("OCI_CLI_REGION", Receiver.BACKEND, "oci-cli's own: another region", example="us-ashburn-1"),
    Setting("OCI_CLI_AUTH", Receiver.BACKEND, "oci-cli's own: how requests are signed", default="api_key"),
)
