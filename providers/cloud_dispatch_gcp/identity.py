"""Proofs of identity: tokens that Google signs for a VM. Owns what a token has to say, and by whose key.

Of the kind `format=full`: beside the service account it names the VM, which no other token of that account does
(https://cloud.google.com/compute/docs/instances/verifying-instance-identity).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from cloud_dispatch.provider.errors import NotProven, ProviderError, Transient
from cloud_dispatch_gcp.settings import ZONE

CERTIFICATES_HOST, CERTIFICATES_PATH = "https://www.googleapis.com", "/oauth2/v1/certs"
_ISSUERS = frozenset({"https://accounts.google.com", "accounts.google.com"})
_MOST_CHARACTERS = 16_384
_LEAST_BITS = 2048
#: Google changes its keys every few days, and shows a new one before it signs with it.
_KEYS_MS = 6 * 3_600_000
#: A key that is not known is looked for so often at most, whoever sends how many tokens.
_PAUSE_MS = 60_000
#: What clocks may differ by.
_SKEW_MS = 300_000
_ZONE, _NAME = re.compile(ZONE), re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Token:
    """What Google says of a VM. `made_ms`: when the token was made; `created_ms`: the VM."""

    audience: str
    project: str
    zone: str
    name: str
    made_ms: int
    created_ms: int
    ends_ms: int


class Keys:
    """Google's public keys by their names, asked for when they are old or one is missing, and not more often."""

    def __init__(self, ask: Callable[[], Awaitable[Any]], now: Callable[[], int]) -> None:
        self._ask = ask
        self._now = now
        self._known: dict[str, rsa.RSAPublicKey] = {}
        self._asked_ms = self._good_ms = -_KEYS_MS
        self._asking = False

    async def get(self, name: str) -> rsa.RSAPublicKey:
        """NotProven for a name that Google does not have; Transient where it can't be known now."""
        now = self._now()
        old = now - self._good_ms >= _KEYS_MS
        if old or name not in self._known:
            if now - self._asked_ms >= _PAUSE_MS and not self._asking:
                await self._refresh(now)
            elif old or self._asking:
                raise Transient("Google's keys can't be had now")
        if now - self._good_ms >= _KEYS_MS:
            raise Transient("Google's keys can't be had now")
        if name not in self._known:
            raise NotProven("no key of Google's has that name")
        return self._known[name]

    async def _refresh(self, now: int) -> None:
        self._asked_ms, self._asking = now, True
        try:
            self._known = keys(await self._ask())
            self._good_ms = now
        except ProviderError as error:
            raise Transient(f"Google's keys: {error.message}") from error
        finally:
            self._asking = False


def keys(said: Any) -> dict[str, rsa.RSAPublicKey]:
    """Keys as Google tells them: certificates in PEM by their names. Others than RSA of 2,048 bits are left out."""
    found = {}
    for name, text in said.items() if isinstance(said, Mapping) else ():
        try:
            key = x509.load_pem_x509_certificate(str(text).encode()).public_key()
        except ValueError:
            continue
        if isinstance(key, rsa.RSAPublicKey) and key.key_size >= _LEAST_BITS:
            found[str(name)] = key
    if not found:
        raise Transient("Google's keys: the answer has none")
    return found


async def token(proof: str, known: Keys) -> Token:
    """What `proof` says, signed by one of Google's keys; NotProven otherwise."""
    parts = proof.strip().split(".")
    if len(proof) > _MOST_CHARACTERS or len(parts) != 3:
        raise NotProven("it is no token")
    header, claims = _object(parts[0]), _object(parts[1])
    if header.get("alg") != "RS256" or not isinstance(header.get("kid"), str):
        raise NotProven("it is not signed as Google signs")
    signature = _decoded(parts[2])
    key = await known.get(header["kid"])
    try:
        key.verify(signature, f"{parts[0]}.{parts[1]}".encode(), padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        raise NotProven("its signature is not Google's") from None
    return _said(claims)


def check(said: Token, *, audience: str, project: str, since_ms: int, now_ms: int) -> None:
    """NotProven for a token that is made out to somebody else, of another project, or too old."""
    if said.audience != audience:
        raise NotProven("it is made out to somebody else")
    if said.project != project:
        raise NotProven(f"it is of project {said.project}")
    if said.made_ms < since_ms or said.created_ms < since_ms:
        raise NotProven("it is older than the launch")
    if said.ends_ms + _SKEW_MS < now_ms:
        raise NotProven("it has expired")


def _said(claims: Mapping[str, Any]) -> Token:
    try:
        if claims["iss"] not in _ISSUERS:
            raise NotProven("it is not issued by Google")
        vm = claims["google"]["compute_engine"]
        made = Token(
            str(claims["aud"]), str(vm["project_id"]), str(vm["zone"]), str(vm["instance_name"]),
            _seconds(claims["iat"]), _seconds(vm["instance_creation_timestamp"]), _seconds(claims["exp"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        raise NotProven("it does not say which VM it is of") from None
    if not _ZONE.fullmatch(made.zone) or not _NAME.fullmatch(made.name):
        raise NotProven("it does not say which VM it is of")
    return made


def _seconds(said: Any) -> int:
    if type(said) is not int or not 0 <= said < 2**40:
        raise ValueError(said)
    return said * 1000


def _object(part: str) -> dict[str, Any]:
    try:
        found = json.loads(_decoded(part))
    except (ValueError, RecursionError):
        raise NotProven("it is no token") from None
    if not isinstance(found, dict):
        raise NotProven("it is no token")
    return found


def _decoded(part: str) -> bytes:
    """Base64 of URLs without padding, and nothing else: of one signature there is one text."""
    try:
        found = base64.b64decode(part.encode("ascii") + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
        if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != part:
            raise NotProven("it is no token")
    except (binascii.Error, UnicodeError, ValueError):
        raise NotProven("it is no token") from None
    return found
