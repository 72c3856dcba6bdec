"""The audit of locks: what it looks up, and what it lets pass. The database is a program that says what a test says."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import audit
import pytest

TODAY = datetime.date(2026, 6, 15)


def program(place: Path, known: dict[str, list[str]], *, silent_on: str = "", says: str = "") -> str:
    """Return a pip-audit that knows what is *known* of pins, and has no answer for the package *silent_on*."""
    path = place / "pip-audit"
    path.write_text(
        "#!/usr/bin/env python3\n"
        "import json, sys\n"
        f"known, silent, says = {known!r}, {silent_on!r}, {says!r}\n"
        "if says: sys.exit(says)\n"
        "pins = [line.split('==') for line in open(sys.argv[-1]).read().split()]\n"
        "assert len({name for name, _ in pins}) == len(pins)\n"
        "def answer(name, version):\n"
        "    found = [{'id': id_} for id_ in known.get(name + '==' + version, [])]\n"
        "    return {'name': name, 'version': version, 'vulns': found}\n"
        "answers = [answer(*pin) for pin in pins]\n"
        "answers = [{'name': a['name'], 'skip_reason': 'x'} if a['name'] == silent else a for a in answers]\n"
        "print(json.dumps({'dependencies': answers}))\n"
        "sys.exit(any(a.get('vulns') for a in answers))\n"
    )
    path.chmod(0o755)
    return str(path)


def accepted(**changes: Any) -> dict[str, Any]:
    return {"id": "PYSEC-1", "package": "a", "until": TODAY, "reason": "not used", **changes}


def test_every_version_of_every_lock_is_looked_up() -> None:
    """Also those for another Python; a new lock in the checkout is among them."""
    found = audit.locked_versions(audit.ROOT)
    assert {"torch", "distributed", "tensorflow-cpu", "oci", "pytest", "pip-audit", "uv"} <= set(found)
    assert len(found["numpy"]) > 1
    locks = {path for pattern in audit.LOCKS for path in audit.ROOT.glob(pattern)}
    others = [path for path in audit.ROOT.glob("*/*.txt") if "--hash=" in path.read_text() and path not in locks]
    assert others == []


def test_what_is_known_of_any_version_is_found(tmp_path: Path) -> None:
    """Of a package with several versions each."""
    versions = {"a": ["1", "2"], "b": ["1"]}
    found = audit.look_up(program(tmp_path, {"a==2": ["PYSEC-1", "PYSEC-2"], "b==1": ["PYSEC-3"]}), versions)
    assert sorted(found) == [("a", "2", "PYSEC-1"), ("a", "2", "PYSEC-2"), ("b", "1", "PYSEC-3")]


@pytest.mark.parametrize(
    ("how", "told"),
    [({"silent_on": "b"}, "no answer for b"), ({"says": "cannot reach osv.dev"}, "ended with 1: cannot reach osv.dev")],
)
def test_a_database_that_does_not_answer_is_no_clean_bill(tmp_path: Path, how: dict[str, str], told: str) -> None:
    """pip-audit itself ends with 0 where it could not look."""
    with pytest.raises(audit.AuditError, match=told) as caught:
        audit.look_up(program(tmp_path, {}, **how), {"a": ["1"], "b": ["1"]})
    assert caught.value.code == 69


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([], ["a 1: PYSEC-1"]),
        ([accepted()], []),
        (
            [accepted(package="b")],
            ["a 1: PYSEC-1", "accepted-findings.yaml: PYSEC-1 of b is in no lock any more; take it out"],
        ),
        (
            [accepted(until=TODAY - datetime.timedelta(days=1))],
            ["a 1: PYSEC-1", "accepted-findings.yaml: PYSEC-1 of a was accepted until 2026-06-14; look at it anew"],
        ),
    ],
)
def test_only_what_is_accepted_and_has_not_expired_passes(entries: list[dict[str, Any]], told: list[str]) -> None:
    """An acceptance that is of no use fails too: it would let the next one of that name pass."""
    assert audit.problems([("a", "1", "PYSEC-1")], entries, TODAY) == told


@pytest.mark.parametrize(
    ("field", "text"), [("until", "tomorrow"), ("until", None), ("reason", ""), ("id", None), ("package", " ")]
)
def test_an_acceptance_has_a_date_and_a_reason(tmp_path: Path, field: str, text: str | None) -> None:
    """Without, it is a wrong setting."""
    path = tmp_path / "accepted.yaml"
    path.write_text(
        json.dumps({"accepted": [{**accepted(until="2026-06-15"), field: text}]}).replace('"2026-06-15"', "2026-06-15")
    )
    with pytest.raises(audit.AuditError, match=f"has no {field}") as caught:
        audit.read_accepted(path)
    assert caught.value.code == 78


def test_what_is_accepted_in_this_checkout_can_be_read() -> None:
    """So that the audit does not fail for that."""
    assert isinstance(audit.read_accepted(audit.ACCEPTED), list)
