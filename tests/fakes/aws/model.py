"""The services' models as botocore ships them. Owns shapes and their names on the wire; parsing is elsewhere."""

from __future__ import annotations

import re
from functools import cache, cached_property
from typing import Any

from botocore.loaders import Loader

_MARKUP = re.compile(r"<code>([^<]+)</code>")


class Shape:
    """A shape of a model, its members made when first asked for."""

    def __init__(self, service: Service, name: str) -> None:
        raw = service.raw["shapes"][name]
        self._service, self._raw = service, raw
        self.name = name
        self.kind: str = raw["type"]
        self.enum = frozenset(raw.get("enum", ()))
        self.required: tuple[str, ...] = tuple(raw.get("required", ()))
        self.flattened = bool(raw.get("flattened"))
        self.min: float | None = raw.get("min")
        self.max: float | None = raw.get("max")

    @cached_property
    def members(self) -> dict[str, Member]:
        """The members of a structure, by the name that an SDK uses."""
        return {name: Member(self._service, name, raw) for name, raw in self._raw.get("members", {}).items()}

    @cached_property
    def by_query_name(self) -> dict[str, Member]:
        """The members by their name in a request."""
        return {member.query_name: member for member in self.members.values()}

    @cached_property
    def item(self) -> Member:
        """What a list is made of."""
        return Member(self._service, "", self._raw["member"])

    @cached_property
    def value(self) -> Member:
        """What the values of a map are."""
        return Member(self._service, "", self._raw["value"])


class Member:
    """A named use of a shape."""

    def __init__(self, service: Service, name: str, raw: dict[str, Any]) -> None:
        self.name = name
        self._service, self._raw = service, raw
        location: str | None = raw.get("locationName")
        query: str | None = raw.get("queryName")
        if service.protocol == "ec2":
            # Requests of EC2 capitalise the names of its answers.
            self.query_name = query or (location[0].upper() + location[1:] if location else name)
        else:
            self.query_name = location or name
        self.answer_name = location or name
        self.named = location is not None
        self.timestamp_format: str | None = raw.get("timestampFormat")

    @cached_property
    def shape(self) -> Shape:
        """Its shape, shared among all uses."""
        return self._service.shape(self._raw["shape"])

    @cached_property
    def filters(self) -> frozenset[str]:
        """The words in code type of its documentation: for a list of filters, the names that AWS documents."""
        found = _MARKUP.findall(self._raw.get("documentation", ""))
        return frozenset(word.replace("&lt;", "<").replace("&gt;", ">") for word in found)


class Operation:
    """One operation of a service."""

    def __init__(self, service: Service, name: str) -> None:
        raw = service.raw["operations"][name]
        self.service, self.name = service, name
        self.input = service.shape(raw["input"]["shape"]) if "input" in raw else None
        self.output = service.shape(raw["output"]["shape"]) if "output" in raw else None
        self.wrapper: str = raw.get("output", {}).get("resultWrapper", "")


class Service:
    """One service, by the name that botocore gives it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.raw = Loader().load_service_model(name, "service-2")
        metadata = self.raw["metadata"]
        self.protocol: str = metadata["protocol"]
        self.version: str = metadata["apiVersion"]
        self.namespace: str = metadata.get("xmlNamespace", f"http://ec2.amazonaws.com/doc/{self.version}/")
        self.target_prefix: str = metadata.get("targetPrefix", "")
        self.json_version: str = metadata.get("jsonVersion", "1.0")
        self._shapes: dict[str, Shape] = {}
        self._operations: dict[str, Operation] = {}

    def shape(self, name: str) -> Shape:
        """The shape of this name."""
        if name not in self._shapes:
            self._shapes[name] = Shape(self, name)
        return self._shapes[name]

    def operation(self, name: str) -> Operation | None:
        """The operation of this name, None where the service has none."""
        if name not in self.raw["operations"]:
            return None
        if name not in self._operations:
            self._operations[name] = Operation(self, name)
        return self._operations[name]


@cache
def service(name: str) -> Service:
    """The model of a service, loaded once a process."""
    return Service(name)
