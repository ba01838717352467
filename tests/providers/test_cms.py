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
