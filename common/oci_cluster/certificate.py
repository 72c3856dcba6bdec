"""The certificate that the nodes of one launch share."""

from __future__ import annotations

import datetime

# Longer than any job run may last (30 days on OCI Data Science), short enough to be worthless afterwards.
_LIFETIME = datetime.timedelta(days=31)
# Clocks of machines differ; a certificate made "now" must be valid on a machine that is behind.
_CLOCK_SKEW = datetime.timedelta(hours=1)


def make_certificate(common_name: str) -> tuple[str, str]:
    """Return a new self-signed certificate and its private key, both PEM (EC P-256).

    The certificate is its own authority: who trusts it trusts exactly the holders of this key, the nodes of one launch.
    """
    from cryptography import x509  # noqa: PLC0415 - 20 ms and 8 MB that only main needs
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name[:64])])  # 64: X.520's limit
    now = datetime.datetime.now(datetime.timezone.utc)
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
    return (
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )
