"""What the text of a setting means, and what is refused."""

from __future__ import annotations

import pytest

from oci_cluster.contract.parsers import (
    parse_args,
    parse_count,
    parse_duration,
    parse_folders,
    parse_name,
    parse_named_args,
    parse_switch,
    parse_time,
    parse_vault_secrets,
)

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
        parse_count(text, minimum=1, maximum=10)
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


@pytest.mark.parametrize(
    ("text", "folders"),
    [("checkpoints", ["checkpoints"]), ("a/b/, ./c,a/b", ["a/b", "c"]), ("my runs,x", ["my runs", "x"])],
)
def test_folders_of_outputs(text: str, folders: list[str]) -> None:
    """Each once, as it is called inside the code."""
    assert parse_folders(text) == folders


@pytest.mark.parametrize("text", ["/tmp/x", "../x", "a/../../x", ".", "a,,b", ",", "./"])
def test_a_folder_of_outputs_is_one_of_the_code(text: str) -> None:
    """Nothing outside of it, and not all of it."""
    with pytest.raises(ValueError, match="is not a folder inside the code, such as checkpoints"):
        parse_folders(text)


def test_a_time_is_its_unix_seconds() -> None:
    """As launchers write it: UTC."""
    assert parse_time("2026-02-02T02:40:00Z") == 1_770_000_000


@pytest.mark.parametrize("text", ["", "now", "2026-02-30T00:00:00Z", "2026-02-02 02:40:00", "1770000000"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """It bounds when a node starts."""
    with pytest.raises(ValueError, match=r"is not a time such as 2026-01-31T23:59:59Z"):
        parse_time(text)


@pytest.mark.parametrize(
    "text",
    [
        *("TOKEN=hunter2", "hunter2", "=ocid1.vaultsecret.oc1.iad.a", "A-B=ocid1.vaultsecret.oc1.iad.a"),
        *("T=ocid1.vaultsecret.oc1.iad.", "T=ocid1.vault.oc1.iad.a", "T=ocid1.vaultsecret.oc1.iad.a/../b"),
        *(
            "T=ocid1.vaultsecret.oc1.iad.a?x",
            "T=OCID1.vaultsecret.oc1.iad.a",
            "T=ocid1.vaultsecret.oc1.iad." + "a" * 999,
        ),
    ],
)
def test_what_is_no_secret_of_oci_vault_is_refused(text: str) -> None:
    """And not shown: it may be the secret itself. What is sent to OCI Vault has the form of an OCID."""
    with pytest.raises(ValueError, match="is not NAME=OCID of a secret") as caught:
        parse_vault_secrets(text)
    assert "hunter2" not in str(caught.value)


def test_a_variable_is_one_secret() -> None:
    """Of two, nobody would know which."""
    with pytest.raises(ValueError, match="T stands there twice"):
        parse_vault_secrets("T=ocid1.vaultsecret.oc1.iad.a T=ocid1.vaultsecret.oc1.iad.b")
