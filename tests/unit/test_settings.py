from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from oci_cluster.errors import SettingsError
from oci_cluster.settings import (
    NodeSettings,
    SettingsReader,
    framework_defaults,
    framework_dir,
    node_dir,
    node_name,
    parse_args,
    parse_count,
    parse_duration,
    parse_name,
    parse_named_args,
    parse_switch,
    read_settings,
    read_settings_file,
)

LEAST = {
    "MODE": "MAIN",
    "WORKER_COUNT": "3",
    "FRAMEWORK": "dask",
    "WORK_DIR": "file:///data/work",
    "CLUSTER_ID": "c1",
    "LAUNCH_ID": "1f2e3d4c",
    "ENTRY_POINT": "train.py",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout whose only framework, dask, declares no setting."""
    (tmp_path / "dask").mkdir()
    (tmp_path / "dask" / "start-master.sh").touch()
    return tmp_path


# --- Names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "rank", "name"), [("MAIN", 0, "MAIN"), ("WORKER", 2, "WORKER_2"), ("PS", 4, "PS_4")])
def test_nodes_have_the_contracts_names(mode: str, rank: int, name: str) -> None:
    """Files, logs and messages name a node by role and rank, main by its role alone."""
    assert node_name(mode, rank) == name


def test_a_nodes_directory_is_known_beforehand() -> None:
    """A backend can remove the private directory of an agent that was killed: launch and node name it."""
    assert node_dir("1f2e", "WORKER_2") == Path(tempfile.gettempdir()) / "1f2e-WORKER_2"


# --- Values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400), (" 5m ", 300), ("0", 0), ("0.25", 0.25)],
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    """Durations are seconds, or a number with s, m, h or d."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-5", "5 m", "5M", "1w", "1h30m", "abc", "1e3", "nan", "inf", ".5", "5.", "1,5"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Anything else is named with the forms that are right, a negative number and NaN included."""
    with pytest.raises(ValueError, match="is not a duration") as caught:
        parse_duration(text)
    assert str(caught.value) == (
        f"'{text}' is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h"
    )


def test_a_duration_is_finite() -> None:
    """A number too large for any wait is refused where it is read."""
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration("9" * 400)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("1000000", 1_000_000), (" 7 ", 7), ("007", 7)])
def test_a_count_is_a_whole_number(text: str, number: int) -> None:
    """Counts are whole numbers within their limits, the limits included."""
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["", "-1", "1000001", "3.0", "abc", "1e3", "0x10", "1_000", "9" * 5000])
def test_what_is_no_count_is_refused(text: str) -> None:
    """Anything else is named with its limits; a number too long for Python is no crash."""
    with pytest.raises(ValueError, match="is not a whole number") as caught:
        parse_count(text)
    assert str(caught.value) == f"'{text}' is not a whole number from 0 to 1000000"


@pytest.mark.parametrize("text", ["0", "11"])
def test_a_count_has_the_limits_that_are_asked_for(text: str) -> None:
    """A caller's own limits hold, and are the ones that the message names."""
    with pytest.raises(ValueError, match="is not a whole number") as caught:
        parse_count(text, least=1, most=10)
    assert str(caught.value) == f"'{text}' is not a whole number from 1 to 10"


@pytest.mark.parametrize(
    ("text", "on"),
    [
        *((word, True) for word in ("1", "true", "True", "yes", "ON", " on ")),
        *((word, False) for word in ("0", "false", "False", "no", "off")),
    ],
)
def test_a_switch_is_on_or_off(text: str, on: bool) -> None:  # noqa: FBT001 - the value under test
    """Words for on and off are understood in any case; False is off, which in ADS it was not."""
    assert parse_switch(text) is on


@pytest.mark.parametrize("text", ["", "2", "-1", "maybe", "10", "y"])
def test_what_is_no_switch_is_refused(text: str) -> None:
    """A word that is neither is not taken for on."""
    with pytest.raises(ValueError, match="is neither 1 nor 0") as caught:
        parse_switch(text)
    assert str(caught.value) == f"'{text}' is neither 1 nor 0"


@pytest.mark.parametrize("text", ["a", "9", "dask-1f2e", "ocid1.datasciencejob.oc1.iad.amaa", "A_b.c-d", "n" * 255])
def test_a_name_can_be_a_files(text: str) -> None:
    """Letters, digits and . _ - make a name, 255 at most."""
    assert parse_name(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "../up",
        "a/b",
        "/etc",
        "a\\b",
        ".hidden",
        "-rf",
        "_x",
        "a b",
        "a\n",
        "a\0b",
        "\033[2J",
        "é",
        "n" * 256,
    ],
)
def test_what_is_no_files_name_is_refused(text: str) -> None:
    """Slashes, blanks, control characters, a leading dot or dash and too many characters are refused."""
    with pytest.raises(ValueError, match="is not a name") as caught:
        parse_name(text)
    assert str(caught.value) == f"'{text}' is not a name of letters, digits and . _ - (255 at most)"


# --- Arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", []),
        ("a 'b c' \"d'e\"", ["a", "b c", "d'e"]),
        ('["a", "b c", "d\'e", "", "--x=$HOME"]', ["a", "b c", "d'e", "", "--x=$HOME"]),
        (" [1, 2.5]", ["1", "2.5"]),
        ("[]", []),
        ("[a-z]* file", ["[a-z]*", "file"]),
        ("$(date) ; `id` | x", ["$(date)", ";", "`id`", "|", "x"]),
    ],
)
def test_args_are_a_json_list_or_shell_words(text: str, arguments: list[str]) -> None:
    """Arguments come through exactly, in either form, and nothing in them is ever run or expanded."""
    assert parse_args(text) == arguments


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('["a", true]', "true is not a string or a number; quote it"),
        ("[null]", "null is not a string or a number; quote it"),
        ('[["a"]]', '["a"] is not a string or a number; quote it'),
        ('[{"a": 1}]', '{"a": 1} is not a string or a number; quote it'),
        ('["a\\u0000b"]', "'a\\x00b' holds a NUL character"),
        ("it's", "No closing quotation"),
    ],
)
def test_args_that_no_program_can_be_given_are_refused(text: str, why: str) -> None:
    """Values that have no one text form, a NUL that ends an argument early, and open quotes are refused."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse_args(text)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", []),
        ('{"epochs": 3, "rate": 0.5, "name": "a b"}', ["--epochs", "3", "--rate", "0.5", "--name", "a b"]),
        ("epochs=3 name='a b' path=/x=y empty=", ["--epochs", "3", "--name", "a b", "--path", "/x=y", "--empty", ""]),
        ("{}", []),
    ],
)
def test_named_args_are_a_json_object_or_pairs(text: str, arguments: list[str]) -> None:
    """Each pair becomes --k v, in the order in which they stand."""
    assert parse_named_args(text) == arguments


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("epochs", "'epochs' is not of the form k=v"),
        ("=3", "'=3' is not of the form k=v"),
        ('{"a": [1]}', "[1] is not a string or a number; quote it"),
        ('{"a": false}', "false is not a string or a number; quote it"),
        ('{"a": ', "Expecting value: line 1 column 7 (char 6)"),
        ("a='b", "No closing quotation"),
    ],
)
def test_named_args_of_another_form_are_refused(text: str, why: str) -> None:
    """What is no pair, or has no one text form, is named."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse_named_args(text)
    assert str(caught.value) == why


def test_a_named_arg_whose_name_holds_a_nul_is_refused() -> None:
    """A NUL would end the argument early in ENTRY_ARGS_FILE, in a name as in a value."""
    with pytest.raises(ValueError, match="NUL"):
        parse_named_args('{"a\\u0000b": 1}')


# --- Files of settings ----------------------------------------------------------------------------------------------


def test_a_settings_file_is_read_not_run(tmp_path: Path) -> None:
    """Quotes and comments are a shell's; nothing is expanded or run; of two lines for one name the last counts."""
    path = tmp_path / "settings.env"
    path.write_text(
        "# comment\n\n  INDENTED=1  # why\nQUOTED='a # b'\nEMPTY=\nTWICE=1\nTWICE=2\n"
        'HOME_IS="$HOME/$(id)"\nURL=oci://b@n/w?x=y\n',
        encoding="utf-8",
    )
    assert read_settings_file(path) == {
        "INDENTED": "1",
        "QUOTED": "a # b",
        "EMPTY": "",
        "TWICE": "2",
        "HOME_IS": "$HOME/$(id)",
        "URL": "oci://b@n/w?x=y",
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("export A=1", "expected KEY=VALUE (quote a value with spaces), got: export A=1"),
        ("A = 1", "expected KEY=VALUE (quote a value with spaces), got: A = 1"),
        ("A=b c", "expected KEY=VALUE (quote a value with spaces), got: A=b c"),
        ("A", "expected KEY=VALUE (quote a value with spaces), got: A"),
        ("1A=1", "expected KEY=VALUE (quote a value with spaces), got: 1A=1"),
        ("=1", "expected KEY=VALUE (quote a value with spaces), got: =1"),
        ("A-B=1", "expected KEY=VALUE (quote a value with spaces), got: A-B=1"),
        ("  A='open", "No closing quotation: A='open"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, why: str) -> None:
    """A line of another form is named by file, number and text."""
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


# --- A node ---------------------------------------------------------------------------------------------------------


def test_the_least_that_makes_a_node_gets_the_contracts_defaults(root: Path) -> None:
    """Every setting that is not given has the default that the contract's table says."""
    assert read_settings(LEAST, root) == NodeSettings(
        mode="MAIN",
        rank=0,
        worker_count=3,
        ps_count=0,
        min_workers=3,
        framework="dask",
        framework_dir=root / "dask",
        work_dir="file:///data/work",
        cluster_id="c1",
        cluster_name="c1",
        launch_id="1f2e3d4c",
        entry_point="train.py",
        entry_args=(),
        code_dir=Path("/code"),
        code_uri="",
        output_dir="",
        output_interval_s=60,
        timeout_s=600,
        ephemeral=True,
        ttl_s=0,
        grace_period_s=10,
        heartbeat_interval_s=5,
        heartbeat_timeout_s=60,
        poll_ceiling_s=5,
        wait_for_addresses=False,
        find_interface=False,
        entry_on_all=False,
        gang=False,
        max_restarts=0,
        cluster_tls=False,
        node_logs=False,
        address="",
        nodes_metadata="",
        subnet_cidr="",
    )


def test_every_setting_is_read(root: Path) -> None:
    """Each variable of the contract reaches the node, checked and in its own type."""
    environ = {
        **LEAST,
        "MODE": "worker",
        "NODE_RANK": "2",
        "PS_COUNT": "2",
        "MIN_WORKERS": "1",
        "WORK_DIR": "oci://bucket@ns/work/",
        "CLUSTER_NAME": "mine",
        "ENTRY_POINT": "",
        "ARGS": "a 'b c'",
        "NAMED_ARGS": "k=v",
        "CODE_DIR": "/my code",
        "CODE_URI": "git+https://example.org/r@main",
        "OUTPUT_DIR": "/out",
        "OUTPUT_INTERVAL": "30",
        "TIMEOUT": "2m",
        "EPHEMERAL": "0",
        "TTL": "1h",
        "GRACE_PERIOD": "3",
        "HEARTBEAT_INTERVAL": "1",
        "HEARTBEAT_TIMEOUT": "9",
        "POLL_CEILING": "0.5",
        "WAIT_FOR_ADDRESSES": "1",
        "FIND_INTERFACE": "1",
        "ENTRY_ON": "all",
        "GANG": "1",
        "MAX_RESTARTS": "4",
        "CLUSTER_TLS": "true",
        "NODE_LOGS": "1",
        "CLUSTER_NODES_METADATA_FILE": "/meta/nodes.json",
        "NODE_ADDRESS": " 10.0.0.5 ",
        "SUBNET_CIDR": "10.0.0.5/24",
    }
    assert read_settings(environ, root) == NodeSettings(
        mode="WORKER",
        rank=2,
        worker_count=3,
        ps_count=2,
        min_workers=1,
        framework="dask",
        framework_dir=root / "dask",
        work_dir="oci://bucket@ns/work/",
        cluster_id="c1",
        cluster_name="mine",
        launch_id="1f2e3d4c",
        entry_point="",
        entry_args=("a", "b c", "--k", "v"),
        code_dir=Path("/my code"),
        code_uri="git+https://example.org/r@main",
        output_dir="/out",
        output_interval_s=30,
        timeout_s=120,
        ephemeral=False,
        ttl_s=3600,
        grace_period_s=3,
        heartbeat_interval_s=1,
        heartbeat_timeout_s=9,
        poll_ceiling_s=0.5,
        wait_for_addresses=True,
        find_interface=True,
        entry_on_all=True,
        gang=True,
        max_restarts=4,
        cluster_tls=True,
        node_logs=True,
        address="10.0.0.5",
        nodes_metadata="/meta/nodes.json",
        subnet_cidr="10.0.0.0/24",
    )


@pytest.mark.parametrize(
    ("first", "given", "field", "value"),
    [
        ("MODE", "OCI__MODE=WORKER", "mode", "WORKER"),
        ("NODE_RANK", "RANK=2", "rank", 2),
        ("NODE_RANK", "OCI__RANK=2", "rank", 2),
        ("WORKER_COUNT", "OCI__WORKER_COUNT=7", "worker_count", 7),
        ("PS_COUNT", "OCI__PS_COUNT=7", "ps_count", 7),
        ("WORK_DIR", "OCI__WORK_DIR=memory://w", "work_dir", "memory://w"),
        ("CLUSTER_ID", "JOB_OCID=ocid1.job", "cluster_id", "ocid1.job"),
        ("ENTRY_POINT", "ENTRY_SCRIPT=my.py", "entry_point", "my.py"),
        ("ENTRY_POINT", "OCI__ENTRY_SCRIPT=my.py", "entry_point", "my.py"),
        ("ARGS", "OCI__ENTRY_SCRIPT_ARGS=a b", "entry_args", ("a", "b")),
        ("NAMED_ARGS", "OCI__ENTRY_SCRIPT_KWARGS=a=b", "entry_args", ("--a", "b")),
        ("CODE_DIR", "OCI__CODE_DIR=/c", "code_dir", Path("/c")),
        ("TIMEOUT", "TIME_OUT=5", "timeout_s", 5),
        ("TIMEOUT", "OCI__TIMEOUT=5", "timeout_s", 5),
        ("EPHEMERAL", "OCI__EPHEMERAL=0", "ephemeral", False),
        ("TTL", "LIFE_SPAN=1h", "ttl_s", 3600),
        ("TTL", "OCI__LIFE_SPAN=1h", "ttl_s", 3600),
    ],
)
def test_the_names_that_ads_uses_are_read_too(root: Path, first: str, given: str, field: str, value: Any) -> None:
    """A setting is found under each of its names."""
    alias, _, text = given.partition("=")
    environ = {**LEAST, "MODE": "WORKER", "NODE_RANK": "1", alias: text}
    environ.pop(first, None)
    assert getattr(read_settings(environ, root), field) == value


def test_the_first_of_two_names_wins(root: Path) -> None:
    """Where a setting is given under two names, the contract's first one counts."""
    given = {**LEAST, "TIMEOUT": "5", "TIME_OUT": "9", "ENTRY_SCRIPT": "other.py"}
    settings = read_settings(given, root)
    assert (settings.timeout_s, settings.entry_point) == (5, "train.py")


def test_the_environment_wins_over_the_frameworks_settings(root: Path) -> None:
    """settings.env supplies defaults, and no more than that."""
    (root / "dask" / "settings.env").write_text("MIN_WORKERS=1\nCLUSTER_TLS=1\nTIMEOUT=9\n")
    settings = read_settings({**LEAST, "TIME_OUT": "5"}, root)
    assert (settings.min_workers, settings.cluster_tls, settings.timeout_s) == (1, True, 5)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"MODE": ""}, "MODE is not set; NODE_RANK is not set"),
        ({"MODE": "BOSS", "NODE_RANK": "1"}, "MODE: 'BOSS' is not one of MAIN, WORKER, PS"),
        ({"MODE": "WORKER"}, "NODE_RANK is not set"),
        ({"MODE": "PS", "NODE_RANK": "0"}, "NODE_RANK: '0' is not a whole number from 1 to 1000000"),
        ({"WORKER_COUNT": ""}, "WORKER_COUNT is not set"),
        ({"FRAMEWORK": ""}, "FRAMEWORK is not set"),
        ({"FRAMEWORK": "../x"}, "FRAMEWORK: unknown framework '../x'; this checkout has: dask"),
        ({"WORK_DIR": ""}, "WORK_DIR is not set"),
        ({"CLUSTER_ID": ""}, "CLUSTER_ID is not set"),
        ({"CLUSTER_ID": "a/../b"}, "CLUSTER_ID: 'a/../b' is not a name of letters, digits and . _ - (255 at most)"),
        ({"LAUNCH_ID": ""}, "LAUNCH_ID is not set"),
        ({"LAUNCH_ID": "a/b"}, "LAUNCH_ID: 'a/b' is not a name of letters, digits and . _ - (255 at most)"),
        ({"ENTRY_POINT": ""}, "ENTRY_POINT is not set"),
        ({"ARGS": "[true]"}, "ARGS: true is not a string or a number; quote it"),
        ({"NAMED_ARGS": "x"}, "NAMED_ARGS: 'x' is not of the form k=v"),
        ({"EPHEMERAL": "2"}, "EPHEMERAL: '2' is neither 1 nor 0"),
        ({"GANG": "yes please"}, "GANG: 'yes please' is neither 1 nor 0"),
        ({"FIND_INTERFACE": "eth0"}, "FIND_INTERFACE: 'eth0' is neither 1 nor 0"),
        ({"ENTRY_ON": "ALL"}, "ENTRY_ON: 'ALL' is neither main nor all"),
        ({"MAX_RESTARTS": "-1"}, "MAX_RESTARTS: '-1' is not a whole number from 0 to 1000000"),
        ({"MIN_NODES": "0"}, "MIN_NODES: '0' is not a whole number from 1 to 1000000"),
        ({"MIN_NODES": "5"}, "MIN_WORKERS (MIN_NODES less main): 4 is more than WORKER_COUNT (3)"),
        ({"NODE_ADDRESS": "node-1"}, "NODE_ADDRESS: 'node-1' does not appear to be an IPv4 or IPv6 address"),
        ({"SUBNET_CIDR": "10.0.0/33"}, "SUBNET_CIDR: '10.0.0/33' does not appear to be an IPv4 or IPv6 network"),
    ],
)
def test_what_is_missing_or_wrong_is_named(root: Path, change: dict[str, str], why: str) -> None:
    """A bad or missing variable is named with its value and the form that is right."""
    with pytest.raises(SettingsError) as caught:
        read_settings({**LEAST, **change}, root)
    assert str(caught.value) == f"bad settings: {why} (common/README.md lists them all)"


@pytest.mark.parametrize("text", ["/data/work", "bucket/work", "C:\\work", "FILE://x", "://x"])
def test_a_work_dir_is_a_url(root: Path, text: str) -> None:
    """A path is not a URL: where it would lead is no guess of ours."""
    with pytest.raises(SettingsError) as caught:
        read_settings({**LEAST, "WORK_DIR": text}, root)
    assert str(caught.value) == (
        f"bad settings: WORK_DIR: '{text}' is not an fsspec URL such as file:///data/work or oci://bucket@namespace/work"
        " (common/README.md lists them all)"
    )


def test_nothing_given_names_all_that_is_required(root: Path) -> None:
    """An empty environment gets one message with everything that a node must be told."""
    with pytest.raises(SettingsError) as caught:
        read_settings({}, root)
    assert str(caught.value) == (
        "bad settings: FRAMEWORK is not set; MODE is not set; WORKER_COUNT is not set; WORK_DIR is not set;"
        " CLUSTER_ID is not set; NODE_RANK is not set; LAUNCH_ID is not set; ENTRY_POINT is not set"
        " (common/README.md lists them all)"
    )


@pytest.mark.parametrize(("interval", "timeout"), [("5", "10"), ("30", "60"), ("5", "1")])
def test_one_late_heartbeat_must_not_end_a_cluster(root: Path, interval: str, timeout: str) -> None:
    """HEARTBEAT_TIMEOUT is refused unless it is more than twice HEARTBEAT_INTERVAL."""
    with pytest.raises(SettingsError) as caught:
        read_settings({**LEAST, "HEARTBEAT_INTERVAL": interval, "HEARTBEAT_TIMEOUT": timeout}, root)
    assert str(caught.value) == (
        f"bad settings: HEARTBEAT_TIMEOUT: {timeout} s must be more than twice HEARTBEAT_INTERVAL ({interval} s),"
        " else one late heartbeat ends the cluster (common/README.md lists them all)"
    )


def test_no_more_workers_can_be_needed_than_there_are(root: Path) -> None:
    """MIN_WORKERS above WORKER_COUNT can never be met, and is refused before anything starts."""
    with pytest.raises(SettingsError, match="MIN_WORKERS"):
        read_settings({**LEAST, "MIN_WORKERS": "4"}, root)


@pytest.mark.parametrize(
    ("given", "workers"),
    [
        ({}, 3),
        ({"MIN_NODES": "2"}, 1),
        ({"MIN_NODES": "1"}, 0),
        ({"MIN_NODES": "4"}, 3),
        ({"MIN_NODES": "4", "MIN_WORKERS": "1"}, 1),
        ({"MIN_NODES": "2", "MIN_WORKERS": "3"}, 3),
    ],
)
def test_the_least_can_be_said_with_main_or_without(root: Path, given: dict[str, str], workers: int) -> None:
    """MIN_NODES counts main too; where both are given MIN_WORKERS wins."""
    assert read_settings({**LEAST, **given}, root).min_workers == workers


@pytest.mark.parametrize(("text", "on_all"), [("main", False), ("all", True)])
def test_the_entry_point_runs_on_main_or_on_all(root: Path, text: str, *, on_all: bool) -> None:
    """Two words, and no others."""
    assert read_settings({**LEAST, "ENTRY_ON": text}, root).entry_on_all is on_all


@pytest.mark.parametrize("others", [{}, {"ENTRY_ON": "main", "WAIT_FOR_ADDRESSES": "0"}])
def test_a_gang_runs_on_all_nodes_and_knows_them(root: Path, others: dict[str, str]) -> None:
    """GANG=1 without the others would not work: it brings them, also against what is said."""
    settings = read_settings({**LEAST, "GANG": "1", **others}, root)
    assert (settings.gang, settings.entry_on_all, settings.wait_for_addresses) == (True, True, True)


def test_a_framework_declares_that_it_is_a_gang(root: Path) -> None:
    """settings.env says so, and the environment may say otherwise."""
    (root / "dask" / "settings.env").write_text("GANG=1\nMAX_RESTARTS=2\nFIND_INTERFACE=1\n")
    settings = read_settings(LEAST, root)
    assert (settings.gang, settings.max_restarts, settings.find_interface) == (True, 2, True)
    assert not read_settings({**LEAST, "GANG": "0"}, root).entry_on_all


def test_a_main_needs_no_rank(root: Path) -> None:
    """Main has rank 0, whatever it is told."""
    settings = read_settings({**LEAST, "NODE_RANK": "7"}, root)
    assert (settings.rank, settings.node, settings.is_main) == (0, "MAIN", True)


def test_a_workers_name_comes_from_its_rank(root: Path) -> None:
    """A worker is no main, and is named by its rank."""
    settings = read_settings({**LEAST, "MODE": "WORKER", "NODE_RANK": "2"}, root)
    assert (settings.node, settings.is_main) == ("WORKER_2", False)


def test_the_cluster_dir_is_named_by_work_dir_and_id(root: Path) -> None:
    """A slash at the end of WORK_DIR makes no empty name in the cluster's URL."""
    urls = {read_settings({**LEAST, "WORK_DIR": url}, root).cluster_url for url in ("oci://b@n/w", "oci://b@n/w/")}
    assert urls == {"oci://b@n/w/c1"}


def test_parameter_servers_have_the_ranks_after_the_workers(root: Path) -> None:
    """Workers have ranks 1 to N, parameter servers those after."""
    settings = read_settings({**LEAST, "WORKER_COUNT": "2", "PS_COUNT": "2"}, root)
    assert settings.other_nodes == ("WORKER_1", "WORKER_2", "PS_3", "PS_4")


# --- Where fetched code goes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "/code"),
        ({"CODE_URI": "u"}, "TMP/1f2e3d4c-MAIN/code"),
        ({"CODE_URI": "u", "MODE": "worker", "NODE_RANK": "2"}, "TMP/1f2e3d4c-WORKER_2/code"),
        ({"CODE_URI": "u", "CODE_DIR": "/mine"}, "/mine"),
        ({"CODE_DIR": "/mine"}, "/mine"),
    ],
)
def test_fetched_code_is_the_nodes_own(
    root: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], place: str
) -> None:
    """An image has it in /code; what is fetched goes into the node's directory, which is removed at the end."""
    monkeypatch.setattr("tempfile.tempdir", "/a temp")
    settings = read_settings({**LEAST, **given}, root)
    assert str(settings.code_dir) == place.replace("TMP", "/a temp")
    assert not given.get("CODE_URI") or settings.code_dir in {
        node_dir(LEAST["LAUNCH_ID"], settings.node) / "code",
        Path("/mine"),
    }
