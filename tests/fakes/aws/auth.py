"""Who calls: signatures of version 4, keys, and the credentials that STS hands out. What may be done is elsewhere."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qsl, quote, urlsplit

from tests.fakes.aws.errors import AwsError

_HEADER = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<day>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, ?"
    r"SignedHeaders=(?P<signed>[^,]+), ?Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class Key:
    """An access key. `expires_ms` 0 is for ever; `token` goes with the keys that STS hands out."""

    id: str
    secret: str
    account: str
    arn: str
    user_id: str = "AIDAFAKEUSER0000"
    token: str = ""
    expires_ms: int = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """A request's signer, and the service and region that the signature is for."""

    key: Key
    service: str
    region: str


def scope_of(headers: Mapping[str, str]) -> re.Match[str] | None:
    """The credential scope of a signed request."""
    return _HEADER.fullmatch(headers.get("authorization", ""))


def caller_of(
    keys: Mapping[str, Key], method: str, target: str, headers: Mapping[str, str], body: bytes, now: int
) -> Caller:
    """Who signed this request, or an error in the words of EC2."""
    scope = scope_of(headers)
    if scope is None:
        raise AwsError("MissingAuthenticationToken", "Request is missing Authentication Token", 403)
    service = scope["service"]
    key = keys.get(scope["key"])
    token = headers.get("x-amz-security-token", "")
    if key is None or key.token != token:
        raise _refused(service, "AuthFailure", "AWS was not able to validate the provided access credentials")
    if key.expires_ms and now >= key.expires_ms:
        raise _refused(service, "RequestExpired", "Request has expired.")
    if not hmac.compare_digest(_signature(key, scope, method, target, headers, body), scope["signature"]):
        raise _refused(service, "AuthFailure", "AWS was not able to validate the provided access credentials")
    return Caller(key, service, scope["region"])


#: What the services other than EC2 call it.
_ELSEWHERE = {"RequestExpired": "ExpiredTokenException", "AuthFailure": "UnrecognizedClientException"}
_STS = {"RequestExpired": "ExpiredToken", "AuthFailure": "InvalidClientTokenId"}


def _refused(service: str, code: str, message: str) -> AwsError:
    if service == "ec2":
        return AwsError(code, message)
    return AwsError((_STS if service == "sts" else _ELSEWHERE)[code], message)


def _signature(
    key: Key, scope: re.Match[str], method: str, target: str, headers: Mapping[str, str], body: bytes
) -> str:  # fmt: skip
    parts = urlsplit(target)
    query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(parse_qsl(parts.query, keep_blank_values=True))
    )
    signed = scope["signed"].split(";")
    lines = [f"{name}:{' '.join(headers.get(name, '').split())}" for name in signed]
    hashed = hashlib.sha256(body).hexdigest()
    canonical = "\n".join((method, parts.path or "/", query, *lines, "", scope["signed"], hashed))
    place = f"{scope['day']}/{scope['region']}/{scope['service']}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", headers.get("x-amz-date", ""), place, digest))
    return _hmac(_signing_key(key.secret, scope["day"], scope["region"], scope["service"]), text).hex()


@lru_cache(maxsize=256)
def _signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    made = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        made = _hmac(made, part)
    return made


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
