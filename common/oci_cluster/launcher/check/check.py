"""The verb ``check``: what would fail of a launch, found before anything costs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oci_cluster.backends import check_of, with_placeholder
from oci_cluster.backends.findings import Checked, Finding, Verdict, fails, fine, unknown
from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.parsers import parse_count, parse_port
from oci_cluster.contract.settings.schema import SETTINGS
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT, SettingsReader, framework_defaults
from oci_cluster.errors import ClusterError, ExitCode, Problem, SettingsError, UsageError
from oci_cluster.launcher.args.command_line import CommandLine, usage
from oci_cluster.launcher.context import backend_named, equip, given_settings, open_named, use_own_environment
from oci_cluster.launcher.launch.launch import planned, request_of
from oci_cluster.launcher.launch.plan import settings_given
from oci_cluster.system.console import Say, program, say_to_stderr
from oci_cluster.system.envs.python_env import has_backend_tools
from oci_cluster.system.redaction import redact
from oci_cluster.system.text import printable

UNTOLD = 3
"""The exit code where nothing fails of what could be seen, and not all could be."""

# What a check is about where the command line does not say it: nodes that need main, and each other.
_WORKERS = "2"
# To which item a problem belongs, by the setting that it begins with; others are those of the settings.
_ITEMS = {
    "ports": re.compile(r"[A-Z_]+_PORTS?|EXPOSE|PUBLISH"),
    "entry point": re.compile("ENTRY_POINT|ENTRY_MODULE|CODE_DIR|OUTPUT_FOLDERS|ARGS"),
}
# A command of oci-cli with all rules of a security list in it fits.
_LONGEST_LINE = 20_000


def check(line: CommandLine) -> int:
    """Show what would fail of the launch that *line* describes; return the exit code."""
    say = say_to_stderr(program())
    backend = backend_named(line, given_settings())
    asked = replace(line, words=[*line.words, *_defaults(PROJECT_ROOT)[len(line.words) :]])
    framework = asked.words[0].rstrip("/")
    try:
        workers = parse_count(asked.words[1])
    except ValueError as error:
        raise usage(f"workers: {error}; try {_WORKERS}") from error
    given = settings_given(request_of(asked, backend), os.environ, PROJECT_ROOT)
    problems: list[Problem] = []
    plan = _plan(asked, problems)
    # Though programs may be installed for that.
    is_seen = all(one.setting == "IMAGE" for one in problems) or has_backend_tools(PROJECT_ROOT, backend)
    if not is_seen:
        say(f"nothing is installed for the backend {backend}, and nobody asked, before settings are complete")
    else:
        use_own_environment()
        equip(backend)
    if len(line.words) < len(asked.words):
        what = "1 worker" if workers == 1 else f"{workers} workers"
        say(f"{framework} with {what} is checked: check.sh FRAMEWORK WORKERS checks others")
    checked, report = Checked(framework, workers, PROJECT_ROOT, given, plan), Report(print, as_json=line.has("--json"))
    for finding in _offline(checked, problems):
        report.add(finding)
    if not is_seen:
        report.add(unknown("the rest", "it was not looked at; fix the settings first"))
    else:
        _look(checked, report, backend, say)
    if is_seen and line.has("--live"):
        for finding in _live(asked, checked, report, backend, say):
            report.add(finding)
    report.end(checked, backend, say)
    return report.exit_code


def _look(checked: Checked, report: Report, backend: str, say: Say) -> None:
    try:
        for finding in check_of(backend)(checked, say):
            report.add(finding)
    except ClusterError as error:
        report.add(unknown("the rest", f"the check ended here: {error}"))


def _live(line: CommandLine, checked: Checked, report: Report, backend: str, say: Say) -> Iterator[Finding]:
    """Yield what two nodes prove; none is started where something is known to fail."""
    from oci_cluster.launcher.check import live  # noqa: PLC0415 - where nodes are started

    if report.exit_code == ExitCode.FAILED:
        yield unknown(live.ITEM, "no nodes were started, as something will fail: fix that first")
    else:
        yield from live.prove(line, checked, backend, say)


def _defaults(root: Path) -> list[str]:
    frameworks = sorted(path.parent.name for path in root.glob("*/start-master.sh"))
    if not frameworks:
        raise UsageError(f"there is no framework in {root}; a framework is a folder with start-master.sh")
    return [frameworks[0], _WORKERS]


# --- What nobody needs to be asked for ------------------------------------------------------------------------------


def _plan(line: CommandLine, problems: list[Problem]) -> Plan | None:
    """Return the launch, or None; add what is wrong with settings to *problems*."""
    found, said = None, say_to_stderr(program())
    try:
        with contextlib.closing(open_named(line)) as backend:
            found = planned(request_of(line, backend.name), backend, said, problems)
            found = _with_image(found, problems) if not backend.is_this_machine else found
            backend.check(found)
    except UsageError as error:
        if found is None:  # the command line itself is wrong, not what this backend makes of it
            raise
        problems.append(Problem("", error.reason, error.next_step))
    except SettingsError as error:
        known = {problem.setting for problem in problems} - {""}
        problems += [problem for problem in error.problems if problem.setting not in known]
    return found


def _with_image(plan: Plan, problems: list[Problem]) -> Plan:
    """Return *plan*; without an image, with a placeholder, and note the problem."""
    found = with_placeholder(plan, PROJECT_ROOT, given_settings())
    if found is not plan:
        told = f"IMAGE is not set, and no image of {plan.framework} was pushed from here"
        registry = given_settings().get("REGISTRY") or "<registry>"
        step = f"make build-{plan.framework} push-{plan.framework} REGISTRY={registry}"
        problems.append(
            Problem("IMAGE", f"{told}; the rest is looked at as if it were {found.settings['IMAGE']}", step)
        )
    return found


def _offline(checked: Checked, problems: Sequence[Problem]) -> Iterator[Finding]:
    """Yield what is known of settings, ports and entry point."""
    found: dict[str, list[Finding]] = {"settings": [], "ports": [], "entry point": []}
    for problem in problems:
        item = next((item for item, names in _ITEMS.items() if names.fullmatch(problem.setting)), "settings")
        found[item].append(_wrong(item, problem))
    plan = checked.plan
    if plan is None:
        why = "settings are so wrong that this cannot be seen; fix those first"
        right = dict.fromkeys(found, why)
    else:
        ports = _ports(plan, checked.root)
        found["ports"] += _same_ports(ports)
        told = ", ".join(f"{name} {text}" for name, text in ports.items()) or "this framework names none"
        right = {"settings": "complete and well-formed", "ports": told, "entry point": _entry_point(plan)}
    for item, ones in found.items():
        yield from ones or [fine(item, right[item]) if plan else unknown(item, right[item])]


def _wrong(item: str, problem: Problem) -> Finding:
    row = SETTINGS.get(problem.setting)
    like = f", such as {row.name}={row.example}" if row and row.example else ""
    known = "config.env.example explains each setting"
    if row:
        is_typed = row.flag and problem.text.startswith(row.flag)
        known = f"give another value: {row.flag}" if is_typed else f"set {row.name} in config.env{like}"
    return fails(item, problem.text, problem.next_step or known)


def _ports(plan: Plan, root: Path) -> dict[str, str]:
    """Return the ports of the launch, numbers or ranges, by their settings."""
    defaults = framework_defaults(root / plan.framework)
    read = SettingsReader(plan.environment, plan.settings, defaults)
    names = [name for name in (*defaults, *plan.settings) if name.endswith(("_PORT", "_PORTS"))]
    found = {name: read.text(name) for name in names}
    return {name: text for name, text in found.items() if text[:1].isdecimal()}


def _same_ports(ports: Mapping[str, str]) -> Iterator[Finding]:
    """Yield wrong ranges among *ports*, and settings that mean the same port of main."""
    first: dict[str, str] = {}
    for name, text in ports.items():
        low, _, high = text.partition(":")
        try:
            for word in (low, high or low):
                parse_port(word)
        except ValueError as error:
            yield fails("ports", f"{name}={text}: {error}", f"{name}=<first>:<last>, with ports from 1 to 65535")
        if not high and (other := first.setdefault(text, name)) != name:
            fix = f"leave {name} out of config.env, or give it another number than {text}"
            yield fails("ports", f"{name} and {other} are both {text}, and main cannot have a port twice", fix)


def _entry_point(plan: Plan) -> str:
    environment = plan.environment
    if environment.get("ENTRY_MODULE"):
        return f"module {environment['ENTRY_MODULE']} in {environment['CODE_DIR']}"
    if environment.get("ENTRY_POINT"):
        return f"{environment['ENTRY_POINT']} in {environment['CODE_DIR']}"
    return "none: the cluster stays until it is stopped"


# --- What a person sees ---------------------------------------------------------------------------------------------


class Report:
    """Findings of a check, shown as they come, or as JSON at the end."""

    def __init__(self, show: Say, *, as_json: bool) -> None:
        self._show = show
        self._as_json = as_json
        self._findings: list[Finding] = []

    def add(self, finding: Finding) -> None:
        """Take *finding* in, and show it."""
        self._findings.append(finding)
        if self._as_json:
            return
        self._show(redact(f"{finding.verdict:<7}  {finding.item:<16}  {printable(finding.text, _LONGEST_LINE)}"))
        for line in finding.fix.splitlines():
            self._show(redact(f"         {printable(line, _LONGEST_LINE)}"))
        sys.stdout.flush()  # each while the next is looked for

    @property
    def exit_code(self) -> int:
        """0: nothing fails; 1: something will fail; :data:`UNTOLD`: something could not be seen."""
        if self._all(Verdict.FAILS):
            return ExitCode.FAILED
        return UNTOLD if self._all(Verdict.UNKNOWN) else ExitCode.OK

    def end(self, checked: Checked, backend: str, say: Say) -> None:
        """Show JSON, or what could not be seen; say the counts of verdicts."""
        counts = {verdict.value: len(self._all(verdict)) for verdict in Verdict}
        if self._as_json:
            about = {"framework": checked.framework, "workers": checked.workers, "backend": backend}
            summary = {**about, **counts, "exit_code": int(self.exit_code)}
            names = ("item", "verdict", "text", "fix")
            findings = [{name: str(getattr(one, name)) for name in names} for one in self._findings]
            self._show(redact(json.dumps({"findings": findings, "summary": summary}, indent=2)))
        elif unseen := self._all(Verdict.UNKNOWN):
            self._show("\nnot seen:")
            for one in unseen:
                self._show(redact(f"  {one.item}: {printable(one.text, _LONGEST_LINE)}"))
        will = "nothing that was seen will fail" if not counts["fails"] else f"{counts['fails']} will fail"
        more = {Verdict.UNKNOWN: "could not be seen", Verdict.ADVICE: "only advice"}
        others = "".join(f", {counts[verdict]} {text}" for verdict, text in more.items() if counts[verdict])
        say(f"{len(self._findings)} items on {backend}: {will}{others}")

    def _all(self, verdict: Verdict) -> list[Finding]:
        return [one for one in self._findings if one.verdict is verdict]
