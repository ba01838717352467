"""JSON for the messages with the standard library alone. Owns encoding; the dispatcher may use a faster codec.

Decoding is tolerant: unknown fields are dropped, missing ones default; a wrong type is a ValueError with its place.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any, Dict, Tuple, Type, TypeVar, Union  # noqa: UP035

T = TypeVar("T")
_HINTS: Dict[type, Dict[str, Any]] = {}
_FIELDS: Dict[type, Tuple[str, ...]] = {}


def _names(cls: type) -> Tuple[str, ...]:
    names = _FIELDS.get(cls)
    if names is None:
        names = _FIELDS[cls] = tuple(f.name for f in dataclasses.fields(cls))
    return names


def _plain(value: Any) -> Any:
    """For json: a dataclass as the object of its fields (json itself walks lists and dicts)."""
    if dataclasses.is_dataclass(value):
        return {name: getattr(value, name) for name in _names(type(value))}
    raise TypeError(f"{type(value).__name__} is not a message")


def encode(message: Any) -> bytes:
    """`message` as compact UTF-8 JSON. What can't be said in it, as of a name of a file that is no UTF-8, is a `?`: a
    message that was never sent would cost more than one that is not exact."""
    return json.dumps(message, default=_plain, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def decode(cls: Type[T], body: bytes) -> T:
    """A message of class `cls` from JSON; ValueError with the place of what is wrong."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    return typing.cast(T, _build(cls, raw, cls.__name__))


def _build(hint: Any, raw: Any, place: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return _build_message(typing.cast(type, hint), raw, place)
    origin = typing.get_origin(hint)
    if origin is Union:  # only Optional is used
        return None if raw is None else _build(typing.get_args(hint)[0], raw, place)
    if origin is list:
        _expect(raw, list, place)
        (item,) = typing.get_args(hint)
        return [_build(item, value, f"{place}[{i}]") for i, value in enumerate(raw)]
    if origin is tuple:
        _expect(raw, list, place)
        return tuple(raw)
    if origin is dict:
        _expect(raw, dict, place)
        return raw
    return _expect(raw, hint, place)


def _build_message(cls: type, raw: Any, place: str) -> Any:
    _expect(raw, dict, place)
    hints = _HINTS.get(cls)
    if hints is None:
        hints = _HINTS[cls] = typing.get_type_hints(cls)
    values = {}
    for name, hint in hints.items():
        if name in raw:
            values[name] = _build(hint, raw[name], f"{place}.{name}")
    return cls(**values)


def _expect(raw: Any, kind: Any, place: str) -> Any:
    if not isinstance(raw, kind) or (kind is int and isinstance(raw, bool)):
        raise ValueError(f"{place}: expected {kind.__name__}, got {type(raw).__name__}")
    return raw
