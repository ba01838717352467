"""What a configuration may cost if everything goes wrong: the most machines, at the highest price, to their end.

Pure. It is not what the limits admit (that is the other number to look at): it is what they are there to keep away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cloud_dispatch.domain.durations import format_duration
from cloud_dispatch.domain.money import Amount, Rate, charge, format_amount, format_rate
from cloud_dispatch.domain.offering import Offering
from cloud_dispatch.domain.pool import Caps, Pool
from cloud_dispatch.spend.budget import Budget


@dataclass(frozen=True)
class Risk:
    """Of one pool: `instances` of `offering` (None: no cap bounds them), each at `rate` for `lifetime_ms`. `amount` in
    micro-dollars, None where there is no cap or no known highest price."""

    pool: str
    offering: str
    rate: Rate | None
    lifetime_ms: int
    instances: int | None
    amount: Amount | None

    def __str__(self) -> str:
        price = "a price that nobody knows" if self.rate is None else format_rate(self.rate)
        many = "any number of" if self.instances is None else str(self.instances)
        comes = "no bound" if self.amount is None else format_amount(self.amount)
        return (
            f"pool {self.pool}: {many} x {self.offering} at {price} for {format_duration(self.lifetime_ms)} comes to"
            f" {comes}"
        )


def risk_of(pool: Pool, offerings: Iterable[Offering], caps: Sequence[Sequence[Caps]]) -> Risk | None:
    """The dearest that `pool` may come to; `caps`: for each of `offerings` those that bind it. None when the pool may
    rent none of them."""
    risks = [
        _with(pool, offering, bounds) for offering, bounds in zip(offerings, caps, strict=True) if pool.admits(offering)
    ]
    return max(risks, key=_dread, default=None)


def _with(pool: Pool, offering: Offering, bounds: Sequence[Caps]) -> Risk:
    most = [caps.instances for caps in bounds if caps.instances is not None]
    most += [caps.vcpus // max(offering.type.vcpus, 1) for caps in bounds if caps.vcpus is not None]
    instances, highest = min(most, default=None), offering.highest_rate
    rate = None if highest is None else Rate(highest + offering.extra_rate)
    bounded = instances is not None and rate is not None
    amount = Amount(charge(Rate((rate or 0) * (instances or 0)), pool.end.lifetime_ms)) if bounded else None
    return Risk(pool.name, offering.key, rate, pool.end.lifetime_ms, instances, amount)


def _dread(risk: Risk) -> tuple[bool, bool, int, str]:
    return risk.instances is None, risk.rate is None, risk.amount or risk.rate or 0, risk.offering


def in_words(risks: Sequence[Risk], budgets: Sequence[Budget]) -> list[str]:
    """For the operator, at the start: what everything may come to, and which limits hold."""
    lines = [str(risk) for risk in risks]
    known = [risk.amount for risk in risks if risk.amount is not None]
    if known and len(known) == len(risks) > 1:
        lines.append(f"all pools together, each by itself: {format_amount(Amount(sum(known)))}")
    limits = ", ".join(f"{budget.name} {format_amount(budget.limit)}" for budget in budgets)
    lines.append(f"limits: {limits}" if limits else "no spending limit is set: nothing but the caps bounds this")
    return lines
