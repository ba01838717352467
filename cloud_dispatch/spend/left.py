"""What is left for launches. Owns the rule that nothing is launched which could not be finished, and its one exception.

Work of unknown length may need its VM's whole lifetime, and that much must be left for it. But where nothing is known
something has to be tried: as long as no other VM works on what is unknown, one is launched if only its first end is
paid for. What it finishes tells how long the rest may take.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.spend.commitment import Commitment
from cloud_dispatch.spend.ends import Holder, Pace, lasting
from cloud_dispatch.spend.standing import Refusal, Standing


class Taken(NamedTuple):
    """So many are launched; `is_trial`: with the end of a trial."""

    slots: int
    is_trial: bool = False


class Left:
    """`standing` as it is, with everything that `holders` run finished; less with each launch that is taken. `why`: the
    last refusal, in words; `too_dear`: the lowest rate that it means for others alike, 0 where it means none."""

    def __init__(self, standing: Standing, holders: Collection[Holder], now_ms: int, pace: Pace) -> None:
        for holder in holders:
            standing.remove(holder.commitment)
            standing.add(lasting(holder, now_ms, pace))
        self._standing = standing
        self._tries = any(holder.works and holder.finish_ms is None for holder in holders)
        self.why = ""
        self.too_dear = Rate(0)

    def take(self, wanted: Sequence[Commitment], lasts_until_ms: int, trial_until_ms: int) -> Taken:
        """How many of `wanted`, which are alike, are launched; to finish their work they may last until
        `lasts_until_ms`, and a trial ends at `trial_until_ms`."""
        whole = [replace(one, until_ms=max(lasts_until_ms, one.until_ms)) for one in wanted]
        fits = self._standing.room(whole[0], len(whole))
        for one in whole[:fits]:
            self._standing.add(one)
        if fits:
            return Taken(fits)
        refusal = self._standing.refusal(whole[0])
        trial = replace(wanted[0], until_ms=trial_until_ms)
        may_try = not self._tries and lasts_until_ms > trial_until_ms
        refused = self._standing.refusal(trial) if may_try else refusal
        if refusal is not None and refused is not None:
            self.why, self.too_dear = str(refusal), _too_dear(trial if may_try else whole[0], refused)
            return Taken(0)
        self._standing.add(trial)
        self._tries = True
        return Taken(1, is_trial=True)


def _too_dear(wanted: Commitment, refusal: Refusal) -> Rate:
    """The lowest rate at which another one for as long would be refused too: what is left pays for less."""
    left = max(refusal.budget.limit - refusal.spent - refusal.committed, 0)
    return Rate(max(min(wanted.rate * left // max(refusal.wanted, 1) + 1, wanted.rate), 1))
