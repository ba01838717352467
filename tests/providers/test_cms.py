"""Signed messages, as drivers share their reader: what a message brings along is told, and believed by nobody."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs7

from cloud_dispatch.provider import cms
from tests.providers.aws.scenes import signed, signer

Options = pkcs7.PKCS7Options


def test_the_certificates_of_a_message_are_told() -> None:
    """Those that it brings, as they stand in it; none where it brings none."""
    own = signer("EC2")[1]
    said = cms.read(signed(b"words", "EC2", Options.NoCapabilities))
    assert said.certificates == (own.public_bytes(serialization.Encoding.DER),)
    assert cms.names(said, own)
    assert cms.checked(said, own) == b"words"
    assert cms.read(signed(b"words")).certificates == ()


def test_another_key_has_not_signed_it() -> None:
    said = cms.read(signed(b"words"))
    other = signer("somebody")[1]
    assert not cms.names(said, other)
    with pytest.raises(cms.Malformed):
        cms.checked(said, other)


def test_the_digest_may_be_called_by_the_signature_s_name() -> None:
    """As Azure's metadata service calls it: RSA with SHA-256. Of another algorithm it is refused as before."""
    own = signer("EC2")[1]
    plain, with_rsa = (bytes.fromhex(f"0609{name}") for name in ("608648016503040201", "2a864886f70d01010b"))
    message = signed(b"words", "EC2", Options.NoAttributes)
    assert message.count(plain) == 2
    assert cms.checked(cms.read(message.replace(plain, with_rsa)), own) == b"words"
    with pytest.raises(cms.Malformed):
        cms.read(message.replace(plain, bytes.fromhex("06092a864886f70d01010c")))
