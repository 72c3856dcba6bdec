"""Variables and files with which a program outside a cluster takes part in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.files.certificate import decrypted
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import CERTIFICATE
from oci_cluster.contract.parsers import is_at_main, parse_place
from oci_cluster.contract.session import client_token
from oci_cluster.contract.settings.settings_files import framework_defaults, framework_words, read_settings_file
from oci_cluster.contract.storage.hanging_disk import asked_dir
from oci_cluster.errors import BackendError, LostPlanError, UsageError
from oci_cluster.system.files import write_whole
from oci_cluster.system.text import printable

# Returns host and port under which this machine reaches a port of a node.
Reach = Callable[[str, int], tuple[str, int]]


def client_port(plan: Plan, folder: Path) -> int:
    """Return the port of main for programs outside; raise UsageError where there is none."""
    names = framework_words(folder, "CLIENT_PORT")
    if not names or names[0] not in plan.limits.ports:
        others = ", ".join(sorted(path.parents[1].name for path in folder.parent.glob("*/client/address.env")))
        raise UsageError(
            f"no program outside connects to {plan.framework}; --python is for frameworks with a CLIENT_PORT: {others}"
        )
    return plan.limits.ports[names[0]]


@dataclass(frozen=True)
class Gate:
    """Host and port where a cluster lets programs of this machine in."""

    host: str
    port: int
    address: str
    """Both, with the scheme that main has told."""
    reach: Reach
    """Opens more ways, to main's memory."""


def write_client_files(cluster: Cluster, plan: Plan, folder: Path, target: Path, gate: Gate) -> dict[str, str]:
    """Write what a program here needs to take part in *cluster*; return its variables.

    In ``client/`` of *folder*, the framework's, ``*.env`` are variables, and ``*.yaml`` are written to *target*, a
    private one. All are filled in, but those that speak of a certificate or a token where the cluster has none.
    """
    configuration = target / "client"
    configuration.mkdir(mode=0o700, exist_ok=True)
    values = {"HOST": gate.host, "PORT": str(gate.port), "ADDRESS": gate.address, "FILES": str(configuration)}
    given = {**framework_defaults(folder), **plan.environment}
    if given.get("CLUSTER_TLS") == "1":
        certificate, key = _certificate(cluster, plan, gate.reach)
        for name, text in (("certificate.pem", certificate), ("key.pem", key)):
            write_whole(target / name, text)
        values |= {"CERTIFICATE": str(target / "certificate.pem"), "KEY": str(target / "key.pem")}
    if given.get("CLIENT_TOKEN") == "1":
        write_whole(target / "client-token", client_token(plan.launch_key, cluster.launch_id))
        values["TOKEN_FILE"] = str(target / "client-token")
    quoted = {name: json.dumps(text) for name, text in values.items()}
    for path in sorted((folder / "client").glob("*.yaml")):
        if (content := _filled_in(path.read_text(), quoted)) is not None:
            write_whole(configuration / path.name, content)
    variables: dict[str, str] = {}
    for path in sorted((folder / "client").glob("*.env")):
        filled = {name: _filled_in(text, values) for name, text in read_settings_file(path).items()}
        variables |= {name: text for name, text in filled.items() if text is not None and None not in filled.values()}
    return variables


def _filled_in(text: str, values: Mapping[str, str]) -> str | None:
    """Return *text* with *values* in it; None if the cluster has no such value."""
    try:
        return Template(text).substitute(values)
    except KeyError:
        return None


def _certificate(cluster: Cluster, plan: Plan, reach: Reach) -> tuple[str, str]:
    work_dir = plan.environment.get("WORK_DIR", "")
    if is_at_main(work_dir):
        try:
            _, port = parse_place(work_dir)
        except ValueError as error:  # somebody else's Job may name it
            raise LostPlanError(f"{cluster.name} does not say where main is: {printable(error)}") from error
        host, here = reach("MAIN", port)
        cluster_dir = ClusterDir(f"main://{host}:{here}/{plan.cluster_id}", cluster.launch_id, plan.launch_key)
    else:
        cluster_dir = asked_dir(cluster, plan)
    pair: Mapping[str, object] | None = cluster_dir.read(CERTIFICATE, any_life=True)
    if pair is None:
        raise BackendError(
            f"{cluster.name} has no certificate yet; wait until it is ready: scripts/status.sh {cluster.name}"
        )
    passphrase = cluster_dir.key_for("certificate").hex().encode()
    return str(pair.get("certificate")), decrypted(str(pair.get("key")), passphrase)
