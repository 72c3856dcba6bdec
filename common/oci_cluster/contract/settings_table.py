"""Every setting, once: its names, default, form and receiver.

Agents read it through :mod:`oci_cluster.contract.settings`, the launcher through :data:`PASSED_ON`, :data:`DECIDED` and
:data:`FLAGS` too. Files that name settings for people (``config.env.example``, ``scripts/backends/*.env``, tables of
``common/README.md``) are held to it by tests. What a framework adds is in its own ``settings.env``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from oci_cluster.contract.values import (
    parse_address,
    parse_args,
    parse_bounds,
    parse_count,
    parse_duration,
    parse_entry_on,
    parse_folders,
    parse_followed,
    parse_gpus,
    parse_module,
    parse_name,
    parse_named_args,
    parse_names,
    parse_network,
    parse_ports,
    parse_profiled,
    parse_role,
    parse_switch,
    parse_time,
    parse_torch,
    parse_url,
    parse_verifier,
)


class Receiver(Enum):
    """Who gets a setting, and from whom."""

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
    receiver: Receiver
    meaning: str
    """One line for people; Markdown, as tables show it. Empty where the name says it all."""
    parse: Callable[[str], Any] = str
    """What makes a value of its text; raises ValueError. ``str``: whoever reads the setting knows more of it."""
    default: str | None = ""
    """As somebody would write it. Empty: there is none. None: it must be given."""
    computed_default: str = ""
    """In words, where the default depends on other settings, or on the place."""
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
    """What ``config.env.example`` shows; empty: the default."""
    is_for_config: bool = True
    """Whether ``config.env.example`` shows it: nothing that the launcher decides, or that is one cluster's own."""


_parse_positive = partial(parse_count, minimum=1)


def _decided(name: str, meaning: str, parse: Callable[[str], Any] = str, **more: Any) -> Setting:
    return Setting(name, Receiver.DECIDED, meaning, parse, is_for_config=False, **{"default": None, **more})


def _given(name: str, meaning: str, parse: Callable[[str], Any] = str, default: str = "", **more: Any) -> Setting:
    return Setting(name, Receiver.AS_GIVEN, meaning, parse, default, **more)


def _seconds(name: str, meaning: str, default: str, **more: Any) -> Setting:
    return _given(name, meaning, parse_duration, default, **more)


def _switch(name: str, meaning: str, **more: Any) -> Setting:
    return _given(name, meaning, parse_switch, "0", **more)


def _resolved(name: str, meaning: str, parse: Callable[[str], Any] = str, **more: Any) -> Setting:
    return Setting(name, Receiver.RESOLVED, meaning, parse, **more)


def _rows(receiver: Receiver, *backends: str) -> Callable[..., Setting]:
    """Return a maker of rows for *receiver*, whose default is the *backends*', too."""

    def row(name: str, meaning: str, default: str = "", **more: Any) -> Setting:
        more = {"backend_defaults": dict.fromkeys(backends, default), **more}
        return Setting(name, receiver, meaning, default=default, **more)

    return row


_image, _tenancy, _launcher, _placed = map(
    _rows, (Receiver.IMAGES, Receiver.TENANCY, Receiver.LAUNCHER, Receiver.PLACED)
)
_any_backend, _docker, _oci = _rows(Receiver.BACKEND), _rows(Receiver.BACKEND, "docker"), _rows(Receiver.BACKEND, "oci")
_kubernetes = _rows(Receiver.BACKEND, "kubernetes")


def _of_role(role: str, nodes: str, *examples: str) -> Iterator[Setting]:
    for name, example in zip(("SHAPE", "OCPUS", "MEMORY_GBS"), examples, strict=True):
        yield _oci(f"{role}_{name}", f"`{name}` of {nodes}, where that is another", example=example)


_PLACED = (
    _placed(
        "WORK_DIR",
        "any fsspec URL, or `main://HOST:PORT`: the memory of main, see below",
        parse=parse_url,
        default=None,
        aliases=("OCI__WORK_DIR",),
        example="file:///data/clusters",
    ),
    _placed(
        "CODE_URI",
        "fetched into `CODE_DIR` first: `<fsspec URL of a tar>#sha256=<hex>` of 10 GiB at most, `git+<URL>@<ref>`, or"
        " `folder+<fsspec URL of a folder>`, which no hash checks",
        example="git+https://example.com/me/project@v1",
    ),
    _placed(
        "NODE_LOGS",
        "`1`: all that the node prints goes to the cluster dir too",
        parse=parse_switch,
        default="0",
        backend_defaults={"oci": "1", "kubernetes": ""},
        example="1",
    ),
    _placed(
        "NODE_GROUP",
        "the group of which the service has started this node: the node takes a rank of it by itself, see below",
        is_for_config=False,
    ),
    _placed(
        "CLUSTER_NODES_METADATA_FILE",
        'set by OCI\'s node groups: a list of `{"Rank", "IPAddress"}`, in which this node\'s address is; waited for',
        is_for_config=False,
    ),
    _placed(
        "SUBNET_CIDR",
        "the address inside it is this node's",
        parse=parse_network,
        backend_defaults={"oci": ""},
        example="10.0.1.0/24",
    ),
    _placed(
        "JOB_COMPLETION_INDEX",
        "set by Kubernetes: where there is no `MODE`, the rank, of which the role follows: 0 is main, then the workers,"
        " then the parameter servers; what comes after these is a worker, too",
        parse=parse_count,
        is_for_config=False,
    ),
    _placed(
        "TERMINATION_LOG",
        "a file to which the node writes how it has ended, for who cannot reach the cluster dir, see below",
        is_for_config=False,
    ),
)
# In this order a launch hands them on.
_NODES = (
    _decided("MODE", "role: `MAIN`, `WORKER` or `PS`", parse_role, aliases=("OCI__MODE",)),
    _decided(
        "NODE_RANK",
        "0 is main; kept for the node's life and reused by its replacement",
        _parse_positive,
        computed_default="0 on main, else required",
        aliases=("RANK", "OCI__RANK"),
    ),
    _decided(
        "WORKER_COUNT",
        "workers that the launch asked for, main not counted; 0: main is the only node, and computes",
        parse_count,
        aliases=("OCI__WORKER_COUNT",),
    ),
    _decided("FRAMEWORK", "folder with the start scripts, beside `common/`"),
    _decided("CLUSTER_ID", "names the cluster dir: `WORK_DIR/CLUSTER_ID`", parse_name, aliases=("JOB_OCID",)),
    _decided("LAUNCH_ID", "random, one per launch; every file that bears another one is ignored", parse_name),
    _decided(
        "LAUNCH_KEY",
        "random, one per launch; what nodes of this launch, and nobody else, sign with."
        " Without it `LAUNCH_ID` takes its place, which is no secret, and the node warns",
        default="",
    ),
    _decided("LAUNCHER_VERSION", "the launcher's version; main says once where its own is another one", default=""),
    _decided("START_BY", "a node that starts later, and finds no main, ends at once with 75", parse_time, default=""),
    _decided(
        "FOLLOWED",
        "where somebody follows the cluster who starts and ends workers as main wishes: which ones can be ended, `any`"
        " or the `last` ones alone",
        parse_followed,
        default="",
    ),
    _decided("NODE_ADDRESS", "this node's address; not looked for when given", parse_address, default=""),
    _decided(
        "OWN_NETWORK",
        "`1`: the node's network is its own, as that of a container: its loopback address is nobody else's",
        parse_switch,
        default="0",
    ),
    _resolved(
        "PS_COUNT",
        "parameter servers; their ranks follow the workers'",
        parse_count,
        default="0",
        aliases=("OCI__PS_COUNT",),
        flag="--ps",
    ),
    _resolved(
        "MIN_WORKERS",
        "the cluster ends when fewer can be left",
        parse_count,
        computed_default="`WORKER_COUNT`",
        example="3",
    ),
    _resolved(
        "MIN_NODES",
        "the same, counted with main; where both are given, `MIN_WORKERS` wins",
        _parse_positive,
        computed_default="`MIN_WORKERS` + 1",
        is_for_config=False,
    ),
    _resolved(
        "CLUSTER_NAME",
        "for people",
        parse_name,
        computed_default="`CLUSTER_ID`",
        flag="--name",
        is_flag_only=True,
        is_for_config=False,
    ),
    _resolved(
        "EPHEMERAL",
        "`1`: the cluster ends with its entry point; `0`: it stays until it is stopped or its TTL is over",
        parse_switch,
        default="1",
        aliases=("OCI__EPHEMERAL",),
        flag="--keep",
    ),
    _resolved(
        "ENTRY_POINT",
        "the user's script, relative to `CODE_DIR` or absolute",
        default=None,
        computed_default="required if `EPHEMERAL=1`",
        aliases=("ENTRY_SCRIPT", "OCI__ENTRY_SCRIPT"),
        flag="--entry",
        is_flag_only=True,
        example="train.py",
    ),
    _resolved(
        "ENTRY_MODULE",
        "the module that is run as `python -m`, with `CODE_DIR` as the root of imports; wins over `ENTRY_POINT`",
        parse_module,
        flag="--module",
        is_flag_only=True,
        example="package.train",
    ),
    _resolved(
        "ARGS",
        "its arguments: a JSON list, or one shell-quoted string",
        parse_args,
        aliases=("OCI__ENTRY_SCRIPT_ARGS",),
        flag="-- ARGUMENT...",
        is_flag_only=True,
        example="--epochs 10",
    ),
    _resolved(
        "CODE_DIR",
        "where the user's code is; the working directory of the start script",
        Path,
        computed_default="`/code`, with `CODE_URI` a private directory",
        aliases=("OCI__CODE_DIR",),
        flag="--code",
        is_flag_only=True,
        example="src",
    ),
    _switch(
        "INTERRUPTIBLE",
        "`1`: TERM interrupts, and the nodes are started again under this launch id",
        backend_defaults={"kubernetes": "1"},
    ),
    _given("MAX_RESTARTS", "with `GANG=1`: how often the gang is started again after a failure", parse_count, "0"),
    _given(
        "ADAPT",
        "`MIN:MAX`: main wishes for as many workers as there is work for, within these bounds",
        parse_bounds,
        example="1:10",
    ),
    _given(
        "ENTRY_ON",
        "`all`: every node runs the entry point, so a failure is traced to its first cause",
        parse_entry_on,
        default="main",
        is_for_config=False,
    ),
    _switch(
        "GANG",
        "`1`: all nodes start, and start again, together; implies `ENTRY_ON=all` and `WAIT_FOR_ADDRESSES=1`",
        is_for_config=False,
    ),
    _switch("FIND_INTERFACE", "`1`: the network interface of this node's address is looked up", is_for_config=False),
    _given(
        "NAMED_ARGS",
        "more of them: a JSON object, or `k=v` pairs; each becomes `--k v`",
        parse_named_args,
        aliases=("OCI__ENTRY_SCRIPT_KWARGS",),
        example="lr=0.1 seed=7",
    ),
    _given(
        "PROFILE_CMD",
        "words before the entry point's command, as of a profiler: a JSON list, or one shell-quoted string. `{output}`"
        " is a path in `OUTPUT_DIR` of each process's own",
        parse_args,
        example="py-spy record -o {output}.svg --",
    ),
    _given(
        "PROFILE_NODES",
        "the nodes on which `PROFILE_CMD` counts, commas or blanks between, or `ALL`",
        parse_profiled,
        "MAIN",
    ),
    _given(
        "OUTPUT_DIR",
        "what the entry point writes; uploaded to `<cluster dir>/outputs/<node>` unless `WORK_DIR` is `file://`",
        computed_default="`<cluster dir>/outputs` on `file://`, else `outputs` in the node's private directory",
        aliases=("OCI__SYNC_DIR",),
        example="/data/outputs",
    ),
    _given(
        "OUTPUT_FOLDERS",
        "folders of the code, commas between, that the entry point writes to: they are in `OUTPUT_DIR`",
        parse_folders,
        flag="--outputs",
        example="checkpoints,runs",
    ),
    _seconds("OUTPUT_INTERVAL", "between two uploads; there is always a last one, which is waited for", "60"),
    _seconds(
        "TIMEOUT",
        "longest wait for main, for the other nodes and for ready, each counted from this node's start",
        "600",
        aliases=("TIME_OUT", "OCI__TIMEOUT"),
    ),
    _seconds(
        "TTL",
        "the cluster's longest life; on OCI and Kubernetes a day by default",
        "0",
        aliases=("LIFE_SPAN", "OCI__LIFE_SPAN"),
        flag="--ttl",
        backend_defaults={"oci": "1d", "kubernetes": "1d"},
    ),
    _decided("SESSION", "the kind of session that main runs, a folder of `scripts/sessions/`", parse_name, default=""),
    _decided(
        "SESSION_VERIFIER",
        "the SHA-256 of the session's token, in hex; without it, the token is derived of `LAUNCH_KEY`",
        parse_verifier,
        default="",
    ),
    _seconds("IDLE_LIMIT", "a session that nobody uses for so long ends; 0: it does not", "1h"),
    _seconds("GRACE_PERIOD", "between TERM and KILL", "10"),
    _seconds(
        "HEARTBEAT_INTERVAL", "between two heartbeats; a quarter of `HEARTBEAT_TIMEOUT` where that is shorter", "15"
    ),
    _seconds("HEARTBEAT_TIMEOUT", "a node whose heartbeat has not changed for so long is lost", "60"),
    _seconds(
        "SILENCE_TIMEOUT",
        "when for so long no node has printed anything and none has computed, main says so, and where their Python"
        " waits; 0: it does not",
        "60",
    ),
    _seconds("POLL_CEILING", "polling starts at a tenth of this, 0.2 s at most, and backs off to this", "4"),
    _given(
        "MAX_LOG_BYTES",
        "bytes of what a node prints that are kept, on every disk that has its log; further output is counted and"
        " dropped; 0 keeps all",
        partial(parse_count, maximum=10**15),
        default="1073741824",
    ),
    _given(
        "EXPOSE",
        "ports of main, blanks between, on which servers of the user's own listen, for who connects from outside",
        parse_ports,
        example="6006 9000",
    ),
    _switch(
        "WAIT_FOR_ADDRESSES",
        "`1`: main waits for every node's address before any start script runs",
        is_for_config=False,
    ),
    _switch(
        "CLUSTER_TLS",
        "`1`: main makes a certificate for this launch and hands it to every node",
        example="1",  # Dask's default
    ),
    _switch(
        "CLIENT_TOKEN",
        "`1`: every node gets the token of this launch for programs that connect to the cluster",
        is_for_config=False,
    ),
    *_PLACED,
)
_IMAGES = (
    _image(
        "REGISTRY",
        "where images go: `<region>.ocir.io/<namespace>/<folder>`. Their names are `REGISTRY/<framework>:TAG`",
        example="iad.ocir.io/<namespace>/training",
    ),
    _image("TAG", "the images' tag", computed_default="the output of `git describe`, else `dev`", example="1"),
    _image(
        "EXTRA_ENV",
        "more environment files or a `requirements.txt`, besides the framework's file; several are separated by blanks",
        example="my.yaml",
        backend_defaults={"local": ""},
    ),
    _image(
        "TORCH",
        "`cpu`: PyTorch's own build for CPUs, a fifth of the size of PyPI's",
        parse=parse_torch,
        example="cpu",
        backend_defaults={"local": ""},
    ),
    _image(
        "ENV_FILE",
        "an environment file instead of the framework's",
        computed_default="`<framework>/env.yaml`",
        example="pytorch/env-gpu.yaml",
    ),
    _image("SYSTEM_PACKAGES", "Debian packages: `'git libgl1'`", example="git libgl1"),
    _image("BASE_IMAGE", "another base, see [below](#another-base)", "python:3.11-slim-bookworm"),
    _image(
        "RUN_AS",
        "the uid of the user; `0` is root. Kubernetes runs pods as this user, and as no root",
        "1000",
        backend_defaults={"kubernetes": "1000"},
    ),
    _image("PLATFORM", "the platform of OCI's x86 shapes, also when you build on an ARM machine", "linux/amd64"),
    _image(
        "BUILD_FLAGS",
        "more options for the engine's `build`: `'--network host'`, `--no-cache`",
        example="--network host",
    ),
)
_BACKENDS = (
    _any_backend(
        "IMAGE",
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
    _any_backend(
        "GPUS_PER_NODE",
        "GPUs of this machine for each node of `local`: `auto` shares them out, `all` shows all to every node",
        parse=parse_gpus,
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
    _any_backend("OCI_CLI_CONFIG_FILE", "oci-cli's own: its configuration file", is_for_config=False),
    _any_backend("OCI_CLI_PROFILE", "oci-cli's own: the profile in that file", default="DEFAULT"),
    _any_backend("OCI_CLI_REGION", "oci-cli's own: another region", example="us-ashburn-1"),
    _any_backend("OCI_CLI_AUTH", "oci-cli's own: how requests are signed", default="api_key"),
)
TENANCY_SETTINGS = (
    _tenancy(
        "PEOPLE_GROUP", "the group of those who launch; of another identity domain `domain/name`", "data-scientists"
    ),
    _tenancy(
        "NODES_GROUP", "the dynamic group of the Job Runs; of another identity domain `domain/name`", "cluster-runs"
    ),
    _tenancy("POLICY_NAME", "the policy that has the statements, in the root compartment", "clusters"),
    _tenancy(
        "IMAGES_COMPARTMENT_OCID",
        "the compartment of the repositories",
        computed_default="`COMPARTMENT_OCID`",
        example="ocid1.compartment.oc1..bbbb",
    ),
    _tenancy(
        "NETWORK_COMPARTMENT_OCID",
        "the compartment of the subnet",
        computed_default="the subnet's own, without one `COMPARTMENT_OCID`",
        example="ocid1.compartment.oc1..cccc",
    ),
    _tenancy(
        "KEEP_CLUSTERS_DAYS",
        "after so many days the bucket deletes what is below `WORK_DIR`: logs, code and outputs; 0: never",
        "90",
        parse=partial(parse_count, maximum=36500),
    ),
    _tenancy("LOG_GROUP_NAME", "the log group, without `LOG_GROUP_OCID`; `none`: none", "clusters"),
)
_OTHERS = (
    Setting("NODE_NAME", Receiver.SCRIPT, "`MAIN`, `WORKER_<rank>`, `PS_<rank>`", is_for_config=False),
    _launcher(
        "BACKEND", "where nodes run: `local`, `docker`, `oci` or `kubernetes`", default="local", flag="--backend"
    ),
    _launcher("PYTHON", "Python that makes `.venv`", default="python3"),
    _launcher(
        "PROVISION_TIMEOUT",
        "longest wait of the launcher until all nodes have started; 0 is none",
        parse=parse_duration,
        default="0",
        example="30m",  # oci's
        backend_defaults={"docker": "5m", "oci": "30m", "kubernetes": "30m"},
    ),
    _launcher(
        "CODE_KEYS",
        "files of the code that hold a private key, and go to the nodes all the same",
        parse=parse_names,
        default=None,
        example="tests/server.txt,tests/client.txt",
    ),
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
