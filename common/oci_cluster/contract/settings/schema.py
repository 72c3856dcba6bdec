"""Every setting, once: its names, default, form and receiver.

Agents read it through :mod:`oci_cluster.contract.settings.node`, the launcher through :data:`PASSED_ON`,
:data:`DECIDED` and :data:`FLAGS` too. ``make settings`` writes names, defaults and examples into the pages that say
what settings mean. What a framework adds is in its own ``settings.env``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from oci_cluster.contract import parsers


class Receiver(Enum):
    """The receiver of a setting, and who decides it."""

    AS_GIVEN = "every node, as it was given to the launcher"
    RESOLVED = "every node, as the launcher has resolved it"
    DECIDED = "every node, as the launcher decides it; nobody else may set it"
    PLACED = "every node, as the backend has it"
    SCRIPT = "start scripts, as the agent decides it; nobody else may set it"
    LAUNCHER = "the launcher alone"
    BACKEND = "the backend alone"
    IMAGES = "what builds and pushes images"
    TENANCY = "what makes and checks a tenancy of OCI"


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    name: str
    parse: Callable[[str], Any] = str
    """What makes a value of its text; raises ValueError. ``str``: whoever reads the setting knows more of it."""
    default: str | None = ""
    """As somebody would write it. Empty: there is none. None: it must be given."""
    receiver: Receiver = field(kw_only=True)
    aliases: tuple[str, ...] = ()
    """Second names, which count where the first is not given: the design's own, then those of ADS."""
    flag: str = ""
    """What gives it on the command line of ``launch.sh``."""
    is_flag_only: bool = False
    """Whether ``--env`` must not give it, because its flag does."""
    backend_defaults: Mapping[str, str] = field(default_factory=dict)
    """The defaults in ``scripts/backends/<name>.env``, by backend; they win over *default* there."""
    session_variable: str = ""
    """The variable in which a notebook session of OCI Data Science has its own: the default there."""
    example: str = ""
    """What ``config.env.example`` and ``check.sh`` show; empty: the default."""


_parse_positive = partial(parsers.parse_count, minimum=1)
_decided = partial(Setting, receiver=Receiver.DECIDED, default=None)
_resolved = partial(Setting, receiver=Receiver.RESOLVED)
_given = partial(Setting, receiver=Receiver.AS_GIVEN)


def _seconds(name: str, default: str, **more: Any) -> Setting:
    return _given(name, parsers.parse_duration, default, **more)


def _switch(name: str, **more: Any) -> Setting:
    return _given(name, parsers.parse_switch, "0", **more)


def _rows(receiver: Receiver, *backends: str) -> Callable[..., Setting]:
    """Return a maker of rows for *receiver*, whose default is the *backends*', too."""

    def row(name: str, default: str | None = "", **more: Any) -> Setting:
        backend_defaults = dict.fromkeys(backends, default or "")
        return Setting(name, default=default, receiver=receiver, **{"backend_defaults": backend_defaults, **more})

    return row


_image, _tenancy, _launcher, _placed = map(
    _rows, (Receiver.IMAGES, Receiver.TENANCY, Receiver.LAUNCHER, Receiver.PLACED)
)
_any_backend, _docker, _oci = _rows(Receiver.BACKEND), _rows(Receiver.BACKEND, "docker"), _rows(Receiver.BACKEND, "oci")
_kubernetes = _rows(Receiver.BACKEND, "kubernetes")

# Defaults of nodes that share one machine (local, docker), beside those of the table: ten looks a second take 0.3 % of
# a core, and a cluster ends so much sooner.
ONE_MACHINE_DEFAULTS = {"POLL_CEILING": "0.1", "HEARTBEAT_INTERVAL": "2", "HEARTBEAT_TIMEOUT": "30"}
# Those of nodes that ask main's memory, on a machine nearby: for `stop`, and for main's heartbeat, which tells of an
# interruption. Main serves its last files for GRACE_PERIOD and some seconds.
AT_MAIN_DEFAULTS = {"POLL_CEILING": "1", "HEARTBEAT_INTERVAL": "5"}

_PLACED = (
    _placed(
        "WORK_DIR", parse=parsers.parse_url, default=None, aliases=("OCI__WORK_DIR",), example="file:///data/clusters"
    ),
    _placed("CODE_URI", example="git+https://example.com/me/project@v1"),
    _placed(
        "NODE_LOGS",
        parse=parsers.parse_switch,
        default="0",
        backend_defaults={"oci": "1", "kubernetes": ""},
        example="1",
    ),
    _placed("NODE_GROUP"),
    _placed("CLUSTER_NODES_METADATA_FILE"),
    _placed("SUBNET_CIDR", parse=parsers.parse_network, backend_defaults={"oci": ""}, example="10.0.1.0/24"),
    _placed("JOB_COMPLETION_INDEX", parse=parsers.parse_count),
    _placed("TERMINATION_LOG"),
)
# In this order a launch hands them on.
_NODES = (
    _decided("MODE", parsers.parse_role, aliases=("OCI__MODE",)),
    _decided("NODE_RANK", _parse_positive, aliases=("RANK", "OCI__RANK")),
    _decided("WORKER_COUNT", parsers.parse_count, aliases=("OCI__WORKER_COUNT",)),
    _decided("FRAMEWORK"),
    _decided("CLUSTER_ID", parsers.parse_name, aliases=("JOB_OCID",)),
    _decided("LAUNCH_ID", parsers.parse_name),
    _decided("LAUNCH_KEY", default=""),
    _decided("LAUNCHER_VERSION", default=""),
    _decided("START_BY", parsers.parse_time, default=""),
    _decided("FOLLOWED", parsers.parse_followed, default=""),
    _decided("NODE_ADDRESS", parsers.parse_address, default=""),
    _decided("OWN_NETWORK", parsers.parse_switch, default="0"),
    _resolved("PS_COUNT", parsers.parse_count, default="0", aliases=("OCI__PS_COUNT",), flag="--ps"),
    _resolved("MIN_WORKERS", parsers.parse_count, example="3"),
    _resolved("MIN_NODES", _parse_positive),
    _resolved("CLUSTER_NAME", parsers.parse_name, flag="--name", is_flag_only=True),
    _resolved("EPHEMERAL", parsers.parse_switch, default="1", aliases=("OCI__EPHEMERAL",), flag="--keep"),
    _resolved(
        "ENTRY_POINT",
        default=None,
        aliases=("ENTRY_SCRIPT", "OCI__ENTRY_SCRIPT"),
        flag="--entry",
        is_flag_only=True,
        example="train.py",
    ),
    _resolved("ENTRY_MODULE", parsers.parse_module, flag="--module", is_flag_only=True, example="package.train"),
    _resolved(
        "ARGS",
        parsers.parse_args,
        aliases=("OCI__ENTRY_SCRIPT_ARGS",),
        flag="-- ARGUMENT...",
        is_flag_only=True,
        example="--epochs 10",
    ),
    _resolved("CODE_DIR", Path, aliases=("OCI__CODE_DIR",), flag="--code", is_flag_only=True, example="src"),
    _switch("INTERRUPTIBLE", backend_defaults={"kubernetes": "1"}),
    _given("MAX_RESTARTS", parsers.parse_count, "0"),
    _given("ADAPT", parsers.parse_bounds, example="1:10"),
    _given("ENTRY_ON", parsers.parse_entry_on, default="main"),
    _switch("GANG"),
    _switch("FIND_INTERFACE"),
    _given("NAMED_ARGS", parsers.parse_named_args, aliases=("OCI__ENTRY_SCRIPT_KWARGS",), example="lr=0.1 seed=7"),
    _given("PROFILE_CMD", parsers.parse_args, example="py-spy record -o {output}.svg --"),
    _given("PROFILE_NODES", parsers.parse_profiled, "MAIN"),
    _given("OUTPUT_DIR", aliases=("OCI__SYNC_DIR",), example="/data/outputs"),
    _given("OUTPUT_FOLDERS", parsers.parse_folders, flag="--outputs", example="checkpoints,runs"),
    _seconds("OUTPUT_INTERVAL", "60"),
    _seconds("TIMEOUT", "600", aliases=("TIME_OUT", "OCI__TIMEOUT")),
    _seconds(
        "TTL",
        "0",
        aliases=("LIFE_SPAN", "OCI__LIFE_SPAN"),
        flag="--ttl",
        backend_defaults={"oci": "1d", "kubernetes": "1d"},
    ),
    _decided("SESSION", parsers.parse_name, default=""),
    _decided("SESSION_VERIFIER", parsers.parse_verifier, default=""),
    _seconds("IDLE_LIMIT", "1h"),
    _seconds("GRACE_PERIOD", "10"),
    _seconds("HEARTBEAT_INTERVAL", "24"),
    _seconds("HEARTBEAT_TIMEOUT", "60"),
    _seconds("SILENCE_TIMEOUT", "60"),
    _seconds("POLL_CEILING", "4"),
    _given("MAX_LOG_BYTES", partial(parsers.parse_count, maximum=10**15), default="1073741824"),
    _given("EXPOSE", parsers.parse_ports, example="6006 9000"),
    _switch("WAIT_FOR_ADDRESSES"),
    _switch("CLUSTER_TLS", example="1"),  # Dask's default
    _switch("CLIENT_TOKEN"),
    _given("VAULT_SECRETS", parsers.parse_vault_secrets, example="WANDB_API_KEY=ocid1.vaultsecret.oc1.iad.aaaa"),
    *_PLACED,
)
_IMAGES = (
    _image("REGISTRY", example="iad.ocir.io/<namespace>/training"),
    _image("TAG", example="1"),
    _image("EXTRA_ENV", example="my.yaml", backend_defaults={"local": ""}),
    _image("TORCH", parse=parsers.parse_torch, example="cpu", backend_defaults={"local": ""}),
    _image("ENV_FILE", example="pytorch/env-gpu.yaml"),
    _image("SYSTEM_PACKAGES", example="git libgl1"),
    _image("BASE_IMAGE", "python:3.11-slim-bookworm"),
    _image("RUN_AS", "1000", backend_defaults={"kubernetes": "1000"}),
    _image("PLATFORM", "linux/amd64"),
    _image("BUILD_FLAGS", example="--network host"),
)
_BACKENDS = (
    _any_backend(
        "IMAGE",
        backend_defaults={"docker": "", "oci": "", "kubernetes": ""},
        example="iad.ocir.io/<namespace>/training/{framework}:1",
    ),
    _docker("DOCKER", "docker"),
    _docker("CPUS", example="2", backend_defaults={"docker": "", "kubernetes": "1"}),
    _docker("MEMORY", example="4g", backend_defaults={"docker": "", "kubernetes": "2g"}),
    _docker("SHM_SIZE", "1g", backend_defaults={"docker": "1g", "kubernetes": "1g"}),
    _docker("GPUS", example="1", backend_defaults={"docker": "", "kubernetes": ""}),
    _any_backend("GPUS_PER_NODE", parse=parsers.parse_gpus, default="auto", backend_defaults={"local": "auto"}),
    _docker("HARDENED", "1"),
    _docker("PUBLISH", example="8787"),
    _oci("COMPARTMENT_OCID", example="ocid1.compartment.oc1..aaaa", session_variable="NB_SESSION_COMPARTMENT_OCID"),
    _oci("PROJECT_OCID", example="ocid1.datascienceproject.oc1.iad.aaaa", session_variable="PROJECT_OCID"),
    _oci("DESCRIPTION", example="digits, every night"),
    _oci("FREEFORM_TAGS", example="team=vision"),
    _oci("DEFINED_TAGS", example="Operations.CostCenter=42"),
    _oci("IMAGE_SIGNATURE_ID", example="ocid1.containerimagesignature.oc1.iad.aaaa"),
    _oci("SUBNET_OCID", example="ocid1.subnet.oc1.iad.aaaa"),
    _oci("BASTION_ID", example="ocid1.bastion.oc1.iad.aaaa"),
    _oci("BASTION_HOST_KEY", example="ssh-ed25519 AAAA"),
    _oci("SSH_JUMP", example="me@jump.example.com"),
    _oci("SHAPE", "VM.Standard.E4.Flex"),
    _oci("OCPUS", example="4"),
    _oci("MEMORY_GBS", example="64"),
    _oci("MAIN_SHAPE", example="VM.Standard.E4.Flex"),
    _oci("MAIN_OCPUS", example="2"),
    _oci("MAIN_MEMORY_GBS", example="16"),
    _oci("WORKER_SHAPE", example="VM.Standard.E5.Flex"),
    _oci("WORKER_OCPUS", example="8"),
    _oci("WORKER_MEMORY_GBS", example="128"),
    _oci("PS_SHAPE", example="VM.Standard.E4.Flex"),
    _oci("PS_OCPUS", example="4"),
    _oci("PS_MEMORY_GBS", example="64"),
    _oci("STORAGE_GBS", "100"),
    _oci("CAPACITY_RESERVATION_OCID", example="ocid1.capacityreservation.oc1.iad.aaaa"),
    _oci("LOG_GROUP_OCID", example="ocid1.loggroup.oc1.iad.aaaa"),
    _oci("LOG_OCID", example="ocid1.log.oc1.iad.aaaa"),
    _oci("STORAGE_MOUNTS", example="data=oci://bucket@namespace/prefix shared=fss:<mount target OCID>:<export OCID>"),
    _oci("MAX_RUNTIME", example="6h"),
    _oci("OCI_JOB_STYLE", "runs"),
    _kubernetes("KUBECONFIG"),
    _kubernetes("KUBE_CONTEXT", example="my-cluster"),
    _kubernetes("NAMESPACE", example="team-a"),
    _kubernetes("IMAGE_PULL_SECRETS", example="ocir"),
    _kubernetes("GPU_RESOURCE", "nvidia.com/gpu"),
    _kubernetes("NODE_SELECTOR", example="node.kubernetes.io/instance-type=BM.GPU4.8"),
    _kubernetes("TOLERATIONS", example="team=vision:NoSchedule"),
    _kubernetes("VOLUMES", example="data=pvc:datasets:ro"),
    _kubernetes("ENV_SECRETS", example="wandb"),
    _kubernetes("SERVICE_ACCOUNT", example="training"),
    _kubernetes("LABELS", example="team=vision"),
    _kubernetes("ANNOTATIONS", example="contact=me@example.com"),
    _kubernetes("POD_PATCH", example="pod.yaml"),
    _kubernetes("HOST_NETWORK", "0"),
    _kubernetes("EXCHANGE_PORT", "7077"),
    _kubernetes("EXPOSE_SERVICE", example="NodePort"),
    _kubernetes("QUEUE", flag="--queue", example="team-a"),
    _kubernetes("PRIORITY", flag="--priority", example="low"),
    _kubernetes("PRIORITY_CLASS", example="batch"),
    _kubernetes("CPU_LIMIT", example="8"),
    _kubernetes("WAIT_FOR_QUOTA", "0", flag="--wait-for-quota", example="2h"),
    _kubernetes("MAX_PREEMPTIONS", example="5"),
    _kubernetes("KEEP_ENDED", "7d"),
    _any_backend("OCI_CLI_CONFIG_FILE"),
    _any_backend("OCI_CLI_PROFILE", default="DEFAULT"),
    _any_backend("OCI_CLI_REGION", example="us-ashburn-1"),
    _any_backend("OCI_CLI_AUTH", default="api_key"),
)
TENANCY_SETTINGS = (
    _tenancy("PEOPLE_GROUP", "data-scientists"),
    _tenancy("NODES_GROUP", "cluster-runs"),
    _tenancy("POLICY_NAME", "clusters"),
    _tenancy("IMAGES_COMPARTMENT_OCID", example="ocid1.compartment.oc1..bbbb"),
    _tenancy("SECRETS_COMPARTMENT_OCID", example="ocid1.compartment.oc1..dddd"),
    _tenancy("NETWORK_COMPARTMENT_OCID", example="ocid1.compartment.oc1..cccc"),
    _tenancy("KEEP_CLUSTERS_DAYS", "90", parse=partial(parsers.parse_count, maximum=36500)),
    _tenancy("LOG_GROUP_NAME", "clusters"),
)
_OTHERS = (
    Setting("NODE_NAME", receiver=Receiver.SCRIPT),
    _launcher("BACKEND", default="local", flag="--backend"),
    _launcher("PYTHON", default="python3"),
    _launcher(
        "PROVISION_TIMEOUT",
        parse=parsers.parse_duration,
        default="0",
        example="30m",  # oci's
        backend_defaults={"docker": "5m", "oci": "30m", "kubernetes": "30m"},
    ),
    _launcher("CODE_KEYS", parse=parsers.parse_names, default=None, example="tests/server.txt,tests/client.txt"),
    *_IMAGES,
    *_BACKENDS,
    *TENANCY_SETTINGS,
)

SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in (*_NODES, *_OTHERS)}
PASSED_ON: tuple[Setting, ...] = tuple(row for row in _NODES if row.receiver is Receiver.AS_GIVEN)
"""What a launch hands to every node as it was given; where it was not, the agent's own default applies."""
DECIDED = frozenset(name for name, row in SETTINGS.items() if row.receiver in {Receiver.DECIDED, Receiver.SCRIPT})
"""What ``--env`` must not give, because the launcher or the agent decides it."""
FLAGS: Mapping[str, str] = {name: row.flag for name, row in SETTINGS.items() if row.flag}
"""The flag of ``launch.sh`` that gives a setting, by the setting's name."""
FLAG_ONLY = frozenset(name for name, row in SETTINGS.items() if row.is_flag_only)
"""What ``--env`` must not give, because its flag does."""
