"""The one ASGI app: agents' routes directly, everything else by the operator's app. Owns only this choice."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from cloud_dispatch.api.expiry import Expiry
from cloud_dispatch.api.operator import OperatorApp
from cloud_dispatch.api.services import Services
from cloud_dispatch.api.sync import SyncService
from cloud_dispatch.api.worker import WorkerRoutes


class Api:
    """The app. `close` answers everything that waits, so that a server can stop gracefully."""

    def __init__(self, services: Services) -> None:
        self._s = services
        self.sync = SyncService(services)
        self._expiry = Expiry(services.clock, services.tokens.life_ms)
        self.worker = WorkerRoutes(services, self.sync, self._expiry)
        self.operator = OperatorApp(services, self.sync.polls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
        route = self.worker.table.get((scope["method"], scope["path"]))
        if route is not None:
            await self.worker(route, scope, receive, send)
        else:
            await self.operator(scope, receive, send)

    def caller(self, authorization: bytes) -> str:
        """Whose token is in an Authorization header, "" where none is that is good."""
        return self._s.tokens.caller(authorization, self._expiry.now(), self._s.store.holds)

    def close(self) -> None:
        """Answer all held requests now and hold none from here on."""
        self.sync.close()
        self.operator.close()


def make_app(services: Services) -> Api:
    """The dispatcher's API over `services`."""
    return Api(services)
