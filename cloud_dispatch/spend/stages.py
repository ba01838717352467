"""How far spending has come. Owns what was spent until now, that of living VMs included, and the stage it means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cloud_dispatch.domain.money import Amount, charge
from cloud_dispatch.spend.budget import Budget, Stage
from cloud_dispatch.spend.commitment import Commitment, Key
from cloud_dispatch.spend.standing import Standing
from cloud_dispatch.spend.windows import Span, Window, span_at


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
    windows: dict[Key, set[Window]] = {}
    for budget in budgets:
        windows.setdefault(budget.key, set()).add(budget.window)
    present = {window: span_at(window, now_ms) for window in Window}
    lived: dict[tuple[Key, Window], int] = {}
    for one in commitments:
        for key in one.keys:
            for window in windows.get(key, ()):
                overlap = present[window].overlap_ms(one.from_ms, min(now_ms, one.until_ms))
                lived[key, window] = lived.get((key, window), 0) + charge(one.rate, overlap)
    found = []
    for budget in budgets:
        span = present[budget.window]
        spent = Amount(standing.spent(budget, span) + lived.get((budget.key, budget.window), 0))
        found.append(Reached(budget, span, spent, budget.stage(spent)))
    return found
