"""Raw ASGI in small pieces: read a body within its limit, answer, and turn an error into its status and body.

Owns how errors look from outside. Must not know any route.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from cloud_dispatch.domain.errors import (
    Conflict,
    Denied,
    DispatchError,
    InvalidInput,
    NotFound,
    StoreUnavailable,
    Unavailable,
)
from cloud_dispatch.wire import codec
from cloud_dispatch.wire.messages import ErrorReply

Header = tuple[bytes, bytes]

log = structlog.get_logger("cloud_dispatch.api")
_JSON = (b"content-type", b"application/json")
#: Longer numbers are none that anything here could have.
_DIGITS = 18
#: So much of a key, and of where it stands, is shown.
_SHOWN, _PLACE = 80, 400
_AT = re.compile(r" - at `\$\.?([^`]*)`$")


class TooLarge(InvalidInput):
    """A body, file or chunk is larger than its limit."""

    code = "too-large"


class Unauthenticated(Denied):
    """No token, or not one of ours."""


class MethodNotAllowed(InvalidInput):
    """The route is there, but not for this method; `allowed` are those that it is for."""

    code = "method-not-allowed"

    def __init__(self, message: str, *, allowed: Sequence[str]) -> None:
        super().__init__(message, place="method", hint=f"methods here: {', '.join(allowed)}")
        self.allowed = allowed


class Gap(Conflict):
    """A chunk starts past the end of what is stored; `expected` is the offset to continue at."""

    code = "gap"

    def __init__(self, message: str, *, expected: int) -> None:
        super().__init__(message, place="offset", hint=f"continue at offset {expected}")
        self.expected = expected


class ClientGone(Exception):
    """The client closed its connection: there is nobody to answer."""


_STATUS: Mapping[type[DispatchError], int] = {
    TooLarge: 413,
    MethodNotAllowed: 405,
    InvalidInput: 400,
    Unauthenticated: 401,
    Denied: 403,
    NotFound: 404,
    Conflict: 409,
    StoreUnavailable: 507,
    Unavailable: 503,
}


def status_of(error: DispatchError) -> int:
    """The HTTP status of `error`: that of its nearest class; 500 for what is a programmer's error."""
    return next((_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS), 500)


def describe_failure(error: Exception, place: str) -> tuple[int, bytes, tuple[Header, ...]]:
    """Status, body and headers that answer `error`; what nobody foresaw is logged and told without its internals."""
    if isinstance(error, DispatchError):
        status = status_of(error)
        if status != 500:
            reply = ErrorReply(error.code, error.message, error.place, error.hint)
            return status, codec.encode(reply), _headers_of(error, status)
    log.error("api.failed", place=place, error=repr(error), exc_info=error)
    hint = "the dispatcher's log has the details, look for api.failed"
    return 500, codec.encode(ErrorReply("internal", "the dispatcher failed on this request", place, hint)), ()


def _headers_of(error: DispatchError, status: int) -> tuple[Header, ...]:
    if isinstance(error, Gap):
        return ((b"x-offset", str(error.expected).encode()),)
    if isinstance(error, MethodNotAllowed):
        return ((b"allow", ", ".join(error.allowed).encode()),)
    if status == 401:
        return ((b"www-authenticate", b"Bearer"),)
    if status in (503, 507):
        return ((b"retry-after", b"1"),)
    if status == 413:  # the rest of the body is not worth reading
        return ((b"connection", b"close"),)
    return ()


async def answer(
    send: Send, body: bytes, *, status: int = 200, content: Header = _JSON, headers: Sequence[Header] = ()
) -> None:
    """Send one whole response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [content, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def answer_failure(send: Send, error: Exception, place: str) -> None:
    """Send the answer to `error`."""
    status, body, headers = describe_failure(error, place)
    await answer(send, body, status=status, headers=headers)


def header(scope: Scope, name: bytes) -> bytes:
    """The value of header `name` (lower case), b"" when it is not there."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


def declared_length(scope: Scope) -> int:
    """How many bytes the client itself says that its body has; 0 where it does not."""
    declared = header(scope, b"content-length")
    if not declared.isdigit():
        return 0
    return int(declared) if len(declared) <= _DIGITS else 10**_DIGITS


def check_length(scope: Scope, limit: int) -> None:
    """TooLarge when the client itself says that its body is larger than `limit` bytes."""
    if declared_length(scope) > limit:
        raise too_large(limit)


def too_large(limit: int) -> TooLarge:
    """What answers a body of more than `limit` bytes."""
    return TooLarge(f"the body is larger than the limit of {limit} bytes", place="body", hint="send less at a time")


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, at most `limit` bytes: TooLarge as soon as there are more, ClientGone if the client leaves."""
    message = await receive()
    if message["type"] != "http.request":
        raise ClientGone
    body: bytes = message.get("body", b"")
    if len(body) > limit:
        raise too_large(limit)
    if not message.get("more_body", False):
        return body
    check_length(scope, limit)
    parts, size = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise too_large(limit)
        parts.append(part)
    return b"".join(parts)


def invalid_json(error: Exception) -> InvalidInput:
    """InvalidInput with the place that msgspec found wrong."""
    text = str(error)
    found = _AT.search(text)
    hint = "expected JSON as docs/reference/rest-api.md describes it"
    if found is None:
        return InvalidInput(text, place="body", hint=hint)
    return InvalidInput(text[: found.start()], place=found[1] or "body", hint=hint)


def decode_json(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """`body` decoded; InvalidInput with its place for what does not fit."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise invalid_json(error) from None


def decode_exact(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """As `decode_json`, for what people and their programs write: InvalidInput for a key that is there twice, too, of
    which any decoder would take the last and leave out the rest. A quarter of what a submission's parsing takes."""
    value = decode_json(decoder, body)
    try:
        _ONCE.decode(body.decode())
    except _KeyTwice:
        place = _place_twice(_MARKED.decode(body.decode()))
        raise InvalidInput("a key is there twice", place=place[-_PLACE:], hint="say it once") from None
    except RecursionError as error:
        raise invalid_json(error) from None
    return value


class _KeyTwice(Exception):
    """An object with `key` twice: raised, or in its place."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _KeyTwice(next(key for key in keys if keys.count(key) > 1))
    return found


def _marked(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _KeyTwice:
    try:
        return _once(pairs)
    except _KeyTwice as twice:
        return twice


#: Only the keys are looked at: a number as its text costs nothing, and may have any length.
_ONCE = json.JSONDecoder(object_pairs_hook=_once, parse_int=str, parse_float=str)
_MARKED = json.JSONDecoder(object_pairs_hook=_marked, parse_int=str, parse_float=str)


def _place_twice(value: Any) -> str:
    """Where in `value` the first key is that is there twice; no deeper than memory goes, as its calls would be."""
    stack = [(value, "")]
    while stack:
        one, place = stack.pop()
        if isinstance(one, _KeyTwice):
            return f"{place}.{one.key[:_SHOWN]}".lstrip(".")
        inner: list[tuple[Any, str]] = []
        if isinstance(one, list):
            inner = [(each, f"{place}[{at}]") for at, each in enumerate(one)]
        elif isinstance(one, dict):
            inner = [(each, f"{place}.{key[:_SHOWN]}") for key, each in one.items()]
        stack += reversed(inner)
    return "body"
