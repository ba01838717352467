"""The routes under /v1/stop: the kill switch."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloud_dispatch.api.requests import body_of, json_response, route
from cloud_dispatch.api.services import Services
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.stop import Stop, StopLevel

_MOST_REASON = 4096


class StopBody(msgspec.Struct, forbid_unknown_fields=True):
    level: StopLevel
    reason: str = ""


_STOP = msgspec.json.Decoder(StopBody)


class StopRoutes:
    def __init__(self, services: Services) -> None:
        self._s = services

    def routes(self) -> list[Route]:
        return [route("GET", "/v1/stop", self.show), route("POST", "/v1/stop", self.stop)]

    async def show(self, request: Request) -> Response:
        return json_response(stop_view(self._s.fleet.stopped()))

    async def stop(self, request: Request) -> Response:
        asked = await body_of(request, _STOP, self._s.limits.operator_bytes)
        if len(asked.reason) > _MOST_REASON:
            raise InvalidInput(f"expected at most {_MOST_REASON} characters", place="reason")
        return json_response(stop_view(await self._s.fleet.stop(asked.level, asked.reason)))


def stop_view(stop: Stop) -> dict[str, Any]:
    return {"level": str(stop.level), "why": stop.why, "since_ms": stop.since_ms}
