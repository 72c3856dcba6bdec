"""Files of settings, and which source of a setting wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.contract.parsers import parse_count, parse_switch
from oci_cluster.contract.settings import settings_files
from oci_cluster.contract.settings.settings_files import (
    SettingsReader,
    framework_defaults,
    framework_dir,
    given_settings,
    own_environment,
    read_settings_file,
)
from oci_cluster.errors import SettingsError

# --- Files of settings ----------------------------------------------------------------------------------------------


def test_a_settings_file_is_read_not_run(tmp_path: Path) -> None:
    """Quotes and comments are a shell's; nothing is expanded or run; of two lines for one name the last counts."""
    path = tmp_path / "settings.env"
    path.write_text(
        "# comment\n\n  INDENTED=1  # why\nQUOTED='a # b'\nEMPTY=\nTWICE=1\nTWICE=2\n"
        'HOME_IS="$HOME/$(id)"\nURL=oci://b@n/w?x=y\nCODE=https://h/c.tar#sha256=ab # it\'s\nCRLF=1\r\n'
        'export SHOWN="a b"\n',
        encoding="utf-8",
    )
    assert read_settings_file(path) == {
        "INDENTED": "1",
        "QUOTED": "a # b",
        "EMPTY": "",
        "TWICE": "2",
        "HOME_IS": "$HOME/$(id)",
        "URL": "oci://b@n/w?x=y",
        "CODE": "https://h/c.tar#sha256=ab",
        "CRLF": "1",
        "SHOWN": "a b",
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("export A=1 B=2", "expected KEY=VALUE (quote a value with spaces), got: export A=..."),
        ("export A", "expected KEY=VALUE (quote a value with spaces), got: a line without ="),
        ("A = 1", "expected KEY=VALUE (quote a value with spaces), got: A =..."),
        ("A=b c", "expected KEY=VALUE (quote a value with spaces), got: A=..."),
        ("A", "expected KEY=VALUE (quote a value with spaces), got: a line without ="),
        ("1A=1", "expected KEY=VALUE (quote a value with spaces), got: 1A=..."),
        ("=1", "expected KEY=VALUE (quote a value with spaces), got: =..."),
        ("A-B=1", "expected KEY=VALUE (quote a value with spaces), got: A-B=..."),
        ("  A='open", "No closing quotation: A=..."),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, why: str) -> None:
    """A line of another form is named by file, number and setting, without its value: that may be a password."""
    path = tmp_path / "config.env"
    path.write_text(f"GOOD=1\n{line}\n", encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        read_settings_file(path)
    assert str(caught.value) == f"{path}:2: {why}"


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    """A file in another encoding is a wrong setting, not a crash."""
    path = tmp_path / "config.env"
    path.write_bytes(b"A=\xff\n")
    with pytest.raises(SettingsError, match=r"config\.env cannot be read: 'utf-8' codec"):
        read_settings_file(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A directory in a file's place is a wrong setting, not a crash."""
    with pytest.raises(SettingsError, match=r"cannot be read: \[Errno 21\] Is a directory"):
        read_settings_file(tmp_path)


def test_a_framework_is_a_folder_with_a_start_script(root: Path) -> None:
    """A framework is known by its start-master.sh."""
    assert framework_dir("dask", root) == root / "dask"


@pytest.mark.parametrize("name", ["spark", "", ".", "..", "../dask", "dask/", "tests", "/etc"])
def test_no_other_folder_is_a_framework(root: Path, name: str) -> None:
    """Other folders, and paths that lead out of the checkout, are refused with the names that there are."""
    (root / "tests").mkdir()
    (root / "pytorch").mkdir()
    (root / "pytorch" / "start-master.sh").touch()
    with pytest.raises(ValueError, match="unknown framework") as caught:
        framework_dir(name, root)
    assert str(caught.value) == f"unknown framework '{name}'; this checkout has: dask, pytorch"


def test_a_checkout_without_frameworks_says_so(tmp_path: Path) -> None:
    """An empty list is named as such."""
    with pytest.raises(ValueError, match="this checkout has: none"):
        framework_dir("dask", tmp_path)


def test_a_framework_may_declare_nothing(root: Path) -> None:
    """A framework without settings.env has no defaults."""
    assert framework_defaults(root / "dask") == {}


def test_a_frameworks_file_is_read_once_and_again_when_it_has_changed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of thousands of kept clusters asks for it; nobody who asks changes what the next one gets."""
    file, read = root / "dask" / "settings.env", []
    monkeypatch.setattr(
        settings_files, "read_settings_file", lambda path: read.append(path) or read_settings_file(path)
    )
    for text, reads in (("SCHEDULER_PORT=8786\n", 1), ("SCHEDULER_PORT=18786\n", 2)):
        file.write_text(text)
        framework_defaults(root / "dask")["OTHER"] = "1"
        found = framework_defaults(root / "dask")
        assert ([f"{name}={value}\n" for name, value in found.items()], len(read)) == ([text], reads)
    file.unlink()
    assert framework_defaults(root / "dask") == {}


# --- The reader -----------------------------------------------------------------------------------------------------


def test_the_environment_wins_over_defaults_under_any_name() -> None:
    """A setting's other name in the environment wins over the framework's default."""
    read = SettingsReader({"TIME_OUT": "5"})
    read.sources.append({"TIMEOUT": "9", "TTL": "1h"})
    assert [read.text("TIMEOUT"), read.text("TTL"), read.text("ARGS", "none")] == ["5", "1h", "none"]


def test_an_empty_value_counts_as_not_given() -> None:
    """An empty variable falls through to the other name, the framework's default, the caller's."""
    read = SettingsReader({"TIMEOUT": "", "TIME_OUT": "7", "TTL": ""})
    read.sources.append({"TTL": "1h"})
    assert [read.text("TIMEOUT"), read.text("TTL"), read.value("PS_COUNT", parse_count, 4)] == ["7", "1h", 4]


def test_problems_are_collected_and_raised_once() -> None:
    """Every bad variable is in one message."""
    read = SettingsReader({"WORKER_COUNT": "x", "EPHEMERAL": "maybe"})
    read.value("WORKER_COUNT", parse_count)
    read.value("EPHEMERAL", parse_switch, True)
    read.value("WORK_DIR", str)
    with pytest.raises(SettingsError) as caught:
        read.check()
    assert str(caught.value) == (
        "bad settings: WORKER_COUNT: 'x' is not a whole number from 0 to 1000000;"
        " EPHEMERAL: 'maybe' is neither 1 nor 0; WORK_DIR is not set (common/README.md lists them all)"
    )


def test_without_problems_nothing_is_raised() -> None:
    """A clean reading passes its check."""
    read = SettingsReader({"WORKER_COUNT": "3"})
    assert read.value("WORKER_COUNT", parse_count) == 3
    read.check()


def test_a_notebooks_kernel_keeps_what_is_its_own() -> None:
    """Its matplotlib is not there on nodes, and a log is no screen; what somebody has chosen stays."""
    root = Path("/my project")
    kernel = {"JPY_PARENT_PID": "7", "FORCE_COLOR": "1", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    assert own_environment(root, {**kernel, "A": "b"}) == {"A": "b", "PYTHONPATH": "/my project/common"}
    assert own_environment(root, {**kernel, "MPLBACKEND": "Agg"})["MPLBACKEND"] == "Agg"
    assert own_environment(root, {"FORCE_COLOR": "1"})["FORCE_COLOR"] == "1"


def test_the_checkouts_own_package_is_found_once() -> None:
    """Before what is on the path already."""
    root = Path("/c")
    assert own_environment(root, {"PYTHONPATH": "/a"})["PYTHONPATH"] == "/c/common:/a"
    assert own_environment(root, {"PYTHONPATH": "/a:/c/common"})["PYTHONPATH"] == "/a:/c/common"


def test_the_environment_wins_over_config_env_where_it_says_something(tmp_path: Path) -> None:
    """An empty variable counts as not given."""
    (tmp_path / "config.env").write_text("A=1\nB=2\n")
    assert given_settings(tmp_path, {"A": "3", "B": ""}) == {"A": "3", "B": "2"}
