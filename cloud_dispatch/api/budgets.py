"""The routes under /v1/budgets: how the spending limits stand, and what an operator may say about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cloud_dispatch.api.requests import body_of, json_response, route, text
from cloud_dispatch.api.services import Services
from cloud_dispatch.domain.errors import InvalidInput
from cloud_dispatch.domain.instance import Instance
from cloud_dispatch.domain.money import MOST_AMOUNT, Amount, format_amount
from cloud_dispatch.spend.commitment import Commitment, Key, Scope
from cloud_dispatch.spend.payers import task_of
from cloud_dispatch.spend.windows import Window, span_at

_MOST_REASON = 4096


class LimitBody(msgspec.Struct, forbid_unknown_fields=True):
    """`limit` in micro-dollars; null leaves it to the configuration."""

    scope: Scope
    window: Window
    limit: int | None
    of: str = ""
    reason: str = ""


_LIMIT = msgspec.json.Decoder(LimitBody)


class BudgetRoutes:
    def __init__(self, services: Services) -> None:
        self._s = services

    def routes(self) -> list[Route]:
        return [
            route("GET", "/v1/budgets", self.listing),
            route("PUT", "/v1/budgets", self.set),
            route("GET", "/v1/budgets/commitments", self.commitments, query=("scope", "of")),
            route("POST", "/v1/budgets/reconcile", self.reconcile),
        ]

    async def listing(self, request: Request) -> Response:
        return json_response(self._view())

    async def set(self, request: Request) -> Response:
        asked = await body_of(request, _LIMIT, self._s.limits.operator_bytes)
        if asked.limit is not None and not 0 <= asked.limit <= MOST_AMOUNT:
            most = format_amount(MOST_AMOUNT)
            raise InvalidInput(f"expected from 0 to {MOST_AMOUNT} micro-dollars ({most}), or null", place="limit")
        if len(asked.reason) > _MOST_REASON:
            raise InvalidInput(f"expected at most {_MOST_REASON} characters", place="reason")
        if bool(asked.of) == (asked.scope is Scope.DEPLOYMENT):
            expected = f"the name of a {asked.scope}" if not asked.of else "no name: there is one deployment"
            raise InvalidInput(f"expected {expected}", place="of")
        limit = None if asked.limit is None else Amount(asked.limit)
        await self._s.fleet.set_limit(Key(asked.scope, asked.of), asked.window, limit, asked.reason)
        return json_response(self._view())

    async def commitments(self, request: Request) -> Response:
        """Of the instances, or claims, that count for `scope` and `of`, the dearest first."""
        scope = text(request, "scope") or str(Scope.DEPLOYMENT)
        if scope not in set(Scope):
            raise InvalidInput(f"expected one of {', '.join(Scope)}", place="scope")
        key, rows = Key(Scope(scope), text(request, "of")), self._s.store.instances()
        self._s.fleet.check_spender(key)
        found = []
        for one in self._s.store.commitments():
            if key in one.keys:
                holder = self._s.store.holder_of(one)
                if holder is not None and holder in rows:
                    found.append(_commitment(one, rows[holder]))
        found.sort(key=lambda view: (-view["committed"], view["instance"], view["task"] or 0))
        return json_response({"commitments": found})

    async def reconcile(self, request: Request) -> Response:
        await self._s.fleet.reconcile()
        return json_response(self._view())

    def _view(self) -> dict[str, Any]:
        """Amounts in micro-dollars, each budget in its present window. `configured`: the configuration's limit, null
        where only an operator has set one. `risk`: what the limits are there to keep away, in words."""
        standing = self._s.store.standing()
        configured: Mapping[tuple[Key, Window], int] = {
            (budget.key, budget.window): budget.limit for budget in self._s.store.configured_limits()
        }
        budgets = [
            {
                "name": budget.name,
                "scope": str(budget.key.scope),
                "of": budget.key.name,
                "window": str(budget.window),
                "limit": budget.limit,
                "configured": configured.get((budget.key, budget.window)),
                "spent": standing.spent(budget, span),
                "committed": standing.committed(budget, span),
                "left": standing.left(budget, span),
            }
            for budget, span in standing.present()
        ]
        risk = list(self._s.fleet.risk())
        return {"budgets": budgets, "unsure_since_ms": self._s.store.unsure_since(), "risk": risk}


def _commitment(one: Commitment, row: Instance) -> dict[str, Any]:
    return {
        "instance": row.id,
        "task": task_of(one),
        "pool": row.pool,
        "profile": row.profile,
        "state": str(row.state),
        "rate": one.rate,
        "from_ms": one.from_ms,
        "ends_ms": row.ends_ms,
        "until_ms": one.until_ms,
        "committed": one.charge(span_at(Window.TOTAL, 0)),
    }
