"""What is a secret by the words of its name, or by its form; and what only sounds like one."""

from __future__ import annotations

import json

import pytest

from oci_cluster.contract.settings.schema import SETTINGS
from oci_cluster.system.secret_values import is_secret, secret_in, without_secrets

GITHUB, HUGGING_FACE = f"ghp_{'a1B2' * 9}", f"hf_{'aB3' * 10}"
JSON_WEB = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"

NAMES = [
    *("API_TOKEN", "CLIENT_SECRET", "DB_PASSWORD", "PASSWD", "MY_CREDENTIALS", "PRIVATE_ID", "KEY", "my_key"),
    *("AWS_ACCESS_KEY_ID", "OPENAIAPIKEY", "ACCESSKEY", "DB_PASS", "SSH_PASSPHRASE", "MYSQL_PWD", "GITHUB_PAT"),
    *("SENTRY_DSN", "SLACK_WEBHOOK", "WEBHOOK_URL", "HF_TOKEN", "TOKEN_FILE", "SSHPASS", "DBPASS", "PGPASS", "JWT"),
    *("BEARER", "COOKIE", "SESSION_COOKIE", "SAS", "BLOB_SAS", "ACCESS_TOKENS", "AZURE_STORAGE_CONNECTION_STRING"),
    *("DOCKER_AUTH_CONFIG", "PGPASSWORD", "REDISCLI_AUTHTOKEN", "accountKey", "dbPassword", "API_KEYS", "WANDB_APIKEY"),
    *("SECRETS", "SECRET_KEY_BASE", "SIGNING_KEY", "TF_VAR_db_password", "AUTHORIZATION", "GITLAB_PRIVATE_TOKEN"),
    *("CREDS", "PASSCODE", "DB_CONN_STR", "OAUTH_REFRESH_TOKENS", "SNOWFLAKE_PRIVATE_KEY_PASSPHRASE", "KAGGLE_KEY"),
    *("LDAP_BIND_PW", "ROOTPW", "GITHUB_PATS", "JWTS", "SMS_OTP", "CONNSTR"),
]
VALUES = [
    *(GITHUB, HUGGING_FACE, f"glpat-{'a' * 20}", "AKIAIOSFODNN7EXAMPLE", f"xoxb-{'1' * 12}", JSON_WEB),
    *(f"sk-{'a1' * 12}", "Authorization: Bearer abc", f"Bearer {'a1' * 8}", '{"password": "hunter2"}'),
    *(
        "host=db user=me password=hunter2",
        "Server=db;AccountKey=aGk1;",
        "lr=0.1,api_key=x1",
        "-----BEGIN PRIVATE " + f"KEY-----\n{'MIIE' * 9}",
    ),
    *(f"AIza{'aB3-x' * 7}", f"npm_{'a1B2' * 9}", f"pypi-AgEIcHlwaS5vcmc{'a1' * 20}", f"sk_live_{'a1' * 12}"),
    *(f"SG.{'a1' * 11}.{'x' * 43}", f"dop_v1_{'a1' * 32}", f"hvs.{'a1' * 12}", f"xapp-1-A{'1' * 9}"),
    *("Basic bWU6aHVudGVyMg==", "machine h login me password hunter2", "--epochs 3 --password hunter2 -v"),
    '{"auths": {"host": {"auth": "bWU6aHVudGVyMg=="}}}',
    *("https://me:hunter2@host/x", "https://objectstorage.eu.oraclecloud.com/p/hunter2/n/ns/b/x/o/y"),
]
OTHERS = dict(
    [
        *(
            (name, "7")
            for name in ("MONKEY", "TIMEOUT", "NPROCS", "MAX_TOKENS", "NUM_TOKENS", "PWD", "COMPASS", "KEEP")
        ),
        *((name, "1") for name in ("PASSES", "PATH", "PATIENCE", "DSN_COUNT", "OMP_NUM_THREADS", "SASHA", "KEYPOINTS")),
        *((name, "bert") for name in ("TOKENIZER", "TOKENIZER_NAME", "AUTHOR", "SECRETARY", "KEYBOARD", "PASSENGERS")),
        *((name, "no") for name in ("TOKENIZERS_PARALLELISM", "USE_TOKEN", "HAS_PASSWORD", "NO_SECRET", "WITH_KEY")),
        *(("PAD_TOKEN", "<pad>"), ("EOS_TOKEN", "</s>"), ("MASK_TOKEN", "[MASK]"), ("STOP_TOKENS", "###")),
        *(("SORT_KEY", "label"), ("KEY", "image"), ("PRIMARY_KEYS", "user_id, item_id"), ("KEY_FRAMES", "12")),
        *(("GOOGLE_APPLICATION_CREDENTIALS", "/mnt/keys/me.json"), ("TOKEN_FILE", "/run/secrets/t.txt")),
        *(("KEY_DIR", "~/keys/"), ("TOKEN_DROP", "0.15"), ("IMAGE_TOKEN", "<image>"), ("OLDPWD_KEPT", "/home")),
        *(("LOWPASS", "butter"), ("BYPASS", "cache"), ("CLIENT_TOKEN", "1"), ("LAUNCH_KEY", "a1" * 16)),
        *(("EMPTY_PASSWORD", ""), ("NOTE", "a basic understanding"), ("WHERE", "s3://bucket/key=1")),
        *(("PAGE", "https://host/x?page=2&key_frames=3"), ("BRANCH", "git+ssh://git@host/r@main")),
        *(("CONFIG", '{"lr": 0.1, "max_tokens": 512, "sort_key": "label"}'), ("HOSTS", "a:1 b:2")),
        *(("OVERRIDES", "model.tokenizer=bert train.passes=3"), ("IMAGE", "iad.ocir.io/ns/team/dask:1")),
        *(("SHA", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"), ("CONNECTION", "string"), ("AUTH_TYPE", "basic")),
        *(
            ("BASIS", "sas"),
            ("COOKIECUTTER", "mine"),
            ("KEYWORDS", "a,b"),
            ("PRIVATE_SUBNET", "true"),
            ("PATTERN", "*"),
        ),
        *(("JWT_ALGORITHM", "HS256"), ("BEARERS", "two"), ("DB_SECRET_OCID", "ocid1.vaultsecret.oc1.iad.aaaa")),
        *(("AUTH", "basic"), ("OCI_AUTH", "resource_principal"), ("OAUTH", "none"), ("LEVEL", "basic block-3-layers")),
        ("OPTIONS", "--tokenizer bert --sort-key label --pass 3 --key-file /x/y.txt"),
        *(("NPM", "npm_config_cache"), ("SK", "sk_live_demo"), ("NOTE_2", "the password policy of this machine")),
        ("VAULT_SECRETS", "TOKEN=ocid1.vaultsecret.oc1.iad.aaaa DB_PASS=ocid1.vaultsecret.oc1..b"),
    ]
)


def test_an_ocid_beside_a_secret_hides_nothing() -> None:
    """All of a value has to be names of things."""
    for text in (
        "TOKEN=ocid1.vaultsecret.oc1.iad.a DB_PASS=hunter2",
        "ocid1.a.b.c.d hunter2",
        "ocid1.x",
        "ocid1.a.b.c.d.e.f",
    ):
        assert is_secret("VAULT_SECRETS", text)


def test_there_are_sixty_of_each() -> None:
    assert len({*NAMES, *VALUES}) >= 60
    assert len(OTHERS) >= 60


@pytest.mark.parametrize("name", NAMES)
def test_values_of_secret_names_are_not_shown(name: str) -> None:
    """Whatever stands in them."""
    assert without_secrets({"A": "1", name: "hunter2"}) == {"A": "1", name: "(not shown)"}
    assert is_secret(name, "hunter2")


@pytest.mark.parametrize("text", VALUES)
def test_what_looks_like_a_key_is_one(text: str) -> None:
    """Whatever it is called; of a URL the rest is shown."""
    assert is_secret("WHERE", text)
    assert "hunter2" not in str(without_secrets({"WHERE": text}))
    assert without_secrets({"WHERE": text}) != {"WHERE": text}


@pytest.mark.parametrize(("name", "text"), OTHERS.items())
def test_what_only_sounds_like_a_secret_is_shown(name: str, text: str) -> None:
    """Names and values that trainings have."""
    assert without_secrets({name: text}) == {name: text}
    assert not is_secret(name, text)


# A backend refuses what looks like a secret; these are names of Kubernetes' objects, which it takes itself, and OCIDs.
NAMES_OF_SECRETS = {"ENV_SECRETS", "IMAGE_PULL_SECRETS", "SECRETS_COMPARTMENT_OCID", "VAULT_SECRETS"}


@pytest.mark.parametrize("name", sorted(SETTINGS.keys() - NAMES_OF_SECRETS))
def test_no_setting_is_taken_for_a_secret(name: str) -> None:
    assert without_secrets({name: "7"}) == {name: "7"}


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
