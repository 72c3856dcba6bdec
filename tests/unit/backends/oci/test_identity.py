"""Who asks OCI's services, by the rules of oci-cli; and the clients that ask in that name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec.config
import oci
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from oci.circuit_breaker import NoCircuitBreakerStrategy
from oci.retry import NoneRetryStrategy

from oci_cluster.backends.oci import service as oci_service
from oci_cluster.backends.oci.service import Service, service_environ
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.storage import oci as oci_storage
from oci_cluster.errors import SettingsError
from oci_cluster.system.text import first_line

# --- Who asks -------------------------------------------------------------------------------------------------------


def new_key(passphrase: bytes = b"") -> bytes:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    locked = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)


@pytest.fixture(scope="session")
def key() -> bytes:
    """Return a throwaway key."""
    return new_key()


class Account:
    """A configuration of oci-cli, in the home of the test."""

    def __init__(self, place: Path, key: bytes) -> None:
        self.key = place / "key.pem"
        self.key.write_bytes(key + b"OCI_API_KEY\n")
        self.token = place / "token"
        self.token.write_text("TOKEN\n")
        self.path = place / "config"
        self.write()

    def write(self, profile: str = "DEFAULT", **changed: str) -> None:
        fields = {
            "user": "ocid1.user.oc1..aaaa",
            "fingerprint": ":".join(["aa"] * 16),
            "tenancy": "ocid1.tenancy.oc1..aaaa",
            "region": "us-ashburn-1",
            "key_file": str(self.key),
            "security_token_file": str(self.token),
            **changed,
        }
        lines = [f"{name}={text}" for name, text in fields.items() if text]
        self.path.write_text("\n".join([f"[{profile}]", *lines, ""]))

    def service(self, **environ: str) -> Service:
        return Service({"OCI_CLI_CONFIG_FILE": str(self.path), **environ})


@pytest.fixture
def account(tmp_path: Path, key: bytes) -> Account:
    return Account(tmp_path, key)


def test_an_api_key_is_the_default(account: Account) -> None:
    """By configuration file and profile, as oci-cli has it."""
    service = account.service()
    config, signer = service.identity
    assert (config["user"], signer, service.region) == ("ocid1.user.oc1..aaaa", None, "us-ashburn-1")


def test_the_default_file_is_oci_clis(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """~/.oci/config, where nothing else is said."""
    home = Path.home() / ".oci"
    home.mkdir()
    account.path.rename(home / "config")
    assert Service({}).region == "us-ashburn-1"


def test_a_profile_and_a_region_can_be_chosen(account: Account) -> None:
    """By oci-cli's own variables; the region wins over the file's."""
    account.write("mine", region="eu-frankfurt-1")
    assert account.service(OCI_CLI_PROFILE="mine").region == "eu-frankfurt-1"
    assert account.service(OCI_CLI_PROFILE="mine", OCI_CLI_REGION="uk-london-1").region == "uk-london-1"


def test_a_session_has_a_token(account: Account) -> None:
    """`oci session authenticate` leaves a key and a token."""
    _, signer = account.service(OCI_CLI_AUTH="security_token").identity
    assert isinstance(signer, oci.auth.signers.SecurityTokenSigner)
    assert signer.api_key == "ST$TOKEN"


def test_a_session_whose_profile_names_no_region_is_no_identity(account: Account) -> None:
    """The SDK checks profiles of keys alone."""
    account.write(region="")
    with pytest.raises(SettingsError, match=r"security_token, profile DEFAULT of .*no region: set OCI_CLI_REGION"):
        _ = account.service(OCI_CLI_AUTH="security_token").region
    assert account.service(OCI_CLI_AUTH="security_token", OCI_CLI_REGION="uk-london-1").region == "uk-london-1"


def signed_by(signer: Any) -> tuple[str, bytes]:
    """Return the key id of a signed request, and the public key that its signature is by."""
    headers = {"date": "Thu, 05 Jan 2014 21:31:40 GMT"}
    request = requests.Request("GET", "https://iaas.us-ashburn-1.oraclecloud.com/x", headers=headers).prepare()
    authorization = signer(request).headers["authorization"]
    found = re.search(r'keyId="([^"]+)"', authorization)
    assert found
    return found[1], signer.private_key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_a_session_that_was_renewed_signs_what_follows(account: Account) -> None:
    """`oci session refresh` writes the token, `oci session authenticate` a key before it; clients stay."""
    service = account.service(OCI_CLI_AUTH="security_token")
    signer = service.data_science.base_client.signer
    before = signed_by(signer)
    account.token.write_text("RENEWED\n")
    assert signed_by(signer) == ("ST$RENEWED", before[1])
    account.key.write_bytes(new_key())
    assert signed_by(signer) == ("ST$RENEWED", before[1])
    account.token.write_text("ANOTHER\n")
    name, key = signed_by(signer)
    assert name == "ST$ANOTHER"
    assert key != before[1]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda account: account.token.write_text(""),
        lambda account: account.token.unlink(),
        lambda account: account.token.write_bytes(b"\xff"),
        lambda account: (account.key.write_text("-----BEGIN"), account.token.write_text("NEW")),
        lambda account: (account.key.write_bytes(new_key(b"secret")), account.token.write_text("NEW")),
    ],
)
def test_a_session_that_is_being_written_or_is_spoiled_keeps_the_one_before(
    account: Account, spoil: Callable[[Account], Any]
) -> None:
    """And OCI says whether that one is still good."""
    signer = account.service(OCI_CLI_AUTH="security_token").identity[1]
    spoil(account)
    assert signed_by(signer)[0] == "ST$TOKEN"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("instance_principal", "InstancePrincipalsSecurityTokenSigner"),
        ("resource_principal", "get_resource_principals_signer"),
    ],
)
def test_a_machine_of_oci_is_somebody(account: Account, monkeypatch: pytest.MonkeyPatch, kind: str, name: str) -> None:
    """Without a file; the region is its own unless another is chosen."""
    signer = SimpleNamespace(region="ap-tokyo-1")
    monkeypatch.setattr(oci_service.signers, name, lambda: signer)
    account.path.unlink()
    assert account.service(OCI_CLI_AUTH=kind).identity == ({"region": "ap-tokyo-1"}, signer)
    assert account.service(OCI_CLI_AUTH=kind, OCI_CLI_REGION="uk-london-1").region == "uk-london-1"


ADVICE = "make one: oci setup config (API key) or oci session authenticate (OCI_CLI_AUTH=security_token)"


def no_identity(service: Service) -> str:
    with pytest.raises(SettingsError) as caught:
        _ = service.identity
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_configuration_it_is_said_how_to_make_one(account: Account) -> None:
    """The file that was looked for is named."""
    account.path.unlink()
    said = no_identity(account.service())
    assert said.startswith(f"no identity for OCI: OCI_CLI_AUTH=api_key, profile DEFAULT of {account.path}: ")
    assert said.endswith(f"; {ADVICE}")


@pytest.mark.parametrize(
    ("environ", "changed", "why"),
    [
        ({"OCI_CLI_PROFILE": "other"}, {}, "profile other of "),
        ({}, {"key_file": "/no/such.pem"}, "/no/such.pem"),
        ({}, {"user": ""}, "user"),
        ({}, {"fingerprint": "x"}, "fingerprint"),
        ({"OCI_CLI_AUTH": "security_token"}, {"key_file": "/no/such.pem"}, "/no/such.pem"),
        ({"OCI_CLI_AUTH": "security_token"}, {"security_token_file": ""}, "security_token_file"),
        ({"OCI_CLI_AUTH": "security_token"}, {"security_token_file": "/no/such"}, "/no/such"),
        ({"OCI_CLI_AUTH": "resource_principal"}, {}, "OCI_CLI_AUTH=resource_principal"),
    ],
)
def test_what_is_wrong_with_an_identity_is_told(
    account: Account, environ: dict[str, str], changed: dict[str, str], why: str
) -> None:
    """In one line, with what the SDK says of it."""
    account.write(**changed)
    said = no_identity(account.service(**environ))
    assert said.startswith("no identity for OCI: OCI_CLI_AUTH=")
    assert why in said
    assert said.endswith(ADVICE)


def test_a_key_that_is_none_is_told(account: Account) -> None:
    """When a client is made of it at the latest."""
    account.key.write_text("no key")
    service = account.service(OCI_CLI_AUTH="security_token")
    assert "no identity for OCI" in no_identity(service)


def test_an_api_key_that_is_none_is_told(account: Account) -> None:
    """As with every other identity: what oci-cli would need, not a traceback."""
    account.key.write_text("no key")
    with pytest.raises(SettingsError):
        _ = account.service().data_science


def test_an_unknown_kind_of_identity_is_named(account: Account) -> None:
    """With those that there are."""
    assert no_identity(account.service(OCI_CLI_AUTH="magic")) == (
        "OCI_CLI_AUTH is 'magic'; known are api_key, security_token, instance_principal, resource_principal"
    )


def test_an_error_without_words_has_its_name() -> None:
    """One line in any case."""
    assert first_line(ValueError()) == "ValueError"
    assert first_line(ValueError("a\nb")) == "a"


# --- Clients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auth", ["api_key", "security_token"])
def test_clients_have_no_retries_of_their_own(account: Account, auth: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The genuine clients: neither the SDK's retries nor its circuit breaker, and timeouts."""
    made: dict[str, Any] = {}
    genuine = oci.data_science.DataScienceClient

    def note(config: Any, **options: Any) -> Any:
        made.update(options)
        return genuine(config, **options)

    monkeypatch.setattr(oci.data_science, "DataScienceClient", note)
    service = account.service(OCI_CLI_AUTH=auth)
    assert isinstance(service.data_science, genuine)
    assert service.data_science is service.data_science
    assert isinstance(made["retry_strategy"], NoneRetryStrategy)
    assert isinstance(made["circuit_breaker_strategy"], NoCircuitBreakerStrategy)
    assert made["timeout"] == (10, 60)
    assert ("signer" in made) == (auth == "security_token")
    assert isinstance(service.client_of(oci.core.VirtualNetworkClient), oci.core.VirtualNetworkClient)
    assert "us-ashburn-1" in service.data_science.base_client.endpoint


def test_storage_is_opened_with_the_same_identity(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """oci:// URLs of this process: with the signer where there is one, and without retries in any case."""
    conf: dict[str, Any] = {}
    monkeypatch.setattr(fsspec.config, "conf", conf)
    account.service().use_for_storage()
    assert (conf["oci"]["config"]["user"], set(conf["oci"])) == ("ocid1.user.oc1..aaaa", {"config", "config_kwargs"})
    conf.clear()
    account.service(OCI_CLI_AUTH="security_token").use_for_storage()
    assert isinstance(conf["oci"]["signer"], oci.auth.signers.SecurityTokenSigner)
    assert conf["oci"]["region"] == "us-ashburn-1"


def test_storage_answers_or_fails_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody has configured stays; what has been set before is not forgotten."""
    conf: dict[str, Any] = {"oci": {"iam_type": "x", "config_kwargs": {"service_endpoint": "http://127.0.0.1:1"}}}
    monkeypatch.setattr(fsspec.config, "conf", conf)
    oci_storage.configure(config={"user": "me"})
    oci_storage.configure()
    kwargs = conf["oci"]["config_kwargs"]
    assert (conf["oci"]["iam_type"], conf["oci"]["config"]) == ("x", {"user": "me"})
    assert (kwargs["service_endpoint"], kwargs["timeout"]) == ("http://127.0.0.1:1", (5, 15))
    assert isinstance(kwargs["retry_strategy"], NoneRetryStrategy)
    assert isinstance(kwargs["circuit_breaker_strategy"], NoCircuitBreakerStrategy)


def test_an_oci_url_is_opened_so(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """The genuine ocifs takes identity and options."""
    monkeypatch.setattr(fsspec.config, "conf", {})
    account.service().use_for_storage()
    cluster_dir = ClusterDir("oci://bucket@ns/work/c1", "1f2e", "")
    assert cluster_dir.local_path is None
    assert fsspec.config.conf["oci"]["config_kwargs"]["timeout"] == (5, 15)


def test_settings_tell_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only oci-cli's own variables of them; they are the environment's already, or win over it."""
    monkeypatch.setenv("OCI_CLI_PROFILE", "mine")
    found = service_environ({"OCI_CLI_PROFILE": "a", "OCI_CLI_REGION": "b", "SHAPE": "c"})
    assert (found["OCI_CLI_PROFILE"], found["OCI_CLI_REGION"], found["HOME"]) == ("a", "b", str(Path.home()))
    assert "SHAPE" not in found
