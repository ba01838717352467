"""From values to the bytes of an answer, by the output shape. A member that the shape does not have raises.

Numbers, texts and moments are checked against the shape as well: what passes here is what the service could have said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from tests.fakes.aws.errors import AwsError, NotInModel
from tests.fakes.aws.model import Member, Operation, Shape


class Xml(str):
    """Content of an element that was made before by `content_of`, from the same shape."""

    __slots__ = ()


def xml_of(operation: Operation, values: Mapping[str, Any], request_id: str) -> bytes:
    """The answer to a request of the protocols ec2 and query."""
    name, service = operation.name, operation.service
    parts = [f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}Response xmlns="{service.namespace}">']
    if service.protocol == "ec2":
        parts.append(f"<requestId>{request_id}</requestId>")
    if operation.output is None:
        if values:
            raise NotInModel(f"{name} answers nothing, not {sorted(values)}")
        parts.append("<return>true</return>")
    else:
        if operation.wrapper:
            parts.append(f"<{operation.wrapper}>")
        _structure(operation.output, values, parts, name)
        if operation.wrapper:
            parts.append(f"</{operation.wrapper}>")
    if service.protocol != "ec2":
        parts.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>")
    parts.append(f"</{name}Response>")
    return "".join(parts).encode()


def content_of(shape: Shape, values: Mapping[str, Any]) -> str:
    """The content of an element of a structure's, to be kept and given again as `Xml`."""
    parts: list[str] = []
    _structure(shape, values, parts, shape.name)
    return "".join(parts)


def _structure(shape: Shape, values: Mapping[str, Any], parts: list[str], path: str) -> None:
    members = shape.members
    for name, value in values.items():
        if value is None:
            continue
        member = members.get(name)
        if member is None:
            raise NotInModel(f"{path} has no member {name}")
        _member(member, member.answer_name, value, parts, f"{path}.{name}")


def _member(member: Member, tag: str, value: Any, parts: list[str], path: str) -> None:
    shape = member.shape
    if type(value) is Xml:
        parts.append(f"<{tag}>{value}</{tag}>")
    elif shape.kind == "structure":
        if not isinstance(value, Mapping):
            raise NotInModel(f"{path} is a structure, not {value!r}")
        parts.append(f"<{tag}>")
        _structure(shape, value, parts, path)
        parts.append(f"</{tag}>")
    elif shape.kind == "list":
        if not isinstance(value, (list, tuple)):
            raise NotInModel(f"{path} is a list, not {value!r}")
        item_tag = tag if shape.flattened else shape.item.answer_name or "member"
        if not shape.flattened:
            parts.append(f"<{tag}>")
        for item in value:
            _member(shape.item, item_tag, item, parts, f"{path}[]")
        if not shape.flattened:
            parts.append(f"</{tag}>")
    else:
        parts.append(f"<{tag}>{_text(shape, value, path)}</{tag}>")


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "boolean": (bool,),
    "float": (float, int),
    "double": (float, int),
    "timestamp": (datetime,),
}


def _checked(shape: Shape, value: Any, path: str) -> None:
    types = _TYPES.get(shape.kind)
    if types is None or not isinstance(value, types) or (isinstance(value, bool) and shape.kind != "boolean"):
        raise NotInModel(f"{path} is of type {shape.kind}, not {value!r}")
    if shape.enum and value not in shape.enum:
        raise NotInModel(f"{path} has no value {value!r}")


def _text(shape: Shape, value: Any, path: str) -> str:
    _checked(shape, value, path)
    if shape.kind == "boolean":
        return "true" if value else "false"
    if shape.kind == "timestamp":
        return moment_text(value)
    return escape(str(value))


def moment_text(moment: datetime) -> str:
    """A moment as AWS writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def json_of(operation: Operation, values: Mapping[str, Any]) -> bytes:
    """The answer to a request of the protocol json."""
    if operation.output is None:
        if values:
            raise NotInModel(f"{operation.name} answers nothing, not {sorted(values)}")
        return b"{}"
    return json.dumps(_json(operation.output, values, operation.name)).encode()


def _json(shape: Shape, value: Any, path: str) -> Any:
    if shape.kind == "structure":
        if not isinstance(value, Mapping):
            raise NotInModel(f"{path} is a structure, not {value!r}")
        unknown = set(value) - set(shape.members)
        if unknown:
            raise NotInModel(f"{path} has no members {sorted(unknown)}")
        members = shape.members
        present = {name: below for name, below in value.items() if below is not None}
        return {name: _json(members[name].shape, below, f"{path}.{name}") for name, below in present.items()}
    if shape.kind == "list":
        return [_json(shape.item.shape, below, f"{path}[]") for below in value]
    if shape.kind == "map":
        return {key: _json(shape.value.shape, below, f"{path}.{key}") for key, below in value.items()}
    _checked(shape, value, path)
    return value.timestamp() if isinstance(value, datetime) else value


def error_body(protocol: str, error: AwsError, request_id: str) -> bytes:
    """An error in the words of a protocol."""
    code, message = escape(error.code), escape(error.message)
    if protocol == "json":
        return json.dumps({"__type": error.code, "message": error.message}).encode()
    if protocol == "query":
        kind = "Sender" if error.status < 500 else "Receiver"
        return (
            f"<ErrorResponse><Error><Type>{kind}</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        ).encode()
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
        f"<RequestID>{request_id}</RequestID></Response>"
    ).encode()
