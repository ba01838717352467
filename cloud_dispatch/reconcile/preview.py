"""What would be done now, and what could be. Owns the dry plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloud_dispatch.demand.port import DemandSource
from cloud_dispatch.domain.shape import Shape
from cloud_dispatch.planner import plan
from cloud_dispatch.planner.obstacle import Obstacle
from cloud_dispatch.planner.plain import plain
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
