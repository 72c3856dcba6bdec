"""The command lines of quota.sh, queue.sh and setup.sh."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster import __main__ as door
from oci_cluster.errors import UsageError
from oci_cluster.launcher import context
from oci_cluster.launcher.args.command_line import read

KNOWN = "show, apply teams.yaml, hold TEAM, resume TEAM"
WRONG = [
    ("quota", [], f"expected one of: {KNOWN}; got ''"),
    ("quota", ["list"], f"expected one of: {KNOWN}; got 'list'"),
    ("quota", ["show", "a"], "expected show, got show a"),
    ("quota", ["apply"], "expected apply teams.yaml, got apply"),
    ("quota", ["hold"], "expected hold TEAM, got hold"),
    ("quota", ["hold", "a", "b"], "expected hold TEAM, got hold a b"),
    ("quota", ["hold", ""], "expected a name, got an empty word"),
    ("quota", ["resume", "a", "--drain"], "--drain belongs to hold, not to resume"),
    ("quota", ["show", "--prune"], "--prune belongs to apply, not to show"),
    ("quota", ["hold", "a", "--dry-run"], "--dry-run belongs to apply, not to hold"),
    ("quota", ["show", "--backend", "oci"], "teams and queues are of the backend kubernetes alone, got --backend oci"),
    ("queue", ["a", "b"], "one team at a time, got 'a' and 'b'"),
    ("queue", [""], "expected a name, got an empty word"),
    ("queue", ["--all"], "unknown option '--all'"),
]


@pytest.mark.parametrize(("verb", "words", "why"), WRONG)
def test_a_wrong_command_line_asks_nobody(
    verb: str, words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(context, "equip", lambda _: pytest.fail("nothing is installed for a wrong command line"))
    with pytest.raises(UsageError) as caught:
        read(verb, words)
    assert str(caught.value) == f"{why} (oci_cluster --help says more)"
    assert door.main([verb, *words]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("quota", ["show", "--json", "--backend", "kubernetes"]),
        ("quota", ["apply", "t.yaml", "--dry-run", "--prune", "--force"]),
        ("quota", ["hold", "a", "--drain"]),
        ("quota", ["resume", "a"]),
        ("queue", []),
        ("queue", ["a", "--json"]),
    ],
)
def test_what_is_right_is_taken(verb: str, words: list[str]) -> None:
    assert read(verb, words).words == [word for word in words if not word.startswith("--") and word != "kubernetes"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--print", "--apply"], "one of --apply, --print and --tfvars, got --apply and --print"),
        (["dask", ""], "expected a framework, got an empty word"),
        (["--backend", "local"], "a tenancy is of the backend oci alone, got --backend local"),
        (["--force"], "unknown option '--force'"),
    ],
)
def test_a_wrong_setup_asks_nobody(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(context, "equip", lambda _: pytest.fail("nothing is installed for a wrong command line"))
    assert door.main(["setup", *words]) == 2
    assert why in capsys.readouterr().err


def test_setup_takes_frameworks() -> None:
    assert read("setup", ["dask", "ray", "--backend", "oci", "--apply"]).words == ["dask", "ray"]


def test_setup_is_what_the_door_opens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The verb begins, and ends with what a setting lacks; OCI is not asked."""
    monkeypatch.setattr(context, "equip", lambda _: None)
    monkeypatch.setattr(context, "given_settings", lambda: {"OCI_CLI_AUTH": "nothing"})
    assert door.main(["setup", "dask", "--print"]) == 78
    assert "OCI_CLI_AUTH is 'nothing'" in capsys.readouterr().err


def test_what_is_needed_is_printed_to_who_has_no_identity(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"OCI_CLI_AUTH": "nothing", "OCI_CLI_REGION": "eu-frankfurt-1", "REGISTRY": "fra.ocir.io/ns/t"}
    given |= {"COMPARTMENT_OCID": "ocid1.compartment.oc1..a", "WORK_DIR": "oci://b@ns/w"}
    monkeypatch.setattr(context, "equip", lambda _: None)
    monkeypatch.setattr(context, "given_settings", lambda: given)
    assert door.main(["setup", "dask", "--print"]) == 0
    assert "allow service objectstorage-eu-frankfurt-1 to" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("verb", "words", "why"),
    [
        ("new", [], "expected <framework...> <dir>, got nothing"),
        ("new", ["dask"], "expected <framework...> <dir>, got 'dask'"),
        ("new", ["dask", ""], "expected <framework...> <dir>, got 'dask' ''"),
        ("new", ["dask", "p", "--backend", "aws"], "unknown backend 'aws'; there is: "),
        ("new", ["dask", "p", "--code", "src"], "--code src needs the script in it that is run: --entry FILE"),
        ("new", ["dask", "p", "--force"], "unknown option '--force'"),
        ("update", [""], "expected a version, got an empty word"),
        ("update", ["a", "b", "c"], "expected SOURCE, got 3 of them"),
        ("update", ["a", "--backend", "oci"], "unknown option '--backend'"),
    ],
)
def test_a_wrong_project_is_told_before_anything_is_looked_at(
    verb: str, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert door.main([verb, *words]) == 2
    assert why in capsys.readouterr().err


def test_new_and_update_are_what_the_door_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert door.main(["new", "dask", "my project", "--backend=docker"]) == 0
    assert "new    dask/  " in capsys.readouterr().out
    assert (tmp_path / "my project" / "config.env").read_text().endswith("BACKEND=docker\n")
    assert door.main(["update", "."]) == 78  # this checkout has no wheel of its own
    assert "has no vendor/oci_cluster-*.whl" in capsys.readouterr().err
