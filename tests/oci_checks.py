"""A tenancy that ``setup.sh --apply`` has made right, checks of launches there, and their fixes, applied as printed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from empty_tenancy import FIND, Tenancy
from oci_cloud import environment_of

IMAGE = "iad.ocir.io/stand-in/training/dask:1"
# How often a check and its fixes may follow each other: what one makes, the next may find incomplete.
ROUNDS = 4
_SETTING = re.compile(r"([A-Z_]+)=('[^']*'|\S*)")
_LAUNCH = re.compile(r"\./scripts/launch\.sh dask (\d+)")


class Checks:
    """A tenancy that ``setup.sh --apply`` has made right, and the check of a launch there."""

    def __init__(self, tenancy: Tenancy) -> None:
        self.tenancy = tenancy
        printed = tenancy.setup("dask", "--apply")
        self.right = {**tenancy.values, **dict(re.findall(r"^(LOG_\w+)=(\S+)$", printed, re.MULTILINE))}
        add = f'oci iam group add-user --group-id "$found" --user-id {tenancy.user}'
        tenancy.as_administrator(FIND.format("group", "data-scientists"), add)
        tenancy.service.push(tenancy.user, IMAGE, tenancy.image(environment_of(tenancy.project, "dask")))
        tenancy.service.control({"images": {IMAGE: tenancy.image(Path(sys.executable))}})
        (policy,) = tenancy.bodies("create_policy")
        self.statements: list[str] = policy["statements"]
        self.begin()

    def begin(self) -> None:
        """Have right settings again."""
        self.settings = {**self.right, "IMAGE": IMAGE}
        self.workers = 3
        self.fixes = 0

    def check(self, environ: Mapping[str, str] | None = None, **more: str) -> tuple[int, list[dict[str, str]]]:
        """Run check.sh as the administrator, or as somebody with *environ*; return its code and its findings.

        Less that of limits, which is always there.
        """
        self.tenancy.configure(**{**self.settings, **more})
        environ = environ or self.tenancy.administrator.environ
        done = self.tenancy.project.run("check", "dask", str(self.workers), "--json", **environ)
        assert done.stdout, done.stderr
        found = json.loads(done.stdout)["findings"]
        self._limits = [one for one in found if one["item"] == "service limit"]
        return done.returncode, [one for one in found if one not in self._limits]

    def limits(self) -> list[dict[str, str]]:
        """Return what a check finds of limits."""
        self.check()
        return self._limits

    def fix(self, text: str) -> None:
        """Do what the fix of a finding says."""
        commands = []
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            if setting := _SETTING.fullmatch(line):
                self.settings[setting[1]] = setting[2]
            elif launch := _LAUNCH.fullmatch(line):
                self.workers = int(launch[1])
            elif line.startswith("allow "):
                self.fixes += 1
                name = f"--name fix{self.fixes}-{len(self.tenancy.service.calls())} --description fixed"
                commands.append(f"oci iam policy create --compartment-id $tenancy {name} --statements {quoted([line])}")
            else:
                commands.append(line)
        written = self.tenancy.administrator.directory / "config.env"
        written.unlink(missing_ok=True)
        if commands:
            self.tenancy.as_administrator(*commands)
        if written.exists():
            self.settings |= dict(_SETTING.findall(written.read_text()))

    def until_fine(self, first: Sequence[dict[str, str]]) -> None:
        """Apply what fixes the findings *first*, and what a check finds then; in the end nothing fails."""
        found: Sequence[dict[str, str]] = first
        for _ in range(ROUNDS):
            for fix in dict.fromkeys(one["fix"] for one in found if one["verdict"] in {"fails", "advice"}):
                self.fix(fix)
            code, found = self.check()
            if code == 0:
                return
        pytest.fail(f"not fixed: {[one for one in found if one['verdict'] != 'fine']}")

    def make(self, *lines: str) -> str:
        """Make something as the administrator, with ``ocid`` and ``$network``; return what it prints."""
        ocid = 'ocid() { oci "$@" --query data.id --raw-output; }'
        return self.tenancy.as_administrator(ocid, f"network={self.tenancy.network}", f"vcn={self.vcn}", *lines).strip()

    @property
    def vcn(self) -> str:
        (body,) = self.tenancy.bodies("create_nat_gateway")[:1]
        return str(body["vcnId"])


def quoted(value: Any) -> str:
    return "'" + json.dumps(value).replace("'", "'\\''") + "'"


def failed(found: Sequence[dict[str, str]]) -> dict[str, list[str]]:
    """Return the texts of what fails, or is advice, by item."""
    items: dict[str, list[str]] = {}
    for one in found:
        if one["verdict"] in {"fails", "advice"}:
            items.setdefault(one["item"], []).append(one["text"])
    return items


# --- Networks that somebody has made


SUBNET = """
ocid network subnet create --compartment-id "$network" --vcn-id "$vcn" --cidr-block {block} --display-name {name} \\
  --prohibit-public-ip-on-vnic {private} --route-table-id "$routes" --security-list-ids '["'$rules'"]'
"""
ROUTES = """
routes=$(ocid network route-table create --compartment-id "$network" --vcn-id "$vcn" --display-name {name} \\
  --route-rules '{rules}')
"""
RULES = """
rules=$(ocid network security-list create --compartment-id "$network" --vcn-id "$vcn" --display-name {name} \\
  --ingress-security-rules '{ingress}' --egress-security-rules '{egress}')
"""


def route(gateway: str, destination: str = "0.0.0.0/0", kind: str = "CIDR_BLOCK") -> str:
    return json.dumps([{"destination": destination, "destinationType": kind, "networkEntityId": gateway}])


def tcp(end: str, cidr: str, *, is_stateless: bool = False) -> dict[str, Any]:
    return {end: cidr, f"{end}Type": "CIDR_BLOCK", "protocol": "6", "isStateless": is_stateless}


def subnet(checks: Checks, block: str, routes: str, *, private: str = "true", **more: Any) -> str:
    """Make a subnet with these routes and rules of ingress and egress; have a launch use it; return its OCID."""
    name = block.partition("/")[0].replace(".", "-")
    rules = RULES.format(name=name, **{direction: json.dumps(rules) for direction, rules in {**OPEN, **more}.items()})
    made = checks.make(
        ROUTES.format(name=name, rules=routes), rules, SUBNET.format(block=block, name=name, private=private)
    )
    checks.settings["SUBNET_OCID"] = made
    return made


def nat(checks: Checks) -> str:
    make = 'ocid network nat-gateway create --compartment-id "$network" --vcn-id "$vcn" --display-name {}'
    return checks.make(make.format("more"))


OPEN = {"ingress": [tcp("source", "10.0.0.0/16")], "egress": [tcp("destination", "0.0.0.0/0")]}
