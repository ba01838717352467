"""Identity tokens of instances, signed by a key of the fake's, and where its certificates are found."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from tests.fakes.gce.records import Instance
from tests.fakes.google.errors import Unmodelled
from tests.fakes.google.oauth import key_of, signed

KEY_ID = "fake-key-1"
_LIFE_S = 3600


def _key() -> Any:
    return key_of("accounts.google.com", 2048)


def identity_token(vm: Instance, audience: str, now_ms: int, *, full: bool) -> str:
    """What the metadata service answers for `identity?audience=...&format=full`."""
    email = next((one["email"] for one in vm.fixed.get("serviceAccounts", [])), "")
    claims: dict[str, Any] = {
        "iss": "https://accounts.google.com", "aud": audience, "azp": "110000000000000000001", "email": email,
        "sub": "110000000000000000001", "email_verified": True, "iat": now_ms // 1000, "exp": now_ms // 1000 + _LIFE_S,
    }  # fmt: skip
    if full:
        claims["google"] = {"compute_engine": {
            "project_id": vm.project, "project_number": vm.project_number, "zone": vm.zone, "instance_id": vm.id,
            "instance_name": vm.name, "instance_creation_timestamp": vm.created_ms // 1000,
            "instance_confidentiality": 0,
        }}  # fmt: skip
    return signed(_key(), KEY_ID, claims)


@cache
def _certificate() -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "federated-signon.system.gserviceaccount.com")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(_key().public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30)).sign(_key(), hashes.SHA256())
    )  # fmt: skip
    return made.public_bytes(serialization.Encoding.PEM).decode()


def certificates(path: str) -> dict[str, Any]:
    """Google's certificates, as PEM by key id, or as a set of JWKs."""
    if path == "/oauth2/v1/certs":
        return {KEY_ID: _certificate()}
    if path != "/oauth2/v3/certs":
        raise Unmodelled(f"path {path}")
    numbers = _key().public_key().public_numbers()

    def packed(number: int) -> str:
        raw = number.to_bytes((number.bit_length() + 7) // 8)
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    return {"keys": [{"kid": KEY_ID, "kty": "RSA", "alg": "RS256", "use": "sig",
                      "n": packed(numbers.n), "e": packed(numbers.e)}]}  # fmt: skip
