"""A node's settings: the environment read once, checked, and turned into one frozen object."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from oci_cluster.contract.names import node_dir, node_name
from oci_cluster.contract.parsers import is_at_main, parse_duration, parse_place
from oci_cluster.contract.session import session_dir
from oci_cluster.contract.settings.schema import SETTINGS, Setting
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT, SettingsReader, framework_defaults, framework_dir

# By the fields that have them: a duration's is in seconds.
_NAMES = {f"{name.lower()}_s" if row.parse is parse_duration else name.lower(): name for name, row in SETTINGS.items()}


@dataclass(frozen=True)
class NodeSettings:
    """The settings of one node. Durations are seconds; ``ttl_s`` 0: no limit.

    A field is called as its setting. Those that depend on others :func:`read_settings` names.
    """

    mode: str
    rank: int
    worker_count: int
    ps_count: int
    min_workers: int
    framework: str
    framework_dir: Path
    work_dir: str
    cluster_id: str
    cluster_name: str
    launch_id: str
    launch_key: str
    launcher_version: str
    entry_point: str
    entry_module: str
    entry_args: tuple[str, ...]
    profile_cmd: tuple[str, ...]
    code_dir: Path
    code_uri: str
    output_dir: str
    output_folders: tuple[str, ...]
    output_interval_s: float
    timeout_s: float
    ephemeral: bool
    ttl_s: float
    session: str
    session_verifier: str
    idle_limit_s: float
    grace_period_s: float
    heartbeat_interval_s: float
    heartbeat_timeout_s: float
    silence_timeout_s: float
    poll_ceiling_s: float
    wait_for_addresses: bool
    find_interface: bool
    entry_on_all: bool
    gang: bool
    max_restarts: int
    interruptible: bool
    adapt: tuple[int, int] | None
    followed: str
    cluster_tls: bool
    client_token: bool
    vault_secrets: Mapping[str, str]
    node_logs: bool
    max_log_bytes: int
    start_by: float
    node_address: str
    cluster_nodes_metadata_file: str
    node_group: str
    own_network: bool
    expose: tuple[int, ...]
    subnet_cidr: str
    termination_log: str

    @property
    def is_main(self) -> bool:
        """True on the node that leads the cluster."""
        return self.mode == "MAIN"

    @property
    def node(self) -> str:
        """This node's name, see :func:`node_name`."""
        return node_name(self.mode, self.rank)

    @property
    def cluster_url(self) -> str:
        """The cluster dir, as an fsspec URL."""
        return f"{self.work_dir.rstrip('/')}/{self.cluster_id}"

    @property
    def other_nodes(self) -> tuple[str, ...]:
        """Names of all nodes but main: workers first, then parameter servers."""
        workers = [node_name("WORKER", rank) for rank in range(1, self.worker_count + 1)]
        servers = [node_name("PS", rank) for rank in range(self.first_ps, self.first_ps + self.ps_count)]
        return (*workers, *servers)

    @property
    def first_ps(self) -> int:
        """The least rank of a parameter server: those of the workers come before."""
        return self.worker_count + 1


def min_workers_of(read: SettingsReader, worker_count: int) -> int:
    """Return how few workers a cluster can do with: *worker_count* where nobody says.

    The first source that names ``MIN_WORKERS``, or ``MIN_NODES``, which counts main too, decides; of both, the former.
    """
    for source in read.sources:
        if source.get("MIN_WORKERS"):
            return int(read.setting("MIN_WORKERS", worker_count) or 0)
        if source.get("MIN_NODES"):
            return int(read.setting("MIN_NODES", worker_count + 1) or 1) - 1
    return worker_count


def role_and_rank(read: SettingsReader) -> tuple[str, int]:
    """Return the node's role and rank, by ``MODE`` or by Kubernetes' index."""
    index = read.setting("JOB_COMPLETION_INDEX", -1)
    if read.text("MODE") or index < 0:
        mode = read.setting("MODE")
        return mode, 0 if mode == "MAIN" else read.setting("NODE_RANK")
    if index == 0:
        return "MAIN", 0
    # Problems of the two counts are noted where they are read.
    counts = SettingsReader(*read.sources)
    last_worker = counts.setting("WORKER_COUNT") or 0
    return "PS" if last_worker < index <= last_worker + (counts.setting("PS_COUNT") or 0) else "WORKER", index


def checked(read: SettingsReader, settings: Iterable[Setting]) -> dict[str, str]:
    """Return the texts of *settings* that *read* has, and note problems in it."""
    given: dict[str, str] = {}
    for row in settings:
        if text := read.text(row.name):
            read.value(row.name, row.parse)
            given[row.name] = text
    return given


def read_settings(environ: Mapping[str, str], root: Path = PROJECT_ROOT) -> NodeSettings:
    """Return the settings of this node.

    An error names every variable that is missing or wrong, in one message.
    """
    read = SettingsReader(environ)
    folder = _add_framework(read, root)
    mode, rank = role_and_rank(read)
    gang, session, lost_s = map(read.setting, ("GANG", "SESSION", "HEARTBEAT_TIMEOUT"))
    usual_s = float(SETTINGS["HEARTBEAT_INTERVAL"].default or 0)
    entry_on_all = bool(read.setting("ENTRY_ON") or gang)
    own = {
        "mode": mode,
        "rank": rank,
        "min_workers": min_workers_of(read, read.setting("WORKER_COUNT") or 0),
        "framework": read.text("FRAMEWORK"),
        "framework_dir": folder,
        "cluster_name": read.setting("CLUSTER_NAME", read.setting("CLUSTER_ID") or "-"),
        "entry_point": _entry_point(read, session, root, needs_one=read.setting("EPHEMERAL")),
        "entry_module": "" if session else read.setting("ENTRY_MODULE"),
        "entry_args": (*read.setting("ARGS", []), *read.setting("NAMED_ARGS", [])),
        "profile_cmd": _profile_cmd(read, node_name(mode, rank), entry_on_all=entry_on_all),
        "code_dir": read.setting("CODE_DIR", _default_code_dir(read, mode, rank)),
        "output_folders": tuple(read.setting("OUTPUT_FOLDERS")),
        "heartbeat_interval_s": read.setting("HEARTBEAT_INTERVAL", min(usual_s, (lost_s or math.inf) / 2.5)),
        "wait_for_addresses": read.setting("WAIT_FOR_ADDRESSES") or gang,
        "entry_on_all": entry_on_all,
        "adapt": read.setting("ADAPT") or None,
        "start_by": read.setting("START_BY", float("inf")),
        "expose": tuple(read.setting("EXPOSE") or ()),
        "vault_secrets": _vault_secrets(read),
    }
    others = {name: read.setting(_NAMES[name]) for field in fields(NodeSettings) if (name := field.name) not in own}
    return _checked(read, NodeSettings(**own, **others))


def _entry_point(read: SettingsReader, session: str, root: Path, *, needs_one: bool) -> str:
    """Return the script that main runs, its own or a session's; empty where none."""
    own = read.text("ENTRY_MODULE") or session
    entry_point: str = read.setting("ENTRY_POINT", "" if own or not needs_one else None)
    if not session:
        return "" if own else entry_point
    script = session_dir(session, root) / "start.sh"
    if not script.is_file():
        read.complain(
            "SESSION", f"SESSION: there is no {script}", "an image that is older than this kind is built anew"
        )
    return str(script)


def _profile_cmd(read: SettingsReader, node: str, *, entry_on_all: bool) -> tuple[str, ...]:
    """Return the words before the entry point's command on this *node*, if any."""
    words, nodes = tuple(read.setting("PROFILE_CMD") or ()), read.setting("PROFILE_NODES") or []
    if words and not entry_on_all and nodes not in (["MAIN"], ["ALL"]):
        read.complain(
            "PROFILE_NODES", f"PROFILE_NODES: {' '.join(nodes)}: only MAIN runs the entry point (ENTRY_ON=main)"
        )
    return words if nodes == ["ALL"] or node in nodes else ()


def _vault_secrets(read: SettingsReader) -> dict[str, str]:
    found = dict(read.setting("VAULT_SECRETS") or {})
    if ours := sorted(set(found) & set(SETTINGS)):
        told = f"VAULT_SECRETS: {', '.join(ours)}: a node reads its settings before it asks for secrets"
        read.complain("VAULT_SECRETS", told)
    return found


def _add_framework(read: SettingsReader, root: Path) -> Path:
    """Have the framework's own defaults count, and return its folder."""
    folder = read.value("FRAMEWORK", lambda name: framework_dir(name, root))
    read.sources.append(framework_defaults(folder) if not read.problems else {})
    return folder


def _checked(read: SettingsReader, settings: NodeSettings) -> NodeSettings:
    """Return *settings*; raise what is wrong, also with values that do not fit together."""
    if not read.problems and settings.min_workers > settings.worker_count:
        read.complain(
            "MIN_WORKERS",
            f"MIN_WORKERS (MIN_NODES less main): {settings.min_workers} is more than"
            f" WORKER_COUNT ({settings.worker_count})",
        )
    if not read.problems and settings.heartbeat_timeout_s <= 2 * settings.heartbeat_interval_s:
        read.complain(
            "HEARTBEAT_TIMEOUT",
            f"HEARTBEAT_TIMEOUT: {settings.heartbeat_timeout_s:g} s must be more than twice HEARTBEAT_INTERVAL"
            f" ({settings.heartbeat_interval_s:g} s), else one late heartbeat ends the cluster",
        )
    if not read.problems and is_at_main(settings.work_dir):
        _check_at_main(read, settings)
    read.check()
    return settings


def _check_at_main(read: SettingsReader, settings: NodeSettings) -> None:
    try:
        parse_place(settings.work_dir)
    except ValueError as error:
        read.complain("WORK_DIR", f"WORK_DIR: {error}")
    if not settings.launch_key:
        why = "without it, the nodes and main of WORK_DIR main:// cannot know each other"
        read.complain("LAUNCH_KEY", f"LAUNCH_KEY is not set: {why}")
    if settings.node_logs:
        why = "NODE_LOGS: 1 does not go with WORK_DIR main://: logs would fill main's memory"
        read.complain("NODE_LOGS", why, "set 0")
    if is_at_main(settings.code_uri):
        way_out = "use an image with the code, git+ or storage"
        read.complain("CODE_URI", "CODE_URI: code cannot be in the memory of main", way_out)


def _default_code_dir(read: SettingsReader, mode: str, rank: int) -> Path:
    """Return where an image has the user's code, or where this node fetches it."""
    if not read.text("CODE_URI"):
        return Path("/code")
    return node_dir(read.text("LAUNCH_ID"), node_name(mode, rank)) / "code"
