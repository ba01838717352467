"""A certificate of the fake's own for 127.0.0.1, made once a process. The SDK is told to trust it."""

from __future__ import annotations

import atexit
import ipaddress
import shutil
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@cache
def certificate() -> tuple[ssl.SSLContext, Path]:
    """What a server listens with, and the file for `connection_verify`."""
    folder = Path(tempfile.mkdtemp(prefix="fake-arm-"))
    ca, private = written(folder, ca=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca, private)
    private.unlink()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return context, ca


def written(folder: Path, *, ca: bool = False) -> tuple[Path, Path]:
    """A new certificate for 127.0.0.1 and localhost, and its key, as files in `folder`. `ca`: one that may sign others
    too, which some clients want of what they trust, and others of no server."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake Azure")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "ca.pem", folder / "key.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return public, private
