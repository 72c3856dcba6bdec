"""check.sh: what it shows of findings, what it makes of settings, and how it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.launcher.door import Door

from oci_cluster.backends.findings import Checked, Finding, advice, fails, fine, unknown
from oci_cluster.errors import BackendError, Problem, SettingsError, UsageError
from oci_cluster.launcher import verbs
from oci_cluster.launcher.check import check as checking

Run = Callable[..., int]


class Checks:
    """What the backend finds, and what it was asked about."""

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.error: Exception | None = None
        self.asked: list[Checked] = []

    def findings(self, checked: Checked, _say: Any) -> Iterator[Finding]:
        self.asked.append(checked)
        yield from self.found
        if self.error:
            raise self.error


@pytest.fixture
def checks(door: Door, monkeypatch: pytest.MonkeyPatch) -> Checks:
    made = Checks()
    monkeypatch.setattr(checking, "PROJECT_ROOT", door.root)
    monkeypatch.setattr(checking, "check_of", lambda _name: made.findings)
    monkeypatch.setattr(checking, "has_backend_tools", lambda *_: True)
    monkeypatch.setattr("oci_cluster.launcher.context.ensure_tools", lambda *_: Path(sys.prefix) / "bin" / "python")
    return made


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([], 0),
        ([fine("a", "b")], 0),
        ([fine("a", "b"), advice("c", "d", "e")], 0),
        ([fine("a", "b"), unknown("c", "d")], 3),
        ([unknown("c", "d"), fails("e", "f", "g"), fine("h", "i")], 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst_finding(checks: Checks, found: list[Finding], code: int) -> None:
    """An item that could not be seen is never taken for a fine one, and hides none that fails."""
    checks.found = found
    assert verbs.run("check", ["dask", "2"]) == code


def test_each_item_is_a_line_with_its_fix_below(checks: Checks, capsys: pytest.CaptureFixture[str]) -> None:
    """And at the end what could not be seen, with why."""
    checks.found = [fails("bucket", "there is none", "make it\nor name another"), unknown("image", "nobody answers")]
    checks.found.append(advice("policies", "none lets people push", "allow it"))
    verbs.run("check", ["dask", "2"])
    shown = capsys.readouterr()
    assert shown.out.splitlines()[3:] == [
        "fails    bucket            there is none",
        "         make it",
        "         or name another",
        "unknown  image             nobody answers",
        "advice   policies          none lets people push",
        "         allow it",
        "",
        "not seen:",
        "  image: nobody answers",
    ]
    assert shown.err == "oci_cluster: 6 items on local: 1 will fail, 1 could not be seen, 1 only advice\n"


def test_json_has_the_items_and_a_summary(checks: Checks, capsys: pytest.CaptureFixture[str]) -> None:
    checks.found = [fails("bucket", "there is none", "make it")]
    assert verbs.run("check", ["dask", "2", "--json", "--backend", "cloud"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["findings"][3] == {"item": "bucket", "verdict": "fails", "text": "there is none", "fix": "make it"}
    about = {"framework": "dask", "workers": 2, "backend": "cloud"}
    assert told["summary"] == {**about, "fine": 3, "fails": 1, "unknown": 0, "advice": 0, "exit_code": 1}


def test_what_others_have_written_controls_no_terminal(checks: Checks, capsys: pytest.CaptureFixture[str]) -> None:
    """A bucket, or a rule, may be called anything."""
    checks.found = [fails("bucket", "\x1b[2Jgone", "oci \x1b[2J")]
    verbs.run("check", ["dask", "2"])
    assert "\x1b" not in capsys.readouterr().out


def test_a_check_that_breaks_off_leaves_the_rest_unknown(checks: Checks, capsys: pytest.CaptureFixture[str]) -> None:
    """What was found before stays shown."""
    checks.found, checks.error = [fine("network", "is there")], BackendError("no answer")
    assert verbs.run("check", ["dask", "2"]) == 3
    assert lines(capsys)[3:5] == [
        "fine     network           is there",
        "unknown  the rest          the check ended here: no answer",
    ]


def test_the_backend_is_asked_about_the_launch(checks: Checks, monkeypatch: pytest.MonkeyPatch, door: Door) -> None:
    """With its plan, and settings of which flags come before --env, environment and config.env."""
    (door.root / "config.env").write_text("TTL=1h\nMAX_RESTARTS=1\nOUTPUT_INTERVAL=10s\nEMPTY=\n")
    monkeypatch.setenv("MAX_RESTARTS", "2")
    monkeypatch.setenv("OUTPUT_INTERVAL", "20s")
    assert verbs.run("check", ["dask/", "4", "--ttl", "3h", "--env", "OUTPUT_INTERVAL=30s", "--", "-x"]) == 0
    (checked,) = checks.asked
    assert (checked.framework, checked.workers, checked.root) == ("dask", 4, door.root)
    assert {name: checked.given.get(name) for name in ("TTL", "MAX_RESTARTS", "OUTPUT_INTERVAL", "EMPTY")} == {
        "TTL": "3h",
        "MAX_RESTARTS": "2",
        "OUTPUT_INTERVAL": "30s",
        "EMPTY": None,
    }
    assert checked.plan
    assert [node.name for node in checked.plan.nodes][-1] == "WORKER_4"
    assert json.loads(checked.plan.environment["ARGS"]) == ["-x"]
    assert door.backend.calls == ["close"]


def test_without_words_the_first_framework_is_checked(checks: Checks, capsys: pytest.CaptureFixture[str]) -> None:
    """And a person is told which, and how others are."""
    assert verbs.run("check", []) == 0
    assert (checks.asked[0].framework, checks.asked[0].workers) == ("dask", 2)
    assert "dask with 2 workers is checked: check.sh FRAMEWORK WORKERS checks others" in capsys.readouterr().err


def test_every_problem_is_a_finding_of_its_own(checks: Checks, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the launch, of the backend and of the limits; none twice; a port's are items of the ports."""
    settings = "MIN_WORKERS=1\nA_PORT=80\nB_PORT=90\nC_PORT=90\nD_PORTS=70:99999\n"
    (door.root / "dask" / "settings.env").write_text(settings)

    def check(_plan: Any = None) -> None:
        wrong = Problem("TTL", "TTL: wrong there", "make it right"), Problem("TIMEOUT", "TIMEOUT: 'soon' again")
        raise SettingsError.of([Problem("PLACE", "PLACE is not set"), *wrong])

    door.backend.check = check  # type: ignore[method-assign]
    assert verbs.run("check", ["dask", "2", "--env", "TIMEOUT=soon", "--env", "A_PORT=0", "--entry", "no.py"]) == 1
    found = [line for line in lines(capsys) if line.startswith(("fails", " "))]
    assert found == [
        "fails    settings          TIMEOUT: 'soon' is not a duration",
        "         write seconds, or a number with s, m, h or d, such as 90s or 2h",
        "fails    settings          PLACE is not set",
        "         config.env.example explains each setting",
        "fails    settings          TTL: wrong there",
        "         make it right",
        "fails    ports             A_PORT: '0' is not a whole number from 1 to 65535",
        "         config.env.example explains each setting",
        "fails    ports             A_PORT=0: '0' is not a whole number from 1 to 65535",
        "         A_PORT=<first>:<last>, with ports from 1 to 65535",
        "fails    ports             C_PORT and B_PORT are both 90, and main cannot have a port twice",
        "         leave C_PORT out of config.env, or give it another number than 90",
        "fails    ports             D_PORTS=70:99999: '99999' is not a whole number from 1 to 65535",
        "         D_PORTS=<first>:<last>, with ports from 1 to 65535",
        *found[14:],
    ]
    assert found[14].startswith("fails    entry point       --entry: there is no file 'no.py' in ")
    assert found[15:] == ["         give the path of your script"]


def test_words_of_the_person_are_never_taken_for_the_fix(checks: Checks, capsys: pytest.CaptureFixture[str]) -> None:
    """What stands behind a semicolon in a value is no command that anybody should copy."""
    assert verbs.run("check", ["dask", "2", "--json", "--name", "exp; rm -rf out"]) == 1
    (found,) = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["verdict"] == "fails"]
    assert found["text"].startswith("--name: 'exp; rm -rf out' is not a name of letters")
    assert found["fix"] == "give another value: --name"
    assert checks.asked


def test_one_wrong_value_is_told_once(checks: Checks, capsys: pytest.CaptureFixture[str]) -> None:
    """By its option, and not as the setting again when the nodes' limits are read."""
    assert verbs.run("check", ["dask", "2", "--ttl", "x"]) == 1
    assert [line for line in lines(capsys) if "is not a duration" in line] == [
        "fails    settings          --ttl: 'x' is not a duration"
    ]
    assert checks.asked


def test_without_a_launch_the_rest_is_not_seen(checks: Checks, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the framework's own file, or the backend, is so wrong that there is no plan."""
    (door.root / "dask" / "settings.env").write_text("MIN_WORKERS=1\nA_PORT=0\n")
    assert verbs.run("check", ["dask", "2"]) == 1
    assert checks.asked[0].plan is None
    assert lines(capsys)[-4:] == [
        "",
        "not seen:",
        "  settings: settings are so wrong that this cannot be seen; fix those first",
        "  entry point: settings are so wrong that this cannot be seen; fix those first",
    ]


def test_wrong_settings_are_told_before_anything_is_installed(
    checks: Checks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checking, "has_backend_tools", lambda *_: False)
    for name in ("use_own_environment", "equip"):
        monkeypatch.setattr(checking, name, lambda *_: pytest.fail("something is installed"))
    assert verbs.run("check", ["dask", "2", "--ttl", "soon"]) == 1
    shown = capsys.readouterr()
    assert "fails    settings          --ttl: 'soon' is not a duration" in shown.out
    assert "unknown  the rest          it was not looked at; fix the settings first" in shown.out
    assert "nothing is installed for the backend local, and nobody asked" in shown.err
    assert checks.asked == []


def test_without_an_image_the_rest_is_looked_at_all_the_same(
    checks: Checks, door: Door, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nodes are elsewhere; also where programs must be installed for that."""
    monkeypatch.setattr(checking, "has_backend_tools", lambda *_: False)
    backends = door.root / "scripts" / "backends"
    backends.mkdir(parents=True)
    (backends / "cloud.env").write_text("IMAGE=\n")
    monkeypatch.setattr(door.backend, "is_this_machine", False)
    (door.root / "config.env").write_text("REGISTRY=iad.ocir.io/ns/x/\n")
    checks.found = [fine("network", "is there")]
    assert verbs.run("check", ["dask", "2", "--backend", "cloud"]) == 1
    told = lines(capsys)
    assert told[0].startswith(
        "fails    settings          IMAGE is not set, and no image of dask was pushed from here; the"
    )
    assert told[1] == "         make build-dask push-dask REGISTRY=iad.ocir.io/ns/x/"
    assert "fine     network           is there" in told
    plan = checks.asked[0].plan
    assert plan is not None
    assert plan.settings["IMAGE"] == "iad.ocir.io/ns/x/dask:not-pushed"
    monkeypatch.setenv("IMAGE", "a/b:1")
    assert verbs.run("check", ["dask", "2", "--backend", "cloud"]) == 0


MODULES = [
    (["--module", "package.train"], "module package.train in "),
    (["--keep"], "none: the cluster stays until it is stopped"),
]


@pytest.mark.parametrize(("words", "told"), MODULES)
def test_what_is_to_be_run_is_told(
    checks: Checks, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    Path("package").mkdir()
    Path("package/train.py").touch()
    assert verbs.run("check", ["dask", "2", *words]) == 0
    assert any(line.startswith(f"fine     entry point       {told}") for line in lines(capsys))


WRONG = [
    (["dask", "many"], "workers: 'many' is not a whole number from 0 to 1000000; try 2"),
    (["dask", ""], "workers: '' is not a whole number from 0 to 1000000; try 2"),
    ([""], "expected a framework, got an empty word"),
    (
        ["dask", "2", "t.py"],
        "unexpected 't.py' after dask 2; a script is given with --entry FILE, its arguments behind --",
    ),
    (["spark", "2"], "unknown framework 'spark'; this checkout has: dask"),
    (["dask", "2", "--backend", "moon"], "unknown backend 'moon'; there is: cloud local"),
]


@pytest.mark.parametrize(("words", "why"), WRONG)
def test_a_wrong_command_line_is_no_finding(checks: Checks, words: list[str], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        verbs.run("check", words)
    assert str(caught.value).removesuffix(" (oci_cluster --help says more)") == why
    assert not checks.asked


def test_a_checkout_without_frameworks_has_nothing_to_check(checks: Checks, door: Door) -> None:
    (door.root / "dask" / "start-master.sh").unlink()
    with pytest.raises(UsageError, match="a framework is a folder with"):
        verbs.run("check", [])


def test_a_config_that_cannot_be_read_is_an_error(checks: Checks, door: Door) -> None:
    (door.root / "config.env").write_text("no setting\n")
    with pytest.raises(SettingsError, match="expected KEY"):
        verbs.run("check", ["dask", "2"])
