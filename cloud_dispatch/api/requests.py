"""What operator routes read of a request: path, query and body, each checked, and how they answer JSON.

Owns the wording of errors about them. Must not know what they are for.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloud_dispatch.api.http import decode_exact, read_body
from cloud_dispatch.domain.errors import InvalidInput, NotFound
from cloud_dispatch.domain.ids import FencingToken, InstanceId, PoolName, TaskId
from cloud_dispatch.domain.task import TaskState

S = TypeVar("S", bound=msgspec.Struct)
_NUMBER = re.compile(r"[0-9]{1,18}")
_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MOST_TEXT = 1024
_encoder = msgspec.json.Encoder()


def route(method: str, path: str, answer: Callable[[Request], Awaitable[Response]], query: Sequence[str] = ()) -> Route:
    """A route that `answer` serves. A request whose query has another name than those in `query`, or one twice, is
    refused: what is misspelt would else be a filter that is left out."""

    async def checked(request: Request) -> Response:
        given = [name for name, _ in request.query_params.multi_items()]
        for at, name in enumerate(given):
            if name not in query:
                hint = f"parameters here: {', '.join(query) or 'none'}"
                raise InvalidInput("there is no such parameter", place=name[:40], hint=hint)
            if name in given[:at]:
                raise InvalidInput("is given more than once", place=name, hint="give it once")
        return await answer(request)

    return Route(path, checked, methods=[method])


def json_response(value: Any, status: int = 200) -> Response:
    """`value` (JSON-ready, dataclasses and enums included) as the answer."""
    return Response(_encoder.encode(value), status, media_type="application/json")


def path_number(request: Request, what: str) -> int:
    """The number of a task or a plan that the path names; NotFound when that can't be one."""
    text = request.path_params[what]
    if _NUMBER.fullmatch(text) is None:
        raise NotFound(f"there is no {what} {text[:40]!r}", place=what, hint=f"{what} ids are numbers")
    return int(text)


def path_task(request: Request) -> TaskId:
    """The task that the path names; NotFound when that can't be one."""
    return TaskId(path_number(request, "task"))


def path_instance(request: Request) -> InstanceId:
    """The instance that the path names; NotFound when that can't be one."""
    text = request.path_params["instance"]
    if _INSTANCE.fullmatch(text) is None:
        raise NotFound(f"there is no instance {text[:40]!r}", place="instance")
    return InstanceId(text)


def path_pool(request: Request) -> PoolName:
    return PoolName(request.path_params["pool"])


def text(request: Request, name: str, default: str = "") -> str:
    """A text of the query."""
    value = request.query_params.get(name, default)
    return check_text(value, name)


def check_text(value: str, place: str) -> str:
    """`value`, if every statestore can hold it."""
    if "\0" in value or len(value) > _MOST_TEXT:
        raise InvalidInput(f"a text of at most {_MOST_TEXT} characters without NUL was expected", place=place)
    return value


def number(request: Request, name: str, default: int, most: int) -> int:
    """A whole number of the query, from 0 to `most`."""
    value = request.query_params.get(name)
    if value is None or value == "":
        return default
    if _NUMBER.fullmatch(value) is None or int(value) > most:
        raise InvalidInput(f"expected a whole number from 0 to {most}, got {value[:40]!r}", place=name)
    return int(value)


def page_size(request: Request, default: int, most: int) -> int:
    """`limit` of the query: at least 1; more than `most` is taken as `most`, callers page anyway."""
    limit = number(request, "limit", default, 10**9)
    if limit < 1:
        raise InvalidInput("expected at least 1", place="limit")
    return min(limit, most)


def flag(request: Request, name: str) -> bool:
    """A yes or no of the query: `1` or `true` is yes; none is no."""
    value = request.query_params.get(name, "").lower()
    if value not in ("", "1", "true", "yes", "0", "false", "no"):
        raise InvalidInput(f"expected 1 or 0, got {value[:40]!r}", place=name)
    return value in ("1", "true", "yes")


def token_of(request: Request, name: str) -> FencingToken | None:
    """The fencing token in the query, None when there is none."""
    value = number(request, name, 0, 10**18)
    return FencingToken(value) if value else None


def states(words: list[str], place: str) -> frozenset[TaskState]:
    """Task states by name."""
    known = frozenset(TaskState)
    for word in words:
        if word not in known:
            raise InvalidInput(f"no such state {word[:40]!r}", place=place, hint=f"states are: {', '.join(TaskState)}")
    return frozenset(TaskState(word) for word in words)


async def body_of(request: Request, decoder: msgspec.json.Decoder[S], limit: int) -> S:
    """The JSON body, at most `limit` bytes; an empty one counts as {}."""
    body = await read_body(request.scope, request.receive, limit)
    value: S = decode_exact(decoder, body or b"{}")
    return value
