"""How the dispatcher proves itself: its TLS certificate. Owns the making of its own CA, and the checks of given files.

VMs pin the very certificate by its fingerprint, so it lasts for years and is made anew only when it has to be: when it
ends soon, or when the dispatcher is to be reached by a name that it does not bear; and only when no VM pins it.
Commands on this machine trust the file; other machines trust the CA.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_dispatch import durable
from cloud_dispatch.domain.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_DAY = datetime.timedelta(days=1)
_CA_DAYS, _SERVER_DAYS = 20 * 365, 10 * 365
#: One that ends sooner than this is made anew at the next start: longer than any VM lives.
_LEAST_DAYS = 365
#: How far another clock may be behind this one.
_CLOCKS = datetime.timedelta(days=1)
_MOST_NAME = 64  # of a common name
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


@dataclass(frozen=True)
class Certificate:
    """What is shown to whoever connects: PEM files, the sha256 of the certificate in hex, and when it ends. `chain`:
    `chain_of` its file. `ca`: what other machines may trust, None where it is not ours. `fault`: why it would have been
    made anew, had VMs not pinned it."""

    certificate: Path
    key: Path
    fingerprint: str
    ends_ms: int
    chain: str
    ca: Path | None = None
    fault: str = ""


def own(
    folder: Path, names: Iterable[str], now: datetime.datetime, *, machine: str = "", pinned: bool = False
) -> Certificate:
    """The dispatcher's own certificate in `folder`, for `names` (host names and addresses), signed by a CA of its own;
    both made where there are none. `machine`: what this machine is called, which one that is made bears as well;
    another machine is no reason to make one. `pinned`: VMs may live that know none but this one, so that it stays.
    InvalidInput where a file there is no certificate, or a key is open to others."""
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    server, server_key = folder / "server.pem", folder / "server.key"
    wanted = tuple(names)
    if not (ca.exists() and ca_key.exists()):
        _make_ca(ca, ca_key, now)
    there = server.exists() and server_key.exists()
    fault = _fault(_read(server), _names(wanted), _read(ca)) if there else ""
    if not there or (not pinned and (fault or _ends_within(_read(server), now + _LEAST_DAYS * _DAY))):
        _make_server(server, server_key, _read(ca), _read_key(ca_key), _names((*wanted, machine)), now)
        fault = ""
    return Certificate(
        server, _private(server_key), fingerprint(server), _ends_ms(_read(server)), chain_of(server), ca, fault
    )


def given(certificate: Path, key: Path, now: datetime.datetime, *, pinned: bool = False) -> Certificate:
    """An operator's certificate, its chain after it in the file. Unavailable where the files can't be used, and where
    it has ended, unless it is `pinned`: VMs may live that hear nobody who does not show it. What renews them writes one
    after the other, and may be about to: whoever tries again finds them whole."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, _private(key))
        found = _read(certificate)
    except InvalidInput as error:
        raise Unavailable(error.message, place=error.place, hint=error.hint) from None
    except (OSError, ssl.SSLError) as error:
        hint = "PEM files: the certificate, then what signed it; and its key, without a password"
        raise Unavailable(f"can't be used with the key {key}: {error}", place=str(certificate), hint=hint) from None
    if found.not_valid_after_utc <= now and not pinned:
        message = f"it ended at {found.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        raise Unavailable(message, place=str(certificate), hint="renew it")
    return Certificate(certificate, key, fingerprint(certificate), _ends_ms(found), chain_of(certificate))


def fingerprint(path: Path) -> str:
    """sha256 in hex of the first certificate in the file, as VMs pin it."""
    from cryptography.hazmat.primitives import hashes

    return _read(path).fingerprint(hashes.SHA256()).hex()


def chain_of(path: Path) -> str:
    """sha256 in hex of all certificates in the file: of what is shown, wherever its key is."""
    return hashlib.sha256("".join(_certificates(path)).encode()).hexdigest()


def _ends_ms(certificate: x509.Certificate) -> int:
    return int(certificate.not_valid_after_utc.timestamp() * 1000)


def public_part(certificate: Certificate) -> str:
    """What others may trust it by, in PEM: our CA, or else the certificates of the given file, and nothing else of it:
    its key may be there too."""
    return "".join(found + "\n" for found in _certificates(certificate.ca or certificate.certificate))


def _certificates(path: Path) -> list[str]:
    return _CERTIFICATE.findall(path.read_text(encoding="ascii", errors="replace"))


def _names(names: Iterable[str]) -> list[x509.GeneralName]:
    from cryptography import x509

    found: dict[str, x509.GeneralName] = {}
    for name in filter(None, names):
        try:
            found[name] = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            if name.isascii() and all(part and len(part) < 64 for part in name.split(".")):
                found[name] = x509.DNSName(name.lower())
    return list(found.values())


def _fault(server: x509.Certificate, wanted: list[x509.GeneralName], ca: x509.Certificate) -> str:
    """Why this certificate does not do for `wanted`, "" where it does."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        server.verify_directly_issued_by(ca)
        borne = set(server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ValueError, TypeError, InvalidSignature):
        return "is not signed by the CA beside it"
    except x509.ExtensionNotFound:
        borne = set()
    lacking = [str(name.value) for name in wanted if name not in borne]
    return f"does not bear {', '.join(lacking)}" if lacking else ""


def _ends_within(server: x509.Certificate, then: datetime.datetime) -> bool:
    return server.not_valid_after_utc <= then


def _make_ca(path: Path, key_path: Path, now: datetime.datetime) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject("cloud-dispatch CA")
    builder = (
        _draft(subject, subject, key, now, _CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    durable.write(key_path, _pem_of(key), 0o600)  # before its certificate, which says that both are there
    _sign(path, builder, key)


def _make_server(
    path: Path, key_path: Path, ca: x509.Certificate, ca_key: EllipticCurvePrivateKey,
    names: list[x509.GeneralName], now: datetime.datetime,
) -> None:  # fmt: skip
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(str(names[0].value) if names else "cloud-dispatch")
    builder = (
        _draft(subject, ca.subject, key, now, _SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    durable.write(key_path, _pem_of(key), 0o600)
    _sign(path, builder, ca_key)


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_MOST_NAME])])


def _draft(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + days * _DAY)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _sign(path: Path, builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives import hashes, serialization

    durable.write(path, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), 0o644)


def _pem_of(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read(path: Path) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"no certificate: {error}", place=str(path), hint="restore it, or remove it") from None


def _read_key(path: Path) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_pem_private_key(_private(path).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"no key: {error}", place=str(path), hint="restore it, or remove it") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidInput("this is not a key of ours", place=str(path), hint="restore it, or remove it")
    return key


def _private(path: Path) -> Path:
    """`path`, which only its owner may read."""
    try:
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise InvalidInput(f"no key: {error}", place=str(path)) from None
    if mode & 0o077:
        raise InvalidInput(f"mode {mode:04o} lets others read a key", place=str(path), hint=f"chmod 600 {path}")
    return path
