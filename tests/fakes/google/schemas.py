"""Schemas of a discovery document, compiled once into functions that check a value.

A request may leave out what it likes but says nothing unknown, nothing of a wrong type and nothing that only answers
say. An answer is checked more strictly: numbers of 64 bits are strings, and nothing is null.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Check = Callable[[Any], None]
_DIGITS = re.compile(r"-?\d{1,20}")
_DATETIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_DURATION = re.compile(r"-?\d+(\.\d{1,9})?s")
_RANGES = {
    "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1),
}  # fmt: skip


class Wrong(Exception):
    """A value that its schema does not have. `silent`: Google would pass over it, and so nobody would ever hear."""

    def __init__(self, what: str, *, silent: bool = False) -> None:
        super().__init__(what)
        self.what, self.silent = what, silent
        self.path: list[str] = []

    def __str__(self) -> str:
        path = "".join(part if part.startswith("[") else f".{part}" for part in self.path).lstrip(".")
        return f"{path or 'the body'}: {self.what}"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A value that was checked against its schema and made into JSON before: that of a VM in a listing of thousands."""

    schema: str
    text: str


class Schemas:
    """The checks of one document, for one method of it: what is required differs by method. No method: for answers."""

    def __init__(self, raw: Mapping[str, Any], method: str = "") -> None:
        self._raw, self._method = raw, method
        self._made: dict[str, Check] = {}

    def check(self, name: str) -> Check:
        """The check of the schema of this name."""
        if name not in self._made:
            self._made[name] = lambda value: self._made[name](value)  # for schemas that speak of themselves
            self._made[name] = self._named(name, self._compiled(self._raw[name]))
        return self._made[name]

    def _named(self, name: str, check: Check) -> Check:
        def named(value: Any) -> None:
            if isinstance(value, Rendered):
                if value.schema != name:
                    raise Wrong(f"a {value.schema} where a {name} belongs")
                return
            check(value)

        return named

    def _compiled(self, raw: Mapping[str, Any]) -> Check:
        if "$ref" in raw:
            return self.check(raw["$ref"])
        kind = raw.get("type")
        if kind == "object":
            return self._object(raw)
        if kind == "array":
            return self._array(self._compiled(raw["items"]))
        if kind == "any":
            return lambda value: None
        return self._scalar(raw)

    def _object(self, raw: Mapping[str, Any]) -> Check:
        if "properties" not in raw:
            return self._map(self._compiled(raw["additionalProperties"]) if "additionalProperties" in raw else None)
        checks: dict[str, Check] | None = None
        needed = [name for name, one in raw["properties"].items() if self._needed(one)]

        def check(value: Any) -> None:
            nonlocal checks
            if checks is None:  # not before it is used: few of the thousand schemas ever are
                checks = {name: self._member(one) for name, one in raw["properties"].items()}
            if not isinstance(value, dict):
                raise Wrong("not an object")
            for name, member in value.items():
                found = checks.get(name)
                if found is None:
                    raise Wrong(f'Unknown name "{name}": Cannot find field.')
                try:
                    found(member)
                except Wrong as wrong:
                    wrong.path.insert(0, name)
                    raise
            for name in needed:
                if value.get(name) in (None, "", [], {}):
                    raise Wrong(f"the required field {name} is missing")

        return check

    def _needed(self, raw: Mapping[str, Any]) -> bool:
        return bool(self._method) and self._method in raw.get("annotations", {}).get("required", ())

    def _member(self, raw: Mapping[str, Any]) -> Check:
        check = self._compiled(raw)
        if not self._method:
            return check
        if raw.get("readOnly") or raw.get("description", "").startswith("[Output Only]"):
            return _refused
        return lambda value: None if value is None else check(value)

    def _map(self, check: Check | None) -> Check:
        def each(value: Any) -> None:
            if not isinstance(value, dict):
                raise Wrong("not an object")
            if check is None:
                return
            for name, member in value.items():
                try:
                    check(member)
                except Wrong as wrong:
                    wrong.path.insert(0, name)
                    raise

        return each

    def _array(self, check: Check) -> Check:
        def each(value: Any) -> None:
            if not isinstance(value, list):
                raise Wrong("not a list")
            for number, member in enumerate(value):
                try:
                    check(member)
                except Wrong as wrong:
                    wrong.path.insert(0, f"[{number}]")
                    raise

        return each

    def _scalar(self, raw: Mapping[str, Any]) -> Check:
        kind, form, enum = raw.get("type"), raw.get("format", ""), frozenset(raw.get("enum", ()))
        if kind == "boolean":
            return _boolean
        if kind == "number":
            return _number
        if kind == "integer" or form in ("int64", "uint64"):
            return _whole(form, as_text=None if self._method else kind == "string")
        if enum:
            return _one_of(enum)
        if self._method and "pattern" in raw:
            return _formed(re.compile(raw["pattern"]), f"match of regex '{raw['pattern']}'")
        return _FORMS.get(form, _text)


def _refused(value: Any) -> None:
    if value is None:
        return
    raise Wrong("only answers say this; a request that does is not heard", silent=True)


def _boolean(value: Any) -> None:
    if not isinstance(value, bool):
        raise Wrong("not a boolean")


def _number(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong("not a number")


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise Wrong("not a string")


def _bytes(value: Any) -> None:
    _text(value)
    try:
        base64.b64decode(value, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Wrong("not base64") from None


def _formed(pattern: re.Pattern[str], what: str) -> Check:
    def check(value: Any) -> None:
        _text(value)
        if not pattern.fullmatch(value):
            raise Wrong(f"not a {what}")

    return check


def _one_of(enum: frozenset[str]) -> Check:
    def check(value: Any) -> None:
        if value not in enum:
            raise Wrong(f"{value!r} is none of {sorted(enum)[:40]}")

    return check


def _whole(form: str, *, as_text: bool | None) -> Check:
    """`as_text` None: either way, as requests may."""
    least, most = _RANGES.get(form, _RANGES["int64"])

    def check(value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise Wrong("not a whole number")
        if as_text is not None and isinstance(value, str) is not as_text:
            raise Wrong(f"{value!r} is not written as the format {form} is")
        if isinstance(value, str) and not _DIGITS.fullmatch(value):
            raise Wrong("not a whole number")
        if not least <= int(value) <= most:
            raise Wrong("out of range")

    return check


_FORMS: dict[str, Check] = {
    "byte": _bytes,
    "google-datetime": _formed(_DATETIME, "date and time"),
    "google-duration": _formed(_DURATION, "duration"),
}
