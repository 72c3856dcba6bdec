"""What is a secret by the words of its name, or by its form; and what only sounds like one."""

from __future__ import annotations

import itertools
import json

import pytest
from secret_rows import PLAIN, SECRETS

from oci_cluster.contract.settings.schema import SETTINGS
from oci_cluster.system.secret_values import secret_in, without_secrets

GITHUB = f"ghp_{'a1B2' * 9}"


def test_an_ocid_beside_a_secret_hides_nothing() -> None:
    """All of a value has to be names of things."""
    for text in (
        "TOKEN=ocid1.vaultsecret.oc1.iad.a DB_PASS=hunter2",
        "ocid1.a.b.c.d hunter2",
        "ocid1.x",
        "ocid1.a.b.c.d.e.f",
    ):
        assert secret_in("VAULT_SECRETS", text)


def forms_of(name: str, text: str) -> list[tuple[str, str]]:
    """Return a variable, and the same as arguments of an entry point, as a launch has them."""
    option = f"--{name.lower().replace('_', '-')}"
    return [(name, text), *(("ARGS", json.dumps(words)) for words in ([option, text], [f"{option}={text}"]))]


def test_a_secret_is_seen_and_not_shown() -> None:
    """By its name or by its value, of which a URL's rest is shown."""
    for given, value in itertools.chain.from_iterable(itertools.starmap(forms_of, SECRETS)):
        assert secret_in(given, value)
        shown = without_secrets({"A": "1", given: value})
        assert shown["A"] == "1"
        assert value not in shown[given]
        assert "hunter2" not in shown[given]


def test_what_only_looks_like_a_secret_is_shown() -> None:
    for name, text in PLAIN:
        for given, value in forms_of(name, text)[: 1 if name == "LAUNCH_KEY" else None]:
            assert not secret_in(given, value)
            assert without_secrets({given: value}) == {given: value}


# A backend refuses what looks like a secret; these are names of Kubernetes' objects, which it takes itself, and OCIDs.
NAMES_OF_SECRETS = {"ENV_SECRETS", "IMAGE_PULL_SECRETS", "SECRETS_COMPARTMENT_OCID", "VAULT_SECRETS"}


def test_no_setting_is_taken_for_a_secret() -> None:
    settings = dict.fromkeys(SETTINGS.keys() - NAMES_OF_SECRETS, "7")
    assert without_secrets(settings) == settings


@pytest.mark.parametrize(
    ("words", "secret", "shown"),
    [
        (["--api-key", "x1"], "ARGS (--api-key)", ["--api-key", "***"]),
        (["--epochs", "3", "--password=hunter2"], "ARGS (--password)", ["--epochs", "3", "--password=***"]),
        (["-token", "abc"], "ARGS (-token)", ["-token", "***"]),
        (["--header", "Authorization: Bearer x"], "ARGS (--header)", ["--header", "***"]),
        ([GITHUB], "ARGS (an argument)", ["***"]),
        (["--db", "redis://:hunter2@host"], "ARGS (--db)", ["--db", "redis://***@host"]),
        (["--tokenizer", "bert", "--max-tokens", "100"], "", ["--tokenizer", "bert", "--max-tokens", "100"]),
        (["--password", "--verbose", "--sort-key=label"], "", ["--password", "--verbose", "--sort-key=label"]),
    ],
)
def test_of_arguments_the_option_is_named(words: list[str], secret: str, shown: list[str]) -> None:
    text = json.dumps(words)
    assert secret_in("ARGS", text) == secret
    assert without_secrets({"ARGS": text}) == {"ARGS": json.dumps(shown)}
