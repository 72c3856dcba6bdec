"""Every setting there is, once: its names, its default, what it must look like, and who gets it.

Agents read it through :mod:`oci_cluster.contract.settings`, the launcher through :data:`PASSED_ON`, :data:`DECIDED` and
:data:`FLAGS` too. Files that name settings for people (``config.env.example``, ``scripts/backends/*.env``, tables of
``common/README.md``) are held to it by tests. What a framework adds is in its own ``settings.env``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from oci_cluster.contract.backend_settings import BACKEND_SETTINGS
from oci_cluster.contract.image_settings import IMAGE_SETTINGS
from oci_cluster.contract.placed_settings import PLACED_SETTINGS
from oci_cluster.contract.setting import Receiver, Setting
from oci_cluster.contract.tenancy_settings import TENANCY_SETTINGS
from oci_cluster.contract.values import (
    parse_address,
    parse_args,
    parse_bounds,
    parse_count,
    parse_duration,
    parse_entry_on,
    parse_folders,
    parse_followed,
    parse_module,
    parse_name,
    parse_named_args,
    parse_names,
    parse_ports,
    parse_profiled,
    parse_role,
    parse_switch,
    parse_time,
    parse_verifier,
)

_parse_positive = partial(parse_count, minimum=1)


def _decided(name: str, meaning: str, parse: Callable[[str], Any] = str, **more: Any) -> Setting:
    return Setting(name, Receiver.DECIDED, meaning, parse, is_for_config=False, **{"default": None, **more})


def _given(name: str, meaning: str, parse: Callable[[str], Any] = str, default: str = "", **more: Any) -> Setting:
    return Setting(name, Receiver.AS_GIVEN, meaning, parse, default, **more)


def _resolved(name: str, meaning: str, parse: Callable[[str], Any] = str, **more: Any) -> Setting:
    return Setting(name, Receiver.RESOLVED, meaning, parse, **more)


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
    _given(
        "INTERRUPTIBLE",
        "`1`: TERM interrupts, and the nodes are started again under this launch id",
        parse_switch,
        "0",
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
    _given(
        "GANG",
        "`1`: all nodes start, and start again, together; implies `ENTRY_ON=all` and `WAIT_FOR_ADDRESSES=1`",
        parse_switch,
        default="0",
        is_for_config=False,
    ),
    _given(
        "FIND_INTERFACE",
        "`1`: the network interface of this node's address is looked up",
        parse_switch,
        default="0",
        is_for_config=False,
    ),
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
    _given(
        "OUTPUT_INTERVAL", "between two uploads; there is always a last one, which is waited for", parse_duration, "60"
    ),
    _given(
        "TIMEOUT",
        "longest wait for main, for the other nodes and for ready, each counted from this node's start",
        parse_duration,
        "600",
        aliases=("TIME_OUT", "OCI__TIMEOUT"),
    ),
    _given(
        "TTL",
        "the cluster's longest life; on OCI and Kubernetes a day by default",
        parse_duration,
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
    _given("IDLE_LIMIT", "a session that nobody uses for so long ends; 0: it does not", parse_duration, default="1h"),
    _given("GRACE_PERIOD", "between TERM and KILL", parse_duration, default="10"),
    _given(
        "HEARTBEAT_INTERVAL",
        "between two heartbeats; a quarter of `HEARTBEAT_TIMEOUT` where that is shorter",
        parse_duration,
        default="15",
    ),
    _given("HEARTBEAT_TIMEOUT", "a node whose heartbeat has not changed for so long is lost", parse_duration, "60"),
    _given(
        "SILENCE_TIMEOUT",
        "when for so long no node has printed anything and none has computed, main says so, and where their Python"
        " waits; 0: it does not",
        parse_duration,
        default="60",
    ),
    _given(
        "POLL_CEILING", "polling starts at a tenth of this, 0.2 s at most, and backs off to this", parse_duration, "4"
    ),
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
    _given(
        "WAIT_FOR_ADDRESSES",
        "`1`: main waits for every node's address before any start script runs",
        parse_switch,
        default="0",
        is_for_config=False,
    ),
    _given(
        "CLUSTER_TLS",
        "`1`: main makes a certificate for this launch and hands it to every node",
        parse_switch,
        default="0",
        example="1",  # Dask's default
    ),
    _given(
        "CLIENT_TOKEN",
        "`1`: every node gets the token of this launch for programs that connect to the cluster",
        parse_switch,
        default="0",
        is_for_config=False,
    ),
    *PLACED_SETTINGS,
)
_OTHERS = (
    Setting("NODE_NAME", Receiver.SCRIPT, "`MAIN`, `WORKER_<rank>`, `PS_<rank>`", is_for_config=False),
    Setting(
        "BACKEND",
        Receiver.LAUNCHER,
        "where nodes run: `local`, `docker`, `oci` or `kubernetes`",
        default="local",
        flag="--backend",
    ),
    Setting("PYTHON", Receiver.LAUNCHER, "Python that makes `.venv`", default="python3"),
    Setting(
        "PROVISION_TIMEOUT",
        Receiver.LAUNCHER,
        "longest wait of the launcher until all nodes have started; 0 is none",
        parse_duration,
        default="0",
        example="30m",  # oci's
        backend_defaults={"docker": "5m", "oci": "30m", "kubernetes": "30m"},
    ),
    Setting(
        "CODE_KEYS",
        Receiver.LAUNCHER,
        "files of the code that hold a private key, and go to the nodes all the same",
        parse_names,
        default=None,
        example="tests/server.txt,tests/client.txt",
    ),
    *IMAGE_SETTINGS,
    *BACKEND_SETTINGS,
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
