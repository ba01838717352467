"""Spot VMs, those that live and those that are gone: how long they ran, and how often one was preempted. Owns the
counts, and how they fade.

What is past counts half after `HALF_LIFE_MS`, half of that after as long again. So a zone that was passed over is tried
again some hours later. Kept as instances come and go: what is asked for does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from cloud_dispatch.domain.ids import ProfileName
from cloud_dispatch.domain.instance import Instance, InstanceState
from cloud_dispatch.domain.money import HOUR_MS
from cloud_dispatch.domain.offering import Market
from cloud_dispatch.domain.preemptions import Preemptions
from cloud_dispatch.spend.clocks import CLOCKS_MS

HALF_LIFE_MS = 2 * HOUR_MS
#: By then next to nothing is left of what was seen.
FADED_MS = 12 * HALF_LIFE_MS
#: As an instance says that its provider took its VM back.
CAUSE = "preempted"
#: So much of a preemption, and of running time, is as good as none.
_LEAST, _LEAST_MS = 0.005, 1_000


class Place(NamedTuple):
    """Whose VMs are counted together."""

    profile: ProfileName
    type: str
    zone: str


@dataclass(slots=True)
class _Count:
    """`preempted` and `ran_ms` of those that are gone, as they count at `at_ms`; how many are `living`, and the sum of
    the moments since when."""

    preempted: float = 0.0
    ran_ms: float = 0.0
    at_ms: int = 0
    living: int = 0
    since_ms: int = 0

    def fade(self, now_ms: int) -> None:
        """Bring it to `now_ms`; earlier than it is already it stays as it is."""
        if now_ms > self.at_ms:
            kept = _kept(now_ms - self.at_ms)
            self.preempted, self.ran_ms, self.at_ms = self.preempted * kept, self.ran_ms * kept, now_ms

    def reach(self, now_ms: int) -> None:
        """`fade` by a clock that is right: what was noted while it was ahead would else not fade until then."""
        if self.at_ms > now_ms + CLOCKS_MS:
            self.at_ms = now_ms
        self.fade(now_ms)

    def ran_until(self, now_ms: int) -> float:
        """How long all of them have run, in what counts at `now_ms`: those that live by the mean of their ages."""
        if not self.living:
            return self.ran_ms
        return self.ran_ms + self.living * _counted(now_ms - self.since_ms // self.living)


class SpotPast:
    """Bounded by how many types in zones VMs were of; those of which nothing counts any more are forgotten."""

    def __init__(self) -> None:
        self._counts: dict[Place, _Count] = {}
        self._preempting: set[Place] = set()

    def see(self, before: Instance | None, after: Instance) -> None:
        """An instance is now `after`; it was `before`, None: it is new."""
        if after.market is not Market.SPOT:
            return
        if before is not None:
            count = self._count(before)
            count.living, count.since_ms = count.living - 1, count.since_ms - before.intended_ms
        if after.state is not InstanceState.GONE:
            count = self._count(after)
            count.living, count.since_ms = count.living + 1, count.since_ms + after.intended_ms
        elif before is not None:
            self.ended(after)

    def ended(self, gone: Instance) -> None:
        """Count the life of a VM that is gone; in whatever order."""
        if not gone.vm or gone.ended_ms is None:
            return
        count = self._count(gone)
        count.fade(gone.ended_ms)
        kept = _kept(count.at_ms - gone.ended_ms)
        count.ran_ms += kept * _counted(gone.ended_ms - gone.intended_ms)
        if gone.cause == CAUSE:
            count.preempted += kept
            self._preempting.add(_place(gone))

    @property
    def living(self) -> Mapping[Place, tuple[int, int]]:
        """How many live, and the sum of the moments since when."""
        return {place: (count.living, count.since_ms) for place, count in self._counts.items() if count.living}

    def seen(self, now_ms: int) -> Sequence[Preemptions]:
        """What counts now; nothing at all as long as nothing is preempted anywhere."""
        for place in sorted(self._preempting):
            count = self._counts[place]
            count.reach(now_ms)
            if count.preempted < _LEAST:
                self._preempting.discard(place)
        if not self._preempting:
            return ()
        found = []
        for place in sorted(self._counts):
            count = self._counts[place]
            count.reach(now_ms)
            ran_ms = count.ran_until(now_ms)
            if place in self._preempting or ran_ms >= _LEAST_MS:
                found.append(Preemptions(*place, round(count.preempted * 1000), round(ran_ms)))
            elif not count.living:
                del self._counts[place]
        return tuple(found)

    def _count(self, instance: Instance) -> _Count:
        return self._counts.setdefault(_place(instance), _Count())


def _place(instance: Instance) -> Place:
    return Place(instance.profile, instance.type, instance.zone)


def _kept(age_ms: int) -> float:
    """How much still counts of what is so long past."""
    return float(0.5 ** (max(age_ms, 0) / HALF_LIFE_MS))


def _counted(ran_ms: int) -> float:
    """How much of so long a run counts at its end: its beginning is past by then."""
    return HALF_LIFE_MS / log(2) * (1.0 - _kept(ran_ms))
