"""The nodes of a run: how many there are of which kind, and what each of them is given."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oci_service.places import Executed, Node
from oci_service.resources import JSON, REGION

if TYPE_CHECKING:
    from oci_service.runs import Runner

_IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Group:
    """Nodes that are alike; a run that is not multi-node has one group of one."""

    name: str
    replicas: int
    minimum: int
    container: Mapping[str, Any]
    configuration: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """What a run is to do; *ordinal* counts the runs of its job."""

    groups: Sequence[Group]
    is_multi_node: bool
    is_in_order: bool
    minutes: int | None
    log: tuple[str, str] | None
    ordinal: int


@dataclass
class Member:
    """One node of a run."""

    group: Group
    rank: int
    address: str
    node: Node | None = None
    executed: Executed | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    has_ended: bool = False
    code: int | None = None


class Given:
    """What the nodes of a run are given: variables, tokens, and each other's addresses."""

    def __init__(self, runner: Runner, run: JSON, job: JSON, plan: Plan, members: Sequence[Member]) -> None:
        self._runner = runner
        self._run = run
        self._job = job
        self._plan = plan
        self._members = members
        self._tokens: list[str] = []

    def environ(self, member: Member, node: Node, image: JSON) -> dict[str, str]:
        """Return the environment of a node: not one variable is the service's own."""
        run, job = self._run, self._job
        environ = {
            "PATH": _IMAGE_PATH,
            **node.environ,
            **image.get("environment", {}),
            **(member.group.configuration.get("environmentVariables") or {}),
            "TENANCY_OCID": self._runner.tenancy,
            "PROJECT_OCID": run["projectId"],
            "PROJECT_COMPARTMENT_OCID": run["compartmentId"],
            "JOB_OCID": run["jobId"],
            "JOB_COMPARTMENT_OCID": job["compartmentId"],
            "JOB_RUN_OCID": run["id"],
            "JOB_RUN_COMPARTMENT_OCID": run["compartmentId"],
            "FQDN": node.hostname,
            "OCI_RESOURCE_PRINCIPAL_VERSION": "2.2",
            "OCI_RESOURCE_PRINCIPAL_RPST": str(node.directory / "rpst"),
            "OCI_RESOURCE_PRINCIPAL_PRIVATE_PEM": str(node.directory / "key.pem"),
            "OCI_RESOURCE_PRINCIPAL_REGION": REGION,
            "HTTPS_PROXY": self._runner.proxy,
            "REQUESTS_CA_BUNDLE": str(node.directory / "ca.pem"),
        }
        if "principal-files" in self._runner.controls.flipped:
            environ["OCI_RESOURCE_PRINCIPAL_RPST"] = (node.directory / "rpst").read_text()
        if self._plan.is_multi_node:
            environ |= {
                "NODE_RANK": str(self._number(member)),
                "INITIAL_CLUSTER_SIZE": str(len(self._members)),
                "CLUSTER_NODES_METADATA_FILE": str(node.directory / "nodes.json"),
            }
            if self._runner.controls.rank_counting == "missing":
                del environ["NODE_RANK"]
            if self._runner.controls.own_run_ocids:
                environ["JOB_RUN_OCID"] += str(member.rank)
        return environ

    def _number(self, member: Member) -> int:
        """Return what the service calls the rank of a node."""
        counting = self._runner.controls.rank_counting
        groups = list(self._plan.groups)
        if counting == "restart":
            groups = [member.group]
        elif counting == "reversed":
            groups.reverse()
        order = [other.rank for group in groups for other in self._members if other.group is group]
        return order.index(member.rank) + (counting == "from-1")

    def renew_token(self, node: Node) -> None:
        """Write a token that is valid from now on."""
        run = self._run
        token = self._runner.keys.token(
            "resource",
            run["id"],
            self._runner.session_key.public_key(),
            self._runner.controls.token_lifetime_s,
            res_tenant=self._runner.tenancy,
            res_compartment=run["compartmentId"],
            res_id=run["id"],
            res_type="datasciencejobrun",
        )
        self._tokens.append(token)
        _write(node.directory / "rpst", token, node.mode)

    def renew_tokens(self) -> None:
        """Do so for all nodes that are there."""
        for member in self._members:
            if member.node is not None and not member.has_ended:
                self.renew_token(member.node)

    def refuse_tokens(self) -> None:
        """Have the service refuse all that there are."""
        self._runner.keys.refused.update(self._tokens)
        self._tokens.clear()

    def tell_nodes(self) -> None:
        """Write the file of the nodes' addresses, to every node that is there: growing, and torn on demand."""
        is_all = self._runner.controls.metadata_lists == "all"
        is_whole = all(member.node is not None for member in self._members)
        if "groups-file" in self._runner.controls.flipped and not is_whole:
            return
        there = [(member, member.node) for member in self._members if member.node is not None]
        texts = [
            json.dumps(
                [
                    {"Rank": self._number(other), "IPAddress": other.address}
                    for other, _ in there
                    if is_all or other.group is member.group
                ]
            )
            for member, _ in there
        ]
        if torn_s := self._runner.controls.metadata_torn_s:
            for (_, node), text in zip(there, texts, strict=True):
                (node.directory / "nodes.json").write_text(text[: len(text) // 2])
            time.sleep(torn_s)
        with contextlib.suppress(FileNotFoundError):  # the run is over
            for (_, node), text in zip(there, texts, strict=True):
                _write(node.directory / "nodes.json", text, node.mode)


def _write(path: Path, text: str, mode: int) -> None:
    """Write a file whole: who reads it sees the old text or the new."""
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(text)
    new.chmod(mode)
    os.replace(new, path)  # noqa: PTH105 - as Path.replace, and says that it is one step
