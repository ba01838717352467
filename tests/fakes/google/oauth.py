"""Google's tokens: what an access token is good for, the endpoint that gives them, JWTs signed by service accounts.

A client library may sign a JWT itself and send that as its token (that is what the SDKs do by themselves), or trade one
for an access token at the endpoint. Both are here.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

_MAKING = threading.Lock()
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def key_of(name: str, bits: int = 1024) -> rsa.RSAPrivateKey:
    """The key of this name, made once a process, whichever threads ask for it first. To read one of 2048 bits from a
    key file, as each driver's SDK does, takes 35 ms: a third of many a test. Nobody looks how long an account's is."""
    with _MAKING:
        return _made(name, bits)


@cache
def _made(name: str, bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def pem_of(key: rsa.RSAPrivateKey) -> str:
    """As key files have it."""
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, plain).decode()


def _packed(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def signed(key: rsa.RSAPrivateKey, key_id: str, claims: Mapping[str, Any]) -> str:
    """A JWT with these claims."""
    head = {"alg": "RS256", "kid": key_id, "typ": "JWT"}
    text = f"{_packed(json.dumps(head).encode())}.{_packed(json.dumps(claims).encode())}"
    return f"{text}.{_packed(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def claims_of(key: rsa.RSAPrivateKey, token: str) -> dict[str, Any] | None:
    """What a JWT says that the key signed and that is still good; None for others."""
    try:
        head, body, signature = token.split(".")
        key.public_key().verify(
            _unpacked(signature), f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256()
        )  # fmt: skip
        claims: dict[str, Any] = json.loads(_unpacked(body))
    except (ValueError, InvalidSignature):
        return None
    return claims if claims.get("exp", 0) > time.time() else None


class Refused(Exception):
    """The endpoint gives no token."""


class Tokens:
    """Who may ask. `life_ms`: how long an access token is good, by the fake's clock."""

    def __init__(self, accounts: tuple[str, ...], life_ms: int) -> None:
        self._accounts, self._life_ms = accounts, life_ms
        self._given: dict[str, tuple[str, int]] = {}
        self._made = 0
        #: Accounts whose key is refused from now on.
        self.revoked: set[str] = set()
        #: JWTs that are signed by an account itself and are refused from now on.
        self._stale_jwts: set[str] = set()
        self._seen_jwts: set[str] = set()

    def give(self, form: bytes, now: int) -> dict[str, Any]:
        """The endpoint's answer to a form with a signed JWT."""
        fields = {name: values[0] for name, values in parse_qs(form.decode()).items()}
        account = self._signer(fields.get("assertion", ""))
        if fields.get("grant_type") != _GRANT or not account:
            raise Refused("invalid_grant")
        return {"access_token": self.new(account, now), "expires_in": self._life_ms // 1000, "token_type": "Bearer"}

    def new(self, account: str, now: int, life_ms: int = 0) -> str:
        """An access token of this account, good for as long as all are or for this long."""
        self._made += 1
        token = f"ya29.fake-{self._made:08d}"
        self._given[token] = (account, now + (life_ms or self._life_ms))
        return token

    def revoke_all(self) -> None:
        """No token that was given or seen is good any more; new ones are."""
        self._given.clear()
        self._stale_jwts |= self._seen_jwts

    def caller(self, header: str, now: int) -> str | None:
        """Whose token it is; None where it is not good."""
        kind, _, token = header.partition(" ")
        if kind != "Bearer":
            return None
        account, until = self._given.get(token, ("", 0))
        if account:
            return account if now < until and account not in self.revoked else None
        if token in self._stale_jwts:
            return None
        account = self._signer(token)
        if account:
            self._seen_jwts.add(token)
        return account or None

    def _signer(self, token: str) -> str:
        for account in self._accounts:
            claims = claims_of(key_of(account), token) if account not in self.revoked else None
            if claims is not None and claims.get("iss") == account:
                return account
        return ""


def key_file(account: str, project: str, token_uri: str) -> dict[str, str]:
    """What a service account's key file says."""
    return {
        "type": "service_account", "project_id": project, "private_key_id": "fake", "client_email": account,
        "private_key": pem_of(key_of(account)), "client_id": "1", "token_uri": token_uri,
        "universe_domain": "googleapis.com",
    }  # fmt: skip
