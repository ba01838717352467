"""The routes under /v1/breakers: what is not launched because it failed too often, and an operator's word on it."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloud_dispatch.api.requests import body_of, json_response, route
from cloud_dispatch.api.services import Services
from cloud_dispatch.domain.errors import InvalidInput


class ResetBody(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    all: bool = False


_RESET = msgspec.json.Decoder(ResetBody)


class BreakerRoutes:
    def __init__(self, services: Services) -> None:
        self._s = services

    def routes(self) -> list[Route]:
        return [
            route("GET", "/v1/breakers", self.listing),
            route("POST", "/v1/breakers/reset", self.reset),
        ]

    async def listing(self, request: Request) -> Response:
        return json_response({"breakers": self._s.fleet.breakers()})

    async def reset(self, request: Request) -> Response:
        asked = await body_of(request, _RESET, self._s.limits.operator_bytes)
        if asked.all == bool(asked.name):
            raise InvalidInput("expected either a name or all", place="name")
        await self._s.fleet.reset_breakers(asked.name)
        return json_response({"breakers": self._s.fleet.breakers()})
