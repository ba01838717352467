"""What providers' quotas have room for. Owns the count of what a plan launches.

A quota that is used up is like a cap: what it bounds is not what prices are compared with, since it will not be back by
itself. What is launched elsewhere meanwhile is the provider's to refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.planner.needs import UNBOUNDED
from cloud_dispatch.planner.scopes import Scopes
from cloud_dispatch.planner.snapshot import QuotaUse


class Quotas:
    """What is left of them, this plan's launches included."""

    def __init__(self, quotas: Sequence[QuotaUse]) -> None:
        self._quotas = quotas
        self._of: dict[int, list[QuotaUse]] = {}
        self._taken: dict[int, int] = {}

    @cached_property
    def _bounds(self) -> Scopes[QuotaUse]:
        return Scopes(self._quotas)

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def room(self, offering: Offering) -> int:
        """How many more of `offering` all the quotas admit."""
        if not self:
            return UNBOUNDED
        return min((self._left(one) // one.size(offering) for one in self._bounding(offering)), default=UNBOUNDED)

    def take(self, offering: Offering, count: int) -> None:
        """Count `count` more (or, negative, fewer)."""
        for one in self._bounding(offering) if self else ():
            self._taken[id(one)] = self._taken.get(id(one), 0) + count * one.size(offering)

    def why(self, offering: Offering) -> str:
        """Which quota has no room for another one, in words; "" when all have."""
        full = (one for one in self._bounding(offering) if self._left(one) < one.size(offering))
        return next((one.why(offering, self._taken.get(id(one), 0)) for one in full), "")

    def _left(self, one: QuotaUse) -> int:
        return max(one.limit - one.used - self._taken.get(id(one), 0), 0)

    def _bounding(self, offering: Offering) -> list[QuotaUse]:
        found = self._of.get(id(offering))
        if found is None:
            found = self._of[id(offering)] = [one for one in self._bounds.of(offering) if one.size(offering)]
        return found
