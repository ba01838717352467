"""What is left for launches. Owns the rule that nothing is launched which could not be finished, and its exceptions.

Work of unknown length may need its VM's whole lifetime, and that much must be left for it. But where nothing is known
something has to be tried: as long as no other VM works on what is unknown, one is launched if only its first end is
paid for. What it finishes tells how long the rest may take.

Nor is a lease wanted beyond what is known where nothing else works that the same limit pays for: one is launched if
just its work is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from cloud_dispatch.domain.money import Rate
from cloud_dispatch.spend.commitment import Commitment, Key
from cloud_dispatch.spend.ends import FirstEnds, Holder, Pace, lasting
from cloud_dispatch.spend.standing import Refusal, Standing


class Taken(NamedTuple):
    """So many are launched, with this hard end."""

    slots: int
    ends_ms: int


class Left:
    """`standing` as it is, with everything that `holders` run finished; less with each launch that is taken. `why`: the
    last refusal, in words; `too_dear`: the lowest rate that it means for others alike, 0 where it means none."""

    def __init__(self, standing: Standing, holders: Collection[Holder], now_ms: int, pace: Pace) -> None:
        moved = [(holder.commitment, lasting(holder, now_ms, pace)) for holder in holders]
        standing.remove_all(before for before, after in moved if after is not before)
        standing.add_all(after for before, after in moved if after is not before)
        self._standing = standing
        #: What each that works counts for, and whether its work is unknown.
        self._working = [(holder.commitment.keys, holder.finish_ms is None) for holder in holders if holder.works]
        self.why = ""
        self.too_dear = Rate(0)

    def take(self, wanted: Sequence[Commitment], ends: FirstEnds, lag_ms: int) -> Taken:
        """How many of `wanted`, which are alike and have `ends`, are launched; each may still bill `lag_ms` after its
        end."""
        taken, launched = self._decided(wanted, ends, lag_ms)
        if launched:
            self._launch(launched, ends)
        return taken

    def refuses(self, wanted: Commitment, ends: FirstEnds, lag_ms: int) -> str:
        """Why `take` would launch nothing of it, "" where it would; changes nothing but the words."""
        return "" if self._decided([wanted], ends, lag_ms)[1] else self.why

    def _decided(
        self, wanted: Sequence[Commitment], ends: FirstEnds, lag_ms: int
    ) -> tuple[Taken, Sequence[Commitment]]:
        """What is taken, and what that commits."""
        until_ms = ends.lasts_ms + lag_ms
        whole = [replace(one, until_ms=max(until_ms, one.until_ms)) for one in wanted]
        fits = self._standing.room(whole[0], len(whole))
        if fits:
            return Taken(fits, ends.ends_ms), whole[:fits]
        refusal = self._standing.refusal(whole[0])
        assert refusal is not None
        least = replace(wanted[0], until_ms=ends.least_ms + lag_ms)
        may_try = least.until_ms < whole[0].until_ms and not self._is_taken(refusal.budget.key, ends)
        refused = self._standing.refusal(least) if may_try else refusal
        if refused is not None:
            self.why, self.too_dear = str(refusal), _too_dear(least if may_try else whole[0], refused)
            return Taken(0, 0), ()
        return Taken(1, ends.least_ms), [least]

    def _launch(self, commitments: Sequence[Commitment], ends: FirstEnds) -> None:
        self._standing.add_all(commitments)
        self._working += [(one.keys, ends.unknown) for one in commitments]

    def _is_taken(self, key: Key, ends: FirstEnds) -> bool:
        """Whether something else works that a limit of `key` pays for: on what is unknown too, where this one would."""
        return any(key in keys and (unknown or not ends.unknown) for keys, unknown in self._working)


def _too_dear(wanted: Commitment, refusal: Refusal) -> Rate:
    """The lowest rate at which another one for as long would be refused too: what is left pays for less."""
    left = max(refusal.budget.limit - refusal.spent - refusal.committed, 0)
    return Rate(max(min(wanted.rate * left // max(refusal.wanted, 1) + 1, wanted.rate), 1))
