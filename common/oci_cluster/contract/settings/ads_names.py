"""Names of ADS's `opctl distributed-training`, and what they are called here.

The names are those that ADS's own code reads, in `ads/opctl` and in the images that `distributed-training init` made.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

# Where the code is in ADS's images, and where nodes put what they fetch.
CODE_DIR = "/code"


@dataclass(frozen=True)
class AdsName:
    """A variable of ADS: the setting for it here, or why there is none."""

    name: str
    own: str = ""
    """Our setting, which takes the same value; empty: there is none."""
    reason: str = ""
    """Why there is none."""
    effect: str = ""
    """What that means for somebody: nothing (empty), they get something ``else``, or it is ``lost``."""
    frameworks: tuple[str, ...] = ()
    """Where it means this; empty: everywhere."""
    off: str = ""
    """The value that says nothing, as what it switches is off anyway."""


def _no_need(names: str, reason: str, *frameworks: str) -> list[AdsName]:
    return [AdsName(name, reason=reason, frameworks=frameworks) for name in names.split()]


def _lost(names: str, reason: str, *frameworks: str) -> list[AdsName]:
    return [AdsName(name, reason=reason, effect="lost", frameworks=frameworks) for name in names.split()]


_NAMES = (
    AdsName("WORKER_PORT", "SSH_PORT", frameworks=("horovod",)),
    AdsName("WORKER_PORT", "TASK_PORT", frameworks=("tensorflow",)),
    AdsName("MASTER_PORT", "RENDEZVOUS_PORT", frameworks=("pytorch",)),
    AdsName("START_TIMEOUT", "TIMEOUT", frameworks=("horovod",)),
    AdsName("OCI__TIMEOUT", "TIMEOUT"),
    AdsName("OCI__LIFE_SPAN", "TTL"),
    AdsName(
        "OCI__SYNC_DIR",
        reason="the script gets a folder of its node's by this name, and as OUTPUT_DIR; ask it, and name no path",
        effect="else",
    ),
    AdsName("SYNC_SLEEP", "OUTPUT_INTERVAL"),
    *_no_need("SYNC_ARTIFACTS", "what the script writes to OUTPUT_DIR (OCI__SYNC_DIR) is always kept"),
    *_no_need("POST_PROCESSING_WAIT", "the last upload is waited for, however long it takes"),
    *_no_need("OCI_IAM_TYPE OCIFS_IAM_TYPE", "nodes on OCI are the resource principal of their Job Run"),
    *_no_need("OCI_CONFIG_PROFILE OCIFS_CONFIG_PROFILE", "nodes on OCI have no config file of oci-cli"),
    *_no_need(
        "OCI__CERTIFICATE_OCID OCI__CERTIFICATE_AUTHORITY_OCID OCI__CERTIFICATE_DOWNLOAD_LOCATION"
        " OCI__CERTIFICATE_KEY_DOWNLOAD_LOCATION OCI__CA_DOWNLOAD_LOCATION",
        "Dask's connections are encrypted anyway, with a certificate made for each launch (CLUSTER_TLS=1)",
    ),
    *(
        AdsName(name, reason="outputs go to <WORK_DIR>/<cluster>/outputs, and to no place of their own", effect="else")
        for name in ("WORKSPACE", "WORKSPACE_PREFIX")
    ),
    *_no_need("PROFILE", "PROFILE_CMD alone switches profiling on, on main; PROFILE_NODES=ALL does on all nodes"),
    *_lost("NP", "all slots of all nodes get a rank; SLOTS and the number of workers say how many", "horovod"),
    AdsName(
        "ENABLE_TIMELINE",
        reason="Horovod's own variable switches it on: --env HOROVOD_TIMELINE=FILE",
        effect="lost",
        frameworks=("horovod",),
        off="0",
    ),
    *_lost("OCI__DIAGNOSTIC_DEFAULT_CONFIG", "check.sh has its own list of checks"),
    *_lost("SHAPE", "SLOTS=auto is one rank for each GPU of the node, or one", "horovod"),
    *_lost(
        "KWARGS kwargs",
        "ADS hands them to horovodrun, which does not run here; Horovod's HOROVOD_... variables have the same names",
        "horovod",
    ),
)
# Names that our nodes read themselves; see contract/settings/schema.py.
_READ = (
    *("OCI__MODE", "OCI__RANK", "OCI__WORKER_COUNT", "OCI__PS_COUNT", "OCI__EPHEMERAL", "OCI__ENTRY_SCRIPT"),
    *("OCI__ENTRY_SCRIPT_ARGS", "OCI__ENTRY_SCRIPT_KWARGS", "OCI__CODE_DIR", "OCI__WORK_DIR", "OCI__CLUSTER_TYPE"),
    *("OCI__START_ARGS", "OCI__RUNTIME_TYPE", "OCI__RUNTIME_URI", "OCI__RUNTIME_GIT_BRANCH"),
    *("OCI__RUNTIME_GIT_COMMIT", "OCI__RUNTIME_GIT_SECRET_ID", "OCI__RUNTIME_PYTHON_PATH"),
)
GIT_SECRET = "nodes have no ssh key and ask no vault; use an https URL that they may read, or send the code: --code DIR"  # noqa: S105
PYTHON_PATH = "ADS's own had no effect on the script; modules beside the script and in CODE_DIR can be imported"


def find(name: str, framework: str) -> AdsName | None:
    """Return what the variable *name* of ADS means for *framework*, if it is one."""
    return next((row for row in _NAMES if row.name == name and framework in (row.frameworks or (framework,))), None)


def is_unknown(name: str) -> bool:
    """Return whether *name* looks like one of ADS's, but nothing here knows it."""
    return name.startswith("OCI__") and name not in _READ and not any(row.name == name for row in _NAMES)


# Our settings, by the options of `dask-scheduler` and `dask-worker`, and of `horovodrun`.
_OPTIONS = {
    "dask": {
        "--port": "SCHEDULER_PORT",
        "--dashboard-address": "DASHBOARD_PORT",
        "--worker-port": "WORKER_PORTS",
        "--nanny-port": "NANNY_PORTS",
        "--nworkers": "NPROCS",
        "--nprocs": "NPROCS",
        "--nthreads": "NTHREAD",
        "--death-timeout": "DEATH_TIMEOUT",
    },
    "horovod": {
        "--min-np": "MIN_NP",
        "--max-np": "MAX_NP",
        "--slots-per-host": "SLOTS",
        "--reset-limit": "RESET_LIMIT",
        "--start-timeout": "TIMEOUT",
    },
}
# Those that no value follows.
_SWITCHES = {
    "dask": ("--dashboard", "--no-dashboard", "--nanny", "--no-nanny", "--reconnect", "--no-reconnect"),
    "horovod": ("--gloo", "--mpi", "--verbose", "--disable-cache", "--autotune", "--timeline-mark-cycles"),
}
_NO_NEED = {
    "--tls-ca-file": "each launch has a certificate of its own (CLUSTER_TLS=1)",
    "--tls-cert": "each launch has a certificate of its own (CLUSTER_TLS=1)",
    "--tls-key": "each launch has a certificate of its own (CLUSTER_TLS=1)",
    "--gloo": "ranks always find each other by gloo",
    "--verbose": "horovodrun, which it makes say more, does not run here",
}
_NO_OPTION = {
    "dask": "Dask's programs are started with options of ours; dask/settings.env has what can be set",
    "horovod": "horovodrun does not run here; Horovod's own variables work: --env HOROVOD_...",
}
_NO_MPI = "there is no MPI in the images: ranks find each other by gloo, and reduce by NCCL or gloo"


def settings_of(framework: str) -> frozenset[str]:
    """Return our settings that a YAML of *framework* can give by variables and options."""
    by_name = {row.own for row in _NAMES if row.own and framework in (row.frameworks or (framework,))}
    encrypts = {"CLUSTER_TLS"} if framework == "dask" else set()
    return frozenset(by_name | {*_OPTIONS.get(framework, {}).values()} | encrypts)


@dataclass
class Options:
    """The counterparts of a program's options, where ADS starts that program."""

    settings: dict[str, str] = field(default_factory=dict)
    no_need: list[tuple[str, str]] = field(default_factory=list)
    """Options, each with the reason why none is needed."""
    lost: list[tuple[str, str]] = field(default_factory=list)
    """Options, each with the reason why there is no counterpart."""


def options_of(variable: str, framework: str, text: str) -> Options:
    """Return what the options are here that ADS hands to a program of *framework*."""
    found = Options()
    has_options = framework == ("horovod" if variable == "HOROVOD_ARGS" else "dask")
    left = split(text)
    while left:
        word = left.pop(0)
        name, is_joined, value = word.partition("=")
        if not has_options:
            reason = f"nothing of {framework} is started with options; {framework}/settings.env has what can be set"
            found.lost.append((word, reason))
            continue
        is_switch = is_joined or name in _SWITCHES[framework] or not name.startswith("-")
        if not is_switch and left and not left[0].startswith("--"):
            value = left.pop(0)
        _add_option(found, framework, name, value)
    return found


def _add_option(found: Options, framework: str, name: str, value: str) -> None:
    setting = _OPTIONS[framework].get(name)
    if setting and value:
        if setting == "DASHBOARD_PORT":
            value = value.rpartition(":")[2]
        if setting in {"WORKER_PORTS", "NANNY_PORTS"} and value.isdigit() and value != "0":
            value = f"{value}:{value}"
        found.settings[setting] = value
    elif name in _NO_NEED:
        found.no_need.append((name, _NO_NEED[name]))
    elif framework == "dask" and name == "--protocol" and value in {"tcp", "tls"}:
        found.settings["CLUSTER_TLS"] = str(int(value == "tls"))
    else:
        found.lost.append((f"{name} {value}".strip(), _NO_MPI if name == "--mpi" else _NO_OPTION[framework]))


def split(text: str) -> list[str]:
    """Split *text* as ADS does: like a shell, or at blanks."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def code_uri(kind: str, uri: str, branch: str, commit: str) -> str:
    """Return the ``CODE_URI`` of a runtime ``git`` or ``remote``; empty for others."""
    if not uri:
        return ""
    if kind == "git":
        return f"git+{uri}@{commit or branch or 'HEAD'}"
    return f"folder+{uri}" if kind == "remote" else ""


def inside_code(path: str, code_dir: str = CODE_DIR) -> str:
    """Return *path* relative to the code, where ADS's image has it inside the code."""
    for folder in dict.fromkeys((code_dir.rstrip("/"), CODE_DIR)):
        if path.rstrip("/") == folder:
            return "."
        if path.startswith(f"{folder}/"):
            return path.removeprefix(f"{folder}/")
    return path
