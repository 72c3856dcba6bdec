"""A tenancy of the stand-in that was empty, its administrator, and somebody who is to launch clusters there."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import warm
from harness import Project
from oci_cloud import Cloud
from oci_service.handle import Service
from oci_walk import Person, new_person

# What an administrator has made before: compartments, a private subnet whose list has no rules, a project.
BEFORE = """
ocid() { oci "$@" --query data.id --raw-output; }
jobs=$(ocid iam compartment create --compartment-id "$tenancy" --name ds-clusters --description 'Clusters')
network=$(ocid iam compartment create --compartment-id "$tenancy" --name ds-network --description 'Their subnet')
images=$(ocid iam compartment create --compartment-id "$tenancy" --name ds-images --description 'Their images')
vcn=$(ocid network vcn create --compartment-id "$network" --cidr-block 10.0.0.0/16 --display-name clusters)
gateway=$(ocid network nat-gateway create --compartment-id "$network" --vcn-id "$vcn" --display-name clusters)
route='[{"destination": "0.0.0.0/0", "destinationType": "CIDR_BLOCK", "networkEntityId": "'$gateway'"}]'
routes=$(ocid network route-table create --compartment-id "$network" --vcn-id "$vcn" --route-rules "$route")
rules=$(ocid network security-list create --compartment-id "$network" --vcn-id "$vcn" --display-name default \
  --ingress-security-rules '[]' --egress-security-rules '[]')
subnet=$(ocid network subnet create --compartment-id "$network" --vcn-id "$vcn" --display-name clusters \
  --cidr-block 10.0.0.0/20 --prohibit-public-ip-on-vnic true --route-table-id "$routes" \
  --security-list-ids '["'$rules'"]')
project=$(ocid data-science project create --compartment-id "$jobs" --display-name clusters)
echo "COMPARTMENT_OCID=$jobs SUBNET_OCID=$subnet PROJECT_OCID=$project IMAGES_COMPARTMENT_OCID=$images network=$network"
"""
# Finds something of identity by its name.
FIND = """found=$(oci iam {0} list --compartment-id "$tenancy" --query 'data[?name==`{1}`]|[0].id' --raw-output)"""
CHANGING = {"POST", "PUT", "DELETE", "PATCH"}
# A POST that makes nothing.
ASKING = {"compute.create_compute_capacity_report"}


class Tenancy(Cloud):
    """A tenancy that was empty, its administrator, and somebody who is in the group of those who launch."""

    def __init__(self, project: Project, service: Service, directory: Path) -> None:
        self.project, self.service = project, service
        self.administrator = Person(service, directory / "administrator")
        self.values = dict(re.findall(r"(\w+)=(ocid1\.\S+)", self.as_administrator(BEFORE)))
        self.network = self.values.pop("network")
        self.user, self.reader = new_person(service, self.administrator, directory / "reader", "ada@example.com")
        self.environ = dict(self.reader.environ)
        self.config = project.path / "config.env"
        self.configure()

    def configure(self, **more: str) -> None:
        fixed = {
            "BACKEND": "oci",
            "WORK_DIR": "oci://clusters@stand-in/team-a/work",
            "REGISTRY": "iad.ocir.io/stand-in/training",
            "KEEP_CLUSTERS_DAYS": "30",
        }
        self.config.write_text("".join(f"{k}={v}\n" for k, v in {**fixed, **self.values, **more}.items()))

    def setup(self, *words: str, code: int = 0, **environ: str) -> str:
        """Run setup.sh as the administrator; return what it prints."""
        done = self.project.run("setup", *words, **{**self.administrator.environ, **environ})
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def as_administrator(self, *blocks: str) -> str:
        """Run *blocks* of bash; ``$tenancy`` is there."""
        return self.administrator.bash(f"tenancy={self.service.settings['TENANCY_OCID']}", *blocks)

    def changes(self, since: int = 0) -> list[str]:
        """Return the requests that change something."""
        calls = self.service.calls(since=since)
        asked = [call["operation"] for call in calls if call["method"] in CHANGING]
        return [operation for operation in asked if operation not in ASKING]

    def count(self) -> int:
        return len(self.service.calls())

    def bodies(self, operation: str) -> list[dict[str, Any]]:
        return [call["body"] for call in self.service.calls(operation) if call["status"] < 300 and call["is_answered"]]


@contextlib.contextmanager
def empty_tenancy(checkout: Path, directory: Path) -> Iterator[Tenancy]:
    """Have a tenancy with compartments, a subnet and a project, and nothing else; *checkout* is a copy."""
    project = Project(checkout, directory)
    with Service(directory / "oci", empty=True, start=warm.command("oci_service")) as service:
        service.control({"cancel_grace_s": 0.5, "ingest_delay_s": 0})
        try:
            yield Tenancy(project, service, directory)
        finally:
            project.end_all()
            (checkout / "config.env").unlink(missing_ok=True)
            shutil.rmtree(checkout / ".clusters", ignore_errors=True)
