"""A certificate that is replaced while it is shown, and one whose end nears."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cloud_dispatch.adapters.certificates import Certificate, given, own
from cloud_dispatch.adapters.tls import DAY_MS, SOON_MS, Shown, context_of
from cloud_dispatch.testing.store_builders import ManualClock


@pytest.fixture
def two(tmp_path: Path) -> tuple[Certificate, Certificate]:
    now = datetime.datetime.now(datetime.UTC)
    return own(tmp_path / "one", ["host"], now), own(tmp_path / "two", ["host"], now)


def seen(context: ssl.SSLContext) -> str:
    """The fingerprint of the certificate that a client is shown."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = anyone.wrap_bio(back, there), context.wrap_bio(there, back, server_side=True)
    for _ in range(3):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return hashlib.sha256(client.getpeercert(binary_form=True) or b"").hexdigest()


def test_who_connects_sees_that_of_now(two: tuple[Certificate, Certificate], tmp_path: Path) -> None:
    """Also where it has another kind of key: nothing of the one before is left in what shows it."""
    first, second = two
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "host")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=90))
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    file = tmp_path / "rsa.pem"
    file.touch(0o600)
    file.write_bytes(
        made.sign(key, hashes.SHA256()).public_bytes(pem)
        + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    )
    third = given(file, file, now)
    shown = Shown(first, ManualClock())
    before = shown.context()
    for one in (second, third, first):
        shown.become(one, context_of(one))
        assert seen(shown.context()) == one.fingerprint
        assert shown.ends_ms() == one.ends_ms
    assert seen(before) == first.fingerprint


def test_it_is_told_for_three_weeks_that_it_ends(two: tuple[Certificate, Certificate]) -> None:
    clock = ManualClock()
    end = clock.now() + SOON_MS + 1
    shown = Shown(replace(two[0], ends_ms=end), clock)
    assert shown.troubles() == []
    clock.now_ms += 1 + DAY_MS
    (said,) = shown.troubles()
    assert "ends in 20d" in said
    assert str(two[0].certificate) in said
    clock.now_ms += SOON_MS
    assert "has ended" in shown.troubles()[0]
    assert "the next start without VMs makes another" in shown.troubles()[0]
    shown.become(two[1], context_of(two[1]))
    assert shown.troubles() == []


def test_what_one_lacks_that_vms_pin_is_told(two: tuple[Certificate, Certificate]) -> None:
    shown = Shown(replace(two[0], fault="does not bear other"), ManualClock())
    (said,) = shown.troubles()
    assert f"{two[0].certificate} does not bear other, and VMs that live pin it" in said
