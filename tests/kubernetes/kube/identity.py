"""Who may talk to a Kubernetes of tests: its authority, certificates, kubeconfigs; no process is asked."""

from __future__ import annotations

import datetime
import ipaddress
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from oci_service.certificates import private_pem

_DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority in a directory, which any process may use that can read its key."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "ca.crt"
        self._key_file = directory / "ca.key"
        if not self.file.exists():
            self._make()
        key = serialization.load_pem_private_key(self._key_file.read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key
        self._certificate = x509.load_pem_x509_certificate(self.file.read_bytes())

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes of tests")])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        write_secret(self._key_file, private_pem(key))
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, file: str, name: str, *groups: str, hosts: Sequence[str] = ()) -> tuple[Path, Path]:
        """Make a certificate of user *name* in *groups*, or of a server that has *hosts*; return it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(self._certificate.subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(issuer, critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_name_of(host) for host in hosts]), False)
        certificate, key_file = self.directory / f"{file}.crt", self.directory / f"{file}.key"
        signed = builder.sign(self._key, hashes.SHA256())
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        write_secret(key_file, private_pem(key))
        return certificate, key_file


def signing_key(directory: Path) -> tuple[Path, Path]:
    """Make what signs the tokens of service accounts; return the private half and the public one."""
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = directory / "accounts.key", directory / "accounts.pub"
    write_secret(private, private_pem(key))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    return private, public


def by_certificate(certificate: Path, key: Path) -> dict[str, str]:
    """Return a kubeconfig's user that shows a certificate."""
    return {"client-certificate": str(certificate), "client-key": str(key)}


def by_plugin(token_file: Path, *, version: str = "v1beta1") -> dict[str, Any]:
    """Return a kubeconfig's user whose token a program prints, as ``oci ce cluster generate-token`` does.

    The program prints what is in *token_file* at that moment; each of its calls adds a line to ``<token_file>.calls``.
    """
    answer = {"apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential"}
    # JSON of a token needs no quoting: tokens are base64 and dots.
    text = json.dumps({**answer, "status": {"token": "TOKEN"}})
    program = (
        f"echo called >>'{token_file}.calls'; token=$(cat '{token_file}'); echo '{text}' | sed \"s/TOKEN/$token/\""
    )
    return {"exec": {**answer, "kind": None, "command": "sh", "args": ["-c", program], "interactiveMode": "Never"}}


def kubeconfig(file: Path, server: str, authority: Path, user: dict[str, Any], namespace: str = "default") -> Path:
    """Write a kubeconfig of one context, named ``tests``; return its path."""
    user = {**user}
    if "exec" in user:
        user["exec"] = {name: value for name, value in user["exec"].items() if value is not None}
    names = {"cluster": "tests", "user": "tests", "namespace": namespace}
    text = json.dumps(  # which is YAML, too
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "contexts": [{"name": "tests", "context": names}],
            "users": [{"name": "tests", "user": user}],
            "clusters": [{"name": "tests", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        },
        indent=1,
    )
    write_secret(file, text.encode())
    return file


def new_name(prefix: str) -> str:
    """Return a name that no other test has, as Kubernetes takes names."""
    return f"{prefix}-{secrets.token_hex(4)}"


def _builder(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    start = datetime.datetime.now(datetime.timezone.utc) - _DAY
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + 8 * _DAY)
    )


def _name_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def write_secret(file: Path, content: bytes) -> None:
    """Write a secret, whole or not at all."""
    new = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.replace(file)
