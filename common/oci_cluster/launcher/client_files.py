"""What a program outside a cluster needs to take part in it: the framework's own configuration, and the certificate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template

from oci_cluster.contract.certificate import decrypted
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.config import framework_defaults, framework_words
from oci_cluster.contract.main_place import is_at_main, parse_place
from oci_cluster.contract.names import CERTIFICATE
from oci_cluster.errors import BackendError, UsageError
from oci_cluster.system.files import write_whole

# Returns host and port under which this machine reaches a port of a node.
Reach = Callable[[str, int], tuple[str, int]]


def client_port(plan: Plan, folder: Path) -> int:
    """Return the port of main to which programs outside connect; *folder* is the framework's.

    Raises:
        UsageError: they do not connect to this framework.
    """
    names = framework_words(folder, "CLIENT_PORT")
    if not names or names[0] not in plan.limits.ports:
        msg = f"no program outside connects to {plan.framework}; --python is for frameworks with a CLIENT_PORT: dask"
        raise UsageError(msg)
    return plan.limits.ports[names[0]]


def write_client_files(cluster: Cluster, plan: Plan, folder: Path, *, target: Path, address: str, reach: Reach) -> str:
    """Write what a program of this machine needs to take part in *cluster*; return the variable that it needs.

    Args:
        cluster: It runs.
        plan: What it was launched with.
        folder: The framework's: files of its ``client/`` are written, filled in, but those that speak of a certificate
            where the cluster has none.
        target: A private directory.
        address: The address of the cluster for programs of this machine, with its scheme.
        reach: Opens more ways, to main's memory.

    Returns:
        ``NAME=VALUE``.

    Raises:
        BackendError: the cluster's certificate is not there.
    """
    values = {"ADDRESS": address}
    if {**framework_defaults(folder), **plan.environment}.get("CLUSTER_TLS") == "1":
        certificate, key = _certificate(cluster, plan, reach)
        for name, text in (("certificate.pem", certificate), ("key.pem", key)):
            write_whole(target / name, text)
        values |= {"CERTIFICATE": str(target / "certificate.pem"), "KEY": str(target / "key.pem")}
    quoted = {name: json.dumps(text) for name, text in values.items()}
    configuration = target / "client"
    configuration.mkdir(mode=0o700, exist_ok=True)
    for path in sorted((folder / "client").iterdir()):
        template = Template(path.read_text())
        try:
            write_whole(configuration / path.name, template.substitute(quoted))
        except KeyError:  # of a certificate, which this cluster has not
            continue
    return f"{framework_words(folder, 'CLIENT_CONFIG')[0]}={configuration}"


def _certificate(cluster: Cluster, plan: Plan, reach: Reach) -> tuple[str, str]:
    """Return the launch's certificate and its key, PEM: from where the cluster dir is."""
    work_dir, url = plan.environment.get("WORK_DIR", ""), plan.url
    if is_at_main(work_dir):
        _, port = parse_place(work_dir)
        host, here = reach("MAIN", port)
        url = f"main://{host}:{here}/{plan.cluster_id}"
    cluster_dir = ClusterDir(url, cluster.launch_id, plan.launch_key)
    pair: Mapping[str, object] | None = cluster_dir.read(CERTIFICATE, any_life=True)
    if pair is None:
        msg = f"{cluster.name} has no certificate yet; wait until it is ready: scripts/status.sh {cluster.name}"
        raise BackendError(msg)
    passphrase = cluster_dir.key_for("certificate").hex().encode()
    return str(pair.get("certificate")), decrypted(str(pair.get("key")), passphrase)
