"""What all verbs share: how they are called, the backend that they open, the interpreter in which they go on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.launcher.door import Door

from oci_cluster.errors import BackendError, UsageError
from oci_cluster.launcher import context, verbs
from oci_cluster.launcher.launch import launch

WRONG = [
    ("launch", [], "expected <framework> <workers>, got 0 of them"),
    ("launch", ["dask"], "expected <framework> <workers>, got 1 of them"),
    ("launch", ["dask", "--", "3"], "expected <framework> <workers>, got 1 of them"),
    (
        "launch",
        ["dask", "3", "t.py"],
        "unexpected 't.py' after dask 3; a script is given with --entry FILE, its arguments behind --",
    ),
    ("stop", ["--delete", ""], "expected a cluster's name, got an empty word"),
    ("scale", ["", "+1"], "expected a cluster's name, got an empty word"),
    ("scale", ["demo"], "expected NAME WORKERS, got 1 of them"),
    ("scale", ["-1"], "expected NAME WORKERS, got 1 of them"),
    ("scale", [], "expected NAME WORKERS, got 0 of them"),
    ("scale", ["demo", "3", "4"], "expected NAME WORKERS, got 3 of them"),
    ("list", ["demo"], "unexpected 'demo'"),
    ("list", ["--all", "demo"], "unexpected 'demo'"),
    ("list", ["demo", "other"], "one name at a time, got 'demo' and 'other'"),
    ("logs", ["--node=MAIN", ""], "expected a cluster's name, got an empty word"),
    ("status", ["demo", "other"], "one name at a time, got 'demo' and 'other'"),
    ("logs", ["-f", "demo", "other"], "one name at a time, got 'demo' and 'other'"),
    ("stop", ["demo", ""], "expected a cluster's name, got an empty word"),
    ("stop", ["demo", "--ended"], "name clusters, or choose them with --ended and --older-than; got 'demo' too"),
    ("stop", ["--older-than", "1d", "a"], "name clusters, or choose them with --ended and --older-than; got 'a' too"),
    (
        "stop",
        ["--older-than", "soon"],
        "--older-than: 'soon' is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h",
    ),
    (
        "launch",
        ["dask", "1", "--wait"],
        "--wait belongs to --detach; without these, launch.sh follows the cluster to its end",
    ),
    ("status", ["--backend", "cluod"], "unknown backend 'cluod'; there is: cloud local"),
    ("stop", ["--backend", "../local"], "unknown backend '../local'; there is: cloud local"),
]


@pytest.mark.parametrize(("verb", "words", "why"), WRONG)
def test_a_wrong_command_line_opens_no_backend(door: Door, verb: str, words: list[str], why: str) -> None:
    """What is wrong, and who tells more."""
    with pytest.raises(UsageError) as caught:
        verbs.run(verb, words)
    assert (str(caught.value), door.opened) == (f"{why} (oci_cluster --help says more)", [])


@pytest.mark.parametrize(
    ("words", "environ", "config", "name"),
    [
        ([], {}, "", "local"),
        ([], {}, "BACKEND=cloud\n", "cloud"),
        ([], {"BACKEND": "local"}, "BACKEND=cloud\n", "local"),
        (["--backend", "cloud"], {"BACKEND": "local"}, "BACKEND=local\n", "cloud"),
        ([], {"BACKEND": ""}, "", "local"),
    ],
)
def test_the_backend_is_named_by_flag_environment_or_config(  # noqa: PLR0917 - each is a column above
    door: Door, monkeypatch: pytest.MonkeyPatch, words: list[str], environ: dict[str, str], config: str, name: str
) -> None:
    """In this order; local where nobody names one."""
    (door.root / "config.env").write_text(config)
    for key, text in environ.items():
        monkeypatch.setenv(key, text)
    assert (verbs.run("list", words), door.opened) == (0, [name])


@pytest.mark.parametrize("verb", ["status", "stop", "logs"])
def test_an_unknown_cluster_is_wrong_usage(door: Door, verb: str) -> None:
    """A name that is not there is told with those that are."""
    door.run()
    with pytest.raises(UsageError, match="there is no cluster 'nope'; known: mine"):
        verbs.run(verb, ["nope"])


# --- Where the launcher itself runs ---------------------------------------------------------------------------------


class ReplacedError(BaseException):
    """This process would be another program now."""


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def execv(python: Path, words: list[str]) -> None:
        calls.append((python, words))
        raise ReplacedError

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(sys, "argv", ["x", "list", "--all"])
    monkeypatch.setenv("CLUSTER_CWD", "")
    return calls


def test_a_verb_goes_on_where_its_packages_are(
    door: Door, replaced: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same words, in the launcher's own interpreter; relative paths begin where the user is."""
    python = tmp_path / "venv" / "bin" / "python"
    asked: list[Any] = []
    monkeypatch.setattr(context, "ensure_backend_tools", lambda *words, **_: asked.append(words[:2]) or python)
    here = Path.cwd()
    with pytest.raises(ReplacedError):
        verbs.run("list", ["--all", "--backend", "cloud"])
    assert replaced == [(python, [str(python), "-m", "oci_cluster", "list", "--all"])]
    assert (os.environ["CLUSTER_CWD"], Path.cwd()) == (str(here), door.root / "common")
    assert (asked, door.backend.calls) == ([(door.root, "cloud")], [])


def test_an_interpreter_that_does_not_run_is_named(door: Door, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what to do: it is no bug of ours."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("no program")
    python.chmod(0o755)
    monkeypatch.setattr(context, "ensure_backend_tools", lambda *_, **__: python)
    with pytest.raises(BackendError, match=f"^{python} cannot be run: Exec format error; remove {tmp_path}/venv: "):
        verbs.run("list", ["--backend", "cloud"])


def test_where_its_packages_are_a_verb_just_runs(
    door: Door, replaced: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would begin again and again."""
    monkeypatch.setattr(context, "ensure_backend_tools", lambda *_, **__: Path(sys.prefix) / "bin" / "python")
    assert (verbs.run("list", []), replaced, door.opened) == (0, [], ["local"])


def test_a_launch_goes_on_in_the_environment_that_it_has_just_made(
    door: Door, replaced: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything is started."""
    monkeypatch.setattr(launch, "ensure_tools", lambda *_: tmp_path / "venv" / "bin" / "python")
    with pytest.raises(ReplacedError):
        verbs.run("launch", ["dask", "1"])
    assert (len(replaced), door.backend.asked("start"), door.backend.calls[-1]) == (1, [], "close")


def test_packages_that_cannot_be_had_end_a_verb(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was asked."""

    def fail(*_: object, **__: object) -> None:
        msg = "no network"
        raise BackendError(msg)

    monkeypatch.setattr(context, "ensure_backend_tools", fail)
    with pytest.raises(BackendError, match="no network"):
        verbs.run("list", [])
    assert door.backend.calls == []
