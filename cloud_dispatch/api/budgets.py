"""The routes under /v1/budgets: how the spending limits stand, and the word of an operator after a restore."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloud_dispatch.api.requests import json_response
from cloud_dispatch.api.services import Services


class BudgetRoutes:
    def __init__(self, services: Services) -> None:
        self._s = services

    def routes(self) -> list[Route]:
        return [
            Route("/v1/budgets", self.listing, methods=["GET"]),
            Route("/v1/budgets/reconcile", self.reconcile, methods=["POST"]),
        ]

    async def listing(self, request: Request) -> Response:
        return json_response(self._view())

    async def reconcile(self, request: Request) -> Response:
        await self._s.store.reconcile()
        return json_response(self._view())

    def _view(self) -> dict[str, Any]:
        """Amounts in micro-dollars, each budget in its present window."""
        standing = self._s.store.standing()
        budgets = [
            {
                "name": budget.name,
                "scope": str(budget.key.scope),
                "of": budget.key.name,
                "window": str(budget.window),
                "limit": budget.limit,
                "spent": standing.spent(budget, span),
                "committed": standing.committed(budget, span),
                "left": standing.left(budget, span),
            }
            for budget, span in standing.present()
        ]
        return {"budgets": budgets, "unsure_since_ms": self._s.store.unsure_since()}
