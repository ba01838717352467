"""The routes of costs: /v1/costs, and those of one task. Owns how days and places in the order are written."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloud_dispatch.api.requests import json_response, page_size, path_task, route, text
from cloud_dispatch.api.services import Services
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.ids import InstanceId
from cloud_dispatch.domain.money import format_rate
from cloud_dispatch.spend.costs import AttemptCost, Cost, CostKey, CostQuery, CostRow, KeyValue, total_of
from cloud_dispatch.spend.windows import DAY_MS, FOREVER_MS

_PAGE, _MOST = 1_000, 10_000
_DAYS = re.compile(r"([1-9][0-9]{0,4})d")
_1970 = date(1970, 1, 1).toordinal()
_HINT = "a day of UTC such as 2026-10-05, or 7d: today and the six days before"
_KEYS = msgspec.json.Decoder(list[str | int | None])
_PLACE = msgspec.json.Decoder(tuple[str, int])
View = dict[str, Any]


class CostRoutes:
    def __init__(self, services: Services) -> None:
        self._s = services

    def routes(self) -> list[Route]:
        return [
            route(
                "GET",
                "/v1/costs",
                self.costs,
                query=("by", "since", "until", "project", "user", "pool", "limit", "after"),
            ),
            route("GET", "/v1/tasks/{task}/cost", self.of_task),
        ]

    async def costs(self, request: Request) -> Response:
        query, limit, after = self._query(request), page_size(request, _PAGE, _MOST), text(request, "after")
        counts: dict[str, int | None] = {"running": None, "unpriced": None}
        following: tuple[KeyValue, ...] | None
        if CostKey.TASK in query.by:
            place = _decoded(_PLACE, after) if after else None
            page = await self._s.store.costs_by_task(
                query, after=(InstanceId(place[0]), place[1]) if place else None, limit=limit
            )
            rows, following = page.rows, page.next
            summed = await self._s.store.costs(replace(query, by=())) if not after else None
        else:
            summed = await self._s.store.costs(query)
            rows = _after(summed.rows, query.by, _decoded(_KEYS, after)) if after else summed.rows
            following = rows[limit - 1].keys if len(rows) > limit else None
            rows = rows[:limit]
        if summed is not None and not after:
            counts = {"running": summed.running, "unpriced": summed.unpriced}
        return json_response(
            {
                "by": query.by,
                "rows": [_row(query.by, row) for row in rows],
                "total": _money(total_of(row.cost for row in rows)),
                **counts,
                "next": None if following is None else msgspec.json.encode(following).decode(),
            }
        )

    async def of_task(self, request: Request) -> Response:
        task = path_task(request)
        attempts = await self._s.store.cost_of_task(task)
        return json_response(
            {
                "task": task,
                "attempts": [_attempt(one) for one in attempts],
                "total": _money(total_of(one.cost for one in attempts if one.cost is not None)),
            }
        )

    def _query(self, request: Request) -> CostQuery:
        today = self._s.clock.now() // DAY_MS
        since, until = text(request, "since"), text(request, "until")
        since_ms = _day(since, "since", today) * DAY_MS if since else 0
        until_ms = (_day(until, "until", today) + 1) * DAY_MS if until else FOREVER_MS
        if since_ms >= until_ms:
            raise InvalidInput(f"{until!r} is before {since!r}", place="until", hint="both days are counted")
        return CostQuery(
            by=_by(text(request, "by", CostKey.PROJECT) or CostKey.PROJECT),
            since_ms=since_ms,
            until_ms=until_ms,
            project=text(request, "project"),
            user=text(request, "user"),
            pool=text(request, "pool"),
        )


def _by(words: str) -> tuple[CostKey, ...]:
    unknown = next((word for word in words.split(",") if word not in set(CostKey)), None)
    if unknown is not None:
        raise InvalidInput(f"no such key {unknown[:40]!r}", place="by", hint=f"any of: {', '.join(CostKey)}")
    keys = tuple(CostKey(word) for word in words.split(","))
    if len(set(keys)) < len(keys):
        raise InvalidInput("a key is named twice", place="by")
    return keys


def _day(words: str, place: str, today: int) -> int:
    """Days since 1970."""
    back = _DAYS.fullmatch(words)
    if back is not None:
        return max(today - int(back[1]) + 1, 0)
    try:
        day = date.fromisoformat(words).toordinal() - _1970
    except ValueError:
        day = -1
    if day < 0:
        raise InvalidInput(f"{words[:40]!r} is no day", place=place, hint=_HINT)
    return day


def _decoded(decoder: Any, after: str) -> Any:
    try:
        return decoder.decode(after)
    except (msgspec.DecodeError, UnicodeError):
        raise InvalidInput("not a place that an answer gave as `next`", place="after") from None


def _after(rows: tuple[CostRow, ...], by: tuple[CostKey, ...], keys: list[KeyValue]) -> tuple[CostRow, ...]:
    kinds = [int if key is CostKey.DAY else str for key in by]
    if list(map(type, keys)) != kinds:
        raise InvalidInput("this `next` is the answer to another question", place="after")
    place = CostRow(tuple(keys), Cost()).place
    return tuple(row for row in rows if row.place > place)


def _row(by: tuple[CostKey, ...], row: CostRow) -> View:
    values = {key.value: _shown(key, value) for key, value in zip(by, row.keys, strict=True)}
    return values | _money(row.cost)


def _shown(key: CostKey, value: KeyValue) -> KeyValue:
    if key is CostKey.DAY and isinstance(value, int):
        return date.fromordinal(value // DAY_MS + _1970).isoformat()
    return value


def _money(cost: Cost) -> dict[str, int]:
    return {**cost._asdict(), "total": cost.whole}


def _attempt(one: AttemptCost) -> View:
    money = dict.fromkeys((*Cost._fields, "total")) if one.cost is None else _money(one.cost)
    return {
        "number": one.number,
        "token": one.token,
        "instance": one.instance,
        "started_ms": one.started_ms,
        "ended_ms": one.ended_ms,
        "cause": one.cause,
        "rate_nano": one.rate,
        "rate": "unknown" if one.rate is None else format_rate(one.rate),
        **money,
    }
