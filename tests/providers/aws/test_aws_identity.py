"""EC2's signed identity documents: what proves which instance it is, and what proves nothing."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs7

from cloud_dispatch.provider import cms
from cloud_dispatch.provider.errors import NotProven
from cloud_dispatch_aws import identity
from tests.providers.aws.scenes import ACCOUNT, REGION, certificate, document, proof, signed, signer

VM = "i-0123456789abcdef0"
TRUSTED = identity.certificates(certificate())
PENDING_MS = 1_795_348_800_000  # 2026-11-22T12:00:00Z
Options = pkcs7.PKCS7Options


def test_a_document_says_which_instance_it_is_and_since_when() -> None:
    said = identity.document(proof(document(VM)), TRUSTED)
    assert said == identity.Document(VM, ACCOUNT, REGION, PENDING_MS)


def test_the_signature_must_be_of_a_certificate_that_is_known() -> None:
    """Another signer's is refused, with his certificate in the message too; one of several known ones is enough."""
    with pytest.raises(NotProven):
        identity.document(proof(document(VM), "somebody"), TRUSTED)
    brought = base64.b64encode(signed(document(VM), "somebody", Options.NoCapabilities)).decode()
    with pytest.raises(NotProven):
        identity.document(brought, TRUSTED)
    both = identity.certificates(certificate("somebody") + certificate())
    assert identity.document(proof(document(VM)), both).instance == VM
    with pytest.raises(NotProven):
        identity.document(proof(document(VM)), ())


def test_a_certificate_is_read_once_for_all_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    identity.document(proof(document(VM)), TRUSTED)

    def again(pem: bytes) -> None:
        raise AssertionError("it was read before")

    monkeypatch.setattr(x509, "load_pem_x509_certificate", again)
    assert identity.document(proof(document(VM)), TRUSTED).instance == VM


def test_a_signer_who_calls_himself_the_same_is_refused() -> None:
    """Issuer and number are no proof: the signature is."""
    message = signed(document(VM), "double")
    key, own = signer("double")
    wrong = rsa.generate_private_key(65537, 2048)
    assert key.public_key() != wrong.public_key()
    forged = own.public_bytes(serialization.Encoding.PEM)
    said = cms.read(message)
    assert said.issuer == own.issuer.public_bytes()
    assert cms.verified(message, [forged]) == document(VM)
    tampered = message.replace(said.signature, wrong.sign(said.signed, *_padding()))
    with pytest.raises(cms.Malformed):
        cms.verified(tampered, [forged])


def _padding() -> tuple[object, object]:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    return padding.PKCS1v15(), hashes.SHA256()


@pytest.mark.parametrize("options", [(Options.NoCerts,), (Options.NoCerts, Options.NoAttributes), ()], ids=str)
def test_messages_with_and_without_attributes_and_certificates(options: tuple[Options, ...]) -> None:
    assert cms.verified(signed(document(VM), "EC2", *(options or (Options.NoCapabilities,))), TRUSTED) == document(VM)


def indefinite(message: bytes, pieces: int = 1) -> bytes:
    """The same message as EC2's own are written: outer parts of indefinite length, the content in pieces."""
    outer, _ = cms._node(message, 0, 12)
    kind, held = outer.parts
    version, digests, encapsulated, *rest = held.parts[0].parts
    what, body = encapsulated.parts
    content = body.parts[0].body
    step = -(-len(content) // pieces)
    strings = b"".join(_definite(0x04, content[at : at + step]) for at in range(0, len(content), step))
    inner = _open(0xA0, _open(0x24, strings))
    signed_data = version.whole + digests.whole + _open(0x30, what.whole + inner) + b"".join(r.whole for r in rest)
    return _open(0x30, kind.whole + _open(0xA0, _open(0x30, signed_data)))


def _open(tag: int, body: bytes) -> bytes:
    return bytes([tag, 0x80]) + body + b"\0\0"


def _definite(tag: int, body: bytes) -> bytes:
    size = len(body)
    return bytes([tag]) + (bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")) + body


@pytest.mark.parametrize("pieces", [1, 3])
def test_indefinite_lengths_are_read(pieces: int) -> None:
    """EC2's messages begin with 30 80 06 09, an indefinite length, and have their content in an open string."""
    message = indefinite(signed(document(VM)), pieces)
    assert message[:4] == b"\x30\x80\x06\x09"
    assert cms.verified(message, TRUSTED) == document(VM)
    assert identity.document(base64.b64encode(message).decode(), TRUSTED).instance == VM


@pytest.mark.parametrize("form", ["definite", "indefinite"])
def test_no_changed_byte_changes_what_is_believed(form: str) -> None:
    """Each byte in turn is another, or the message ends there: it is refused, or says the same as before."""
    plain = signed(document(VM))
    message = plain if form == "definite" else indefinite(plain)
    chance = random.Random(3)
    for at in range(len(message)):
        for changed in (
            message[:at] + bytes([message[at] ^ (1 + chance.randrange(255))]) + message[at + 1 :],
            message[:at],
        ):
            try:
                assert cms.verified(changed, TRUSTED) == document(VM)
            except cms.Malformed:
                continue


def test_what_is_put_together_from_two_messages_proves_neither() -> None:
    one, two = cms.read(signed(document(VM))), cms.read(signed(document("i-0fedcba9876543210")))
    message = signed(document(VM))
    for mixed in (
        message.replace(one.content, two.content),
        message.replace(one.signature, two.signature),
        message.replace(one.digest or b"", two.digest or b""),
        message.replace(one.content, two.content).replace(one.digest or b"", two.digest or b""),
    ):
        assert mixed != message
        with pytest.raises(cms.Malformed):
            cms.verified(mixed, TRUSTED)


@pytest.mark.parametrize(
    "noise",
    [
        b"", b"\x30", b"\x30\x80", b"\x30\x80" * 5000, b"\x30\x84\xff\xff\xff\xff", b"\x1f\x1f\x01\x00",
        b"\x30\x00", b"\0" * 99,
    ],
    ids=lambda noise: noise[:4].hex(),
)  # fmt: skip
def test_nonsense_is_malformed_and_nothing_else(noise: bytes) -> None:
    """Whatever a stranger sends: no other exception, no endless depth."""
    with pytest.raises(cms.Malformed):
        cms.verified(noise, TRUSTED)
    with pytest.raises(NotProven):
        identity.document(base64.b64encode(noise).decode(), TRUSTED)


def test_chance_is_malformed_and_nothing_else() -> None:
    chance = random.Random(11)
    message = signed(document(VM))
    for _ in range(2000):
        cut = bytearray(message)
        for _ in range(chance.randrange(1, 12)):
            cut[chance.randrange(len(cut))] = chance.randrange(256)
        try:
            assert cms.verified(bytes(cut), TRUSTED) == document(VM)
        except cms.Malformed:
            continue


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"nonsense", b"\xff\xfe", b"{}", json.dumps({"instanceId": VM}).encode(), document(VM, "yesterday")],
    ids=["nothing", "list", "text", "bytes", "empty", "id only", "time"],
)
def test_a_signed_text_that_is_no_document_proves_nothing(content: bytes) -> None:
    with pytest.raises(NotProven):
        identity.document(proof(content), TRUSTED)


@pytest.mark.parametrize(
    "wrong", [{"account": "210987654321"}, {"region": "us-west-2"}, {"since_ms": PENDING_MS + 1}], ids=str
)
def test_an_instance_of_others_elsewhere_or_from_before_is_refused(wrong: dict[str, object]) -> None:
    said = identity.document(proof(document(VM)), TRUSTED)
    right: dict[str, object] = {"account": ACCOUNT, "region": REGION, "since_ms": PENDING_MS}
    identity.check(said, **right)  # type: ignore[arg-type]
    with pytest.raises(NotProven):
        identity.check(said, **{**right, **wrong})  # type: ignore[arg-type]


def test_certificates_come_as_text_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "us-east-1.pem"
    file.write_text("RSA-2048, us-east-1\n" + certificate() + certificate("new"))
    assert identity.certificates(str(file)) == identity.certificates(certificate() + certificate("new"))
    assert len(identity.certificates(str(file))) == 2
    assert identity.certificates("") == ()


def test_a_certificate_that_is_none_or_too_weak_is_refused_at_once(tmp_path: Path) -> None:
    """The region's certificate for `signature`, of 1,024 bits, stands on the same page: it is refused."""
    weak = tmp_path / "weak.pem"
    weak.write_bytes(_weak())
    for said in (str(tmp_path / "none.pem"), str(weak), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"):
        with pytest.raises(ValueError, match="expected"):
            identity.certificates(said)


def _weak() -> bytes:
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "weak")])
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(day).not_valid_after(day + datetime.timedelta(days=99))
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
