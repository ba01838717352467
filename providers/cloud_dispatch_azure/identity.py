"""Proofs of identity: the attested document of Azure's metadata service. Owns what a proof has to say, and of whom.

The document is inside a signed message (RSA, SHA-256) that brings its signer's certificate along. Azure changes that
one every few months, so that what is trusted are those who issue it, which the operator gives; its name has to be
metadata.azure.com or one below it ("Attested data" and "Certificate pinning" of
https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_dispatch.provider.cms import Malformed, Signed, checked, names, read
from cloud_dispatch.provider.errors import NotProven

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_MOST_CHARACTERS = 32_768
#: Certificates that a message may bring.
_MOST_BROUGHT = 8
_MOST_OF_A_NAME = 200
SIGNER = "metadata.azure.com"
_FORMS = ("%m/%d/%y %H:%M:%S %z", "%m/%d/%Y %H:%M:%S %z")


@dataclass(frozen=True, slots=True)
class Document:
    """What Azure says of a VM, and from when to when."""

    vm_id: str
    subscription: str
    nonce: str
    created_ms: int
    expires_ms: int


def certificates(said: str) -> tuple[bytes, ...]:
    """Those of the setting `identity_certificates`: PEM, or a file of it; none for nothing. ValueError for others."""
    if not said:
        return ()
    from cryptography import x509

    try:
        text = said if _BEGIN in said else Path(said).expanduser().read_text(encoding="ascii")
        found = tuple(
            f"{_BEGIN}{part.partition(_END)[0]}{_END}\n".encode() for part in text.split(_BEGIN)[1:] if _END in part
        )
        for one in found:
            x509.load_pem_x509_certificate(one)
    except OSError as error:
        raise ValueError(f"expected a file that can be read: {error.strerror}") from None
    except ValueError:
        raise ValueError("expected certificates in PEM, or a file of them") from None
    if not found:
        raise ValueError("expected certificates in PEM")
    return found


def ended(trusted: tuple[bytes, ...], now_ms: int) -> list[str]:
    """Whose certificates are not good any more: they vouch for nobody."""
    return [
        one.subject.rfc4514_string() for one in _loaded(trusted) if one.not_valid_after_utc.timestamp() * 1000 < now_ms
    ]


def document(proof: str, trusted: tuple[bytes, ...], now_ms: int) -> Document:
    """What `proof` says (the metadata service's answer), signed by Azure; NotProven otherwise."""
    if len(proof) > _MOST_CHARACTERS:
        raise NotProven("it is too long for a proof")
    try:
        answer = json.loads(proof)
        message = base64.b64decode("".join(str(answer["signature"]).split()).encode("ascii"), validate=True)
        values = json.loads(_verified(message, trusted, now_ms))
        stamps = values["timeStamp"]
        return Document(
            str(values["vmId"]).lower(),
            str(values["subscriptionId"]).lower(),
            str(values["nonce"]),
            _moment(str(stamps["createdOn"])),
            _moment(str(stamps["expiresOn"])),
        )
    except Malformed as error:
        raise NotProven(str(error)) from None
    except (binascii.Error, UnicodeError, ValueError, KeyError, TypeError, RecursionError):
        raise NotProven("it is no attested document of a VM") from None


def check(said: Document, *, subscription: str, nonce: str, since_ms: int, now_ms: int) -> None:
    """NotProven for a VM of somebody else's, what was made out to another batch, before `since_ms`, or has expired."""
    if said.subscription != subscription.lower():
        raise NotProven(f"it is of subscription {said.subscription}")
    if said.nonce != nonce:
        raise NotProven("it is not made out to this batch")
    if said.created_ms < since_ms:
        raise NotProven("it is older than the launch")
    if said.expires_ms < now_ms:
        raise NotProven("it has expired")


def _verified(message: bytes, trusted: tuple[bytes, ...], now_ms: int) -> bytes:
    """The content, signed by one whom those in `trusted` vouch for."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    said = read(message)
    if len(said.certificates) > _MOST_BROUGHT:
        raise Malformed("it brings too many certificates")
    try:
        brought = [x509.load_der_x509_certificate(one) for one in said.certificates]
        signer = _signer(said, [*brought, *_loaded(trusted)])
        others = [one for one in brought if one != signer]
        if not _vouched(signer, others, _loaded(trusted), now_ms):
            # Azure changes issuers without a word: who reads this has to know whose certificate is missing.
            issuer = signer.issuer.rfc4514_string()[:_MOST_OF_A_NAME]
            raise Malformed(
                f"it is signed by nobody whom the certificates here vouch for: its signer's is by {issuer!r}"
            )
        return checked(said, signer)
    except UnsupportedAlgorithm:  # of a certificate that somebody has made up
        raise Malformed("it brings a certificate of a kind that is not known here") from None


def _signer(said: Signed, known: Sequence[Certificate]) -> Certificate:
    for certificate in known:
        if names(said, certificate):
            return certificate
    raise Malformed("its signer's certificate is missing")


def _vouched(signer: Certificate, others: Sequence[Certificate], trusted: Sequence[Certificate], now_ms: int) -> bool:
    """Whether `signer` is Azure's metadata service, by a chain that ends at one of `trusted` and is good now."""
    from cryptography.x509 import DNSName
    from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

    name = _name(signer)
    if not name or not trusted:
        return False
    if signer in trusted:  # the operator has named this very one
        return signer.not_valid_before_utc.timestamp() * 1000 <= now_ms <= signer.not_valid_after_utc.timestamp() * 1000
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    verifier = PolicyBuilder().store(Store(list(trusted))).time(moment).build_server_verifier(DNSName(name))
    try:
        verifier.verify(signer, list(others))
    except VerificationError:
        return False
    return True


def _name(signer: Certificate) -> str:
    """The name of the metadata service that the certificate is for, "" for none."""
    from cryptography import x509

    try:
        said = signer.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ""
    for name in said.get_values_for_type(x509.DNSName):
        plain = name.lower().removeprefix("*.")
        if plain == SIGNER or plain.endswith(f".{SIGNER}"):
            return f"any.{plain}" if name.startswith("*.") else plain
    return ""


@lru_cache(maxsize=8)
def _loaded(pems: tuple[bytes, ...]) -> tuple[Certificate, ...]:
    """The same few are asked for with every proof."""
    from cryptography import x509

    return tuple(x509.load_pem_x509_certificate(one) for one in pems)


def _moment(text: str) -> int:
    for form in _FORMS:
        try:
            return int(datetime.strptime(text, form).astimezone(UTC).timestamp() * 1000)
        except ValueError:
            continue
    raise ValueError(text)
