"""A signed message (CMS, RFC 5652), as far as clouds make them for proofs of identity. Owns the reading of its bytes
and the check of its signature, for the drivers; what the message says, and whose certificate counts, is theirs to say.

`cryptography` signs such messages and does not verify them. What is read here is a stranger's: every length is checked,
depth is bounded, and whatever is not exactly a message with its content, signed by one signer with RSA and SHA-256, is
refused. BER is read, not DER alone: EC2's messages have parts of indefinite length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_INTEGER, _OCTETS, _OID, _SEQUENCE, _SET = 0x02, 0x04, 0x06, 0x30, 0x31
_MADE_OF_OCTETS, _CONTEXT_0 = 0x24, 0xA0
_DEPTH = 12
_SIGNED_DATA = bytes.fromhex("2a864886f70d010702")
_DATA = bytes.fromhex("2a864886f70d010701")
_RSA_AND_SHA256 = bytes.fromhex("2a864886f70d01010b")
#: Azure's metadata service names the signature's algorithm in the digest's place.
_SHA256 = frozenset({bytes.fromhex("608648016503040201"), _RSA_AND_SHA256})
_RSA = frozenset({bytes.fromhex("2a864886f70d010101"), _RSA_AND_SHA256})
_CONTENT_TYPE = bytes.fromhex("2a864886f70d010903")
_MESSAGE_DIGEST = bytes.fromhex("2a864886f70d010904")


class Malformed(Exception):
    """These bytes are no such message, or its signature is not the signer's."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A value: its tag, the bytes of its content, and those of all of it."""

    tag: int
    body: bytes
    whole: bytes
    #: Of a constructed one.
    parts: tuple[_Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Signed:
    """A message before anybody has checked it. `signed` is what the signature is over: the content, or attributes
    that have its digest. `certificates`: those that it brings along (DER), which nobody has to believe."""

    content: bytes
    issuer: bytes
    serial: int
    digest: bytes | None
    signed: bytes
    signature: bytes
    certificates: tuple[bytes, ...] = ()


def verified(message: bytes, certificates: Sequence[bytes]) -> bytes:
    """The content of `message`, signed with the key of one of `certificates` (PEM); Malformed otherwise."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    said = read(message)
    for pem in certificates:
        certificate = _certificate(pem)
        if names(said, certificate) and isinstance(certificate.public_key(), rsa.RSAPublicKey):
            return checked(said, certificate)
    raise Malformed("it is signed by nobody whose certificate is here")


def names(said: Signed, certificate: Certificate) -> bool:
    """Whether the message calls this its signer's, which is no proof yet."""
    return (certificate.serial_number, certificate.issuer.public_bytes()) == (said.serial, said.issuer)


def checked(said: Signed, certificate: Certificate) -> bytes:
    """The content, signed with the key of `certificate`; Malformed otherwise."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    if said.digest is not None:
        hasher = hashes.Hash(hashes.SHA256())
        hasher.update(said.content)
        if hasher.finalize() != said.digest:
            raise Malformed("the content is not what was signed")
    key = certificate.public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise Malformed("expected a signature with RSA")
    try:
        key.verify(said.signature, said.signed, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        raise Malformed("the signature is not that of the certificate") from None
    return said.content


@lru_cache(maxsize=64)
def _certificate(pem: bytes) -> Certificate:
    """The same few are asked for with every proof."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem)


def read(message: bytes) -> Signed:
    """The parts of `message`; Malformed for anything else."""
    try:
        return _signed(message)
    except (IndexError, ValueError):
        raise Malformed("it is no signed message") from None


def _signed(message: bytes) -> Signed:
    outer, end = _node(message, 0, _DEPTH)
    kind, held = _of(outer, _SEQUENCE, 2)
    if end != len(message) or kind.body != _SIGNED_DATA:
        raise Malformed("it is no signed message")
    version, digests, encapsulated, *more = _of(_only(held, _CONTEXT_0), _SEQUENCE, 0)
    if _number(version) not in (1, 3) or any(_algorithm(one) not in _SHA256 for one in _of(digests, _SET, 1)):
        raise Malformed("expected one digest, SHA-256")
    what, body = _of(encapsulated, _SEQUENCE, 2)
    if what.body != _DATA:
        raise Malformed("expected plain data")
    content = _octets(_only(body, _CONTEXT_0))
    (signer,) = _of(more[-1], _SET, 1)
    brought = tuple(one.whole for field in more[:-1] if field.tag == _CONTEXT_0 for one in field.parts)
    _, who, digest, *rest = _of(signer, _SEQUENCE, 0)
    issuer, serial = _of(who, _SEQUENCE, 2)
    attributes = rest.pop(0) if rest[0].tag == _CONTEXT_0 else None
    algorithm, signature, *unsigned = rest
    if unsigned or _algorithm(digest) not in _SHA256 or _algorithm(algorithm) not in _RSA:
        raise Malformed("expected one signature, RSA with SHA-256")
    if signature.tag != _OCTETS:
        raise Malformed("expected a signature")
    if attributes is None:
        return Signed(content, issuer.whole, _number(serial), None, content, signature.body, brought)
    # What is signed of the attributes is their set, not the field that they stand in (RFC 5652, 5.4).
    signed = bytes([_SET]) + attributes.whole[1:]
    return Signed(content, issuer.whole, _number(serial), _digest(attributes), signed, signature.body, brought)


def _digest(attributes: _Node) -> bytes:
    """The digest that the attributes have of the content, which they must say is plain data."""
    if attributes.whole[1] == 0x80:
        raise Malformed("expected attributes in DER")
    values: dict[bytes, _Node] = {}
    for attribute in attributes.parts:
        name, held = _of(attribute, _SEQUENCE, 2)
        if name.body in values:
            raise Malformed("an attribute stands twice")
        values[name.body] = held
    (kind,), (digest,) = _of(values.get(_CONTENT_TYPE), _SET, 1), _of(values.get(_MESSAGE_DIGEST), _SET, 1)
    if kind.body != _DATA or digest.tag != _OCTETS:
        raise Malformed("expected the digest of plain data")
    return digest.body


def _of(node: _Node | None, tag: int, count: int) -> tuple[_Node, ...]:
    if node is None or node.tag != tag or (count and len(node.parts) != count):
        raise Malformed("it is no signed message")
    return node.parts


def _only(node: _Node, tag: int) -> _Node:
    return _of(node, tag, 1)[0]


def _algorithm(node: _Node) -> bytes:
    """Its identifier; parameters may only be NULL."""
    name, *parameters = _of(node, _SEQUENCE, 0)
    if name.tag != _OID or [one.whole for one in parameters] not in ([], [b"\x05\x00"]):
        raise Malformed("an algorithm with parameters")
    return name.body


def _number(node: _Node) -> int:
    if node.tag != _INTEGER or not node.body:
        raise Malformed("expected a number")
    return int.from_bytes(node.body, "big", signed=True)


def _octets(node: _Node) -> bytes:
    """A string of bytes, in one piece or in several."""
    if node.tag == _OCTETS:
        return node.body
    if node.tag != _MADE_OF_OCTETS or any(part.tag != _OCTETS for part in node.parts):
        raise Malformed("expected bytes")
    return b"".join(part.body for part in node.parts)


def _node(data: bytes, at: int, depth: int) -> tuple[_Node, int]:
    """The value that begins at `at`, and where it ends."""
    tag, first, start = data[at], data[at + 1], at + 2
    if depth == 0 or tag & 0x1F == 0x1F:
        raise Malformed("too deep, or a tag of several bytes")
    if first == 0x80:
        return _indefinite(data, at, tag, depth)
    length = first
    if first > 0x80:
        size = first & 0x7F
        if size > 4:
            raise Malformed("too long")
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    end = start + length
    if end > len(data):
        raise Malformed("it is cut short")
    body, parts = data[start:end], []
    if tag & 0x20:
        inner = 0
        while inner < len(body):
            part, inner = _node(body, inner, depth - 1)
            parts.append(part)
    return _Node(tag, body, data[at:end], tuple(parts)), end


def _indefinite(data: bytes, at: int, tag: int, depth: int) -> tuple[_Node, int]:
    """One that goes on until two zeros."""
    if not tag & 0x20:
        raise Malformed("a plain value without a length")
    inner, parts = at + 2, []
    while data[inner : inner + 2] != b"\0\0":
        part, inner = _node(data, inner, depth - 1)
        parts.append(part)
    return _Node(tag, data[at + 2 : inner], data[at : inner + 2], tuple(parts)), inner + 2
