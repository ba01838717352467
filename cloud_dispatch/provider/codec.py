"""The SPI as bytes, for a driver in another process. Owns frames, and how calls, answers and errors are written.

A frame is four bytes of length and a body in msgpack. Types are read off the SPI's own annotations, so that a call
added there travels without a word here. Nothing that is decoded can run code.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from cloud_dispatch.provider import errors
from cloud_dispatch.provider.errors import InvalidRequest, ProviderError, Scope
from cloud_dispatch.provider.funnel import Call
from cloud_dispatch.provider.spi import Provider, Traits

#: A listing of 10,000 VMs takes about 4 MiB.
MAX_FRAME = 64 * 2**20
HEADER = 4
#: What is not an answer to a call: take one back, and let the driver go.
CANCEL, CLOSE = "cancel", "close"

_ERRORS: dict[str, type[ProviderError]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, ProviderError)
}


@dataclass(frozen=True, slots=True)
class Init:
    """The first frame to a child: which driver it is. `settings`: the profile's, as JSON values."""

    target: str
    profile: str
    settings: Any
    state_dir: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception. `kind`: a class of `provider.errors`, `ImportError` (`code` is the module), else a bug's class."""

    kind: str
    message: str
    code: str = ""
    scope: Scope = Scope()
    retry_after_ms: int = 0


@dataclass(frozen=True, slots=True)
class Hello:
    """The child's first frame: the driver was made, or why not."""

    traits: Traits | None = None
    failure: Failure | None = None


class Request(msgspec.Struct, frozen=True):
    """`call`: a `Call`, CANCEL (of the request with this number) or CLOSE. `args` in the order of the method's."""

    number: int
    call: str
    args: msgspec.Raw = msgspec.Raw(b"\x90")


class Reply(msgspec.Struct, frozen=True):
    """One a request, in any order."""

    number: int
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    failure: Failure | None = None


def frame(value: object) -> bytes:
    """`value` with its length before it; InvalidRequest where it is longer than a frame may be."""
    body = _ENCODER.encode(value)
    if len(body) > MAX_FRAME:
        raise InvalidRequest(f"{len(body)} bytes in one message to or from a driver, at most {MAX_FRAME}")
    return len(body).to_bytes(HEADER, "big") + body


def length(header: bytes) -> int:
    """What a frame's header says; ValueError past the bound: the other side is not what it should be."""
    size = int.from_bytes(header, "big")
    if size > MAX_FRAME:
        raise ValueError(f"a frame of {size} bytes")
    return size


def read(body: bytes, kind: Any) -> Any:
    return _decoder(kind).decode(body)


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_ENCODER.encode(value))


def arguments(call: Call, encoded: msgspec.Raw) -> tuple[Any, ...]:
    """A call's arguments, as its method wants them."""
    *types, _ = _signature(call)
    return tuple(_decoder(tuple[tuple(types)]).decode(encoded))  # type: ignore[misc]


def result(call: Call, encoded: msgspec.Raw) -> Any:
    """A call's result, as its method gives it."""
    return _decoder(_signature(call)[-1]).decode(encoded)


def is_bug(error: BaseException) -> bool:
    """Whether a driver should not have raised it."""
    return not isinstance(error, ProviderError)


def failure_of(error: BaseException) -> Failure:
    kind = type(error).__name__
    if isinstance(error, ProviderError):
        return Failure(kind, error.message, error.code, error.scope, error.retry_after_ms)
    if isinstance(error, ImportError):
        return Failure("ImportError", str(error), error.name or "")
    return Failure(kind, str(error))


def error_of(failure: Failure) -> Exception:
    """The exception again; a bug of the driver is a RuntimeError that says so."""
    if failure.kind in _ERRORS:
        return _provider_error(failure)
    if failure.kind == "ImportError":
        return ImportError(failure.message, name=failure.code or None)
    return RuntimeError(f"the driver has a bug: {failure.kind}: {failure.message}")


def _provider_error(failure: Failure) -> ProviderError:
    kind = _ERRORS.get(failure.kind, ProviderError)
    return kind(failure.message, code=failure.code, scope=failure.scope, retry_after_ms=failure.retry_after_ms)


@cache
def _signature(call: Call) -> tuple[Any, ...]:
    """The types of a call's arguments, and of its result, last."""
    hints = typing.get_type_hints(getattr(Provider, call))
    returns = hints.pop("return")
    return (*hints.values(), returns)


def _write_error(value: object) -> object:
    if isinstance(value, ProviderError):
        return failure_of(value)
    raise NotImplementedError(f"{type(value).__name__} does not travel")


def _read_error(kind: type[Any], value: Any) -> Any:
    if issubclass(kind, ProviderError):
        return _provider_error(msgspec.convert(value, Failure))
    raise NotImplementedError(f"{kind.__name__} does not travel")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_write_error)


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_read_error)
