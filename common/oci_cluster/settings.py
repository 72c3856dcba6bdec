"""A node's settings: the environment read once, checked, and turned into one frozen object."""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from oci_cluster.errors import SettingsError

T = TypeVar("T")

PROJECT_ROOT = Path(__file__).resolve().parents[2]
ROLES = ("MAIN", "WORKER", "PS")
SETTINGS_FILE = "settings.env"

# Second names: the design's own alternatives, then those of ADS (its docs and its cluster_config_helper).
ALIASES: dict[str, tuple[str, ...]] = {
    "MODE": ("OCI__MODE",),
    "NODE_RANK": ("RANK", "OCI__RANK"),
    "WORKER_COUNT": ("OCI__WORKER_COUNT",),
    "PS_COUNT": ("OCI__PS_COUNT",),
    "WORK_DIR": ("OCI__WORK_DIR",),
    "CLUSTER_ID": ("JOB_OCID",),
    "ENTRY_POINT": ("ENTRY_SCRIPT", "OCI__ENTRY_SCRIPT"),
    "ARGS": ("OCI__ENTRY_SCRIPT_ARGS",),
    "NAMED_ARGS": ("OCI__ENTRY_SCRIPT_KWARGS",),
    "CODE_DIR": ("OCI__CODE_DIR",),
    "TIMEOUT": ("TIME_OUT", "OCI__TIMEOUT"),
    "EPHEMERAL": ("OCI__EPHEMERAL",),
    "TTL": ("LIFE_SPAN", "OCI__LIFE_SPAN"),
}

# Nine digits: 31 years even in seconds; more is a slip, and in the end infinity, which no wait can take.
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)")
_UNIT_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def node_name(mode: str, rank: int) -> str:
    """Return the node's name in files, logs and messages: ``MAIN``, ``WORKER_2``, ``PS_4``."""
    return "MAIN" if mode == "MAIN" else f"{mode}_{rank}"


def node_dir(launch_id: str, node: str) -> Path:
    """Return *node*'s private directory: known beforehand, so that a backend can remove it for a killed agent."""
    return Path(tempfile.gettempdir()) / f"{launch_id}-{node}"


@dataclass(frozen=True)
class NodeSettings:
    """What one node was told. Durations are seconds; 0 for ``ttl_s`` means no limit."""

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
    entry_point: str
    entry_args: tuple[str, ...]
    code_dir: Path
    code_uri: str
    output_dir: str
    output_interval_s: float
    timeout_s: float
    ephemeral: bool
    ttl_s: float
    grace_period_s: float
    heartbeat_interval_s: float
    heartbeat_timeout_s: float
    poll_ceiling_s: float
    wait_for_addresses: bool
    find_interface: bool
    entry_on_all: bool
    gang: bool
    max_restarts: int
    cluster_tls: bool
    node_logs: bool
    address: str
    nodes_metadata: str
    subnet_cidr: str

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
        first_ps = self.worker_count + 1
        servers = [node_name("PS", rank) for rank in range(first_ps, first_ps + self.ps_count)]
        return (*workers, *servers)


def parse_duration(text: str) -> float:
    """Return the seconds that *text* names: ``90``, ``90s``, ``1.5m``, ``2h`` or ``1d``.

    Raises:
        ValueError: anything else, negative numbers included.
    """
    match = _DURATION.fullmatch(text.strip())
    if not match:
        msg = f"'{text}' is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h"
        raise ValueError(msg)
    return float(match[1]) * _UNIT_S[match[2]]


def parse_count(text: str, *, least: int = 0, most: int = 1_000_000) -> int:
    """Return *text* as a whole number of *least* to *most*.

    Raises:
        ValueError: it is not one.
    """
    if not re.fullmatch(r"-?\d{1,18}", text.strip()) or not least <= int(text) <= most:
        msg = f"'{text}' is not a whole number from {least} to {most}"
        raise ValueError(msg)
    return int(text)


def parse_switch(text: str) -> bool:
    """Return whether *text* switches something on: ``1 true yes on`` against ``0 false no off``.

    Raises:
        ValueError: it is none of these. (In ADS the text ``False`` was true.)
    """
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    msg = f"'{text}' is neither 1 nor 0"
    raise ValueError(msg)


def parse_entry_on(text: str) -> bool:
    """Return whether *text* has the entry point run on ``all`` nodes, not on ``main`` alone.

    Raises:
        ValueError: it is neither.
    """
    if text not in {"main", "all"}:
        msg = f"'{text}' is neither main nor all"
        raise ValueError(msg)
    return text == "all"


def parse_name(text: str) -> str:
    """Return *text* if it can be a file's name everywhere.

    Raises:
        ValueError: other characters than letters, digits and ``. _ -``, or more than 255 of them.
    """
    if not _NAME.fullmatch(text) or len(text) > 255:
        msg = f"'{text}' is not a name of letters, digits and . _ - (255 at most)"
        raise ValueError(msg)
    return text


def parse_args(text: str) -> list[str]:
    """Return the argument list that ``ARGS`` holds: a JSON list, or one shell-quoted string.

    Raises:
        ValueError: a list that is not one of plain values, or unbalanced quotes.
    """
    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except ValueError:
            pass  # `[a-z]* file` is a shell-quoted string that happens to begin with a bracket
        else:
            return [_plain(value) for value in values]
    return shlex.split(text)


def parse_named_args(text: str) -> list[str]:
    """Return ``--k v`` for each pair of ``NAMED_ARGS``: a JSON object, or shell-quoted ``k=v`` words.

    Raises:
        ValueError: neither of these.
    """
    if text.lstrip().startswith("{"):
        pairs = [(_plain(key), _plain(value)) for key, value in json.loads(text).items()]
    else:
        pairs = []
        for word in shlex.split(text):
            key, equals, value = word.partition("=")
            if not equals or not key:
                msg = f"'{word}' is not of the form k=v"
                raise ValueError(msg)
            pairs.append((_plain(key), _plain(value)))
    return [part for key, value in pairs for part in (f"--{key}", value)]


def _plain(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        msg = f"{json.dumps(value)} is not a string or a number; quote it"
        raise ValueError(msg)
    text = str(value)
    if "\0" in text:
        msg = f"{text!r} holds a NUL character"
        raise ValueError(msg)
    return text


def read_settings_file(path: Path) -> dict[str, str]:
    """Return the ``KEY=VALUE`` lines of *path* (``settings.env``, ``config.env``).

    The file is read, never run: values may be quoted as in a shell, but nothing is expanded.

    Raises:
        SettingsError: the file cannot be read, or a line is something else; names file, line and text.
    """
    values: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}"
        raise SettingsError(msg) from error
    for number, line in enumerate(lines, start=1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            msg = f"{path}:{number}: {error}: {line.strip()}"
            raise SettingsError(msg) from error
        if not words:
            continue
        key, equals, value = words[0].partition("=")
        if len(words) > 1 or not equals or not _VARIABLE.fullmatch(key):
            msg = f"{path}:{number}: expected KEY=VALUE (quote a value with spaces), got: {line.strip()}"
            raise SettingsError(msg)
        values[key] = value
    return values


def read_config(root: Path) -> dict[str, str]:
    """Return what ``config.env`` of the checkout *root* sets; {} where there is none.

    Raises:
        SettingsError: it cannot be used.
    """
    path = root / "config.env"
    return read_settings_file(path) if path.exists() else {}


class SettingsReader:
    """Reads typed values out of an environment and collects every complaint on the way."""

    def __init__(self, *sources: Mapping[str, str]) -> None:
        """Look in *sources* one after the other, in each under a setting's name and its aliases."""
        self.sources = list(sources)
        self.problems: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        """Return the setting as it stands; an empty value counts as not given."""
        for source in self.sources:
            for key in (name, *ALIASES.get(name, ())):
                if source.get(key, ""):
                    return source[key]
        return default

    def value(self, name: str, parse: Callable[[str], T], default: T | None = None) -> T:
        """Return the setting parsed; without *default* it must be given.

        A problem is noted, not raised. What is returned then is of no use, and :meth:`check` refuses it.
        """
        text = self.text(name)
        if not text and default is not None:
            return default
        try:
            if not text:
                msg = "is not set"
                raise ValueError(msg)
            return parse(text)
        except ValueError as error:
            self.problems.append(f"{name}: {error}" if text else f"{name} {error}")
            return default  # type: ignore[return-value]

    def check(self) -> None:
        """Raise one :class:`SettingsError` that holds every problem noted so far, if there are any."""
        if self.problems:
            msg = "bad settings: " + "; ".join(self.problems) + " (common/README.md lists them all)"
            raise SettingsError(msg)


def framework_dir(name: str, root: Path = PROJECT_ROOT) -> Path:
    """Return the folder of framework *name*.

    Raises:
        ValueError: there is no such folder, or it has no start scripts; the message lists those that do.
    """
    known = sorted(path.parent.name for path in root.glob("*/start-master.sh"))
    if name not in known:
        msg = f"unknown framework '{name}'; this checkout has: {', '.join(known) or 'none'}"
        raise ValueError(msg)
    return root / name


def framework_defaults(folder: Path) -> dict[str, str]:
    """Return the settings that the framework in *folder* declares, with their defaults.

    Raises:
        SettingsError: its ``settings.env`` cannot be used.
    """
    path = folder / SETTINGS_FILE
    return read_settings_file(path) if path.exists() else {}


def least_workers(read: SettingsReader, worker_count: int) -> int:
    """Return ``MIN_WORKERS``, or ``MIN_NODES`` less main: what the first of *read*'s sources says that names either."""
    for source in read.sources:
        if source.get("MIN_WORKERS"):
            return read.value("MIN_WORKERS", parse_count)
        if source.get("MIN_NODES"):
            return (read.value("MIN_NODES", lambda text: parse_count(text, least=1)) or 1) - 1
    return worker_count


def read_settings(environ: Mapping[str, str], root: Path = PROJECT_ROOT) -> NodeSettings:
    """Return the settings of this node.

    Args:
        environ: The environment of the process. The framework's ``settings.env`` supplies defaults.
        root: Where the framework folders are.

    Raises:
        SettingsError: names every variable that is missing or wrong, in one message.
    """
    read = SettingsReader(environ)
    folder = read.value("FRAMEWORK", lambda name: framework_dir(name, root))
    read.sources.append(framework_defaults(folder) if not read.problems else {})

    mode = read.value("MODE", _role)
    worker_count = read.value("WORKER_COUNT", parse_count)
    work_dir = read.value("WORK_DIR", parse_url)
    cluster_id = read.value("CLUSTER_ID", parse_name)
    ephemeral = read.value("EPHEMERAL", parse_switch, True)
    gang = read.value("GANG", parse_switch, False)
    settings = NodeSettings(
        mode=mode,
        rank=0 if mode == "MAIN" else read.value("NODE_RANK", lambda text: parse_count(text, least=1)),
        worker_count=worker_count,
        ps_count=read.value("PS_COUNT", parse_count, 0),
        min_workers=least_workers(read, worker_count or 0),
        framework=read.text("FRAMEWORK"),
        framework_dir=folder,
        work_dir=work_dir,
        cluster_id=cluster_id,
        cluster_name=read.value("CLUSTER_NAME", parse_name, cluster_id or "-"),
        launch_id=read.value("LAUNCH_ID", parse_name),
        entry_point=read.value("ENTRY_POINT", str, None if ephemeral else ""),
        entry_args=tuple(
            read.value("ARGS", parse_args, list[str]()) + read.value("NAMED_ARGS", parse_named_args, list[str]())
        ),
        code_dir=read.value("CODE_DIR", Path, _default_code_dir(read)),
        code_uri=read.text("CODE_URI"),
        output_dir=read.text("OUTPUT_DIR"),
        output_interval_s=read.value("OUTPUT_INTERVAL", parse_duration, 60.0),
        timeout_s=read.value("TIMEOUT", parse_duration, 600.0),
        ephemeral=ephemeral,
        ttl_s=read.value("TTL", parse_duration, 0.0),
        grace_period_s=read.value("GRACE_PERIOD", parse_duration, 10.0),
        heartbeat_interval_s=read.value("HEARTBEAT_INTERVAL", parse_duration, 5.0),
        heartbeat_timeout_s=read.value("HEARTBEAT_TIMEOUT", parse_duration, 60.0),
        poll_ceiling_s=read.value("POLL_CEILING", parse_duration, 5.0),
        wait_for_addresses=read.value("WAIT_FOR_ADDRESSES", parse_switch, gang) or gang,
        find_interface=read.value("FIND_INTERFACE", parse_switch, False),
        entry_on_all=read.value("ENTRY_ON", parse_entry_on, gang) or gang,
        gang=gang,
        max_restarts=read.value("MAX_RESTARTS", parse_count, 0),
        cluster_tls=read.value("CLUSTER_TLS", parse_switch, False),
        node_logs=read.value("NODE_LOGS", parse_switch, False),
        address=read.value("NODE_ADDRESS", _address, ""),
        nodes_metadata=read.text("CLUSTER_NODES_METADATA_FILE"),
        subnet_cidr=read.value("SUBNET_CIDR", _network, ""),
    )
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
    read.check()
    return settings


def _default_code_dir(read: SettingsReader) -> Path:
    """Return where an image has the user's code, or where this node, alone, puts what it fetches."""
    if not read.text("CODE_URI"):
        return Path("/code")
    mode = read.text("MODE").upper()
    return node_dir(read.text("LAUNCH_ID"), "MAIN" if mode == "MAIN" else f"{mode}_{read.text('NODE_RANK')}") / "code"


def _role(text: str) -> str:
    if text.upper() not in ROLES:
        msg = f"'{text}' is not one of {', '.join(ROLES)}"
        raise ValueError(msg)
    return text.upper()


def parse_url(text: str) -> str:
    """Return *text* if it is a URL.

    Raises:
        ValueError: it is not.
    """
    if not re.match(r"[a-z][a-z0-9+.-]*://", text):
        msg = f"'{text}' is not an fsspec URL such as file:///data/work or oci://bucket@namespace/work"
        raise ValueError(msg)
    return text


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text.strip()))


def _network(text: str) -> str:
    return str(ipaddress.ip_network(text.strip(), strict=False))
