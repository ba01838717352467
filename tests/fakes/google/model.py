"""Discovery documents as google-api-python-client ships them: which method a request is, and what it may say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from tests.fakes.google.errors import ApiError, Unmodelled
from tests.fakes.google.schemas import Check, Schemas, Wrong

_NAMES = re.compile(r"\{\+?([^}]+)\}")
_ADVISED = {"returnPartialSuccess": {"type": "boolean", "location": "query"}}
_RANGES = {"uint32": (0, 2**32 - 1), "int32": (-(2**31), 2**31 - 1)}


class Method:
    """One method of a service."""

    def __init__(self, document: Document, raw: Mapping[str, Any]) -> None:
        self.document, self._raw = document, raw
        #: Without the service, as "instances.insert".
        self.name: str = raw["id"].partition(".")[2]
        self.verb: str = raw["httpMethod"]
        self.path: str = raw.get("flatPath", raw["path"])
        self.parameters: Mapping[str, Mapping[str, Any]] = {**raw.get("parameters", {}), **_advised(raw)}

    @cached_property
    def route(self) -> re.Pattern[str]:
        """What matches its path, with the parameters in it by name."""
        pattern = "".join(
            f"(?P<{part}>[^/]+?)" if number % 2 else re.escape(part) for number, part in
            enumerate(_NAMES.split(self.path))
        )  # fmt: skip
        return re.compile(pattern)

    @cached_property
    def check_request(self) -> Check | None:
        """The check of its body; None where it has none."""
        if "request" not in self._raw:
            return None
        return Schemas(self.document.raw["schemas"], self._raw["id"]).check(self._raw["request"]["$ref"])

    @cached_property
    def check_answer(self) -> Check:
        """The check of its answer."""
        return self.document.answers.check(self._raw["response"]["$ref"])

    def parsed_path(self, found: Mapping[str, str]) -> dict[str, Any]:
        """The parameters in the path, each of its pattern."""
        values = {name: unquote(value) for name, value in found.items()}
        for name, value in values.items():
            pattern = self.parameters.get(name, {}).get("pattern")
            if pattern and not re.fullmatch(pattern, value):
                raise ApiError("invalid", f"Invalid value for field '{name}': '{value}'. Must be a match of regex "
                                          f"'{pattern}'")  # fmt: skip
        return values

    def parsed_query(self, given: list[tuple[str, str]]) -> dict[str, Any]:
        """The parameters in the query, each of its type."""
        values: dict[str, Any] = {}
        for name, text in given:
            raw = self.parameters.get(name)
            if raw is None or raw["location"] != "query":
                raw = self.document.raw["parameters"].get(name)
                if raw is None:
                    what = f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter.'
                    raise ApiError("badRequest", what, worded=True)
            value = _typed(name, raw, text)
            if raw.get("repeated"):
                values.setdefault(name, []).append(value)
            elif name in values:
                raise ApiError("badRequest", f"Invalid value at '{name}', it is given twice", worded=True)
            else:
                values[name] = value
        if values.pop("alt", "json") != "json":
            raise Unmodelled("other format than JSON")
        values.pop("prettyPrint", None)
        return values

    def parsed_body(self, text: bytes) -> dict[str, Any]:
        """The body, checked; what is null in it is left out."""
        if self.check_request is None:
            if text.strip() not in (b"", b"{}"):
                raise ApiError("badRequest", f"{self.name} takes no body", worded=True)
            return {}
        try:
            document = json.loads(text or b"{}")
            self.check_request(document)
        except ValueError as error:
            raise ApiError("parseError", f"Invalid JSON payload received. {error}", 400, worded=True) from None
        except Wrong as wrong:
            if wrong.silent:
                raise Unmodelled(f"way to hear {wrong} ({self.name})") from None
            raise ApiError("badRequest", f"Invalid JSON payload received. {wrong}", worded=True) from None
        kept: dict[str, Any] = _without_nulls(document)
        return kept


class Document:
    """One service."""

    def __init__(self, name: str) -> None:
        shipped = files("googleapiclient.discovery_cache") / "documents" / f"{name}.json"
        self.raw: dict[str, Any] = json.loads(shipped.read_text())
        self.base = f"/{self.raw['servicePath']}"
        self.answers = Schemas(self.raw["schemas"])
        self.methods = {method.name: method for method in self._found(self.raw)}
        self._by_size: dict[tuple[str, int], list[Method]] = {}
        for method in self.methods.values():
            self._by_size.setdefault((method.verb, method.path.count("/")), []).append(method)
        for methods in self._by_size.values():
            methods.sort(key=lambda method: method.path.count("{"))  # a name that is written out comes first

    def _found(self, raw: Mapping[str, Any]) -> Iterator[Method]:
        for method in raw.get("methods", {}).values():
            yield Method(self, method)
        for resource in raw.get("resources", {}).values():
            yield from self._found(resource)

    def method_of(self, verb: str, path: str) -> tuple[Method, dict[str, Any]] | None:
        """The method of a request with the parameters in its path; None where there is none."""
        if not path.startswith(self.base):
            return None
        below = path[len(self.base) :]
        for method in self._by_size.get((verb, below.count("/")), ()):
            found = method.route.fullmatch(below)
            if found:
                return method, method.parsed_path(found.groupdict())
        return None


def _advised(raw: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Parameters that a method's description advises to set, and its list of parameters lacks."""
    said = raw.get("description", "")
    return {name: parameter for name, parameter in _ADVISED.items() if f"`{name}`" in said}


def _typed(name: str, raw: Mapping[str, Any], text: str) -> Any:
    kind = raw["type"]
    if kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise ApiError("badRequest", f"Invalid value at '{name}' (TYPE_BOOL), \"{text}\"", worded=True)
        return text.lower() == "true"
    if kind == "integer":
        least, most = _RANGES.get(raw.get("format", ""), _RANGES["int32"])
        least, most = int(raw.get("minimum", least)), int(raw.get("maximum", most))
        if not text.lstrip("-").isdecimal() or not least <= int(text) <= most:
            raise ApiError("invalid", f"Invalid value for field '{name}': '{text}'. It must be from {least} to {most}")
        return int(text)
    if "enum" in raw and text not in raw["enum"]:
        raise ApiError("badRequest", f"Invalid value at '{name}' (TYPE_ENUM), \"{text}\"", worded=True)
    if "pattern" in raw and not re.fullmatch(raw["pattern"], text):
        raise ApiError("invalid", f"Invalid value for field '{name}': '{text}'.")
    return text


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


@cache
def document(name: str) -> Document:
    """The document of a service, as "compute.v1", read once a process."""
    return Document(name)
