"""Whether a body is what the models say: the SDK's own, and where it lies beside the checkout, Azure's description of
the types of Microsoft.Compute (required and read-only members).

Enums stay open, as Azure's are. A member that is only read is refused here; Azure passes over most of them.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from tests.fakes.arm.errors import ArmError

DATA = Path(__file__).parents[4] / "shared" / "data" / "azure" / "compute-types.json"
_REQUIRED, _READ_ONLY = 1, 2
#: Members of the address or of the answer, which the description calls required or read-only for other reasons.
_OF_ADDRESS = frozenset({"id", "name", "type", "apiVersion"})
#: What the description calls an integer and is none.
_FLOATS = frozenset({"maxPrice"})


def check(package: str, name: str, body: Any, described: str = "") -> None:
    """Refuse a body that is none of this model; `described` is its name in Azure's description."""
    if not isinstance(body, Mapping):
        raise ArmError("InvalidRequestContent", "The request content was invalid and could not be deserialized.")
    _walk(_model(package, name), body, "")
    if described and DATA.exists():
        _walk_described(_described(described), body, "")


def _bad(path: str, why: str) -> ArmError:
    return ArmError("InvalidRequestContent" if "member" in why else "InvalidParameter", f"{path or 'the body'}: {why}")


# the SDK's models


@cache
def _module(package: str) -> Any:
    import importlib

    return importlib.import_module(f"azure.mgmt.{package}.models")


def _model(package: str, name: str) -> type:
    found: type = getattr(_module(package), name)
    return found


@cache
def _fields(model: type) -> dict[str, tuple[Any, bool, bool]]:
    """By name in JSON: its type, whether it is required, whether it is only read."""
    names = dict(vars(sys.modules[model.__module__]))
    names["_models"] = sys.modules[model.__module__]
    package = model.__module__.split(".")[2]
    names["_models"] = _module(package)
    model()  # names of fields are settled with the first instance
    hints: dict[str, Any] = {}
    for base in reversed(model.__mro__):
        for attribute, hint in vars(base).get("__annotations__", {}).items():
            hints[attribute] = eval(hint, names) if isinstance(hint, str) else hint  # noqa: S307  (the SDK's own)
    found = {}
    for attribute, field in getattr(model, "_attr_to_rest_field").items():  # noqa: B009
        kind = typing.ForwardRef("Any") if attribute not in hints else hints[attribute]
        optional = type(None) in typing.get_args(kind)
        found[field._rest_name] = (_resolved(kind, names), not optional, field._visibility == ["read"])
    return found


def _resolved(kind: Any, names: dict[str, Any]) -> Any:
    if isinstance(kind, typing.ForwardRef):
        return eval(kind.__forward_arg__, names)  # noqa: S307  (the SDK's own annotation)
    if isinstance(kind, str):
        return eval(kind, names)  # noqa: S307  (the SDK's own annotation)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if not inner:
        return kind
    parts = tuple(_resolved(part, names) for part in inner)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[parts]  # noqa: UP007  (of a tuple)
    return origin[parts] if len(parts) > 1 else origin[parts[0]]


def _walk(kind: Any, value: Any, path: str) -> None:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return
        wanted = [part for part in inner if part is not type(None)]
        if any(isinstance(part, type) and issubclass(part, Enum) for part in wanted):
            wanted = [str]
        _walk(wanted[0], value, path)
    elif origin is list:
        if not isinstance(value, list):
            raise _bad(path, "an array is wanted")
        for number, one in enumerate(value):
            _walk(inner[0], one, f"{path}[{number}]")
    elif origin is dict:
        if not isinstance(value, Mapping):
            raise _bad(path, "an object is wanted")
        for key, one in value.items():
            _walk(inner[1], one, f"{path}.{key}")
    elif isinstance(kind, type) and hasattr(kind, "as_dict"):
        _walk_model(kind, value, path)
    else:
        _check_plain(kind, value, path)


def _walk_model(kind: type, value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        raise _bad(path, "an object is wanted")
    fields = _fields(kind)
    for name, one in value.items():
        if name not in fields:
            raise _bad(path, f"Could not find member '{name}' on object of type '{kind.__name__}'.")
        of, _, only_read = fields[name]
        if only_read and name not in _OF_ADDRESS:
            raise _bad(f"{path}.{name}", "it is only read")
        _walk(of, one, f"{path}.{name}")
    for name, (_, required, only_read) in fields.items():
        if required and not only_read and name not in value:
            raise _bad(f"{path}.{name}", "Required parameter is missing (null).")


_PLAIN: dict[Any, Any] = {str: str, bool: bool, int: int, float: (int, float), datetime: str, bytes: str}


def _check_plain(kind: Any, value: Any, path: str) -> None:
    wanted = str if isinstance(kind, type) and issubclass(kind, Enum) else _PLAIN.get(kind)
    if wanted is None or value is None:
        return
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise _bad(path, f"{type(value).__name__} where {kind.__name__} is wanted")


# Azure's description


@cache
def _document() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DATA.read_text())
    return found


@cache
def _described(name: str) -> int:
    for one in _document():
        if one["$type"] == "ResourceType" and one["name"].split("@")[0] == name:
            return _reference(one["body"])
    raise LookupError(f"{DATA.name} has no type {name}")


def _reference(told: Mapping[str, str]) -> int:
    return int(told["$ref"].removeprefix("#/"))


def _walk_described(number: int, value: Any, path: str) -> None:
    kind = _document()[number]
    if value is None:
        return
    if kind["$type"] == "ObjectType":
        _walk_object(kind, value, path)
    elif kind["$type"] == "ArrayType" and isinstance(value, list):
        for place, one in enumerate(value):
            _walk_described(_reference(kind["itemType"]), one, f"{path}[{place}]")
    elif kind["$type"] == "BooleanType" and not isinstance(value, bool):
        raise _bad(path, "true or false is wanted")
    elif kind["$type"] == "IntegerType" and path.rpartition(".")[2] not in _FLOATS and not isinstance(value, int):
        raise _bad(path, "an integer is wanted")


def _walk_object(kind: Mapping[str, Any], value: Any, path: str) -> None:
    if not isinstance(value, Mapping):
        raise _bad(path, "an object is wanted")
    known, more = kind["properties"], kind.get("additionalProperties")
    for name, one in value.items():
        if name not in known:
            if more is None:
                raise _bad(path, f"Could not find member '{name}' on object of type '{kind['name']}'.")
            _walk_described(_reference(more), one, f"{path}.{name}")
            continue
        if known[name]["flags"] & _READ_ONLY and name not in _OF_ADDRESS:
            raise _bad(f"{path}.{name}", "it is only read")
        _walk_described(_reference(known[name]["type"]), one, f"{path}.{name}")
    for name, one in known.items():
        if one["flags"] & _REQUIRED and name not in value and not (name in _OF_ADDRESS and not path):
            raise _bad(f"{path}.{name}", "Required parameter is missing (null).")
