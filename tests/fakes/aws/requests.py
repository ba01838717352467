"""From the bytes of a request to the values of its input shape. Anything that the shape does not have is refused."""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from tests.fakes.aws.errors import AwsError
from tests.fakes.aws.model import Member, Operation, Shape

_NUMBER = re.compile(r"-?\d+")
#: Enums that grow faster than the model: operations themselves say what is wrong with a value.
_OPEN = frozenset({"InstanceType"})
Tree = dict[str, Any]


def fields_of(body: bytes) -> dict[str, str]:
    """The fields of a query request."""
    pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body))
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise AwsError("MalformedQueryString", "a parameter is given twice")
    return fields


def parse_query(operation: Operation, fields: dict[str, str]) -> dict[str, Any]:
    """The values of a request of the protocols ec2 and query."""
    tree: Tree = {}
    for name, value in fields.items():
        if name in ("Action", "Version"):
            continue
        node = tree
        *branches, leaf = name.split(".")
        for branch in branches:
            below = node.setdefault(branch, {})
            if not isinstance(below, dict):
                raise AwsError("InvalidParameterCombination", f"{name} is both a value and a structure")
            node = below
        if isinstance(node.get(leaf), dict):
            raise AwsError("InvalidParameterCombination", f"{name} is both a value and a structure")
        node[leaf] = value
    if operation.input is None:
        for name in tree:
            raise AwsError("UnknownParameter", f"The parameter {name} is not recognized")
        return {}
    return _Query(operation).structure(operation.input, tree, "")


class _Query:
    def __init__(self, operation: Operation) -> None:
        self._ec2 = operation.service.protocol == "ec2"

    def structure(self, shape: Shape, tree: Any, path: str) -> dict[str, Any]:
        if not isinstance(tree, dict):
            raise AwsError("InvalidParameterValue", f"{path} is a structure")
        values = {}
        for name, below in tree.items():
            member = shape.by_query_name.get(name)
            full = f"{path}.{name}" if path else name
            if member is None:
                raise AwsError("UnknownParameter", f"The parameter {full} is not recognized")
            values[member.name] = self._value(member, below, full)
        _require(shape, values, path)
        return values

    def _value(self, member: Member, below: Any, path: str) -> Any:
        shape = member.shape
        if shape.kind == "structure":
            return self.structure(shape, below, path)
        if shape.kind == "list":
            return self._list(shape, below, path)
        if isinstance(below, dict) or shape.kind == "map":
            raise AwsError("InvalidParameterValue", f"{path} is of type {shape.kind}")
        return scalar_of_text(shape, below, path)

    def _list(self, shape: Shape, below: Any, path: str) -> list[Any]:
        if below == "":
            return []
        if not self._ec2 and not shape.flattened:
            word = shape.item.answer_name or "member"
            if not isinstance(below, dict) or set(below) != {word}:
                raise AwsError("UnknownParameter", f"The parameter {path} is a list of {word}")
            below, path = below[word], f"{path}.{word}"
        if not isinstance(below, dict):
            raise AwsError("InvalidParameterValue", f"{path} is a list: {path}.1")
        if any(not index.isdigit() or index == "0" for index in below):
            raise AwsError("UnknownParameter", f"The parameter {path}.{min(below)} is not recognized")
        return [self._value(shape.item, below[index], f"{path}.{index}") for index in sorted(below, key=int)]


def _require(shape: Shape, values: dict[str, Any], path: str) -> None:
    for name in shape.required:
        if name not in values:
            full = f"{path}.{name}" if path else name
            raise AwsError("MissingParameter", f"The request must contain the parameter {full}")


def scalar_of_text(shape: Shape, text: str, path: str) -> Any:
    """A value that stands in a request as text."""
    if shape.kind in ("integer", "long"):
        if not _NUMBER.fullmatch(text):
            raise AwsError("InvalidParameterValue", f"Invalid value '{text}' for {path}. It must be a number")
        return within(shape, int(text), path)
    if shape.kind == "boolean":
        if text not in ("true", "false"):
            raise AwsError("InvalidParameterValue", f"Invalid value '{text}' for {path}. It must be true or false")
        return text == "true"
    if shape.kind in ("float", "double"):
        try:
            return float(text)
        except ValueError:
            raise AwsError("InvalidParameterValue", f"Invalid value '{text}' for {path}") from None
    if shape.kind == "timestamp":
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise AwsError("InvalidParameterValue", f"Invalid value '{text}' for {path}") from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if shape.kind == "blob":
        return _blob(text, path)
    return within(shape, text, path)


def _blob(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AwsError("InvalidParameterValue", f"{path} is not base64") from None


def within(shape: Shape, value: Any, path: str) -> Any:
    """The value, if the shape's enum and limits allow it."""
    if shape.enum and shape.name not in _OPEN and value not in shape.enum:
        raise AwsError("InvalidParameterValue", f"Value ({value}) for parameter {path} is invalid")
    size = len(value) if isinstance(value, (str, list)) else value
    if (shape.min is not None and size < shape.min) or (shape.max is not None and size > shape.max):
        raise AwsError("InvalidParameterValue", f"Value ({value}) for parameter {path} is out of its limits")
    return value


def parse_json(operation: Operation, body: bytes) -> dict[str, Any]:
    """The values of a request of the protocol json."""
    try:
        document = json.loads(body or b"{}")
    except ValueError:
        raise AwsError("SerializationException", "the body is not JSON") from None
    if operation.input is None:
        return {}
    values: dict[str, Any] = _json(operation.input, document, "")
    return values


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "boolean": (bool,),
    "float": (float, int),
    "double": (float, int),
    "timestamp": (float, int),
    "blob": (str,),
}


def _json(shape: Shape, value: Any, path: str) -> Any:
    wrong = AwsError("SerializationException", f"{path or 'the body'} is not of type {shape.kind}")
    if shape.kind == "structure":
        if not isinstance(value, dict):
            raise wrong
        unknown = set(value) - set(shape.members)
        if unknown:
            raise AwsError("SerializationException", f"unknown members {sorted(unknown)} of {path or 'the body'}")
        for name in shape.required:
            if name not in value:
                raise AwsError("ValidationException", f"{name} is required")
        return {name: _json(shape.members[name].shape, below, f"{path}.{name}") for name, below in value.items()}
    if shape.kind == "list":
        if not isinstance(value, list):
            raise wrong
        return within(shape, [_json(shape.item.shape, below, f"{path}[]") for below in value], path)
    if shape.kind == "map":
        if not isinstance(value, dict):
            raise wrong
        return {key: _json(shape.value.shape, below, f"{path}.{key}") for key, below in value.items()}
    if not isinstance(value, _JSON_TYPES[shape.kind]) or (isinstance(value, bool) and shape.kind != "boolean"):
        raise wrong
    return within(shape, value, path)
