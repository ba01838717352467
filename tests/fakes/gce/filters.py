"""The `filter` of listings, and their pages."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tests.fakes.gce.session import Session
from tests.fakes.google.errors import ApiError

T = TypeVar("T")
#: What an item says by the dotted name of a field; None where it has no such.
Get = Callable[[str], Any]
Test = Callable[[Get], bool]
_TOKENS = re.compile(r'\s*(\(|\)|"(?:[^"\\]|\\.)*"|!=|[=:<>]|[^\s()=:<>!"]+)')
_MOST = 500


def passes(session: Session) -> Test:
    """What the filter of a request lets through."""
    text = session.params.get("filter", "")
    if not text:
        return lambda get: True
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = _TOKENS.match(text, at)
        if found is None:
            raise _wrong(text)
        tokens.append(found[1])
        at = found.end()
    parser = _Parser(session, text, tokens)
    test = parser.alternatives()
    if parser.left:
        raise _wrong(text)

    def counted(get: Get) -> bool:
        passed = test(get)
        session.left_out[0] += not passed
        return passed

    return counted


def _wrong(text: str) -> ApiError:
    return ApiError("invalid", f"Invalid value for field 'filter': '{text}'. Invalid list filter expression.")


class _Parser:
    """AND binds tighter than OR, and stands between expressions of which nothing is said."""

    def __init__(self, session: Session, text: str, tokens: list[str]) -> None:
        self._session, self._text, self.left = session, text, tokens

    def alternatives(self) -> Test:
        tests = [self._together()]
        while self._next_is("OR"):
            tests.append(self._together())
        return lambda get: any(test(get) for test in tests)

    def _together(self) -> Test:
        tests = [self._one()]
        while self.left and self.left[0] not in (")", "OR"):
            self._next_is("AND")
            tests.append(self._one())
        return lambda get: all(test(get) for test in tests)

    def _one(self) -> Test:
        if self._next_is("NOT"):
            test = self._one()
            return lambda get: not test(get)
        if self._next_is("("):
            inner = self.alternatives()
            if not self._next_is(")"):
                raise _wrong(self._text)
            return inner
        if len(self.left) < 3:
            raise _wrong(self._text)
        field, sign, value = self.left[:3]
        del self.left[:3]
        return self._compared(field, sign, value)

    def _compared(self, field: str, sign: str, value: str) -> Test:
        if sign == ":" and value == "*":
            return lambda get: get(field) is not None
        quoted = value.startswith('"')
        plain = json.loads(value) if quoted else value
        if sign in ("eq", "ne"):
            pattern = re.compile(plain)
            return lambda get: (pattern.fullmatch(_text(get(field))) is not None) is (sign == "eq")
        if "*" in plain and not quoted:
            raise self._session.unmodelled(f"filter with * in a value ({self._text})")
        if sign == ":":
            return lambda get: plain.lower() in _text(get(field)).lower()
        if sign == "=":
            return lambda get: get(field) is not None and _text(get(field)) == plain
        if sign == "!=":
            return lambda get: _text(get(field)) != plain
        raise self._session.unmodelled(f"filter with {sign} ({self._text})")

    def _next_is(self, word: str) -> bool:
        if self.left and self.left[0] == word:
            del self.left[0]
            return True
        return False


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def getter(resource: Any) -> Get:
    """Fields of a resource by their dotted names."""

    def get(field: str) -> Any:
        value = resource
        for part in field.split("."):
            if not isinstance(value, dict) or part not in value:
                return None
            value = value[part]
        return value

    return get


def page_of(session: Session, items: Sequence[tuple[Any, T]]) -> tuple[list[T], str]:
    """The page that is asked for, of items with keys in order; and the token of the next one, "" for none."""
    region = session.params.get("region") or str(session.params.get("zone", "")).rpartition("-")[0]
    session.cloud.charge(region, session.left_out[0])
    size = session.params.get("maxResults", _MOST)
    if size > _MOST:
        raise ApiError("invalid", f"Invalid value for field 'maxResults': '{size}'. It must be at most {_MOST}.")
    if "orderBy" in session.params and session.params["orderBy"] != "name":
        raise session.unmodelled(f"order by {session.params['orderBy']}")
    number, after = _begun(session)
    fault = session.cloud.faults.breaks_off(session.method.name, number, session.now)
    if fault is not None:
        raise ApiError(fault.code or "backendError", f"page {number} could not be made")
    left = items if after is None else [one for one in items if list(one[0]) > after]
    size = size or _MOST
    page = left[:size]
    token = _token(session, number + 1, page[-1][0]) if len(left) > size else ""
    return [item for _, item in page], token


def _bound(session: Session) -> str:
    kept = {name: value for name, value in session.params.items() if name not in ("pageToken", "maxResults")}
    return json.dumps([session.method.name, kept], sort_keys=True)


def _token(session: Session, number: int, key: Any) -> str:
    text = json.dumps([number, list(key), _bound(session)])
    return base64.urlsafe_b64encode(text.encode()).decode()


def _begun(session: Session) -> tuple[int, list[Any] | None]:
    token = session.params.get("pageToken")
    if not token:
        return 1, None
    try:
        number, key, bound = json.loads(base64.urlsafe_b64decode(token))
    except ValueError:
        number, key, bound = 0, None, ""
    if bound != _bound(session):
        raise ApiError("invalid", f"Invalid value for field 'pageToken': '{token}'. It is of another listing.")
    return number, key
