"""A node's settings: the environment read once, checked, and turned into one frozen object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oci_cluster.contract.config import PROJECT_ROOT, SettingsReader, framework_defaults, framework_dir
from oci_cluster.contract.main_place import is_at_main, parse_place
from oci_cluster.contract.names import node_dir, node_name
from oci_cluster.contract.session import session_dir
from oci_cluster.contract.setting import Setting

# Others depend on them.
_NEEDED_FIRST = ("WORKER_COUNT", "WORK_DIR", "CLUSTER_ID", "EPHEMERAL", "GANG", "HEARTBEAT_TIMEOUT", "SESSION")


@dataclass(frozen=True)
class Adapt:
    """How many workers main may wish for, and which ones can be ended; none, where nobody follows the cluster."""

    minimum: int
    maximum: int
    followed: str


@dataclass(frozen=True)
class NodeSettings:
    """What one node was told. Durations are seconds; 0 for ``ttl_s`` means no limit. ``start_by``: Unix seconds."""

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
    adapt: Adapt | None
    cluster_tls: bool
    client_token: bool
    node_logs: bool
    max_log_bytes: int
    start_by: float
    address: str
    nodes_metadata: str
    node_group: str
    own_network: bool
    exposed_ports: tuple[int, ...]
    subnet_cidr: str
    termination_log: str

    @property
    def is_main(self) -> bool:
        """Whether this node leads the cluster."""
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
        """Names of all nodes but main: workers have ranks 1 to N, parameter servers those after."""
        workers = [node_name("WORKER", rank) for rank in range(1, self.worker_count + 1)]
        servers = [node_name("PS", rank) for rank in range(self.first_ps, self.first_ps + self.ps_count)]
        return (*workers, *servers)

    @property
    def first_ps(self) -> int:
        """The least rank of a parameter server: those of the workers come before."""
        return self.worker_count + 1


def min_workers_of(read: SettingsReader, worker_count: int) -> int:
    """Return how few workers a cluster can do with; the only place that knows of ``MIN_NODES``.

    Args:
        read: The first of its sources that names ``MIN_WORKERS`` or ``MIN_NODES``, which counts main too, decides; of
            both in one source, ``MIN_WORKERS``. What is wrong with it is noted in its problems.
        worker_count: The answer where nobody names either.
    """
    for source in read.sources:
        if source.get("MIN_WORKERS"):
            return int(read.setting("MIN_WORKERS", worker_count) or 0)
        if source.get("MIN_NODES"):
            return int(read.setting("MIN_NODES", worker_count + 1) or 1) - 1
    return worker_count


def role_and_rank(read: SettingsReader) -> tuple[str, int]:
    """Return the node's role and rank; without a ``MODE``, those that its index in a Job of Kubernetes means."""
    index = read.setting("JOB_COMPLETION_INDEX", -1)
    if read.text("MODE") or index < 0:
        mode = read.setting("MODE")
        return mode, 0 if mode == "MAIN" else read.setting("NODE_RANK")
    if index == 0:
        return "MAIN", 0
    # What is wrong with the two counts is noted where they are read.
    counts = SettingsReader(*read.sources)
    last_worker = counts.setting("WORKER_COUNT") or 0
    return "PS" if last_worker < index <= last_worker + (counts.setting("PS_COUNT") or 0) else "WORKER", index


def checked(read: SettingsReader, settings: Iterable[Setting]) -> dict[str, str]:
    """Return the texts of those *settings* that *read* has; what is wrong with them is noted in its problems."""
    given: dict[str, str] = {}
    for row in settings:
        if text := read.text(row.name):
            read.value(row.name, row.parse)
            given[row.name] = text
    return given


def read_settings(environ: Mapping[str, str], root: Path = PROJECT_ROOT) -> NodeSettings:
    """Return the settings of this node.

    Args:
        environ: The environment of the process. The framework's ``settings.env`` supplies defaults.
        root: Where the framework folders are.

    Raises:
        SettingsError: names every variable that is missing or wrong, in one message.
    """
    read = SettingsReader(environ)
    folder = _add_framework(read, root)
    mode, rank = role_and_rank(read)
    worker_count, work_dir, cluster_id, ephemeral, gang, lost_s, session = map(read.setting, _NEEDED_FIRST)
    entry_on_all = bool(read.setting("ENTRY_ON") or gang)
    settings = NodeSettings(
        mode=mode,
        rank=rank,
        worker_count=worker_count,
        ps_count=read.setting("PS_COUNT"),
        min_workers=min_workers_of(read, worker_count or 0),
        framework=read.text("FRAMEWORK"),
        framework_dir=folder,
        work_dir=work_dir,
        cluster_id=cluster_id,
        cluster_name=read.setting("CLUSTER_NAME", cluster_id or "-"),
        launch_id=read.setting("LAUNCH_ID"),
        launch_key=read.setting("LAUNCH_KEY"),
        entry_point=_entry_point(read, session, root, needs_one=ephemeral),
        entry_module="" if session else read.setting("ENTRY_MODULE"),
        entry_args=(*read.setting("ARGS", []), *read.setting("NAMED_ARGS", [])),
        profile_cmd=_profile_cmd(read, node_name(mode, rank), entry_on_all=entry_on_all),
        code_dir=read.setting("CODE_DIR", _default_code_dir(read, mode, rank)),
        code_uri=read.setting("CODE_URI"),
        **_outputs(read),
        timeout_s=read.setting("TIMEOUT"),
        ephemeral=ephemeral,
        ttl_s=read.setting("TTL"),
        session=session,
        session_verifier=read.setting("SESSION_VERIFIER"),
        idle_limit_s=read.setting("IDLE_LIMIT"),
        grace_period_s=read.setting("GRACE_PERIOD"),
        **_signs_of_life(read, lost_s),
        poll_ceiling_s=read.setting("POLL_CEILING"),
        wait_for_addresses=read.setting("WAIT_FOR_ADDRESSES") or gang,
        find_interface=read.setting("FIND_INTERFACE"),
        entry_on_all=entry_on_all,
        gang=gang,
        max_restarts=read.setting("MAX_RESTARTS"),
        interruptible=read.setting("INTERRUPTIBLE"),
        adapt=_adapt_of(read),
        **_proofs(read),
        node_logs=read.setting("NODE_LOGS"),
        max_log_bytes=read.setting("MAX_LOG_BYTES"),
        start_by=read.setting("START_BY", float("inf")),
        **_network(read),
        node_group=read.setting("NODE_GROUP"),
        termination_log=read.setting("TERMINATION_LOG"),
    )
    return _checked(read, settings)


def _adapt_of(read: SettingsReader) -> Adapt | None:
    bounds, followed = read.setting("ADAPT"), read.setting("FOLLOWED")
    return Adapt(bounds[0], bounds[1], followed) if bounds else None


def _entry_point(read: SettingsReader, session: str, root: Path, *, needs_one: bool) -> str:
    """Return the script that main runs: a session's own, where it is one; empty where that is a module, or nothing."""
    own = read.text("ENTRY_MODULE") or session
    entry_point: str = read.setting("ENTRY_POINT", "" if own or not needs_one else None)
    if not session:
        return "" if own else entry_point
    script = session_dir(session, root) / "start.sh"
    if not script.is_file():
        read.problems.append(f"SESSION: there is no {script}; an image that is older than this kind is built anew")
    return str(script)


def _profile_cmd(read: SettingsReader, node: str, *, entry_on_all: bool) -> tuple[str, ...]:
    """Return what stands before the entry point's command on this *node*; () where that is nothing."""
    words, nodes = tuple(read.setting("PROFILE_CMD") or ()), read.setting("PROFILE_NODES") or []
    if words and not entry_on_all and nodes not in (["MAIN"], ["ALL"]):
        read.problems.append(f"PROFILE_NODES: {' '.join(nodes)}: MAIN alone runs the entry point (ENTRY_ON=main)")
    return words if nodes == ["ALL"] or node in nodes else ()


def _outputs(read: SettingsReader) -> dict[str, Any]:
    """Return where the entry point writes what is kept, and how often that is."""
    return {
        "output_dir": read.setting("OUTPUT_DIR"),
        "output_folders": tuple(read.setting("OUTPUT_FOLDERS")),
        "output_interval_s": read.setting("OUTPUT_INTERVAL"),
    }


def _signs_of_life(read: SettingsReader, lost_s: float) -> dict[str, Any]:
    """Return how nodes show that they live, and when that they do nothing."""
    return {
        "heartbeat_interval_s": read.setting("HEARTBEAT_INTERVAL", min(15.0, (lost_s or 60.0) / 4)),
        "heartbeat_timeout_s": lost_s,
        "silence_timeout_s": read.setting("SILENCE_TIMEOUT"),
    }


def _proofs(read: SettingsReader) -> dict[str, Any]:
    """Return by what programs of the framework know each other."""
    return {"cluster_tls": read.setting("CLUSTER_TLS"), "client_token": read.setting("CLIENT_TOKEN")}


def _network(read: SettingsReader) -> dict[str, Any]:
    """Return what the node is told of its network."""
    return {
        "address": read.setting("NODE_ADDRESS"),
        "nodes_metadata": read.setting("CLUSTER_NODES_METADATA_FILE"),
        "own_network": read.setting("OWN_NETWORK"),
        "exposed_ports": tuple(read.setting("EXPOSE") or ()),
        "subnet_cidr": read.setting("SUBNET_CIDR"),
    }


def _add_framework(read: SettingsReader, root: Path) -> Path:
    """Have the framework's own defaults count, and return its folder."""
    folder = read.value("FRAMEWORK", lambda name: framework_dir(name, root))
    read.sources.append(framework_defaults(folder) if not read.problems else {})
    return folder


def _checked(read: SettingsReader, settings: NodeSettings) -> NodeSettings:
    """Return *settings*, or raise what is wrong with values, also with those that are right each by itself."""
    if not read.problems and settings.min_workers > settings.worker_count:
        read.problems.append(
            f"MIN_WORKERS (MIN_NODES less main): {settings.min_workers} is more than"
            f" WORKER_COUNT ({settings.worker_count})"
        )
    if not read.problems and settings.heartbeat_timeout_s <= 2 * settings.heartbeat_interval_s:
        read.problems.append(
            f"HEARTBEAT_TIMEOUT: {settings.heartbeat_timeout_s:g} s must be more than twice HEARTBEAT_INTERVAL"
            f" ({settings.heartbeat_interval_s:g} s), else one late heartbeat ends the cluster"
        )
    if not read.problems and is_at_main(settings.work_dir):
        read.problems += _wrong_at_main(settings)
    read.check()
    return settings


def _wrong_at_main(settings: NodeSettings) -> list[str]:
    """Return what does not go with a work dir in the memory of main."""
    problems = []
    try:
        parse_place(settings.work_dir)
    except ValueError as error:
        problems.append(f"WORK_DIR: {error}")
    if not settings.launch_key:
        problems.append("LAUNCH_KEY is not set: with it alone the nodes and main of WORK_DIR main:// know each other")
    if settings.node_logs:
        problems.append("NODE_LOGS: 1 does not go with WORK_DIR main://, where logs would fill main's memory; set 0")
    if is_at_main(settings.code_uri):
        problems.append("CODE_URI: code cannot be in the memory of main; use an image with the code, git+ or storage")
    return problems


def _default_code_dir(read: SettingsReader, mode: str, rank: int) -> Path:
    """Return where an image has the user's code, or where this node, alone, puts what it fetches."""
    if not read.text("CODE_URI"):
        return Path("/code")
    return node_dir(read.text("LAUNCH_ID"), node_name(mode, rank)) / "code"
