"""This node's own certificate, signed with the launch's: Ray compares its names with addresses.

    python node_certificate.py ADDRESS     writes node-cert.pem and node-key.pem into NODE_DIR

The launch's certificate, TLS_CERT_FILE, is the only authority: who shows one that it has signed belongs to the launch.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

# Parts of one node call each other by these, too: exporters of metrics do.
_LOOPBACK = "127.0.0.1"


def names_of(address: str) -> list[x509.GeneralName]:
    """Return all names of the node at *address*, an IP address or a name."""
    try:
        own: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        own = x509.DNSName(address)
    return [own, x509.IPAddress(ipaddress.ip_address(_LOOPBACK)), x509.DNSName("localhost")]


def write_private(path: Path, text: bytes) -> None:
    """Write a new file that nobody else reads."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(text)


def main() -> None:
    directory, address = Path(os.environ["NODE_DIR"]), sys.argv[1]
    authority = x509.load_pem_x509_certificate(Path(os.environ["TLS_CERT_FILE"]).read_bytes())
    signer = serialization.load_pem_private_key(Path(os.environ["TLS_KEY_FILE"]).read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        sys.exit(f"{os.environ['TLS_KEY_FILE']} holds no key of an elliptic curve")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, os.environ["NODE_NAME"])]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(authority.not_valid_before_utc)
        .not_valid_after(authority.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName(names_of(address)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    write_private(directory / "node-key.pem", pem)
    write_private(directory / "node-cert.pem", certificate.public_bytes(serialization.Encoding.PEM))


if __name__ == "__main__":
    main()
