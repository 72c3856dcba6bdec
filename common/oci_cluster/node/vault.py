"""Reads the secrets that ``VAULT_SECRETS`` names, as a resource principal."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from oci_cluster.errors import NotPermittedError, SettingsError, StorageError

# Seconds to connect, and between two bytes of an answer: the agent repeats a request by itself.
_TIMEOUTS_S = (5, 15)
# A secret has 25 KB at most (documentation of OCI Vault); Linux takes 128 KiB for one variable.
_MOST_BYTES = 64 << 10


class Vault:
    """The secrets of one node, by the variables that they become; no message holds a value."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        """Ask as this node's resource principal for *wanted*, OCIDs by variables."""
        self._wanted = wanted
        self._read: dict[str, str] = {}
        self._client = _client()

    def read(self) -> dict[str, str]:
        """Return all values; each is asked for until it has been answered once."""
        for name, ocid in self._wanted.items():
            if name not in self._read:
                self._read[name] = _text(name, ocid, self._bundle(name, ocid))
        return self._read

    def _bundle(self, name: str, ocid: str) -> Any:
        from oci.exceptions import ServiceError  # noqa: PLC0415 - see _client

        try:
            return self._client.get_secret_bundle(ocid).data
        except ServiceError as error:
            told = f"VAULT_SECRETS: OCI Vault answered HTTP {error.status} {error.code} to {name}={ocid}"
            if error.status in {401, 403, 404}:
                raise NotPermittedError(
                    f"{told}; correct the OCID, or allow it: allow dynamic-group <the runs'> to read secret-bundles"
                    " in compartment <the secret's>"
                ) from error
            raise StorageError(told) from error
        # Errors of connections have many bases: those of the SDK, requests, urllib3, ssl and the system.
        except Exception as error:
            if isinstance(error, OSError) or type(error).__module__.startswith(("oci.", "urllib3", "requests")):
                raise StorageError(f"VAULT_SECRETS: no answer from OCI Vault: {type(error).__name__}") from error
            raise


def _client() -> Any:
    try:
        # A second of CPU and 40 MB: where somebody wants secrets.
        from oci.auth.signers import get_resource_principals_signer  # noqa: PLC0415
        from oci.retry import NoneRetryStrategy  # noqa: PLC0415
        from oci.secrets import SecretsClient  # noqa: PLC0415

        signer = get_resource_principals_signer()
    except (ImportError, OSError) as error:
        raise SettingsError(
            "VAULT_SECRETS: this node is not the resource principal of a Job Run, which alone reads secrets here:"
            f" {type(error).__name__}; launch on oci, or give the variables with --env NAME"
        ) from error
    return SecretsClient({}, signer=signer, retry_strategy=NoneRetryStrategy(), timeout=_TIMEOUTS_S)


def _text(name: str, ocid: str, bundle: Any) -> str:
    """Return the text of a secret, if an environment can hold it."""
    try:
        body = base64.b64decode(str(bundle.secret_bundle_content.content), validate=True)
        text = body.decode()
    except (AttributeError, ValueError):  # a UnicodeDecodeError holds what it could not decode
        text = ""
    if not text or "\0" in text or len(text) > _MOST_BYTES:
        raise SettingsError(
            f"VAULT_SECRETS: the secret of {name}, {ocid}, cannot be a variable: it is no text in UTF-8 without NUL"
            f" of {_MOST_BYTES} characters at most; read it in your script"
        ) from None
    return text
