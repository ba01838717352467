"""Proofs of identity: EC2's signed instance identity document. Owns what a proof has to say, and of whom.

It is the one of `/latest/dynamic/instance-identity/rsa2048`: the document inside a signed message (RSA-2048, SHA-256).
Of the three that EC2 has, `pkcs7` is signed with DSA over SHA-1, and `signature` is a bare one by a key of 1,024 bits
that would need the document brought beside it
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/verify-iid.html). The certificates are public and of a region each:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/regions-certs.html.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cloud_dispatch.provider.cms import Malformed, verified
from cloud_dispatch.provider.errors import NotProven

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_MOST_CHARACTERS = 32_768
_LEAST_BITS = 2048
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True, slots=True)
class Document:
    """What EC2 says of an instance. `pending_ms`: when it was last started."""

    instance: str
    account: str
    region: str
    pending_ms: int


def certificates(said: str) -> tuple[bytes, ...]:
    """Those of the setting `identity_certificate`: PEM, or a file of it; none for nothing. ValueError for others, and
    for keys that EC2's RSA-2048 certificates do not have."""
    if not said:
        return ()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import rsa

    try:
        text = said if _BEGIN in said else Path(said).expanduser().read_text(encoding="ascii")
        found = tuple(
            f"{_BEGIN}{part.partition(_END)[0]}{_END}\n".encode() for part in text.split(_BEGIN)[1:] if _END in part
        )
        keys = [x509.load_pem_x509_certificate(one).public_key() for one in found]
    except OSError as error:
        raise ValueError(f"expected a file that can be read: {error.strerror}") from None
    except ValueError:
        raise ValueError("expected a certificate in PEM, or a file of it") from None
    if not found or not all(isinstance(key, rsa.RSAPublicKey) and key.key_size >= _LEAST_BITS for key in keys):
        raise ValueError("expected the region's RSA-2048 certificate in PEM")
    return found


def document(proof: str, trusted: tuple[bytes, ...]) -> Document:
    """What `proof` says, signed by one of the certificates; NotProven otherwise."""
    if len(proof) > _MOST_CHARACTERS:
        raise NotProven("it is too long for a proof")
    try:
        message = base64.b64decode("".join(proof.split()).encode("ascii"), validate=True)
        values = json.loads(verified(message, trusted))
        moment = str(values["pendingTime"])
        if not _MOMENT.fullmatch(moment):
            raise NotProven("its document has no time")
        pending = datetime.strptime(moment, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        said = Document(
            str(values["instanceId"]), str(values["accountId"]), str(values["region"]), int(pending.timestamp()) * 1000
        )
    except Malformed as error:
        raise NotProven(str(error)) from None
    except (binascii.Error, UnicodeError, ValueError, KeyError, TypeError, RecursionError):
        raise NotProven("it is no signed document of an instance") from None
    return said


def check(said: Document, *, account: str, region: str, since_ms: int) -> None:
    """NotProven for an instance of somebody else's, of another region, or started before `since_ms`."""
    if said.account != account:
        raise NotProven(f"it is of account {said.account}")
    if said.region != region:
        raise NotProven(f"it is of region {said.region}")
    if said.pending_ms < since_ms:
        raise NotProven("it is older than the launch")
