"""What would be done now, and what could be. Owns the dry plan and its plain form for people and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloud_dispatch.demand.port import DemandSource
from cloud_dispatch.domain.money import format_rate
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.plan import Action, Launch, Plan
from cloud_dispatch.reconcile import offers, picture
from cloud_dispatch.reconcile.context import Context
from cloud_dispatch.reconcile.spend import Spending


class Preview:
    def __init__(self, context: Context, sources: Sequence[DemandSource], spending: Spending | None = None) -> None:
        self._c = context
        self._sources = sources
        self._spending = spending or Spending(context)

    async def offers(self, shape: Shape, limit: int) -> dict[str, Any]:
        return await offers.live(self._c, self._spending, shape, limit)

    async def preview(self) -> dict[str, Any]:
        snapshot = picture.take(self._c, self._sources)
        held = [f"{one.profile}: {one.reason}" for one in snapshot.blocked if one.obstacle is Obstacle.BREAKER]
        return {**plain(await self._c.planning.run(plan, snapshot)), "quarantined": held}


def plain(decided: Plan) -> dict[str, Any]:
    """A plan as JSON-ready values."""
    return {
        "actions": [_action(action) for action in decided.actions],
        "waiting": [{"shape": w.shape.describe(), "count": w.count, "reason": w.reason} for w in decided.waiting],
        "unsatisfiable": [
            {"shape": u.shape.describe(), "count": u.count, "reason": u.reason, "nearest": u.nearest}
            for u in decided.unsatisfiable
        ],
        "short": [{"pool": s.pool, "missing": s.missing, "reason": s.reason} for s in decided.shortfalls],
    }


def _action(action: Action) -> dict[str, Any]:
    if isinstance(action, Launch):
        rate = action.offering.rate
        return {
            "kind": "launch",
            "pool": action.pool,
            "offering": action.offering.key,
            "slots": action.slots,
            "rate": "unknown" if rate is None else format_rate(rate),
            "reason": action.reason,
        }
    return {
        "kind": type(action).__name__.lower(),
        "instance": action.instance,
        "cause": action.cause,
        "reason": action.reason,
    }
