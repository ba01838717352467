"""Filters and pages of EC2's Describe operations.

A filter that AWS does not document is refused as EC2 refuses it, one that AWS has and the fake has not fails loudly.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from tests.fakes.aws.errors import AwsError, NotInModel, Unmodelled
from tests.fakes.aws.model import Operation

T = TypeVar("T")
Getter = Callable[[T], Iterable[str]]
_MOST_VALUES = 200


@lru_cache(maxsize=512)
def _pattern(text: str) -> re.Pattern[str] | None:
    if not any(sign in text for sign in "*?\\"):
        return None
    parts = re.split(r"(\\.|\*|\?)", text)
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(p, re.escape(p[1:] if p[:1] == "\\" else p)) for p in parts), re.DOTALL)


def _matches(wanted: Sequence[str], found: Iterable[str]) -> bool:
    for value in found:
        for text in wanted:
            pattern = _pattern(text)
            if value == text if pattern is None else pattern.fullmatch(value):
                return True
    return False


def chosen(
    operation: Operation, filters: list[dict[str, Any]], getters: Mapping[str, Getter[T]],
    tags: Callable[[T], Mapping[str, str]],
) -> Callable[[T], bool]:  # fmt: skip
    """Whether something passes all the filters, each of which any of its values passes."""
    assert operation.input is not None
    documented = operation.input.members["Filters"].filters
    if not documented.issuperset(getters):
        raise NotInModel(f"{operation.name} has no filters {sorted(set(getters) - documented)}")
    tests: list[tuple[Getter[T], list[str]]] = []
    for one in filters:
        name, values = one.get("Name", ""), one.get("Values", [])
        if not name or not values:
            raise AwsError("InvalidParameterValue", f"The filter '{name}' needs a name and values")
        if len(values) > _MOST_VALUES:
            raise AwsError("FilterLimitExceeded", "The maximum number of filter values is exceeded")
        tests.append((_getter(operation.name, documented, name, getters, tags), values))
    return lambda thing: all(_matches(values, getter(thing)) for getter, values in tests)


def _getter(
    operation: str, documented: frozenset[str], name: str, getters: Mapping[str, Getter[T]],
    tags: Callable[[T], Mapping[str, str]],
) -> Getter[T]:  # fmt: skip
    if name in getters:
        return getters[name]
    if name.startswith("tag:") and "tag-key" in documented:
        key = name.removeprefix("tag:")

        def value(thing: T) -> Iterable[str]:
            found = tags(thing).get(key)
            return () if found is None else (found,)

        return value
    if name == "tag-key" and name in documented:
        return lambda thing: tags(thing)
    if name in documented:
        raise Unmodelled(f"the filter {name} of {operation}")
    raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")


@dataclass(frozen=True, slots=True)
class Page:
    """Where a listing stands: what was shown last, and the number of the page that comes now, counted from 1."""

    after: int
    number: int


def page_of(operation: Operation, params: Mapping[str, Any]) -> Page:
    """From the request's token; a token is good for the request that it came from."""
    token = params.get("NextToken")
    if not token:
        return Page(-1, 1)
    try:
        after, number, query = json.loads(base64.urlsafe_b64decode(token))
    except ValueError:
        raise AwsError("InvalidNextToken", "The specified NextToken is not valid.") from None
    if query != _query(operation, params):
        raise AwsError("InvalidNextToken", "The NextToken belongs to another request.")
    return Page(after, number)


def token_after(operation: Operation, params: Mapping[str, Any], page: Page, shown: int) -> str:
    """The token for the page after this one."""
    text = json.dumps([shown, page.number + 1, _query(operation, params)])
    return base64.urlsafe_b64encode(text.encode()).decode()


def _query(operation: Operation, params: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in params.items() if name not in ("NextToken", "MaxResults")}
    text = json.dumps([operation.name, rest], sort_keys=True, default=str)
    return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()


def page_size(params: Mapping[str, Any], least: int, most: int, default: int) -> int:
    """MaxResults within its limits. Without one EC2 answers with everything where `default` is 0."""
    size = params.get("MaxResults")
    if size is None:
        return default or 1 << 40
    if not least <= size <= most:
        raise AwsError(
            "InvalidParameterValue",
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value between {least} and {most}.",
        )
    count: int = size
    return count
