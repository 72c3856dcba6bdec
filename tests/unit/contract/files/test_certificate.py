from __future__ import annotations

import datetime
import hmac
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from oci_cluster.contract.files.certificate import decrypted, encrypted, make_certificate
from oci_cluster.contract.files.cluster_dir import ClusterDir


@pytest.fixture(scope="module")
def pair() -> tuple[str, str]:
    return make_certificate("dask-1f2e")


def handshake(server: tuple[str, str], client: tuple[str, str], place: Path) -> None:
    # Both sides prove themselves, as the nodes do; in memory, so that there is no port.
    sides = []
    for name, (certificate, key), is_server in (("server", server, True), ("client", client, False)):
        (place / f"{name}.pem").write_text(certificate + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(place / f"{name}.pem")
        context.load_verify_locations(place / f"{name}.pem")
        sides.append((context, ssl.MemoryBIO(), ssl.MemoryBIO(), is_server))
    objects = [context.wrap_bio(read, write, server_side=role) for context, read, write, role in sides]
    done: set[int] = set()
    while len(done) < 2:
        for index in (1, 0):
            try:
                objects[index].do_handshake()
                done.add(index)
            except ssl.SSLWantReadError:
                pass
            sides[1 - index][1].write(sides[index][2].read())
    # In TLS 1.3 the server's verdict on the client's certificate comes after the client's own handshake.
    objects[0].write(b"hello")
    sides[1][1].write(sides[0][2].read())
    assert objects[1].read(5) == b"hello"


def test_nodes_of_one_launch_trust_each_other(pair: tuple[str, str], tmp_path: Path) -> None:
    """Two holders of the certificate and its key complete a handshake in which both prove themselves."""
    handshake(pair, pair, tmp_path)


def test_another_launch_is_not_trusted(pair: tuple[str, str], tmp_path: Path) -> None:
    """A certificate of another launch, of the same name even, is refused."""
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        handshake(pair, make_certificate("dask-1f2e"), tmp_path)


def test_the_key_is_the_certificates(pair: tuple[str, str]) -> None:
    """The key belongs to the certificate, is on P-256, and is not encrypted: nobody is there to type a password."""
    certificate, key = x509.load_pem_x509_certificate(pair[0].encode()), load_pem_private_key(pair[1].encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert (certificate.public_key(), key.curve.name) == (key.public_key(), "secp256r1")


def test_the_certificate_can_make_no_other_authority(pair: tuple[str, str]) -> None:
    """It is its own authority and that of no other authority."""
    certificate = x509.load_pem_x509_certificate(pair[0].encode())
    basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (basic.critical, basic.value) == (True, x509.BasicConstraints(ca=True, path_length=0))
    assert certificate.issuer == certificate.subject


def test_it_is_valid_on_a_machine_whose_clock_is_behind(pair: tuple[str, str]) -> None:
    """It is valid from an hour before now, for clocks that are behind, to 31 days after, longer than any run."""
    certificate = x509.load_pem_x509_certificate(pair[0].encode())
    now = datetime.datetime.now(datetime.timezone.utc)
    assert certificate.not_valid_before_utc < now - datetime.timedelta(minutes=59)
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == datetime.timedelta(days=31, hours=1)


def test_a_long_cluster_name_is_cut_to_what_a_certificate_can_hold() -> None:
    """A name of 255 characters is no reason to fail: the certificate's has the first 64."""
    certificate = x509.load_pem_x509_certificate(make_certificate("n" * 255)[0].encode())
    assert certificate.subject.rfc4514_string() == f"CN={'n' * 64}"


def test_each_launch_has_a_key_of_its_own() -> None:
    """Two calls make two keys."""
    assert make_certificate("same")[1] != make_certificate("same")[1]


def test_who_reads_the_work_dir_cannot_open_the_key(pair: tuple[str, str]) -> None:
    """It takes the passphrase, and gives back the same key."""
    shared = encrypted(pair[1], b"passphrase")
    assert shared.startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert decrypted(shared, b"passphrase") == pair[1]
    with pytest.raises(ValueError, match="password"):
        decrypted(shared, b"another")
    with pytest.raises(TypeError):
        load_pem_private_key(shared.encode(), None)
    with pytest.raises(TypeError):  # a plain one is none that a node has published
        decrypted(pair[1], b"passphrase")


def test_who_has_the_launchs_key_opens_it_as_the_guide_says(pair: tuple[str, str]) -> None:
    """dask/README.md shows it to clients outside the cluster."""
    shared = encrypted(pair[1], ClusterDir("memory://c", "1f2e", "5eed").key_for("certificate").hex().encode())
    assert decrypted(shared, hmac.digest(b"5eed", b"certificate", "sha256").hex().encode()) == pair[1]
