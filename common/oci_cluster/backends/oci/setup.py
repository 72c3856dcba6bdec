"""``setup.sh``: shows what is missing in a tenancy, and has oci-cli make it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oci_cluster.backends.oci.needed import (
    Needed,
    Places,
    lifecycle_rules,
    matching_rule,
    needed_of,
    places_of,
    statements,
)
from oci_cluster.backends.oci.security_rules import ports_of, security_rules
from oci_cluster.backends.oci.setup_steps import NEW_LIST, Found, Rules, Step, rule_line, steps_of
from oci_cluster.contract.config import framework_dir
from oci_cluster.errors import (
    BackendError,
    ClusterError,
    ExitCode,
    NotPermittedError,
    SettingsError,
    TimedOutError,
    UsageError,
)
from oci_cluster.system.console import Say

if TYPE_CHECKING:
    from oci_cluster.backends.oci.service import Service

# Until what was made is seen: a policy about objects may need several minutes, as Oracle's documentation has it.
_PATIENCE_S = 300.0
_PAUSE_S = 5.0
# What passes by itself: the policy that allows it was made a moment ago.
_PASSING = "InsufficientServicePermissions"
# oci-cli: seconds to connect, between two bytes, and tries of what the service throttles or fails.
_CLI_WORDS = ("--connection-timeout", "10", "--read-timeout", "60", "--max-retries", "4")


@dataclass(frozen=True)
class Out:
    """Whom results are shown to, and whom the rest is said to."""

    show: Say
    say: Say


@dataclass(frozen=True)
class Clock:
    """Seconds, and how to wait some; tests have their own."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Setup:
    """What settings want of a tenancy, and what becomes of it."""

    def __init__(
        self, service: Service, given: Mapping[str, str], root: Path, frameworks: Sequence[str], clock: Clock
    ) -> None:
        """Read the settings *given* for *frameworks* of the checkout *root*.

        Raises:
            SettingsError: names every setting that is missing or wrong.
        """
        self._service = service
        self._given = given
        self._clock = clock
        self.needed = needed_of(given, frameworks, given.get("OCI_CLI_REGION") or service.region)
        self.ports = {name: ports_of(root, name, given) for name in frameworks}

    def rules(self, cidr: str) -> Rules:
        """Return the security rules for nodes in *cidr*."""
        return security_rules(cidr, self.ports)

    def look(self) -> tuple[Needed, Found, list[Step]]:
        """Return what is needed at the places that were found, what there is, and what is missing."""
        from oci_cluster.backends.oci.service import PATIENCE_S  # noqa: PLC0415 - the SDK, where OCI is asked
        from oci_cluster.backends.oci.setup_found import look  # noqa: PLC0415
        from oci_cluster.backends.oci.tenancy import Tenancy  # noqa: PLC0415

        try:
            needed, found = look(Tenancy(self._service, self._given, patience_s=PATIENCE_S), self.needed)
        except ClusterError as error:
            if error.exit_code != ExitCode.NOT_PERMITTED:
                raise
            raise NotPermittedError(
                f"{error.reason}; this is for an administrator of the tenancy: give them what setup.sh --print prints"
            ) from error
        rules = self.rules(found.subnet.cidr) if found.subnet else ([], [])
        return needed, found, steps_of(needed, found, rules)

    def apply(self, steps: Sequence[Step], say: Say) -> None:
        """Have oci-cli make what is missing.

        Raises:
            SettingsError: some of it only a person can make; nothing was made.
            BackendError: oci-cli has failed; what was made before stays, and a next time goes on there.
            TimedOutError: not all of it is seen.
        """
        if problems := [step.problem for step in steps if step.problem]:
            raise SettingsError("; ".join(problems))
        new_list = ""
        for step in steps:
            words = [word.replace(NEW_LIST, new_list) for word in step.command]
            printed = self._cli(step.item, words)
            if step.command[:3] == ("network", "security-list", "create"):
                new_list = str(json.loads(printed)["data"]["id"])
            say(f"made: {step.item}")
        self._wait_until_seen()

    def _wait_until_seen(self) -> None:
        deadline = self._clock.now() + _PATIENCE_S
        while left := self.look()[2]:
            if self._clock.now() >= deadline:
                items = ", ".join(step.item for step in left)
                raise TimedOutError(
                    f"OCI does not show {items} {_PATIENCE_S:g} s after it was made; run setup.sh again"
                )
            self._clock.sleep(_PAUSE_S)

    def _cli(self, item: str, words: Sequence[str]) -> str:
        """Run oci-cli with *words*; return what it prints."""
        command = [str(Path(sys.executable).with_name("oci")), *_CLI_WORDS, *words]
        deadline = self._clock.now() + _PATIENCE_S
        while True:
            done = subprocess.run(  # noqa: S603 - oci-cli of our own environment
                command,
                env={**self._service.environ, "OCI_CLI_SUPPRESS_FILE_PERMISSIONS_WARNING": "True"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                return done.stdout
            if _PASSING not in done.stderr or self._clock.now() >= deadline:
                break
            self._clock.sleep(_PAUSE_S)
        msg = f"cannot make {item}: oci {shlex.join(words[:3])} ended with {done.returncode}: {_said(done.stderr)}"
        raise BackendError(f"{msg}; what was made stays: mend it, and run setup.sh again")

    def settings(self, found: Found) -> dict[str, str]:
        """Return what ``config.env`` still lacks of what was found."""
        wanted = {"LOG_GROUP_OCID": found.log_group}
        return {name: text for name, text in wanted.items() if text and not self._given.get(name)}


def run(
    words: Sequence[str], options: Mapping[str, Sequence[str]], given: Mapping[str, str], root: Path, out: Out
) -> int:
    """Run ``setup`` for the frameworks *words*, or for all of the checkout *root*; return the exit code."""
    from oci_cluster.backends.oci.service import Service, service_environ  # noqa: PLC0415 - the SDK

    frameworks = list(dict.fromkeys(words)) or sorted(path.parent.name for path in root.glob("*/start-master.sh"))
    for name in frameworks:
        try:
            framework_dir(name, root)
        except ValueError as error:
            raise UsageError(str(error)) from error
    service = Service(service_environ(given))
    setup = Setup(service, given, root, frameworks, Clock())
    places, cidr = places_of(given), given.get("SUBNET_CIDR", "")
    if "--print" in options:
        out.show(for_administrator(setup.needed, places, cidr, setup.rules))
        return 0
    if "--tfvars" in options:
        tenancy = str(service.identity[0].get("tenancy", ""))
        out.show(variables(setup.needed, places, tenancy, cidr, setup.rules))
        return 0
    needed, found, steps = setup.look()
    out.show(difference(needed, found, steps))
    if not steps:
        _show_settings(setup, found, out)
        return 0
    if "--apply" not in options:
        out.say(f"{len(steps)} missing; with --apply, setup.sh makes this")
        return 0
    setup.apply(steps, out.say)
    _, found, _ = setup.look()
    _show_settings(setup, found, out)
    return 0


def _show_settings(setup: Setup, found: Found, out: Out) -> None:
    for name, text in setup.settings(found).items():
        out.show(f"{name}={text}")


def _said(text: str) -> str:
    """Return what oci-cli says of a refusal: its message and code, else its last line."""
    start = text.find("{")
    try:
        about = json.loads(text[start : text.rindex("}") + 1])
        return f"{about['message']} ({about['status']} {about['code']}, request {about['opc-request-id']})"
    except (ValueError, KeyError, TypeError):
        return next(reversed([line.strip() for line in text.splitlines() if line.strip()]), "it has said nothing")


# --- What is printed -------------------------------------------------------------------------------------------------


#: In what is printed without asking: who reads it knows.
CIDR = "<CIDR of the subnet>"


def difference(needed: Needed, found: Found, steps: Sequence[Step]) -> str:
    """Return what is missing, line by line, and what nobody could look at."""
    lines = []
    for step in steps:
        lines.append(f"{'!' if step.problem else '+'} {step.item}")
        lines += [f"    {line}" for line in step.lines]
        lines += [f"    {step.problem}"] if step.problem else []
    if found.has_people is None:
        lines.append(f"? group {needed.people}: groups of other identity domains are not shown here")
    if found.nodes_rule is None:
        lines.append(f"? dynamic group {needed.nodes}: likewise; its matching rule is to be:")
        lines.append(f"    {matching_rule(found.jobs)}")
    elif found.nodes_rule and found.has_runs is None:
        lines.append(
            f"? dynamic group {needed.nodes}: whether it has the Job Runs, its rule does not tell; it is to be:"
        )
        lines.append(f"    {matching_rule(found.jobs)}")
    lines += [f"? policies: this is there, and another statement may deny it: {text}" for text in found.unsure]
    if found.subnet is None:
        lines.append("? security rules: SUBNET_OCID is not set; OCI_JOB_STYLE=multinode alone needs none")
    if not steps:
        lines.append("= nothing is missing")
    return "\n".join(lines)


def for_administrator(needed: Needed, places: Places, cidr: str, rules: Callable[[str], Rules]) -> str:
    """Return all that is needed, for somebody who may make it; a line that is no comment is as OCI takes it."""
    ingress, egress = rules(cidr or CIDR_FOR_RULES)
    lines = [f"# Group of those who launch: {needed.people}"]
    lines += [f"# Dynamic group {needed.nodes}, its matching rule:", matching_rule(places.jobs)]
    lines += [f"# Policy {needed.policy}, in the root compartment:"]
    for statement in statements(needed):
        lines += [f"#   {statement.why}:", statement.text]
    lines += ["# Rules of the subnet's security list, all stateful:"]
    lines += [f"#   {rule_line(rule).replace(CIDR_FOR_RULES, CIDR)}" for rule in (*ingress, *egress)]
    lines += [f"# Bucket {needed.bucket} in {places.jobs}"]
    if kept := lifecycle_rules(needed):
        lines += ["# Its lifecycle policy:", *(f"#   {json.dumps(rule)}" for rule in kept)]
    lines += [f"# Repositories in {places.images}: {', '.join(needed.repositories)}"]
    lines += [f"# Log group {needed.log_group} in {places.jobs}"] if needed.log_group else []
    return "\n".join(lines)


# Any network, which is replaced by words before it is shown.
CIDR_FOR_RULES = "192.0.2.0/24"


def variables(needed: Needed, places: Places, tenancy: str, cidr: str, rules: Callable[[str], Rules]) -> str:
    """Return ``terraform.tfvars.json`` for ``scripts/templates/terraform``; what is not known is left out."""
    if domains := [group for group in (needed.people, needed.nodes) if "/" in group]:
        msg = f"{', '.join(domains)}: the templates for Terraform make groups of the identity domain Default alone"
        raise SettingsError(f"{msg}; make these yourself, and use --print")
    ingress, _ = rules(cidr or CIDR_FOR_RULES)
    spans = [rule["tcpOptions"]["destinationPortRange"] for rule in ingress]
    found = {
        "tenancy_ocid": tenancy,
        "compartment_ocid": places.jobs,
        "images_compartment_ocid": places.images,
        "network_compartment_ocid": places.network,
        "region": needed.region,
        "namespace": places.namespace,
        "people_group": needed.people,
        "nodes_group": needed.nodes,
        "policy_name": needed.policy,
        "bucket": needed.bucket,
        "prefix": needed.prefix,
        "keep_clusters_days": needed.keep_days,
        "repositories": list(needed.repositories),
        "uses_logging": bool(needed.logs),
        "log_group_name": needed.log_group,
        "subnet_cidr": cidr,
        "node_ports": spans,
    }
    return json.dumps(
        {name: value for name, value in found.items() if value != "" or name == "log_group_name"}, indent=2
    )
