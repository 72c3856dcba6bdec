"""What ``ssh`` is told of a session: its address here, its user, and the one key that its host may have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from oci_cluster.contract.cluster import Cluster
from oci_cluster.errors import BackendError
from oci_cluster.system.files import not_writable, write_whole

# As ssh-keygen writes it. What main tells is data from outside.
_HOST_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{68}")
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}\$?")


def write_ssh_config(cluster: Cluster, host: str, port: int, facts: Mapping[str, str]) -> Path:
    """Write a configuration for ``ssh -F``, in which the session is called as the cluster is; return the file.

    Args:
        cluster: Its directory gets the file, and beside it the one key that the host may have.
        host: Under which this machine reaches the session.
        port: Likewise.
        facts: What main says of itself.

    Raises:
        BackendError: main has not told its host's key, or has told none that is one.
    """
    key, user = facts.get("ssh_host_key", ""), facts.get("ssh_user", "")
    if not _HOST_KEY.fullmatch(key) or not _USER.fullmatch(user):
        raise BackendError(
            f"{cluster.name} has not told the key of its host, by which ssh knows it: wait until it is ready; "
            f"scripts/status.sh {cluster.name} shows ssh_host_key then"
        )
    directory = cluster.directory / "ssh"
    config = {
        "HostName": host,
        "Port": str(port),
        "User": user,
        "HostKeyAlias": cluster.name,
        "HostKeyAlgorithms": "ssh-ed25519",
        "UserKnownHostsFile": f'"{_escaped(directory / "known_hosts")}"',
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
    }
    lines = [f"Host {cluster.name}", *(f"  {name} {value}" for name, value in config.items())]
    # What else ssh is told is the user's own.
    lines += ["Host *", "  Include ~/.ssh/config", ""]
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(directory / "known_hosts", f"{cluster.name} {key}\n")
        write_whole(directory / "config", "\n".join(lines))
    except OSError as error:
        raise not_writable(directory, error) from error
    return directory / "config"


def _escaped(path: Path) -> str:
    """Return *path* as a quoted word of a configuration: a percent sign begins a name of ssh's own there."""
    return str(path).replace("%", "%%")
