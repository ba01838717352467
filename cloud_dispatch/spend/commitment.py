"""Commitments: the most that something rented can still bill. Owns how much of one falls into a stretch of time.

What a commitment charges and what a ledger row charges are the same function of a rate and an interval, rounded up by
itself for each window. An interval inside another at a rate that is no higher never charges more, in any window: so a
row may replace its commitment whenever its end is known, and no sum ever grows by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cloud_dispatch.domain.money import Amount, Rate, billed_ms, charge
from cloud_dispatch.spend.windows import Span


class Scope(StrEnum):
    """Whose spending a budget bounds."""

    DEPLOYMENT = "deployment"
    DRIVER = "driver"  # all its profiles together
    PROFILE = "profile"
    POOL = "pool"
    PROJECT = "project"
    USER = "user"


class Key(NamedTuple):
    """One thing that spends: a scope and which of its kind (the deployment has no name)."""

    scope: Scope
    name: str = ""


EVERYTHING = Key(Scope.DEPLOYMENT)
#: Scopes whose spending is that of claims, not of VMs; any name may be of them.
OF_PAYERS = frozenset({Scope.PROJECT, Scope.USER})


@dataclass(frozen=True, slots=True)
class Commitment:
    """What one VM, one batch job, or one claim on a VM may bill at most: `rate` (nano-dollars an hour, with disk and
    address, spot at its maximum) from `from_ms` until `until_ms`, by the provider's billing minimum and increment.
    `until_ms` is when the last hand that ends it has ended it: its hard end, that hand's period and its own slowness.
    It begins at `begins_by_ms` at the latest (not before `from_ms`). `keys`: what it counts for. Moments
    are those of the clock that bills: whoever makes one of another clock's allows for the difference.

    Where in that time it bills is not known, how much of it is: never longer than `most_ms`.
    """

    name: str
    keys: tuple[Key, ...]
    rate: Rate
    from_ms: int
    until_ms: int
    minimum_ms: int = 0
    increment_ms: int = 1
    begins_by_ms: int = 0

    @property
    def billed_until_ms(self) -> int:
        """Nothing later is billed for it, whenever it begins and ends: the last increment begins before its end, and
        the minimum counts from its beginning."""
        begins_by = max(self.from_ms, min(self.begins_by_ms, self.until_ms))
        least = -(-self.minimum_ms // self.increment_ms) * self.increment_ms
        return max(self.until_ms + self.increment_ms - 1, begins_by + least)

    @property
    def most_ms(self) -> int:
        """The longest that is billed for it, all windows together."""
        return billed_ms(self.until_ms - self.from_ms, minimum_ms=self.minimum_ms, increment_ms=self.increment_ms)

    def charge(self, span: Span) -> Amount:
        """What it may bill within `span`."""
        return charge(self.rate, min(span.overlap_ms(self.from_ms, self.billed_until_ms), self.most_ms))
