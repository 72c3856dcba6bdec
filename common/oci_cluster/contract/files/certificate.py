"""The certificate that all nodes of a launch share; its key travels encrypted."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any

# Longer than any job run may last (30 days on OCI Data Science), short enough to be worthless afterwards.
_LIFETIME = datetime.timedelta(days=31)
# Clocks of machines differ; a certificate made "now" must be valid on a machine that is behind.
_CLOCK_SKEW = datetime.timedelta(hours=1)


def make_certificate(common_name: str, *, wall_clock: Callable[[], float] = time.time) -> tuple[str, str]:
    """Return a new self-signed certificate and its private key, both PEM (EC P-256).

    It is its own authority: who trusts it trusts exactly the nodes of one launch. It is valid an hour earlier, too.
    """
    from cryptography import x509  # noqa: PLC0415 - 20 ms and 8 MB that only main needs
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name[:64])])  # 64: X.520's limit
    now = datetime.datetime.fromtimestamp(wall_clock(), datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), _pem(key, None)


def encrypted(key: str, passphrase: bytes) -> str:
    """Encrypt the private *key*, PEM, with *passphrase*: PKCS#8 in PEM."""
    return _recoded(key, None, passphrase)


def decrypted(key: str, passphrase: bytes) -> str:
    """Return the plain private key, PEM, that :func:`encrypted` has made *key* of."""
    return _recoded(key, passphrase, None)


def _recoded(key: str, old: bytes | None, new: bytes | None) -> str:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - see make_certificate

    return _pem(serialization.load_pem_private_key(key.encode(), old), new)


def _pem(key: Any, passphrase: bytes | None) -> str:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - see make_certificate

    how = serialization.NoEncryption() if passphrase is None else serialization.BestAvailableEncryption(passphrase)
    pem: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
    return pem.decode()
