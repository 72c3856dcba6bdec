"""What --env and --env-file give to every node."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.errors import UsageError
from oci_cluster.launcher.launch.entry_point import plain_names, variables_of


def variables(*typed: tuple[str, str], environ: dict[str, str] | None = None, cwd: Path = Path()) -> list[str]:
    return variables_of(typed, environ or {}, cwd)


def refusal(*typed: tuple[str, str], cwd: Path = Path()) -> str:
    with pytest.raises(UsageError) as caught:
        variables(*typed, cwd=cwd)
    return str(caught.value)


def test_a_name_alone_takes_the_value_of_the_launchers_environment() -> None:
    """So that a secret stands neither in the shell's history nor in the list of processes; an empty one is one."""
    environ = {"MY_TOKEN": "a=b c\n", "EMPTY": "", "OTHER": "no"}
    assert variables(("--env", "MY_TOKEN"), ("--env", "EMPTY"), environ=environ) == ["MY_TOKEN=a=b c\n", "EMPTY="]


def test_a_name_that_is_not_set_is_refused() -> None:
    """A job that runs for hours without its token is worth less than an error now."""
    assert refusal(("--env", "MY_TOKEN")) == (
        "--env MY_TOKEN: there is no MY_TOKEN in your environment; set and export it, or write MY_TOKEN=VALUE"
    )


@pytest.mark.parametrize("text", ["1X", "A-B", "A B", "=1", ""])
def test_what_is_no_name_is_left_to_who_checks_pairs(text: str) -> None:
    """The plan's check names it, as before."""
    assert variables(("--env", text)) == [text]


def test_a_file_gives_its_lines(tmp_path: Path) -> None:
    """Read as config.env is: comments, quotes, nothing expanded; relative to where the user is."""
    (tmp_path / "my.env").write_text("# mine\nA=1\nB='two words' # why\nC=\"$HOME\"\nD=\n")
    assert variables(("--env-file", "my.env"), cwd=tmp_path) == ["A=1", "B=two words", "C=$HOME", "D="]


def test_what_is_called_plain_is_a_variable_like_others() -> None:
    """Of the arguments only their name is noted: they stand behind ``--``."""
    typed = [("--env-plain", "SORT_KEY=k1"), ("--env-plain", "ARGS"), ("--env", "A=1"), ("--env-plain", "MINE")]
    assert variables(*typed, environ={"MINE": "x"}) == ["SORT_KEY=k1", "A=1", "MINE=x"]
    assert plain_names(typed) == {"SORT_KEY", "ARGS", "MINE"}


def test_the_order_is_that_of_the_command_line(tmp_path: Path) -> None:
    """The plan takes the last of a name."""
    (tmp_path / "my.env").write_text("A=file\n")
    typed = [("--env", "A=1"), ("--env-file", "my.env"), ("--name", "x"), ("--env", "A=2")]
    assert variables(*typed, cwd=tmp_path) == ["A=1", "A=file", "A=2"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("set MY_TOKEN=hush", "expected KEY=VALUE (quote a value with spaces), got: set MY_TOKEN=..."),
        ("MY_TOKEN=hush hush", "expected KEY=VALUE (quote a value with spaces), got: MY_TOKEN=..."),
        ("MY_TOKEN='hush", "No closing quotation: MY_TOKEN=..."),
        ("hush", "expected KEY=VALUE (quote a value with spaces), got: a line without ="),
    ],
)
def test_a_line_that_is_none_is_named_and_its_value_not_shown(tmp_path: Path, line: str, why: str) -> None:
    """A secret may stand in it."""
    (tmp_path / "my.env").write_text(f"A=1\n{line}\n")
    assert refusal(("--env-file", "my.env"), cwd=tmp_path) == f"--env-file: {tmp_path}/my.env:2: {why}"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """With the system's reason."""
    assert refusal(("--env-file", "none.env"), cwd=tmp_path).startswith(
        f"--env-file: {tmp_path}/none.env cannot be read: "
    )
    assert refusal(("--env-file", "~nobody-of-this-name/a"), cwd=tmp_path).startswith(
        f"--env-file: {tmp_path}/~nobody-of-this-name/a cannot be read: "
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [("LAUNCH_ID", "is decided by the launch itself; leave it out"), ("ENTRY_POINT", "is not accepted; use --entry")],
)
def test_what_env_may_not_give_a_file_may_not_either(tmp_path: Path, name: str, why: str) -> None:
    """The file is named, as nobody has typed --env."""
    (tmp_path / "my.env").write_text(f"A=1\n{name}=x\n")
    assert refusal(("--env-file", "my.env"), cwd=tmp_path) == f"--env-file {tmp_path}/my.env: {name} {why}"
