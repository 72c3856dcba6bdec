"""What of a start script's environment, and of the private files beside it, the node's settings alone decide."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from oci_cluster.contract.config import PROJECT_ROOT
from oci_cluster.contract.session import client_token, session_token
from oci_cluster.contract.settings import NodeSettings
from oci_cluster.system.files import write_whole


def network_environ(settings: NodeSettings, address: str) -> dict[str, str]:
    """Return where this node is, and where servers of the user's own listen on it."""
    return {
        "NODE_ADDRESS": address,
        # A network of its own has a loopback that is nobody else's, and to which ports are forwarded.
        "LISTEN_ADDRESS": "0.0.0.0" if settings.own_network else address,  # noqa: S104 - see above
        "EXPOSED_PORTS": " ".join(map(str, settings.exposed_ports)),
    }


def session_environ(settings: NodeSettings) -> dict[str, str]:
    """Return what the server of a session is told besides."""
    return {"IDLE_LIMIT": seconds(settings.idle_limit_s)} if settings.session and settings.is_main else {}


def write_tokens(settings: NodeSettings, node_dir: Path) -> None:
    """Write the tokens that this node needs to private files of *node_dir*: they are in no environment."""
    launch = settings.launch_key, settings.launch_id
    if settings.session and settings.is_main:
        write_whole(node_dir / "session-token", session_token(*launch))
    if settings.client_token:
        write_whole(node_dir / "client-token", client_token(*launch))


def ads_environ(settings: NodeSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what of *environ* scripts written for ADS's distributed training read, under the names that ADS has.

    Not ``RANK``, which ADS gives too: where nothing else is set, libraries take it for a rank of PyTorch's.
    """
    own_address = {} if settings.is_main else {"OCI__WORKER_IP": environ["NODE_ADDRESS"]}
    return {
        "OCI__CLUSTER_TYPE": settings.framework.upper(),
        "OCI__ENTRY_SCRIPT": environ["ENTRY_POINT"],
        "OCI__ENTRY_SCRIPT_ARGS": shlex.join(settings.entry_args),
        "OCI__MAIN_IP": environ["MAIN_ADDRESS"],
        "OCI__SYNC_DIR": environ["OUTPUT_DIR"],
        "OCI__WORK_DIR": settings.work_dir,
        "tmpdir": settings.cluster_url,
        **own_address,
        **{
            f"OCI__{name}": environ[name]
            for name in ("CODE_DIR", "EPHEMERAL", "MODE", "PS_COUNT", "TIMEOUT", "WORKER_COUNT")
        },
    }


def seconds(value: float) -> str:
    """Return *value* as a plain number, without a unit or an exponent."""
    return f"{value:f}".rstrip("0").rstrip(".")


def python_path(settings: NodeSettings, code_dir: Path, inherited: str) -> str:
    """Return the start script's ``PYTHONPATH``: the user's code, and what was there but for this package."""
    # Python looks in a script's own folder first. What workers unpickle may have been imported from there.
    is_own = bool(settings.entry_point) and not settings.session
    folder = (code_dir / settings.entry_point).parent if is_own else code_dir
    kept = [entry for entry in inherited.split(os.pathsep) if entry and Path(entry) != PROJECT_ROOT / "common"]
    return os.pathsep.join(dict.fromkeys([str(folder), str(code_dir), *kept]))
