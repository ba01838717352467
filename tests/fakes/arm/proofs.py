"""Signed messages as Azure's metadata service makes them, by a chain of the fake's own: an issuer, and a certificate
for the service's name that every message brings along."""

from __future__ import annotations

import base64
import datetime
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs7
from cryptography.x509.oid import ExtendedKeyUsageOID

SERVICE = "metadata.azure.com"
_DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_OPTIONS = [pkcs7.PKCS7Options.Binary, pkcs7.PKCS7Options.NoAttributes]
#: SHA-256, and RSA with SHA-256.
_PLAIN, _WITH_RSA = bytes.fromhex("0609608648016503040201"), bytes.fromhex("06092a864886f70d01010b")


def _certificate(
    name: str, key: rsa.RSAPrivateKey, by: str, signer: rsa.RSAPrivateKey, *, ca: bool
) -> x509.Certificate:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    made = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(by))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_DAY)
        .not_valid_after(_DAY + datetime.timedelta(days=36_500))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=not ca, key_encipherment=not ca, content_commitment=False, data_encipherment=False,
                key_agreement=False, key_cert_sign=ca, crl_sign=ca, encipher_only=False, decipher_only=False,
            ),
            critical=True,
        )
    )  # fmt: skip
    if not ca:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return made.sign(signer, hashes.SHA256())


@cache
def _chain() -> tuple[x509.Certificate, rsa.RSAPrivateKey, x509.Certificate]:
    root, leaf = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    issuer = _certificate("fake Azure issuer", root, "fake Azure issuer", root, ca=True)
    return issuer, leaf, _certificate(SERVICE, leaf, "fake Azure issuer", root, ca=False)


def issuer_pem() -> str:
    """The certificate that an operator trusts."""
    return _chain()[0].public_bytes(serialization.Encoding.PEM).decode()


def signature(content: bytes) -> str:
    """`content` in a signed message, in base64, as `signature` of an attested document."""
    _, key, own = _chain()
    made = pkcs7.PKCS7SignatureBuilder().set_data(content).add_signer(own, key, hashes.SHA256())
    return base64.b64encode(message(made)).decode()


def message(made: pkcs7.PKCS7SignatureBuilder, *options: pkcs7.PKCS7Options) -> bytes:
    """As Azure's metadata service has it: the signature is over the content itself, and the digest is called by the
    name of the signature's algorithm."""
    return made.sign(serialization.Encoding.DER, [*_OPTIONS, *options]).replace(_PLAIN, _WITH_RSA)
