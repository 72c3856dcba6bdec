"""A tenancy of the stand-in in which all is right, its check, and fixes that are applied as they are printed."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from oci_service.buckets import Bucket
from oci_service.resources import JSON, Shelf
from unit.backends.oci.stand_in import HOME, StandIn

from oci_cluster.backends.findings import Checked, Finding, Verdict
from oci_cluster.backends.oci import check
from oci_cluster.backends.oci.check import image, limits
from oci_cluster.backends.oci.tenancy.requirements import (
    lifecycle_rules,
    matching_rule,
    needed_of,
    placed,
    statements,
)
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT, read_settings_file

BLOCK, VCN_BLOCK = "10.0.0.0/24", "10.0.0.0/22"
HOST_KEY = "ssh-ed25519 AAAA"


class RightTenancy(StandIn):
    """What ``setup.sh`` makes, with a project and a bastion, and *settings* of a launch there.

    Each thing is an attribute, its OCID. In what a test has it say, ``<jobs>`` stands for the OCID of *jobs*.
    """

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(directory, patch)
        for name, text in self.environ.items():
            patch.setenv(name, text)
        patch.setattr(check, "of_settings", lambda *_: iter(()))
        for part in (image, limits):  # which ask others than this tenancy, and have tests of their own
            patch.setattr(part, "findings", lambda *_: iter(()))
        self._config = directory / "config.env"
        self.theirs = self.their_people = self.their_runs = ""  # what a test adds
        assert self.service.access is not None
        self._shelves: Mapping[str, Shelf] = self.service.access._shelves
        self._add_network()
        self._add_things()
        self._add_rights()

    def _add_network(self) -> None:
        """Have the subnet be a part of its VCN, with rules, and a bastion."""
        tenancy = self.tenancy
        shelves = (tenancy.vcns, tenancy.security_lists, tenancy.route_tables, tenancy.nat_gateways)
        self.vcn, self.rules, self.table, self.nat = (shelf.all()[0]["id"] for shelf in shelves)
        self.dhcp = tenancy.dhcp_options.all()[0]["id"]
        self.touch("vcn", cidrBlock=VCN_BLOCK, cidrBlocks=[VCN_BLOCK])
        self.touch("subnet", cidrBlock=BLOCK)
        self.touch("rules", ingressSecurityRules=[ingress()], egressSecurityRules=[egress()])
        self.bastion = self.service.bastions.add(self.subnet)
        self.settings |= {"SUBNET_CIDR": BLOCK, "BASTION_ID": self.bastion, "BASTION_HOST_KEY": HOST_KEY}

    def _add_things(self) -> None:
        there, logs = {"compartmentId": self.jobs, "lifecycleState": "ACTIVE"}, self.service.logs
        self.bucket: Bucket = self.service.objects.add_bucket("clusters", self.jobs, self.identity.user)
        self.repository = self.add(
            self.tenancy.repositories,
            compartmentId=self.images,
            displayName="training/dask",
            lifecycleState="AVAILABLE",
            isPublic=False,
            imageCount=0,
        )
        self.log_group = self.add(logs.groups, **there, displayName="clusters")
        self.log = str(logs.new_log(self.log_group, displayName="nodes")["id"])
        self.project = self.add(self.service.science._projects, **there, displayName="clusters")
        names = {"PROJECT_OCID": self.project, "LOG_GROUP_OCID": self.log_group, "LOG_OCID": self.log}
        self.settings |= names

    def _add_rights(self) -> None:
        """Make the groups, a policy of all statements that are needed, and the bucket's rules."""
        common = {"compartmentId": self.root, "description": "x", "lifecycleState": "ACTIVE"}
        self.people, self.interns = (
            self.add(self.identity.groups, **common, name=name) for name in ("data-scientists", "interns")
        )
        rule = matching_rule(self.jobs)
        self.runs = self.add(self.identity.dynamic_groups, **common, name="cluster-runs", matchingRule=rule)
        needed = placed(
            needed_of(self.settings, ["dask"], HOME), network=self.network, bucket=self.jobs, logs=self.jobs
        )
        self.policy = self.allow(*(one.text for one in statements(needed)), name="clusters")
        self.bucket.lifecycle = {"items": lifecycle_rules(needed)}
        self.touch("runs")

    # --- How it is changed

    def named(self, value: Any) -> Any:
        """Return *value*, of JSON, with OCIDs in the places of names such as ``<jobs>``."""
        return json.loads(re.sub(r"<(\w+)>", lambda found: str(getattr(self, found[1])), json.dumps(value)))

    def add(self, shelf: Shelf, **fields: Any) -> str:
        """Add a thing; return its OCID."""
        return str(shelf.add(**fields)["id"])

    def of(self, name: str) -> tuple[Shelf, JSON]:
        """Return the thing called *name*, and the shelf that it stands on."""
        ocid = getattr(self, name)
        shelf = self._shelves[ocid.split(".")[1]]
        return shelf, shelf.get(ocid)

    def touch(self, name: str, /, **fields: Any) -> None:
        """Change fields of the thing called *name*."""
        shelf, thing = self.of(name)
        shelf.touch(thing, **self.named(fields))
        self.identity._read(shelf, thing)  # of a policy, or of a dynamic group

    def remove(self, name: str) -> None:
        """Take the thing called *name* away."""
        shelf, thing = self.of(name)
        shelf.remove(thing["id"])

    def control(self, **values: Any) -> None:
        """Set controls of the stand-in."""
        self.service._post_control(**self.named(values))

    @property
    def said(self) -> list[str]:
        """The statements of our policy."""
        return list(self.of("policy")[1]["statements"])

    @property
    def nobody(self) -> str:
        """Config file of somebody who is in no group."""
        return self.config_of(self.user().id)

    @property
    def reader(self) -> str:
        """Config file of somebody who may read all there is."""
        self.allow("allow group interns to read all-resources in tenancy")
        return self.config_of(self.user(self.interns).id)

    @property
    def member(self) -> str:
        """Config file of somebody who may launch, and nothing else."""
        return self.config_of(self.user(self.people).id)

    @property
    def launchers(self) -> str:
        """The OCID of the group that settings name."""
        domain, _, name = self.settings.get("PEOPLE_GROUP", "data-scientists").lower().rpartition("/")
        groups, domains = self.identity.groups.all(), self.identity.domains.groups.all()
        there = {one["displayName"].lower(): one["id"] for one in domains if one["domain"].lower() == domain}
        usual = {one["name"].lower(): one["id"] for one in groups if domain in {"", "default"}}
        return str({**there, **usual}[name])

    # --- What a check says of it, and what is done then

    def wrong(self) -> list[Finding]:
        """Return what a check finds that is not fine."""
        found = check.findings(Checked("dask", 2, PROJECT_ROOT, self.settings, None), lambda _: None)
        return [one for one in found if one.verdict is not Verdict.FINE]

    def fix(self, text: str) -> None:
        """Do what a fix says, line by line, as an administrator does."""
        variables: dict[str, str] = {}
        for line in text.splitlines():
            if line.startswith("allow "):
                self.allow(line, name="fixes")
            elif re.match("[A-Z_]+=", line):
                self._configure(line)
            elif not line.startswith("#"):
                self._run_line(line, variables)

    def _configure(self, line: str) -> None:
        self._config.write_text(line)
        self.settings |= read_settings_file(self._config)

    def _run_line(self, line: str, variables: dict[str, str]) -> None:
        """Do what a shell does with the few forms that fixes have: variables, ``$(...)``, ``&&`` and ``>>``."""
        for command in line.split(" && "):
            plain = re.sub(r"'[^']*'|\$(\w+)", lambda found: variables[found[1]] if found[1] else found[0], command)
            if made := re.fullmatch(r"(\w+)=\$\((.*)\)", plain):
                variables[made[1]] = self._run(made[2])
            elif told := re.fullmatch(r'echo "(.*)" >>config\.env', plain):
                self._configure(re.sub(r"\$\((.*)\)", lambda found: self._run(found[1]), told[1]))
            else:
                self._run(plain)

    def _run(self, command: str) -> str:
        """Run *command* by oci-cli, or do what stands for it here; return what it prints."""
        for beginning, do in INSTEAD.items():
            if command.startswith(beginning):
                return str(do(self) or "")
        words = shlex.split(command)
        assert words[0] == "oci", command
        done = self._oci(words, os.environ)
        assert done.returncode == 0, (command, done.stderr)
        return str(done.stdout).strip()

    def _run_setup(self) -> None:
        """Run setup.sh, and write down what it prints for ``config.env``."""
        for line in self.setup("--apply"):
            if line.startswith("LOG_"):
                self._configure(line)


# Commands, and words for people, that reach for something else than the tenancy.
INSTEAD: Mapping[str, Callable[[RightTenancy], Any]] = {
    "./scripts/setup.sh dask --apply": RightTenancy._run_setup,
    "ssh-keyscan -t ed25519 host.bastion.us-ashburn-1.oci.oraclecloud.com ": lambda _: HOST_KEY,
    "sudo timedatectl set-ntp true": lambda tenancy: tenancy.control(clock_s=0.0),
    "oci session authenticate ": lambda tenancy: tenancy.control(expire_tokens=""),
    "in the Console (your profile, API keys) add the public half of the key": (
        lambda tenancy: tenancy.control(expire_tokens="")
    ),
}


def ports(low: int, high: int, *, of: str = "destination") -> JSON:
    return {"tcpOptions": {f"{of}PortRange": {"min": low, "max": high}}}


def ingress(cidr: str = BLOCK, **more: Any) -> JSON:
    return {"protocol": "6", "source": cidr, "sourceType": "CIDR_BLOCK", "isStateless": False, **more}


def egress(cidr: str = "0.0.0.0/0", **more: Any) -> JSON:
    return {"protocol": "6", "destination": cidr, "destinationType": "CIDR_BLOCK", "isStateless": False, **more}


def route(gateway: str, destination: str = "0.0.0.0/0", kind: str = "CIDR_BLOCK") -> JSON:
    return {"destination": destination, "destinationType": kind, "networkEntityId": gateway}
