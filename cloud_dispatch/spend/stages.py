"""How far spending has come. Owns what was spent until now, that of living VMs included, and the stage it means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cloud_dispatch.domain.money import Amount, charge
from cloud_dispatch.spend.budget import Budget, Stage
from cloud_dispatch.spend.commitment import Commitment
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.windows import Span, span_at


class Reached(NamedTuple):
    """A budget in its present window: what was spent, and the stage that this is."""

    budget: Budget
    span: Span
    spent: Amount
    stage: Stage


def reached(
    budgets: Sequence[Budget], standing: Standing, commitments: Iterable[Commitment], now_ms: int
) -> list[Reached]:
    """Every budget with its stage, in order. A living VM is taken at its highest price."""
    living = list(commitments)
    found = []
    for budget in budgets:
        span = span_at(budget.window, now_ms)
        spent = standing.spent(budget, span) + sum(
            charge(one.rate, span.overlap_ms(one.from_ms, min(now_ms, one.until_ms)))
            for one in living
            if budget.key in one.keys
        )
        found.append(Reached(budget, span, Amount(spent), budget.stage(Amount(spent))))
    return found
