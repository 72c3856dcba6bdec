from __future__ import annotations

import re
from pathlib import Path

import pytest

from oci_cluster import errors
from oci_cluster.errors import ClusterError, ExitCode

ROOT = Path(__file__).resolve().parents[2]
# A launch whose reader goes is told by SIGPIPE's code, as a shell tells it: 128 + 13.
READER_GONE = 141


def codes_in(path: str, heading: str) -> set[int]:
    """Return the codes in the table below *heading*."""
    table = (ROOT / path).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}


def test_exit_codes_are_the_contracts() -> None:
    """The table "Exit codes" of the contract and ExitCode name the same codes; 1 is the entry point's own."""
    assert codes_in("common/README.md", "Exit codes") | {1} == {int(code) for code in ExitCode}


def test_users_are_told_of_every_exit_code_of_the_launcher() -> None:
    """What is no script's own: all codes but success and the entry point's."""
    wanted = {int(code) for code in ExitCode} - {0, 1} | {READER_GONE}
    assert codes_in("docs/clusters.md", "How it ends") == wanted
    assert codes_in("docs/agents.md", "Exit codes") == wanted | {0}


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.sh")), ids=lambda path: path.name)
def test_the_help_of_a_script_names_codes_that_there_are(script: Path) -> None:
    """Those of the launcher; what is below 64 is each script's own."""
    header = re.match(r"(?:#.*\n)+", script.read_text(encoding="utf-8"))
    assert header
    told = re.search(r"\bExit: ((?:.*\n# )*.*)", header[0])
    assert told
    codes = {int(code) for code in re.findall(r"(?:^|[;,] )(\d+) ", told[1].replace("\n# ", " "))}
    assert codes & {0, 2}
    assert {code for code in codes if code >= 64} <= {int(code) for code in ExitCode} | {READER_GONE}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("ClusterError", 70),
        ("UsageError", 2),
        ("StorageError", 69),
        ("BackendError", 69),
        ("TimedOutError", 75),
        ("LostError", 76),
        ("NotPermittedError", 77),
        ("SettingsError", 78),
        ("StoppedError", 143),
    ],
)
def test_each_error_ends_a_process_with_its_own_code(error: str, code: int) -> None:
    """An error's class decides the exit code, and its text is kept as it is."""
    raised = getattr(errors, error)("what, and what to do")
    assert (str(raised), raised.exit_code) == ("what, and what to do", code)


def test_every_error_is_expected_by_the_door() -> None:
    """What is raised on purpose is a ClusterError, so that it becomes one line and not a traceback."""
    named = [value for name, value in vars(errors).items() if name.endswith("Error")]
    assert [error for error in named if not issubclass(error, ClusterError)] == []


def test_a_passed_on_code_replaces_the_class_own() -> None:
    """A worker's own code can be passed on, 0 (a TTL that was reached) included."""
    assert [errors.LostError("w", exit_code=7).exit_code, errors.StoppedError("ttl", exit_code=0).exit_code] == [7, 0]


def test_a_passed_on_code_belongs_to_one_error() -> None:
    """Passing a code on changes that error only, never the ones after it."""
    errors.LostError("first", exit_code=7)
    assert errors.LostError("second").exit_code == 76


@pytest.mark.parametrize(
    ("text", "reason", "next_step"),
    [
        ("port 1 is taken; choose another: --env PORT=2", "port 1 is taken", "choose another: --env PORT=2"),
        ("a; b; do c", "a; b", "do c"),
        ("nothing can be done", "nothing can be done", ""),
    ],
)
def test_an_error_has_its_reason_and_the_next_step_apart(text: str, reason: str, next_step: str) -> None:
    """Without a change of its text."""
    error = ClusterError(text)
    assert (error.reason, error.next_step, str(error)) == (reason, next_step, text)


def test_a_failed_cluster_has_the_reason_of_its_nodes() -> None:
    error = errors.ClusterFailedError("mine ended with 7 (x); see logs()", exit_code=7, reason="x", node="MAIN")
    assert (error.exit_code, error.reason, error.node, error.next_step) == (7, "x", "MAIN", "see logs()")


def test_wrong_settings_can_be_told_one_by_one() -> None:
    """As they were found; an error that was made of one text is one problem."""
    error = errors.SettingsError.of(["A is not set", "B: wrong; fix it"])
    assert str(error) == "bad settings: A is not set; B: wrong; fix it (config.env.example explains each)"
    assert error.problems == ("A is not set", "B: wrong; fix it")
    assert errors.SettingsError("C: wrong").problems == ("C: wrong",)
    assert str(errors.SettingsError.of(["A", "B"], "")) == "A; B"
