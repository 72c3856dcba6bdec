"""Looks all that is locked up in a database of known vulnerabilities: ``make audit``.

``python tests/audit.py PIP_AUDIT [OSV_URL]``. Every version of every lock is looked up, whatever system or Python it is
for. What may pass stands in ``.ci/accepted-findings.yaml``.

Exit: 0 nothing found but what is accepted; 1 something found, or an acceptance that has expired or is of no use;
69 the database did not answer for all; 78 the file of what is accepted is wrong.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements-*.txt", "common/requirements*.txt", "*/*-lock.txt", "scripts/sessions/*/*-lock.txt")
ACCEPTED = ROOT / ".ci" / "accepted-findings.yaml"
_PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)

# A package, its version, and the name of what is known of it.
Finding = tuple[str, str, str]


class AuditError(Exception):
    """The audit cannot be made; has the exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def locked_versions(root: Path) -> dict[str, list[str]]:
    """Return all versions of each package in the locks of the checkout *root*: they differ by Python and system."""
    found: dict[str, set[str]] = {}
    for path in [path for pattern in LOCKS for path in root.glob(pattern)]:
        for name, version in _PINNED.findall(path.read_text()):
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), set()).add(version)
    return {name: sorted(versions) for name, versions in sorted(found.items())}


def look_up(pip_audit: str, versions: Mapping[str, Sequence[str]], url: str = "") -> list[Finding]:
    """Return what is known of all *versions*.

    Raises:
        AuditError: there is no answer for one.
    """
    findings: list[Finding] = []
    # pip-audit takes one version of a package at a time.
    for number in range(max(map(len, versions.values()))):
        pins = {name: several[number] for name, several in versions.items() if number < len(several)}
        answers = _run(pip_audit, pins, url)
        if left_out := sorted(set(pins) - {answer["name"] for answer in answers if "vulns" in answer}):
            raise AuditError(69, f"the database has no answer for {', '.join(left_out)}; try again")
        for answer in answers:
            findings += [(answer["name"], answer["version"], known["id"]) for known in answer["vulns"]]
    return findings


def _run(pip_audit: str, pins: Mapping[str, str], url: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "pins.txt")
        path.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        command = [pip_audit, "--vulnerability-service", "osv", *(["--osv-url", url] if url else [])]
        command += ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json", "-r", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answers: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = done.stderr.strip().rpartition("\n")[2]
        raise AuditError(69, f"pip-audit ended with {done.returncode}: {last}") from None
    return answers


def read_accepted(path: Path) -> list[dict[str, Any]]:
    """Return what the file *path* accepts.

    Raises:
        AuditError: something is missing in it.
    """
    entries = (yaml.safe_load(path.read_text()) or {}).get("accepted") or []
    for entry in entries:
        wrong = [name for name in ("id", "package", "reason") if not str(entry.get(name) or "").strip()]
        wrong += [] if isinstance(entry.get("until"), datetime.date) else ["until"]
        if wrong:
            raise AuditError(78, f"{path.name}: {entry} has no {', '.join(wrong)}; its first lines explain each")
    return list(entries)


def problems(findings: Iterable[Finding], accepted: Sequence[Mapping[str, Any]], today: datetime.date) -> list[str]:
    """Return what is wrong: *findings* that are not *accepted*, and acceptances that have expired or have no use."""
    valid = {(entry["package"], entry["id"]) for entry in accepted if entry["until"] >= today}
    found = {(package, known): version for package, version, known in findings}
    texts = [
        f"{package} {version}: {known}" for (package, known), version in found.items() if (package, known) not in valid
    ]
    for entry in accepted:
        what = f"{ACCEPTED.name}: {entry['id']} of {entry['package']}"
        if entry["until"] < today:
            texts.append(f"{what} was accepted until {entry['until']}; look at it anew")
        if (entry["package"], entry["id"]) not in found:
            texts.append(f"{what} is in no lock any more; take it out")
    return texts


def main(arguments: Sequence[str]) -> int:
    """Audit the locks of this checkout."""
    versions = locked_versions(ROOT)
    count = sum(map(len, versions.values()))
    try:
        accepted = read_accepted(ACCEPTED)
        wrong = problems(
            look_up(arguments[0], versions, *arguments[1:2]),
            accepted,
            datetime.datetime.now(datetime.timezone.utc).date(),
        )
    except AuditError as error:
        sys.stderr.write(f"audit: error: {error}\n")
        return error.code
    for text in wrong:
        sys.stderr.write(f"audit: {text}\n")
    sys.stderr.write(f"audit: {count} versions of {len(versions)} packages looked up; {len(wrong)} to be dealt with\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
